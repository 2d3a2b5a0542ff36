//! Whatever stands in the DLQ: nothing panics, nothing stops, each entry is announced with what can be known.

use std::collections::BTreeMap;

use crate::support::{
    SOON,
    graveyard::{bury_many, bury_recorded, bury_rubbish},
    ledger::{buried, every_death_announced_once},
    process::{Sexton, Stream},
    receiver::Receiver,
    redis::{Options, Redis},
};

const NS: &str = "lrs";

#[tokio::test]
async fn real_records_and_rubbish_are_all_announced() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let receiver = Receiver::start().await;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: all, url: \"{}\", rate: unlimited, include: [traceback, history, payload]}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url(),
        receiver.url()
    ));
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    let recorded = bury_recorded(&mut con, NS).await;
    bury_rubbish(&mut con, NS).await;
    let ids = buried(&mut con, NS).await;

    let requests = receiver.until(SOON, |requests| requests.len() >= ids.len()).await;
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(ids.len()));
    let events: BTreeMap<String, serde_json::Value> = requests
        .iter()
        .map(|request| {
            let body = request.json();
            (body["data"]["entry_id"].as_str().unwrap().to_owned(), body)
        })
        .collect();
    assert_eq!(events.keys().collect::<std::collections::BTreeSet<_>>(), ids.iter().collect());
    for entry in &recorded {
        let field = |name: &str| {
            let (_, value) = entry.fields.iter().rev().find(|(known, _)| known == name.as_bytes())?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        let data = &events[&entry.id]["data"];
        assert_eq!(data["reason"].as_str().map(str::to_owned), field("dlq_reason"), "{}", entry.id);
        if field("dlq_source").is_some_and(|source| source.starts_with(&format!("{{{NS}}}:q:"))) {
            assert_eq!(data["job_id"].as_str().map(str::to_owned), field("id"), "{}", entry.id);
            assert_eq!(data["task"].as_str().map(str::to_owned), field("task"), "{}", entry.id);
        }
    }
    // A body is never so large that a receiver would choke on it, whatever the record holds.
    for request in &requests {
        assert!(request.body.len() < 512 * 1024, "{} bytes", request.body.len());
    }
    // Labels stay few and readable.
    let (_, exposition) = http.get("/metrics").await.unwrap();
    assert!(exposition.lines().all(|line| line.len() < 1_000));

    // And after all that it still works, and has never complained.
    bury_many(&mut con, NS, 0..10).await;
    receiver.until(SOON, |requests| requests.len() >= ids.len() + 10).await;
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("panicked") && !shown.contains("\"level\":\"ERROR\""), "{shown}");
}
