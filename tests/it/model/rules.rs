//! The rules of a sequence: as plain data for the reference model, and as the ones that the loops go by.

use std::{sync::Arc, time::Duration};

use globset::Glob;
use regex::Regex;
use sexton::rule::{Action, Globs, Matcher, Pace, RetryRule, Rules, Terms};

/// Rules in order: the first that matches decides.
pub(super) type RuleSet = Vec<Rule>;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// The one task it is about; none for all.
    pub(super) task: Option<&'static str>,
    /// The one reason it is about; none for all.
    pub(super) reason: Option<&'static str>,
    /// The one type of error it is about; none for all.
    pub(super) error: Option<&'static str>,
    /// On which terms it retries; none for one that leaves them.
    pub(super) grants: Option<Grants>,
}

/// What a rule grants, times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) min_age: i64,
    pub(super) backoff: i64,
    pub(super) max_backoff: i64,
    pub(super) max_retries: u32,
    pub(super) start: u32,
    pub(super) max_in_flight: u32,
    pub(super) max_queue_length: u64,
    pub(super) confirm_within: i64,
}

impl Grants {
    /// The age a job needs that has been retried so often.
    pub(super) fn age(&self, retries: u32) -> i64 {
        self.min_age.saturating_mul(self.backoff.saturating_pow(retries)).min(self.max_backoff)
    }

    /// The age at which it is due at the latest: a tenth of jitter, and what a fraction of a millisecond can make.
    pub(super) fn latest_age(&self, retries: u32) -> i64 {
        let age = self.age(retries);
        (age + age / 10 + 1).min(self.max_backoff.max(age))
    }
}

impl Rule {
    fn real(&self) -> RetryRule {
        let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let matcher = Matcher {
            task: self.task.map(|task| Globs::new(&[Glob::new(task).expect("a name")]).expect("one name")),
            reason: self.reason.map(|reason| vec![reason.to_owned()]),
            error: self.error.map(|error| Regex::new(&format!("^{error}: ")).expect("a name")),
            ..Matcher::default()
        };
        let action = match &self.grants {
            None => Action::Leave,
            Some(grants) => Action::Retry(Box::new(Terms {
                min_age: ms(grants.min_age),
                max_retries: grants.max_retries,
                #[expect(clippy::cast_precision_loss, reason = "1 or 2")]
                backoff: grants.backoff as f64,
                max_backoff: ms(grants.max_backoff),
                confirm_within: ms(grants.confirm_within),
                window: None,
                pace: Pace {
                    start: grants.start,
                    max_in_flight: grants.max_in_flight,
                    // By the machine's clock, which is not the sequence's: it must not matter.
                    per_second: u32::MAX,
                    max_queue_length: grants.max_queue_length,
                },
            })),
        };
        RetryRule { name: self.name.to_owned(), matcher, action }
    }
}

/// As the loops take them.
pub(super) fn real(rules: &[Rule]) -> Arc<Rules> {
    Arc::new(Rules::new(rules.iter().map(Rule::real).collect()))
}
