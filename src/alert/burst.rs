//! `burst`: many first deaths within a short time.

use std::collections::BTreeMap;

use super::{
    AlertRule, Labels,
    reading::{Holds, Need, Reading},
    rule::Burst,
    samples::Samples,
};
use crate::{clock::millis, letter::Millis};

/// What the rule says now, by labels that have died at all.
pub(super) fn judge(rule: &AlertRule, burst: &Burst, source: &str, samples: &Samples, now: Millis) -> Vec<Reading> {
    let by_cause = samples.labels(rule, source);
    // By labels: how many, and in which cell the first of them.
    let mut deaths: BTreeMap<&Labels, (u64, i64)> = BTreeMap::new();
    let from = now.0 - millis(burst.over);
    for cell in samples.since(from) {
        for count in cell.counts.iter().filter(|count| count.first > 0) {
            let Some(labels) = by_cause.get(&count.cause) else { continue };
            let counted = deaths.entry(labels).or_default();
            let at = if cell.until == 0 { now.0 } else { cell.until };
            *counted = (counted.0 + u64::from(count.first), at);
        }
    }
    deaths
        .into_iter()
        .map(|(labels, (deaths, first))| {
            let count = i64::try_from(deaths).unwrap_or(i64::MAX);
            Reading {
                labels: labels.clone(),
                holds: if deaths >= burst.deaths { Holds::Yes } else { Holds::No },
                value: count,
                since: Millis(first),
                needs: vec![Need {
                    what: "deaths",
                    have: count,
                    need: i64::try_from(burst.deaths).unwrap_or(i64::MAX),
                }],
                still_rising: None,
                told_by: None,
            }
        })
        .collect()
}
