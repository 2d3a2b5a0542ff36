//! `sexton retry`, `rm` and `purge`: what a person does to dead letters, one by one or as a filter passes them.

mod bulk;
mod named;
mod words;

use std::sync::Arc;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    exit::{Exit, Failure},
    filter::FilterArgs,
    io::Io,
    source::SourceArgs,
};
use crate::{
    ledger::{Act, By, TriageLedger},
    rule::Rules,
    triage::{Doing, FilterSpec},
};

pub(super) const RETRY_EXAMPLES: &str = "\
Examples:
  sexton retry 1795972370488-0
  sexton retry orders/1795972370488-0 orders/1795972370488-1 --note 'smtp is back'
  sexton retry --error 'smtp.*timed out' --dry-run
  sexton retry --task 'send_*' --older-than 1h --per-second 20 --note INC-4711
  sexton retry --all --source orders --yes

A retry by hand is never refused for its age, a hold, or an allowance that is spent, and
gives the job a fresh allowance. It is refused, and says so, if the entry is gone, the
queue does not exist, the record is no job, its dedup key is another job's, another
retry of it is under way, or the job has a newer entry.

With filters the oldest go first, and only those that were there when it began. What is
meant is counted and asked for. Ctrl-C stops after the piece under way; the same command
again goes on with what is left.

Exit codes: 0 done, also if some of what a filter passed was refused or gone by then;
1 stopped, or an entry that was named could not be retried; 2 usage; 69; 78.";

pub(super) const RM_EXAMPLES: &str = "\
Examples:
  sexton rm 1795972370488-0 --note 'paid by hand'
  sexton rm --group 7c1f0e9a2b44 --dry-run
  sexton rm --task parse_order --older-than 24h --note INC-4711
  sexton rm --all --source orders --yes

What is removed is gone for good, with a line in the audit log for each entry. With
filters the oldest go first, and only those that were there when it began. What is meant
is counted and asked for. Ctrl-C stops after the piece under way; the same command again
goes on with what is left.

Exit codes: 0 done, also if some of what a filter passed was gone by then; 1 stopped, or
an entry that was named was not there; 2 usage; 69; 78.";

pub(super) const PURGE_EXAMPLES: &str = "\
Examples:
  sexton purge --older-than 7d --dry-run
  sexton purge --older-than 30d --source orders --yes
  sexton purge --older-than 24h --task 'report_*' --note 'nobody reads them'

Removes for good what died longer ago than --older-than, oldest first, and prints how
many; the audit log gets a line for each piece, not for each entry, and hooks are told
with dlq.purged. Ctrl-C stops after the piece under way; the same command again goes on
with what is left.

Exit codes: 0 done; 1 stopped; 2 usage; 69; 78.";

/// Arguments of `sexton retry` and `sexton rm`.
#[derive(Args, Clone, Debug)]
pub(super) struct ActArgs {
    /// Entries, as `ls` lists them: ENTRY or SOURCE/ENTRY
    #[arg(value_name = "ENTRY")]
    entries: Vec<String>,

    /// Everything there is, where no filter is given
    #[arg(long, conflicts_with = "entries")]
    all: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    pub(super) source: SourceArgs,
}

/// Arguments of `sexton purge`.
#[derive(Args, Clone, Debug)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    pub(super) source: SourceArgs,
}

/// How it is done.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How")]
struct HowArgs {
    /// Only tell what would be done
    #[arg(long)]
    dry_run: bool,

    /// At most so many entries a second [default: as fast as goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_second: Option<u32>,

    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    note: String,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// How to tell what became of it
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// How a result is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// One document.
    Json,
}

/// What is to be done.
struct Task<'a> {
    doing: Doing<'a>,
    how: &'a HowArgs,
}

/// Retries.
pub(super) async fn retry(
    ledgers: &[Arc<dyn TriageLedger>],
    rules: &Rules,
    args: &ActArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    act(ledgers, Act::Retry, rules, args, io).await
}

/// Removes.
pub(super) async fn remove(ledgers: &[Arc<dyn TriageLedger>], args: &ActArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    act(ledgers, Act::Delete, &Rules::default(), args, io).await
}

/// Removes by age.
pub(super) async fn purge(ledgers: &[Arc<dyn TriageLedger>], args: &PurgeArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    if args.filter.older_than.is_none() {
        return Err(Failure::Usage("say how old: --older-than 7d".to_owned()));
    }
    let rules = Rules::default();
    bulk::run(ledgers, &Task::of(Act::Purge, &rules, &args.how), &args.filter, io).await
}

async fn act(
    ledgers: &[Arc<dyn TriageLedger>],
    act: Act,
    rules: &Rules,
    args: &ActArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let task = Task::of(act, rules, &args.how);
    let spec = args.filter.spec();
    let filtered = spec != FilterSpec::default();
    match (args.entries.is_empty(), filtered, args.all) {
        (false, true, _) => Err(Failure::Usage("name entries, or filter them, but not both".to_owned())),
        (false, false, _) => named::run(ledgers, &task, &args.entries, io).await,
        (true, _, true) if !spec.is_empty() => {
            Err(Failure::Usage("--all means everything: give it without filters, or filters without it".to_owned()))
        }
        (true, _, false) if spec.is_empty() => Err(Failure::Usage(
            "which entries? Name them, or give filters, or --all for everything there is".to_owned(),
        )),
        (true, ..) => bulk::run(ledgers, &task, &args.filter, io).await,
    }
}

impl<'a> Task<'a> {
    fn of(act: Act, rules: &'a Rules, how: &'a HowArgs) -> Task<'a> {
        let by = By { who: who(), note: how.note.clone(), operation: String::new() };
        Task { doing: Doing { act, by, dry_run: how.dry_run, rules }, how }
    }
}

/// Who we are in the audit log: `anna@host`.
fn who() -> String {
    let known = |name: whoami::Result<String>| name.ok().filter(|name| !name.is_empty());
    let user = known(whoami::username()).unwrap_or_else(|| "somebody".to_owned());
    let host = known(whoami::hostname()).unwrap_or_else(|| "somewhere".to_owned());
    format!("{user}@{host}")
}

/// Cancelled by Ctrl-C and whatever else asks a process to stop; the second time it ends at once.
fn stopped_by_signals() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")))?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.is_cancelled() {
                    std::process::exit(Exit::Failed as i32);
                }
                stop.cancel();
            }
        });
    }
    Ok(stop)
}
