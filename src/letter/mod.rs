//! What a dead letter says: the facts read out of one DLQ entry, whatever framework wrote it.
//!
//! Pure: no clock, no IO, and nothing in here can fail. Bytes that make no sense become empty fields.

mod error;
mod group;
mod history;
mod visible;

pub(crate) use error::bounded_text;
pub use error::{Account, ErrorInfo};
pub(crate) use group::hex;
pub use group::{Group, normalise};
pub use history::{Attempt, Verdict, conclude, last_life, lives};
pub use visible::{is_harmful, written_out};

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub i64);

/// One record in a DLQ, decoded as far as it can be.
///
/// Texts are shown lossily where their bytes are not UTF-8; `detail` and `payload` keep the bytes exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The record's id in the DLQ (smallage: the stream id `<ms>-<seq>`).
    pub entry_id: String,
    /// The job's id, the same over all its deaths; empty where the record carries none.
    pub job_id: String,
    /// The task's name; empty where the record carries none.
    pub task: String,
    /// The queue's name, without namespace and shard; a foreign stream's whole name.
    pub queue: String,
    /// Why the framework buried the job.
    pub reason: Reason,
    /// The exception that ended the last attempt; both parts may be empty.
    pub error: ErrorInfo,
    /// The framework's own account of the last failure (a traceback, mostly), byte for byte.
    pub detail: Vec<u8>,
    /// Failed attempts in this life of the job, the last one included.
    pub attempts: u32,
    /// How often the last queue entry was handed to a worker.
    pub deliveries: u32,
    /// The recorded attempts over all lives of the job, oldest first, the last failure not included.
    pub history: Vec<Attempt>,
    /// Whether all known attempts of this life failed alike.
    pub verdict: Verdict,
    /// The fingerprint of task, error type and normalised message.
    pub group: Group,
    /// When the job was first put on its queue.
    pub enqueued_at: Option<Millis>,
    /// When the job was buried; the entry id's time where the record does not say.
    pub died_at: Millis,
    /// W3C trace context of the job.
    pub traceparent: Option<String>,
    /// The job's argument bytes as recorded; empty where the record carries none.
    pub payload: Vec<u8>,
    /// The job's dedup key.
    pub dedup: Option<String>,
    /// The queue stream it came from, as recorded.
    pub origin: String,
    /// True for an entry of a foreign (broker-mode) stream, which cannot be put back.
    pub foreign: bool,
}

/// Why a job was buried. `as_str` gives the wire name; an unlisted one keeps its text but is labelled `other`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Every allowed attempt failed.
    MaxAttempts,
    /// It outlived too many owners; it may be what kills them.
    MaxDeliveries,
    /// No worker knows its task.
    UnknownTask,
    /// The record could not be read as a job.
    Malformed,
    /// Anything a newer framework may say, and nothing at all.
    Other(String),
}

impl Reason {
    /// Every name a framework has for burying a job; `shed` is flexiq's, for a job refused by an overfull queue.
    pub const NAMES: [&str; 5] = ["max_attempts", "max_deliveries", "unknown_task", "malformed", "shed"];

    /// Reads a framework's reason, shown lossily; never fails.
    pub fn parse(text: &str) -> Reason {
        match text {
            "max_attempts" => Reason::MaxAttempts,
            "max_deliveries" => Reason::MaxDeliveries,
            "unknown_task" => Reason::UnknownTask,
            "malformed" => Reason::Malformed,
            other => Reason::Other(other.to_owned()),
        }
    }

    /// The name as the framework writes it; empty where the record says nothing.
    pub fn as_str(&self) -> &str {
        match self {
            Reason::MaxAttempts => "max_attempts",
            Reason::MaxDeliveries => "max_deliveries",
            Reason::UnknownTask => "unknown_task",
            Reason::Malformed => "malformed",
            Reason::Other(text) => text,
        }
    }

    /// A metric label from a closed list.
    pub fn label(&self) -> &'static str {
        match self {
            Reason::MaxAttempts => "max_attempts",
            Reason::MaxDeliveries => "max_deliveries",
            Reason::UnknownTask => "unknown_task",
            Reason::Malformed => "malformed",
            Reason::Other(_) => "other",
        }
    }
}
