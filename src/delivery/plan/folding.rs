//! What of a plan is told many at a time: the windows of `rate`, what is let go of for want of room, and the digests
//! they become.

use std::time::Duration;

use super::{Plan, Policy};
use crate::{
    clock::millis,
    config::Rate,
    delivery::{
        Key,
        state::{Frozen, Tries, Window},
    },
    event::{Digest, EventData, JobDead, Tally},
    ledger::Posted,
    letter::Millis,
};

/// `why` of a digest of what went beyond the hook's rate.
const RATE: &str = "rate";
/// `why` of a digest of what the outbox could not keep.
const OVERFLOW: &str = "overflow";

impl Plan {
    /// Single events left in the current window of `rate`, as it stands at `now`; `None` if there is no limit.
    pub(super) fn singles_left(&self, now: Millis) -> Option<u32> {
        let Rate::Limited { events, per } = self.policy.rate else { return None };
        match self.state.window {
            Some(window) if !is_over(window, per, now) => Some(events.saturating_sub(window.singles)),
            _ => Some(events),
        }
    }

    /// Whether an event about a job may be sent by itself; counts it, in a new window if the last one is over.
    pub(super) fn has_single(&mut self, now: Millis) -> bool {
        if self.policy.rate == Rate::Unlimited {
            return true;
        }
        if self.singles_left(now) == Some(0) {
            return false;
        }
        if self.window_is_over(now) {
            self.freeze_rate(now);
            self.state.window = Some(Window { started_at: now.0, singles: 0 });
        }
        if let Some(window) = &mut self.state.window {
            window.singles += 1;
        }
        true
    }

    /// Whether what was folded in the window can go out.
    pub(super) fn window_is_over(&self, now: Millis) -> bool {
        match self.policy.rate {
            Rate::Unlimited => true,
            Rate::Limited { per, .. } => self.state.window.is_none_or(|window| is_over(window, per, now)),
        }
    }

    /// When that will be (ms), if anything waits for it.
    pub(super) fn window_ends(&self) -> Option<i64> {
        let (Rate::Limited { per, .. }, Some(window)) = (self.policy.rate, self.state.window) else { return None };
        let waiting = self.state.folded.events() > 0 && !self.waits(RATE);
        waiting.then(|| window.started_at.saturating_add(millis(per)))
    }

    pub(super) fn freeze_rate(&mut self, now: Millis) {
        if self.state.folded.events() > 0 && !self.waits(RATE) {
            let tally = std::mem::take(&mut self.state.folded);
            self.freeze(&tally, RATE, now);
        }
    }

    pub(super) fn freeze_overflow(&mut self, now: Millis) {
        if self.state.overflow.events() > 0 && !self.waits(OVERFLOW) {
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

    fn hold(&mut self, id: String, at: Millis, data: Digest) {
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
            EventData::JobDead(_)
            | EventData::JobRetried(_)
            | EventData::JobRecovered(_)
            | EventData::JobExhausted(_) => {
                self.state.overflow.fold(&posted.event, brief);
            }
            EventData::Digest(digest) => {
                self.state.digest_seq += 1;
                self.hold(posted.event.id.clone(), posted.event.at, (**digest).clone());
            }
            EventData::Purged(_) | EventData::AlertFiring(_) | EventData::AlertResolved(_) | EventData::HookTest(_) => {
                // Nothing can stand for these. They are still to be sent, and given up if the outbox loses them.
                if !pending {
                    self.choose(posted.id, &posted.event, posted.event.at.0);
                }
                return unread;
            }
        }
        self.state.pending.remove(&posted.id);
        self.version += 1;
        true
    }
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
