//! `per_second`: how fast a rule may go.

use std::collections::VecDeque;

/// The time in which a rule may make `per_second` retries.
const SECOND_MS: u64 = 1_000;
/// The part of a second's retries that may go at once, so that they flow instead of coming in one burst a second.
const AT_ONCE: u64 = 4;

/// Counts the retries of one rule. In no second (by the clock it is given) there are more than `per_second`, and at most
/// a quarter of them, but at least one, go at once.
///
/// Times are milliseconds of a clock that only runs forward. A new bucket is empty: it fills at `per_second`.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Thousandths of a retry that have been saved up.
    saved: u64,
    /// When that was counted.
    at: u64,
    /// When how many were taken within the last second, oldest first.
    taken: VecDeque<(u64, u32)>,
}

impl Bucket {
    /// An empty one.
    pub fn new(now: u64) -> Bucket {
        Bucket { saved: 0, at: now, taken: VecDeque::new() }
    }

    /// How many may go now.
    pub fn tokens(&mut self, now: u64, per_second: u32) -> u32 {
        let per_second = u64::from(per_second);
        // One retry a second is a thousandth of one a millisecond.
        let earned = now.saturating_sub(self.at).saturating_mul(per_second);
        let most = (per_second * 1_000 / AT_ONCE).max(1_000);
        self.saved = self.saved.saturating_add(earned).min(most);
        self.at = self.at.max(now);
        while self.taken.front().is_some_and(|(at, _)| at + SECOND_MS <= now) {
            self.taken.pop_front();
        }
        let taken: u64 = self.taken.iter().map(|(_, taken)| u64::from(*taken)).sum();
        let left = per_second.saturating_sub(taken).min(self.saved / 1_000);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// So many have gone.
    pub fn take(&mut self, now: u64, count: u32) {
        if count > 0 {
            self.saved = self.saved.saturating_sub(u64::from(count) * 1_000);
            self.taken.push_back((now, count));
        }
    }
}
