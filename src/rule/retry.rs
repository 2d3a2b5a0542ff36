//! Retry rules: which dead letters are put back on their queue, how old they must be, and how often.

use std::{cell::LazyCell, time::Duration};

use super::{Matcher, Subject, Window};
use crate::{
    clock::millis,
    letter::{DeadLetter, Millis, Reason},
};

/// How much later than needed an entry may become due: a fraction of its age, so that what died together does not come
/// back together.
const JITTER: f64 = 0.1;

/// All rules in force, and a fingerprint of what they say: made by [`Rules::new`].
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The retry rules, in order: the first that matches decides.
    pub retry: Vec<RetryRule>,
    /// Changes whenever a rule says something else, and only then; empty without rules.
    pub fingerprint: String,
}

/// One retry rule.
#[derive(Clone, Debug)]
pub struct RetryRule {
    /// Its name in events, metrics and the audit log: unique, and formed like a source's name.
    pub name: String,
    /// Whom it concerns.
    pub matcher: Matcher,
    /// What it does with them.
    pub action: Action,
}

/// What a retry rule does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Puts them back on their queue, on these terms.
    Retry(Box<Terms>),
    /// Leaves them where they are, for a human.
    Leave,
}

/// On which terms a rule retries.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Age since the last death before the first retry.
    pub min_age: Duration,
    /// Automatic retries of one job, over all its deaths; at least 1.
    pub max_retries: u32,
    /// What the age is multiplied with for every retry so far; at least 1.
    pub backoff: f64,
    /// The highest age that is ever needed, and the longest pause of a group on hold; at least `min_age`.
    pub max_backoff: Duration,
    /// A retry without a verdict for this long is lost sight of.
    pub confirm_within: Duration,
    /// When retries may be made; always without one.
    pub window: Option<Window>,
    /// How many, and how fast.
    pub pace: Pace,
}

/// How many retries a rule may have under way, and how fast it makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Canaries: what may be in flight of groups of which nothing is known; at least 1.
    pub start: u32,
    /// Retries in flight at most, over all groups of the rule; at least `start`.
    pub max_in_flight: u32,
    /// Retries a second at most, over all groups of the rule.
    pub per_second: u32,
    /// A queue stream with this many entries gets no more.
    pub max_queue_length: u64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            min_age: Duration::from_secs(10 * 60),
            max_retries: 3,
            backoff: 2.0,
            max_backoff: Duration::from_secs(6 * 3600),
            confirm_within: Duration::from_secs(15 * 60),
            window: None,
            pace: Pace { start: 1, max_in_flight: 100, per_second: 50, max_queue_length: 10_000 },
        }
    }
}

impl Terms {
    /// The age since the last death that a job needs which has been retried `retries` times: `min_age` ×
    /// `backoff`^`retries`, at most `max_backoff`. Never less, whatever the jitter.
    pub fn age_needed(&self, retries: u32) -> Duration {
        let factor = self.backoff.powi(i32::try_from(retries).unwrap_or(i32::MAX));
        let needed = self.min_age.as_secs_f64() * factor;
        // Also where the factor is beyond all numbers.
        if needed < self.max_backoff.as_secs_f64() { Duration::from_secs_f64(needed) } else { self.max_backoff }
    }

    /// When an entry becomes due: the age needed, and a jitter on top that is always the same for the same entry.
    pub fn due(&self, letter: &DeadLetter, retries: u32) -> Millis {
        let needed = self.age_needed(retries);
        let jittered = needed.mul_f64(1.0 + JITTER * spread(&letter.entry_id)).min(self.max_backoff.max(needed));
        Millis(letter.died_at.0.saturating_add(millis(jittered)))
    }
}

/// A number in 0..1 that follows from the text (FNV-1a, mixed).
fn spread(text: &str) -> f64 {
    let mut hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The last characters, which are what tells entries of one moment apart, have hardly reached the upper bits.
    for _ in 0..2 {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    f64::from(u32::try_from(hash >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// What the rules say about a dead letter.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'r> {
    /// It is never retried by rule.
    Never(Never),
    /// No rule matches: it stays put.
    NoRule,
    /// This rule leaves it for a human.
    Leave(&'r RetryRule),
    /// This rule retries it, on these terms.
    Retry(&'r RetryRule, &'r Terms),
}

/// Why an entry can never be retried by rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {
    /// Its record cannot be read as a job.
    Malformed,
    /// It comes from a foreign (broker-mode) stream, which cannot be put back.
    Foreign,
    /// An overfull queue has refused it.
    Shed,
}

impl Never {
    /// Its name in metrics and in `sexton explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Never::Malformed => "malformed",
            Never::Foreign => "foreign_stream",
            Never::Shed => "shed",
        }
    }
}

/// The reason that only shed entries have.
const SHED: &str = "shed";

impl Rules {
    /// Whether there is anything to decide by.
    pub fn is_empty(&self) -> bool {
        self.retry.is_empty()
    }

    /// The rule with this name.
    pub fn named(&self, name: &str) -> Option<&RetryRule> {
        self.retry.iter().find(|rule| rule.name == name)
    }

    /// What the rules say about a letter of this source, whatever has become of it so far.
    pub fn decide(&self, source: &str, letter: &DeadLetter) -> Decision<'_> {
        if letter.foreign {
            return Decision::Never(Never::Foreign);
        }
        // Without an id, a task or an origin a record is no job, whatever reason it gives.
        if letter.job_id.is_empty() || letter.origin.is_empty() {
            return Decision::Never(Never::Malformed);
        }
        self.decide_alike(&Subject::of(source, letter))
    }

    /// What the rules say about letters that look like this to a matcher, as far as that tells whether they can be
    /// retried at all.
    pub fn decide_alike(&self, subject: &Subject<'_>) -> Decision<'_> {
        if subject.reason == Reason::Malformed.as_str() || subject.task.is_empty() {
            return Decision::Never(Never::Malformed);
        }
        if subject.reason == SHED {
            return Decision::Never(Never::Shed);
        }
        let line = LazyCell::new(|| subject.error_line());
        match self.retry.iter().find(|rule| rule.matcher.matches_line(subject, &line)) {
            None => Decision::NoRule,
            Some(rule) => match &rule.action {
                Action::Leave => Decision::Leave(rule),
                Action::Retry(terms) => Decision::Retry(rule, terms),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        letter::{ErrorInfo, Group, Verdict},
        rule::Globs,
    };

    fn letter(entry_id: &str) -> DeadLetter {
        DeadLetter {
            entry_id: entry_id.to_owned(),
            job_id: "j".to_owned(),
            task: "send_email".to_owned(),
            queue: "default".to_owned(),
            reason: Reason::MaxAttempts,
            error: ErrorInfo { kind: "TimeoutError".to_owned(), message: "after 30s".to_owned() },
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

    fn terms(min_age: u64, backoff: f64, max_backoff: u64) -> Terms {
        let (min_age, max_backoff) = (Duration::from_secs(min_age), Duration::from_secs(max_backoff));
        Terms { min_age, backoff, max_backoff, ..Terms::default() }
    }

    #[test]
    fn the_age_needed_grows_with_every_retry_up_to_its_limit() {
        for (min_age, backoff, max_backoff, retries, needed) in [
            (600, 2.0, 21_600, 0, 600.0),
            (600, 2.0, 21_600, 1, 1_200.0),
            (600, 2.0, 21_600, 5, 19_200.0),
            (600, 2.0, 21_600, 6, 21_600.0),
            (600, 2.0, 21_600, u32::MAX, 21_600.0),
            (600, 1.0, 21_600, 1_000, 600.0),
            (10, 1.5, 3_600, 3, 33.75),
            (60, 1_000.0, 60, 2, 60.0),
            (600, f64::MAX, 21_600, 2, 21_600.0),
        ] {
            let age = terms(min_age, backoff, max_backoff).age_needed(retries);
            assert_eq!(age, Duration::from_secs_f64(needed), "{min_age} {backoff} {max_backoff} {retries}");
        }
    }

    #[test]
    fn entries_that_died_together_become_due_apart() {
        let terms = terms(600, 2.0, 21_600);
        // A minute of jitter, in tenths: each gets its share of the entries of one moment.
        let mut tenths = [0; 10];
        for n in 0..1_000 {
            let letter = letter(&format!("1795972370488-{n}"));
            let jitter = terms.due(&letter, 0).0 - letter.died_at.0 - 600_000;
            tenths[usize::try_from(jitter / 6_001).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|share| (60..=140).contains(share)), "{tenths:?}");
        let next = |n: u32| terms.due(&letter(&format!("1795972370488-{n}")), 0).0;
        let apart = (0..100).filter(|&n| (next(n) - next(n + 1)).abs() > 1_000).count();
        assert!(apart > 90, "{apart} of 100 neighbours");
    }

    proptest! {
        #[test]
        fn an_entry_is_never_due_before_its_age_nor_a_tenth_later(
            entry in "[0-9]{1,13}-[0-9]{1,3}", min_age in 1_u64..100_000, backoff in 1.0..50.0, longest in 1_u64..1_000_000,
            retries in 0_u32..100,
        ) {
            let terms = terms(min_age, backoff, longest.max(min_age));
            let letter = letter(&entry);
            let (needed, due) = (terms.age_needed(retries), terms.due(&letter, retries));
            prop_assert!(needed >= terms.min_age && needed <= terms.max_backoff);
            let age = due.0 - letter.died_at.0;
            prop_assert!(age >= millis(needed) && age <= millis(needed.mul_f64(1.1)) + 1, "{age} for {needed:?}");
            prop_assert!(age <= millis(terms.max_backoff));
            prop_assert_eq!(due, terms.due(&letter, retries), "the same every time");
        }
    }

    #[test]
    fn a_death_beyond_all_calendars_is_due_at_their_end() {
        let letter = DeadLetter { died_at: Millis(i64::MAX), ..letter("1-0") };
        assert_eq!(terms(600, 2.0, 21_600).due(&letter, 0), Millis(i64::MAX));
    }

    /// What was decided, in a word.
    fn decided(rules: &Rules, letter: &DeadLetter) -> String {
        match rules.decide("orders", letter) {
            Decision::Never(never) => format!("never: {}", never.as_str()),
            Decision::NoRule => "no rule".to_owned(),
            Decision::Leave(rule) => format!("{} leaves", rule.name),
            Decision::Retry(rule, _) => format!("{} retries", rule.name),
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_some_letters_are_never_retried() {
        let task = |glob: &str| Some(Globs::new(&[globset::Glob::new(glob).unwrap()]).unwrap());
        let rule = |name: &str, matcher, action| RetryRule { name: name.to_owned(), matcher, action };
        let retry = || Action::Retry(Box::default());
        let error = regex::Regex::new("^TimeoutError: after").unwrap();
        let rules = Rules::new(vec![
            rule("elsewhere", Matcher { source: task("billing"), ..Matcher::default() }, Action::Leave),
            rule("timeouts", Matcher { error: Some(error), ..Matcher::default() }, retry()),
            rule("mails", Matcher { task: task("send_*"), ..Matcher::default() }, Action::Leave),
            rule("bugs", Matcher { history: Some("same".to_owned()), ..Matcher::default() }, retry()),
        ]);
        let letter = || letter("1-0");
        let other = || ErrorInfo { kind: "ValueError".to_owned(), message: "x".to_owned() };
        for (letter, expected) in [
            (letter(), "timeouts retries"),
            (DeadLetter { error: other(), ..letter() }, "mails leaves"),
            (DeadLetter { error: other(), task: "parse".to_owned(), ..letter() }, "bugs retries"),
            (DeadLetter { error: other(), task: "parse".to_owned(), verdict: Verdict::Mixed, ..letter() }, "no rule"),
            (DeadLetter { foreign: true, ..letter() }, "never: foreign_stream"),
            (DeadLetter { reason: Reason::Malformed, ..letter() }, "never: malformed"),
            (DeadLetter { job_id: String::new(), ..letter() }, "never: malformed"),
            (DeadLetter { task: String::new(), ..letter() }, "never: malformed"),
            (DeadLetter { origin: String::new(), ..letter() }, "never: malformed"),
            (DeadLetter { reason: Reason::Other("shed".to_owned()), ..letter() }, "never: shed"),
            (DeadLetter { reason: Reason::Other("new".to_owned()), ..letter() }, "timeouts retries"),
        ] {
            assert_eq!(decided(&rules, &letter), expected, "{letter:?}");
        }
        assert_eq!(decided(&Rules::default(), &letter()), "no rule");
        assert!(Rules::default().is_empty() && !rules.is_empty());
        assert_eq!(rules.named("bugs").map(|rule| &*rule.name), Some("bugs"));
        assert!(rules.named("bug").is_none());
    }
}
