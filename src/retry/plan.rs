//! What the rules plan for a dead letter, given how often its job has been retried.

use crate::{
    event::{EventData, JobDead},
    ledger::{JobCounts, Place, Plan, Pool},
    letter::{DeadLetter, Millis},
    rule::{Decision, RetryRule, Rules, Terms},
};

/// The plan for one letter, and what its event says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate<'r> {
    /// The rule that decides about it, also one that leaves it.
    pub rule: Option<&'r str>,
    /// When that rule will retry it.
    pub next_retry_at: Option<Millis>,
    /// What the ledger is to do; none for an entry that stays put.
    pub plan: Option<Plan>,
}

/// The fate of a letter whose job died as often as `before` says before this death, and was retried as often.
pub fn fate<'r>(rules: &'r Rules, source: &str, letter: &DeadLetter, before: JobCounts) -> Fate<'r> {
    let (rule, terms) = match rules.decide(source, letter) {
        Decision::Never(_) | Decision::NoRule => return Fate::default(),
        Decision::Leave(rule) => return Fate { rule: Some(&rule.name), ..Fate::default() },
        Decision::Retry(rule, terms) => (rule, terms),
    };
    let name = Some(rule.name.as_str());
    let retries = before.retries;
    if retries >= terms.max_retries {
        let dead = JobDead {
            deaths: before.deaths.saturating_add(1),
            retries,
            rule: name.map(str::to_owned),
            ..JobDead::of(source, letter, Default::default())
        };
        let event = EventData::JobExhausted(Box::new(dead)).to_json();
        return Fate {
            rule: name,
            next_retry_at: None,
            plan: Some(Plan::Spent { event, rule: rule.name.clone(), retries }),
        };
    }
    let due = due(terms, letter, retries);
    Fate { rule: name, next_retry_at: Some(due), plan: Some(Plan::Wait { place: place(rule, letter), due, retries }) }
}

/// Where the entries of this letter's kind wait.
pub fn place(rule: &RetryRule, letter: &DeadLetter) -> Place {
    Place { pool: Pool::of(&rule.name, &letter.task), group: letter.group.0.clone() }
}

/// When it is due, but in no closed window.
fn due(terms: &Terms, letter: &DeadLetter, retries: u32) -> Millis {
    let due = terms.due(letter, retries);
    match &terms.window {
        Some(window) if !window.is_open(due) => window.opens_after(due).unwrap_or(due),
        _ => due,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        letter::{ErrorInfo, Group, Reason, Verdict},
        rule::{Action, Matcher, Window, Zone},
    };

    fn letter() -> DeadLetter {
        DeadLetter {
            entry_id: "1000000-0".to_owned(),
            job_id: "j".to_owned(),
            task: "send_email".to_owned(),
            queue: "default".to_owned(),
            reason: Reason::MaxAttempts,
            error: ErrorInfo::default(),
            detail: Vec::new(),
            attempts: 3,
            deliveries: 1,
            history: Vec::new(),
            verdict: Verdict::Same,
            group: Group("7c1f0e9a2b44".to_owned()),
            enqueued_at: None,
            died_at: Millis(1_000_000),
            traceparent: None,
            payload: Vec::new(),
            dedup: None,
            origin: "{lrs}:q:default:0".to_owned(),
            foreign: false,
        }
    }

    fn rules(action: Action) -> Rules {
        let rule = RetryRule { name: "flaky".to_owned(), matcher: Matcher::default(), action };
        Rules { retry: vec![rule], fingerprint: "f".to_owned() }
    }

    fn minute() -> Terms {
        Terms { min_age: Duration::from_secs(60), max_retries: 2, ..Terms::default() }
    }

    fn counts(deaths: u32, retries: u32) -> JobCounts {
        JobCounts { deaths, retries }
    }

    #[test]
    fn it_waits_for_as_long_as_its_retries_so_far_say() {
        let rules = rules(Action::Retry(Box::new(minute())));
        for (retries, at_least) in [(0, 60_000), (1, 120_000)] {
            let fate = fate(&rules, "orders", &letter(), counts(retries, retries));
            let Some(Plan::Wait { place, due, retries: planned_for }) = fate.plan else { panic!("{fate:?}") };
            assert_eq!((fate.rule, fate.next_retry_at, planned_for), (Some("flaky"), Some(due), retries));
            assert_eq!(place.pool.rule(), "flaky");
            let age = due.0 - 1_000_000;
            assert!((at_least..=at_least * 11 / 10).contains(&age), "{age}");
        }
    }

    #[test]
    fn a_spent_allowance_is_said_with_the_counts() {
        let rules = rules(Action::Retry(Box::new(minute())));
        let fate = fate(&rules, "orders", &letter(), counts(2, 2));
        let Some(Plan::Spent { event, rule, retries }) = fate.plan else { panic!("{fate:?}") };
        assert_eq!((rule.as_str(), retries, fate.next_retry_at), ("flaky", 2, None));
        let dead: JobDead = serde_json::from_str(&event).unwrap();
        assert_eq!((dead.deaths, dead.retries, dead.rule.as_deref()), (3, 2, Some("flaky")));
    }

    #[test]
    fn what_stays_put_has_no_plan() {
        let left = rules(Action::Leave);
        assert_eq!(fate(&left, "orders", &letter(), counts(0, 0)), Fate { rule: Some("flaky"), ..Fate::default() });
        let retried = rules(Action::Retry(Box::default()));
        for never in [
            DeadLetter { reason: Reason::Malformed, ..letter() },
            DeadLetter { foreign: true, ..letter() },
            DeadLetter { job_id: String::new(), ..letter() },
            DeadLetter { origin: String::new(), ..letter() },
            DeadLetter { reason: Reason::Other("shed".to_owned()), ..letter() },
        ] {
            assert_eq!(fate(&retried, "orders", &never, counts(0, 0)), Fate::default(), "{never:?}");
        }
        assert_eq!(fate(&Rules::default(), "orders", &letter(), counts(0, 0)), Fate::default());
    }

    #[test]
    fn it_is_not_due_while_the_window_is_closed() {
        // 1970-01-01T00:16:40Z is a death in the night; the window opens at eight.
        let window = Window::parse("* 8-19 * * *", Zone::UTC).unwrap();
        let rules = rules(Action::Retry(Box::new(Terms { window: Some(window), ..minute() })));
        let fate = fate(&rules, "orders", &letter(), counts(0, 0));
        assert_eq!(fate.next_retry_at, Some(Millis(8 * 3600 * 1000)));
    }
}
