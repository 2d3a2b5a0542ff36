//! What the retry loop does with the jobs of one group, in one sentence: for who is told of groups and not of entries.

use super::moment::{counted, moment, written};
use crate::{
    ledger::Place,
    letter::Millis,
    retry::{Aloft, Learnt, PoolLearnt},
    rule::{Decision, Never, RetryRule, Terms},
};

/// What is known of a group that a rule retries.
#[derive(Clone, Copy, Debug)]
pub struct GroupFacts<'a> {
    /// The store's time.
    pub now: Millis,
    /// Where its entries wait.
    pub place: &'a Place,
    /// What has been learnt of its pool.
    pub pool: &'a PoolLearnt,
    /// What has been learnt of it.
    pub group: &'a Learnt,
    /// All flights.
    pub aloft: &'a Aloft,
}

/// Explains a group about whose jobs the rules say this; none if a rule retries them and nothing is known of it.
pub fn explain_group(decision: Decision<'_>, facts: Option<GroupFacts<'_>>) -> Option<String> {
    Some(match decision {
        Decision::Never(Never::Malformed) => {
            "Their records cannot be read as jobs, so no rule retries them: they wait for a person.".to_owned()
        }
        Decision::Never(Never::Foreign) => {
            "They come from a foreign (broker-mode) stream, to which no rule puts anything back: they wait for a person."
                .to_owned()
        }
        Decision::Never(Never::Shed) => {
            "An overfull queue has refused them, so no rule retries them: they wait for a person.".to_owned()
        }
        Decision::NoRule => "No retry rule matches, so they stay in the DLQ for a person.".to_owned(),
        Decision::Leave(rule) => {
            format!("Rule {} leaves them in the DLQ for a person (`action: leave`).", rule.name)
        }
        Decision::Retry(rule, terms) => facts?.retried(rule, terms),
    })
}

impl GroupFacts<'_> {
    fn retried(&self, rule: &RetryRule, terms: &Terms) -> String {
        let (now, rule) = (self.now, &rule.name);
        let doubted_at = self.pool.doubted_at();
        let proven = self.group.is_proven(now, terms, doubted_at);
        let ahead = "the others follow when that recovers";
        let goes = match terms.pace.start {
            1 => "one retry goes".to_owned(),
            start => format!("{start} retries go"),
        };
        let pool_held = self.pool.held_until(now, terms).filter(|_| !proven);
        if let Some(until) = self.group.held_until(now, terms).max(pool_held) {
            return format!(
                "Retries under rule {rule} failed, so nothing of them is sent until {}; then {goes} ahead, and {ahead}.",
                moment(now, until)
            );
        }
        if let Some(window) = terms.window.as_ref().filter(|window| !window.is_open(now)) {
            let until =
                window.opens_after(now).map_or("for good".to_owned(), |at| format!("until {}", moment(now, at)));
            return format!("Rule {rule} retries them, but its window (`{window}`) is closed {until}.");
        }
        let in_flight = self.aloft.of_group(self.place);
        let retries = |count: u32| counted(u64::from(count), "retry", "retries");
        if proven {
            let allowed = self.group.allowed(now, terms, doubted_at);
            return format!(
                "Rule {rule} retries them, and they run through: {in_flight} of at most {} in flight.",
                retries(allowed)
            );
        }
        if in_flight > 0 {
            return format!("Rule {rule} has sent {} ahead and waits for the outcome: {ahead}.", retries(in_flight));
        }
        format!(
            "Rule {rule} retries a job {} after its death at the earliest, {} at most: {goes} ahead, and {ahead}.",
            written(terms.min_age),
            counted(u64::from(terms.max_retries), "time", "times"),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        event::JobDead,
        ledger::{Flight, Pool, Rounds, Whereabouts},
        retry::Evidence,
        rule::{Action, Matcher, Window, Zone},
    };

    // 2026-11-29T17:12:50.488Z.
    const NOW: Millis = Millis(1_795_972_370_488);

    fn said(decision: Decision<'_>, pool: &PoolLearnt, group: &Learnt, flights: &[Flight]) -> String {
        let place = Place { pool: Pool::of("flaky", "t"), group: "a".to_owned() };
        let facts = GroupFacts { now: NOW, place: &place, pool, group, aloft: &Aloft::of(flights) };
        explain_group(decision, Some(facts)).unwrap()
    }

    fn rule(action: Action) -> RetryRule {
        RetryRule { name: "flaky".to_owned(), matcher: Matcher::default(), action }
    }

    fn evidence(ago: i64) -> Evidence {
        Evidence { round: 1, sent_at: Millis(NOW.0 - ago), was_failing: false, since: Millis(0) }
    }

    #[test]
    fn what_no_rule_retries_waits_for_a_person() {
        let leave = rule(Action::Leave);
        for (decision, expected) in [
            (Decision::NoRule, "No retry rule matches"),
            (Decision::Leave(&leave), "Rule flaky leaves them"),
            (Decision::Never(Never::Malformed), "Their records cannot be read"),
            (Decision::Never(Never::Foreign), "They come from a foreign"),
            (Decision::Never(Never::Shed), "An overfull queue"),
        ] {
            let said = said(decision, &PoolLearnt::default(), &Learnt::default(), &[]);
            assert!(said.starts_with(expected) && said.contains("for a person"), "{said}");
        }
    }

    #[test]
    fn what_a_rule_retries_is_told_as_it_stands() {
        let terms = Terms { min_age: Duration::from_secs(240), ..Terms::default() };
        let window = Window::parse("* 18 * * *", Zone::UTC).unwrap();
        let closed = Terms { window: Some(window), ..terms.clone() };
        let retried = rule(Action::Leave);
        let (fresh, unknown) = (Learnt::default(), PoolLearnt::default());
        let mut held = Learnt::default();
        held.failed(NOW, &terms, evidence(1_000), 0.0);
        let mut proven = Learnt::default();
        proven.recovered(NOW, &terms, evidence(1_000));
        let flight = Flight {
            place: Place { pool: Pool::of("flaky", "t"), group: "a".to_owned() },
            dead: JobDead::default(),
            stream: String::new(),
            dedup: None,
            sent_at: NOW,
            confirm_by: NOW,
            rounds: Rounds::default(),
            at: Whereabouts::Queue(String::new()),
            seen_at: NOW,
            failing: false,
        };
        for (terms, group, flights, expected) in [
            (
                &terms,
                &fresh,
                &[][..],
                "Rule flaky retries a job 4m after its death at the earliest, 3 times at most: one retry goes ahead, and \
                 the others follow when that recovers.",
            ),
            (
                &terms,
                &held,
                &[],
                "Retries under rule flaky failed, so nothing of them is sent until 2026-11-29T17:16:50.488Z (in 4 \
                 minutes); then one retry goes ahead, and the others follow when that recovers.",
            ),
            (
                &closed,
                &fresh,
                &[],
                "Rule flaky retries them, but its window (`* 18 * * * (UTC)`) is closed until 2026-11-29T18:00:00.000Z (in 47 \
                 minutes).",
            ),
            (
                &terms,
                &proven,
                std::slice::from_ref(&flight),
                "Rule flaky retries them, and they run through: 1 of at most 2 retries in flight.",
            ),
            (
                &terms,
                &fresh,
                std::slice::from_ref(&flight),
                "Rule flaky has sent 1 retry ahead and waits for the outcome: the others follow when that recovers.",
            ),
        ] {
            assert_eq!(said(Decision::Retry(&retried, terms), &unknown, group, flights), expected);
        }
        let mut pool_held = PoolLearnt::default();
        pool_held.failed(NOW, &terms, evidence(1_000), true, 0.0);
        let decision = Decision::Retry(&retried, &terms);
        assert!(said(decision, &pool_held, &fresh, &[]).starts_with("Retries under rule flaky failed"));
        assert!(said(decision, &pool_held, &proven, &[]).contains("they run through"), "it goes on by itself");
    }
}
