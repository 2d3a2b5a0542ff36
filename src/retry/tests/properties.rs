//! Whatever happens, limits are limits, a hold is a hold, and what is stored can be read again.

use std::time::Duration;

use proptest::prelude::*;

use super::world::World;
use crate::{
    clock::millis,
    letter::Millis,
    retry::{Evidence, GroupLook, Hold, Learnt, Look, PoolLearnt, choose},
    rule::{Pace, Terms},
};

const NOW: i64 = 1_800_000_000_000;

fn terms() -> impl Strategy<Value = Terms> {
    (0_u64..30_000, 0_u64..200_000, 1_u32..6, 0_u32..60, 1_u32..100).prop_map(
        |(min_age, longer, start, more, per_second)| Terms {
            min_age: Duration::from_millis(min_age),
            max_backoff: Duration::from_millis(min_age + longer),
            max_retries: 5,
            pace: Pace { start, max_in_flight: start + more, per_second, ..Terms::default().pace },
            ..Terms::default()
        },
    )
}

/// One outcome: how much later, whether good, of which round (how many ago), and whether it had been failing.
type Event = (i64, bool, u64, bool, f64);

fn events() -> impl Strategy<Value = Vec<Event>> {
    let pause = prop_oneof![8 => 0_i64..2_000, 2 => 0_i64..300_000, 1 => -5_000_i64..0];
    prop::collection::vec((pause, any::<bool>(), 0_u64..3, any::<bool>(), 0.0_f64..=1.0), 0..120)
}

/// What any sequence of outcomes teaches, with a check after each.
fn taught(
    terms: &Terms,
    events: &[Event],
    mut check: impl FnMut(&Learnt, Millis, Option<Hold>) -> Result<(), TestCaseError>,
) -> Result<(Learnt, Millis), TestCaseError> {
    let (mut learnt, mut now) = (Learnt::default(), Millis(NOW));
    for (pause, good, ago, was_failing, dice) in events {
        now.0 += pause;
        let round = learnt.round().saturating_sub(*ago);
        let evidence = Evidence { round, sent_at: Millis(now.0 - 1), was_failing: *was_failing, since: Millis(0) };
        let hold = match good {
            true => learnt.recovered(now, terms, evidence),
            false => learnt.failed(now, terms, evidence, *dice),
        };
        check(&learnt, now, hold)?;
    }
    Ok((learnt, now))
}

fn group_looks(terms: &Terms) -> impl Strategy<Value = Vec<GroupLook>> + use<> {
    let terms = terms.clone();
    prop::collection::vec((events(), 0_u64..200, 0_u32..20), 0..12).prop_map(move |groups| {
        let look = |(n, (events, due, in_flight)): (usize, (Vec<Event>, u64, u32))| {
            let (learnt, _) = taught(&terms, &events, |_, _, _| Ok(())).expect("nothing is checked");
            GroupLook { group: format!("g{n}"), due, learnt, in_flight }
        };
        groups.into_iter().enumerate().map(look).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_may_be_in_flight_stays_in_its_bounds_and_pauses_too((terms, events) in (terms(), events())) {
        let longest = millis(terms.max_backoff.max(Duration::from_secs(1)));
        let (mut rounds, mut until) = (1, Millis(0));
        taught(&terms, &events, |learnt, now, hold| {
            match hold {
                Some(Hold::Begun { until: end }) => {
                    rounds += 1;
                    until = end;
                    prop_assert!(end.0 > now.0 && end.0 <= now.0 + longest);
                    prop_assert!(end.0 - now.0 >= millis(terms.min_age.max(Duration::from_secs(1))).min(longest));
                    prop_assert!(learnt.failures() > 0);
                }
                Some(Hold::Lifted) => until = Millis(0),
                None => {}
            }
            prop_assert_eq!(learnt.round(), rounds, "a round ends with a hold, and only so");
            let allowed = learnt.allowed(now, &terms, Millis(0));
            if now < until && learnt.held_until(now, &terms).is_some() {
                prop_assert_eq!(allowed, 0);
            } else {
                prop_assert!((terms.pace.start..=terms.pace.max_in_flight).contains(&allowed), "{}", allowed);
            }
            Ok(())
        })?;
    }

    #[test]
    fn what_is_learnt_is_read_again_as_it_was((terms, events) in (terms(), events())) {
        let (learnt, now) = taught(&terms, &events, |learnt, _, _| {
            prop_assert_eq!(&Learnt::read(Some(&learnt.to_json())), learnt);
            Ok(())
        })?;
        // Nothing is forgotten too early: afterwards it is as good as new.
        let later = Millis(learnt.keep_until(&terms).0.max(now.0) + 1);
        prop_assert_eq!(learnt.allowed(later, &terms, Millis(0)), terms.pace.start);
        prop_assert!(!learnt.is_proven(later, &terms, Millis(0)));
    }

    #[test]
    fn no_text_and_no_number_is_too_wild(
        text in ".{0,60}",
        numbers in prop::collection::vec(any::<u64>(), 14),
        now in any::<i64>(),
        (good, dice) in (any::<bool>(), 0.0_f64..=1.0),
        terms in terms(),
    ) {
        let _ = (Learnt::read(Some(&text)), PoolLearnt::read(Some(&text)));
        let n = |at: usize, most: u64| numbers[at] % most.max(1);
        let (small, large) = (u64::from(u32::MAX) + 1, i64::MAX.unsigned_abs());
        let json = format!(
            r#"{{"allowed":{},"round":{},"failures":{},"window":{{"size":{},"good":{},"bad":{}}},"held_at":{},
            "held_until":{},"pause":{},"recovered":{},"last":{}}}"#,
            n(0, small), numbers[1], n(2, small), n(3, small), n(4, small), n(5, small), n(6, large),
            n(7, large), n(8, large), n(9, large), n(10, large),
        );
        let mut learnt = Learnt::read(Some(&json));
        prop_assert!(learnt != Learnt::default(), "it can be read: {}", json);
        let now = Millis(now);
        let evidence = Evidence { round: learnt.round(), sent_at: now, was_failing: good, since: Millis(-1) };
        let _ = if good { learnt.recovered(now, &terms, evidence) } else { learnt.failed(now, &terms, evidence, dice) };
        let allowed = learnt.allowed(now, &terms, Millis(0));
        prop_assert!(allowed == 0 || (terms.pace.start..=terms.pace.max_in_flight).contains(&allowed));
        let _ = (learnt.keep_until(&terms), learnt.is_proven(now, &terms, Millis(numbers[11].cast_signed())));
        prop_assert_eq!(&Learnt::read(Some(&learnt.to_json())), &learnt);
        let (size, doubted_at) = (n(12, small), n(13, large));
        let pool = format!(r#"{{"canaries":{json},"proven":{{"size":{size}}},"doubted_at":{doubted_at}}}"#);
        let pool = PoolLearnt::read(Some(&pool));
        prop_assert!(pool.allowed(now, &terms) <= terms.pace.max_in_flight);
        prop_assert_eq!(&PoolLearnt::read(Some(&pool.to_json())), &pool);
    }

    #[test]
    fn a_choice_keeps_to_every_limit_and_leaves_nothing_that_may_go(
        (terms, groups) in terms().prop_flat_map(|terms| { let groups = group_looks(&terms); (Just(terms), groups) }),
        pool in events(),
        (rule_in_flight, tokens, canaries_in_flight) in (0_u32..80, 0_u32..120, 0_u32..10),
        after in 0_i64..100_000,
        (more, dice) in (any::<bool>(), any::<u64>()),
    ) {
        let (canaries, _) = taught(&terms, &pool, |_, _, _| Ok(()))?;
        let pool = PoolLearnt::read(Some(&format!(r#"{{"canaries":{}}}"#, canaries.to_json())));
        let now = Millis(NOW + after);
        let look = Look {
            now, terms: &terms, rule_in_flight, tokens, pool: &pool, canaries_in_flight, groups: &groups, more, dice,
        };
        let choice = choose(&look);
        let of = |name: &str| groups.iter().find(|group| group.group == name).expect("chosen of these");
        let proven = |group: &GroupLook| group.learnt.is_proven(now, &terms, pool.doubted_at());
        let (mut all, mut strangers) = (0, 0);
        for (name, count) in &choice.send {
            let (group, count) = (of(name), u32::try_from(*count).unwrap());
            prop_assert!(count > 0 && u64::from(count) <= group.due);
            prop_assert_eq!(group.learnt.held_until(now, &terms), None);
            let allowed = if proven(group) { group.learnt.allowed(now, &terms, Millis(0)) } else { terms.pace.start };
            prop_assert!(count + group.in_flight <= allowed, "{} of {}", count, allowed);
            all += count;
            strangers += if proven(group) { 0 } else { count };
        }
        prop_assert!(all <= tokens && (all == 0 || all + rule_in_flight <= terms.pace.max_in_flight));
        prop_assert!(strangers == 0 || strangers + canaries_in_flight <= pool.allowed(now, &terms));
        let (sent, held) = (choice.send.iter().map(|(name, _)| name), choice.held.iter().map(|(name, _)| name));
        let mut names: Vec<&String> = sent.chain(held).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), count, "each group is named once");
        prop_assert!(choice.held.iter().all(|(_, until)| *until > now));
        prop_assert!(more || choice.to_the_end.is_empty());
        // If somebody who may go stays, then because nothing is left for him.
        let spent = all >= tokens || all + rule_in_flight >= terms.pace.max_in_flight;
        for group in groups.iter().filter(|group| group.due > 0 && group.learnt.held_until(now, &terms).is_none()) {
            let sent = choice.send.iter().find(|(name, _)| *name == group.group).map_or(0, |(_, count)| *count as u64);
            let allowed = if proven(group) { group.learnt.allowed(now, &terms, Millis(0)) } else { terms.pace.start };
            let full = sent == group.due || sent + u64::from(group.in_flight) >= u64::from(allowed);
            let no_canary = !proven(group) && strangers + canaries_in_flight >= pool.allowed(now, &terms);
            prop_assert!(full || spent || no_canary, "{:?}", group);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Groups of any size, a dependency that fails each of them now more and now less, any terms.
    #[test]
    fn in_no_world_is_a_limit_or_a_hold_broken(
        terms in terms(),
        sizes in prop::collection::vec(1_usize..40, 1..12),
        phases in prop::collection::vec((1_000_i64..40_000, prop::collection::vec(0.0_f64..=1.0, 3)), 1..8),
        seed in any::<u64>(),
    ) {
        let deaths: Vec<_> = sizes.iter().enumerate().map(|(n, size)| (format!("g{n}"), *size)).collect();
        let dependency = move |group: &str, time: i64, dice: f64| {
            let mut end = 0;
            let phase = phases.iter().find(|(lasts, _)| { end += lasts; time < end });
            let kind = usize::from(group.as_bytes()[1]) % 3;
            // After the last phase it works.
            phase.is_none_or(|(_, failing)| dice >= failing[kind])
        };
        let mut world = World::new(terms.clone(), seed, &deaths, Box::new(dependency));
        world.run_dry(Duration::from_secs(900));
        prop_assert!(world.most_in_flight <= terms.pace.max_in_flight);
        for (n, first) in world.sent.iter().enumerate() {
            let second = world.sent[n..].iter().take_while(|sent| sent.at < first.at + 1_000).count();
            prop_assert!(second <= terms.pace.per_second as usize, "{} in a second", second);
        }
        for (began, group, until) in &world.holds {
            let during = world.sent.iter().filter(|sent| (began..until).contains(&&sent.at));
            for sent in during {
                match group {
                    Some(group) => prop_assert!(sent.group != *group, "{group} was on hold at {}", sent.at),
                    None => prop_assert!(!sent.canary, "a canary of {} at {}", sent.group, sent.at),
                }
            }
        }
        // Each job has come to its end, or still waits for it.
        let jobs: usize = sizes.iter().sum();
        prop_assert_eq!(world.recovered.len() + world.exhausted + world.waiting() + world.in_flight(), jobs);
        let tried = world.sent.iter().filter(|sent| sent.verdict.is_some()).count();
        prop_assert_eq!(tried + world.in_flight(), world.sent.len());
    }
}
