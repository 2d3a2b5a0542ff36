//! What has been learnt of a pool: of its canaries, and whether its proven groups still stand.
//!
//! The number of canaries is taught by canaries alone. If a large healthy group could raise it, a thousand groups that
//! nothing can mend would be sent in its shadow; if one such group could stop everything, the healthy ones would wait
//! for it. So proven groups go by what they have learnt themselves, until half of all their retries fail: then the
//! dependency they share is in doubt, and all of them begin with canaries again.

use serde::{Deserialize, Serialize};

use super::{
    learnt::{Evidence, Hold, Learnt},
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
}

impl Default for PoolLearnt {
    fn default() -> PoolLearnt {
        PoolLearnt { canaries: Learnt::default(), proven: Window::of(PROVEN_WINDOW), doubted_at: 0 }
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
        self.canaries.keep_until(terms)
    }

    /// A retry of one of its groups has recovered. `evidence.since` is not looked at.
    pub(super) fn recovered(&mut self, now: Millis, terms: &Terms, evidence: Evidence, canary: bool) -> Option<Hold> {
        let evidence = Evidence { since: Millis(0), ..evidence };
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
