//! `burst`: many first deaths within a short time.

use std::collections::BTreeMap;

use super::{
    AlertRule, Labels,
    cause::CauseId,
    reading::{DEATHS, Holds, Need, Reading},
    rule::Burst,
    samples::Samples,
};
use crate::{clock::millis, letter::Millis};

/// What the rule says now, by labels that have died at all.
pub(super) fn judge(rule: &AlertRule, burst: &Burst, source: &str, samples: &Samples, now: Millis) -> Vec<Reading> {
    // How many, and in which cell the first of them.
    let mut by_cause: BTreeMap<CauseId, (u64, i64)> = BTreeMap::new();
    for cell in samples.since(now.0 - millis(burst.over)) {
        let at = cell.end(now);
        for count in cell.counts.iter().filter(|count| count.first > 0) {
            let counted = by_cause.entry(count.cause).or_default();
            *counted = (counted.0 + u64::from(count.first), at);
        }
    }
    let mut deaths: BTreeMap<Labels, (u64, i64)> = BTreeMap::new();
    for (cause, (count, first)) in by_cause {
        let Some(labels) = samples.labels(cause, rule, source) else { continue };
        let counted = deaths.entry(labels).or_insert((0, first));
        *counted = (counted.0 + count, counted.1.min(first));
    }
    deaths
        .into_iter()
        .map(|(labels, (deaths, first))| {
            let count = i64::try_from(deaths).unwrap_or(i64::MAX);
            Reading {
                labels,
                holds: if deaths >= burst.deaths { Holds::Yes } else { Holds::No },
                value: count,
                since: Millis(first),
                needs: vec![Need { what: DEATHS, have: count, need: i64::try_from(burst.deaths).unwrap_or(i64::MAX) }],
                still_rising: None,
                told_by: None,
            }
        })
        .collect()
}
