//! The lines of the audit log about an entry and its job.

use crate::{
    ledger::{self, AuditLine, TriageLedger},
    letter::Millis,
};

/// Lines read in one piece.
const PAGE: usize = 1_000;
/// Lines read at most.
const MOST: u64 = 100_000;

/// How far back the log is searched, at least. It is read in pieces, and the last piece is read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The first piece: nothing that is wanted need be further back.
    Recent,
    /// To the first line that is found.
    Newest,
    /// To the job's last retry.
    LastRetry,
    /// To the line that tells how the entry left the DLQ.
    Departure,
}

impl Extent {
    fn ends_with(self, line: &AuditLine, entry_id: &str) -> bool {
        match self {
            Extent::Recent | Extent::Newest => true,
            Extent::LastRetry => line.what == "retried",
            Extent::Departure => {
                line.entry_id == entry_id && matches!(line.what.as_str(), "retried" | "twin_removed" | "removed")
            }
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Lines about the entry, and about its job as soon as it was known; newest first.
    pub(super) lines: Vec<AuditLine>,
    /// The job; empty if it is not known.
    pub(super) job_id: String,
    /// How many lines were looked at.
    pub(super) searched: u64,
    /// The oldest of them.
    pub(super) back_to: Option<Millis>,
    /// What was wanted was found, or is not in the log.
    pub(super) complete: bool,
}

impl Log {
    /// Searches the log from its newest line on. A job that is not known yet (empty) is taken from the first line about
    /// the entry.
    pub(super) async fn search(
        ledger: &dyn TriageLedger,
        entry_id: &str,
        job_id: &str,
        extent: Extent,
    ) -> ledger::Result<Log> {
        let mut log = Log { job_id: job_id.to_owned(), ..Log::default() };
        let mut before = None;
        while !log.complete && log.searched < MOST {
            let page = ledger.audit(before.as_deref(), None, PAGE).await?;
            log.searched += page.len() as u64;
            log.complete = page.len() < PAGE || extent == Extent::Recent;
            if let Some(last) = page.last() {
                log.back_to = Some(last.at);
                before = Some(last.id.clone());
            }
            for line in page {
                let of_entry = !entry_id.is_empty() && line.entry_id == entry_id;
                if of_entry && log.job_id.is_empty() {
                    log.job_id.clone_from(&line.job_id);
                }
                if of_entry || (!log.job_id.is_empty() && line.job_id == log.job_id) {
                    log.complete |= extent.ends_with(&line, entry_id);
                    log.lines.push(line);
                }
            }
        }
        Ok(log)
    }
}
