//! What is counted about retries.

use prometheus::{IntCounterVec, IntGaugeVec};

use crate::ledger::{Pool, Refusal, Verdict};

/// Metrics about retries.
#[derive(Debug)]
pub(super) struct Retries {
    pub(super) sent: IntCounterVec,
    pub(super) outcomes: IntCounterVec,
    pub(super) refused: IntCounterVec,
    pub(super) in_flight: IntGaugeVec,
    pub(super) due: IntGaugeVec,
    pub(super) held: IntGaugeVec,
    pub(super) exhausted: IntCounterVec,
}

/// One metric as the documentation lists it: name, labels, meaning.
pub(super) const REFERENCE: [(&str, &[&str], &str); 7] = [
    ("sexton_retries_total", &["source", "rule", "task"], "Jobs put back on their queue by a rule"),
    (
        "sexton_retry_outcomes_total",
        &["source", "rule", "outcome"],
        "What became of retries: `recovered`, `re_died` or `lost_sight` for each, and before that perhaps `failing`: its \
         first new attempt failed; the rule is `by hand` where a person had retried",
    ),
    (
        "sexton_retry_refusals_total",
        &["source", "rule", "reason"],
        "Times an entry was due but not retried, by reason; `sexton explain` tells them for one entry",
    ),
    (
        "sexton_retries_in_flight",
        &["source", "rule"],
        "Retries without a final verdict yet; the rule is `by hand` where a person had retried (leader only)",
    ),
    ("sexton_retry_due_entries", &["source"], "Entries that a rule will retry: the due index (leader only)"),
    (
        "sexton_groups_held",
        &["source", "rule"],
        "Groups on hold: their retries failed, and nothing of them is sent until a pause has passed (leader only)",
    ),
    ("sexton_entries_exhausted_total", &["source", "rule"], "Jobs that died again with their allowance spent"),
];

impl Retries {
    /// The label sets that a rule is known to have, at 0.
    pub(super) fn begin(&self, source: &str, rule: &str) {
        for verdict in Verdict::ALL {
            self.outcomes.with_label_values(&[source, rule, verdict.as_str()]);
        }
        self.exhausted.with_label_values(&[source, rule]);
    }

    /// Those of what people retry, at 0.
    pub(super) fn begin_by_hand(&self, source: &str) {
        for verdict in Verdict::ALL {
            self.outcomes.with_label_values(&[source, Pool::BY_HAND, verdict.as_str()]);
        }
    }

    /// Takes the gauges of a source away; they are the leader's alone.
    pub(super) fn lead_no_more(&self, source: &str, rules: &[&str]) {
        // An error only says that the gauge was not there.
        let _ = self.due.remove_label_values(&[source]);
        for rule in rules {
            let _ = self.in_flight.remove_label_values(&[source, rule]);
            let _ = self.held.remove_label_values(&[source, rule]);
        }
    }

    /// The same of what people retry.
    pub(super) fn lead_no_more_by_hand(&self, source: &str) {
        let _ = self.in_flight.remove_label_values(&[source, Pool::BY_HAND]);
    }

    pub(super) fn refused(&self, source: &str, rule: &str, refusal: Refusal, count: u64) {
        self.refused.with_label_values(&[source, rule, refusal.as_str()]).inc_by(count);
    }
}
