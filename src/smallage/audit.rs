//! The audit log.

use redis::pipe;

use super::{
    Smallage,
    ingest::id_time,
    reply::{self, StreamEntry},
};
use crate::ledger::{AuditLine, Result};

impl Smallage {
    pub(super) async fn audit_lines(&self, before: Option<&str>, max: usize) -> Result<Vec<AuditLine>> {
        let from = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
        let mut commands = pipe();
        commands.cmd("XREVRANGE").arg(self.keys.audit()).arg(from).arg("-").arg("COUNT").arg(max);
        let answer = self.commands.read_all(&commands).await?.pop().unwrap_or(redis::Value::Nil);
        Ok(reply::entries(answer)?.into_iter().map(line).collect())
    }
}

/// A line is three pairs, so that it costs little to write: what was done and by whom; the entry, and more about it; the
/// job and its task.
fn line((id, fields): StreamEntry) -> AuditLine {
    let mut fields = fields.into_iter();
    let mut pair = || {
        let (name, value) = fields.next().unwrap_or_default();
        [name, value].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let ([what, by], [entry_id, detail], [job_id, task]) = (pair(), pair(), pair());
    AuditLine { at: id_time(&id).unwrap_or_default(), id, what, by, entry_id, job_id, task, detail }
}
