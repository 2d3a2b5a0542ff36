//! `sexton explain`: why an entry was or was not retried, and when it will be.

mod shown;

use std::sync::Arc;

use clap::Args;

use super::{
    exit::Failure,
    io::Io,
    progress::Progress,
    show::Output,
    source::{RuledArgs, find, split},
    text::line,
};
use crate::{ledger::TriageLedger, rule::Rules, triage::Looked};

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
    ledgers: &[Arc<dyn TriageLedger>],
    rules: Result<Rules, Failure>,
    args: &ExplainArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let looked = resolve(ledgers, &args.entry, io).await?;
    let rules = match rules {
        Err(failure) if looked.is_in_dlq() => return Err(failure),
        rules => rules.unwrap_or_default(),
    };
    let account = looked.explain(&rules).await?;
    match args.output {
        Output::Json => io.json(&account)?,
        Output::Text => shown::write(&account, io)?,
    }
    Ok(())
}

/// The entry that is meant, with its source. One that is in no DLQ is where it is in flight, or where the log tells of it.
async fn resolve<'a>(
    ledgers: &'a [Arc<dyn TriageLedger>],
    text: &'a str,
    io: &mut Io<'_>,
) -> Result<Looked<'a>, Failure> {
    if let Some((ledger, raw)) = find(ledgers, text).await? {
        return Ok(Looked::at(ledger, &raw.letter.entry_id).await?);
    }
    let (sources, name) = split(ledgers, text)?;
    let mut looked = Vec::new();
    for ledger in sources.iter().copied().filter(|ledger| ledger.is_entry_id(name)) {
        looked.push(Looked::at(ledger, name).await?);
    }
    if looked.is_empty() {
        let mut progress = Progress::of_search(io.screen);
        let found = Looked::at_job(&sources, name, &mut progress.told()).await;
        progress.clear();
        return found?.ok_or_else(|| {
            Failure::Failed(format!(
                "no entry is called {0}, and no job: it is in no DLQ, not in flight, and in no audit log",
                line(name)
            ))
        });
    }
    // Of the only one there is it can at least be said that nothing is known of it.
    if looked.len() > 1 {
        looked.retain(Looked::is_known);
    }
    match (looked.pop(), looked.pop()) {
        (Some(only), None) => Ok(only),
        (Some(one), Some(two)) => {
            let (one, two) = (one.source(), two.source());
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
