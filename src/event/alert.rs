//! What `alert.firing` and `alert.resolved` carry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ErrorText;

/// The value of a label, and the name of a group, for what was not counted apart.
pub const OTHER: &str = "other";

/// The `data` of `alert.firing` and of `alert.resolved`. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The source's name.
    pub source: String,
    /// The incident: 16 hexadecimal digits, the same from firing to resolved.
    pub incident: String,
    /// The alert rule's name.
    pub alert: String,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// Since when there is something to see: the begin of the rise, or the first of the deaths.
    pub since: Option<String>,
    /// When it fired.
    pub fired_at: Option<String>,
    /// When it was resolved; `null` while it fires.
    pub resolved_at: Option<String>,
    /// It fires for long, and is told again.
    pub repeated: bool,
    /// What it is about: `source`, and a value for each key of the rule's `by`.
    pub labels: BTreeMap<String, String>,
    /// The one number: growth, deaths, entries or new groups; once it is resolved, the jobs that died since it began.
    pub value: i64,
    /// Entries in the DLQ and retries without a verdict yet.
    pub level: u64,
    /// One sentence for people.
    pub summary: String,
    /// The groups that most of it is of, the largest first, five at most.
    pub groups: Vec<AlertGroup>,
    /// Names of the hooks that are told; left out for every hook that takes alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<String>>,
}

/// A group's share in an alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertGroup {
    /// The fingerprint.
    pub group: String,
    /// The task.
    pub task: Option<String>,
    /// The queue.
    pub queue: Option<String>,
    /// Why its jobs were buried.
    pub reason: Option<String>,
    /// The error of one of them.
    pub error: ErrorText,
    /// First deaths in the time that the rule looks at (of `waiting`: entries).
    pub deaths: u64,
    /// The first death of the group that is known of.
    pub first_died_at: Option<String>,
    /// The last one, to the precision of the samples.
    pub last_died_at: Option<String>,
    /// What the retry loop does with it, in one sentence; `null` where that is not known.
    pub retrying: Option<String>,
}
