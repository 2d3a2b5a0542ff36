//! Alertmanager's API v2: an alert is its labels, and lasts until `endsAt`.
//!
//! What fires ends by itself a while after it was last told, so that nothing burns for ever where the teller has
//! vanished. Everything that changes while an incident lasts is an annotation: a label that changed would make another
//! alert.

use std::{collections::BTreeMap, time::Duration};

use chrono::DateTime;
use serde::Serialize;

use super::{Body, json, words};
use crate::{
    clock::millis,
    event::{Alert, Counts, Digest, ErrorText, Event, EventData, HookTest, JobDead, rfc3339},
    letter::Millis,
};

/// How often a firing alert must be told anew.
pub(super) const REMINDED_EVERY: Duration = Duration::from_secs(60);
/// How long a firing alert lasts after it was told.
const LASTS: Duration = Duration::from_secs(5 * 60);
/// How long a group that has died is shown after its last death.
const DEATH_LASTS: Duration = Duration::from_secs(3_600);
/// How long a test is shown.
const TEST_LASTS: Duration = Duration::from_secs(60);
/// Characters of a label's value; as many as a digest keeps of a task's name, so that both make one alert.
const LABEL: usize = 100;
/// Characters of an annotation's line.
const LINE: usize = 1_024;
/// Groups that an annotation lists.
const GROUPS: usize = 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    starts_at: Option<String>,
    ends_at: Option<String>,
}

pub(super) fn body(event: &Event) -> Body {
    let alerts = match &event.data {
        EventData::AlertFiring(alert) => vec![posted(alert, event.at, after(event.at, LASTS))],
        EventData::AlertResolved(alert) => {
            vec![posted(alert, event.at, time(alert.resolved_at.as_deref()).unwrap_or(event.at))]
        }
        EventData::JobDead(dead) | EventData::JobExhausted(dead) => vec![death(event, dead)],
        EventData::Digest(digest) => deaths(event, digest),
        EventData::HookTest(test) => vec![tested(event, test)],
        // Nobody chooses these: what comes to nothing is no alert.
        EventData::JobRetried(_) | EventData::JobRecovered(_) | EventData::Purged(_) => Vec::new(),
    };
    json("application/json", &alerts)
}

/// A firing alert that is told when it would have ended already says that it is over.
pub(super) fn has_lapsed(event: &Event, now: Millis) -> bool {
    matches!(event.data, EventData::AlertFiring(_)) && after(event.at, LASTS) <= now
}

fn posted(alert: &Alert, at: Millis, ends: Millis) -> Posted {
    let mut labels = BTreeMap::new();
    for (key, value) in &alert.labels {
        labels.insert(label_name(key), label(value));
    }
    for (key, value) in [("alertname", &alert.alert), ("source", &alert.source), ("severity", &alert.severity)] {
        labels.insert(key.to_owned(), label(value));
    }
    let mut annotations = BTreeMap::from([
        ("summary".to_owned(), words::line(&alert.summary, LINE)),
        ("incident".to_owned(), words::line(&alert.incident, LINE)),
        ("value".to_owned(), alert.value.to_string()),
        ("level".to_owned(), alert.level.to_string()),
    ]);
    if let Some(fired_at) = &alert.fired_at {
        annotations.insert("fired_at".to_owned(), words::line(fired_at, LINE));
    }
    let groups: Vec<_> = alert.groups.iter().take(GROUPS).map(words::alert_group).collect();
    if !groups.is_empty() {
        annotations.insert("groups".to_owned(), groups.join("\n"));
    }
    let since = time(alert.since.as_deref()).or(time(alert.fired_at.as_deref())).unwrap_or(at);
    between(labels, annotations, since, ends)
}

fn death(event: &Event, dead: &JobDead) -> Posted {
    let died = time(dead.died_at.as_deref()).unwrap_or(event.at);
    let is_exhausted = matches!(event.data, EventData::JobExhausted(_));
    let labels = of_group(is_exhausted, &dead.source, &dead.group, dead.task.as_deref());
    let mut annotations = about(words::headline(event, LINE), &dead.error);
    let known =
        [("queue", dead.queue.as_deref()), ("job_id", dead.job_id.as_deref()), ("reason", dead.reason.as_deref())];
    let known = known.into_iter().chain([("entry_id", Some(dead.entry_id.as_str())), ("rule", dead.rule.as_deref())]);
    let known = known.chain([("next_retry_at", dead.next_retry_at.as_deref())]);
    annotations.extend(known.filter_map(|(name, value)| Some((name.to_owned(), words::line(value?, LINE)))));
    between(labels, annotations, died, after(died, DEATH_LASTS))
}

/// What a digest of this hook's own stands for: the same alerts as its deaths one by one, as far as it lists their
/// groups, and one without a group for the rest.
fn deaths(event: &Event, digest: &Digest) -> Vec<Posted> {
    let from = time(digest.from.as_deref()).unwrap_or(event.at);
    let ends = after(time(digest.until.as_deref()).unwrap_or(event.at), DEATH_LASTS);
    let about_one = |is_exhausted: bool, number: u64| match is_exhausted {
        true => Counts { exhausted: number, ..Counts::default() },
        false => Counts { deaths: number, ..Counts::default() },
    };
    let mut alerts = Vec::new();
    for group in &digest.groups {
        let task = group.task.as_deref();
        for (is_exhausted, number) in [(false, group.counts.deaths), (true, group.counts.exhausted)] {
            if number > 0 {
                let what = words::in_words(&about_one(is_exhausted, number), true);
                let error = words::error(&group.error);
                let summary = format!("{}: {what} in {}: {error}", task.unwrap_or("no task"), digest.source);
                let labels = of_group(is_exhausted, &digest.source, &group.group, task);
                alerts.push(between(labels, about(words::line(&summary, LINE), &group.error), from, ends));
            }
        }
    }
    let others = digest.counts.without(digest.groups.iter().map(|group| group.counts).sum());
    for (is_exhausted, number) in [(false, others.deaths), (true, others.exhausted)] {
        if number > 0 {
            let what = words::in_words(&about_one(is_exhausted, number), true);
            let summary = words::line(&format!("{what} in {} in other groups", digest.source), LINE);
            let mut labels = of_group(is_exhausted, &digest.source, "", None);
            labels.retain(|name, _| name != "group" && name != "task");
            alerts.push(between(labels, BTreeMap::from([("summary".to_owned(), summary)]), from, ends));
        }
    }
    alerts
}

fn tested(event: &Event, test: &HookTest) -> Posted {
    let labels = [("alertname", "SextonTest"), ("severity", "info"), ("source", &test.source), ("hook", &test.hook)];
    let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), label(value))).collect();
    let annotations = BTreeMap::from([("summary".to_owned(), words::headline(event, LINE))]);
    between(labels, annotations, event.at, after(event.at, TEST_LASTS))
}

/// The identity of a group's alert. Its queue is none of it: a group may die in several.
fn of_group(is_exhausted: bool, source: &str, group: &str, task: Option<&str>) -> BTreeMap<String, String> {
    let (name, severity) = if is_exhausted { ("JobExhausted", "error") } else { ("JobDead", "warning") };
    let all = [("alertname", name), ("severity", severity), ("source", source), ("group", group)];
    let all = all.into_iter().chain([("task", task.unwrap_or_default())]);
    all.map(|(name, value)| (name.to_owned(), label(value))).collect()
}

fn about(summary: String, error: &ErrorText) -> BTreeMap<String, String> {
    BTreeMap::from([("summary".to_owned(), summary), ("error".to_owned(), words::error(error))])
}

/// Alertmanager refuses an alert that ends before it starts.
fn between(
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    starts: Millis,
    ends: Millis,
) -> Posted {
    Posted { labels, annotations, starts_at: rfc3339(starts.min(ends)), ends_at: rfc3339(ends) }
}

/// An empty value would be no label at all.
fn label(value: &str) -> String {
    words::line(if value.is_empty() { "unknown" } else { value }, LABEL)
}

/// Alertmanager takes `[a-zA-Z_][a-zA-Z0-9_]*`.
fn label_name(key: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = key.chars().map(fits).collect();
    if name.starts_with(|c: char| !c.is_ascii_digit()) { name } else { format!("_{name}") }
}

fn after(at: Millis, by: Duration) -> Millis {
    Millis(at.0.saturating_add(millis(by)))
}

fn time(text: Option<&str>) -> Option<Millis> {
    Some(Millis(DateTime::parse_from_rfc3339(text?).ok()?.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::samples, *};
    use crate::event::GroupCount;

    fn sent(event: &Event) -> Vec<Value> {
        let Value::Array(alerts) = samples::parsed(&body(event)) else { panic!("it is a list") };
        alerts
    }

    fn one(event: &Event) -> Value {
        let mut alerts = sent(event);
        assert_eq!(alerts.len(), 1);
        alerts.remove(0)
    }

    #[test]
    fn an_alert_fires_for_five_minutes_at_a_time_until_it_is_over() {
        let alert = samples::alert();
        let labels = json!({"alertname": "rising", "source": "orders", "severity": "critical", "task": "send_email"});
        let group = format!(
            "34 × send_email: ConnectionError: smtp.example.test:25 timed out after 10.0s (group 7c1f0e9a2b44, queue \
             default, first 2026-11-29T17:02:00.000Z, last 2026-11-29T17:12:00.000Z). {}",
            samples::RETRYING
        );
        assert_eq!(
            one(&samples::firing()),
            json!({
                "labels": labels,
                "annotations": {
                    "summary": alert.summary, "incident": "9f86d081884c7d65", "value": "34", "level": "41",
                    "fired_at": "2026-11-29T17:12:50.488Z", "groups": group,
                },
                "startsAt": "2026-11-29T17:02:00.000Z", "endsAt": "2026-11-29T17:17:50.488Z",
            })
        );
        let mut again = samples::firing();
        again.at = Millis(again.at.0 + 60_000);
        let again = one(&again);
        assert_eq!((&again["labels"], &again["startsAt"]), (&labels, &json!("2026-11-29T17:02:00.000Z")));
        assert_eq!(again["endsAt"], "2026-11-29T17:18:50.488Z");
        let over = one(&samples::resolved());
        assert_eq!((&over["labels"], &over["startsAt"]), (&labels, &json!("2026-11-29T17:02:00.000Z")));
        assert_eq!(over["endsAt"], "2026-11-29T17:32:50.488Z");
    }

    #[test]
    fn no_alert_ends_before_it_starts() {
        let late = Some("2026-11-30T00:00:00.000Z".to_owned());
        let at = samples::event(EventData::AlertFiring(Box::default())).at;
        for (since, resolved_at, starts, ends) in [
            (None, None, "2026-11-29T17:12:50.488Z", "2026-11-29T17:12:50.488Z"),
            (late.clone(), None, "2026-11-29T17:12:50.488Z", "2026-11-29T17:12:50.488Z"),
            (late.clone(), late, "2026-11-30T00:00:00.000Z", "2026-11-30T00:00:00.000Z"),
            (Some("rubbish".to_owned()), None, "2026-11-29T17:12:50.488Z", "2026-11-29T17:12:50.488Z"),
        ] {
            let alert = Alert { since, resolved_at, fired_at: None, ..samples::alert() };
            let value = one(&Event { at, ..samples::event(EventData::AlertResolved(Box::new(alert))) });
            assert_eq!((&value["startsAt"], &value["endsAt"]), (&json!(starts), &json!(ends)));
        }
    }

    #[test]
    fn only_a_firing_alert_lapses() {
        let at = samples::firing().at.0;
        for (event, after, lapsed) in [
            (samples::firing(), 299_999, false),
            (samples::firing(), 300_000, true),
            (samples::resolved(), 86_400_000, false),
            (samples::job_dead(), 86_400_000, false),
        ] {
            assert_eq!(has_lapsed(&event, Millis(at + after)), lapsed, "{after}");
        }
    }

    #[test]
    fn a_death_is_an_alert_of_its_group_for_an_hour() {
        let value = one(&samples::job_dead());
        let labels = json!({
            "alertname": "JobDead", "severity": "warning", "source": "orders", "group": "7c1f0e9a2b44",
            "task": "send_email",
        });
        assert_eq!(value["labels"], labels);
        assert_eq!(value["startsAt"], "2026-11-29T17:12:50.488Z");
        assert_eq!(value["endsAt"], "2026-11-29T18:12:50.488Z");
        let error = "ConnectionError: smtp.example.test:25 timed out after 10.0s";
        let expected = json!({
            "summary": format!("send_email died in orders: {error}"), "error": error, "queue": "default",
            "job_id": "d40ec568", "reason": "max_attempts", "entry_id": "1795972370488-0",
        });
        assert_eq!(value["annotations"], expected);
        let value = one(&samples::exhausted());
        assert_eq!(
            (&value["labels"]["alertname"], &value["labels"]["severity"]),
            (&json!("JobExhausted"), &json!("error"))
        );
        assert_eq!(value["labels"]["group"], "7c1f0e9a2b44");
    }

    #[test]
    fn a_digest_is_the_alerts_of_its_groups_and_one_of_the_rest() {
        let counts = |deaths, exhausted| Counts { deaths, exhausted, ..Counts::default() };
        let digest = samples::digest_of(counts(940, 4), counts(900, 3));
        let alerts = sent(&samples::event(EventData::Digest(Box::new(digest))));
        let error = "ConnectionError: smtp.example.test:25 timed out after 10.0s";
        let told: Vec<_> = alerts.iter().map(|alert| alert["annotations"]["summary"].as_str().unwrap()).collect();
        assert_eq!(
            told,
            [
                &format!("send_email: 900 more jobs died in orders: {error}"),
                &format!("send_email: 3 more jobs are exhausted in orders: {error}"),
                "40 more jobs died in orders in other groups",
                "1 more job is exhausted in orders in other groups",
            ]
        );
        assert_eq!(alerts[0]["labels"], one(&samples::job_dead())["labels"], "the same alert as that of one death");
        assert_eq!(alerts[1]["labels"], one(&samples::exhausted())["labels"]);
        assert_eq!(alerts[2]["labels"], json!({"alertname": "JobDead", "severity": "warning", "source": "orders"}));
        assert!(alerts.iter().all(|alert| alert["startsAt"] == "2026-11-29T17:12:50.488Z"));
        assert!(alerts.iter().all(|alert| alert["endsAt"] == "2026-11-29T18:13:50.488Z"), "an hour after the last");
    }

    #[test]
    fn a_long_task_makes_the_same_label_in_a_digest() {
        let long = "é".repeat(500);
        let dead = JobDead { task: Some(long.clone()), ..samples::dead() };
        let single = one(&samples::event(EventData::JobDead(Box::new(dead))));
        // As a digest's groups have it.
        let cut = format!("{}…", "é".repeat(100));
        let counts = Counts { deaths: 1, ..Counts::default() };
        let mut digest = samples::digest_of(counts, counts);
        digest.groups = vec![GroupCount { task: Some(cut), ..digest.groups[0].clone() }];
        let folded = one(&samples::event(EventData::Digest(Box::new(digest))));
        assert_eq!(single["labels"], folded["labels"]);
    }

    #[test]
    fn a_test_is_over_after_a_minute() {
        let value = one(&samples::test());
        let labels = json!({"alertname": "SextonTest", "severity": "info", "source": "orders", "hook": "oncall"});
        assert_eq!(value["labels"], labels);
        assert_eq!(value["endsAt"], "2026-11-29T17:13:50.488Z");
    }

    #[test]
    fn names_and_values_of_labels_are_such_as_alertmanager_takes() {
        for (key, expected) in [("task", "task"), ("a.b-c", "a_b_c"), ("1st", "_1st"), ("", "_"), ("ünï", "_n_")] {
            assert_eq!(label_name(key), expected);
        }
        let mut alert = samples::alert();
        alert.labels = [("task", ""), ("queue", "a\nb"), ("source", "elsewhere"), ("alertname", "mine")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let labels = one(&samples::event(EventData::AlertFiring(Box::new(alert))))["labels"].clone();
        let expected = json!({
            "alertname": "rising", "source": "orders", "severity": "critical", "task": "unknown", "queue": "a\\nb"
        });
        assert_eq!(labels, expected);
    }
}
