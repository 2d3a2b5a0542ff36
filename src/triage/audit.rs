//! The audit log: who, or which rule, did what.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Cursor, Error, Page, Result};
use crate::{
    event::{rfc3339, text},
    ledger::{AuditLine, TriageLedger},
    letter::Millis,
};

/// Lines read in one piece.
const PIECE: usize = 1_000;

/// Which lines are wanted.
#[derive(Clone, Debug, Default)]
pub struct AuditAsk {
    /// Written no earlier than this.
    pub since: Option<Millis>,
    /// About this entry.
    pub entry: Option<String>,
    /// About this job.
    pub job: Option<String>,
    /// Lines at most.
    pub limit: usize,
    /// From here on.
    pub after: Option<Cursor>,
}

/// A line, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditItem {
    /// The source's name.
    pub source: String,
    /// The line's id.
    pub id: String,
    /// When, by the store's clock.
    pub at: Option<String>,
    /// What was done or found.
    pub what: String,
    /// The rule, or who did it by hand.
    pub by: String,
    /// The entry in the DLQ; none of a line that stands for no single entry.
    pub entry_id: Option<String>,
    /// Its job.
    pub job_id: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// More, such as the entry on the queue that the job is now.
    pub detail: Option<String>,
    /// What the person who did it wrote to it.
    pub note: Option<String>,
    /// The bulk operation that it was a part of.
    pub operation: Option<String>,
    /// The same as `at`.
    #[serde(skip)]
    pub time: Millis,
}

impl AuditItem {
    fn of(source: &str, line: AuditLine) -> AuditItem {
        AuditItem {
            source: source.to_owned(),
            at: rfc3339(line.at),
            time: line.at,
            id: line.id,
            what: line.what,
            by: line.by,
            entry_id: text(&line.entry_id),
            job_id: text(&line.job_id),
            task: text(&line.task),
            detail: text(&line.detail),
            note: text(&line.note),
            operation: text(&line.operation),
        }
    }
}

impl AuditAsk {
    fn is_selective(&self) -> bool {
        self.entry.is_some() || self.job.is_some()
    }

    fn wants(&self, line: &AuditLine) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        is(&self.entry, &line.entry_id) && is(&self.job, &line.job_id)
    }
}

/// The lines of some sources, one source after the other, the newest first.
pub async fn audit(sources: &[&dyn TriageLedger], ask: &AuditAsk) -> Result<Page<AuditItem>> {
    let mut items = Vec::new();
    let start = ask.after.clone().unwrap_or_default();
    let mut before = start.after;
    for &ledger in sources.iter().skip(start.source) {
        let source = ledger.name();
        'source: loop {
            let wanted = if ask.is_selective() { PIECE } else { ask.limit.saturating_sub(items.len()) + 1 };
            let piece = wanted.min(PIECE);
            let page = ledger.audit(before.as_deref(), ask.since, piece).await.map_err(Error::of(ledger))?;
            let ended = page.len() < piece;
            before = page.last().map(|line| line.id.clone());
            for line in page {
                if ask.since.is_some_and(|since| line.at < since) {
                    break 'source;
                }
                if !ask.wants(&line) {
                    continue;
                }
                if items.len() >= ask.limit {
                    // There is one more, and here it would be.
                    let last: Option<&AuditItem> = items.last().filter(|last: &&AuditItem| last.source == source);
                    let next_cursor =
                        Some(last.map_or_else(|| Cursor::at(source), |last| Cursor::after(source, &last.id)));
                    return Ok(Page { items, next_cursor });
                }
                items.push(AuditItem::of(source, line));
            }
            if ended {
                break;
            }
        }
        before = None;
    }
    Ok(Page { items, next_cursor: None })
}
