//! `match:` — every given field must match.

use globset::GlobSet;
use regex::Regex;

/// The conditions of a `match:`; an empty one matches everything.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Globs on the source's name.
    pub source: Option<GlobSet>,
    /// Globs on the queue's name.
    pub queue: Option<GlobSet>,
    /// Globs on the task's name.
    pub task: Option<GlobSet>,
    /// Reasons, as the framework names them.
    pub reason: Option<Vec<String>>,
    /// Regular expression on `Type: message`.
    pub error: Option<Regex>,
    /// `same` or `mixed`; none for `any`.
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

impl Matcher {
    /// Whether every given condition holds.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let glob = |globs: &Option<GlobSet>, text: &str| globs.as_ref().is_none_or(|globs| globs.is_match(text));
        let listed = |list: &Option<Vec<String>>, text: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|listed| listed == text))
        };
        glob(&self.source, subject.source)
            && glob(&self.queue, subject.queue)
            && glob(&self.task, subject.task)
            && listed(&self.reason, subject.reason)
            && listed(&self.group, subject.group)
            && self.history.as_deref().is_none_or(|history| history == subject.history)
            && self.error.as_ref().is_none_or(|error| {
                let text = match (subject.error_type, subject.error_message) {
                    (kind, "") => kind.to_owned(),
                    ("", message) => message.to_owned(),
                    (kind, message) => format!("{kind}: {message}"),
                };
                error.is_match(&text)
            })
    }
}
