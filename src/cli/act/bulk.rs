//! What a filter passes: counted, asked for, and done piece by piece.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{Form, Task, stopped_by_signals, words};
use crate::{
    cli::{
        exit::Failure,
        filter::FilterArgs,
        io::Io,
        progress::Progress,
        source::chosen,
        text::{count as number, counted, line},
    },
    ledger::{Act, OperationProgress, OperationState, StoreError, TriageLedger},
    letter::Millis,
    triage::{Bulk, Filter, FilterSpec, announce_purge, count},
};

/// One source's share.
struct Share<'a> {
    ledger: &'a dyn TriageLedger,
    /// When what is meant was looked at: nothing that came later is.
    at: Millis,
    /// Entries in the DLQ then.
    entries: u64,
    /// Those of them that the filter passes, if they were counted.
    matched: Option<u64>,
    progress: OperationProgress,
}

/// What became of it.
#[derive(Serialize)]
struct Document<'a> {
    act: Act,
    filter: &'a FilterSpec,
    dry_run: bool,
    matched: u64,
    done: u64,
    refused: BTreeMap<String, u64>,
    /// It was stopped, or broken off, before it came to the end.
    stopped: bool,
    sources: Vec<Source<'a>>,
}

#[derive(Serialize)]
struct Source<'a> {
    source: &'a str,
    looked_at: u64,
    matched: u64,
    done: u64,
    refused: &'a BTreeMap<String, u64>,
}

impl<'a> Source<'a> {
    fn of(share: &'a Share<'_>) -> Source<'a> {
        let OperationProgress { looked_at, matched, done, refused, .. } = &share.progress;
        Source { source: share.ledger.name(), looked_at: *looked_at, matched: *matched, done: *done, refused }
    }
}

/// Does it to what passes.
pub(super) async fn run(
    ledgers: &[Arc<dyn TriageLedger>],
    task: &Task<'_>,
    filter: &FilterArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let (spec, compiled) = (filter.spec(), filter.compile()?);
    let sources = chosen(ledgers, &filter.source)?;
    let asks = !task.how.yes && !task.how.dry_run;
    if asks && !io.screen.asks {
        return Err(Failure::Usage("nobody can be asked here: give --yes, or --dry-run to see how many".to_owned()));
    }
    let mut shares = Vec::new();
    for ledger in sources {
        shares.push(share(ledger, task, &spec, &compiled, io).await?);
    }
    if task.how.dry_run {
        return tell(task, &spec, &shares, io);
    }
    if asks && !agreed(task.doing.act, &shares, io)? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    let stop = stopped_by_signals()?;
    let mut progress = Progress::of_work(io.screen);
    let mut broken = None;
    for share in &mut shares {
        if stop.is_cancelled() || broken.is_some() {
            break;
        }
        let Share { ledger, at, entries, matched, progress: come } = share;
        if *matched == Some(0) {
            come.state = OperationState::Done;
            continue;
        }
        let source = ledger.name();
        let mut bulk = Bulk::new(task.doing.clone(), compiled.clone(), *at);
        let mut show = |come: &OperationProgress| {
            let not: u64 = come.refused.values().sum();
            if not > 0 {
                progress.say(format!(", {} refused", number(not)));
            }
            match *matched {
                Some(matched) => progress.show(source, come.matched, matched),
                None => progress.show(source, come.looked_at, *entries),
            }
        };
        let detail =
            format!("{} of {}", words::begun(task.doing.act), serde_json::to_string(&spec).unwrap_or_default());
        let done = match ledger.note(&task.doing.by, "begun", &detail).await {
            // Of a store that is full entries can be removed all the same, and that is what helps it.
            Err(StoreError::NoWrites(_)) if task.doing.act != Act::Retry => Ok(()),
            noted => noted,
        };
        let done = match done {
            Ok(()) => bulk.run(*ledger, come, task.how.per_second, &stop, &mut show).await,
            Err(error) => Err(error),
        };
        if task.doing.act == Act::Purge
            // Also of one that was stopped: what is gone is gone.
            && let Err(error) = announce_purge(*ledger, None, &task.doing.by, come.done, bulk.died()).await
        {
            let (source, error) = (line(source), error.to_string());
            progress.aside(|| writeln!(io.err, "{source}: hooks are not told of it: {}", line(&error)))?;
        }
        if let Err(error) = done {
            broken = Some(Failure::store(source)(error));
        }
    }
    progress.clear();
    tell(task, &spec, &shares, io)?;
    if let Some(failure) = broken {
        io.out.flush()?;
        writeln!(io.err, "broken off; the same command goes on with what is left")?;
        return Err(failure);
    }
    if shares.iter().any(|share| share.progress.state == OperationState::Running) {
        return Err(Failure::Failed("stopped; the same command goes on with what is left".to_owned()));
    }
    Ok(())
}

/// Looks how much of a source is meant, unless nobody is to be told.
async fn share<'a>(
    ledger: &'a dyn TriageLedger,
    task: &Task<'_>,
    spec: &FilterSpec,
    filter: &Filter,
    io: &Io<'_>,
) -> Result<Share<'a>, Failure> {
    let source = ledger.name();
    // The answer brings the store's time.
    let entries = ledger.overview().await.map_err(Failure::store(source))?.entries;
    let at = ledger.clock().now();
    let mut share = Share { ledger, at, entries, matched: None, progress: OperationProgress::default() };
    if task.how.dry_run {
        let mut progress = Progress::of_search(io.screen);
        let counted = count(ledger, task.doing.clone(), filter, at, entries, &mut progress.told()).await;
        progress.clear();
        share.progress = counted.map_err(Failure::store(source))?;
        share.matched = Some(share.progress.matched);
    } else if spec.is_empty() {
        share.matched = Some(entries);
    } else if !task.how.yes {
        let mut progress = Progress::of_search(io.screen);
        let counted = count(ledger, task.doing.clone(), filter, at, entries, &mut progress.told()).await;
        progress.clear();
        share.matched = Some(counted.map_err(Failure::store(source))?.matched);
    }
    Ok(share)
}

/// Says what is meant, and asks.
fn agreed(act: Act, shares: &[Share<'_>], io: &mut Io<'_>) -> Result<bool, Failure> {
    let mut all = 0;
    for Share { ledger, entries, matched, .. } in shares {
        let matched = matched.unwrap_or_default();
        all += matched;
        let of = if matched > *entries { matched } else { *entries };
        writeln!(io.err, "{}: {} of {}", ledger.name(), number(matched), counted(of, "entry", "entries"))?;
    }
    if all == 0 {
        writeln!(io.err, "nothing to {}", words::verb(act))?;
        return Ok(true);
    }
    let verb = words::verb(act);
    let verb = verb[..1].to_uppercase() + &verb[1..];
    Ok(io.ask(&format!("{verb} {}?", counted(all, "entry", "entries")))?)
}

fn tell(task: &Task<'_>, spec: &FilterSpec, shares: &[Share<'_>], io: &mut Io<'_>) -> Result<(), Failure> {
    let (act, dry_run) = (task.doing.act, task.how.dry_run);
    let sum = |of: fn(&OperationProgress) -> u64| shares.iter().map(|share| of(&share.progress)).sum::<u64>();
    let (matched, done) = (sum(|progress| progress.matched), sum(|progress| progress.done));
    let mut refused = BTreeMap::<String, u64>::new();
    for (why, times) in shares.iter().flat_map(|share| &share.progress.refused) {
        *refused.entry(why.clone()).or_default() += times;
    }
    if task.how.output == Form::Json {
        let stopped = shares.iter().any(|share| share.progress.state == OperationState::Running);
        let sources = shares.iter().map(Source::of).collect();
        return Ok(io.json(&Document { act, filter: spec, dry_run, matched, done, refused, stopped, sources })?);
    }
    if shares.len() > 1 {
        for Share { ledger, progress, .. } in shares {
            let result = words::result(act, dry_run, progress.done, &progress.refused);
            writeln!(io.out, "{}: {result}", ledger.name())?;
        }
    }
    writeln!(io.out, "{}", words::result(act, dry_run, done, &refused))?;
    Ok(())
}
