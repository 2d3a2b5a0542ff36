//! Who goes next: how many retries of each group that is due, and who is put off until when.

use super::{Learnt, PoolLearnt};
use crate::{letter::Millis, rule::Terms};

/// A group that cannot go because its pool is on hold is looked at again after this part of what is left of the hold,
/// for the hold may be lifted early; so it is looked at a few times however long the hold is.
const LOOKS_WHILE_HELD: i64 = 4;
/// But not more often than this, in milliseconds.
const LOOK_AGAIN_MS: i64 = 2_000;
/// Where all groups of a pool are looked at again when its hold ends, a group of one comes so much later than the
/// largest, in milliseconds: there may be more of them than one look sees.
const SMALL_ONES_LATER_MS: i64 = 400;
/// A window that never opens again is looked at this often, in milliseconds.
const NEVER_OPEN_MS: i64 = 3_600_000;

/// What one look at a pool knows.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The store's time.
    pub now: Millis,
    /// The rule's terms.
    pub terms: &'a Terms,
    /// All flights of the rule, whatever their pool ([`super::Aloft::of_rule`]).
    pub rule_in_flight: u32,
    /// How many may go now for the rule's `per_second` ([`super::Bucket::tokens`]).
    pub tokens: u32,
    /// What has been learnt of the pool.
    pub pool: &'a PoolLearnt,
    /// The pool's canaries without an outcome ([`super::Aloft::canaries`]).
    pub canaries_in_flight: u32,
    /// Its groups that are due, in the ledger's order.
    pub groups: &'a [GroupLook],
    /// There may be more groups than these: the ledger has given as many as were asked for.
    pub more: bool,
    /// Any number, a new one for every look: it says who begins when not all can go.
    pub dice: u64,
}

/// A group that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLook {
    /// The fingerprint.
    pub group: String,
    /// Entries that are due.
    pub due: u64,
    /// What has been learnt of it.
    pub learnt: Learnt,
    /// Its flights without an outcome ([`super::Aloft::of_group`]).
    pub in_flight: u32,
}

/// What is to be done with a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Groups to send from, with how many entries; as `RetryLedger::due_entries` takes them.
    pub send: Vec<(String, usize)>,
    /// Groups that are on hold, or whose pool is, with the time of their next look: each is one
    /// [`Refusal::GroupHeld`](crate::ledger::Refusal).
    pub held: Vec<(String, Millis)>,
    /// Groups that are to go to the end of the line, so that the next look sees others: their next look is now.
    pub to_the_end: Vec<String>,
    /// The window is closed: nothing of the whole pool goes, and it is not looked at before this. Each is one
    /// [`Refusal::WindowClosed`](crate::ledger::Refusal).
    pub closed_until: Option<Millis>,
}

/// Chooses who goes. Proven groups go by what they have learnt themselves, in turn. All others share the pool's
/// canaries: those that have failed least go first, the largest of them before the others, each with at most
/// `pace.start`.
pub fn choose(look: &Look<'_>) -> Choice {
    let (now, terms) = (look.now, look.terms);
    if let Some(window) = terms.window.as_ref().filter(|window| !window.is_open(now)) {
        let opens = window.opens_after(now).unwrap_or(Millis(now.0.saturating_add(NEVER_OPEN_MS)));
        return Choice { closed_until: Some(opens), ..Choice::default() };
    }
    let mut choice = Choice::default();
    let pool_held = look.pool.held_until(now, terms);
    let (mut proven, mut canaries) = (Vec::new(), Vec::new());
    for group in look.groups.iter().filter(|group| group.due > 0) {
        if let Some(until) = group.learnt.held_until(now, terms) {
            choice.held.push((group.group.clone(), until));
        } else if group.learnt.is_proven(now, terms, look.pool.doubted_at()) {
            let allowed = group.learnt.allowed(now, terms, look.pool.doubted_at());
            proven.push(Candidate::of(group, allowed));
        } else if let Some(until) = pool_held {
            choice.held.push((group.group.clone(), next_look(now, until, group.due)));
        } else {
            canaries.push(Candidate::of(group, terms.pace.start));
        }
    }
    if look.more {
        choice.to_the_end.extend(canaries.iter().map(Candidate::name));
        // Proven groups keep their place, unless they would leave too little room for the others.
        if proven.len() > look.groups.len() / 2 {
            choice.to_the_end.extend(proven.iter().map(Candidate::name));
        }
    }
    canaries.sort_by_key(|candidate| (candidate.group.learnt.failures(), u64::MAX - candidate.group.due));
    let free = terms.pace.max_in_flight.saturating_sub(look.rule_in_flight).min(look.tokens);
    let free_canaries = look.pool.allowed(now, terms).saturating_sub(look.canaries_in_flight);
    deal(&mut proven, &mut canaries, free, free_canaries, look.dice);
    let sent = proven.iter().chain(&canaries).filter(|candidate| candidate.sent > 0);
    choice.send.extend(sent.map(Candidate::sent));
    choice
}

/// A group that may go, and how many of it.
struct Candidate<'a> {
    group: &'a GroupLook,
    may: u32,
    sent: u32,
}

impl<'a> Candidate<'a> {
    fn of(group: &'a GroupLook, allowed: u32) -> Candidate<'a> {
        let due = u32::try_from(group.due).unwrap_or(u32::MAX);
        Candidate { group, may: allowed.saturating_sub(group.in_flight).min(due), sent: 0 }
    }

    fn name(&self) -> String {
        self.group.group.clone()
    }

    fn sent(&self) -> (String, usize) {
        (self.name(), self.sent as usize)
    }

    /// Gives it one more, if it may have one.
    fn take(&mut self) -> bool {
        let takes = self.sent < self.may;
        self.sent += u32::from(takes);
        takes
    }
}

/// Deals what is free, one by one in turn: to each proven group, and to the canaries of all others together.
fn deal(proven: &mut [Candidate<'_>], canaries: &mut [Candidate<'_>], free: u32, free_canaries: u32, dice: u64) {
    let (mut free, mut free_canaries, mut next_canary) = (free, free_canaries, 0);
    let seats = proven.len() + 1;
    let mut seat = usize::try_from(dice % seats as u64).unwrap_or_default();
    let mut passed = 0;
    while free > 0 && passed < seats {
        let taken = match proven.get_mut(seat) {
            Some(group) => group.take(),
            None if free_canaries == 0 => false,
            None => {
                while canaries.get(next_canary).is_some_and(|group| group.sent >= group.may) {
                    next_canary += 1;
                }
                let taken = canaries.get_mut(next_canary).is_some_and(Candidate::take);
                free_canaries -= u32::from(taken);
                taken
            }
        };
        free -= u32::from(taken);
        passed = if taken { 0 } else { passed + 1 };
        seat = (seat + 1) % seats;
    }
}

/// When a group with so many due entries is looked at again whose pool is on hold until then.
fn next_look(now: Millis, until: Millis, due: u64) -> Millis {
    let part = (until.0.saturating_sub(now.0) / LOOKS_WHILE_HELD).max(LOOK_AGAIN_MS);
    let look = now.0.saturating_add(part);
    if look < until.0 {
        return Millis(look);
    }
    let later = SMALL_ONES_LATER_MS / i64::try_from(due).unwrap_or(i64::MAX).max(1);
    Millis(until.0.saturating_add(later))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        retry::{Evidence, learnt::Hold},
        rule::{Pace, Window, Zone},
    };

    const NOW: Millis = Millis(1_800_000_000_000);

    fn terms(start: u32, max_in_flight: u32) -> Terms {
        let pace = Pace { start, max_in_flight, ..Terms::default().pace };
        Terms { min_age: Duration::from_secs(100), pace, ..Terms::default() }
    }

    fn evidence(learnt: &Learnt) -> Evidence {
        Evidence { round: learnt.round(), sent_at: Millis(NOW.0 - 2), was_failing: false, since: Millis(0) }
    }

    /// Taught by so many recoveries, and then, if `held`, on hold.
    fn taught(terms: &Terms, recoveries: u32, held: bool) -> Learnt {
        let (mut learnt, just_now) = (Learnt::default(), Millis(NOW.0 - 1));
        for _ in 0..recoveries {
            let evidence = evidence(&learnt);
            learnt.recovered(just_now, terms, evidence);
        }
        if held {
            learnt.hold(just_now, terms, 0.0);
        }
        learnt
    }

    fn pool(terms: &Terms, recoveries: u32, held: bool) -> PoolLearnt {
        PoolLearnt::read(Some(&format!(r#"{{"canaries":{}}}"#, taught(terms, recoveries, held).to_json())))
    }

    fn group(name: &str, due: u64, learnt: &Learnt, in_flight: u32) -> GroupLook {
        GroupLook { group: name.to_owned(), due, learnt: learnt.clone(), in_flight }
    }

    fn look<'a>(terms: &'a Terms, pool: &'a PoolLearnt, groups: &'a [GroupLook]) -> Look<'a> {
        Look {
            now: NOW,
            terms,
            rule_in_flight: 0,
            tokens: 50,
            pool,
            canaries_in_flight: 0,
            groups,
            more: false,
            dice: 0,
        }
    }

    fn sent(choice: &Choice) -> String {
        let mut sent: Vec<String> = choice.send.iter().map(|(group, count)| format!("{group}{count}")).collect();
        sent.sort_unstable();
        sent.join(" ")
    }

    #[test]
    fn unproven_groups_share_the_pools_canaries() {
        let terms = terms(2, 100);
        let (fresh, once) = (Learnt::default(), taught(&terms, 0, true));
        // One that has failed, and whose own pause is over.
        let until = once.held_until(NOW, &terms).unwrap().0 - NOW.0;
        let failed = Learnt::read(Some(&once.to_json().replace(&format!("{}", NOW.0 + until), "0")));
        assert_eq!((failed.failures(), failed.held_until(NOW, &terms)), (1, None));
        let groups = [group("a", 9, &failed, 0), group("b", 1, &fresh, 0), group("c", 5, &fresh, 0)];
        for (recoveries, held, canaries_in_flight, rule_in_flight, tokens, expected) in [
            (0, false, 0, 0, 50, "c2"),
            (0, false, 1, 1, 50, "c1"),
            (0, false, 2, 2, 50, ""),
            (1, false, 0, 0, 50, "a1 b1 c2"),
            (3, false, 0, 0, 50, "a2 b1 c2"),
            (3, false, 14, 14, 50, "c2"),
            (3, false, 0, 99, 50, "c1"),
            (3, false, 0, 120, 50, ""),
            (3, false, 0, 0, 3, "b1 c2"),
            (3, false, 0, 0, 0, ""),
            (3, true, 0, 0, 50, ""),
        ] {
            let pool = pool(&terms, recoveries, held);
            let look = Look { canaries_in_flight, rule_in_flight, tokens, ..look(&terms, &pool, &groups) };
            let choice = choose(&look);
            let mut expected: Vec<&str> = expected.split(' ').collect();
            expected.sort_unstable();
            assert_eq!(
                sent(&choice),
                expected.join(" "),
                "{recoveries} {canaries_in_flight} {rule_in_flight} {tokens}"
            );
            assert_eq!(choice.held.len(), if held { 3 } else { 0 });
        }
        let pool = pool(&terms, 3, false);
        let busy = [group("a", 9, &fresh, 1), group("b", 9, &fresh, 2), group("c", 0, &fresh, 0)];
        assert_eq!(sent(&choose(&look(&terms, &pool, &busy))), "a1", "each has `start` in flight at most");
    }

    #[test]
    fn proven_groups_go_by_what_they_have_learnt_and_take_turns() {
        let terms = terms(1, 100);
        let (four, much, held) = (taught(&terms, 2, false), taught(&terms, 9, false), taught(&terms, 9, true));
        let groups = [
            group("a", 1_000, &much, 0),
            group("b", 1_000, &four, 1),
            group("c", 1_000, &held, 0),
            group("d", 1_000, &Learnt::default(), 0),
        ];
        let (open, closed) = (pool(&terms, 0, false), pool(&terms, 0, true));
        for (pool, rule_in_flight, tokens, dice, expected) in [
            (&open, 0, 200, 0, "a96 b3 d1"),
            (&closed, 0, 200, 0, "a97 b3"),
            (&open, 90, 200, 0, "a6 b3 d1"),
            (&open, 0, 9, 0, "a5 b3 d1"),
            (&open, 0, 1, 0, "a1"),
            (&open, 0, 1, 1, "b1"),
            (&open, 0, 1, 2, "d1"),
            (&open, 0, 1, u64::MAX, "a1"),
        ] {
            let look = Look { rule_in_flight, tokens, dice, ..look(&terms, pool, &groups) };
            let choice = choose(&look);
            assert_eq!(sent(&choice), expected, "{rule_in_flight} {tokens} {dice}");
            assert_eq!(choice.held[0], ("c".to_owned(), held.held_until(NOW, &terms).unwrap()));
            assert_eq!(choice.to_the_end, Vec::<String>::new());
        }
    }

    #[test]
    fn what_waits_makes_room_where_there_may_be_more() {
        let terms = terms(1, 100);
        let (fresh, proven) = (Learnt::default(), taught(&terms, 3, false));
        let pool = pool(&terms, 0, false);
        for (learnt, expected) in [
            ([&proven, &fresh, &fresh], "b c"),
            ([&proven, &proven, &fresh], "c a b"),
            ([&fresh, &fresh, &fresh], "a b c"),
        ] {
            let groups: Vec<GroupLook> =
                "abc".chars().zip(learnt).map(|(n, l)| group(&n.to_string(), 5, l, 0)).collect();
            let choice = choose(&Look { more: true, ..look(&terms, &pool, &groups) });
            assert_eq!(choice.to_the_end.join(" "), expected);
        }
    }

    #[test]
    fn behind_a_held_pool_one_looks_again_a_few_times_and_the_largest_come_first() {
        for (left, due, expected) in [
            (100_000, 1, 25_000),
            (8_000, 1, 2_000),
            (2_001, 1, 2_000),
            (2_000, 1, 2_400),
            (1_000, 2, 1_200),
            (1_000, 400, 1_001),
            (1_000, u64::MAX, 1_000),
        ] {
            assert_eq!(next_look(NOW, Millis(NOW.0 + left), due), Millis(NOW.0 + expected), "{left} {due}");
        }
    }

    #[test]
    fn outside_its_window_nothing_of_a_rule_goes() {
        // It is 08:00 in UTC on a Friday.
        for (written, expected) in
            [("* * * * *", None), ("* 8 * * Fri", None), ("0-29 9 * * *", Some(NOW.0 + 3_600_000))]
        {
            let window = Window::parse(written, Zone::UTC).unwrap();
            let terms = Terms { window: Some(window), ..terms(1, 100) };
            let pool = pool(&terms, 0, false);
            let groups = [group("a", 5, &Learnt::default(), 0)];
            let choice = choose(&look(&terms, &pool, &groups));
            assert_eq!(choice.closed_until.map(|until| until.0), expected, "{written}");
            assert_eq!(sent(&choice), if expected.is_none() { "a1" } else { "" }, "{written}");
        }
    }

    #[test]
    fn a_hold_lets_canaries_through_only_when_it_is_over() {
        let terms = terms(1, 100);
        let mut learnt = Learnt::default();
        let evidence = evidence(&learnt);
        let Some(Hold::Begun { until }) = learnt.failed(NOW, &terms, evidence, 0.5) else { panic!("it fails") };
        let (pool, groups) = (pool(&terms, 0, false), [group("a", 5, &learnt, 0)]);
        for (now, expected) in [(NOW, ""), (Millis(until.0 - 1), ""), (until, "a1")] {
            assert_eq!(sent(&choose(&Look { now, ..look(&terms, &pool, &groups) })), expected, "{now:?}");
        }
    }
}
