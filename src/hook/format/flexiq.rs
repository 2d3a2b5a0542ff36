//! flexiq's own webhook body, so that receivers written for flexiq work unchanged.
//!
//! As flexiq 2.1 sends it: `error` is a text that holds a JSON document of `errtype`, `message` and `traceback` lines.
//! Beyond flexiq's fields there are some of ours, which such a receiver does not look at. Events that only Sexton has
//! keep their names, and have the same shape; a job that ran through has no `error`.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Body, words};
use crate::event::{Alert, Event, EventData, HookTest, JobDead, JobRetry};

/// flexiq's fields first, in its order, then `more`.
#[derive(Serialize)]
struct Flexiq<'a> {
    event: &'static str,
    job_id: Option<&'a str>,
    task_name: Option<&'a str>,
    queue: Option<&'a str>,
    error: Option<String>,
    /// flexiq knows how long the last attempt ran; a dead letter does not.
    duration_ms: Option<u64>,
    id: &'a str,
    #[serde(flatten)]
    more: Value,
}

pub(super) fn body(event: &Event) -> Body {
    let flexiq = match &event.data {
        EventData::JobDead(dead) | EventData::JobExhausted(dead) => of_job(event, dead, death(dead)),
        EventData::JobRetried(retry) => of_job(event, &retry.dead, attempt(retry)),
        EventData::JobRecovered(retry) => Flexiq { error: None, ..of_job(event, &retry.dead, attempt(retry)) },
        EventData::Digest(digest) => Flexiq { error: Some(words::digest(digest)), ..blank(event, json!(digest)) },
        EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => of_alert(event, alert),
        EventData::Purged(purge) => Flexiq { error: Some(purge.summary()), ..blank(event, json!(purge)) },
        EventData::HookTest(HookTest { source, hook, summary }) => {
            blank(event, json!({"source": source, "hook": hook, "message": summary}))
        }
    };
    super::json("application/json", &flexiq)
}

fn blank(event: &Event, more: Value) -> Flexiq<'_> {
    Flexiq {
        event: event.kind().as_str(),
        job_id: None,
        task_name: None,
        queue: None,
        error: None,
        duration_ms: None,
        id: &event.id,
        more,
    }
}

fn of_job<'a>(event: &'a Event, dead: &'a JobDead, more: Value) -> Flexiq<'a> {
    Flexiq {
        job_id: dead.job_id.as_deref(),
        task_name: dead.task.as_deref(),
        queue: dead.queue.as_deref(),
        error: Some(error(dead)),
        ..blank(event, more)
    }
}

/// `error` is the alert's sentence. What its labels name stands where it stands for a job.
fn of_alert<'a>(event: &'a Event, alert: &'a Alert) -> Flexiq<'a> {
    let label = |key: &str| alert.labels.get(key).map(String::as_str);
    Flexiq {
        task_name: label("task"),
        queue: label("queue"),
        error: Some(alert.summary.clone()),
        ..blank(event, json!(alert))
    }
}

fn error(dead: &JobDead) -> String {
    let traceback: Vec<&str> = dead.traceback.as_deref().map(|text| text.lines().collect()).unwrap_or_default();
    let (kind, message) = (dead.error.kind.as_deref(), dead.error.message.as_deref());
    json!({"errtype": kind.unwrap_or_default(), "message": message.unwrap_or_default(), "traceback": traceback})
        .to_string()
}

fn death(dead: &JobDead) -> Value {
    let mut fields = json!({
        "source": dead.source, "entry_id": dead.entry_id, "reason": dead.reason, "attempts": dead.attempts,
        "history": dead.history, "group": dead.group, "enqueued_at": dead.enqueued_at, "died_at": dead.died_at,
        "deaths": dead.deaths, "retries": dead.retries, "rule": dead.rule, "next_retry_at": dead.next_retry_at,
    });
    if let Some(errors) = &dead.attempt_errors {
        fields["attempt_errors"] = json!(errors);
    }
    if let Some(payload) = &dead.payload {
        fields["payload"] = json!(payload);
    }
    fields
}

/// What became of the dead letter.
fn attempt(retry: &JobRetry) -> Value {
    let mut fields = death(&retry.dead);
    fields["retried_at"] = json!(retry.retried_at);
    fields["recovered_at"] = json!(retry.recovered_at);
    fields
}

#[cfg(test)]
mod tests {
    use super::{super::samples, *};
    use crate::event::Counts;

    #[test]
    fn a_death_has_flexiqs_fields_and_its_error_document() {
        let body = body(&samples::job_dead());
        let value = samples::parsed(&body);
        for (field, expected) in [
            ("event", json!("job.dead")),
            ("job_id", json!("d40ec568")),
            ("task_name", json!("send_email")),
            ("queue", json!("default")),
            ("duration_ms", Value::Null),
            ("group", json!("7c1f0e9a2b44")),
        ] {
            assert_eq!(value[field], expected, "{field}");
        }
        let error: Value = serde_json::from_str(value["error"].as_str().unwrap()).unwrap();
        let message = "smtp.example.test:25 timed out after 10.0s";
        assert_eq!(error, json!({"errtype": "ConnectionError", "message": message, "traceback": []}));
        assert!(value.get("payload").is_none());
        assert_eq!(body.content_type, "application/json");
    }

    #[test]
    fn what_becomes_of_a_job_has_the_same_shape_and_an_error_unless_it_ran_through() {
        for (event, kind, retried, recovered) in [
            (samples::retried(), "job.retried", true, false),
            (samples::recovered(), "job.recovered", true, true),
            (samples::exhausted(), "job.exhausted", false, false),
        ] {
            let value = samples::parsed(&body(&event));
            for (field, expected) in [
                ("event", json!(kind)),
                ("job_id", json!("d40ec568")),
                ("task_name", json!("send_email")),
                ("queue", json!("default")),
                ("rule", json!("dependency-flaky")),
                ("retries", json!(event.data.job().unwrap().retries)),
                ("entry_id", json!("1795972370488-0")),
            ] {
                assert_eq!(value[field], expected, "{kind} {field}");
            }
            assert_eq!((value["retried_at"].is_string(), value["recovered_at"].is_string()), (retried, recovered));
            let error = value["error"].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(error.map(|error| error["errtype"].clone()), (!recovered).then(|| json!("ConnectionError")));
        }
    }

    #[test]
    fn a_traceback_that_is_included_is_a_list_of_lines() {
        let mut dead = samples::dead();
        dead.traceback = Some("Traceback:\n  File\nValueError: x".to_owned());
        let error: Value = serde_json::from_str(&error(&dead)).unwrap();
        assert_eq!(error["traceback"], json!(["Traceback:", "  File", "ValueError: x"]));
    }

    #[test]
    fn digests_and_tests_have_the_same_shape() {
        let value = samples::parsed(&body(&samples::digest()));
        assert_eq!(value["event"], "dlq.digest");
        assert_eq!(value["task_name"], Value::Null);
        assert_eq!(value["error"], "940 more jobs died in orders");
        assert_eq!(value["count"], 940);
        let counts = Counts { retried: 12, recovered: 1, ..Counts::default() };
        let digest = EventData::Digest(Box::new(samples::digest_of(counts, counts)));
        let value = samples::parsed(&body(&samples::event(digest)));
        assert_eq!(value["error"], "12 more jobs were retried and 1 ran through in orders");
        assert_eq!((&value["count"], &value["retried"], &value["recovered"]), (&json!(0), &json!(12), &json!(1)));
        let value = samples::parsed(&body(&samples::summary()));
        assert!(
            value["error"].as_str().unwrap().starts_with("summary of orders: 12 jobs died, "),
            "{}",
            value["error"]
        );
        assert_eq!(value["outlook"]["waiting"], 9);
        let value = samples::parsed(&body(&samples::purged()));
        assert_eq!((&value["event"], &value["count"]), (&json!("dlq.purged"), &json!(900_000)));
        let value = samples::parsed(&body(&samples::test()));
        assert_eq!((&value["event"], &value["message"]), (&json!("hook.test"), &json!("a test")));
    }

    #[test]
    fn an_alert_has_the_same_shape_and_its_sentence_as_error() {
        for (event, kind) in [(samples::firing(), "alert.firing"), (samples::resolved(), "alert.resolved")] {
            let value = samples::parsed(&body(&event));
            let alert = event.data.alert().unwrap();
            for (field, expected) in [
                ("event", json!(kind)),
                ("job_id", Value::Null),
                ("task_name", json!("send_email")),
                ("queue", Value::Null),
                ("error", json!(alert.summary)),
                ("incident", json!("9f86d081884c7d65")),
                ("severity", json!("critical")),
                ("groups", json!(alert.groups)),
            ] {
                assert_eq!(value[field], expected, "{kind} {field}");
            }
        }
    }
}
