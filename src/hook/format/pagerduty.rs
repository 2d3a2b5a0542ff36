//! PagerDuty's Events API v2: an alert opens an incident and closes it, by the incident's own id.
//!
//! Deaths are gathered, one incident a group, and digests, one a source and reason: nothing but a person closes those.
//! What a person has closed opens again with the next event of its kind.

use serde::Serialize;

use super::{Body, json, shorten::fitting, words};
use crate::{
    config::Secret,
    event::{Digest, Event, EventData, rfc3339},
};

/// PagerDuty takes 512 kB, less some room for what stands around the details.
const LARGEST: usize = 500_000;
/// Characters of a summary.
const SUMMARY: usize = 1_024;
/// Characters of a key.
const KEY: usize = 255;
/// Characters of any other field.
const FIELD: usize = 250;

#[derive(Serialize)]
struct Enqueued<'a> {
    routing_key: &'a str,
    event_action: &'static str,
    dedup_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Payload<'a>>,
    client: &'static str,
}

#[derive(Serialize)]
struct Payload<'a> {
    summary: String,
    source: String,
    severity: &'static str,
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    custom_details: &'a EventData,
}

pub(super) fn body(event: &Event, routing_key: Option<&Secret>) -> Body {
    fitting(event, LARGEST, |event| {
        enqueued(event, routing_key, if is_over(&event.data) { "resolve" } else { "trigger" }, Some(payload(event)))
    })
}

/// What closes a test's incident again: it has rung, and nobody has to get up to close it.
pub(super) fn closing(event: &Event, routing_key: Option<&Secret>) -> Option<Body> {
    matches!(event.data, EventData::HookTest(_)).then(|| enqueued(event, routing_key, "resolve", None))
}

fn enqueued(
    event: &Event,
    routing_key: Option<&Secret>,
    event_action: &'static str,
    payload: Option<Payload<'_>>,
) -> Body {
    let routing_key = routing_key.map_or("", Secret::reveal);
    let dedup_key = words::line(&dedup_key(event), KEY);
    json("application/json", &Enqueued { routing_key, event_action, dedup_key, payload, client: "Sexton" })
}

fn payload(event: &Event) -> Payload<'_> {
    let field = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(|text| words::line(text, FIELD));
    let label = |key: &str| event.data.alert().and_then(|alert| alert.labels.get(key)).map(String::as_str);
    let job = event.data.job();
    let class = match &event.data {
        EventData::Digest(digest) => Some(digest.why.as_str()),
        data => data.alert().map(|alert| alert.alert.as_str()).or(job.and_then(|dead| dead.error.kind.as_deref())),
    };
    // PagerDuty refuses an event without a source.
    let source = field(Some(event.data.source())).unwrap_or_else(|| "sexton".to_owned());
    Payload {
        summary: words::headline(event, SUMMARY),
        source,
        severity: severity(&event.data),
        timestamp: rfc3339(event.at),
        component: field(label("task").or(job.and_then(|dead| dead.task.as_deref()))),
        group: field(label("queue").or(job.and_then(|dead| dead.queue.as_deref()))),
        class: field(class),
        custom_details: &event.data,
    }
}

/// What makes two events one incident.
fn dedup_key(event: &Event) -> String {
    let source = event.data.source();
    match &event.data {
        EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => alert.incident.clone(),
        EventData::Digest(digest) => format!("sexton/{source}/digest/{}", digest.why),
        EventData::Purged(_) | EventData::HookTest(_) => event.id.clone(),
        EventData::JobDead(dead) | EventData::JobExhausted(dead) => format!("sexton/{source}/group/{}", dead.group),
        EventData::JobRetried(retry) | EventData::JobRecovered(retry) => {
            format!("sexton/{source}/group/{}", retry.dead.group)
        }
    }
}

fn is_over(data: &EventData) -> bool {
    matches!(data, EventData::AlertResolved(_))
}

/// One of PagerDuty's four words, which are those of alert rules.
fn severity(data: &EventData) -> &'static str {
    match data {
        EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => match alert.severity.as_str() {
            "critical" => "critical",
            "warning" => "warning",
            "info" => "info",
            // A word that this version does not know is more likely to be a grave one than not.
            _ => "error",
        },
        EventData::JobDead(_) => "warning",
        // It waits for a person.
        EventData::JobExhausted(_) => "error",
        EventData::Digest(digest) => of_digest(digest),
        EventData::JobRetried(_) | EventData::JobRecovered(_) | EventData::Purged(_) | EventData::HookTest(_) => "info",
    }
}

/// More than the hook's rate, or than the outbox could keep, is worth a look; what has long been there, and what was
/// asked for, is for the record.
fn of_digest(digest: &Digest) -> &'static str {
    if matches!(digest.why.as_str(), "existing" | "schedule") { "info" } else { "warning" }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::samples, *};
    use crate::event::{Alert, Counts, JobDead};

    fn sent(event: &Event) -> Value {
        samples::parsed(&body(event, Some(&Secret::new("R0UTINGKEY"))))
    }

    #[test]
    fn an_alert_opens_its_incident_and_closes_it() {
        let value = sent(&samples::firing());
        let alert = samples::alert();
        assert_eq!(
            value,
            json!({
                "routing_key": "R0UTINGKEY", "event_action": "trigger", "dedup_key": "9f86d081884c7d65",
                "client": "Sexton",
                "payload": {
                    "summary": format!("rising: {}", alert.summary), "source": "orders", "severity": "critical",
                    "timestamp": "2026-11-29T17:12:50.488Z", "component": "send_email", "class": "rising",
                    "custom_details": alert,
                },
            })
        );
        assert!(value["payload"]["custom_details"]["groups"][0]["retrying"].is_string());
        let over = sent(&samples::resolved());
        assert_eq!((&over["event_action"], &over["dedup_key"]), (&json!("resolve"), &value["dedup_key"]));
        let summary = over["payload"]["summary"].as_str().unwrap();
        assert!(summary.starts_with("rising: orders, task send_email: rising is over after 20m"), "{summary}");
    }

    #[test]
    fn the_table_of_incidents() {
        let digest = |why: &str| {
            let counts = Counts { deaths: 9, ..Counts::default() };
            let digest = Digest { why: why.to_owned(), ..samples::digest_of(counts, counts) };
            samples::event(EventData::Digest(Box::new(digest)))
        };
        let group = "sexton/orders/group/7c1f0e9a2b44";
        for (event, key, severity, summary) in [
            (
                samples::job_dead(),
                group,
                "warning",
                "send_email died in orders: ConnectionError: smtp.example.test:25 timed out after 10.0s",
            ),
            (
                samples::exhausted(),
                group,
                "error",
                "send_email is exhausted in orders: died 4 times, 3 retries by rule dependency-flaky; it waits for a \
                 person: ConnectionError: smtp.example.test:25 timed out after 10.0s",
            ),
            (digest("existing"), "sexton/orders/digest/existing", "info", "9 dead jobs were already in orders"),
            (digest("rate"), "sexton/orders/digest/rate", "warning", "9 more jobs died in orders"),
            (
                digest("overflow"),
                "sexton/orders/digest/overflow",
                "warning",
                "9 jobs died in orders while this hook did not answer",
            ),
            (
                samples::summary(),
                "sexton/orders/digest/schedule",
                "info",
                "summary of orders: 12 jobs died, 5 were retried and 3 ran through; 2 of the deaths were not the first; \
                 9 wait now; rising fires",
            ),
            (samples::test(), "evt_1", "info", "a test (hook oncall, source orders)"),
        ] {
            let value = sent(&event);
            assert_eq!(value["event_action"], "trigger", "{key}");
            assert_eq!((&value["dedup_key"], &value["payload"]["severity"]), (&json!(key), &json!(severity)));
            assert_eq!(value["payload"]["summary"], summary);
            assert_eq!(value["payload"]["custom_details"], json!(event.data));
        }
        let value = sent(&samples::job_dead());
        for (field, expected) in [("component", "send_email"), ("group", "default"), ("class", "ConnectionError")] {
            assert_eq!(value["payload"][field], expected);
        }
    }

    #[test]
    fn a_severity_is_one_of_pagerdutys_words() {
        for (severity, expected) in
            [("info", "info"), ("warning", "warning"), ("error", "error"), ("critical", "critical"), ("fatal", "error")]
        {
            let alert = Alert { severity: severity.to_owned(), ..samples::alert() };
            let value = sent(&samples::event(EventData::AlertFiring(Box::new(alert))));
            assert_eq!(value["payload"]["severity"], expected);
        }
    }

    #[test]
    fn a_test_alone_is_closed_at_once() {
        let key = Secret::new("R0UTINGKEY");
        let closing = closing(&samples::test(), Some(&key)).unwrap();
        let expected = json!({
            "routing_key": "R0UTINGKEY", "event_action": "resolve", "dedup_key": "evt_1", "client": "Sexton"
        });
        assert_eq!(samples::parsed(&closing), expected);
        for event in [samples::firing(), samples::job_dead(), samples::digest()] {
            assert_eq!(super::closing(&event, Some(&key)), None);
        }
    }

    #[test]
    fn an_event_keeps_pagerdutys_limits_whatever_is_in_it() {
        let some = || Some("\u{1}\u{202e}é".repeat(100_000));
        // What is part of an identity is never shortened in the details; Sexton itself makes it, and short.
        let long = || "g".repeat(900);
        let payload = Some("A".repeat(600_000));
        let dead =
            JobDead { source: String::new(), task: some(), queue: some(), group: long(), payload, ..samples::dead() };
        let mut alert = Alert { incident: long(), summary: some().unwrap(), ..samples::alert() };
        alert.labels.insert("queue".to_owned(), some().unwrap());
        for data in [EventData::JobDead(Box::new(dead)), EventData::AlertResolved(Box::new(alert))] {
            let body = body(&samples::event(data), None);
            assert!(body.bytes.len() <= 512_000, "{} bytes", body.bytes.len());
            let value = samples::parsed(&body);
            let chars = |value: &Value| value.as_str().unwrap().chars().count();
            assert!(chars(&value["payload"]["summary"]) <= 1_024 && chars(&value["dedup_key"]) <= 255);
            assert!(!value["payload"]["source"].as_str().unwrap().is_empty());
        }
    }
}
