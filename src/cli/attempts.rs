//! The failed attempts of a job in words, and what stands over the letter's detail.

use std::io::{self, Write};

use super::text::{count, counted, cut_line};
use crate::{
    letter::Verdict,
    triage::{Detail, FailedAttempt},
};

/// Characters of an error that a line shows.
pub(super) const LONGEST_ERROR: usize = 2_000;

/// What the attempts of a job's last life say together.
pub(super) fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "all attempts failed the same way",
        Verdict::Mixed => "attempts failed in different ways",
        Verdict::Unknown => "too few attempts to tell",
    }
}

/// Writes lives as indented lines, numbers to the right, with a break between two of them.
pub(super) fn write_lives(out: &mut dyn Write, lives: &[Vec<FailedAttempt>]) -> io::Result<()> {
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

/// What stands over a letter's detail.
pub(super) fn heading(detail: Detail, bytes: usize) -> String {
    let size = counted(bytes as u64, "byte", "bytes");
    match (detail.is_traceback, detail.is_cut) {
        (false, _) => format!("Detail ({size})"),
        (true, false) => format!("Traceback ({size})"),
        (true, true) => format!("Traceback ({size}, cut: the framework kept no more)"),
    }
}
