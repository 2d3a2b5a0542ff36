//! What the ledger keeps for the watch over the line: see [`crate::alert`].

use async_trait::async_trait;

use super::{Batch, Cursor, Lease, OutboxId, Result, RetryLedger};
use crate::{alert::Fields, event::EventData};

/// The watch of a source as the ledger has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedWatch {
    /// Rises with every save, whoever makes it; 0 where nobody has watched yet.
    pub revision: u64,
    /// Its fields, in any order, without the revision.
    pub fields: Vec<(String, String)>,
}

/// A source whose line is watched.
#[async_trait]
pub trait AlertLedger: RetryLedger {
    /// The ledger's own id, which no other ledger has: a part of every `webhook-id` and of every incident's id. Empty before
    /// this process has attached.
    fn id(&self) -> String;

    /// Everything that was saved of the watch. Needs no lease.
    async fn load_watch(&self) -> Result<SavedWatch>;

    /// Changes these fields over revision `over`, and appends the events to the alerts lane of the outbox, in one step:
    /// what has been told has been told once. Returns the new revision. [`StoreError::Moved`](super::StoreError::Moved)
    /// if somebody saved in between: load again.
    async fn save_watch(&self, lease: &Lease, over: u64, fields: &Fields, events: &[EventData]) -> Result<u64>;

    /// Up to where the watch has counted the deaths lane of the outbox, as it was last saved; `None` if nobody has
    /// watched yet. One cheap read, without a lease.
    async fn counted_until(&self) -> Result<Option<OutboxId>>;

    /// Reads up to `max` entries of the DLQ after `after`, oldest first, without waiting and beside whoever reads them
    /// with [`Ledger::read`](super::Ledger::read), of which there can be only one.
    async fn browse(&self, after: &Cursor, max: usize) -> Result<Batch>;
}
