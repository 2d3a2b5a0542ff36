//! stub
use super::Keys;
use crate::letter::*;
/// stub
pub fn decode(_keys: &Keys, entry_id: &str, fields: Vec<(Vec<u8>, Vec<u8>)>) -> DeadLetter {
    let get = |n: &str| {
        fields
            .iter()
            .find(|(k, _)| k == n.as_bytes())
            .map(|(_, v)| String::from_utf8_lossy(v).into_owned())
            .unwrap_or_default()
    };
    DeadLetter {
        entry_id: entry_id.into(),
        job_id: get("id"),
        task: get("task"),
        queue: "default".into(),
        reason: Reason::parse(&get("dlq_reason")),
        error: ErrorInfo::default(),
        detail: vec![],
        attempts: 1,
        deliveries: 1,
        history: vec![],
        verdict: Verdict::Unknown,
        group: Group("000000000000".into()),
        enqueued_at: None,
        died_at: Millis(0),
        traceparent: None,
        payload: vec![],
        dedup: None,
        origin: String::new(),
        foreign: false,
    }
}
