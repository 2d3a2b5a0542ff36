//! `rising`: does the line rise, steadily, by enough, and still?
//!
//! *By enough* is measured so that no single bucket decides it: each counts with at most twice its share of `growth`,
//! up or down. A burst on top of a trickle is not a rising line, and a purge in the middle of one does not hide it.
//!
//! The whole line is the level as it was sampled. The line of a part (`by`, `match`) is not: nobody counts the entries of
//! a DLQ by task. What is known of a part is who died and who ran through after a retry of ours, and of the whole how
//! much longer the line became. So in each bucket a part rose by what died of it for the first time, less what of it is
//! known to have left, and at most by as much as the whole line rose. Where somebody removes entries as fast as they
//! come, no part rises; and a purge of old entries hides a rise for the one bucket it falls in.

use std::collections::BTreeMap;

use super::{
    AlertRule, Labels,
    cause::{CauseId, whole},
    reading::{BUCKETS_RISING, Holds, Need, Reading, STEADY_GROWTH},
    rule::Rising,
    samples::{Edge, Samples},
};
use crate::{clock::millis, letter::Millis};

/// The line from one known level to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: Edge,
    to: Edge,
    /// The number of the edge it ends at.
    end: usize,
    /// Edges in between whose level nobody knows.
    unknown: u32,
}

/// What the levels at the edges of the buckets say.
struct Steps {
    steps: Vec<Step>,
    /// Edges at the beginning whose level nobody knows.
    unknown_before: u32,
    /// Whether the levels at the last three edges are known.
    fresh: bool,
    /// Whether the level is known now.
    now: bool,
    buckets: usize,
}

impl Steps {
    fn of(rising: &Rising, samples: &Samples, now: Millis) -> Steps {
        let buckets = rising.buckets.max(1) as usize;
        let (over, width) = (millis(rising.over), millis(rising.over / rising.buckets.max(1)));
        let mut steps: Vec<Step> = Vec::with_capacity(buckets);
        let mut known: Option<Edge> = None;
        let (mut unknown, mut unknown_before, mut unknown_late) = (0, 0, false);
        for n in 0..=buckets {
            let passed = i64::try_from(n).unwrap_or(0).saturating_mul(over) / i64::from(rising.buckets.max(1));
            let Some(edge) = samples.edge(now.0 - over + passed, width) else {
                unknown += 1;
                unknown_late |= n + 2 >= buckets;
                continue;
            };
            match known {
                Some(from) => steps.push(Step { from, to: edge, end: n, unknown }),
                None => unknown_before = unknown,
            }
            (known, unknown) = (Some(edge), 0);
        }
        Steps { steps, unknown_before, fresh: !unknown_late, now: known.is_some() && unknown == 0, buckets }
    }

    /// What the rule says of a line that changed by `rose` in each step.
    fn read(&self, rising: &Rising, labels: Labels, rose: &[i64], told_until: Option<i64>) -> Reading {
        let counts = |step: &Step| told_until.is_none_or(|until| step.from.at >= until);
        let wanted = i64::try_from(rising.growth).unwrap_or(i64::MAX);
        let most = wanted.saturating_mul(2).div_euclid(i64::from(rising.at_least.max(1))).max(1);
        let (mut rises, mut climb, mut growth, mut still, mut since) = (0, 0_i64, 0_i64, false, None);
        let mut unknown = self.unknown_before;
        for (step, rose) in self.steps.iter().zip(rose) {
            unknown += step.unknown;
            if !counts(step) {
                continue;
            }
            growth = growth.saturating_add((*rose).clamp(-most, most));
            if *rose > 0 {
                rises += 1;
                climb = climb.saturating_add(*rose);
                since = since.or(Some(step.from.at));
                still |= step.end + 1 >= self.buckets;
            }
        }
        let still = if still { Some(true) } else { self.fresh.then_some(false) };
        let need = |what, have, need: i64| Need { what, have, need };
        let enough = rises >= rising.at_least && growth >= wanted && still == Some(true);
        // What nobody saw may have been a rise.
        let possible = rises + unknown >= rising.at_least
            && (growth >= wanted || self.unknown_before > 0 || self.steps.is_empty())
            && still != Some(false);
        let holds = match (self.now, enough, possible && told_until.is_none()) {
            (true, true, _) => Holds::Yes,
            (true, false, false) => Holds::No,
            _ => Holds::Unknown,
        };
        let fallback = self.steps.first().map_or(0, |step| step.from.at);
        Reading {
            labels,
            holds,
            value: climb,
            since: Millis(since.unwrap_or(fallback)),
            needs: vec![
                need(BUCKETS_RISING, i64::from(rises), i64::from(rising.at_least)),
                need(STEADY_GROWTH, growth, wanted),
            ],
            still_rising: still,
            told_by: None,
        }
    }
}

/// What the rule says now. `told_until` gives for labels until when another rule has told of them already.
pub(super) fn judge(
    rule: &AlertRule,
    rising: &Rising,
    source: &str,
    samples: &Samples,
    now: Millis,
    told_until: impl Fn(&Labels) -> Option<Millis>,
) -> Vec<Reading> {
    let steps = Steps::of(rising, samples, now);
    let told = |labels: &Labels| told_until(labels).map(|until| until.0);
    let risen = |step: &Step| {
        i64::try_from(step.to.level).unwrap_or(i64::MAX) - i64::try_from(step.from.level).unwrap_or(i64::MAX)
    };
    if rule.is_of_the_whole() {
        let rose: Vec<i64> = steps.steps.iter().map(risen).collect();
        let labels = whole(source);
        let told = told(&labels);
        return vec![seen_since(steps.read(rising, labels, &rose, told), samples)];
    }
    let Some(first) = steps.steps.first() else { return Vec::new() };
    let mut by_cause: BTreeMap<CauseId, Vec<i64>> = BTreeMap::new();
    for cell in samples.closed_since(first.from.at) {
        let n = steps.steps.partition_point(|step| step.to.at < cell.until);
        if n >= steps.steps.len() {
            continue;
        }
        for count in &cell.counts {
            by_cause.entry(count.cause).or_insert_with(|| vec![0; steps.steps.len()])[n] += count.net();
        }
    }
    let mut parts: BTreeMap<Labels, Vec<i64>> = BTreeMap::new();
    for (cause, came) in by_cause {
        let Some(labels) = samples.labels(cause, rule, source) else { continue };
        let part = parts.entry(labels).or_insert_with(|| vec![0; came.len()]);
        part.iter_mut().zip(came).for_each(|(part, came)| *part += came);
    }
    parts
        .into_iter()
        .map(|(labels, mut rose)| {
            for (rose, step) in rose.iter_mut().zip(&steps.steps) {
                *rose = (*rose).min(risen(step).max(0));
            }
            let told = told(&labels);
            seen_since(steps.read(rising, labels, &rose, told), samples)
        })
        .collect()
}

/// The reading with a closer look at when it began: the first sample of the first bucket that rose which found more.
fn seen_since(mut reading: Reading, samples: &Samples) -> Reading {
    if reading.holds != Holds::Yes {
        return reading;
    }
    let from = reading.since.0;
    let Some(before) = samples.edge(from, 0).map(|edge| edge.level) else { return reading };
    let higher = samples.closed_since(from).filter_map(|cell| cell.level).filter(|level| level.entries > before);
    reading.since = Millis(higher.map(|level| level.at).min().unwrap_or(from));
    reading
}
