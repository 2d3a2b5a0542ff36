//! `waiting`: entries that stay in the DLQ, with nobody to look at them.
//!
//! They are older than the samples, so the leader reads them from the DLQ itself, the oldest first, now and then.

use std::{collections::BTreeMap, time::Duration};

use super::{
    AlertRule, Cause, Kind, Labels,
    reading::{ENTRIES, Holds, Need, Reading},
    rule::WAITING_AT_MOST,
};
use crate::{clock::millis, event::JobDead, letter::Millis};

/// Which entries a `waiting` rule has to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedQuery {
    /// Entries of the DLQ that died longer ago than this.
    pub older_than: Duration,
    /// This many of them at most, the oldest ones.
    pub at_most: u64,
}

/// What a `waiting` rule has seen.
#[derive(Clone, Debug, Default)]
pub struct Aged {
    /// The rule's name.
    pub rule: String,
    by_labels: BTreeMap<Labels, Seen>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    entries: u64,
    oldest: i64,
    causes: Vec<(Cause, u64)>,
}

/// Causes told apart in one event.
const CAUSES: usize = 16;

impl AlertRule {
    /// What the leader has to read for this rule; none if it is no `waiting` rule. A rule with `by` or `match` looks at
    /// the oldest [`WAITING_AT_MOST`] entries and knows nothing of those behind them.
    pub fn aged(&self) -> Option<AgedQuery> {
        let Kind::Waiting(waiting) = &self.kind else { return None };
        let at_most = if self.is_of_the_whole() { waiting.entries } else { WAITING_AT_MOST };
        Some(AgedQuery { older_than: waiting.older_than, at_most })
    }
}

impl Aged {
    /// Nothing seen yet for this rule, which is enough where there is no such entry.
    pub fn new(rule: &AlertRule) -> Aged {
        Aged { rule: rule.name.clone(), by_labels: BTreeMap::new() }
    }

    /// Counts an entry that died at `at`, if the rule means it and it is old enough.
    pub fn add(&mut self, rule: &AlertRule, source: &str, now: Millis, at: Millis, dead: &JobDead) {
        let Kind::Waiting(waiting) = &rule.kind else { return };
        if now.0 - at.0 < millis(waiting.older_than) {
            return;
        }
        let cause = Cause::of(dead, at);
        let Some(labels) = cause.labels(rule, source) else { return };
        let seen = self.by_labels.entry(labels).or_insert_with(|| Seen { oldest: at.0, ..Seen::default() });
        seen.entries += 1;
        seen.oldest = seen.oldest.min(at.0);
        if let Some((_, count)) = seen.causes.iter_mut().find(|(known, _)| known.group == cause.group) {
            *count += 1;
        } else if seen.causes.len() < CAUSES {
            seen.causes.push((cause, 1));
        }
    }

    /// What the rule says of it.
    pub(super) fn judge(&self, rule: &AlertRule) -> Vec<Reading> {
        let Kind::Waiting(waiting) = &rule.kind else { return Vec::new() };
        let reading = |(labels, seen): (&Labels, &Seen)| {
            let entries = i64::try_from(seen.entries).unwrap_or(i64::MAX);
            Reading {
                labels: labels.clone(),
                holds: if seen.entries >= waiting.entries { Holds::Yes } else { Holds::No },
                value: entries,
                since: Millis(seen.oldest),
                needs: vec![Need {
                    what: ENTRIES,
                    have: entries,
                    need: i64::try_from(waiting.entries).unwrap_or(i64::MAX),
                }],
                still_rising: None,
                told_by: None,
            }
        };
        self.by_labels.iter().map(reading).collect()
    }

    /// The causes seen under these labels.
    pub(super) fn causes(&self, labels: &Labels) -> &[(Cause, u64)] {
        self.by_labels.get(labels).map_or(&[], |seen| &seen.causes)
    }
}
