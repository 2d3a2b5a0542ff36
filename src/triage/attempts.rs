//! The failed attempts of a job as a letter records them, life by life, and what the letter's detail is worth.
//!
//! Only a burial for attempts that were used up was itself a failed attempt; whatever else ended a job stands beside
//! its attempts, not among them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    event::ErrorText,
    letter::{Account, Attempt, DeadLetter, ErrorInfo, Reason, last_life, lives},
};

/// Every Python traceback has it, an exception group's with words before it.
const TRACEBACK: &[u8] = b"Traceback (most recent call last):";

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FailedAttempt {
    /// Which of the known lives of the job it belongs to, counted from 1.
    pub life: u32,
    /// Counted from 1 within the life; none where the record does not say.
    pub number: Option<u32>,
    /// Both none where the record does not tell how it failed.
    #[serde(flatten)]
    pub error: ErrorText,
    /// `Type: message`, or empty.
    #[serde(skip)]
    pub line: String,
}

impl FailedAttempt {
    fn new(life: usize, number: Option<u32>, error: &ErrorInfo) -> FailedAttempt {
        let life = u32::try_from(life).unwrap_or(u32::MAX);
        FailedAttempt { life, number, error: error.into(), line: error.to_string() }
    }
}

/// The known lives of a job, oldest first, each with its attempts, oldest first. The last life may have none.
pub fn lives_of(letter: &DeadLetter) -> Vec<Vec<FailedAttempt>> {
    let mut shown: Vec<Vec<FailedAttempt>> = Vec::new();
    for (life, attempts) in (1..).zip(lives(&letter.history)) {
        let attempt = |attempt: &Attempt| {
            FailedAttempt::new(life, attempt.number.map(|number| number.saturating_add(1)), &attempt.error)
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
        last.push(FailedAttempt::new(life, (letter.attempts > 0).then_some(letter.attempts), &error));
    }
    shown
}

/// What a letter's detail is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// A traceback; else whatever the framework had to say.
    pub is_traceback: bool,
    /// A traceback that ends before it is told.
    pub is_cut: bool,
    /// The last failure is not in it, so the letter's error is that of the newest recorded attempt.
    pub lost: bool,
}

impl Detail {
    /// Of this letter.
    pub fn of(letter: &DeadLetter) -> Detail {
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

    /// Why the letter's error is not that of the last failure, if it is not.
    pub fn why_lost(self) -> Option<&'static str> {
        self.lost.then_some(match self.is_cut {
            true => "the traceback is cut before it tells the last failure",
            false => "the record does not tell the last failure",
        })
    }
}
