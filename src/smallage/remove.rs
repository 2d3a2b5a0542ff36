//! Removing entries: by hand, or as the standing policy wants it.

use super::{
    Smallage,
    audit::note,
    connection::{Arg, KeyList},
    reply::Reply,
    store::AUDIT_LINES,
};
use crate::ledger::{By, Lease, Ledger as _, Removal, Result, Retain, StoreError};

/// Entries in one step at most, Redis doing nothing else meanwhile: of those that get a line each, and of others.
const LINES_TOGETHER: usize = 200;
const TOGETHER: usize = 1_000;

impl Smallage {
    pub(super) async fn remove_by_hand(&self, by: &By, how: Removal, entries: &[String]) -> Result<Vec<bool>> {
        let together = match how {
            Removal::Removed => LINES_TOGETHER,
            Removal::Purged => TOGETHER,
        };
        let (mut removed, mut untold) = (Vec::with_capacity(entries.len()), Vec::new());
        while removed.len() < entries.len() {
            let left = &entries[removed.len()..];
            let left = &left[..left.len().min(together)];
            let (told, gone) = match self.remove_some(by, how, left, false).await {
                // Where memory is short, removing is what helps, and must not wait for room.
                Err(StoreError::NoWrites(_)) => self.remove_some(by, how, left, true).await?,
                done => done?,
            };
            if gone.is_empty() {
                return Err(StoreError::Unexpected("a step of removals has removed none".to_owned()));
            }
            if !told {
                untold.extend(left.iter().zip(&gone).filter(|(_, gone)| **gone).map(|(entry, _)| entry.as_str()));
            }
            removed.extend(gone);
            self.tell_removed(by, how, &mut untold).await;
        }
        if !untold.is_empty() {
            let (source, entries) = (self.name(), untold.len());
            tracing::warn!(
                source,
                entries,
                who = by.who,
                "entries were removed, but Redis has no memory for the audit log's lines about them"
            );
        }
        Ok(removed)
    }

    /// One step: whether it stands in the audit log, and of each entry, as far as it went, whether it was there.
    async fn remove_some(&self, by: &By, how: Removal, entries: &[String], untold: bool) -> Result<(bool, Vec<bool>)> {
        let note = note(by);
        let mut keys = KeyList::new(vec![self.keys.dlq(), self.keys.audit(), self.keys.operations()]);
        // It is the fourth, if there is one.
        self.operation_number(&mut keys, &by.operation);
        let mut args = vec![
            Arg::Text(how.as_str()),
            Arg::Text(&by.who),
            Arg::Text(&note),
            Arg::Text(&by.operation),
            Arg::Int(AUDIT_LINES),
            Arg::Text(self.keys.queues()),
            Arg::Text(if untold { "1" } else { "0" }),
        ];
        args.extend(entries.iter().map(|entry| Arg::Text(entry)));
        let answer = self.commands.run_script(&self.scripts.remove, &keys.as_strs(), &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let told = reply.number()? == 1;
        let mut gone = Vec::with_capacity(reply.len());
        while reply.len() > 0 {
            gone.push(reply.number()? == 1);
        }
        Ok((told, gone))
    }

    /// Writes the lines that there was no memory for, if there is now.
    async fn tell_removed(&self, by: &By, how: Removal, untold: &mut Vec<&str>) {
        let (Some(first), Some(last)) = (untold.first(), untold.last()) else { return };
        let told = match how {
            Removal::Purged => {
                let detail = format!("{} entries, up to {last}", untold.len());
                let line = self.add_line(by, how.as_str(), first, &detail).await;
                if line.is_ok() { untold.len() } else { 0 }
            }
            Removal::Removed => {
                let mut told = 0;
                for entry in &*untold {
                    if self.add_line(by, how.as_str(), entry, "").await.is_err() {
                        break;
                    }
                    told += 1;
                }
                told
            }
        };
        untold.drain(..told);
    }

    pub(super) async fn remove_by_policy(&self, lease: &Lease, by: &By, retain: &Retain) -> Result<u64> {
        let (token, note) = (lease.token(), note(by));
        let (mut looked_at, mut removed) = (0, 0);
        while looked_at < retain.entries.len() {
            let mut keys = KeyList::new(vec![
                self.keys.lease(),
                self.keys.state(),
                self.keys.dlq(),
                self.keys.flights(),
                self.keys.audit(),
                self.keys.operations(),
            ]);
            let mut args = vec![
                Arg::Text(&token),
                Arg::count(retain.generation),
                Arg::Text(&by.who),
                Arg::Text(&note),
                Arg::Int(AUDIT_LINES),
            ];
            for (entry, place) in retain.entries[looked_at..].iter().take(LINES_TOGETHER) {
                let group = |place| keys.number(self.keys.due_group(retain.generation, place));
                args.extend([Arg::Text(entry), place.as_ref().map_or(Arg::Int(0), group)]);
            }
            let answer = self.commands.run_script(&self.scripts.retain, &keys.as_strs(), &args).await?;
            let mut reply = Reply::of_script(answer)?;
            let step = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
            if step == 0 {
                return Err(StoreError::Unexpected("a step of the retention has looked at nothing".to_owned()));
            }
            looked_at = looked_at.saturating_add(step);
            removed += reply.number()?;
        }
        Ok(removed)
    }
}
