//! Telling hooks of a purge.

use super::Died;
use crate::{
    event::{EventData, Purge, rfc3339, text},
    ledger::{self, By, Lease, TriageLedger},
};

/// Why it was done, where a person asked for it.
const WHY: &str = "purge";

/// Announces that so many entries were removed by age, if any were. With a lease, only if that is still held.
pub async fn announce_purge(
    ledger: &dyn TriageLedger,
    lease: Option<&Lease>,
    by: &By,
    count: u64,
    died: Option<Died>,
) -> ledger::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let event = EventData::Purged(Purge {
        source: ledger.name().to_owned(),
        why: WHY.to_owned(),
        by: by.who.clone(),
        note: text(&by.note),
        count,
        oldest_died_at: died.and_then(|died| rfc3339(died.first)),
        newest_died_at: died.and_then(|died| rfc3339(died.last)),
    });
    ledger.announce(lease, &event).await
}
