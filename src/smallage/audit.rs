//! The audit log.

use redis::pipe;

use super::{
    Smallage,
    ingest::id_time,
    reply::{self, StreamEntry},
    store::AUDIT_LINES,
};
use crate::{
    ledger::{AuditLine, By, Result},
    letter::{Millis, bounded_text},
};

/// Characters kept of a note.
const NOTE_CHARS: usize = 1_000;

impl Smallage {
    pub(super) async fn audit_lines(
        &self,
        before: Option<&str>,
        since: Option<Millis>,
        max: usize,
    ) -> Result<Vec<AuditLine>> {
        let from = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
        let since = since.map_or_else(|| "-".to_owned(), |since| since.0.max(0).to_string());
        let mut commands = pipe();
        commands.cmd("XREVRANGE").arg(self.keys.audit()).arg(from).arg(since).arg("COUNT").arg(max);
        let answer = self.commands.read_all(&commands).await?.pop().unwrap_or(redis::Value::Nil);
        Ok(reply::entries(answer)?.into_iter().map(line).collect())
    }

    /// Adds a line that no script writes: of an entry, if it is about one.
    pub(super) async fn add_line(&self, by: &By, what: &str, entry: &str, detail: &str) -> Result<()> {
        let mut commands = pipe();
        commands.cmd("XADD").arg(self.keys.audit()).arg(&["MAXLEN", "~"]).arg(AUDIT_LINES).arg("*").arg(&[
            what,
            &by.who,
            entry,
            detail,
            "",
            "",
            &note(by),
            &by.operation,
        ]);
        // A log of another type does not stand in the way, as in the scripts.
        self.commands.read_all(&commands).await.map(|_| ())
    }
}

/// The note as the log keeps it.
pub(super) fn note(by: &By) -> String {
    bounded_text(by.note.as_bytes(), NOTE_CHARS)
}

/// A line is three pairs, so that it costs little to write: what was done and by whom; the entry, and more about it; the
/// job and its task. By hand there may be a fourth: the note, and the operation that it was a part of.
fn line((id, fields): StreamEntry) -> AuditLine {
    let mut fields = fields.into_iter();
    let mut pair = || {
        let (name, value) = fields.next().unwrap_or_default();
        [name, value].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let ([what, by], [entry_id, detail], [job_id, task], [note, operation]) = (pair(), pair(), pair(), pair());
    let at = id_time(&id).unwrap_or_default();
    AuditLine { id, at, what, by, entry_id, job_id, task, detail, note, operation }
}
