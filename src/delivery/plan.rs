//! Decides, for one lane, what is read, sent, folded, tried again and given up.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use super::{
    CONCURRENCY, FAILING_AFTER, FRESH_AT_MOST, LONGEST_WAIT, LaneState, Outcome, PAGE, TRIED_AT_MOST, Window, pause,
    state::{Failing, Frozen, Tries},
};
use crate::{
    clock::millis,
    config::Rate,
    event::{Event, EventData, JobDead, Tally},
    ledger::{OutboxId, Posted},
    letter::Millis,
};

/// `why` of a digest of what went beyond the hook's rate.
const RATE: &str = "rate";
/// `why` of a digest of what the outbox could not keep.
const OVERFLOW: &str = "overflow";
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
    /// After this, counted from its first try, an event is given up.
    pub give_up_after: Duration,
    /// The fingerprint of the hook's configuration.
    pub fingerprint: String,
}

/// One thing to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A digest of this lane, by its number.
    Digest(u64),
    /// An event of the outbox.
    Event(OutboxId),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Digest(seq) => write!(f, "digest {seq}"),
            Key::Event(id) => id.fmt(f),
        }
    }
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
        let allowed = if state.failing.is_some() { 1 } else { CONCURRENCY };
        let mut plan = Plan {
            policy,
            state,
            in_flight: HashSet::new(),
            probe: None,
            failures: 0,
            allowed,
            quiet_until: 0,
            // A saved state may be older than a step back of the store's clock.
            looked_at: i64::MAX,
            version: 0,
            saved: 0,
        };
        plan.look_at_fingerprint();
        plan
    }

    /// Goes on from another state: somebody has changed the saved one. Requests on their way stay on their way.
    pub fn replace(&mut self, state: LaneState) {
        self.state = state;
        self.version += 1;
        self.saved = self.version;
        self.look_at_fingerprint();
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

    /// How many events may be read now; 0 to leave them in the outbox.
    pub fn read_up_to(&self, now: Millis) -> usize {
        let pending = self.state.pending.len();
        if self.is_off() {
            return PAGE;
        }
        if self.is_failing() {
            return CONCURRENCY.saturating_sub(pending);
        }
        let fresh = self.state.pending.values().filter(|tries| tries.attempts == 0).count();
        if pending - fresh >= TRIED_AT_MOST {
            return 0;
        }
        let room = FRESH_AT_MOST.saturating_sub(fresh);
        if room > 0 && self.singles_left(now) == Some(0) { PAGE } else { room }
    }

    /// Single events left in the current window of `rate`, as it stands at `now`; `None` if there is no limit.
    fn singles_left(&self, now: Millis) -> Option<u32> {
        let Rate::Limited { events, per } = self.policy.rate else { return None };
        match self.state.window {
            Some(window) if !is_over(window, per, now) => Some(events.saturating_sub(window.singles)),
            _ => Some(events),
        }
    }

    /// Takes an event read from the outbox, in order. `brief` makes of a death what a digest may show of it.
    pub fn take(&mut self, posted: &Posted, wanted: bool, now: Millis, brief: impl Fn(&JobDead) -> JobDead) -> Taken {
        self.passed(posted.id);
        if !wanted {
            return Taken::Skipped;
        }
        if self.is_off() {
            return Taken::Rejected;
        }
        if let EventData::JobDead(dead) = &posted.event.data
            && let Rate::Limited { per, .. } = self.policy.rate
        {
            if self.singles_left(now) == Some(0) {
                self.state.folded.add(posted.event.at, &dead.group, || brief(dead));
                return Taken::Folded;
            }
            if self.state.window.is_none_or(|window| is_over(window, per, now)) {
                self.freeze_rate(now);
                self.state.window = Some(Window { started_at: now.0, singles: 0 });
            }
            if let Some(window) = &mut self.state.window {
                window.singles += 1;
            }
        }
        self.state.pending.insert(posted.id, Tries { next_at: now.0, ..Tries::default() });
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
        let window_over = match self.policy.rate {
            Rate::Unlimited => true,
            Rate::Limited { per, .. } => self.state.window.is_none_or(|window| is_over(window, per, now)),
        };
        if window_over {
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
        if let Some(failing) = &mut self.state.failing {
            failing.next_at = failing.next_at.min(latest);
            failing.since = failing.since.min(now.0);
        }
        let digests = self.state.digests.iter_mut().map(|digest| &mut digest.tries);
        for tries in self.state.pending.values_mut().chain(digests) {
            tries.next_at = tries.next_at.min(latest);
            tries.first_at = tries.first_at.map(|first| first.min(now.0));
        }
    }

    fn freeze_rate(&mut self, now: Millis) {
        if self.state.folded.count() > 0 && !self.waits(RATE) {
            let tally = std::mem::take(&mut self.state.folded);
            self.freeze(&tally, RATE, now);
        }
    }

    fn freeze_overflow(&mut self, now: Millis) {
        if self.state.overflow.count() > 0 && !self.waits(OVERFLOW) {
            let tally = std::mem::take(&mut self.state.overflow);
            self.freeze(&tally, OVERFLOW, now);
        }
    }

    /// Whether a digest of this kind has not gone out yet; until it has, the next one keeps growing instead.
    fn waits(&self, why: &str) -> bool {
        self.state.digests.iter().any(|digest| digest.data.why == why)
    }

    fn freeze(&mut self, tally: &Tally, why: &str, now: Millis) {
        self.state.digest_seq += 1;
        let seq = self.state.digest_seq;
        let Policy { source, hook, .. } = &self.policy;
        // The cursor makes the id unique even where a flushed store has made the numbers start anew.
        let id = event_id(&format!("digest_{source}_{hook}_{}_{seq}", self.state.cursor));
        self.hold(id, now, tally.digest(source, why));
    }

    fn hold(&mut self, id: String, at: Millis, data: crate::event::Digest) {
        self.version += 1;
        self.state.digests.push(Frozen {
            seq: self.state.digest_seq,
            id,
            at: at.0,
            data,
            tries: Tries { next_at: at.0, ..Tries::default() },
            since_version: self.version,
        });
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
            events += if gone { digest.data.count } else { 0 };
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
        self.tries(key)?.first_at.get_or_insert(now.0);
        self.version += 1;
        Some(Due { key, digest: self.digest(key) })
    }

    /// Everything that could be sent if its time had come: time (ms), rank (lower goes first) and key.
    fn ready(&self) -> impl Iterator<Item = (i64, u32, Key)> {
        let waiting = self.in_flight.len();
        let failing = self.state.failing;
        let open = !self.is_off() && if failing.is_some() { waiting == 0 } else { waiting < self.allowed };
        // What keeps failing gets half of the slots at most, so that it does not hold up what is new.
        let tried_in_flight = self.in_flight.iter().filter(|key| self.attempts(**key) > 0).count();
        let retries = failing.is_some() || tried_in_flight < self.allowed.div_ceil(2);
        let digests = self
            .state
            .digests
            .iter()
            .filter(|digest| digest.since_version <= self.saved)
            .map(|digest| (Key::Digest(digest.seq), digest.tries));
        let events = self.state.pending.iter().map(|(id, tries)| (Key::Event(*id), *tries));
        digests
            .chain(events)
            .filter(move |(key, tries)| open && !self.in_flight.contains(key) && (retries || tries.attempts == 0))
            .map(move |(key, tries)| match failing {
                // The one tried least goes first: an event that is itself the trouble must not be every probe.
                Some(failing) => (failing.next_at.max(self.quiet_until), tries.attempts, key),
                None => (tries.next_at.max(self.quiet_until), u32::from(tries.attempts > 0), key),
            })
    }

    fn attempts(&self, key: Key) -> u32 {
        match key {
            Key::Event(id) => self.state.pending.get(&id).map_or(0, |tries| tries.attempts),
            Key::Digest(seq) => {
                self.state.digests.iter().find(|digest| digest.seq == seq).map_or(0, |digest| digest.tries.attempts)
            }
        }
    }

    fn tries(&mut self, key: Key) -> Option<&mut Tries> {
        match key {
            Key::Event(id) => self.state.pending.get_mut(&id),
            Key::Digest(seq) => {
                self.state.digests.iter_mut().find(|digest| digest.seq == seq).map(|digest| &mut digest.tries)
            }
        }
    }

    fn digest(&self, key: Key) -> Option<Event> {
        let Key::Digest(seq) = key else { return None };
        let frozen = self.state.digests.iter().find(|digest| digest.seq == seq)?;
        let data = EventData::Digest(Box::new(frozen.data.clone()));
        Some(Event { id: frozen.id.clone(), at: Millis(frozen.at), data })
    }

    fn remove(&mut self, key: Key) {
        match key {
            Key::Event(id) => drop(self.state.pending.remove(&id)),
            Key::Digest(seq) => self.state.digests.retain(|digest| digest.seq != seq),
        }
    }

    /// What a request came to. `chance` (0 to 1) jitters the pause before another one.
    pub fn settled(&mut self, key: Key, outcome: Outcome, now: Millis, chance: f64) -> Vec<Note> {
        self.in_flight.remove(&key);
        let was_probe = self.probe.take_if(|probe| *probe == key).is_some();
        self.version += 1;
        match outcome {
            Outcome::Delivered | Outcome::Rejected => {
                self.remove(key);
                self.answers(now).into_iter().collect()
            }
            Outcome::Retry { after } => self.failed(key, was_probe, after, now, chance).into_iter().collect(),
            Outcome::SwitchedOff if self.is_off() => Vec::new(),
            Outcome::SwitchedOff => {
                self.remove(key);
                vec![Note::SwitchedOff(self.switch_off())]
            }
        }
    }

    /// The endpoint has answered as it should: everything that waits is due.
    fn answers(&mut self, now: Millis) -> Option<Note> {
        self.failures = 0;
        self.allowed = CONCURRENCY.min(self.allowed + 1);
        let failing = self.state.failing.take()?;
        self.probe = None;
        self.quiet_until = 0;
        let digests = self.state.digests.iter_mut().map(|digest| &mut digest.tries);
        for tries in self.state.pending.values_mut().chain(digests) {
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
        if let Some(tries) = self.tries(key) {
            tries.attempts = tries.attempts.saturating_add(1);
            tries.next_at = later(now, pause(tries.attempts, chance).max(asked));
        }
        if let Some(failing) = &mut self.state.failing {
            failing.failures += 1;
            // What was still on its way when the endpoint began to fail says nothing new.
            if was_probe {
                failing.probes = failing.probes.saturating_add(1);
                failing.next_at = later(now, pause(failing.probes.saturating_add(1), chance).max(asked));
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

    /// Drops everything else; returns how many events that was.
    fn switch_off(&mut self) -> u64 {
        let dropped = self.state.unsettled();
        self.state.off = Some(self.policy.fingerprint.clone());
        self.state.pending = BTreeMap::new();
        self.state.digests.clear();
        self.state.folded = Tally::default();
        self.state.overflow = Tally::default();
        self.state.window = None;
        self.state.failing = None;
        self.failures = 0;
        dropped
    }

    /// The try was not made after all, because the store did not give the event.
    pub fn postponed(&mut self, key: Key, now: Millis) {
        self.in_flight.remove(&key);
        self.probe.take_if(|probe| *probe == key);
        self.version += 1;
        let again = now.0.saturating_add(POSTPONED);
        if let Some(failing) = &mut self.state.failing {
            failing.next_at = failing.next_at.max(again);
        }
        if let Some(tries) = self.tries(key) {
            tries.next_at = again;
        }
    }

    /// The outbox no longer has the event.
    pub fn gone(&mut self, key: Key) -> Option<Note> {
        self.in_flight.remove(&key);
        self.probe.take_if(|probe| *probe == key);
        self.version += 1;
        let known = self.tries(key).is_some();
        self.remove(key);
        known.then_some(Note::GivenUp(1))
    }

    /// Lets go of an event the outbox will soon have no room for: it is counted in a digest instead, or, being a
    /// digest itself, kept here. True if that changed anything. To be called in the order of the outbox.
    pub fn relieve(&mut self, posted: &Posted, wanted: bool, brief: impl Fn(&JobDead) -> JobDead) -> bool {
        let unread = posted.id > self.state.cursor;
        let pending = self.state.pending.contains_key(&posted.id);
        self.passed(posted.id);
        if !(pending || unread && wanted && !self.is_off()) || self.in_flight.contains(&Key::Event(posted.id)) {
            return unread;
        }
        match &posted.event.data {
            EventData::JobDead(dead) => self.state.overflow.add(posted.event.at, &dead.group, || brief(dead)),
            EventData::Digest(digest) => {
                self.state.digest_seq += 1;
                self.hold(posted.event.id.clone(), posted.event.at, (**digest).clone());
            }
            EventData::HookTest(_) => {
                // Nobody waits for a test that is this old; it goes the way of what is rejected while off.
            }
        }
        self.state.pending.remove(&posted.id);
        self.version += 1;
        true
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
        let window = match (self.policy.rate, self.state.window) {
            (Rate::Limited { per, .. }, Some(window)) if self.state.folded.count() > 0 && !self.waits(RATE) => {
                Some(window.started_at.saturating_add(millis(per)))
            }
            _ => None,
        };
        sends.chain(ends).chain(window).min().map(Millis)
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

/// A store whose clock was set back must not keep a window open for longer than it is.
fn is_over(window: Window, per: Duration, now: Millis) -> bool {
    let age = now.0.saturating_sub(window.started_at);
    age >= millis(per) || age < -millis(per)
}

/// An id for `webhook-id`: no `.`, nothing a header cannot hold.
fn event_id(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}
