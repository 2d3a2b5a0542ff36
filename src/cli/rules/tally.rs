//! Counts in a room that does not grow with what is counted: entries exactly, different jobs and the largest groups
//! exactly while they are few and nearly then.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher as _},
};

use crate::{
    event::ErrorText,
    letter::{DeadLetter, Millis},
};

/// Different jobs that are counted exactly; of more the count is off by some 2 %.
const EXACT_JOBS: usize = 2_048;
/// Groups that are counted apart; of more, each count is too high by a hundredth of the entries at most.
const GROUPS: usize = 100;
/// Characters of an error that are kept of a group.
const LONGEST_ERROR: usize = 200;

/// What is counted of the entries that one rule decides about, or none.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Entries.
    pub(super) entries: u64,
    /// Entries whose jobs have had all the retries that the rule grants.
    pub(super) spent: u64,
    /// Entries that are due now.
    pub(super) due_now: u64,
    /// When the first of them is, or was, due.
    pub(super) first_due: Option<Millis>,
    jobs: Distinct,
    /// Their groups.
    pub(super) groups: Groups,
}

impl Tally {
    /// Counts an entry.
    pub(super) fn add(&mut self, letter: &DeadLetter) {
        self.entries += 1;
        // Without a job's id every entry counts as a job of its own.
        match letter.job_id.as_str() {
            "" => self.jobs.add(&(&letter.entry_id, 0)),
            job_id => self.jobs.add(&job_id),
        }
        self.groups.add(letter);
    }

    /// How many jobs they are of, and whether that is an estimate.
    pub(super) fn jobs(&self) -> (u64, bool) {
        self.jobs.count(self.entries)
    }

    /// Notes that an entry that was counted is due then.
    pub(super) fn due(&mut self, at: Millis, now: Millis) {
        self.due_now += u64::from(at <= now);
        self.first_due = Some(self.first_due.map_or(at, |first| first.min(at)));
    }
}

/// How many different things there are: the smallest of their hashes tell how densely all of them lie.
#[derive(Debug, Default)]
struct Distinct {
    smallest: BTreeSet<u64>,
    crowded: bool,
}

impl Distinct {
    fn add(&mut self, what: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        if self.smallest.len() < EXACT_JOBS {
            self.smallest.insert(hash);
            return;
        }
        if self.smallest.contains(&hash) {
            return;
        }
        self.crowded = true;
        if self.smallest.last().is_some_and(|largest| hash < *largest) {
            self.smallest.pop_last();
            self.smallest.insert(hash);
        }
    }

    /// Their number, and whether it is an estimate; there are no more than `most`.
    fn count(&self, most: u64) -> (u64, bool) {
        let kept = self.smallest.len() as u64;
        match self.smallest.last() {
            Some(largest) if self.crowded => {
                let estimate = (u128::from(kept - 1) << 64) / u128::from((*largest).max(1));
                (u64::try_from(estimate).unwrap_or(u64::MAX).min(most), true)
            }
            _ => (kept, false),
        }
    }
}

/// The largest groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    kept: HashMap<String, Group>,
    /// There were more groups than are kept.
    crowded: bool,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// The fingerprint.
    pub(super) group: String,
    /// Entries of it.
    pub(super) count: u64,
    /// How many of these may be another group's.
    doubtful: u64,
    /// The task they share.
    pub(super) task: String,
    /// The error of the newest one.
    pub(super) error: ErrorText,
}

impl Groups {
    fn add(&mut self, letter: &DeadLetter) {
        let len = self.kept.len();
        let slot = match self.kept.entry(letter.group.0.clone()) {
            Entry::Occupied(mut known) => {
                known.get_mut().count += 1;
                return;
            }
            Entry::Vacant(slot) => slot,
        };
        let cut = |text: Option<String>| text.map(|text| text.chars().take(LONGEST_ERROR).collect());
        let error = ErrorText::from(&letter.error);
        let mut fresh = Group {
            group: letter.group.0.clone(),
            count: 1,
            doubtful: 0,
            task: letter.task.chars().take(LONGEST_ERROR).collect(),
            error: ErrorText { kind: cut(error.kind), message: cut(error.message) },
        };
        if len < GROUPS {
            slot.insert(fresh);
            return;
        }
        // Space-saving: the newcomer takes the place and the count of the smallest.
        let smallest = self.kept.values().min_by_key(|group| group.count).map(|group| group.group.clone());
        let smallest = smallest.and_then(|group| self.kept.remove(&group));
        fresh.doubtful = smallest.map_or(0, |group| group.count);
        fresh.count += fresh.doubtful;
        self.kept.insert(fresh.group.clone(), fresh);
        self.crowded = true;
    }

    /// The largest of them, up to `max`, and how many more were kept. One that owes its count to others is none of them.
    pub(super) fn largest(&self, max: usize) -> (Vec<&Group>, u64) {
        let mut all: Vec<&Group> = self.kept.values().filter(|group| group.doubtful <= group.count / 2).collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.group.cmp(&b.group)));
        let more = all.len().saturating_sub(max) as u64;
        all.truncate(max);
        (all, more)
    }

    /// True if there were more groups than are kept, so that counts are estimates.
    pub(super) fn are_estimated(&self) -> bool {
        self.crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        letter::{ErrorInfo, Group as Fingerprint},
        triage::fake::letter,
    };

    fn of_group(n: u32, group: u32) -> DeadLetter {
        DeadLetter { group: Fingerprint(format!("{group:012x}")), ..letter(&format!("{n}-0"), 60) }
    }

    #[test]
    fn jobs_are_counted_exactly_while_they_are_few_and_nearly_then() {
        for (jobs, estimated) in [(0_u32, false), (1, false), (2_048, false), (2_049, true), (100_000, true)] {
            let mut distinct = Distinct::default();
            for n in 0..jobs {
                let job = format!("job-{n}");
                distinct.add(&job.as_str());
                distinct.add(&job.as_str());
            }
            let (count, is_estimate) = distinct.count(u64::MAX);
            assert_eq!(is_estimate, estimated, "{jobs}");
            let off = count.abs_diff(jobs.into());
            assert!(if estimated { off * 100 < u64::from(jobs) * 8 } else { off == 0 }, "{count} of {jobs}");
            assert!(distinct.smallest.len() <= EXACT_JOBS);
            assert!(distinct.count(jobs.into()).0 <= jobs.into());
        }
    }

    #[test]
    fn what_has_no_job_counts_for_itself() {
        let mut tally = Tally::default();
        for n in 0..3 {
            tally.add(&DeadLetter { job_id: String::new(), ..of_group(n, 1) });
            tally.add(&DeadLetter { job_id: "same".to_owned(), ..of_group(n, 1) });
        }
        assert_eq!((tally.entries, tally.jobs()), (6, (4, false)));
    }

    #[test]
    fn large_groups_are_found_among_any_number_of_small_ones() {
        let mut tally = Tally::default();
        for n in 0..20_000 {
            // Two large ones, of which one comes late; every other entry is a group of its own.
            let group = match n {
                _ if n % 4 == 0 => 1,
                10_000.. if n % 4 == 1 => 2,
                _ => n + 10,
            };
            tally.add(&of_group(n, group));
        }
        assert!(tally.groups.kept.len() <= GROUPS && tally.groups.are_estimated());
        let (largest, more) = tally.groups.largest(10);
        let found: Vec<&str> = largest.iter().map(|group| &*group.group).collect();
        assert_eq!((found, more), (vec!["000000000001", "000000000002"], 0), "and nothing that only looks large");
        for (group, real) in largest.iter().zip([5_000, 2_500]) {
            assert!((real..=real + 200).contains(&group.count), "{group:?}");
        }
    }

    #[test]
    fn few_groups_are_counted_exactly_with_a_sample_that_is_not_long() {
        let mut tally = Tally::default();
        for n in 0..300 {
            let error = ErrorInfo { kind: "E".to_owned(), message: "x".repeat(100_000) };
            tally.add(&DeadLetter { error, ..of_group(n, n % 3 + u32::from(n == 299)) });
        }
        let (largest, more) = tally.groups.largest(10);
        let counts: Vec<u64> = largest.iter().map(|group| group.count).collect();
        assert_eq!((counts, more, tally.groups.are_estimated()), (vec![100, 100, 99, 1], 0, false));
        assert_eq!(largest[0].error.message.as_ref().map(String::len), Some(LONGEST_ERROR));
    }
}
