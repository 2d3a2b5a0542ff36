//! Standard Webhooks: `{"type","timestamp","data"}`.

use serde::Serialize;

use super::{Body, json};
use crate::event::{Event, EventData, rfc3339};

#[derive(Serialize)]
struct Standard<'a> {
    r#type: &'static str,
    timestamp: Option<String>,
    data: &'a EventData,
}

pub(super) fn body(event: &Event) -> Body {
    let standard = Standard { r#type: event.kind().as_str(), timestamp: rfc3339(event.at), data: &event.data };
    json("application/json", &standard)
}

#[cfg(test)]
mod tests {
    use super::{super::samples, *};

    #[test]
    fn the_body_is_exactly_as_documented() {
        let body = body(&samples::job_dead());
        assert_eq!(
            String::from_utf8(body.bytes).unwrap(),
            concat!(
                r#"{"type":"job.dead","timestamp":"2026-11-29T17:12:50.488Z","data":{"source":"orders","#,
                r#""entry_id":"1795972370488-0","job_id":"d40ec568","task":"send_email","queue":"default","#,
                r#""reason":"max_attempts","error":{"type":"ConnectionError","#,
                r#""message":"smtp.example.test:25 timed out after 10.0s"},"attempts":3,"deliveries":1,"#,
                r#""history":"same","group":"7c1f0e9a2b44","enqueued_at":"2026-11-29T17:12:40.000Z","#,
                r#""died_at":"2026-11-29T17:12:50.488Z","deaths":1,"retries":0,"rule":null,"#,
                r#""next_retry_at":null,"traceparent":null}}"#
            )
        );
        assert_eq!(body.content_type, "application/json");
    }

    #[test]
    fn every_other_event_has_the_same_frame() {
        for (event, kind) in [
            (samples::retried(), "job.retried"),
            (samples::recovered(), "job.recovered"),
            (samples::exhausted(), "job.exhausted"),
            (samples::digest(), "dlq.digest"),
            (samples::summary(), "dlq.digest"),
            (samples::firing(), "alert.firing"),
            (samples::purged(), "dlq.purged"),
            (samples::test(), "hook.test"),
        ] {
            let value = samples::parsed(&body(&event));
            assert_eq!(value["type"], kind);
            assert_eq!(value["timestamp"], "2026-11-29T17:12:50.488Z");
            assert_eq!(value["data"]["source"], "orders");
            assert_eq!(value["data"], serde_json::to_value(&event.data).unwrap());
        }
        let value = samples::parsed(&body(&samples::resolved()));
        assert_eq!((&value["type"], &value["timestamp"]), (&"alert.resolved".into(), &value["data"]["resolved_at"]));
    }
}
