//! `--since`: a point in time, as people write it.

use std::time::Duration;

use crate::{clock::millis, letter::Millis};

/// A point in time, perhaps counted from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// So long ago.
    Ago(Duration),
    /// Then.
    At(Millis),
}

/// Reads an age or a time.
pub(super) fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Since::Ago(ago));
    }
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(time) => Ok(Since::At(Millis(time.timestamp_millis()))),
        Err(_) => Err("write an age such as 2h, or a time such as 2026-11-29T17:00:00Z".to_owned()),
    }
}

impl Since {
    /// When that is, counted from `now`.
    pub(super) fn from(self, now: Millis) -> Millis {
        match self {
            Since::Ago(ago) => Millis(now.0.saturating_sub(millis(ago))),
            Since::At(at) => at,
        }
    }
}
