//! What an alert event has to say: how much, since when, which groups, in one sentence.

use std::collections::BTreeMap;

use super::{
    AlertRule, Cause, Change, Ended, Key, Kind, Labels, Severity,
    cause::CauseId,
    incident::Changed,
    reading::{Need, Reading},
    samples::Samples,
    waiting::Aged,
};
use crate::{
    clock::millis,
    event::{Alert, AlertGroup, EventData, rfc3339, text},
    letter::{Millis, bounded_text},
};

/// Groups that an event lists.
const TOP_GROUPS: usize = 5;
/// Characters of a sentence in an event.
const SENTENCE_CHARS: usize = 1_000;

/// Something to be told: the facts of `alert.firing` (fire, repeat) and `alert.resolved`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// What happened.
    pub change: Change,
    /// It has been told before, and is told again to those who want to hear it until it is over, and for a while after.
    pub reminds: bool,
    /// The incident's id, the same from firing to resolved.
    pub incident: String,
    /// The rule's name.
    pub alert: String,
    /// How much it matters.
    pub severity: Severity,
    /// Names of the hooks that are told; none for every hook that takes alerts.
    pub hooks: Option<Vec<String>>,
    /// What it is about.
    pub labels: Labels,
    /// Since when there is something to see: the begin of the rise, or the first of the deaths.
    pub since: Millis,
    /// When it fired.
    pub fired_at: Millis,
    /// When this was decided, by the store's clock.
    pub at: Millis,
    /// The one number: growth, deaths, entries or groups; once it is resolved, the jobs that died since it began.
    pub value: i64,
    /// What must have been met, and how far it is.
    pub needs: Vec<Need>,
    /// Entries in the DLQ and retries in flight.
    pub level: u64,
    /// One sentence for people.
    pub summary: String,
    /// The groups that most of it is of, the largest first.
    pub groups: Vec<GroupDeaths>,
}

/// A group's share in an incident.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDeaths {
    /// The group with its task, queue and reason, sample error and first death.
    pub cause: Cause,
    /// First deaths in the time that the rule looks at (`waiting`: entries; a summary: all deaths).
    pub deaths: u64,
    /// The last of its deaths, to the precision of the samples.
    pub last: Option<Millis>,
}

impl Transition {
    /// The event that tells it. `retrying` says in one sentence what the retry loop does with the jobs of a cause, if
    /// that is known. However long the texts of dead letters are, it stays well under 64 KiB.
    pub fn event(&self, retrying: impl Fn(&Cause) -> Option<String>) -> EventData {
        let group = |group: &GroupDeaths| AlertGroup {
            group: group.cause.group.clone(),
            task: text(&group.cause.task),
            queue: text(&group.cause.queue),
            reason: text(&group.cause.reason),
            error: group.cause.error.clone(),
            deaths: group.deaths,
            first_died_at: rfc3339(group.cause.first),
            last_died_at: group.last.and_then(rfc3339),
            retrying: retrying(&group.cause).map(|said| bounded_text(said.as_bytes(), SENTENCE_CHARS)),
        };
        let over = matches!(self.change, Change::Resolve(_));
        let alert = Box::new(Alert {
            source: self.labels.get(Key::Source.as_str()).cloned().unwrap_or_default(),
            incident: self.incident.clone(),
            alert: self.alert.clone(),
            severity: self.severity.as_str().to_owned(),
            since: rfc3339(self.since),
            fired_at: rfc3339(self.fired_at),
            resolved_at: rfc3339(self.at).filter(|_| over),
            repeated: self.reminds || self.change == Change::Repeat,
            labels: self.labels.clone(),
            value: self.value,
            level: self.level,
            summary: bounded_text(self.summary.as_bytes(), SENTENCE_CHARS),
            groups: self.groups.iter().map(group).collect(),
            hooks: self.hooks.clone(),
        });
        if over { EventData::AlertResolved(alert) } else { EventData::AlertFiring(alert) }
    }
}

/// What a transition is made from.
pub(super) struct Scene<'a> {
    pub source: &'a str,
    pub samples: &'a Samples,
    pub aged: Option<&'a Aged>,
    /// New groups of these labels.
    pub fresh: Vec<&'a Cause>,
    pub now: Millis,
}

impl Scene<'_> {
    /// The transition for a change of an incident. The rule is none if it is gone.
    pub(super) fn transition(&self, changed: Changed, rule: Option<&AlertRule>) -> Transition {
        let Changed { change, incident, reading } = changed;
        let level = self.samples.level().unwrap_or(0);
        let over = matches!(change, Change::Resolve(_));
        let from = match rule.map(|rule| &rule.kind) {
            Some(Kind::Rising(rising)) if !over => self.now.0 - millis(rising.over),
            Some(Kind::Burst(burst)) if !over => self.now.0 - millis(burst.over),
            // The sample that first saw it ends the cell that it began in.
            _ => incident.since.0.min(incident.began.0) - 1,
        };
        let groups = rule.map(|rule| self.groups(rule, &incident.labels, from)).unwrap_or_default();
        let died: u64 = groups.iter().map(|group| group.deaths).sum();
        let groups: Vec<GroupDeaths> = groups.into_iter().take(TOP_GROUPS).collect();
        let value = match &reading {
            Some(reading) if !over => reading.value,
            _ => i64::try_from(died).unwrap_or(i64::MAX),
        };
        let said = match (change, rule) {
            (Change::Resolve(ended), _) => {
                // Of what waited, and of what the rule does not mean any more, nobody has counted the deaths.
                let counts = ended == Ended::Over && rule.is_some_and(|rule| !matches!(rule.kind, Kind::Waiting(_)));
                let fired_at = incident.fired_at.unwrap_or(incident.began);
                self.resolved(&incident.rule, fired_at, counts.then_some(died), level, ended)
            }
            (_, Some(rule)) => self.fires(rule, reading.as_ref(), level),
            (_, None) => incident.rule.clone(),
        };
        Transition {
            change,
            reminds: false,
            incident: incident.id,
            alert: incident.rule,
            severity: incident.severity,
            hooks: incident.hooks,
            summary: format!("{}{}: {said}{}", self.source, about(&incident.labels), mostly(&groups)),
            labels: incident.labels,
            since: incident.since,
            fired_at: incident.fired_at.unwrap_or(incident.began),
            at: self.now,
            value,
            needs: reading.map(|reading| reading.needs).unwrap_or_default(),
            level,
            groups,
        }
    }

    /// The groups of these labels, the largest first.
    fn groups(&self, rule: &AlertRule, labels: &Labels, from: i64) -> Vec<GroupDeaths> {
        if let Kind::Waiting(_) = rule.kind {
            let seen = self.aged.map_or(&[][..], |aged| aged.causes(labels));
            let mut groups: Vec<GroupDeaths> = seen
                .iter()
                .map(|(cause, deaths)| GroupDeaths { cause: cause.clone(), deaths: *deaths, last: None })
                .collect();
            groups.sort_by_key(|group| std::cmp::Reverse(group.deaths));
            return groups;
        }
        let mut counted: BTreeMap<CauseId, (u64, i64)> = BTreeMap::new();
        for cell in self.samples.since(from) {
            let last = cell.end(self.now);
            for count in cell.counts.iter().filter(|count| count.first > 0) {
                counted.entry(count.cause).or_insert((0, last)).0 += u64::from(count.first);
            }
        }
        let is_meant = |id: CauseId, cause: &Cause| {
            self.samples.labels(id, rule, self.source).as_ref() == Some(labels)
                && (self.fresh.is_empty() || self.fresh.iter().any(|fresh| fresh.group == cause.group))
        };
        let mut groups: Vec<GroupDeaths> = counted
            .into_iter()
            .filter_map(|(id, (deaths, last))| {
                let cause = self.samples.causes.get(id).filter(|cause| is_meant(id, cause))?.clone();
                Some(GroupDeaths { cause, deaths, last: Some(Millis(last)) })
            })
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.deaths));
        groups
    }

    fn fires(&self, rule: &AlertRule, reading: Option<&Reading>, level: u64) -> String {
        let Some(reading) = reading else { return rule.name.clone() };
        let shown = humantime::format_duration;
        match &rule.kind {
            Kind::Rising(rising) => {
                let rises = reading.needs.first().map_or(0, |need| need.have);
                format!(
                    "the line rises, by {} in {} and in {rises} of {} steps, to {level} dead letters",
                    reading.value,
                    shown(rising.over),
                    rising.buckets
                )
            }
            Kind::Burst(burst) => format!("{} died within {}", jobs(reading.value), shown(burst.over)),
            Kind::Waiting(waiting) => {
                let more = if reading.value >= i64::try_from(waiting.entries).unwrap_or(0) { "at least " } else { "" };
                format!(
                    "{more}{} waited for more than {}",
                    has(reading.value, "dead letter"),
                    shown(waiting.older_than)
                )
            }
            Kind::NewGroup(new) => {
                let kinds = if reading.value == 1 { "a kind".to_owned() } else { format!("{} kinds", reading.value) };
                format!("{kinds} of failure not seen in the last {}", shown(new.quiet_for))
            }
        }
    }

    fn resolved(&self, name: &str, fired_at: Millis, died: Option<u64>, level: u64, ended: Ended) -> String {
        let lasted = u64::try_from(self.now.0.saturating_sub(fired_at.0) / 1000).unwrap_or(0);
        let lasted = humantime::format_duration(std::time::Duration::from_secs(lasted));
        let why = match ended {
            Ended::Over => "is over",
            Ended::RuleGone => "is withdrawn, for its rule has changed,",
        };
        let died = died.map_or(String::new(), |died| {
            format!("{} died since it began, ", jobs(i64::try_from(died).unwrap_or(i64::MAX)))
        });
        format!("{name} {why} after {lasted}; {died}{level} dead letters are left")
    }
}

fn jobs(count: i64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

fn has(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what} has") } else { format!("{count} {what}s have") }
}

/// The labels beside the source, for the sentence.
fn about(labels: &Labels) -> String {
    let told: Vec<String> =
        labels.iter().filter(|(key, _)| *key != "source").map(|(key, value)| format!("{key} {value}")).collect();
    if told.is_empty() { String::new() } else { format!(", {}", told.join(", ")) }
}

/// What most of it is.
fn mostly(groups: &[GroupDeaths]) -> String {
    let Some(GroupDeaths { cause, .. }) = groups.first() else { return String::new() };
    let error = cause.error.to_string();
    let error = bounded_text(error.lines().next().unwrap_or_default().as_bytes(), 120);
    let most = if groups.len() > 1 { "mostly " } else { "" };
    match (cause.task.as_str(), error.as_str()) {
        ("", "") => String::new(),
        (task, "") => format!("; {most}{task}"),
        ("", error) => format!("; {most}{error}"),
        (task, error) => format!("; {most}{task} ({error})"),
    }
}
