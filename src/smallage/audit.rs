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

fn line((id, fields): StreamEntry) -> AuditLine {
    let field = |name: &str| {
        let found = fields.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    AuditLine {
        at: id_time(&id).unwrap_or_default(),
        what: field("what"),
        by: field("by"),
        entry_id: field("entry"),
        job_id: field("job"),
        task: field("task"),
        detail: field("detail"),
        id,
    }
}
