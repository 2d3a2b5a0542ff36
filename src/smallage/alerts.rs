//! What is kept for the watch over the line: one hash, whose fields are the watch's, and its revision.

use async_trait::async_trait;
use redis::{Value, pipe};

use super::{
    Smallage,
    connection::Arg,
    reply::{self, Reply},
};
use crate::{
    alert::{CURSOR, Fields},
    event::{EventData, Lane},
    ledger::{AlertLedger, Batch, Cursor, Lease, OutboxId, Result, SavedWatch},
};

/// The field that the watch itself does not know.
const REVISION: &str = "revision";
/// Digits that a revision has at most. What has more, or is no number, was not written by us, and counts as never saved,
/// as it does where the watch is saved.
const REVISION_DIGITS: usize = 15;

impl Smallage {
    /// The watch keeps its fields below about 600 KB, so they are read in one go.
    async fn load_watch_fields(&self) -> Result<SavedWatch> {
        let mut commands = pipe();
        commands.cmd("HGETALL").arg(self.keys.watch());
        let answer = self.commands.read_all(&commands).await?.pop().unwrap_or(Value::Nil);
        let mut saved = SavedWatch::default();
        let mut flat = Reply::list(answer)?;
        while flat.len() >= 2 {
            let (name, text) = (flat.text()?, flat.text()?);
            if name == REVISION {
                let is_ours = text.len() <= REVISION_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
                saved.revision = text.parse().ok().filter(|_| is_ours).unwrap_or(0);
            } else {
                saved.fields.push((name, text));
            }
        }
        Ok(saved)
    }

    async fn save_watch_fields(&self, lease: &Lease, over: u64, fields: &Fields, events: &[EventData]) -> Result<u64> {
        let token = lease.token();
        let events: Vec<(&str, String)> = events.iter().map(|data| (data.kind().as_str(), data.to_json())).collect();
        let mut args = vec![Arg::Text(&token), Arg::count(over), Arg::place(events.len())];
        for (kind, data) in &events {
            args.extend([Arg::Text(kind), Arg::Text(data)]);
        }
        args.push(Arg::place(fields.set.len()));
        for (name, text) in &fields.set {
            args.extend([Arg::Text(name), Arg::Text(text)]);
        }
        args.extend(fields.remove.iter().map(|name| Arg::Text(name)));
        let keys = [&*self.keys.lease(), &self.keys.watch(), &self.keys.outbox(Lane::Alerts)];
        let answer = self.commands.run_script(&self.scripts.save_watch, &keys, &args).await?;
        let revision = Reply::of_script(answer)?.number()?;
        if !events.is_empty() {
            self.outbox_grew(Lane::Alerts);
        }
        Ok(revision)
    }
}

#[async_trait]
impl AlertLedger for Smallage {
    fn id(&self) -> String {
        self.uid()
    }

    async fn load_watch(&self) -> Result<SavedWatch> {
        self.load_watch_fields().await
    }

    async fn save_watch(&self, lease: &Lease, over: u64, fields: &Fields, events: &[EventData]) -> Result<u64> {
        self.save_watch_fields(lease, over, fields, events).await
    }

    async fn counted_until(&self) -> Result<Option<OutboxId>> {
        let mut commands = pipe();
        commands.cmd("HGET").arg(self.keys.watch()).arg(CURSOR);
        let answer = self.commands.read_all(&commands).await?.pop().unwrap_or(Value::Nil);
        Ok(reply::text(&answer).and_then(|cursor| cursor.parse().ok()))
    }

    async fn browse(&self, after: &Cursor, max: usize) -> Result<Batch> {
        self.browse_dlq(after, max).await
    }
}
