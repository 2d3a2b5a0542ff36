//! The failed attempts of a job as a letter records them, life by life, and what the letter's detail is worth.
//!
//! Only a burial for attempts that were used up was itself a failed attempt; whatever else ended a job stands beside
//! its attempts, not among them.

use std::io::{self, Write};

use serde::Serialize;

use super::text::{count, counted, cut_line};
use crate::{
    event::ErrorText,
    letter::{Account, Attempt, DeadLetter, ErrorInfo, Reason, Verdict, last_life, lives},
};

/// Characters of an error that a line shows.
pub(super) const LONGEST_ERROR: usize = 2_000;
/// Every Python traceback has it, an exception group's with words before it.
const TRACEBACK: &[u8] = b"Traceback (most recent call last):";

/// What the attempts of a job's last life say together.
pub(super) fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "all attempts failed the same way",
        Verdict::Mixed => "attempts failed in different ways",
        Verdict::Unknown => "too few attempts to tell",
    }
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AttemptShown {
    /// Which of the known lives of the job it belongs to, counted from 1.
    pub(super) life: u32,
    /// Counted from 1 within the life; none where the record does not say.
    number: Option<u32>,
    /// Both none where the record does not tell how it failed.
    #[serde(flatten)]
    error: ErrorText,
    #[serde(skip)]
    line: String,
}

impl AttemptShown {
    fn new(life: usize, number: Option<u32>, error: &ErrorInfo) -> AttemptShown {
        let life = u32::try_from(life).unwrap_or(u32::MAX);
        AttemptShown { life, number, error: error.into(), line: error.to_string() }
    }
}

/// The known lives of a job, oldest first, each with its attempts, oldest first. The last life may have none.
pub(super) fn lives_of(letter: &DeadLetter) -> Vec<Vec<AttemptShown>> {
    let mut shown: Vec<Vec<AttemptShown>> = Vec::new();
    for (life, attempts) in (1..).zip(lives(&letter.history)) {
        let attempt = |attempt: &Attempt| {
            AttemptShown::new(life, attempt.number.map(|number| number.saturating_add(1)), &attempt.error)
        };
        shown.push(attempts.iter().map(attempt).collect());
    }
    let is_attempt = letter.reason == Reason::MaxAttempts;
    let recorded = letter.attempts.checked_sub(u32::from(is_attempt));
    if shown.is_empty() || last_life(&letter.history, recorded).is_empty() {
        shown.push(Vec::new());
    }
    let life = shown.len();
    if let Some(last) = shown.last_mut()
        && is_attempt
    {
        let error = if Detail::of(letter).lost { ErrorInfo::default() } else { letter.error.clone() };
        last.push(AttemptShown::new(life, (letter.attempts > 0).then_some(letter.attempts), &error));
    }
    shown
}

/// Writes lives as indented lines, numbers to the right, with a break between two of them.
pub(super) fn write_lives(out: &mut dyn Write, lives: &[Vec<AttemptShown>]) -> io::Result<()> {
    for (nth, life) in lives.iter().enumerate() {
        if nth > 0 {
            writeln!(out, "        — buried, put back, ran again; what buried it is not recorded here —")?;
        }
        if life.is_empty() {
            writeln!(out, "        no failed attempt recorded")?;
        }
        // Later lives are recorded from their beginning on.
        let first = life.first().and_then(|attempt| attempt.number).filter(|first| nth == 0 && *first > 1);
        if let Some(first) = first {
            writeln!(out, "        {} before these, not recorded", counted((first - 1).into(), "attempt", "attempts"))?;
        }
        for attempt in life {
            let error = match attempt.line.as_str() {
                "" => "the record does not tell how".into(),
                error => cut_line(error, LONGEST_ERROR),
            };
            let number = attempt.number.map_or_else(|| "-".to_owned(), |number| count(number.into()));
            writeln!(out, "  {number:>4}  {error}")?;
        }
    }
    Ok(())
}

/// What a letter's detail is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Detail {
    /// A traceback; else whatever the framework had to say.
    pub(super) is_traceback: bool,
    /// A traceback that ends before it is told.
    pub(super) is_cut: bool,
    /// The last failure is not in it, so the letter's error is that of the newest recorded attempt.
    pub(super) lost: bool,
}

impl Detail {
    /// Of this letter.
    pub(super) fn of(letter: &DeadLetter) -> Detail {
        let is_traceback = letter.detail.windows(TRACEBACK.len()).any(|part| part == TRACEBACK);
        let account = Account::read(&letter.detail);
        // For any other burial the detail is no account of a failed attempt.
        let of_attempt = matches!(letter.reason, Reason::MaxAttempts | Reason::Other(_));
        Detail {
            is_traceback,
            is_cut: is_traceback && !account.complete,
            lost: of_attempt
                && account.error != letter.error
                && letter.history.last().is_some_and(|newest| newest.error == letter.error),
        }
    }

    /// What stands over it.
    pub(super) fn heading(self, bytes: usize) -> String {
        let size = counted(bytes as u64, "byte", "bytes");
        match (self.is_traceback, self.is_cut) {
            (false, _) => format!("Detail ({size})"),
            (true, false) => format!("Traceback ({size})"),
            (true, true) => format!("Traceback ({size}, cut: the framework kept no more)"),
        }
    }

    /// Why the letter's error is not that of the last failure, if it is not.
    pub(super) fn why_lost(self) -> Option<&'static str> {
        self.lost.then_some(match self.is_cut {
            true => "the traceback is cut before it tells the last failure",
            false => "the record does not tell the last failure",
        })
    }
}
