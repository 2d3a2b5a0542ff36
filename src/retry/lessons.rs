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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        event::JobDead,
        ledger::{Flight, Place, Rounds, Whereabouts},
    };

    const NOW: Millis = Millis(1_800_000_000_000);

    fn step(pool: &Pool, group: &str, canary: bool, teaching: Option<Teaching>) -> Step {
        let flight = Flight {
            place: Place { pool: pool.clone(), group: group.to_owned() },
            dead: JobDead::default(),
            stream: String::new(),
            dedup: None,
            sent_at: Millis(NOW.0 - 1),
            confirm_by: NOW,
            rounds: Rounds { pool: 1, group: 1, canary },
            at: Whereabouts::Queue(String::new()),
            seen_at: NOW,
            failing: false,
        };
        Step { flight, verdict: None, teaching }
    }

    fn fresh(pool: &Pool) -> Learning {
        Learning { pool: pool.clone(), learnt: PoolLearnt::default(), groups: BTreeMap::new() }
    }

    #[test]
    fn pool_and_group_learn_from_every_outcome_of_theirs() {
        let terms = Terms { min_age: Duration::from_secs(10), ..Terms::default() };
        let (pool, other) = (Pool::of("r", "t"), Pool::of("r", "u"));
        let mut learning = fresh(&pool);
        let steps = [
            step(&pool, "a", true, Some(Teaching::Success)),
            step(&other, "a", true, Some(Teaching::Failure)),
            step(&pool, "b", false, Some(Teaching::Failure)),
            step(&pool, "c", true, None),
        ];
        let outcome = learn(NOW, &terms, &mut learning, &steps, &mut || 0.0);
        let until = Millis(NOW.0 + 10_000);
        let hold = |group: &str| Change { group: Some(group.to_owned()), hold: Hold::Begun { until } };
        assert_eq!(outcome.changes, [hold("b")], "of the pool, one that was no canary has failed");
        let lessons: Vec<_> = outcome
            .lessons
            .iter()
            .map(|lesson| (lesson.group.as_deref(), lesson.held_until, lesson.keep_until))
            .collect();
        let good_for = Millis(NOW.0 + 60_000 + 15 * 60_000);
        let a_day_later = Millis(until.0 + 24 * 3_600_000);
        assert_eq!(
            lessons,
            [(None, None, good_for), (Some("a"), None, good_for), (Some("b"), Some(until), a_day_later)]
        );
        assert!(outcome.lessons.iter().all(|lesson| lesson.pool == pool));
        assert_eq!(PoolLearnt::read(Some(&outcome.lessons[0].learnt)), learning.learnt);
        assert_eq!(Learnt::read(Some(&outcome.lessons[1].learnt)), learning.groups["a"]);
        assert_eq!(learning.learnt.allowed(NOW, &terms), 2);
        assert_eq!(learning.groups["a"].allowed(NOW, &terms, Millis(0)), 2);
        assert_eq!(learning.groups["b"].allowed(NOW, &terms, Millis(0)), 0);
    }

    #[test]
    fn where_nothing_is_taught_nothing_is_written() {
        let pool = Pool::of("r", "t");
        let steps = [step(&pool, "c", true, None)];
        let outcome = learn(NOW, &Terms::default(), &mut fresh(&pool), &steps, &mut || 0.0);
        assert_eq!(outcome, Outcome::default());
    }

    #[test]
    fn a_canary_that_fails_holds_its_pool_too_and_one_that_recovers_after_all_lifts_both() {
        let terms = Terms { min_age: Duration::from_secs(10), ..Terms::default() };
        let (pool, mut dice) = (Pool::of("r", "t"), [0.0, 1.0].into_iter());
        let mut learning = fresh(&pool);
        let failing = step(&pool, "a", true, Some(Teaching::Failure));
        let dice = &mut || dice.next().expect("one for the group, one for the pool");
        let held = learn(NOW, &terms, &mut learning, &[failing], dice);
        let holds: Vec<Hold> = held.changes.iter().map(|change| change.hold).collect();
        let until = |ms| Hold::Begun { until: Millis(NOW.0 + ms) };
        assert_eq!(holds, [until(10_000), until(11_000)]);
        let mut after_all = step(&pool, "a", true, Some(Teaching::Success));
        after_all.flight.failing = true;
        let lifted = learn(Millis(NOW.0 + 1), &terms, &mut learning, &[after_all], &mut || 0.0);
        let change = |group: Option<&str>| Change { group: group.map(str::to_owned), hold: Hold::Lifted };
        assert_eq!(lifted.changes, [change(Some("a")), change(None)]);
        assert!(lifted.lessons.iter().all(|lesson| lesson.held_until.is_none()));
    }
}
