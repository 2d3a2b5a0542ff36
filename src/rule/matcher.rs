//! `match:` — every given field must match.

use std::{borrow::Cow, cell::LazyCell};

use regex::Regex;

use super::Globs;
use crate::{event::JobDead, letter::DeadLetter};

/// The conditions of a `match:`; an empty one matches everything.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Globs on the source's name.
    pub source: Option<Globs>,
    /// Globs on the queue's name.
    pub queue: Option<Globs>,
    /// Globs on the task's name.
    pub task: Option<Globs>,
    /// Reasons, as the framework names them.
    pub reason: Option<Vec<String>>,
    /// Regular expression on `Type: message`.
    pub error: Option<Regex>,
    /// `same`, `mixed` or `unknown`; none for `any`.
    pub history: Option<String>,
    /// Fingerprints.
    pub group: Option<Vec<String>>,
}

/// What a matcher looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// The source's name.
    pub source: &'a str,
    /// The queue's name.
    pub queue: &'a str,
    /// The task's name.
    pub task: &'a str,
    /// Why it was buried.
    pub reason: &'a str,
    /// The exception's type.
    pub error_type: &'a str,
    /// The exception's message.
    pub error_message: &'a str,
    /// `same`, `mixed` or `unknown`.
    pub history: &'a str,
    /// The fingerprint.
    pub group: &'a str,
}

impl<'a> Subject<'a> {
    /// A dead letter of this source.
    pub fn of(source: &'a str, letter: &'a DeadLetter) -> Subject<'a> {
        Subject {
            source,
            queue: &letter.queue,
            task: &letter.task,
            reason: letter.reason.as_str(),
            error_type: &letter.error.kind,
            error_message: &letter.error.message,
            history: letter.verdict.as_str(),
            group: &letter.group.0,
        }
    }
}

impl<'a> From<&'a JobDead> for Subject<'a> {
    fn from(event: &'a JobDead) -> Subject<'a> {
        Subject {
            source: &event.source,
            queue: event.queue.as_deref().unwrap_or_default(),
            task: event.task.as_deref().unwrap_or_default(),
            reason: event.reason.as_deref().unwrap_or_default(),
            error_type: event.error.kind.as_deref().unwrap_or_default(),
            error_message: event.error.message.as_deref().unwrap_or_default(),
            history: &event.history,
            group: &event.group,
        }
    }
}

impl Matcher {
    /// True if every given condition holds.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.matches_line(subject, &LazyCell::new(|| subject.error_line()))
    }

    /// As `matches`, for who asks several matchers about one subject: its error line is put together at most once.
    pub(super) fn matches_line<'a, F: FnOnce() -> Cow<'a, str>>(
        &self,
        subject: &Subject<'_>,
        line: &LazyCell<Cow<'a, str>, F>,
    ) -> bool {
        let glob = |globs: &Option<Globs>, name: &str| globs.as_ref().is_none_or(|globs| globs.is_match(name));
        let listed = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|listed| listed == name))
        };
        glob(&self.source, subject.source)
            && glob(&self.queue, subject.queue)
            && glob(&self.task, subject.task)
            && listed(&self.reason, subject.reason)
            && self.history.as_ref().is_none_or(|history| history == subject.history)
            && listed(&self.group, subject.group)
            && self.error.as_ref().is_none_or(|error| error.is_match(line))
    }
}

impl<'a> Subject<'a> {
    /// `Type: message`, or the one that is there: the form in which errors are shown.
    pub(super) fn error_line(&self) -> Cow<'a, str> {
        match (self.error_type, self.error_message) {
            ("", message) => Cow::Borrowed(message),
            (kind, "") => Cow::Borrowed(kind),
            (kind, message) => Cow::Owned(format!("{kind}: {message}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Include,
        letter::{ErrorInfo, Group, Millis, Reason, Verdict},
    };

    fn globs(patterns: &[&str]) -> Option<Globs> {
        let globs: Vec<_> = patterns.iter().map(|pattern| globset::Glob::new(pattern).unwrap()).collect();
        Some(Globs::new(&globs).unwrap())
    }

    fn regex(pattern: &str) -> Option<Regex> {
        Some(Regex::new(pattern).unwrap())
    }

    fn list(items: &[&str]) -> Option<Vec<String>> {
        Some(items.iter().map(|&item| item.to_owned()).collect())
    }

    const SUBJECT: Subject<'_> = Subject {
        source: "orders",
        queue: "high",
        task: "send_email",
        reason: "max_attempts",
        error_type: "app.Down",
        error_message: "smtp timed out\nsee the runbook",
        history: "same",
        group: "7c1f0e9a2b44",
    };

    #[test]
    fn every_given_condition_must_hold() {
        let any = Matcher::default;
        for (name, matcher, expected) in [
            ("empty", any(), true),
            ("source", Matcher { source: globs(&["ord*"]), ..any() }, true),
            ("another source", Matcher { source: globs(&["payments"]), ..any() }, false),
            ("one of the queues", Matcher { queue: globs(&["low", "h?gh"]), ..any() }, true),
            ("no queue", Matcher { queue: globs(&[]), ..any() }, false),
            ("task", Matcher { task: globs(&["send_*"]), ..any() }, true),
            ("another task", Matcher { task: globs(&["send"]), ..any() }, false),
            ("reason", Matcher { reason: list(&["malformed", "max_attempts"]), ..any() }, true),
            ("another reason", Matcher { reason: list(&["malformed"]), ..any() }, false),
            ("type and message", Matcher { error: regex("^app.Down: smtp timed out"), ..any() }, true),
            ("second line", Matcher { error: regex("(?m)^see"), ..any() }, true),
            ("another error", Matcher { error: regex("refused"), ..any() }, false),
            ("history", Matcher { history: Some("same".to_owned()), ..any() }, true),
            ("another history", Matcher { history: Some("mixed".to_owned()), ..any() }, false),
            ("group", Matcher { group: list(&["7c1f0e9a2b44"]), ..any() }, true),
            ("another group", Matcher { group: list(&["7c1f0e9a2b4"]), ..any() }, false),
            ("all but one", Matcher { source: globs(&["*"]), task: globs(&["*"]), reason: list(&[]), ..any() }, false),
        ] {
            assert_eq!(matcher.matches(&SUBJECT), expected, "{name}");
        }
    }

    #[test]
    fn an_error_is_matched_as_it_is_shown() {
        for (kind, message, shown) in [("A", "b", "^A: b$"), ("A", "", "^A$"), ("", "b", "^b$"), ("", "", "^$")] {
            let subject = Subject { error_type: kind, error_message: message, ..SUBJECT };
            let matcher = Matcher { error: regex(shown), ..Matcher::default() };
            assert!(matcher.matches(&subject), "{shown}");
        }
    }

    #[test]
    fn a_letter_and_its_event_are_one_subject() {
        let letter = DeadLetter {
            entry_id: "1-0".to_owned(),
            job_id: "j".to_owned(),
            task: "send_email".to_owned(),
            queue: "high".to_owned(),
            reason: Reason::MaxAttempts,
            error: ErrorInfo { kind: "app.Down".to_owned(), message: "smtp timed out\nsee the runbook".to_owned() },
            detail: Vec::new(),
            attempts: 3,
            deliveries: 1,
            history: Vec::new(),
            verdict: Verdict::Same,
            group: Group("7c1f0e9a2b44".to_owned()),
            enqueued_at: None,
            died_at: Millis(1),
            traceparent: None,
            payload: Vec::new(),
            dedup: None,
            origin: String::new(),
            foreign: false,
        };
        let event = JobDead::of("orders", &letter, Include::default());
        for subject in [Subject::of("orders", &letter), Subject::from(&event)] {
            assert_eq!(format!("{subject:?}"), format!("{SUBJECT:?}"));
        }
        let nothing = JobDead::default();
        assert_eq!(format!("{:?}", Subject::from(&nothing)), format!("{:?}", Subject::default()));
    }
}
