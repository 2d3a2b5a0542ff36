//! What would stand in the way of a retry, for explaining. Nothing here writes, and nothing here decides: what is true at
//! the moment of a retry is looked at by the script that makes it.

use redis::{Value, pipe};

use super::{
    Smallage,
    reply::{self, Reply},
};
use crate::{
    ledger::{Cursor, Ledger as _, Prospects, Result},
    letter::DeadLetter,
};

impl Smallage {
    pub(super) async fn prospects_of(&self, letter: &DeadLetter) -> Result<Prospects> {
        let stream = &letter.origin;
        let dedup = letter.dedup.as_deref().filter(|dedup| !dedup.is_empty());
        let is_queue = self.keys.queue_of(stream).is_some();
        let mut commands = pipe();
        commands.cmd("HGET").arg(self.keys.job(&letter.job_id)).arg("entries");
        // A stream of another namespace may be in another slot of a cluster, so it must not even be named.
        if is_queue {
            commands.cmd("EXISTS").arg(stream).cmd("XLEN").arg(stream);
        }
        if let Some(dedup) = dedup {
            commands.cmd("GET").arg(self.keys.dedup(dedup)).cmd("GET").arg(self.keys.raised(dedup));
        }
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let entries = reply::text(&answers.next()?).unwrap_or_default();
        let mut prospects = Prospects::default();
        if is_queue {
            let (exists, length) = (answers.next()?, answers.next()?);
            prospects.queue_length = reply::number(&length).filter(|_| reply::number(&exists) == Some(1));
        }
        if dedup.is_some() {
            let (claim, ours) = (answers.next()?, answers.next()?);
            let by_another = |held: &Value| reply::text(held).is_some_and(|held| held != letter.job_id);
            prospects.dedup_claimed = by_another(&claim) || by_another(&ours);
        }
        if !letter.job_id.is_empty() {
            prospects.newer = self.newest_after(&letter.entry_id, &entries).await?;
        }
        Ok(prospects)
    }

    /// The last of a job's entries, as its record names them in their order, that came after this one and is still
    /// there.
    async fn newest_after(&self, entry: &str, entries: &str) -> Result<Option<String>> {
        let this = Cursor(entry.to_owned());
        let later: Vec<&str> = entries.split_whitespace().filter(|other| self.is_after(other, &this)).collect();
        let mut commands = pipe();
        for other in &later {
            commands.cmd("XRANGE").arg(self.keys.dlq()).arg(*other).arg(*other);
        }
        let mut newest = None;
        for (other, answer) in later.iter().zip(self.commands.read_all(&commands).await?) {
            if !reply::entries(answer)?.is_empty() {
                newest = Some((*other).to_owned());
            }
        }
        Ok(newest)
    }
}
