//! What verdicts teach the pools and groups they belong to.
//!
//! What is learnt of a group is kept only for as long as it says something ([`Learnt::keep_until`]): a thousand groups
//! of one that recover at once leave nothing behind, and one that is proven is not forgotten while more of it waits.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, Hold, Learnt, PoolLearnt, Step, Teaching};
use crate::{
    ledger::{Lesson, Pool},
    letter::Millis,
    rule::Terms,
};

/// One pool, and what was known of it and of its groups so far.
#[derive(Clone, Debug)]
pub struct Learning {
    /// The pool.
    pub pool: Pool,
    /// What is known of it.
    pub learnt: PoolLearnt,
    /// What is known of its groups, by fingerprint; one that is not there is fresh.
    pub groups: BTreeMap<String, Learnt>,
}

/// What has changed for those who wait: to be logged, and the pool or group to be looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The group; none for the pool's canaries.
    pub group: Option<String>,
    /// What has changed.
    pub hold: Hold,
}

/// What a batch of verdicts has taught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the ledger is to keep.
    pub lessons: Vec<Lesson>,
    /// Holds that have begun or were lifted, in order.
    pub changes: Vec<Change>,
}

/// Teaches a pool and its groups what these steps say, in this order; steps of other pools are passed over. `now` is
/// the store's time of the look, `dice` gives numbers from 0 to 1.
pub fn learn(
    now: Millis,
    terms: &Terms,
    learning: &mut Learning,
    steps: &[Step],
    dice: &mut dyn FnMut() -> f64,
) -> Outcome {
    let (mut outcome, mut touched) = (Outcome::default(), BTreeSet::new());
    for step in steps.iter().filter(|step| step.flight.place.pool == learning.pool) {
        let (flight, Some(teaching)) = (&step.flight, step.teaching) else { continue };
        let name = &flight.place.group;
        let group = learning.groups.entry(name.clone()).or_default();
        let pool = &mut learning.learnt;
        let of = |round| Evidence {
            round,
            sent_at: flight.sent_at,
            // Of one that has recovered, the flight still says whether it had been failing before.
            was_failing: flight.failing,
            since: pool.doubted_at(),
        };
        let (for_group, for_pool) = (of(flight.rounds.group), of(flight.rounds.pool));
        let holds = match teaching {
            Teaching::Success => {
                (group.recovered(now, terms, for_group), pool.recovered(now, terms, for_pool, flight.rounds.canary))
            }
            Teaching::Failure => (
                group.failed(now, terms, for_group, dice()),
                pool.failed(now, terms, for_pool, flight.rounds.canary, dice()),
            ),
        };
        touched.insert(name.clone());
        let change = |group: Option<&String>, hold: Option<Hold>| Some(Change { group: group.cloned(), hold: hold? });
        outcome.changes.extend(change(Some(name), holds.0));
        outcome.changes.extend(change(None, holds.1));
    }
    if !touched.is_empty() {
        outcome.lessons.push(Lesson {
            pool: learning.pool.clone(),
            group: None,
            learnt: learning.learnt.to_json(),
            held_until: learning.learnt.held_until(now, terms),
            keep_until: learning.learnt.keep_until(terms),
        });
    }
    outcome.lessons.extend(touched.into_iter().filter_map(|name| {
        let group = learning.groups.get(&name)?;
        Some(Lesson {
            pool: learning.pool.clone(),
            learnt: group.to_json(),
            held_until: group.held_until(now, terms),
            keep_until: group.keep_until(terms),
            group: Some(name),
        })
    }));
    outcome
}
