//! The end of the deaths lane as this process has just written it, so that its own readers need not ask Redis for it.
//!
//! Only a copy: others append to the lane, too, so every event is kept with the place of the one before it, and a reader
//! is served only where nothing can lie between.

use std::collections::VecDeque;

use crate::{
    event::JobDead,
    ledger::{JobCounts, OutboxId},
    letter::Millis,
};

/// Bytes of events kept at most: what a commit or two in a storm write.
const MOST_BYTES: usize = 1 << 20;

/// What is kept. Bounded, whatever the events weigh.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// In the order of the lane.
    kept: VecDeque<Kept>,
    bytes: usize,
}

/// One `job.dead` event.
#[derive(Debug)]
pub(super) struct Kept {
    /// The place of the event before it; the beginning of the lane where it was the first one there.
    pub(super) before: OutboxId,
    pub(super) id: OutboxId,
    pub(super) at: Millis,
    /// [`JobDead`] as JSON, without the counts.
    pub(super) data: String,
    pub(super) counts: JobCounts,
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of::<Kept>() + self.data.len()
    }

    /// The event's data; `None` if it cannot be read, which the store's own copy then tells as well.
    pub(super) fn dead(&self) -> Option<JobDead> {
        let dead: JobDead = serde_json::from_str(&self.data).ok()?;
        Some(JobDead { deaths: self.counts.deaths, retries: self.counts.retries, ..dead })
    }
}

impl Tail {
    /// Adds what comes last in the lane.
    pub(super) fn push(&mut self, kept: Kept) {
        self.bytes += kept.bytes();
        self.kept.push_back(kept);
        while self.bytes > MOST_BYTES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.bytes -= oldest.bytes();
        }
    }

    /// Forgets what nobody needs any more.
    pub(super) fn forget_before(&mut self, keep_from: OutboxId) {
        while self.kept.front().is_some_and(|oldest| oldest.id < keep_from) {
            self.forget_oldest();
        }
    }

    /// Forgets everything: another may lead meanwhile, the store may have lost what was written, or something has been
    /// appended that is not kept.
    pub(super) fn clear(&mut self) {
        *self = Tail::default();
    }

    /// Up to `max` events after this place, in order: so many, or all that there are as far as is known. `None` where the
    /// store must be asked.
    pub(super) fn after(&self, after: OutboxId, max: usize) -> Option<impl Iterator<Item = &Kept>> {
        let from = self.kept.partition_point(|kept| kept.id <= after);
        let until = (from + max).min(self.kept.len());
        let nothing_before = self.kept.get(from)?.before <= after;
        let unbroken = (from + 1..until).all(|n| self.kept[n].before == self.kept[n - 1].id);
        (nothing_before && unbroken).then(|| self.kept.range(from..until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> OutboxId {
        OutboxId { ms, seq: 0 }
    }

    fn tail(places: &[(u64, u64)]) -> Tail {
        let mut tail = Tail::default();
        for &(before, at) in places {
            let data = format!(r#"{{"entry_id":"{at}"}}"#);
            let counts = JobCounts { deaths: 1, retries: 0 };
            tail.push(Kept { before: id(before), id: id(at), at: Millis(0), data, counts });
        }
        tail
    }

    #[test]
    fn a_reader_is_served_only_where_nothing_can_lie_between() {
        // Somebody else wrote between 3 and 7.
        let lane = tail(&[(1, 2), (2, 3), (6, 7), (7, 8)]);
        for (after, max, expected) in [
            (0, 9, None),
            (1, 2, Some(vec![2, 3])),
            (1, 9, None),
            (2, 1, Some(vec![3])),
            (3, 1, None),
            (5, 1, None),
            (6, 9, Some(vec![7, 8])),
            (7, 9, Some(vec![8])),
            (8, 9, None),
        ] {
            let served = lane.after(id(after), max).map(|kept| kept.map(|kept| kept.id.ms).collect::<Vec<_>>());
            assert_eq!(served, expected, "{max} after {after}");
        }
        assert!(tail(&[]).after(id(0), 9).is_none());
        let first = tail(&[(0, 5)]);
        assert_eq!(first.after(id(0), 9).expect("it begins the lane").count(), 1);
    }

    #[test]
    fn it_keeps_the_newest_and_is_bounded() {
        let mut lane = Tail::default();
        for n in 1..=3_000 {
            let counts = JobCounts { deaths: 1, retries: 0 };
            lane.push(Kept { before: id(n - 1), id: id(n), at: Millis(0), data: "x".repeat(1_000), counts });
        }
        assert!(lane.bytes <= MOST_BYTES && lane.bytes > MOST_BYTES - 2_000, "{}", lane.bytes);
        assert_eq!(lane.after(id(2_990), 99).expect("the newest are there").count(), 10);
        let huge = Kept {
            before: id(3_000),
            id: id(3_001),
            at: Millis(0),
            data: "x".repeat(MOST_BYTES),
            counts: JobCounts::default(),
        };
        lane.push(huge);
        assert_eq!((lane.bytes, lane.kept.len()), (0, 0));

        let mut lane = tail(&[(0, 1), (1, 2), (2, 3)]);
        lane.forget_before(id(3));
        assert!(lane.after(id(1), 9).is_none());
        assert_eq!(lane.after(id(2), 9).expect("it is kept").count(), 1);
        lane.forget_before(id(9));
        assert_eq!((lane.bytes, lane.kept.len()), (0, 0));
    }
}
