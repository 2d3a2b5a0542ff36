//! What the ledger must hold in the end, read from Redis itself and not through Sexton.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;

use super::graveyard::dlq;

/// How often each DLQ entry stands on the outbox, by entry id; the `webhook-id`'s last part is not looked at.
pub(crate) async fn announced(con: &mut MultiplexedConnection, namespace: &str) -> BTreeMap<String, u32> {
    let mut times = BTreeMap::new();
    for (kind, data) in outbox(con, namespace).await {
        if kind == "job.dead" {
            *times.entry(data["entry_id"].as_str().expect("it names its entry").to_owned()).or_default() += 1;
        }
    }
    times
}

/// The events about jobs that stand on the outbox, in order: kind and data.
pub(crate) async fn outbox(con: &mut MultiplexedConnection, namespace: &str) -> Vec<(String, serde_json::Value)> {
    outbox_of(con, namespace, "deaths").await
}

/// The events of a lane, in order: kind and data.
pub(crate) async fn outbox_of(
    con: &mut MultiplexedConnection,
    namespace: &str,
    lane: &str,
) -> Vec<(String, serde_json::Value)> {
    let outbox: redis::streams::StreamRangeReply = redis::cmd("XRANGE")
        .arg(format!("{{{namespace}}}:sexton:outbox:{lane}"))
        .arg("-")
        .arg("+")
        .query_async(con)
        .await
        .expect("the outbox can be read");
    let event = |entry: redis::streams::StreamId| {
        let kind: String = entry.get("type").expect("every event has a type");
        let data: String = entry.get("data").expect("every event has data");
        (kind, serde_json::from_str(&data).expect("an event's data is JSON"))
    };
    outbox.ids.into_iter().map(event).collect()
}

/// The ids in the DLQ, in order.
pub(crate) async fn buried(con: &mut MultiplexedConnection, namespace: &str) -> Vec<String> {
    let entries: redis::Value =
        redis::cmd("XRANGE").arg(dlq(namespace)).arg("-").arg("+").query_async(con).await.expect("the DLQ can be read");
    let redis::Value::Array(entries) = entries else { panic!("XRANGE gives an array") };
    let id = |entry: redis::Value| match entry {
        redis::Value::Array(mut parts) => redis::from_redis_value(parts.swap_remove(0)).expect("an id is a text"),
        other => panic!("{other:?}"),
    };
    entries.into_iter().map(id).collect()
}

/// Whether every entry of the DLQ has exactly one event; what is wrong otherwise.
pub(crate) async fn every_death_announced_once(
    con: &mut MultiplexedConnection,
    namespace: &str,
) -> Result<usize, String> {
    let announced = announced(con, namespace).await;
    let buried = buried(con, namespace).await;
    let missing: Vec<_> = buried.iter().filter(|id| !announced.contains_key(*id)).collect();
    let doubled: Vec<_> = announced.iter().filter(|(_, times)| **times > 1).collect();
    if missing.is_empty() && doubled.is_empty() {
        return Ok(buried.len());
    }
    Err(format!(
        "{} missing (first {:?}), {} doubled (first {:?})",
        missing.len(),
        missing.first(),
        doubled.len(),
        doubled.first()
    ))
}
