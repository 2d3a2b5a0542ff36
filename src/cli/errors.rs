//! `sexton errors`: every failed attempt of an entry or a job, not just the last.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{
    attempts::{AttemptShown, Detail, LONGEST_ERROR, in_words, lives_of, write_lives},
    exit::Failure,
    filter::{Filter, Walk},
    io::Io,
    show::Output,
    source::{SourceArgs, find, named, split, store_time},
    text::{count, cut_line, line, when},
};
use crate::{
    event::{ErrorText, rfc3339, text},
    ledger::RetryLedger,
    letter::{DeadLetter, Millis, Reason, Verdict},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton errors 1795972370488-0
  sexton errors orders/1795972370488-0
  sexton errors d40ec568-02f6-4bdc-b5f5-0f3f4f9e34b5
  sexton errors 1795972370488-0 -o json

Attempts are numbered from 1 within each life of the job, oldest first: a job that was
put back begins another life. For a job id every source is searched to its end, and
all its deaths that are still in a DLQ are shown, oldest first. Frameworks keep a
limited number of attempts, so the first ones may be missing.";

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

/// One death with its attempts.
#[derive(Debug, Serialize)]
struct Death {
    source: String,
    entry_id: String,
    job_id: Option<String>,
    task: Option<String>,
    reason: Option<String>,
    died_at: Option<String>,
    /// As in the `job.dead` event.
    error: ErrorText,
    /// `same`, `mixed` or `unknown`, of the job's last life.
    history: &'static str,
    /// Life after life.
    attempts: Vec<AttemptShown>,
    #[serde(skip)]
    shown: Shown,
}

/// What only the text shows, or shows otherwise.
#[derive(Debug)]
struct Shown {
    died: Millis,
    verdict: Verdict,
    lives: Vec<Vec<AttemptShown>>,
    /// What ended the job, where that was no failed attempt.
    ended_by: Option<String>,
    why_lost: Option<&'static str>,
}

impl Death {
    fn of(source: &str, letter: &DeadLetter) -> Death {
        let lives = lives_of(letter);
        Death {
            source: source.to_owned(),
            entry_id: letter.entry_id.clone(),
            job_id: text(&letter.job_id),
            task: text(&letter.task),
            reason: text(letter.reason.as_str()),
            died_at: rfc3339(letter.died_at),
            error: ErrorText::from(&letter.error),
            history: letter.verdict.as_str(),
            attempts: lives.concat(),
            shown: Shown {
                died: letter.died_at,
                verdict: letter.verdict,
                lives,
                ended_by: (letter.reason != Reason::MaxAttempts && !letter.error.is_empty())
                    .then(|| letter.error.to_string()),
                why_lost: Detail::of(letter).why_lost(),
            },
        }
    }
}

/// Shows every failed attempt.
pub(super) async fn errors(
    ledgers: &[Arc<dyn RetryLedger>],
    args: &ErrorsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let deaths = match find(ledgers, &args.entry).await? {
        Some((ledger, raw)) => vec![Death::of(ledger.name(), &raw.letter)],
        None => of_job(ledgers, &args.entry).await?,
    };
    if deaths.is_empty() {
        return Err(Failure::Failed(format!("no entry and no job in a DLQ is called {}", line(&args.entry))));
    }
    if args.output == Output::Json {
        #[derive(Serialize)]
        struct Items {
            items: Vec<Death>,
        }
        io.json(&Items { items: deaths })?;
        return Ok(());
    }
    let total = deaths.len() as u64;
    for (number, death) in (1..).zip(&deaths) {
        if number > 1 {
            writeln!(io.out)?;
        }
        let now = store_time(named(ledgers, &death.source)?).await?;
        let dash = |text: &Option<String>| text.as_deref().map_or("-".into(), |text| line(text).into_owned());
        if total > 1 {
            write!(io.out, "Death {} of {}: ", count(number), count(total))?;
        }
        writeln!(io.out, "{}/{}  {}", death.source, line(&death.entry_id), when(now, death.shown.died))?;
        writeln!(io.out, "job {}, task {}, reason {}", dash(&death.job_id), dash(&death.task), dash(&death.reason))?;
        write_lives(io.out, &death.shown.lives)?;
        if let Some(error) = &death.shown.ended_by {
            writeln!(io.out, "ended by: {}", cut_line(error, LONGEST_ERROR))?;
        }
        if let Some(why) = death.shown.why_lost {
            writeln!(io.out, "{why}")?;
        }
        writeln!(io.out, "{}", in_words(death.shown.verdict))?;
    }
    Ok(())
}

/// All deaths of a job that are still in a DLQ, oldest first.
async fn of_job(ledgers: &[Arc<dyn RetryLedger>], text: &str) -> Result<Vec<Death>, Failure> {
    let (sources, job_id) = split(ledgers, text)?;
    let everything = Filter::default();
    let mut deaths = Vec::new();
    if job_id.is_empty() {
        return Ok(deaths);
    }
    for ledger in sources {
        let mut walk = Walk::new(ledger, &everything, Millis(0), None);
        while let Some(letters) = walk.letters().await.map_err(Failure::store(ledger.name()))? {
            let mine = letters.iter().filter(|letter| letter.job_id == job_id);
            deaths.extend(mine.map(|letter| Death::of(ledger.name(), letter)));
        }
    }
    deaths.reverse();
    deaths.sort_by_key(|death| death.shown.died);
    Ok(deaths)
}
