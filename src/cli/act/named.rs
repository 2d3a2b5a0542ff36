//! Entries that are named one by one: a line for each.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{Form, Task, stopped_by_signals, words};
use crate::{
    cli::{
        exit::Failure,
        io::Io,
        source::{find, split},
        text::{count, line},
    },
    ledger::{Act, Refusal, TriageLedger},
    triage::{End, Outcome, Pace, TOGETHER},
};

/// What became of them.
#[derive(Serialize)]
struct Document<'a> {
    act: Act,
    dry_run: bool,
    items: &'a [Outcome],
    done: u64,
    refused: BTreeMap<String, u64>,
    /// It was stopped before it came to all of them.
    stopped: bool,
}

/// Does it to these.
pub(super) async fn run(
    ledgers: &[Arc<dyn TriageLedger>],
    task: &Task<'_>,
    entries: &[String],
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let mut meant: Vec<(Option<&dyn TriageLedger>, String)> = Vec::new();
    for entry in entries {
        let found = meant_by(ledgers, entry).await?;
        if !meant.iter().any(|known| is_same(known, &found)) {
            meant.push(found);
        }
    }
    let stop = stopped_by_signals()?;
    let mut pace = Pace::new(task.how.per_second.filter(|_| !task.how.dry_run));
    let (mut outcomes, mut broken, mut rest) = (Vec::new(), None, meant.as_slice());
    while let Some((ledger, first)) = rest.first()
        && !stop.is_cancelled()
        && broken.is_none()
    {
        let room = pace.room();
        if room == 0 {
            tokio::time::sleep(pace.wait()).await;
            continue;
        }
        let Some(ledger) = ledger else {
            outcomes.push(nowhere(first));
            rest = &rest[1..];
            continue;
        };
        let together =
            rest.iter().take(room.min(TOGETHER)).take_while(|(of, _)| of.is_some_and(|of| of.name() == ledger.name()));
        let piece: Vec<String> = together.map(|(_, entry)| entry.clone()).collect();
        match task.doing.to(*ledger, &piece).await {
            Ok(done) => outcomes.extend(done),
            Err(error) => broken = Some(Failure::store(ledger.name())(error)),
        }
        pace.take(piece.len() as u64);
        rest = &rest[piece.len()..];
    }
    let not_done = if broken.is_none() { rest.len() } else { meant.len() - outcomes.len() };
    tell(task, &outcomes, not_done > 0, io)?;
    if let Some(failure) = broken {
        return Err(failure);
    }
    let refused = outcomes.iter().filter(|outcome| !outcome.is_done()).count();
    match (not_done, refused) {
        (0, 0) => Ok(()),
        (0, refused) => Err(Failure::Failed(format!(
            "{} of {} not {}",
            count(refused as u64),
            count(meant.len() as u64),
            words::done(task.doing.act)
        ))),
        (left, _) => {
            Err(Failure::Failed(format!("stopped with {} of {} left", count(left as u64), count(meant.len() as u64))))
        }
    }
}

fn is_same(a: &(Option<&dyn TriageLedger>, String), b: &(Option<&dyn TriageLedger>, String)) -> bool {
    a.1 == b.1 && a.0.map(|ledger| ledger.name().to_owned()) == b.0.map(|ledger| ledger.name().to_owned())
}

/// The source and the entry that a text means; no source where several might have it and none has.
async fn meant_by<'a>(
    ledgers: &'a [Arc<dyn TriageLedger>],
    text: &'a str,
) -> Result<(Option<&'a dyn TriageLedger>, String), Failure> {
    let (sources, entry) = split(ledgers, text)?;
    let possible: Vec<&dyn TriageLedger> = sources.into_iter().filter(|ledger| ledger.is_entry_id(entry)).collect();
    match &*possible {
        [] => Err(Failure::Usage(format!(
            "{:?} is no entry: write ENTRY or SOURCE/ENTRY as `sexton ls` lists them",
            line(text)
        ))),
        [only] => Ok((Some(*only), entry.to_owned())),
        _ => Ok((find(ledgers, text).await?.map(|(ledger, _)| ledger), entry.to_owned())),
    }
}

/// Of an entry that no source has.
fn nowhere(entry: &str) -> Outcome {
    Outcome {
        source: String::new(),
        entry_id: entry.to_owned(),
        outcome: End::Refused,
        refusal: Some(Refusal::EntryGone.as_str()),
        queue_entry: None,
    }
}

fn tell(task: &Task<'_>, outcomes: &[Outcome], stopped: bool, io: &mut Io<'_>) -> Result<(), Failure> {
    let act = task.doing.act;
    let mut refused = BTreeMap::<String, u64>::new();
    for why in outcomes.iter().filter_map(|outcome| outcome.refusal) {
        *refused.entry(why.to_owned()).or_default() += 1;
    }
    let done = outcomes.iter().filter(|outcome| outcome.is_done()).count() as u64;
    let dry_run = task.how.dry_run;
    if task.how.output == Form::Json {
        return Ok(io.json(&Document { act, dry_run, items: outcomes, done, refused, stopped })?);
    }
    for outcome in outcomes {
        let entry = match outcome.source.as_str() {
            "" => line(&outcome.entry_id).into_owned(),
            source => format!("{source}/{}", line(&outcome.entry_id)),
        };
        let end = match (outcome.outcome, outcome.refusal, &outcome.queue_entry) {
            (End::Retried, _, Some(queue)) => format!("retried, as {} on its queue", line(queue)),
            (End::Retried, ..) => "retried".to_owned(),
            (End::Removed, ..) => "removed".to_owned(),
            (End::Would, ..) => format!("would be {}", words::done(act)),
            (End::Refused, why, _) => {
                format!("not {}: {}", words::done(act), why.map_or("refused", words::refused))
            }
        };
        writeln!(io.out, "{entry}  {end}")?;
    }
    if outcomes.len() > 1 {
        writeln!(io.out, "{}", words::result(act, dry_run, done, &refused))?;
    }
    Ok(())
}
