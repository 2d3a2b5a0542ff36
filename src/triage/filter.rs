//! Which entries are meant.

use std::time::Duration;

use globset::Glob;
use regex::RegexBuilder;
use serde::{Deserialize, Serialize};

use crate::{
    clock::millis,
    ledger::Sieve,
    letter::{DeadLetter, Group, Millis, Reason},
    rule::{Globs, Matcher, Subject},
};
use utoipa::ToSchema;

/// What a compiled expression may take in memory, in bytes.
const LARGEST_REGEX: usize = 1 << 20;

/// A filter as people write it: every given condition must hold, and of a list any may.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilterSpec {
    /// Globs on the source's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<String>,
    /// Globs on the queue's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
    /// Globs on the task's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task: Vec<String>,
    /// Reasons, as the framework names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reason: Vec<String>,
    /// Groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Regular expression on `Type: message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Died longer ago than this, such as `24h`.
    #[serde(skip_serializing_if = "Option::is_none", with = "humantime_option")]
    #[schema(value_type = Option<String>, example = "24h")]
    pub older_than: Option<Duration>,
    /// Died within this time.
    #[serde(skip_serializing_if = "Option::is_none", with = "humantime_option")]
    #[schema(value_type = Option<String>, example = "7d")]
    pub newer_than: Option<Duration>,
}

/// Why a filter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FilterError {
    /// The field, as [`FilterSpec`] names it.
    pub field: &'static str,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl FilterSpec {
    /// Whether it names nothing but sources, so that everything in them is meant. To be older than nothing at all is no
    /// condition.
    pub fn is_empty(&self) -> bool {
        let older_than = self.older_than.filter(|age| !age.is_zero());
        FilterSpec { source: Vec::new(), older_than, ..self.clone() } == FilterSpec::default()
    }

    /// Ready for use.
    pub fn compile(&self) -> Result<Filter, FilterError> {
        let wrong = |field, problem: String| FilterError { field, problem };
        let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        if let Some(unknown) = self.reason.iter().find(|reason| !Reason::NAMES.contains(&reason.as_str())) {
            let problem = format!("there is no reason {unknown:?}; there are {}", Reason::NAMES.join(", "));
            return Err(wrong("reason", problem));
        }
        let group: Vec<String> = self.group.iter().map(|group| group.to_ascii_lowercase()).collect();
        if let Some(unknown) = group.iter().find(|group| !Group::is_one(group)) {
            let problem = format!("{unknown:?} is no group; a group is {} hexadecimal digits", Group::DIGITS);
            return Err(wrong("group", problem));
        }
        let error = self.error.as_deref().map(|error| {
            RegexBuilder::new(error).size_limit(LARGEST_REGEX).build().map_err(|e| wrong("error", e.to_string()))
        });
        Ok(Filter {
            matcher: Matcher {
                source: globs("source", &self.source)?,
                queue: globs("queue", &self.queue)?,
                task: globs("task", &self.task)?,
                reason: some(&self.reason),
                group: some(&group),
                error: error.transpose()?,
                ..Matcher::default()
            },
            older_than: self.older_than,
            newer_than: self.newer_than,
        })
    }
}

fn globs(field: &'static str, globs: &[String]) -> Result<Option<Globs>, FilterError> {
    if globs.is_empty() {
        return Ok(None);
    }
    let wrong = |error: globset::Error| FilterError { field, problem: error.to_string() };
    let globs = globs.iter().map(|glob| Glob::new(glob)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    Globs::new(&globs).map(Some).map_err(wrong)
}

/// A compiled filter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    matcher: Matcher,
    older_than: Option<Duration>,
    newer_than: Option<Duration>,
}

impl Filter {
    /// True if it may pass some entries of a source and not others, so that finding them may take long.
    pub fn is_selective(&self) -> bool {
        let Matcher { source: _, queue, task, reason, error, history, group } = &self.matcher;
        queue.is_some()
            || task.is_some()
            || reason.is_some()
            || error.is_some()
            || history.is_some()
            || group.is_some()
            || self.older_than.is_some()
            || self.newer_than.is_some()
    }

    /// Whether it is about this source at all.
    pub fn concerns(&self, source: &str) -> bool {
        self.matcher.source.as_ref().is_none_or(|globs| globs.is_match(source))
    }

    /// Deaths before this moment are too old.
    pub fn since(&self, now: Millis) -> Option<Millis> {
        self.newer_than.map(|age| Millis(now.0.saturating_sub(millis(age))))
    }

    /// Deaths after this moment are too young.
    pub fn until(&self, now: Millis) -> Option<Millis> {
        self.older_than.map(|age| Millis(now.0.saturating_sub(millis(age))))
    }

    /// Whether it passes a letter of this source, ages counted from `now`.
    pub fn passes(&self, source: &str, letter: &DeadLetter, now: Millis) -> bool {
        self.since(now).is_none_or(|since| letter.died_at >= since)
            && self.until(now).is_none_or(|until| letter.died_at <= until)
            && self.matcher.matches(&Subject::of(source, letter))
    }

    /// What of it the store can sift by itself.
    pub fn sieve(&self) -> Sieve {
        let Matcher { queue, task, reason, .. } = &self.matcher;
        Sieve { task: task.clone(), queue: queue.clone(), reason: reason.clone(), job_id: None }
    }
}

/// Durations as people write them.
mod humantime_option {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::clock::written;

    pub(super) fn serialize<S: Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match age {
            Some(age) => serializer.serialize_str(&written(*age)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        humantime::parse_duration(&text).map(Some).map_err(D::Error::custom)
    }
}
