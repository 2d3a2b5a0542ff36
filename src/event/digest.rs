//! Many deaths in one event: the running tally, and the digest it becomes.
//!
//! A tally's size does not grow with what is added to it: it keeps the most frequent groups (space-saving), a few
//! samples, and exact totals.

use serde::{Deserialize, Serialize};

use super::{ErrorText, JobDead, json, rfc3339};
use crate::letter::Millis;

/// Groups a tally keeps apart; the digest shows the first [`TOP_GROUPS`] of them.
const KEPT_GROUPS: usize = 64;
/// Groups a digest lists.
const TOP_GROUPS: usize = 10;
/// Entries a digest shows whole.
const SAMPLES: usize = 3;

/// The `data` of `dlq.digest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// The source's name.
    pub source: String,
    /// Why deaths were folded: `existing` (they were there when Sexton first came), `rate` (more than the hook's
    /// `rate`), or `overflow` (the outbox's cap would have taken them from a hook that does not answer).
    pub why: String,
    /// How many deaths it stands for.
    pub count: u64,
    /// The first of these deaths.
    pub from: Option<String>,
    /// The last of these deaths.
    pub until: Option<String>,
    /// The most frequent groups, largest first.
    pub groups: Vec<GroupCount>,
    /// Deaths in groups that are not listed.
    #[serde(default)]
    pub other_count: u64,
    /// True if there were more groups than could be counted apart, so the smaller counts are estimates.
    pub groups_estimated: bool,
    /// Three of the entries, of different groups where there are such, as `job.dead` has them.
    pub samples: Vec<JobDead>,
}

/// One group in a digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupCount {
    /// The fingerprint.
    pub group: String,
    /// How many deaths.
    pub count: u64,
    /// The task they share.
    pub task: Option<String>,
    /// The error of the first one counted.
    pub error: ErrorText,
}

/// Counts deaths for a digest to come. Kept in the ledger as JSON, so a new leader counts on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    count: u64,
    from: Option<i64>,
    until: Option<i64>,
    groups: Vec<GroupCount>,
    #[serde(default)]
    crowded: bool,
    samples: Vec<JobDead>,
}

impl Tally {
    /// The tally as the ledger keeps it.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// How many deaths it stands for.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts one death that happened at `at`. `sample` is only called while samples are still wanted, or for a
    /// group not seen before.
    pub fn add(&mut self, at: Millis, group: &str, sample: impl Fn() -> JobDead) {
        self.count += 1;
        self.from = Some(self.from.map_or(at.0, |from| from.min(at.0)));
        self.until = Some(self.until.map_or(at.0, |until| until.max(at.0)));
        self.keep_sample(group, &sample);
        if let Some(known) = self.groups.iter_mut().find(|known| known.group == group) {
            known.count += 1;
            return;
        }
        let letter = sample();
        let mut fresh = GroupCount { group: group.to_owned(), count: 1, task: letter.task, error: letter.error };
        if self.groups.len() < KEPT_GROUPS {
            self.groups.push(fresh);
        } else if let Some(least) = self.groups.iter_mut().min_by_key(|known| known.count) {
            // Space-saving: the newcomer inherits the smallest count, which bounds the error of every count.
            fresh.count += least.count;
            *least = fresh;
            self.crowded = true;
        }
    }

    /// Keeps the first entries, and rather one of a group not shown yet than a second one of the same.
    fn keep_sample(&mut self, group: &str, sample: &impl Fn() -> JobDead) {
        if self.samples.len() < SAMPLES {
            self.samples.push(sample());
            return;
        }
        if self.samples.iter().any(|shown| shown.group == group) {
            return;
        }
        let repeats = |n: &usize| self.samples[..*n].iter().any(|before| before.group == self.samples[*n].group);
        if let Some(repeated) = (1..self.samples.len()).find(repeats) {
            self.samples[repeated] = sample();
        }
    }

    /// The digest of everything counted, for the reason `why`.
    pub fn digest(&self, source: &str, why: &str) -> Digest {
        let mut groups = self.groups.clone();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.group.cmp(&b.group)));
        groups.truncate(TOP_GROUPS);
        let listed: u64 = groups.iter().map(|group| group.count).sum();
        Digest {
            other_count: self.count.saturating_sub(listed),
            source: source.to_owned(),
            why: why.to_owned(),
            count: self.count,
            from: self.from.and_then(|at| rfc3339(Millis(at))),
            until: self.until.and_then(|at| rfc3339(Millis(at))),
            groups,
            groups_estimated: self.crowded,
            samples: self.samples.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(group: &str) -> JobDead {
        JobDead { group: group.to_owned(), task: Some(format!("task of {group}")), ..JobDead::default() }
    }

    #[test]
    fn a_digest_counts_everything_and_shows_the_largest_groups_first() {
        let mut tally = Tally::default();
        for (group, times) in [("few", 2), ("many", 30), ("one", 1)] {
            for n in 0..times {
                tally.add(Millis(1_000 + n), group, || letter(group));
            }
        }
        let digest = tally.digest("orders", "rate");
        assert_eq!(digest.count, 33);
        let order: Vec<_> = digest.groups.iter().map(|g| (g.group.as_str(), g.count)).collect();
        assert_eq!(order, [("many", 30), ("few", 2), ("one", 1)]);
        assert_eq!(digest.from.as_deref(), Some("1970-01-01T00:00:01.000Z"));
        assert_eq!(digest.until.as_deref(), Some("1970-01-01T00:00:01.029Z"));
        let shown: Vec<_> = digest.samples.iter().map(|sample| sample.group.as_str()).collect();
        assert_eq!(shown, ["few", "one", "many"], "one of each group");
        assert_eq!(digest.other_count, 0);
        assert!(!digest.groups_estimated);
    }

    #[test]
    fn a_tally_stays_small_however_many_groups_there_are_and_keeps_the_largest() {
        let mut tally = Tally::default();
        for n in 0..10_000 {
            let group = if n % 3 == 0 { "common".to_owned() } else { format!("rare-{n}") };
            tally.add(Millis(n), &group, || letter(&group));
        }
        assert!(tally.groups.len() <= KEPT_GROUPS);
        let digest = tally.digest("orders", "overflow");
        assert_eq!(digest.count, 10_000);
        assert_eq!(digest.groups[0].group, "common");
        let listed: u64 = digest.groups.iter().map(|group| group.count).sum();
        assert_eq!(listed + digest.other_count, 10_000);
        assert!(digest.groups_estimated);
    }
}
