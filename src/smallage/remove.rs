//! Removing entries: by hand, or as the standing policy wants it.

use super::{
    Smallage,
    audit::note,
    connection::{Arg, KeyList},
    reply::Reply,
    store::AUDIT_LINES,
};
use crate::ledger::{By, Lease, Removal, Result, Retain, StoreError};

/// Entries in one step at most, Redis doing nothing else meanwhile: of those that get a line each, and of others.
const LINES_TOGETHER: usize = 200;
const TOGETHER: usize = 1_000;

impl Smallage {
    pub(super) async fn remove_by_hand(&self, by: &By, how: Removal, entries: &[String]) -> Result<Vec<bool>> {
        let (word, together) = match how {
            Removal::Removed => ("removed", LINES_TOGETHER),
            Removal::Purged => ("purged", TOGETHER),
        };
        let note = note(by);
        let mut removed = Vec::with_capacity(entries.len());
        while removed.len() < entries.len() {
            let mut keys = KeyList::new(vec![self.keys.dlq(), self.keys.audit(), self.keys.operations()]);
            // It is the fourth, if there is one.
            self.operation_number(&mut keys, &by.operation);
            let mut args = vec![
                Arg::Text(word),
                Arg::Text(&by.who),
                Arg::Text(&note),
                Arg::Text(&by.operation),
                Arg::Int(AUDIT_LINES),
                Arg::Text(self.keys.queues()),
            ];
            args.extend(entries[removed.len()..].iter().take(together).map(|entry| Arg::Text(entry)));
            let answer = self.commands.run_script(&self.scripts.remove, &keys.as_strs(), &args).await?;
            let mut reply = Reply::of_script(answer)?;
            if reply.len() == 0 {
                return Err(StoreError::Unexpected("a step of removals has removed none".to_owned()));
            }
            while reply.len() > 0 {
                removed.push(reply.number()? == 1);
            }
        }
        Ok(removed)
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
