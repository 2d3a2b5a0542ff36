//! `sexton errors`: every failed attempt of an entry or a job, not just the last.

use std::{
    io::{self, Write},
    sync::Arc,
};

use clap::Args;
use serde::Serialize;

use super::{
    exit::Failure,
    filter::{Filter, Walk},
    io::Io,
    show::Output,
    source::{SourceArgs, find, named, split, store_time},
    text::{count, counted, cut_line, line, when},
};
use crate::{
    event::rfc3339,
    ledger::Ledger,
    letter::{DeadLetter, ErrorInfo, Millis, Reason, Verdict},
};

/// Characters of an error that a line shows at most.
const LONGEST_ERROR: usize = 2_000;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton errors 1795972370488-0
  sexton errors orders/1795972370488-0
  sexton errors d40ec568-02f6-4bdc-b5f5-0f3f4f9e34b5
  sexton errors 1795972370488-0 -o json

Attempts are numbered from 1, oldest first. For a job id every source is searched
to its end, and all its deaths that are still in a DLQ are shown, oldest first.
Frameworks keep a limited number of attempts, so the first ones may be missing.";

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

/// What the attempts of a job say together.
pub(super) fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "all attempts failed the same way",
        Verdict::Mixed => "attempts failed in different ways",
        Verdict::Unknown => "too few attempts to tell",
    }
}

/// One failed attempt, or what ended the job without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AttemptShown {
    /// Counted from 1; none where the record does not say, and for a burial that was no failed attempt.
    number: Option<u32>,
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
}

impl AttemptShown {
    fn new(number: Option<u32>, error: &ErrorInfo) -> AttemptShown {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        AttemptShown { number, kind: text(&error.kind), message: text(&error.message) }
    }
}

/// The recorded attempts, oldest first, and the last failure after them.
pub(super) fn attempts_of(letter: &DeadLetter) -> Vec<AttemptShown> {
    let recorded = letter
        .history
        .iter()
        .map(|attempt| AttemptShown::new(attempt.number.map(|number| number.saturating_add(1)), &attempt.error));
    let last = match letter.reason {
        Reason::MaxAttempts => Some(AttemptShown::new((letter.attempts > 0).then_some(letter.attempts), &letter.error)),
        // The job was not buried for failing; what is said of it still belongs at the end.
        _ if letter.error != ErrorInfo::default() => Some(AttemptShown::new(None, &letter.error)),
        _ => None,
    };
    recorded.chain(last).collect()
}

/// Writes attempts as indented lines, numbers to the right.
pub(super) fn write_attempts(out: &mut dyn Write, attempts: &[AttemptShown]) -> io::Result<()> {
    if attempts.is_empty() {
        return writeln!(out, "  none recorded");
    }
    if let Some(first) = attempts.iter().find_map(|attempt| attempt.number).filter(|first| *first > 1) {
        writeln!(out, "  {} before these, not recorded", counted((first - 1).into(), "attempt", "attempts"))?;
    }
    for attempt in attempts {
        let error = ErrorInfo {
            kind: attempt.kind.clone().unwrap_or_default(),
            message: attempt.message.clone().unwrap_or_default(),
        }
        .to_string();
        let number = attempt.number.map_or_else(|| "-".to_owned(), |number| count(number.into()));
        writeln!(
            out,
            "  {number:>4}  {}",
            if error.is_empty() { "-".into() } else { cut_line(&error, LONGEST_ERROR) }
        )?;
    }
    Ok(())
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
    /// `same`, `mixed` or `unknown`.
    history: &'static str,
    attempts: Vec<AttemptShown>,
    #[serde(skip)]
    died: Millis,
    #[serde(skip)]
    verdict: Verdict,
}

impl Death {
    fn of(source: &str, letter: &DeadLetter) -> Death {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Death {
            source: source.to_owned(),
            entry_id: letter.entry_id.clone(),
            job_id: text(&letter.job_id),
            task: text(&letter.task),
            reason: text(letter.reason.as_str()),
            died_at: rfc3339(letter.died_at),
            history: letter.verdict.as_str(),
            attempts: attempts_of(letter),
            died: letter.died_at,
            verdict: letter.verdict,
        }
    }
}

/// Shows every failed attempt.
pub(super) async fn errors(ledgers: &[Arc<dyn Ledger>], args: &ErrorsArgs, io: &mut Io<'_>) -> Result<(), Failure> {
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
        writeln!(io.out, "{}/{}  {}", death.source, line(&death.entry_id), when(now, death.died))?;
        writeln!(io.out, "job {}, task {}, reason {}", dash(&death.job_id), dash(&death.task), dash(&death.reason))?;
        write_attempts(io.out, &death.attempts)?;
        writeln!(io.out, "{}", in_words(death.verdict))?;
    }
    Ok(())
}

/// All deaths of a job that are still in a DLQ, oldest first.
async fn of_job(ledgers: &[Arc<dyn Ledger>], text: &str) -> Result<Vec<Death>, Failure> {
    let (sources, job_id) = split(ledgers, text);
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
    deaths.sort_by_key(|death| death.died);
    Ok(deaths)
}
