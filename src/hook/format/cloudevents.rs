//! CloudEvents 1.0 in structured mode. An event that would be too large for the least a consumer must take is
//! shortened, the optional parts first.

use serde::Serialize;

use super::{Body, json, shorten::fitting};
use crate::event::{Event, EventData, rfc3339};

/// What every consumer must accept, less some room for what stands between us.
const LARGEST: usize = 63 * 1024;

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    datacontenttype: &'static str,
    data: &'a EventData,
}

pub(super) fn body(event: &Event) -> Body {
    fitting(event, LARGEST, whole)
}

fn whole(event: &Event) -> Body {
    let cloud_event = CloudEvent {
        specversion: "1.0",
        id: &event.id,
        source: format!("/sexton/{}", segment(event.data.source())),
        r#type: format!("io.sexton.{}", event.kind().as_str()),
        // An empty subject is not allowed.
        subject: subject(&event.data).filter(|subject| !subject.is_empty()),
        time: rfc3339(event.at),
        datacontenttype: "application/json",
        data: &event.data,
    };
    json("application/cloudevents+json", &cloud_event)
}

/// What it is about in its source: the task of a job, the rule of an alert.
fn subject(data: &EventData) -> Option<&str> {
    match data.alert() {
        Some(alert) => Some(&alert.alert),
        None => data.job()?.task.as_deref(),
    }
}

/// A name as a segment of a URI's path.
fn segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{super::samples, *};
    use crate::event::{AlertGroup, Counts, ErrorText, GroupCount, JobDead, JobRetry};

    #[test]
    fn a_death_has_every_required_attribute_and_its_task_as_subject() {
        let body = body(&samples::job_dead());
        let value = samples::parsed(&body);
        for (attribute, expected) in [
            ("specversion", "1.0"),
            ("id", "evt_1"),
            ("source", "/sexton/orders"),
            ("type", "io.sexton.job.dead"),
            ("subject", "send_email"),
            ("time", "2026-11-29T17:12:50.488Z"),
            ("datacontenttype", "application/json"),
        ] {
            assert_eq!(value[attribute], expected, "{attribute}");
        }
        assert_eq!(value["data"]["entry_id"], "1795972370488-0");
        assert_eq!(body.content_type, "application/cloudevents+json");
    }

    #[test]
    fn an_attribute_without_a_value_is_absent_and_a_source_is_a_uri() {
        let mut dead = samples::dead();
        dead.task = Some(String::new());
        dead.source = "a b/ü".to_owned();
        let value = samples::parsed(&body(&samples::event(EventData::JobDead(Box::new(dead)))));
        assert!(value.get("subject").is_none());
        assert_eq!(value["source"], "/sexton/a%20b%2F%C3%BC");
        assert_eq!(samples::parsed(&body(&samples::digest()))["type"], "io.sexton.dlq.digest");
        assert_eq!(samples::parsed(&body(&samples::test()))["type"], "io.sexton.hook.test");
    }

    #[test]
    fn what_becomes_of_a_job_has_its_name_as_type_and_its_task_as_subject() {
        for (event, kind) in [
            (samples::retried(), "io.sexton.job.retried"),
            (samples::recovered(), "io.sexton.job.recovered"),
            (samples::exhausted(), "io.sexton.job.exhausted"),
        ] {
            let value = samples::parsed(&body(&event));
            assert_eq!((&value["type"], &value["subject"]), (&kind.into(), &"send_email".into()));
            assert_eq!(value["source"], "/sexton/orders");
            assert_eq!(value["data"], serde_json::to_value(&event.data).unwrap());
        }
    }

    #[test]
    fn an_alert_has_its_name_as_type_and_its_rule_as_subject() {
        for (event, kind) in
            [(samples::firing(), "io.sexton.alert.firing"), (samples::resolved(), "io.sexton.alert.resolved")]
        {
            let value = samples::parsed(&body(&event));
            assert_eq!((&value["type"], &value["subject"]), (&kind.into(), &"rising".into()));
            assert_eq!(value["source"], "/sexton/orders");
            assert_eq!(value["data"]["incident"], "9f86d081884c7d65");
        }
        assert!(samples::parsed(&body(&samples::summary())).get("subject").is_none());
    }

    #[test]
    fn an_event_too_large_loses_its_payload_first_and_always_fits() {
        let with = |dead: &JobDead| {
            let retry = || Box::new(JobRetry { dead: dead.clone(), ..samples::retry() });
            [
                EventData::JobDead(Box::new(dead.clone())),
                EventData::JobRetried(retry()),
                EventData::JobRecovered(retry()),
                EventData::JobExhausted(Box::new(dead.clone())),
            ]
        };
        let mut dead = samples::dead();
        dead.traceback = Some("t".repeat(8_192));
        dead.payload = Some("A".repeat(LARGEST));
        for data in with(&dead) {
            let value = samples::parsed(&body(&samples::event(data)));
            assert!(value["data"].get("payload").is_none());
            assert_eq!(value["data"]["traceback"].as_str().unwrap().len(), 8_192);
            assert_eq!(value["data"]["task"], "send_email");
        }

        let rubbish = || Some("\u{1}".repeat(1_000_000));
        dead.task = rubbish();
        dead.job_id = rubbish();
        dead.queue = rubbish();
        dead.reason = rubbish();
        dead.error.kind = rubbish();
        dead.error.message = rubbish();
        dead.traceback = rubbish();
        dead.traceparent = rubbish();
        let mut digest = samples::digest();
        if let EventData::Digest(digest) = &mut digest.data {
            digest.samples = vec![dead.clone(); 3];
            let all = Counts { deaths: u64::MAX, retried: u64::MAX, recovered: u64::MAX, exhausted: u64::MAX };
            let group =
                GroupCount { counts: all, task: rubbish(), error: dead.error.clone(), ..digest.groups[0].clone() };
            digest.groups = vec![group; 10];
        }
        let rubbish = || Some("\u{1}".repeat(20_000));
        let error = ErrorText { kind: rubbish(), message: rubbish() };
        let group = AlertGroup {
            task: rubbish(),
            queue: rubbish(),
            reason: rubbish(),
            error,
            retrying: rubbish(),
            ..samples::alert().groups[0].clone()
        };
        let mut alert = samples::alert();
        alert.summary = rubbish().unwrap();
        alert.labels.values_mut().for_each(|value| *value = rubbish().unwrap());
        alert.groups = vec![group; 5];
        let alert = samples::event(EventData::AlertFiring(Box::new(alert)));
        for event in with(&dead).map(samples::event).into_iter().chain([digest, alert]) {
            let size = body(&event).bytes.len();
            assert!(size <= LARGEST, "{size} bytes");
        }
    }
}
