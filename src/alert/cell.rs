//! One step of the line: what was counted in it, and the level at its end.

use super::cause::{CauseId, Causes};
use crate::letter::Millis;

/// Causes that one cell tells apart; the rests of tasks that it tells apart are as many again.
const APART: usize = 48;

/// What was counted from the end of the cell before up to `until`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// Its end (ms): the time of a sample, or of the end of its minute where nobody took one; 0 until there is one.
    pub until: i64,
    /// The last level known in it, and when (ms) that was; none where no leader lived.
    pub level: Option<Level>,
    /// Retries made.
    pub retried: u32,
    /// By cause, in no order.
    pub counts: Vec<Count>,
}

/// The level at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub at: i64,
    pub entries: u64,
}

/// What was counted of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub cause: CauseId,
    /// Jobs that died for the first time.
    pub first: u32,
    /// Jobs that died once more.
    pub again: u32,
    /// Jobs that are known to be no part of the line any more: they ran through after a retry of ours.
    pub left: u32,
}

impl Count {
    /// How much longer the line became by it.
    pub(super) fn net(&self) -> i64 {
        i64::from(self.first) - i64::from(self.left)
    }

    /// How many died.
    pub(super) fn deaths(&self) -> u64 {
        u64::from(self.first) + u64::from(self.again)
    }

    fn add(&mut self, other: &Count) {
        self.first = self.first.saturating_add(other.first);
        self.again = self.again.saturating_add(other.again);
        self.left = self.left.saturating_add(other.left);
    }
}

impl Cell {
    /// Its end (ms): `now` for the one that no sample has closed yet.
    pub(super) fn end(&self, now: Millis) -> i64 {
        if self.until == 0 { now.0 } else { self.until }
    }

    /// Counts, and folds the rarest cause of the cell if that makes too many.
    pub(super) fn add(&mut self, count: Count, causes: &mut Causes) {
        if self.add_unbounded(count) {
            self.fold(causes);
        }
    }

    /// Takes a later cell into this one.
    pub(super) fn merge(&mut self, later: Cell, causes: &mut Causes) {
        self.until = later.until;
        self.level = later.level.or(self.level);
        self.retried = self.retried.saturating_add(later.retried);
        if self.counts.is_empty() {
            self.counts = later.counts;
            return;
        }
        let mut grew = false;
        for count in later.counts {
            grew |= self.add_unbounded(count);
        }
        if grew {
            self.fold(causes);
        }
    }

    /// Counts under another cause what was counted under one of these.
    pub(super) fn replace(&mut self, into: impl Fn(CauseId) -> Option<CauseId>) -> bool {
        let moved: Vec<Count> =
            self.counts.iter().filter_map(|count| Some(Count { cause: into(count.cause)?, ..*count })).collect();
        if moved.is_empty() {
            return false;
        }
        self.counts.retain(|count| into(count.cause).is_none());
        for count in moved {
            self.add_unbounded(count);
        }
        true
    }

    /// True if the cause is new here.
    fn add_unbounded(&mut self, count: Count) -> bool {
        if let Some(known) = self.counts.iter_mut().find(|known| known.cause == count.cause) {
            known.add(&count);
            return false;
        }
        self.counts.push(count);
        true
    }

    fn fold(&mut self, causes: &mut Causes) {
        if self.counts.len() <= APART {
            return;
        }
        for depth in 0..2 {
            let mut here: Vec<(u64, u64, usize)> = (0..self.counts.len())
                .filter(|&n| causes.depth(self.counts[n].cause) == depth)
                .map(|n| (self.counts[n].deaths(), causes.total(self.counts[n].cause), n))
                .collect();
            if here.len() <= APART {
                continue;
            }
            // The rarest here, and of those the rarest overall.
            here.sort_unstable();
            here.truncate(here.len() - APART);
            let rare: Vec<Count> = here.iter().map(|&(.., n)| self.counts[n]).collect();
            self.counts.retain(|count| !rare.iter().any(|folded| folded.cause == count.cause));
            for count in rare {
                let wider = causes.wider(count.cause);
                causes.add(wider, count.deaths());
                self.add_unbounded(Count { cause: wider, ..count });
            }
        }
    }
}
