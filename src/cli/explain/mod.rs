//! `sexton explain`: why an entry was or was not retried, and when it will be.

mod gather;
mod log;
mod shown;

use std::sync::Arc;

use clap::Args;

use self::{
    gather::{Around, Entry},
    log::{Extent, Log},
    shown::Account,
};
use super::{
    exit::Failure,
    filter::{Filter, Walk},
    io::Io,
    progress::Progress,
    show::Output,
    source::{RuledArgs, find, split},
    text::line,
};
use crate::{ledger::RetryLedger, letter::Millis, rule::Rules};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton explain 1795972370488-0
  sexton explain orders/1795972370488-0
  sexton explain d40ec568-02f6-4bdc-b5f5-0f3f4f9e34b5
  sexton explain 1795972370488-0 -o json | jq -r .state
  sexton explain 1795972370488-0 --smallage redis://localhost:6379 --rules rules/

The first line says in one sentence why the entry was or was not retried, and when it
will be; below it stand the facts. An entry that has left the DLQ is looked for among
the retries in flight and in the audit log. For a job id that is done as well, and
every DLQ is searched from its newest entry on.

Nothing is written, and no sidecar need be running; the secrets of hooks need not be
there. The rules are those that the configuration names, or the files of --rules;
where the leader works by others, that is said.

`-o json` has source, entry_id, job_id, task, group, in_dlq, died_at, state, sentence,
rule, next_at, deaths, retries, max_retries, held_until, refusal (why a retry would be
refused now), rules_in_force, led, audit (its lines, newest first) and audit_complete
(false if the search ended before the log did).";

/// Arguments of `sexton explain`.
#[derive(Args, Clone, Debug)]
pub(super) struct ExplainArgs {
    /// An entry (ENTRY or SOURCE/ENTRY), in the DLQ or not any more, or the id of a job
    #[arg(value_name = "ENTRY|JOB")]
    entry: String,

    #[command(flatten)]
    pub(super) ruled: RuledArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// Explains an entry. Rules that cannot be read matter only to an entry that is in the DLQ.
pub(super) async fn explain(
    ledgers: &[Arc<dyn RetryLedger>],
    rules: Result<Rules, Failure>,
    args: &ExplainArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let (ledger, entry) = resolve(ledgers, &args.entry, io).await?;
    let rules = match rules {
        Err(failure) if entry.letter.is_some() => return Err(failure),
        rules => rules.unwrap_or_default(),
    };
    let around = match &entry.letter {
        Some(letter) => {
            Some(Around::look(ledger, &entry, letter, &rules).await.map_err(Failure::store(ledger.name()))?)
        }
        None => None,
    };
    let account = Account::of(ledger.name(), &rules, &entry, around.as_ref());
    match args.output {
        Output::Json => io.json(&account)?,
        Output::Text => account.write(io)?,
    }
    Ok(())
}

/// The entry that is meant, with its source. One that is in no DLQ is where it is in flight, or where the log tells of it.
async fn resolve<'a>(
    ledgers: &'a [Arc<dyn RetryLedger>],
    text: &'a str,
    io: &mut Io<'_>,
) -> Result<(&'a dyn RetryLedger, Entry), Failure> {
    if let Some((ledger, raw)) = find(ledgers, text).await? {
        return Ok((ledger, look(ledger, &raw.letter.entry_id).await?));
    }
    let (sources, name) = split(ledgers, text)?;
    let mut looked = Vec::new();
    for ledger in sources.iter().copied().filter(|ledger| ledger.is_entry_id(name)) {
        looked.push((ledger, look(ledger, name).await?));
    }
    if looked.is_empty() {
        return of_job(&sources, name, io).await;
    }
    // Of the only one there is it can at least be said that nothing is known of it.
    if looked.len() > 1 {
        looked.retain(|(_, entry)| entry.is_known());
    }
    match (looked.pop(), looked.pop()) {
        (Some(only), None) => Ok(only),
        (Some((one, _)), Some((two, _))) => {
            let (one, two) = (one.name(), two.name());
            Err(Failure::Usage(format!(
                "{0} was an entry of {two} and of {one}; write {two}/{0} or {one}/{0}",
                line(name)
            )))
        }
        (None, _) => Err(Failure::Failed(format!(
            "no source knows of the entry {}: it is in no DLQ, it is not in flight, and no audit log tells of it",
            line(name)
        ))),
    }
}

async fn look(ledger: &dyn RetryLedger, entry: &str) -> Result<Entry, Failure> {
    Entry::look(ledger, entry).await.map_err(Failure::store(ledger.name()))
}

/// The entry of a job that says most: the one in flight, else its newest one in a DLQ, else the last one that the log
/// tells of.
async fn of_job<'a>(
    sources: &[&'a dyn RetryLedger],
    job_id: &str,
    io: &mut Io<'_>,
) -> Result<(&'a dyn RetryLedger, Entry), Failure> {
    let nobody = || {
        format!("no entry is called {0}, and no job: it is in no DLQ, not in flight, and in no audit log", line(job_id))
    };
    if job_id.is_empty() {
        return Err(Failure::Failed(nobody()));
    }
    for ledger in sources {
        let flights = ledger.flights().await.map_err(Failure::store(ledger.name()))?;
        if let Some(flight) = flights.iter().find(|flight| flight.dead.job_id.as_deref() == Some(job_id)) {
            return Ok((*ledger, look(*ledger, &flight.dead.entry_id).await?));
        }
    }
    for ledger in sources {
        if let Some(entry) = newest_of_job(*ledger, job_id, io).await? {
            return Ok((*ledger, look(*ledger, &entry).await?));
        }
    }
    for ledger in sources {
        let log = Log::search(*ledger, "", job_id, Extent::Newest).await.map_err(Failure::store(ledger.name()))?;
        if let Some(line) = log.lines.first() {
            return Ok((*ledger, look(*ledger, &line.entry_id).await?));
        }
    }
    Err(Failure::Failed(nobody()))
}

/// A job's newest entry in a DLQ.
async fn newest_of_job(ledger: &dyn RetryLedger, job_id: &str, io: &mut Io<'_>) -> Result<Option<String>, Failure> {
    let entries = ledger.overview().await.map_err(Failure::store(ledger.name()))?.entries;
    let everything = Filter::default();
    let (mut walk, mut progress) = (Walk::new(ledger, &everything, Millis(0), None), Progress::new(true));
    while let Some(letters) = walk.letters().await.map_err(Failure::store(ledger.name()))? {
        if let Some(letter) = letters.into_iter().find(|letter| letter.job_id == job_id) {
            progress.clear(io)?;
            return Ok(Some(letter.entry_id));
        }
        progress.show(ledger.name(), walk.scanned, entries, io)?;
    }
    progress.clear(io)?;
    Ok(None)
}
