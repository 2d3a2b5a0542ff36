//! Bulk operations: what people have asked for, and how far it has come.

use std::{collections::HashMap, time::Duration};

use redis::{Value, pipe};

use super::{
    Smallage,
    audit::note,
    connection::{Arg, KeyList},
    reply::{self, Reply},
    store::AUDIT_LINES,
};
use crate::{
    clock::millis,
    event::EventData,
    ledger::{Act, Lease, Operation, OperationProgress, OperationState, Result, StoreError},
    letter::Millis,
};

/// How long an operation is kept after its last change.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Operations that are kept. The oldest go, but for those that still run.
const MOST: usize = 1_000;
/// Operations that a new one looks at, whether they are to be forgotten.
const LOOKED_AT: usize = 50;
/// What the names of refusals begin with in an operation's hash.
const REFUSED: &str = "refused:";

impl Smallage {
    /// The number of what is known of an operation among a call's keys; 0 if it is none.
    pub(super) fn operation_number(&self, keys: &mut KeyList, id: &str) -> Arg<'static> {
        if id.is_empty() { Arg::Int(0) } else { keys.number(self.keys.operation(id)) }
    }

    pub(super) async fn begin_operation(&self, operation: &Operation) -> Result<()> {
        let (too_many, old) = self.oldest_operations().await?;
        let json = |error| StoreError::Unexpected(format!("an operation: {error}"));
        let (stored, filter) = (serde_json::to_string(operation).map_err(json)?, operation.filter.to_string());
        let detail = format!(
            "{}{} of {filter}",
            if operation.dry_run { "a dry run of " } else { "" },
            match operation.act {
                Act::Retry => "a retry",
                Act::Delete => "a removal",
                Act::Purge => "a purge",
            }
        );
        let note = note(&operation.by);
        let mut keys = vec![self.keys.operations(), self.keys.operation(&operation.id), self.keys.audit()];
        keys.extend(old.iter().map(|id| self.keys.operation(id)));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut args = vec![
            Arg::Text(&operation.id),
            Arg::Int(operation.asked_at.0),
            Arg::Text(&stored),
            Arg::Int(millis(KEPT_FOR)),
            Arg::Int(AUDIT_LINES),
            Arg::Text(&operation.by.who),
            Arg::Text(&note),
            Arg::Text(&detail),
            Arg::place(too_many),
        ];
        args.extend(old.iter().map(|id| Arg::Text(id)));
        let answer = self.commands.run_script(&self.scripts.begin_operation, &keys, &args).await?;
        Reply::of_script(answer).map(|_| ())
    }

    /// How many there will be too many when there is one more, and the oldest ones.
    async fn oldest_operations(&self) -> Result<(usize, Vec<String>)> {
        let mut commands = pipe();
        let list = self.keys.operations();
        commands.cmd("ZCARD").arg(&list).cmd("ZRANGE").arg(&list).arg(0).arg(LOOKED_AT - 1);
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let known = usize::try_from(reply::number(&answers.next()?).unwrap_or(0)).unwrap_or(usize::MAX);
        Ok((known.saturating_sub(MOST - 1), ids(answers.next()?)?))
    }

    pub(super) async fn one_operation(&self, id: &str) -> Result<Option<(Operation, OperationProgress)>> {
        Ok(self.read_operations(&[id.to_owned()]).await?.pop())
    }

    pub(super) async fn newest_ids(&self, max: usize) -> Result<Vec<String>> {
        let mut commands = pipe();
        commands.cmd("ZRANGE").arg(self.keys.operations()).arg(0).arg(max.clamp(1, MOST) - 1).arg("REV");
        ids(self.commands.read_all(&commands).await?.pop().unwrap_or(Value::Nil))
    }

    pub(super) async fn newest_operations(&self, max: usize) -> Result<Vec<(Operation, OperationProgress)>> {
        self.read_operations(&self.newest_ids(max).await?).await
    }

    /// Those of them that are there and can be read.
    async fn read_operations(&self, ids: &[String]) -> Result<Vec<(Operation, OperationProgress)>> {
        let mut commands = pipe();
        for id in ids {
            commands.cmd("HGETALL").arg(self.keys.operation(id));
        }
        let answers = self.commands.read_all(&commands).await?;
        let mut found = Vec::with_capacity(answers.len());
        for answer in answers {
            let mut flat = Reply::list(answer)?;
            let mut fields = HashMap::new();
            while flat.len() >= 2 {
                fields.insert(flat.text()?, flat.text()?);
            }
            found.extend(stored(&fields));
        }
        Ok(found)
    }

    pub(super) async fn save_operation(
        &self,
        lease: Option<&Lease>,
        id: &str,
        progress: &OperationProgress,
    ) -> Result<u64> {
        let token = lease.map(Lease::token).unwrap_or_default();
        let args = [
            Arg::Text(&token),
            Arg::count(progress.revision),
            Arg::Int(millis(KEPT_FOR)),
            Arg::Text("state"),
            Arg::Text(progress.state.as_str()),
            Arg::Text("from"),
            Arg::Text(progress.from.as_deref().unwrap_or_default()),
            Arg::Text("looked_at"),
            Arg::count(progress.looked_at),
            Arg::Text("matched"),
            Arg::count(progress.matched),
            Arg::Text("ended_at"),
            progress.ended_at.map_or(Arg::Text(""), |at| Arg::Int(at.0)),
            Arg::Text("error"),
            Arg::Text(progress.error.as_deref().unwrap_or_default()),
        ];
        let keys = [self.keys.lease(), self.keys.operation(id)];
        let answer = self.commands.run_script(&self.scripts.save_operation, &[&keys[0], &keys[1]], &args).await?;
        Reply::of_script(answer)?.number()
    }

    pub(super) async fn announce_event(&self, lease: Option<&Lease>, event: &EventData) -> Result<()> {
        let Some(lease) = lease else { return self.append_to_outbox(event).await.map(|_| ()) };
        let (kind, data) = (event.kind(), event.to_json());
        let keys = [self.keys.lease(), self.keys.outbox(kind.lane())];
        let args = [Arg::Text(&lease.token()), Arg::Text(kind.as_str()), Arg::Text(&data)];
        let answer = self.commands.run_script(&self.scripts.announce, &[&keys[0], &keys[1]], &args).await?;
        Reply::of_script(answer)?;
        self.outbox_grew(kind.lane());
        Ok(())
    }
}

fn ids(value: Value) -> Result<Vec<String>> {
    let mut list = Reply::list(value)?;
    let mut ids = Vec::with_capacity(list.len());
    while list.len() > 0 {
        ids.push(list.text()?);
    }
    Ok(ids)
}

/// An operation as its hash has it; none if it cannot be read. What of its progress was not written by us counts as not
/// there.
fn stored(fields: &HashMap<String, String>) -> Option<(Operation, OperationProgress)> {
    let operation = serde_json::from_str(fields.get("operation")?).ok()?;
    let text = |name: &str| fields.get(name).filter(|text| !text.is_empty());
    let number = |name: &str| text(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let refused =
        fields.iter().filter_map(|(name, times)| Some((name.strip_prefix(REFUSED)?.to_owned(), times.parse().ok()?)));
    let progress = OperationProgress {
        state: text("state").and_then(|state| OperationState::parse(state)).unwrap_or(OperationState::Failed),
        revision: number("revision"),
        from: text("from").cloned(),
        looked_at: number("looked_at"),
        matched: number("matched"),
        done: number("done"),
        refused: refused.collect(),
        ended_at: text("ended_at").and_then(|at| at.parse().ok()).map(Millis),
        error: text("error").cloned(),
    };
    Some((operation, progress))
}
