//! What has been learnt of a pool: of its canaries, and whether its proven groups still stand.
//!
//! The number of canaries is taught by canaries alone. If a large healthy group could raise it, a thousand groups that
//! nothing can mend would be sent in its shadow; if one such group could stop everything, the healthy ones would wait
//! for it. So proven groups go by what they have learnt themselves, until half of all their retries fail: then the
//! dependency they share is in doubt, and all of them begin with canaries again.

use serde::{Deserialize, Serialize};

use super::{
    learnt::{self, Evidence, Hold, Learnt},
    window::Window,
};
use crate::{ledger::Rounds, letter::Millis, rule::Terms};

/// Outcomes of proven groups that are looked at together. Of a dependency that fails three times in ten, half of so
/// many fail about once in two thousand retries.
const PROVEN_WINDOW: u32 = 30;

/// What has been learnt of one pool. Kept in the ledger as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolLearnt {
    /// Of its canaries: retries of groups of which nothing was known.
    canaries: Learnt,
    /// What became of the last retries of its proven groups.
    proven: Window,
    /// What its groups had learnt up to this moment counts no more; 0 if it all does.
    doubted_at: i64,
    /// When the last outcome of any of its retries was; 0 if there was none.
    last: i64,
}

impl Default for PoolLearnt {
    fn default() -> PoolLearnt {
        PoolLearnt { canaries: Learnt::default(), proven: Window::of(PROVEN_WINDOW), doubted_at: 0, last: 0 }
    }
}

impl PoolLearnt {
    /// Reads what the ledger has, as [`Learnt::read`] does.
    pub fn read(json: Option<&str>) -> PoolLearnt {
        let read: PoolLearnt = json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        PoolLearnt {
            canaries: read.canaries.clamped(),
            proven: read.proven.resized(PROVEN_WINDOW),
            doubted_at: read.doubted_at.max(0),
            last: read.last.max(0),
        }
    }

    /// What the ledger keeps.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is made of numbers")
    }

    /// What its canaries have taught.
    pub fn canaries(&self) -> &Learnt {
        &self.canaries
    }

    /// How many canaries may be in flight now; none on hold.
    pub fn allowed(&self, now: Millis, terms: &Terms) -> u32 {
        self.canaries.allowed(now, terms, Millis(0))
    }

    /// When the hold of its canaries ends; none if there is none in force.
    pub fn held_until(&self, now: Millis, terms: &Terms) -> Option<Millis> {
        self.canaries.held_until(now, terms)
    }

    /// What its groups had learnt up to this moment counts no more.
    pub fn doubted_at(&self) -> Millis {
        Millis(self.doubted_at)
    }

    /// The rounds of a retry that is sent now from a group of this pool.
    pub fn rounds(&self, group: &Learnt, now: Millis, terms: &Terms) -> Rounds {
        let canary = !group.is_proven(now, terms, self.doubted_at());
        Rounds { pool: self.canaries.round(), group: group.round(), canary }
    }

    /// After this moment it says no more than a fresh start does.
    pub fn keep_until(&self, terms: &Terms) -> Millis {
        // Its proven groups send no canaries for as long as a drain lasts, and stand by what is kept here.
        self.canaries.keep_until(terms).max(learnt::good_until(Millis(self.last), terms))
    }

    /// A retry of one of its groups has recovered. `evidence.since` is not looked at.
    pub(super) fn recovered(&mut self, now: Millis, terms: &Terms, evidence: Evidence, canary: bool) -> Option<Hold> {
        let evidence = Evidence { since: Millis(0), ..evidence };
        self.last = now.0;
        if canary {
            return self.canaries.recovered(now, terms, evidence);
        }
        if evidence.sent_at > self.doubted_at() {
            self.proven.add_good();
            self.turn_full_window();
        } else if evidence.was_failing && self.is_held_in_doubt(now, terms) && self.doubted_at < now.0 {
            // What has raised the doubt has run through after all.
            self.canaries.relieve();
            return Some(Hold::Lifted);
        }
        if evidence.round == self.canaries.round() {
            // The dependency works for a neighbour, so canaries fail for reasons of their own, and are tried again
            // after the shortest pause. How many of them go is not the neighbour's to say.
            self.canaries.calm();
        }
        None
    }

    /// A retry of one of its groups has failed. `evidence.since` is not looked at.
    pub(super) fn failed(
        &mut self,
        now: Millis,
        terms: &Terms,
        evidence: Evidence,
        canary: bool,
        dice: f64,
    ) -> Option<Hold> {
        let evidence = Evidence { since: Millis(0), ..evidence };
        self.last = now.0;
        if canary {
            return self.canaries.failed(now, terms, evidence, dice);
        }
        if evidence.sent_at <= self.doubted_at() {
            return None;
        }
        self.proven.add_bad();
        if self.proven.is_lost() {
            self.proven = Window::of(PROVEN_WINDOW);
            self.doubted_at = now.0;
            return Some(self.canaries.hold(now, terms, dice));
        }
        self.turn_full_window();
        None
    }

    fn is_held_in_doubt(&self, now: Millis, terms: &Terms) -> bool {
        self.canaries.held_at() == self.doubted_at() && self.held_until(now, terms).is_some()
    }

    fn turn_full_window(&mut self) {
        if self.proven.is_full() {
            self.proven = Window::of(PROVEN_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn at(seconds: i64) -> Millis {
        Millis(NOW + seconds * 1_000)
    }

    fn terms() -> Terms {
        Terms { min_age: std::time::Duration::from_secs(10), ..Terms::default() }
    }

    fn sent(pool: &PoolLearnt, seconds: i64) -> Evidence {
        Evidence { round: pool.canaries.round(), sent_at: at(seconds), was_failing: false, since: Millis(0) }
    }

    #[test]
    fn canaries_are_taught_by_canaries_alone() {
        let (terms, mut pool) = (terms(), PoolLearnt::default());
        for n in 0..100 {
            let evidence = sent(&pool, n);
            assert_eq!(pool.recovered(at(n), &terms, evidence, false), None);
        }
        assert_eq!(pool.allowed(at(100), &terms), 1, "a healthy group raises no budget for strangers");
        let evidence = sent(&pool, 100);
        pool.recovered(at(101), &terms, evidence, true);
        assert_eq!(pool.allowed(at(101), &terms), 2);
    }

    #[test]
    fn a_neighbour_that_recovers_shortens_the_next_pause_and_lifts_none() {
        let (terms, mut pool) = (terms(), PoolLearnt::default());
        for (n, pause) in [(0, 10), (20, 20), (60, 40)] {
            let evidence = sent(&pool, n);
            let held = Hold::Begun { until: at(n + pause) };
            assert_eq!(pool.failed(at(n), &terms, evidence, true, 0.0), Some(held), "{n}");
        }
        let evidence = sent(&pool, 61);
        assert_eq!(pool.recovered(at(62), &terms, evidence, false), None);
        assert_eq!(pool.held_until(at(62), &terms), Some(at(100)));
        let evidence = sent(&pool, 110);
        assert_eq!(pool.failed(at(111), &terms, evidence, true, 0.0), Some(Hold::Begun { until: at(121) }));
        // One that was sent before the hold says nothing of the time since.
        let earlier = Evidence { round: 1, ..sent(&pool, 0) };
        pool.recovered(at(112), &terms, earlier, false);
        let evidence = sent(&pool, 130);
        assert_eq!(pool.failed(at(131), &terms, evidence, true, 0.0), Some(Hold::Begun { until: at(151) }));
    }

    #[test]
    fn it_is_kept_for_as_long_as_its_proven_groups_go_on() {
        let (terms, mut pool) = (terms(), PoolLearnt::default());
        let canary = sent(&pool, 0);
        pool.recovered(at(1), &terms, canary, true);
        // A drain of an hour without another canary.
        let evidence = sent(&pool, 3_599);
        pool.recovered(at(3_600), &terms, evidence, false);
        assert!(pool.keep_until(&terms) > at(3_600 + 15 * 60), "{:?}", pool.keep_until(&terms));
    }

    /// A pool whose proven groups fail one after the other from the beginning on.
    fn in_doubt(terms: &Terms) -> PoolLearnt {
        let mut pool = PoolLearnt::default();
        for n in 1..15 {
            let evidence = sent(&pool, 0);
            assert_eq!(pool.failed(at(n), terms, evidence, false, 0.0), None, "{n}");
        }
        let evidence = sent(&pool, 0);
        assert_eq!(pool.failed(at(15), terms, evidence, false, 0.0), Some(Hold::Begun { until: at(25) }));
        pool
    }

    #[test]
    fn proven_groups_that_fail_together_are_proven_no_more() {
        let terms = terms();
        let mut pool = in_doubt(&terms);
        assert_eq!((pool.doubted_at(), pool.allowed(at(16), &terms)), (at(15), 0));
        let mut group = Learnt::default();
        group.recovered(at(14), &terms, Evidence { round: 1, ..sent(&pool, 1) });
        assert!(group.is_proven(at(16), &terms, Millis(0)) && !group.is_proven(at(16), &terms, pool.doubted_at()));
        assert!(pool.rounds(&group, at(16), &terms).canary);
        // What had been sent before teaches nothing more.
        let before = sent(&pool, 15);
        for n in 16..60 {
            assert_eq!(pool.failed(at(n), &terms, before, false, 0.0), None);
        }
    }

    #[test]
    fn a_doubt_is_lifted_by_what_had_raised_it() {
        let terms = terms();
        for (name, canary_hold, was_failing, now, expected) in [
            ("failing, and ran through after all", false, true, 16, Some(Hold::Lifted)),
            ("ran through at once", false, false, 16, None),
            ("seen when the doubt began", false, true, 15, None),
            ("after the hold", false, true, 25, None),
            ("the hold is of a canary", true, true, 27, None),
        ] {
            let mut pool = in_doubt(&terms);
            if canary_hold {
                let evidence = sent(&pool, 25);
                pool.failed(at(26), &terms, evidence, true, 0.0);
            }
            let evidence = Evidence { round: 1, was_failing, ..sent(&pool, 0) };
            let held = pool.held_until(at(now), &terms);
            assert_eq!(pool.recovered(at(now), &terms, evidence, false), expected, "{name}");
            let still = if expected.is_some() { None } else { held };
            assert_eq!(pool.held_until(at(now), &terms), still, "{name}");
        }
    }

    #[test]
    fn neighbours_that_mostly_recover_raise_no_doubt() {
        let (terms, mut pool) = (terms(), PoolLearnt::default());
        for n in 0..300 {
            let evidence = sent(&pool, n);
            let hold = match n % 5 {
                0 | 2 => pool.failed(at(n), &terms, evidence, false, 0.0),
                _ => pool.recovered(at(n), &terms, evidence, false),
            };
            assert_eq!(hold, None, "{n}");
        }
    }

    #[test]
    fn what_is_stored_is_read_again_and_rubbish_is_a_fresh_start() {
        let pool = in_doubt(&terms());
        assert_eq!(PoolLearnt::read(Some(&pool.to_json())), pool);
        for json in [None, Some(""), Some("3"), Some("{\"doubted_at\":\"x\"}"), Some("{\"canaries\":null}")] {
            assert_eq!(PoolLearnt::read(json), PoolLearnt::default(), "{json:?}");
        }
        let wild = "{\"proven\":{\"size\":4000000000,\"bad\":4000000000},\"doubted_at\":-5}";
        let read = PoolLearnt::read(Some(wild));
        assert_eq!((read.doubted_at(), read.proven.resized(30)), (Millis(0), read.proven));
    }
}
