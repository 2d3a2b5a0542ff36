//! Retry rules: which dead letters are put back on their queue, how old they must be, and how often.

use std::time::Duration;

use super::{Matcher, Subject, Window};
use crate::{
    clock::millis,
    letter::{DeadLetter, Millis, Reason},
};

/// How much later than needed an entry may become due: a fraction of its age, so that what died together does not come
/// back together.
const JITTER: f64 = 0.1;

/// All rules in force, and a fingerprint of what they say.
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

/// A number in 0..1 that follows from the text (FNV-1a).
fn spread(text: &str) -> f64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The upper bits are the well mixed ones.
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
        if letter.reason == Reason::Malformed || letter.job_id.is_empty() || letter.origin.is_empty() {
            return Decision::Never(Never::Malformed);
        }
        if letter.reason.as_str() == SHED {
            return Decision::Never(Never::Shed);
        }
        let subject = Subject::of(source, letter);
        match self.retry.iter().find(|rule| rule.matcher.matches(&subject)) {
            None => Decision::NoRule,
            Some(rule) => match &rule.action {
                Action::Leave => Decision::Leave(rule),
                Action::Retry(terms) => Decision::Retry(rule, terms),
            },
        }
    }
}
