//! Decides, for one lane, what is read, sent, folded, tried again and given up.

mod folding;
mod order;

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use super::{
    Answer, CONCURRENCY, FAILING_AFTER, FRESH_AT_MOST, HINTED_EVERY, Key, LONGEST_WAIT, LaneState, Outcome, PAGE,
    TRIED_AT_MOST, pause,
    state::{Failing, Tries},
};
use crate::{
    clock::millis,
    config::Rate,
    event::{Event, EventData, JobDead, Tally},
    ledger::{OutboxId, Posted},
    letter::Millis,
};

/// A try that could not be made, because the store did not give the event, is made again after this long (ms).
const POSTPONED: i64 = 1_000;

/// What does not change while a plan lives.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The source's name.
    pub source: String,
    /// The hook's name.
    pub hook: String,
    /// How many single events; [`Rate::Unlimited`] for a lane that is never folded.
    pub rate: Rate,
    /// The time from one request to the next; zero sends several at once, any other one at a time.
    pub spacing: Duration,
    /// Of several tellings that an incident fires only the newest means anything to the receiver, and incidents of the
    /// same rule and labels are one to it.
    pub newest_alone: bool,
    /// After this, counted from its first try, an event is given up.
    pub give_up_after: Duration,
    /// The fingerprint of the hook's configuration.
    pub fingerprint: String,
}

/// A request to be made now.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// What [`Plan::settled`] wants to hear about.
    pub key: Key,
    /// The event, if it is a digest of this lane; otherwise the outbox has it.
    pub digest: Option<Event>,
}

/// What became of an event that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It will be sent by itself.
    Single,
    /// It is counted in a digest to come.
    Folded,
    /// The hook does not want it.
    Skipped,
    /// The hook wants it but is switched off.
    Rejected,
}

/// Something a person may want to know, or a counter must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// From now on the endpoint is probed with one request at a time.
    Failing {
        /// The pause before the next probe.
        pause: Duration,
    },
    /// It works again.
    Recovered {
        /// Requests that had failed in a row.
        failures: u64,
        /// For how long it was failing.
        after: Duration,
    },
    /// These many events were tried for too long, or are no longer there.
    GivenUp(u64),
    /// The hook was switched off; these many events went with it.
    SwitchedOff(u64),
}

/// The plan of one lane.
#[derive(Debug)]
pub struct Plan {
    policy: Policy,
    state: LaneState,
    in_flight: HashSet<Key>,
    /// The request that shows whether a failing endpoint works again.
    probe: Option<Key>,
    /// Failures in a row.
    failures: u32,
    /// Requests allowed at the same time: grows again, one for each success, after the endpoint was failing.
    allowed: usize,
    /// Nothing is sent before this (ms): the receiver asked for it.
    quiet_until: i64,
    /// When the next request may be made (ms), where they are spaced.
    spaced_until: i64,
    /// When the last probe out of turn was asked for (ms).
    hinted_at: Option<i64>,
    /// Such a hint came while a probe was out.
    hint_waits: bool,
    /// When time was last looked at (ms).
    looked_at: i64,
    /// Counts changes of the state.
    version: u64,
    /// The version the ledger holds.
    saved: u64,
}

impl Plan {
    /// The plan for a lane whose state was `state` when it was last saved.
    pub fn new(policy: Policy, state: LaneState) -> Plan {
        let allowed = if state.failing.is_some() || !policy.spacing.is_zero() { 1 } else { CONCURRENCY };
        let mut plan = Plan {
            policy,
            state,
            in_flight: HashSet::new(),
            probe: None,
            failures: 0,
            allowed,
            quiet_until: 0,
            spaced_until: 0,
            hinted_at: None,
            hint_waits: false,
            // A saved state may be older than a step back of the store's clock.
            looked_at: i64::MAX,
            version: 0,
            saved: 0,
        };
        plan.look_at_fingerprint();
        plan.drop_superseded();
        plan
    }

    /// Goes on from another state: somebody has changed the saved one. Requests on their way stay on their way.
    pub fn replace(&mut self, state: LaneState) {
        self.state = state;
        self.version += 1;
        self.saved = self.version;
        self.look_at_fingerprint();
        self.drop_superseded();
    }

    /// A hook that was switched off comes back when its configuration has changed.
    fn look_at_fingerprint(&mut self) {
        if self.state.off.is_some() && !self.is_off() {
            self.state.off = None;
            self.state.failing = None;
            self.version += 1;
        }
    }

    /// The state as it is now.
    pub fn state(&self) -> &LaneState {
        &self.state
    }

    /// Read the outbox after this.
    pub fn cursor(&self) -> OutboxId {
        self.state.cursor
    }

    /// True while the hook is switched off.
    pub fn is_off(&self) -> bool {
        self.state.is_off(&self.policy.fingerprint)
    }

    /// True while the endpoint counts as failing.
    pub fn is_failing(&self) -> bool {
        self.state.failing.is_some()
    }

    fn is_concurrent(&self) -> bool {
        self.policy.spacing.is_zero()
    }

    /// How many events may be read now; 0 to leave them in the outbox.
    pub fn read_up_to(&self, now: Millis) -> usize {
        let pending = self.state.pending.len();
        if self.is_off() {
            return PAGE;
        }
        if self.is_failing() {
            return CONCURRENCY.saturating_sub(pending);
        }
        let held = self.held();
        let is_fresh = |(id, tries): &(&OutboxId, &Tries)| tries.attempts == 0 && !held.contains(id);
        let fresh = self.state.pending.iter().filter(is_fresh).count();
        if pending - fresh >= TRIED_AT_MOST {
            return 0;
        }
        let room = FRESH_AT_MOST.saturating_sub(fresh);
        if room > 0 && self.singles_left(now) == Some(0) { PAGE } else { room }
    }

    /// Takes an event read from the outbox, in order. `brief` makes of a dead letter what a digest may show of it.
    pub fn take(&mut self, posted: &Posted, wanted: bool, now: Millis, brief: impl Fn(&JobDead) -> JobDead) -> Taken {
        self.passed(posted.id);
        if !wanted {
            return Taken::Skipped;
        }
        if self.is_off() {
            return Taken::Rejected;
        }
        let alone = posted.event.data.job().is_none() || self.has_single(now);
        if !alone && self.state.folded.fold(&posted.event, brief) {
            return Taken::Folded;
        }
        self.choose(posted.id, &posted.event, now.0);
        Taken::Single
    }

    /// Everything up to `id` has been read; moves forward only.
    pub fn passed(&mut self, id: OutboxId) {
        if id > self.state.cursor {
            self.state.cursor = id;
            self.version += 1;
        }
    }

    /// Lets time do its work: gives up what was tried for too long, and freezes digests that are ready.
    pub fn tick(&mut self, now: Millis) -> Vec<Note> {
        if now.0 < self.looked_at {
            self.clock_stepped_back(now);
        }
        self.looked_at = now.0;
        let mut notes = Vec::new();
        let given_up = self.give_up(now);
        if given_up > 0 {
            notes.push(Note::GivenUp(given_up));
        }
        if self.window_is_over(now) {
            self.freeze_rate(now);
        }
        // A dead endpoint gets one digest in the end, not one for every time the outbox was full; but where nothing
        // else is left to probe it with, this one has to.
        if !self.is_failing() || (self.state.pending.is_empty() && self.state.digests.is_empty()) {
            self.freeze_overflow(now);
        }
        notes
    }

    /// What was due at a time of the old clock must not wait until the new one gets there.
    fn clock_stepped_back(&mut self, now: Millis) {
        let latest = later(now, LONGEST_WAIT);
        self.quiet_until = self.quiet_until.min(latest);
        self.spaced_until = self.spaced_until.min(later(now, self.policy.spacing));
        self.hinted_at = self.hinted_at.map(|at| at.min(now.0));
        if let Some(failing) = &mut self.state.failing {
            failing.next_at = failing.next_at.min(latest);
            failing.since = failing.since.min(now.0);
        }
        for tries in self.state.all_tries() {
            tries.next_at = tries.next_at.min(latest);
            tries.first_at = tries.first_at.map(|first| first.min(now.0));
        }
    }

    fn give_up(&mut self, now: Millis) -> u64 {
        let limit = millis(self.policy.give_up_after);
        let late = |tries: &Tries| tries.first_at.is_some_and(|first| first.saturating_add(limit) <= now.0);
        let (in_flight, mut events) = (&self.in_flight, 0);
        self.state.pending.retain(|id, tries| {
            let gone = late(tries) && !in_flight.contains(&Key::Event(*id));
            events += u64::from(gone);
            !gone
        });
        self.state.digests.retain(|digest| {
            let gone = late(&digest.tries) && !in_flight.contains(&Key::Digest(digest.seq));
            events += if gone { digest.data.counts.events() } else { 0 };
            !gone
        });
        self.version += u64::from(events > 0);
        events
    }

    /// The next request to be made at `now`, if one may be made; it counts as on its way from here on. Ask again
    /// until there is none.
    pub fn due(&mut self, now: Millis) -> Option<Due> {
        let key = self.ready().filter(|(at, ..)| *at <= now.0).min_by_key(|(_, rank, key)| (*rank, *key))?.2;
        if self.is_failing() {
            self.probe = Some(key);
        }
        self.in_flight.insert(key);
        self.spaced_until = later(now, self.policy.spacing);
        self.state.tries(key)?.first_at.get_or_insert(now.0);
        self.version += 1;
        Some(Due { key, digest: self.digest(key) })
    }

    /// Everything that could be sent if its time had come: time (ms), rank (lower goes first) and key.
    fn ready(&self) -> impl Iterator<Item = (i64, u32, Key)> {
        let waiting = self.in_flight.len();
        let failing = self.state.failing;
        let not_before = self.quiet_until.max(self.spaced_until);
        // Where there is one slot, what is new must not take it for ever: whatever is due goes, the oldest first.
        let new_first = self.is_concurrent();
        let open = !self.is_off() && if failing.is_some() { waiting == 0 } else { waiting < self.allowed };
        // What keeps failing gets half of the slots at most, so that it does not hold up what is new.
        let tried_in_flight = self.in_flight.iter().filter(|key| self.state.attempts(**key) > 0).count();
        let retries = failing.is_some() || tried_in_flight < self.allowed.div_ceil(2);
        let digests = self
            .state
            .digests
            .iter()
            .filter(|digest| digest.since_version <= self.saved)
            .map(|digest| (Key::Digest(digest.seq), digest.tries));
        // What comes later of an incident waits, however often the earlier fails: nothing may open it again.
        let held = self.held();
        let events = self.state.pending.iter().filter(move |(id, _)| !held.contains(id));
        let events = events.map(|(id, tries)| (Key::Event(*id), *tries));
        digests
            .chain(events)
            .filter(move |(key, tries)| open && !self.in_flight.contains(key) && (retries || tries.attempts == 0))
            .map(move |(key, tries)| match failing {
                // The one tried least goes first: an event that is itself the trouble must not be every probe.
                Some(failing) => (failing.next_at.max(not_before), tries.attempts, key),
                None => (tries.next_at.max(not_before), u32::from(new_first && tries.attempts > 0), key),
            })
    }

    fn digest(&self, key: Key) -> Option<Event> {
        let Key::Digest(seq) = key else { return None };
        let frozen = self.state.digest(seq)?;
        let data = EventData::Digest(Box::new(frozen.data.clone()));
        Some(Event { id: frozen.id.clone(), at: Millis(frozen.at), data })
    }

    /// True if the answer to this request means something. One that was on its way when the hook was switched off
    /// went with everything else, and is counted there.
    pub fn awaits(&self, key: Key) -> bool {
        self.in_flight.contains(&key)
    }

    /// What a request came to, if it is awaited. `chance` (0 to 1) jitters the pause before another one.
    pub fn settled(&mut self, key: Key, answer: impl Into<Answer>, now: Millis, chance: f64) -> Vec<Note> {
        if !self.awaits(key) {
            return Vec::new();
        }
        let was_probe = self.come_back(key);
        let answer = answer.into();
        let outcome = answer.outcome;
        self.state.remember(key, answer, now);
        match outcome {
            Outcome::Delivered | Outcome::Rejected => {
                self.state.remove(key);
                self.answers(now).into_iter().collect()
            }
            Outcome::Retry { after } => {
                let note = self.failed(key, was_probe, after, now, chance);
                self.drop_superseded();
                note.into_iter().collect()
            }
            Outcome::SwitchedOff if self.is_off() => Vec::new(),
            Outcome::SwitchedOff => {
                self.state.remove(key);
                vec![Note::SwitchedOff(self.switch_off())]
            }
        }
    }

    /// It is no longer on its way; true if it was the probe.
    fn come_back(&mut self, key: Key) -> bool {
        self.in_flight.remove(&key);
        self.version += 1;
        self.probe.take_if(|probe| *probe == key).is_some()
    }

    /// The endpoint has answered as it should: everything that waits is due.
    fn answers(&mut self, now: Millis) -> Option<Note> {
        self.failures = 0;
        if self.is_concurrent() {
            self.allowed = CONCURRENCY.min(self.allowed + 1);
        }
        let failing = self.state.failing.take()?;
        self.probe = None;
        self.hint_waits = false;
        self.quiet_until = 0;
        for tries in self.state.all_tries() {
            tries.next_at = now.0;
        }
        let after = u64::try_from(now.0.saturating_sub(failing.since)).unwrap_or(0);
        Some(Note::Recovered { failures: failing.failures, after: Duration::from_millis(after) })
    }

    fn failed(&mut self, key: Key, was_probe: bool, after: Option<Duration>, now: Millis, chance: f64) -> Option<Note> {
        if self.is_off() {
            return None;
        }
        let asked = after.unwrap_or_default();
        self.quiet_until = self.quiet_until.max(later(now, asked));
        self.failures = self.failures.saturating_add(1);
        if let Some(tries) = self.state.tries(key) {
            tries.attempts = tries.attempts.saturating_add(1);
            tries.next_at = later(now, pause(tries.attempts, chance).max(asked));
        }
        if let Some(failing) = &mut self.state.failing {
            failing.failures += 1;
            // What was still on its way when the endpoint began to fail says nothing new.
            if was_probe {
                failing.probes = failing.probes.saturating_add(1);
                failing.next_at = later(now, pause(failing.probes.saturating_add(1), chance).max(asked));
                if std::mem::take(&mut self.hint_waits) {
                    self.works_elsewhere(now);
                }
            }
            return None;
        }
        if self.failures < FAILING_AFTER {
            return None;
        }
        let pause = pause(1, chance).max(asked);
        self.allowed = 1;
        self.state.failing =
            Some(Failing { since: now.0, failures: u64::from(self.failures), probes: 0, next_at: later(now, pause) });
        Some(Note::Failing { pause })
    }

    /// The endpoint takes what another lane sends it: if it counts as failing here, the next probe is due at once,
    /// unless the last such hint has only just come to nothing, or the receiver itself has asked for a pause.
    pub fn works_elsewhere(&mut self, now: Millis) {
        if self.probe.is_some() {
            self.hint_waits = true;
            return;
        }
        let Some(failing) = &mut self.state.failing else { return };
        let at = self.hinted_at.map_or(now.0, |last| now.0.max(later(Millis(last), HINTED_EVERY)));
        if at < failing.next_at {
            failing.next_at = at;
            self.hinted_at = Some(at);
            self.version += 1;
        }
    }

    /// The endpoint has told another lane that it is gone for good.
    pub fn gone_elsewhere(&mut self) -> Option<Note> {
        (!self.is_off()).then(|| Note::SwitchedOff(self.switch_off()))
    }

    /// Drops everything else, also what is on its way: its answer may never come, or be a failure nobody tries again.
    /// Returns how many events that was.
    fn switch_off(&mut self) -> u64 {
        let dropped = self.state.unsettled();
        self.in_flight.clear();
        self.probe = None;
        self.hint_waits = false;
        self.state.off = Some(self.policy.fingerprint.clone());
        self.state.pending = BTreeMap::new();
        self.state.digests.clear();
        self.state.folded = Tally::default();
        self.state.overflow = Tally::default();
        self.state.window = None;
        self.state.failing = None;
        self.state.rejecting_since = None;
        self.failures = 0;
        self.version += 1;
        dropped
    }

    /// The try was not made after all, because the store did not give the event.
    pub fn postponed(&mut self, key: Key, now: Millis) {
        self.come_back(key);
        let again = now.0.saturating_add(POSTPONED);
        if let Some(failing) = &mut self.state.failing {
            failing.next_at = failing.next_at.max(again);
        }
        if let Some(tries) = self.state.tries(key) {
            tries.next_at = again;
        }
        self.drop_superseded();
    }

    /// The event turned out not to be worth sending any more.
    pub fn skipped(&mut self, key: Key) {
        self.come_back(key);
        self.state.remove(key);
    }

    /// The outbox no longer has the event.
    pub fn gone(&mut self, key: Key) -> Option<Note> {
        self.come_back(key);
        let known = self.state.tries(key).is_some();
        self.state.remove(key);
        known.then_some(Note::GivenUp(1))
    }

    /// When there will be something to do, if nothing else happens; never in the past of what can be done now.
    pub fn wake_at(&self) -> Option<Millis> {
        let limit = millis(self.policy.give_up_after);
        let sends = self.ready().map(|(at, ..)| at);
        let events = self.state.pending.iter().map(|(id, tries)| (Key::Event(*id), tries));
        let digests = self.state.digests.iter().map(|digest| (Key::Digest(digest.seq), &digest.tries));
        let ends = events
            .chain(digests)
            .filter(|(key, _)| !self.in_flight.contains(key))
            .filter_map(|(_, tries)| tries.first_at.map(|first| first.saturating_add(limit)));
        sends.chain(ends).chain(self.window_ends()).min().map(Millis)
    }

    /// The state to be saved and its version, if the ledger does not have it.
    pub fn unsaved(&self) -> Option<(u64, String)> {
        self.is_unsaved().then(|| (self.version, self.state.to_json()))
    }

    /// True if the ledger does not have the state as it is now.
    pub fn is_unsaved(&self) -> bool {
        self.version > self.saved
    }

    /// True if a digest cannot go out before the state is saved.
    pub fn save_is_urgent(&self) -> bool {
        self.state.digests.iter().any(|digest| digest.since_version > self.saved)
    }

    /// The ledger has this version now.
    pub fn saved(&mut self, version: u64) {
        self.saved = self.saved.max(version);
    }
}

fn later(now: Millis, by: Duration) -> i64 {
    now.0.saturating_add(millis(by))
}
