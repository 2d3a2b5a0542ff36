//! Stand-ins for modules that other branches bring, behind the names they will have. To be deleted at the merge, with
//! the `use super::shim::…` lines that point here.

use crate::{
    event::JobDead,
    rule::{Matcher, Subject},
};

pub(super) mod sidecar {
    #[derive(Default)]
    pub(crate) struct Options {
        pub(crate) _announce: Option<()>,
    }

    pub(crate) async fn run(
        _config: crate::config::Config,
        _options: Options,
        _stop: tokio_util::sync::CancellationToken,
    ) -> anyhow::Result<()> {
        anyhow::bail!("cannot run yet")
    }
}

pub(super) mod demo {
    pub(crate) enum Colours {
        Off,
        On,
    }

    pub(crate) async fn run(_out: impl std::io::Write, _colours: Colours) -> anyhow::Result<()> {
        anyhow::bail!("no demonstration yet")
    }
}

pub(super) trait Matches {
    fn matches(&self, subject: &Subject<'_>) -> bool;
}

impl Matches for Matcher {
    fn matches(&self, s: &Subject<'_>) -> bool {
        let error = format!("{}: {}", s.error_type, s.error_message);
        self.source.as_ref().is_none_or(|globs| globs.is_match(s.source))
            && self.queue.as_ref().is_none_or(|globs| globs.is_match(s.queue))
            && self.task.as_ref().is_none_or(|globs| globs.is_match(s.task))
            && self.reason.as_ref().is_none_or(|list| list.iter().any(|r| r == s.reason))
            && self.group.as_ref().is_none_or(|list| list.iter().any(|g| g == s.group))
            && self.history.as_ref().is_none_or(|history| history == s.history)
            && self.error.as_ref().is_none_or(|regex| regex.is_match(&error))
    }
}

impl<'a> From<&'a JobDead> for Subject<'a> {
    fn from(job: &'a JobDead) -> Subject<'a> {
        Subject {
            source: &job.source,
            queue: job.queue.as_deref().unwrap_or(""),
            task: job.task.as_deref().unwrap_or(""),
            reason: job.reason.as_deref().unwrap_or(""),
            error_type: job.error.kind.as_deref().unwrap_or(""),
            error_message: job.error.message.as_deref().unwrap_or(""),
            history: &job.history,
            group: &job.group,
        }
    }
}

/// Stand-in for `crate::delivery::LaneState`, which has `pending` as rows of id, attempts, first try, next try.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(super) struct LaneState {
    cursor: String,
    pending: Vec<(String, u32, Option<i64>, i64)>,
    off: Option<String>,
    failing: Option<serde_json::Value>,
}

impl LaneState {
    pub(super) fn from_json(json: &str) -> Result<LaneState, serde_json::Error> {
        serde_json::from_str(json)
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state is made of texts and numbers")
    }

    pub(super) fn cursor(&self) -> crate::ledger::OutboxId {
        self.cursor.parse().unwrap_or_default()
    }

    pub(super) fn rewind(&mut self, to: crate::ledger::OutboxId) {
        let to = self.cursor().min(to);
        self.cursor = to.to_string();
        self.pending.retain(|(id, ..)| id.parse().is_ok_and(|id: crate::ledger::OutboxId| id <= to));
    }

    pub(super) fn unsettled(&self) -> u64 {
        self.pending.len() as u64
    }

    pub(super) fn is_off(&self, fingerprint: &str) -> bool {
        self.off.as_deref() == Some(fingerprint)
    }

    pub(super) fn failing_since(&self) -> Option<i64> {
        self.failing.as_ref().and_then(|failing| failing.get("since")?.as_i64())
    }

    /// How many tries of this event have failed, while it is not settled. To be added to the real one.
    pub(super) fn attempts_of(&self, id: crate::ledger::OutboxId) -> Option<u32> {
        self.pending.iter().find(|(pending, ..)| *pending == id.to_string()).map(|(_, attempts, ..)| *attempts)
    }
}
