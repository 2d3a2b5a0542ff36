//! `per_second`: how fast a rule may go.

use std::collections::VecDeque;

/// The time in which a rule may make `per_second` retries.
const SECOND_MS: u64 = 1_000;
/// What may be saved up is what comes in so much time, but at least one retry, so that they flow instead of coming in
/// one burst a second.
const SAVED_MS: u64 = 200;
/// What is earned while one waits to be asked is not lost: so much time may pass between two asks.
const BETWEEN_ASKS_MS: u64 = 200;

/// Counts the retries of one rule. In no second (by the clock it is given) there are more than `per_second`, and not
/// all of them go at once.
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
        let most = (per_second * SAVED_MS).max(1_000) + per_second * BETWEEN_ASKS_MS;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_fills_at_its_rate_and_gives_a_part_at_once() {
        for (per_second, after, tokens) in [
            (0, 10_000, 0),
            (1, 999, 0),
            (1, 1_000, 1),
            (1, 60_000, 1),
            (2, 499, 0),
            (2, 500, 1),
            (2, 60_000, 1),
            (50, 19, 0),
            (50, 20, 1),
            (50, 100, 5),
            (50, 60_000, 20),
            (8, 60_000, 3),
            (u32::MAX, u64::MAX, u32::MAX / 5 * 2),
        ] {
            assert_eq!(Bucket::new(0).tokens(after, per_second), tokens, "{per_second} {after}");
        }
    }

    #[test]
    fn it_keeps_up_with_its_rate_when_asked_in_ticks() {
        for (per_second, seconds, expected) in
            [(1, 20, 20), (3, 20, 60), (7, 20, 140), (50, 20, 1_000), (999, 20, 19_980)]
        {
            let mut bucket = Bucket::new(0);
            let mut sent = 0;
            for now in (0..=seconds * 1_000).step_by(200) {
                let tokens = bucket.tokens(now, per_second);
                bucket.take(now, tokens);
                sent += tokens;
            }
            assert!(sent <= expected && sent >= expected * 19 / 20, "{per_second}: {sent} of {expected}");
        }
    }

    proptest! {
        #[test]
        fn in_no_second_there_are_more_than_allowed(
            asks in prop::collection::vec((0_u64..700, 0.0_f64..=1.0), 1..200),
            per_second in 0_u32..200,
        ) {
            let (mut bucket, mut now, mut taken) = (Bucket::new(0), 0, Vec::new());
            for (pause, part) in asks {
                now += pause;
                let tokens = bucket.tokens(now, per_second);
                let take = (f64::from(tokens) * part).round() as u32;
                bucket.take(now, take);
                taken.push((now, take));
            }
            for (from, _) in &taken {
                let second = taken.iter().filter(|(at, _)| (*from..from + SECOND_MS).contains(at));
                let count: u32 = second.map(|(_, take)| take).sum();
                prop_assert!(count <= per_second, "{count} in the second from {from}");
            }
        }
    }
}
