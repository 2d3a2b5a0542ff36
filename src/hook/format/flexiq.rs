//! flexiq's own webhook body, so that receivers written for flexiq work unchanged.
//!
//! As flexiq 2.1 sends it: `error` is a text that holds a JSON document of `errtype`, `message` and `traceback` lines.
//! Beyond flexiq's fields there are some of ours, which such a receiver does not look at.

use serde::Serialize;
use serde_json::{Value, json};

use super::Body;
use crate::event::{Digest, Event, EventData, HookTest, JobDead};

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
    let blank = Flexiq {
        event: event.kind().as_str(),
        job_id: None,
        task_name: None,
        queue: None,
        error: None,
        duration_ms: None,
        id: &event.id,
        more: Value::Null,
    };
    let flexiq = match &event.data {
        EventData::JobRetried(retry) | EventData::JobRecovered(retry) => {
            Flexiq { job_id: retry.dead.job_id.as_deref(), more: json!(retry), ..blank }
        }
        EventData::JobDead(dead) | EventData::JobExhausted(dead) => Flexiq {
            job_id: dead.job_id.as_deref(),
            task_name: dead.task.as_deref(),
            queue: dead.queue.as_deref(),
            error: Some(error(dead)),
            more: death(dead),
            ..blank
        },
        EventData::Digest(digest) => Flexiq { error: Some(summary(digest)), more: json!(digest), ..blank },
        EventData::HookTest(HookTest { source, hook, summary }) => {
            Flexiq { more: json!({"source": source, "hook": hook, "message": summary}), ..blank }
        }
    };
    super::json("application/json", &flexiq)
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
        "deaths": dead.deaths, "retries": dead.retries,
    });
    if let Some(errors) = &dead.attempt_errors {
        fields["attempt_errors"] = json!(errors);
    }
    if let Some(payload) = &dead.payload {
        fields["payload"] = json!(payload);
    }
    fields
}

fn summary(digest: &Digest) -> String {
    format!("{} jobs died in {}", digest.count, digest.source)
}

#[cfg(test)]
mod tests {
    use super::{super::samples, *};

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
        assert_eq!(value["error"], "940 jobs died in orders");
        assert_eq!(value["count"], 940);
        let value = samples::parsed(&body(&samples::test()));
        assert_eq!((&value["event"], &value["message"]), (&json!("hook.test"), &json!("a test")));
    }
}
