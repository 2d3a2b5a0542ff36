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
