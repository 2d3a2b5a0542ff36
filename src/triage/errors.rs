//! Every failed attempt of a job over all its deaths that are in the DLQ, not just the last.

use std::collections::HashSet;

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Detail, Error, FailedAttempt, Filter, Result, lives_of,
    walk::{Order, PIECE, Progress, Tell, Walk},
};
use crate::{
    event::{ErrorText, rfc3339, text},
    ledger::{self, TriageLedger},
    letter::{Attempt, DeadLetter, Millis, Reason, Verdict},
};

/// Deaths that are told at most, the newest: a job with more is none.
const MOST: usize = 1_000;

/// The deaths of a job, oldest first, as `-o json` prints them.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Deaths {
    /// One for each entry of the job.
    pub items: Vec<Death>,
    /// `same`, `mixed` or `unknown`, over all of them.
    pub history: &'static str,
    /// False if the job has more entries than are told; then these are the newest.
    pub complete: bool,
    /// The same as `history`.
    #[serde(skip)]
    pub verdict: Verdict,
}

/// One death with its attempts.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Death {
    /// The source's name.
    pub source: String,
    /// The entry.
    pub entry_id: String,
    /// The job.
    pub job_id: Option<String>,
    /// The task.
    pub task: Option<String>,
    /// Why it was buried.
    pub reason: Option<String>,
    /// When.
    pub died_at: Option<String>,
    /// As in the `job.dead` event.
    pub error: ErrorText,
    /// `same`, `mixed` or `unknown`, of the job's last life.
    pub history: &'static str,
    /// Life after life.
    pub attempts: Vec<FailedAttempt>,
    /// What a text shows beside these, or shows otherwise.
    #[serde(skip)]
    pub seen: DeathSeen,
}

/// What only a text shows, or shows otherwise.
#[derive(Clone, Debug)]
pub struct DeathSeen {
    /// When it was buried.
    pub died: Millis,
    /// The last life's verdict.
    pub verdict: Verdict,
    /// The attempts, life by life.
    pub lives: Vec<Vec<FailedAttempt>>,
    /// What ended the job, where that was no failed attempt.
    pub ended_by: Option<String>,
    /// Why the error is not that of the last failure, if it is not.
    pub why_lost: Option<&'static str>,
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
            seen: DeathSeen {
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

impl Deaths {
    fn of(mut letters: Vec<(&str, DeadLetter)>) -> Deaths {
        let complete = letters.len() < MOST;
        letters.sort_by(|(_, a), (_, b)| (a.died_at, &a.entry_id).cmp(&(b.died_at, &b.entry_id)));
        let verdict = match &*letters {
            [(_, only)] => only.verdict,
            several => over(several),
        };
        let items = letters.iter().map(|(source, letter)| Death::of(source, letter)).collect();
        Deaths { items, history: verdict.as_str(), complete, verdict }
    }
}

/// The verdict over all attempts that several entries know of. A later one repeats what an earlier one has recorded,
/// which counts once: else a single failure that was recorded twice would pass for two that are alike.
fn over(letters: &[(&str, DeadLetter)]) -> Verdict {
    let mut seen = HashSet::new();
    let mut attempts = Vec::new();
    for (_, letter) in letters {
        for attempt in &letter.history {
            if seen.insert((attempt.number, attempt.error.to_string())) {
                attempts.push(attempt.clone());
            }
        }
        if letter.reason == Reason::MaxAttempts && !Detail::of(letter).lost && !letter.error.is_empty() {
            attempts.push(Attempt { number: None, error: letter.error.clone() });
        }
    }
    Verdict::over(&attempts, None)
}

/// The deaths of an entry's job that are in this DLQ, the entry among them; none if it is not there.
pub async fn deaths_of_entry(ledger: &dyn TriageLedger, entry_id: &str, tell: Tell<'_>) -> Result<Option<Deaths>> {
    let Some(raw) = ledger.entry(entry_id).await.map_err(Error::of(ledger))? else { return Ok(None) };
    let mut letters = match raw.letter.job_id.as_str() {
        "" => Vec::new(),
        job_id => of_job(ledger, job_id, tell).await.map_err(Error::of(ledger))?,
    };
    if !letters.iter().any(|letter| letter.entry_id == entry_id) {
        letters.push(raw.letter);
    }
    Ok(Some(Deaths::of(letters.into_iter().map(|letter| (ledger.name(), letter)).collect())))
}

/// The deaths of a job that are in one of these DLQs, perhaps none.
pub async fn deaths_of_job(sources: &[&dyn TriageLedger], job_id: &str, tell: Tell<'_>) -> Result<Deaths> {
    let mut all = Vec::new();
    for &ledger in sources.iter().filter(|_| !job_id.is_empty()) {
        let letters = of_job(ledger, job_id, tell).await.map_err(Error::of(ledger))?;
        all.extend(letters.into_iter().map(|letter| (ledger.name(), letter)));
    }
    Ok(Deaths::of(all))
}

async fn of_job(ledger: &dyn TriageLedger, job_id: &str, tell: Tell<'_>) -> ledger::Result<Vec<DeadLetter>> {
    let entries = ledger.overview().await?.entries;
    let everything = Filter::default();
    let mut walk = Walk::new(ledger, &everything, Millis(0), Order::NewestFirst).of_job(job_id);
    let mut found = Vec::new();
    while found.len() < MOST
        && let Some(letters) = walk.next(PIECE.min(MOST - found.len())).await?
    {
        found.extend(letters);
        tell(Progress { source: ledger.name(), looked_at: walk.looked_at(), entries });
    }
    Ok(found)
}
