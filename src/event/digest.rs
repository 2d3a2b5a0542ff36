//! Many events in one: the running tally, and the digest it becomes.
//!
//! A tally's size does not grow with what is added to it: it keeps the most frequent groups (space-saving), a few
//! samples, and exact totals.

use serde::{Deserialize, Serialize};

use super::{ErrorText, Event, EventData, JobDead, json, rfc3339};
use crate::letter::Millis;

/// Groups a tally keeps apart; the digest shows the first [`TOP_GROUPS`] of them.
const KEPT_GROUPS: usize = 64;
/// Groups a digest lists.
const TOP_GROUPS: usize = 10;
/// Entries a digest shows whole.
const SAMPLES: usize = 3;

/// How many events about jobs something stands for, by kind. Stored by a version that knew only deaths, the rest is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Deaths (`job.dead`).
    #[serde(rename = "count")]
    pub deaths: u64,
    /// Retries (`job.retried`).
    pub retried: u64,
    /// Jobs that ran through after a retry (`job.recovered`).
    pub recovered: u64,
    /// Jobs that are granted no further retry (`job.exhausted`). The death that used up the last one is in `deaths`, if
    /// it is counted here at all.
    pub exhausted: u64,
}

impl Counts {
    /// All of them together.
    pub fn events(&self) -> u64 {
        self.deaths.saturating_add(self.retried).saturating_add(self.recovered).saturating_add(self.exhausted)
    }

    /// These and `other` ones.
    fn and(self, other: Counts) -> Counts {
        Counts {
            deaths: self.deaths.saturating_add(other.deaths),
            retried: self.retried.saturating_add(other.retried),
            recovered: self.recovered.saturating_add(other.recovered),
            exhausted: self.exhausted.saturating_add(other.exhausted),
        }
    }

    /// What is left of them without `part` of them.
    pub fn without(self, part: Counts) -> Counts {
        Counts {
            deaths: self.deaths.saturating_sub(part.deaths),
            retried: self.retried.saturating_sub(part.retried),
            recovered: self.recovered.saturating_sub(part.recovered),
            exhausted: self.exhausted.saturating_sub(part.exhausted),
        }
    }

    /// What puts one group before another: what dies tells a person most.
    fn weight(&self) -> (u64, u64) {
        (self.deaths, self.events())
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(counts: I) -> Counts {
        counts.fold(Counts::default(), Counts::and)
    }
}

/// The `data` of `dlq.digest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// The source's name.
    pub source: String,
    /// Why they were folded: `existing` (they were there when Sexton first came), `rate` (more than the hook's
    /// `rate`), `overflow` (the outbox's cap would have taken them from a hook that does not answer), or `schedule` (it
    /// is the summary that `digest:` asks for).
    pub why: String,
    /// How many events it stands for: `count` deaths, `retried`, `recovered`, `exhausted`.
    #[serde(flatten)]
    pub counts: Counts,
    /// When the first of them happened.
    pub from: Option<String>,
    /// When the last of them happened.
    pub until: Option<String>,
    /// The most frequent groups: by deaths, and by everything else where these are equal.
    pub groups: Vec<GroupCount>,
    /// Deaths in groups that are not listed.
    #[serde(default)]
    pub other_count: u64,
    /// True if there were more groups than could be counted apart, so the smaller counts are estimates.
    pub groups_estimated: bool,
    /// Three of the entries that died or are exhausted, of different groups where there are such, as `job.dead` has
    /// them. What was retried is no longer in the DLQ to be looked at.
    pub samples: Vec<JobDead>,
    /// Of a summary alone: what is there now, and how it came to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// Names of the hooks that are told; left out for every hook that takes digests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<String>>,
}

/// What a summary says beside its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// Jobs among the deaths that had died before.
    pub died_again: u64,
    /// Dead letters that wait, retries in flight included; `null` if no sample was ever taken.
    pub waiting: Option<u64>,
    /// The line over the time of the summary as a sparkline: one character a part, the oldest first, a blank where
    /// nobody looked.
    pub sparkline: String,
    /// The lowest and the highest level in it.
    pub lowest: Option<u64>,
    /// The highest.
    pub highest: Option<u64>,
    /// Names of the alert rules that fire now.
    pub firing: Vec<String>,
}

/// One group in a digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupCount {
    /// The fingerprint.
    pub group: String,
    /// How many events of this group, as in the digest.
    #[serde(flatten)]
    pub counts: Counts,
    /// The task they share.
    pub task: Option<String>,
    /// The error of the first one counted.
    pub error: ErrorText,
}

/// Counts events for a digest to come. Kept in the ledger as JSON, so a new leader counts on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    #[serde(flatten)]
    counts: Counts,
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
        self.counts.deaths
    }

    /// How many events it stands for: the deaths and everything else.
    pub fn events(&self) -> u64 {
        self.counts.events()
    }

    /// Counts one death that happened at `at`. `sample` is only called while samples are still wanted, or for a
    /// group not seen before.
    pub fn add(&mut self, at: Millis, group: &str, sample: impl Fn() -> JobDead) {
        self.keep_sample(group, &sample);
        self.count_in(Counts { deaths: 1, ..Counts::default() }, at, group, sample);
    }

    /// Counts one event about a job. `brief` makes of its dead letter what may be shown of it, and is called no more
    /// often than need be. False for an event of another kind: no tally can stand for that.
    pub fn fold(&mut self, event: &Event, brief: impl Fn(&JobDead) -> JobDead) -> bool {
        let none = Counts::default();
        let (one, dead) = match &event.data {
            EventData::JobDead(dead) => (Counts { deaths: 1, ..none }, &**dead),
            EventData::JobRetried(retry) => (Counts { retried: 1, ..none }, &retry.dead),
            EventData::JobRecovered(retry) => (Counts { recovered: 1, ..none }, &retry.dead),
            EventData::JobExhausted(dead) => (Counts { exhausted: 1, ..none }, &**dead),
            EventData::Digest(_)
            | EventData::Purged(_)
            | EventData::AlertFiring(_)
            | EventData::AlertResolved(_)
            | EventData::HookTest(_) => return false,
        };
        let sample = || brief(dead);
        if one.deaths + one.exhausted > 0 {
            self.keep_sample(&dead.group, &sample);
        }
        self.count_in(one, event.at, &dead.group, sample);
        true
    }

    fn count_in(&mut self, one: Counts, at: Millis, group: &str, sample: impl Fn() -> JobDead) {
        self.counts = self.counts.and(one);
        self.from = Some(self.from.map_or(at.0, |from| from.min(at.0)));
        self.until = Some(self.until.map_or(at.0, |until| until.max(at.0)));
        if let Some(known) = self.groups.iter_mut().find(|known| known.group == group) {
            known.counts = known.counts.and(one);
            return;
        }
        let letter = sample();
        let mut fresh = GroupCount { group: group.to_owned(), counts: one, task: letter.task, error: letter.error };
        if self.groups.len() < KEPT_GROUPS {
            self.groups.push(fresh);
        } else if let Some(least) = self.groups.iter_mut().min_by_key(|known| known.counts.weight()) {
            // Space-saving: the newcomer inherits the smallest counts. That bounds the error of all counts of deaths (of
            // everything, if there are none), and keeps every sum exact.
            fresh.counts = fresh.counts.and(least.counts);
            *least = fresh;
            self.crowded = true;
        }
    }

    /// Keeps the first entries, and rather one of a group not shown yet than a second one of the same.
    fn keep_sample(&mut self, group: &str, sample: &impl Fn() -> JobDead) {
        if self.samples.len() < SAMPLES {
            let fresh = sample();
            // A job that is exhausted has just died: its entry may be there already.
            if self.samples.iter().all(|shown| shown.entry_id != fresh.entry_id) {
                self.samples.push(fresh);
            }
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
        groups.sort_by(|a, b| b.counts.weight().cmp(&a.counts.weight()).then_with(|| a.group.cmp(&b.group)));
        groups.truncate(TOP_GROUPS);
        let listed: Counts = groups.iter().map(|group| group.counts).sum();
        Digest {
            other_count: self.counts.without(listed).deaths,
            source: source.to_owned(),
            why: why.to_owned(),
            counts: self.counts,
            from: self.from.and_then(|at| rfc3339(Millis(at))),
            until: self.until.and_then(|at| rfc3339(Millis(at))),
            groups,
            groups_estimated: self.crowded,
            samples: self.samples.clone(),
            outlook: None,
            hooks: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{HookTest, JobRetry};

    fn letter(group: &str, n: i64) -> JobDead {
        JobDead {
            entry_id: format!("{n}-0"),
            group: group.to_owned(),
            task: Some(format!("task of {group}")),
            ..JobDead::default()
        }
    }

    fn event(at: i64, data: EventData) -> Event {
        Event { id: format!("e{at}"), at: Millis(at), data }
    }

    /// An event of the `kind`-th kind about a job of this group.
    fn about(kind: usize, group: &str, at: i64) -> Event {
        let dead = Box::new(letter(group, at));
        let retry = || Box::new(JobRetry { dead: (*dead).clone(), ..JobRetry::default() });
        let data = match kind {
            0 => EventData::JobDead(dead),
            1 => EventData::JobRetried(retry()),
            2 => EventData::JobRecovered(retry()),
            _ => EventData::JobExhausted(dead),
        };
        event(at, data)
    }

    fn counts(numbers: [u64; 4]) -> Counts {
        let [deaths, retried, recovered, exhausted] = numbers;
        Counts { deaths, retried, recovered, exhausted }
    }

    fn samples(digest: &Digest) -> Vec<(&str, &str)> {
        digest.samples.iter().map(|sample| (sample.group.as_str(), sample.entry_id.as_str())).collect()
    }

    #[test]
    fn a_digest_counts_everything_and_shows_the_largest_groups_first() {
        let mut tally = Tally::default();
        for (group, times) in [("few", 2), ("many", 30), ("one", 1)] {
            for n in 0..times {
                tally.add(Millis(1_000 + n), group, || letter(group, n));
            }
        }
        let digest = tally.digest("orders", "rate");
        assert_eq!(digest.counts, counts([33, 0, 0, 0]));
        let order: Vec<_> = digest.groups.iter().map(|g| (g.group.as_str(), g.counts.deaths)).collect();
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
            tally.add(Millis(n), &group, || letter(&group, n));
        }
        assert!(tally.groups.len() <= KEPT_GROUPS);
        let digest = tally.digest("orders", "overflow");
        assert_eq!(digest.counts.deaths, 10_000);
        assert_eq!(digest.groups[0].group, "common");
        let listed: u64 = digest.groups.iter().map(|group| group.counts.deaths).sum();
        assert_eq!(listed + digest.other_count, 10_000);
        assert!(digest.groups_estimated);
    }

    #[test]
    fn every_event_about_a_job_is_counted_by_its_kind_and_nothing_else_is() {
        let mut tally = Tally::default();
        for (at, (kind, group)) in
            [(0, "a"), (0, "b"), (1, "a"), (1, "a"), (1, "c"), (2, "a"), (3, "b")].into_iter().enumerate()
        {
            assert!(tally.fold(&about(kind, group, i64::try_from(at).unwrap()), JobDead::clone));
        }
        for other in [EventData::Digest(Box::default()), EventData::HookTest(HookTest::default())] {
            assert!(!tally.fold(&event(99, other), JobDead::clone));
        }
        assert_eq!((tally.count(), tally.events()), (2, 7));
        let digest = tally.digest("orders", "rate");
        assert_eq!(digest.counts, counts([2, 3, 1, 1]));
        assert_eq!(digest.until.as_deref(), Some("1970-01-01T00:00:00.006Z"));
        let groups: Vec<_> = digest.groups.iter().map(|g| (g.group.as_str(), g.counts)).collect();
        let [a, b, c] = [[1, 2, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0]].map(counts);
        assert_eq!(groups, [("a", a), ("b", b), ("c", c)], "by deaths, then by everything");
        assert_eq!(digest.groups[2].task.as_deref(), Some("task of c"));
        assert_eq!(samples(&digest), [("a", "0-0"), ("b", "1-0"), ("b", "6-0")], "what can be looked at");
    }

    #[test]
    fn an_entry_that_died_and_is_exhausted_is_one_sample() {
        let mut tally = Tally::default();
        for (kind, group, entry) in [(0, "a", 1), (3, "a", 1), (0, "b", 2), (3, "b", 2)] {
            tally.fold(&about(kind, group, entry), JobDead::clone);
        }
        assert_eq!(samples(&tally.digest("orders", "rate")), [("a", "1-0"), ("b", "2-0")]);
    }

    #[test]
    fn a_digest_of_retries_alone_says_what_was_retried() {
        let mut tally = Tally::default();
        for at in 0..5 {
            tally.fold(&about(1, "a", at), JobDead::clone);
        }
        let digest = tally.digest("orders", "rate");
        assert_eq!(digest.counts, counts([0, 5, 0, 0]));
        assert_eq!(digest.groups[0].task.as_deref(), Some("task of a"));
        assert_eq!((digest.samples.len(), digest.other_count), (0, 0));
    }

    #[test]
    fn the_json_is_as_documented_and_what_an_older_version_stored_is_read() {
        let mut tally = Tally::default();
        tally.fold(&about(3, "a", 0), JobDead::clone);
        let json = serde_json::to_value(tally.digest("orders", "rate")).unwrap();
        for of in [&json, &json["groups"][0]] {
            let numbers = ["count", "retried", "recovered", "exhausted"].map(|name| of[name].as_u64());
            assert_eq!(numbers, [Some(0), Some(0), Some(0), Some(1)]);
        }
        assert_eq!(serde_json::from_str::<Tally>(&tally.to_json()).unwrap(), tally);

        let group = r#"{"group":"a","count":7,"task":null,"error":{"type":"E","message":null}}"#;
        let old = format!(r#"{{"count":9,"from":1,"until":2,"groups":[{group}],"crowded":false,"samples":[]}}"#);
        let mut tally: Tally = serde_json::from_str(&old).unwrap();
        assert_eq!((tally.count(), tally.events(), tally.groups[0].counts.deaths), (9, 9, 7));
        tally.fold(&about(1, "a", 3), JobDead::clone);
        assert_eq!(tally.digest("orders", "rate").groups[0].counts, counts([7, 1, 0, 0]));

        let old = format!(
            r#"{{"source":"orders","why":"rate","count":9,"from":null,"until":null,"groups":[{group}],"other_count":2,
            "groups_estimated":false,"samples":[]}}"#
        );
        let digest: Digest = serde_json::from_str(&old).unwrap();
        assert_eq!((digest.counts, digest.groups[0].counts), (counts([9, 0, 0, 0]), counts([7, 0, 0, 0])));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_is_counted_totals_are_exact_and_no_deaths_of_a_listed_group_are_missing(
            events in prop::collection::vec((0..4_usize, 0..200_u32), 0..1_000)
        ) {
            let mut tally = Tally::default();
            for (at, (kind, group)) in events.iter().enumerate() {
                // The lower half of the groups is frequent.
                let group = if *group < 100 { group % 5 } else { *group };
                tally.fold(&about(*kind, &format!("g{group}"), i64::try_from(at).unwrap()), JobDead::clone);
            }
            let truth = |of: &dyn Fn(u32) -> bool| {
                let mut numbers = [0; 4];
                for (kind, group) in &events {
                    numbers[*kind] += u64::from(of(if *group < 100 { group % 5 } else { *group }));
                }
                counts(numbers)
            };
            prop_assert_eq!(tally.counts, truth(&|_| true));
            prop_assert_eq!(tally.groups.iter().map(|group| group.counts).sum::<Counts>(), tally.counts);
            let digest = tally.digest("orders", "rate");
            let listed: u64 = digest.groups.iter().map(|group| group.counts.deaths).sum();
            prop_assert_eq!(listed + digest.other_count, digest.counts.deaths);
            for group in &digest.groups {
                let number: u32 = group.group[1..].parse().unwrap();
                let there = truth(&|one| one == number);
                prop_assert!(group.counts.deaths >= there.deaths);
                prop_assert!(digest.groups_estimated || group.counts == there);
            }
            let shown = |sample: &JobDead| sample.entry_id.trim_end_matches("-0").parse::<usize>().unwrap();
            let only_what_is_there = digest.samples.iter().all(|sample| matches!(events[shown(sample)].0, 0 | 3));
            prop_assert!(only_what_is_there);
        }
    }
}
