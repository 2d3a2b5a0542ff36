//! The recorded attempts of a job and what they say together.

use super::ErrorInfo;

/// One recorded failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 0, where the record says.
    pub number: Option<u32>,
    /// How it failed.
    pub error: ErrorInfo,
}

/// Whether all known attempts of a job failed alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All alike: a real bug, or one thing that is down.
    Same,
    /// Not alike: an unhealthy dependency.
    Mixed,
    /// Fewer than two attempts are known.
    #[default]
    Unknown,
}

impl Verdict {
    /// The wire name: `same`, `mixed` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Mixed => "mixed",
            Verdict::Unknown => "unknown",
        }
    }
}
