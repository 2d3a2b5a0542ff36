//! The plan of one delivery lane: which event is sent when, what is folded into a digest, when to stop trying.
//!
//! Pure: time and chance are arguments, nothing is sent or stored here. The loop asks, does, and tells what became of
//! it; the state is saved as one consistent snapshot.

mod backoff;
mod plan;
mod state;
#[cfg(test)]
mod tests;

pub use backoff::pause;
pub use plan::{Due, Note, Plan, Policy, Taken};
pub use state::{Key, LaneState, Trouble};

use std::time::Duration;

use crate::{
    clock::millis,
    event::{Event, EventType},
    letter::Millis,
};

/// Requests of one lane on their way at the same time, at most.
pub const CONCURRENCY: usize = 16;
/// Events chosen but not tried yet, at most; enough to keep every request slot busy while a page is read.
const FRESH_AT_MOST: usize = 4 * CONCURRENCY;
/// Events that failed and wait for another try while others go through, at most; beyond that nothing is read.
const TRIED_AT_MOST: usize = 1_000;
/// Failures in a row, with no success between, after which the endpoint counts as failing.
const FAILING_AFTER: u32 = 3;
/// No receiver can hold a lane still for longer than this at a time, whatever its `Retry-After` says.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Events in one read of the outbox, at most: with tracebacks a page may take some megabytes.
pub const PAGE: usize = 250;

/// A failing endpoint that takes what another lane sends is probed out of turn this often, at most.
const HINTED_EVERY: Duration = Duration::from_secs(10);
/// Nobody waits for a test that is older than this.
const TEST_AGE: Duration = Duration::from_secs(600);

/// True for an event that is not worth sending any more at `now`: a test that nobody waits for.
pub fn is_outdated(event: &Event, now: Millis) -> bool {
    let age = now.0.saturating_sub(event.at.0);
    event.kind() == EventType::HookTest && age > millis(TEST_AGE)
}

/// What a request came to, and what is worth remembering of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it means.
    pub outcome: Outcome,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What went wrong, fit for a log.
    pub error: Option<String>,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Answer {
        Answer { outcome, status: None, error: None }
    }
}

/// What a request came to, as far as the plan is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Delivered,
    /// Not now; try again, and not before `after` if the receiver said so.
    Retry {
        /// What `Retry-After` asked for.
        after: Option<Duration>,
    },
    /// The receiver does not want it, and never will.
    Rejected,
    /// The receiver is gone for good: nothing more until the hook's configuration changes.
    SwitchedOff,
}
