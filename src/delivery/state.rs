//! What a lane remembers, as the ledger keeps it: JSON, small however much was folded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Answer, Outcome};
use crate::{
    event::{Digest, Tally},
    ledger::OutboxId,
    letter::Millis,
};

/// Characters of an error that are remembered at most.
const LONGEST_ERROR: usize = 200;

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

/// A consistent picture of one lane. Whoever takes it up reads on after `cursor` and tries what is `pending`; what
/// was done since it was saved is done again, under the same ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneState {
    /// Everything up to here has been read.
    #[serde(with = "as_text")]
    pub(super) cursor: OutboxId,
    /// Events chosen to be sent singly and not settled.
    #[serde(with = "as_rows")]
    pub(super) pending: BTreeMap<OutboxId, Tries>,
    /// The window of `rate`, once an event has begun one.
    pub(super) window: Option<Window>,
    /// Events beyond `rate`, not sent yet.
    pub(super) folded: Tally,
    /// Events the outbox had no room to keep for this hook, not sent yet.
    pub(super) overflow: Tally,
    /// Digests waiting to be sent.
    pub(super) digests: Vec<Frozen>,
    /// Digests ever made.
    pub(super) digest_seq: u64,
    /// The fingerprint of the configuration that was switched off.
    pub(super) off: Option<String>,
    /// Set while the endpoint counts as failing.
    pub(super) failing: Option<Failing>,
    /// The last request that was not taken; forgotten once the same thing is delivered.
    pub(super) last_trouble: Option<Trouble>,
    /// Since when events have been rejected and none delivered, in ms.
    pub(super) rejecting_since: Option<i64>,
    /// When something was last delivered, in ms.
    pub(super) delivered_at: Option<i64>,
}

/// A request that was not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trouble {
    /// When, in ms by the store's clock.
    pub at: i64,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What went wrong, fit for a log, and short.
    pub error: String,
    /// The event of the outbox; `None` if it was a digest of the lane's own.
    #[serde(with = "as_optional_text")]
    pub event: Option<OutboxId>,
    /// It is not tried again.
    pub rejected: bool,
}

/// What an event is told of, where the order of its events matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Incident {
    /// The same for all events of one incident.
    pub(super) key: u64,
    /// It fires; false once it is over.
    pub(super) fires: bool,
}

/// The tries of one event or digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tries {
    /// How many have failed.
    pub(super) attempts: u32,
    /// When the first began, in ms; `None` before it.
    pub(super) first_at: Option<i64>,
    /// Not again before this, in ms.
    pub(super) next_at: i64,
    /// Not before what is told of the same incident and came earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incident: Option<Incident>,
}

/// A window of `rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    /// When its first event came, in ms.
    pub(super) started_at: i64,
    /// Events sent singly in it.
    pub(super) singles: u32,
}

/// A digest that no longer changes: its id must survive every restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Frozen {
    pub(super) seq: u64,
    /// The `webhook-id`.
    pub(super) id: String,
    /// When it was frozen, in ms.
    pub(super) at: i64,
    pub(super) data: Digest,
    pub(super) tries: Tries,
    /// The version of the state that first held it; it may be sent once that is saved.
    #[serde(skip)]
    pub(super) since_version: u64,
}

/// An endpoint that does not answer well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failing {
    /// Since when, in ms.
    pub(super) since: i64,
    /// Requests failed in a row, those included that made it count as failing.
    pub(super) failures: u64,
    /// Probes failed since.
    pub(super) probes: u32,
    /// When the next probe is due, in ms.
    pub(super) next_at: i64,
}

impl LaneState {
    /// A lane that starts after `cursor` and has no past.
    pub fn new(cursor: OutboxId) -> LaneState {
        LaneState { cursor, ..LaneState::default() }
    }

    /// Reads what [`LaneState::to_json`] wrote, now or in an older version.
    pub fn from_json(json: &str) -> Result<LaneState, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// As the ledger keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state is made of texts and numbers")
    }

    /// Everything up to here has been read.
    pub fn cursor(&self) -> OutboxId {
        self.cursor
    }

    /// The oldest place this lane still needs; everything before it may be trimmed, if this state is the saved one.
    pub fn position(&self) -> OutboxId {
        let next = OutboxId { seq: self.cursor.seq.saturating_add(1), ..self.cursor };
        self.pending.keys().next().map_or(next, |oldest| next.min(*oldest))
    }

    /// Reads everything after `to` once more (`sexton hooks resend`). Never skips anything.
    pub fn rewind(&mut self, to: OutboxId) {
        self.cursor = self.cursor.min(to);
        let cursor = self.cursor;
        self.pending.retain(|id, _| *id <= cursor);
    }

    /// Events, those in digests included, that are read but not settled.
    pub fn unsettled(&self) -> u64 {
        let digests: u64 = self.digests.iter().map(|digest| digest.data.counts.events()).sum();
        self.pending.len() as u64 + self.folded.events() + self.overflow.events() + digests
    }

    /// How often this event has been tried, if it is pending.
    pub fn attempts_of(&self, id: OutboxId) -> Option<u32> {
        self.pending.get(&id).map(|tries| tries.attempts)
    }

    /// Events the outbox had no room to keep for this hook, waiting for a digest of their own.
    pub fn overflowed(&self) -> u64 {
        self.overflow.events()
    }

    /// True if a 410 has switched the hook off under this configuration fingerprint.
    pub fn is_off(&self, fingerprint: &str) -> bool {
        self.off.as_deref() == Some(fingerprint)
    }

    /// How often the thing has been tried; 0 also if it is no longer there.
    pub(super) fn attempts(&self, key: Key) -> u32 {
        match key {
            Key::Event(id) => self.pending.get(&id).map_or(0, |tries| tries.attempts),
            Key::Digest(seq) => self.digest(seq).map_or(0, |digest| digest.tries.attempts),
        }
    }

    pub(super) fn digest(&self, seq: u64) -> Option<&Frozen> {
        self.digests.iter().find(|digest| digest.seq == seq)
    }

    pub(super) fn tries(&mut self, key: Key) -> Option<&mut Tries> {
        match key {
            Key::Event(id) => self.pending.get_mut(&id),
            Key::Digest(seq) => {
                self.digests.iter_mut().find(|digest| digest.seq == seq).map(|digest| &mut digest.tries)
            }
        }
    }

    /// The tries of everything that is to be sent.
    pub(super) fn all_tries(&mut self) -> impl Iterator<Item = &mut Tries> {
        self.pending.values_mut().chain(self.digests.iter_mut().map(|digest| &mut digest.tries))
    }

    pub(super) fn remove(&mut self, key: Key) {
        match key {
            Key::Event(id) => drop(self.pending.remove(&id)),
            Key::Digest(seq) => self.digests.retain(|digest| digest.seq != seq),
        }
    }

    /// Keeps of an answer what people want to know later.
    pub(super) fn remember(&mut self, key: Key, answer: Answer, now: Millis) {
        let event = match key {
            Key::Event(id) => Some(id),
            Key::Digest(_) => None,
        };
        if answer.outcome == Outcome::Delivered {
            self.delivered_at = Some(now.0);
            self.rejecting_since = None;
            // Whoever asks for this event must not find the trouble it had before.
            self.last_trouble.take_if(|trouble| trouble.event == event);
            return;
        }
        let rejected = matches!(answer.outcome, Outcome::Rejected | Outcome::SwitchedOff);
        if rejected {
            self.rejecting_since.get_or_insert(now.0);
        }
        let error = answer.error.unwrap_or_default().chars().take(LONGEST_ERROR).collect();
        self.last_trouble = Some(Trouble { at: now.0, status: answer.status, error, event, rejected });
    }

    /// The last request that was not taken, unless the same thing was delivered since.
    pub fn last_trouble(&self) -> Option<&Trouble> {
        self.last_trouble.as_ref()
    }

    /// Since when events have been rejected and none delivered, in ms by the store's clock.
    pub fn rejecting_since(&self) -> Option<i64> {
        self.rejecting_since
    }

    /// When something was last delivered, in ms by the store's clock.
    pub fn delivered_at(&self) -> Option<i64> {
        self.delivered_at
    }

    /// Since when the endpoint has been failing, in ms by the store's clock.
    pub fn failing_since(&self) -> Option<i64> {
        self.failing.map(|failing| failing.since)
    }
}

mod as_text {
    use super::OutboxId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &OutboxId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OutboxId, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

mod as_optional_text {
    use super::OutboxId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &Option<OutboxId>, to: S) -> Result<S::Ok, S::Error> {
        id.map(|id| id.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<OutboxId>, D::Error> {
        Option::<String>::deserialize(from)?.map(|id| id.parse().map_err(D::Error::custom)).transpose()
    }
}

/// One short row an event, since there may be a thousand: id, attempts, first try, next try, and of an alert, which older
/// versions did not keep, its incident.
mod as_rows {
    use std::collections::BTreeMap;

    use super::{Incident, OutboxId, Tries};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    struct Row(
        String,
        u32,
        Option<i64>,
        i64,
        #[serde(default, skip_serializing_if = "Option::is_none")] Option<Incident>,
    );

    pub(super) fn serialize<S: Serializer>(pending: &BTreeMap<OutboxId, Tries>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            pending
                .iter()
                .map(|(id, tries)| Row(id.to_string(), tries.attempts, tries.first_at, tries.next_at, tries.incident)),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<OutboxId, Tries>, D::Error> {
        Vec::<Row>::deserialize(from)?
            .into_iter()
            .map(|Row(id, attempts, first_at, next_at, incident)| {
                Ok((id.parse().map_err(D::Error::custom)?, Tries { attempts, first_at, next_at, incident }))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> OutboxId {
        OutboxId { ms, seq: 0 }
    }

    fn state() -> LaneState {
        let mut state = LaneState::new(OutboxId { ms: 9, seq: 3 });
        let incident = Some(Incident { key: u64::MAX, fires: true });
        state.pending.insert(id(4), Tries { attempts: 2, first_at: Some(40), next_at: 90, incident });
        state.pending.insert(id(7), Tries::default());
        state.failing = Some(Failing { since: 1, failures: 3, probes: 0, next_at: 5 });
        state.off = Some("abc".to_owned());
        state.remember(Key::Event(id(4)), Answer { status: Some(404), ..Outcome::Rejected.into() }, Millis(70));
        state
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_an_empty_document_is_a_new_lane() {
        assert_eq!(LaneState::from_json(&state().to_json()).unwrap(), state());
        assert_eq!(LaneState::from_json("{}").unwrap(), LaneState::default());
        assert!(LaneState::from_json(r#"{"cursor":"x"}"#).is_err());
    }

    #[test]
    fn rows_are_read_and_written_as_before_there_were_incidents() {
        let rows = r#""pending":[["4-0",2,40,90],["7-0",0,null,0]]"#;
        let old = LaneState::from_json(&format!("{{{rows}}}")).unwrap();
        assert_eq!(old.pending[&id(4)], Tries { attempts: 2, first_at: Some(40), next_at: 90, incident: None });
        assert!(old.to_json().contains(rows), "{}", old.to_json());
    }

    #[test]
    fn the_position_is_the_oldest_pending_event_or_the_place_after_the_cursor() {
        let mut state = state();
        assert_eq!(state.position(), id(4));
        state.pending.clear();
        assert_eq!(state.position(), OutboxId { ms: 9, seq: 4 });
    }

    #[test]
    fn rewinding_forgets_what_will_be_read_again_and_never_skips() {
        let mut state = state();
        state.rewind(id(5));
        assert_eq!((state.cursor, state.pending.len()), (id(5), 1));
        state.rewind(id(100));
        assert_eq!(state.cursor, id(5));
    }
}
