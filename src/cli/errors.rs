//! `sexton errors`: every failed attempt of an entry or a job, not just the last.

use std::sync::Arc;

use clap::Args;

use super::{
    attempts::{LONGEST_ERROR, in_words, write_lives},
    exit::Failure,
    io::Io,
    progress::Progress,
    show::Output,
    source::{SourceArgs, find, named, split, store_time},
    text::{count, cut_line, line, when},
};
use crate::{
    ledger::TriageLedger,
    triage::{Deaths, deaths_of_entry, deaths_of_job},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton errors 1795972370488-0
  sexton errors orders/1795972370488-0
  sexton errors d40ec568-02f6-4bdc-b5f5-0f3f4f9e34b5
  sexton errors 1795972370488-0 -o json

Attempts are numbered from 1 within each life of the job, oldest first: a job that was
put back begins another life. All deaths of the job that are still in the DLQ are
shown, oldest first, so the DLQ is searched to its end; for a job id, every DLQ.
Frameworks keep a limited number of attempts, so the first ones may be missing.

The words in the end say whether they failed the same way (a real bug, or one thing
that is down) or in different ways (an unhealthy dependency).

`-o json` has in `items` the deaths (source, entry_id, job_id, task, reason, died_at,
error, history, attempts with life, number, type and message), in `history` same, mixed
or unknown over all of them, and in `complete` false if only the newest 1,000 are told.";

/// Arguments of `sexton errors`.
#[derive(Args, Clone, Debug)]
pub(super) struct ErrorsArgs {
    /// An entry (ENTRY or SOURCE/ENTRY), or the id of a job
    #[arg(value_name = "ENTRY|JOB")]
    entry: String,

    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// Shows every failed attempt.
pub(super) async fn errors(
    ledgers: &[Arc<dyn TriageLedger>],
    args: &ErrorsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let mut progress = Progress::of_search(io.screen);
    let deaths = match find(ledgers, &args.entry).await? {
        Some((ledger, raw)) => deaths_of_entry(ledger, &raw.letter.entry_id, &mut progress.told()).await?,
        None => {
            let (sources, job_id) = split(ledgers, &args.entry)?;
            Some(deaths_of_job(&sources, job_id, &mut progress.told()).await?)
        }
    };
    progress.clear();
    let Some(deaths) = deaths.filter(|deaths| !deaths.items.is_empty()) else {
        return Err(Failure::Failed(format!("no entry and no job in a DLQ is called {}", line(&args.entry))));
    };
    match args.output {
        Output::Json => Ok(io.json(&deaths)?),
        Output::Text => write(ledgers, &deaths, io).await,
    }
}

async fn write(ledgers: &[Arc<dyn TriageLedger>], deaths: &Deaths, io: &mut Io<'_>) -> Result<(), Failure> {
    let total = deaths.items.len() as u64;
    for (number, death) in (1..).zip(&deaths.items) {
        if number > 1 {
            writeln!(io.out)?;
        }
        let now = store_time(named(ledgers, &death.source)?).await?;
        let dash = |text: &Option<String>| text.as_deref().map_or("-".into(), |text| line(text).into_owned());
        if total > 1 {
            write!(io.out, "Death {} of {}: ", count(number), count(total))?;
        }
        writeln!(io.out, "{}/{}  {}", death.source, line(&death.entry_id), when(now, death.seen.died))?;
        writeln!(io.out, "job {}, task {}, reason {}", dash(&death.job_id), dash(&death.task), dash(&death.reason))?;
        write_lives(io.out, &death.seen.lives)?;
        if let Some(error) = &death.seen.ended_by {
            writeln!(io.out, "ended by: {}", cut_line(error, LONGEST_ERROR))?;
        }
        if let Some(why) = death.seen.why_lost {
            writeln!(io.out, "{why}")?;
        }
        writeln!(io.out, "{}", in_words(death.seen.verdict))?;
    }
    if !deaths.complete {
        writeln!(io.out, "\nthere are more deaths of it, older than these")?;
    }
    if total > 1 {
        writeln!(io.out, "\nover all {} deaths: {}", count(total), in_words(deaths.verdict))?;
    }
    Ok(())
}
