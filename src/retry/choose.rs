//! Who goes next: how many retries of each group that is due, and who is put off until when.

use super::{Learnt, PoolLearnt};
use crate::{letter::Millis, rule::Terms};

/// A group that cannot go because its pool is on hold is looked at again after this part of what is left of the hold,
/// for the hold may be lifted early; so it is looked at a few times however long the hold is.
const LOOKS_WHILE_HELD: i64 = 4;
/// But not more often than this, in milliseconds.
const LOOK_AGAIN_MS: i64 = 2_000;
/// Where all groups of a pool are looked at again when its hold ends, a group of one comes so much later than the largest,
/// in milliseconds: there may be more of them than one look sees.
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

/// Chooses who goes. Proven groups go by what they have learnt themselves, in turn. All others share the pool's canaries:
/// those that have failed least go first, the largest of them before the others, each with at most `pace.start`.
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
