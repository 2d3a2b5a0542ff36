//! What people do with dead letters: looking through a DLQ of any size, and changing it by hand.
//!
//! None of it needs the lease: it works with or without a running sidecar. Everything that changes something does so in
//! bounded atomic steps, and writes the audit log in the same step.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Lease, Place, Refusal, Result, RetryLedger};
use crate::{
    event::{EventData, JobDead},
    letter::{DeadLetter, Millis},
    rule::Globs,
};
use utoipa::ToSchema;

/// Who does something, and why. Goes into the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// `anna@host` on a command line, `token:deploy` over HTTP, `retention` for the standing policy.
    pub who: String,
    /// The note given with it; empty without one.
    #[serde(default)]
    pub note: String,
    /// The operation that it is a part of, whose counts rise in the same step; empty for a single act. Of an operation
    /// that does not run any more nothing is done ([`StoreError::Moved`](super::StoreError::Moved)).
    #[serde(default)]
    pub operation: String,
}

/// What can be told of an entry without decoding it: a sieve that lets through everything that a filter may pass, and
/// spares the wire most of the rest.
#[derive(Clone, Debug, Default)]
pub struct Sieve {
    /// Globs on the task.
    pub task: Option<Globs>,
    /// Globs on the queue.
    pub queue: Option<Globs>,
    /// Reasons.
    pub reason: Option<Vec<String>>,
    /// The job's id.
    pub job_id: Option<String>,
}

/// One piece of a look through the DLQ.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Look on from here: before this entry (from the newest on without it), or after it (from the oldest on).
    pub from: Option<String>,
    /// Oldest first.
    pub oldest_first: bool,
    /// No entry that was added before this moment, as far as ids tell.
    pub since: Option<Millis>,
    /// No entry that was added after this moment, as far as ids tell.
    pub until: Option<Millis>,
    /// What is let through.
    pub sieve: Sieve,
    /// Leave out payloads: letters come with an empty one.
    pub without_payload: bool,
    /// Let through this many at most.
    pub max: usize,
}

/// What a piece came to.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// What the sieve let through, in the order of the scan.
    pub letters: Vec<DeadLetter>,
    /// Entries looked at.
    pub looked_at: u64,
    /// The last entry looked at: look on from here; none at the end.
    pub next: Option<String>,
}

/// A retry by hand: no age, no cap, whatever is held or closed, and a fresh allowance for the job.
#[derive(Clone, Debug)]
pub struct HandRetry {
    /// The letter's event data, `retries` being 0; goes into the flight, and into `job.retried`.
    pub dead: JobDead,
    /// The queue stream that the job goes to.
    pub stream: String,
    /// The job's dedup key.
    pub dedup: Option<String>,
    /// How long a verdict is waited for.
    pub confirm_within: Duration,
}

/// What became of a retry by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raised {
    /// The job is back on its queue, as this entry there.
    Sent(String),
    /// It is not, and this is why. Of all refusals only those can come that a person cannot overrule: the entry is gone,
    /// the queue does not exist, the record is no job of this framework, its dedup key is another's, it is in flight, or
    /// a newer entry of the same job is in the DLQ.
    Refused(Refusal),
}

/// Under which name removals stand in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Chosen entries: one line each.
    Removed,
    /// By age: one line for each piece.
    Purged,
}

impl Removal {
    /// Its name in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Removal::Removed => "removed",
            Removal::Purged => "purged",
        }
    }
}

/// What retention removes in one step.
#[derive(Clone, Debug)]
pub struct Retain {
    /// The entries, oldest first, each with its place in the due index if the rules give it one: an entry that waits
    /// there stays, and so does what has not been read yet or is of a job in flight.
    pub entries: Vec<(String, Option<Place>)>,
    /// The generation of the rules that the places were found by.
    pub generation: u64,
}

/// What a bulk operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Retries.
    Retry,
    /// Removes.
    Delete,
    /// Removes by age.
    Purge,
}

impl Act {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Act::Retry => "retry",
            Act::Delete => "delete",
            Act::Purge => "purge",
        }
    }
}

/// A bulk operation that the leader works off: asked for over HTTP, looked at, perhaps cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id: unique, and in the order of asking.
    pub id: String,
    /// What it does.
    pub act: Act,
    /// Which entries, as [`crate::triage::FilterSpec`] in JSON.
    pub filter: serde_json::Value,
    /// Who asked, and why.
    pub by: By,
    /// Count only.
    pub dry_run: bool,
    /// At most so many entries a second; none for as fast as goes.
    pub per_second: Option<u32>,
    /// When it was asked for. Only entries added before are meant, and ages count from here.
    pub asked_at: Millis,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// The leader has not come to its end.
    #[default]
    Running,
    /// Done.
    Done,
    /// Cancelled by a person.
    Cancelled,
    /// It cannot be done.
    Failed,
}

impl OperationState {
    /// All of them.
    pub const ALL: [OperationState; 4] =
        [OperationState::Running, OperationState::Done, OperationState::Cancelled, OperationState::Failed];

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationState::Running => "running",
            OperationState::Done => "done",
            OperationState::Cancelled => "cancelled",
            OperationState::Failed => "failed",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<OperationState> {
        OperationState::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// How far an operation has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationProgress {
    /// Where it stands.
    pub state: OperationState,
    /// Rises with every save; not with the counts that rise in the steps themselves.
    pub revision: u64,
    /// Look on from here.
    pub from: Option<String>,
    /// Entries looked at.
    pub looked_at: u64,
    /// Entries that the filter passed.
    pub matched: u64,
    /// Entries retried or removed. Rises in the step that does it.
    pub done: u64,
    /// Refusals by name, `entry_gone` among them. Rise in the same way.
    pub refused: BTreeMap<String, u64>,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// Why it failed, in one sentence.
    pub error: Option<String>,
}

/// A source whose dead letters people can look through and change.
#[async_trait]
pub trait TriageLedger: RetryLedger {
    /// Looks at one bounded piece of the DLQ: the store does nothing else for at most some milliseconds, and no more than
    /// a few megabytes come back, unless a single entry is larger. May let nothing through and still have a `next`.
    async fn scan(&self, scan: &Scan) -> Result<Scanned>;

    /// Retries by hand, each atomically: as [`RetryLedger::retry`], without what only concerns rules. The loop follows
    /// such a flight as any other, unless thousands are in flight already; then nobody says what becomes of it. In order.
    /// An error leaves open what was done, so hand over no more than you would ask for again.
    async fn retry_by_hand(&self, by: &By, retries: Vec<HandRetry>) -> Result<Vec<Raised>>;

    /// Removes entries, each if it is still there; in order, whether it was. With a `removed` audit line for each, or one
    /// `purged` line for each piece. An error leaves open what was done; removing them again is no harm.
    ///
    /// A store that is out of memory removes them all the same, for that is what helps. Then the lines follow as soon as
    /// there is room, and an operation's counts do not rise.
    async fn remove(&self, by: &By, how: Removal, entries: &[String]) -> Result<Vec<bool>>;

    /// Removes what retention may remove of these; returns how many entries went. Needs the lease.
    async fn retain(&self, lease: &Lease, by: &By, retain: Retain) -> Result<u64>;

    /// Appends an event about what was done (`dlq.purged`) to the outbox; with a lease, only if that is still held.
    async fn announce(&self, lease: Option<&Lease>, event: &EventData) -> Result<()>;

    /// Adds a line of the audit log that stands for no single entry, such as the beginning of an operation.
    async fn note(&self, by: &By, what: &str, detail: &str) -> Result<()>;

    /// Remembers a new operation, and notes it in the audit log. [`StoreError::Moved`](super::StoreError::Moved) if
    /// there is one of this id.
    async fn begin(&self, operation: &Operation) -> Result<()>;

    /// One operation.
    async fn operation(&self, id: &str) -> Result<Option<(Operation, OperationProgress)>>;

    /// The ids of the newest operations, the newest first and at most `max`. One cheap read.
    async fn operation_ids(&self, max: usize) -> Result<Vec<String>>;

    /// Operations, the newest first, those of the last days and at most `max`.
    async fn operations(&self, max: usize) -> Result<Vec<(Operation, OperationProgress)>>;

    /// Saves how far an operation has come, but for `done` and `refused`, over the revision it was read at; returns the
    /// new one. [`StoreError::Moved`](super::StoreError::Moved) if somebody changed it: read again. With a lease, only if
    /// that is still held; without one it is a person who cancels.
    async fn progress(&self, lease: Option<&Lease>, id: &str, progress: &OperationProgress) -> Result<u64>;
}
