//! Alert rules: what is watched for, and who is told.

use std::{collections::BTreeMap, time::Duration};

use crate::rule::Matcher;

/// The entries that a `waiting` rule can ask for at most.
pub const WAITING_AT_MOST: u64 = 1_000;
/// How long a group can be asked to have been quiet: as long as a group is remembered.
pub const QUIET_AT_MOST: Duration = Duration::from_secs(30 * 86_400);

/// One alert rule.
#[derive(Clone, Debug)]
pub struct AlertRule {
    /// Its name in events, metrics and incidents: unique among the alert rules, and formed like a source's name.
    pub name: String,
    /// What it watches for.
    pub kind: Kind,
    /// One incident for each value of these; none for one incident of the whole source.
    pub by: Vec<Key>,
    /// Which dead letters count.
    pub matcher: Matcher,
    /// How much it matters.
    pub severity: Severity,
    /// How long the condition must hold before it fires.
    pub for_: Duration,
    /// How long the condition must have been gone before it is resolved.
    pub keep_firing_for: Duration,
    /// While it fires it is told again this often; zero for never.
    pub repeat: Duration,
    /// Names of the hooks that are told; none for every hook that takes alerts.
    pub hooks: Option<Vec<String>>,
    /// Names of alert rules that tell of the same thing sooner. While one of them fires this one does not begin to, and
    /// a line does not count as rising for this rule in the time that one of them has told of.
    pub unless: Vec<String>,
}

/// What an alert rule watches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The line rises.
    Rising(Rising),
    /// Many jobs die at once.
    Burst(Burst),
    /// Entries stay in the DLQ.
    Waiting(Waiting),
    /// A group dies that has not died for long.
    NewGroup(NewGroup),
}

/// The line rose in at least `at_least` of the `buckets` that `over` is split into, by `growth` in total, and still rises
/// in one of the last two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rising {
    /// How far it looks back, at most [`KEPT`](super::KEPT).
    pub over: Duration,
    /// Into how many parts of the same length, 2 to [`MAX_BUCKETS`](super::MAX_BUCKETS).
    pub buckets: u32,
    /// In how many of them the line must have risen, at least 1.
    pub at_least: u32,
    /// By how much it must have risen in total, at least 1, where no bucket counts for more than twice its share of it, which is
    /// `growth / at_least`.
    pub growth: u64,
}

impl Default for Rising {
    fn default() -> Rising {
        Rising { over: Duration::from_secs(12 * 60), buckets: 12, at_least: 9, growth: 20 }
    }
}

/// At least `deaths` first deaths within `over`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How far it looks back, at most [`KEPT`](super::KEPT).
    pub over: Duration,
    /// How many first deaths, at least 1.
    pub deaths: u64,
}

impl Default for Burst {
    fn default() -> Burst {
        Burst { over: Duration::from_secs(5 * 60), deaths: 200 }
    }
}

/// At least `entries` entries of the DLQ died longer ago than `older_than`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many entries, 1 to [`WAITING_AT_MOST`].
    pub entries: u64,
    /// Their age since the last death.
    pub older_than: Duration,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { entries: 1, older_than: Duration::from_secs(86_400) }
    }
}

/// The first death of a group that has not died for `quiet_for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// How long it must have been quiet, at most [`QUIET_AT_MOST`].
    pub quiet_for: Duration,
}

impl Default for NewGroup {
    fn default() -> NewGroup {
        NewGroup { quiet_for: Duration::from_secs(7 * 86_400) }
    }
}

/// How much an alert matters: the four words of PagerDuty. [`Severity::pages`] says which wake somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For the record.
    Info,
    /// To be looked at in working hours.
    #[default]
    Warning,
    /// Something is broken.
    Error,
    /// Somebody has to act now.
    Critical,
}

impl Severity {
    /// All of them, the mildest first.
    pub const ALL: [Severity; 4] = [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical];

    /// Its name in rules, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Critical => "critical",
        }
    }

    /// The severity with this name.
    pub fn parse(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.as_str() == name)
    }

    /// Whether it is meant to wake somebody: `error` and `critical` are, the milder two inform.
    pub fn pages(self) -> bool {
        self >= Severity::Error
    }
}

/// What an alert rule can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The source; every source is judged by itself, so this changes nothing.
    Source,
    /// The queue.
    Queue,
    /// The task.
    Task,
    /// Why the jobs were buried.
    Reason,
    /// The fingerprint.
    Group,
}

impl Key {
    /// All of them.
    pub const ALL: [Key; 5] = [Key::Source, Key::Queue, Key::Task, Key::Reason, Key::Group];

    /// Its name in rules and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Key::Source => "source",
            Key::Queue => "queue",
            Key::Task => "task",
            Key::Reason => "reason",
            Key::Group => "group",
        }
    }

    /// The key with this name.
    pub fn parse(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.as_str() == name)
    }
}

/// What one incident of a rule is about: `source` always, and a value for each other key of its `by`. What was not
/// counted apart has the value `other`.
pub type Labels = BTreeMap<String, String>;

impl AlertRule {
    /// A rule of this kind with everything else as it is by default.
    pub fn new(name: &str, kind: Kind) -> AlertRule {
        AlertRule {
            name: name.to_owned(),
            kind,
            by: Vec::new(),
            matcher: Matcher::default(),
            severity: Severity::default(),
            for_: Duration::ZERO,
            keep_firing_for: Duration::from_secs(10 * 60),
            repeat: Duration::from_secs(4 * 3600),
            hooks: None,
            unless: Vec::new(),
        }
    }

    /// Whether it concerns this source at all.
    pub fn concerns(&self, source: &str) -> bool {
        self.matcher.source.as_ref().is_none_or(|globs| globs.is_match(source))
    }

    /// Whether it looks at the whole line of a source, and not at a part of it.
    pub fn is_of_the_whole(&self) -> bool {
        let Matcher { source: _, queue, task, reason, error, history, group } = &self.matcher;
        let matches_all = queue.is_none()
            && task.is_none()
            && reason.is_none()
            && error.is_none()
            && history.is_none()
            && group.is_none();
        matches_all && self.by.iter().all(|key| *key == Key::Source)
    }

    /// Which values of its kind do not go together, or not with samples that are taken every `sample_every`. Nothing in here
    /// would do harm; such a rule could never fire, or always would.
    pub fn misfits(&self, sample_every: Duration) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        let mut misfit = |key, why: String, help: String| misfits.push(Misfit { key, why, help });
        let shown = humantime::format_duration;
        match &self.kind {
            Kind::Rising(Rising { over, buckets, at_least, .. }) => {
                if at_least > buckets {
                    let why = format!("is {at_least}, more than \"buckets\": {buckets}");
                    misfit("at_least", why, "lower the one, or raise the other".to_owned());
                }
                if *over < sample_every * *buckets {
                    let why = format!(
                        "is {}: each of its {buckets} buckets is shorter than \"sample_every\": {}",
                        shown(*over),
                        shown(sample_every)
                    );
                    misfit("over", why, "make it longer, or \"buckets\" fewer".to_owned());
                }
            }
            Kind::Burst(Burst { over, .. }) if *over < sample_every => {
                let why = format!("is {}, shorter than \"sample_every\": {}", shown(*over), shown(sample_every));
                misfit("over", why, "make it longer".to_owned());
            }
            Kind::Burst(_) | Kind::Waiting(_) | Kind::NewGroup(_) => {}
        }
        misfits
    }
}

/// A value of what a rule watches for that does not fit to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The value's key in the rules file, below that of the kind.
    pub key: &'static str,
    /// What is wrong, as the end of a sentence about the key.
    pub why: String,
    /// What to do.
    pub help: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(5);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_could_never_fire_is_named() {
        let rising = |over, buckets, at_least| Kind::Rising(Rising { over, buckets, at_least, growth: 20 });
        let burst = |over| Kind::Burst(Burst { over, deaths: 1 });
        for (kind, expected) in [
            (Kind::Rising(Rising::default()), &[][..]),
            (Kind::Burst(Burst::default()), &[]),
            (Kind::Waiting(Waiting::default()), &[]),
            (Kind::NewGroup(NewGroup::default()), &[]),
            (rising(secs(60), 12, 12), &[]),
            (rising(secs(59), 12, 9), &["over"]),
            (rising(secs(720), 12, 13), &["at_least"]),
            (rising(secs(9), 2, 3), &["at_least", "over"]),
            (burst(secs(5)), &[]),
            (burst(secs(4)), &["over"]),
        ] {
            let misfits = AlertRule::new("r", kind.clone()).misfits(EVERY);
            let keys: Vec<&str> = misfits.iter().map(|misfit| misfit.key).collect();
            assert_eq!(keys, expected, "{kind:?}");
        }
    }

    #[test]
    fn only_what_can_wake_somebody_is_a_page() {
        let pages: Vec<_> =
            Severity::ALL.into_iter().filter(|severity| severity.pages()).map(Severity::as_str).collect();
        assert_eq!(pages, ["error", "critical"]);
        for severity in Severity::ALL {
            assert_eq!(Severity::parse(severity.as_str()), Some(severity));
        }
        for key in Key::ALL {
            assert_eq!(Key::parse(key.as_str()), Some(key));
        }
    }

    #[test]
    fn a_rule_is_of_the_whole_line_if_it_neither_chooses_nor_tells_apart() {
        let mut rule = AlertRule::new("r", Kind::Burst(Burst::default()));
        assert!(rule.is_of_the_whole());
        rule.by = vec![Key::Source];
        assert!(rule.is_of_the_whole());
        rule.by = vec![Key::Task];
        assert!(!rule.is_of_the_whole());
        rule.by = Vec::new();
        rule.matcher.reason = Some(vec!["malformed".to_owned()]);
        assert!(!rule.is_of_the_whole());
    }
}
