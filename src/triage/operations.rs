//! Bulk operations that the leader works off: asked for, looked at, cancelled.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Error, FilterSpec, Result};
use crate::{
    event::{rfc3339, text},
    ledger::{self, Act, By, Operation, OperationProgress, OperationState, StoreError, TriageLedger},
};

/// How often a change is tried again because the leader saved in between.
const EDITS: u32 = 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is done.
    pub act: Act,
    /// To which entries. Compile it first: what is wrong with it is the asker's to hear.
    pub filter: FilterSpec,
    /// By whom, and why.
    pub by: By,
    /// Count only.
    pub dry_run: bool,
    /// At most so many entries a second.
    pub per_second: Option<u32>,
}

/// An operation as `-o json` prints it and HTTP answers. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OperationShown {
    /// Its id.
    pub id: String,
    /// The source it works on.
    pub source: String,
    /// `retry`, `delete` or `purge`.
    pub act: Act,
    /// Which entries.
    #[schema(value_type = FilterSpec)]
    pub filter: serde_json::Value,
    /// Who asked.
    pub by: String,
    /// Why.
    pub note: Option<String>,
    /// It only counts.
    pub dry_run: bool,
    /// At most so many entries a second.
    pub per_second: Option<u32>,
    /// When it was asked for.
    pub asked_at: Option<String>,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: OperationState,
    /// Entries looked at.
    pub looked_at: u64,
    /// Entries that the filter passed and that were come to; after a change of leader perhaps fewer than were done.
    pub matched: u64,
    /// Entries retried or removed; none by a dry run, whose `matched` tells how many it would be.
    pub done: u64,
    /// Refusals by name.
    pub refused: BTreeMap<String, u64>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl OperationShown {
    /// Of this source.
    pub fn of(source: &str, operation: Operation, progress: OperationProgress) -> OperationShown {
        OperationShown {
            id: operation.id,
            source: source.to_owned(),
            act: operation.act,
            filter: operation.filter,
            by: operation.by.who,
            note: text(&operation.by.note),
            dry_run: operation.dry_run,
            per_second: operation.per_second,
            asked_at: rfc3339(operation.asked_at),
            state: progress.state,
            looked_at: progress.looked_at,
            matched: progress.matched,
            done: progress.done,
            refused: progress.refused,
            ended_at: progress.ended_at.and_then(rfc3339),
            error: progress.error,
        }
    }
}

/// Asks for an operation on a source. Whoever leads it then works it off; `salt` makes its id unique.
pub async fn begin(ledger: &dyn TriageLedger, request: Request, salt: u32) -> Result<OperationShown> {
    // The answer brings the store's time.
    ledger.overview().await.map_err(Error::of(ledger))?;
    let asked_at = ledger.clock().now();
    let operation = Operation {
        id: format!("{:012x}{salt:08x}", asked_at.0.max(0)),
        act: request.act,
        filter: serde_json::to_value(&request.filter).unwrap_or_default(),
        by: By { operation: String::new(), ..request.by },
        dry_run: request.dry_run,
        per_second: request.per_second,
        asked_at,
    };
    ledger.begin(&operation).await.map_err(Error::of(ledger))?;
    Ok(OperationShown::of(ledger.name(), operation, OperationProgress::default()))
}

/// One operation; none if the source knows none of this id.
pub async fn operation(ledger: &dyn TriageLedger, id: &str) -> Result<Option<OperationShown>> {
    let found = ledger.operation(id).await.map_err(Error::of(ledger))?;
    Ok(found.map(|(operation, progress)| OperationShown::of(ledger.name(), operation, progress)))
}

/// The operations of some sources, the newest first, `max` at most.
pub async fn operations(sources: &[&dyn TriageLedger], max: usize) -> Result<Vec<OperationShown>> {
    let mut all = Vec::new();
    for &ledger in sources {
        let found = ledger.operations(max).await.map_err(Error::of(ledger))?;
        all.extend(
            found.into_iter().map(|(operation, progress)| OperationShown::of(ledger.name(), operation, progress)),
        );
    }
    all.sort_by(|a, b| b.id.cmp(&a.id));
    all.truncate(max);
    Ok(all)
}

/// Cancels an operation, which stops after the piece under way; one that has ended stays as it ended. None if the source
/// knows none of this id.
pub async fn cancel(ledger: &dyn TriageLedger, id: &str, by: &By) -> Result<Option<OperationShown>> {
    for _ in 0..EDITS {
        let Some((operation, mut progress)) = ledger.operation(id).await.map_err(Error::of(ledger))? else {
            return Ok(None);
        };
        if progress.state != OperationState::Running {
            return Ok(Some(OperationShown::of(ledger.name(), operation, progress)));
        }
        progress.state = OperationState::Cancelled;
        progress.ended_at = Some(ledger.clock().now());
        match save(ledger, &operation.id, &progress, by).await {
            Ok(revision) => {
                progress.revision = revision;
                return Ok(Some(OperationShown::of(ledger.name(), operation, progress)));
            }
            // The leader saved in between: its new state is cancelled instead.
            Err(StoreError::Moved) => {}
            Err(error) => return Err(Error::of(ledger)(error)),
        }
    }
    Err(Error::Contended(format!("operation {id}")))
}

async fn save(ledger: &dyn TriageLedger, id: &str, progress: &OperationProgress, by: &By) -> ledger::Result<u64> {
    let revision = ledger.progress(None, id, progress).await?;
    ledger.note(by, "operation_cancelled", id).await?;
    Ok(revision)
}
