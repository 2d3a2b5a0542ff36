//! Bulk operations over HTTP.

use serde_json::json;

use super::{Stage, config};
use crate::support::{
    SOON,
    api::{Ask, CI_TOKEN},
    eventually,
    ledger::outbox_of,
    process::Sexton,
};

#[tokio::test]
async fn two_clients_at_once_retry_every_entry_once() {
    let stage = Stage::with(1_000).await;
    let ask = Ask::post("/dead-letters:retry", &json!({"filter": {"task": ["send_*", "charge_*"]}}));
    let (one, two) = tokio::join!(stage.http.ask(ask.clone()), stage.http.ask(ask));
    let mut done = 0;
    for begun in [one.with(202), two.with(202)] {
        // One for each source.
        for operation in begun["items"].as_array().unwrap() {
            let ended = stage.http.ended(operation["id"].as_str().unwrap()).await;
            assert_eq!(ended["state"], "done", "{ended}");
            done += ended["done"].as_u64().unwrap();
        }
    }
    assert_eq!((done, stage.queued().await, stage.left().await), (400, 400, 600));
}

#[tokio::test]
async fn an_operation_survives_the_death_of_the_leader_and_its_counts_are_exact() {
    let mut stage = Stage::with(1_500).await;
    let other = Sexton::run_with(&config(&stage.redis), &[("ci-token", CI_TOKEN)]);
    let http = other.http().await;
    http.metric_is("sexton_up", &[("source", "orders")], 1.0).await;
    // Asked of the replica that does not lead.
    let body = json!({"filter": {"source": ["orders"]}, "all": true, "per_second": 500, "note": "too many"});
    let begun = http.ask(Ask::post("/dead-letters:delete", &body)).await;
    let id = begun.with(202)["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(begun.header("location"), Some(&*format!("/api/v1/operations/{id}")));
    eventually("some are gone", SOON, || async { (stage.left().await < 1_300).then_some(()) }).await;
    stage.sexton.process.kill();
    let half = stage.left().await;
    assert!(half > 0, "it was too fast to be killed in between");
    let ended = http.ended(&id).await;
    assert_eq!((ended["state"].as_str(), ended["done"].as_u64()), (Some("done"), Some(1_500)), "{ended}");
    assert_eq!(
        (ended["refused"].as_object().map(serde_json::Map::len), ended["note"].as_str()),
        (Some(0), Some("too many"))
    );
    assert_eq!(stage.left().await, 0);
    let removed = http.ask(Ask::get("/audit?limit=1000&source=orders")).await.with(200);
    let lines = removed["items"].as_array().unwrap();
    assert!(lines.iter().filter(|line| line["what"] == "removed").count() > 990, "one line each");
}

#[tokio::test]
async fn a_cancelled_operation_stops_within_a_second_and_says_what_it_did() {
    let stage = Stage::with(2_000).await;
    let body = json!({"filter": {"source": ["orders"], "reason": ["max_attempts"]}, "per_second": 200});
    let begun = stage.http.ask(Ask::post("/dead-letters:retry", &body)).await.with(202);
    let id = begun["items"][0]["id"].as_str().unwrap().to_owned();
    eventually("some are retried", SOON, || async { (stage.queued().await > 50).then_some(()) }).await;
    let cancel = Ask::post(&format!("/operations/{id}/cancel"), &json!({}));
    let cancelled = stage.http.ask(cancel.clone()).await.with(200);
    assert_eq!(cancelled["state"], "cancelled");
    // The store refuses whatever comes after that.
    let queued = stage.queued().await;
    let after = stage.http.ask(Ask::get(&format!("/operations/{id}"))).await.with(200);
    assert_eq!((after["done"].as_u64(), after["state"].as_str()), (Some(queued as u64), Some("cancelled")), "{after}");
    stage.sexton.process.says("an operation has ended").await;
    assert_eq!((stage.queued().await, stage.left().await), (queued, 2_000 - queued));
    assert_eq!(stage.http.ask(cancel).await.with(200)["state"], "cancelled", "once more changes nothing");
    let unknown = Ask::post("/operations/00000000000000000000/cancel", &json!({}));
    assert_eq!(stage.http.ask(unknown).await.status, 404);
}

#[tokio::test]
async fn a_dry_run_counts_and_a_purge_is_announced() {
    let mut stage = Stage::with(300).await;
    let begin = |path: &'static str, body: serde_json::Value| async move {
        let begun = stage.http.ask(Ask::post(path, &body)).await.with(202);
        stage.http.ended(begun["items"][0]["id"].as_str().unwrap()).await
    };
    let old = json!({"source": ["orders"], "older_than": "0s"});
    let counted = begin("/dead-letters:purge", json!({"filter": old, "dry_run": true})).await;
    assert_eq!((counted["matched"].as_u64(), counted["state"].as_str()), (Some(300), Some("done")), "{counted}");
    let filter = json!({"source": ["orders"], "task": ["send_email"], "older_than": "0s"});
    let purged = begin("/dead-letters:purge", json!({"filter": filter, "note": "nobody reads them"})).await;
    assert_eq!(purged["done"].as_u64(), Some(60), "{purged}");
    let told = outbox_of(&mut stage.con, super::NS, "alerts").await;
    let [(kind, event)] = &told[..] else { panic!("one event: {told:?}") };
    assert_eq!(kind, "dlq.purged");
    assert_eq!((event["count"].as_u64(), event["by"].as_str()), (Some(60), Some("token:default")));
    assert_eq!((event["why"].as_str(), event["note"].as_str()), (Some("purge"), Some("nobody reads them")));
    assert!(event["oldest_died_at"].as_str().unwrap() < event["newest_died_at"].as_str().unwrap());
    let count = [("source", "orders"), ("why", "purge")];
    assert_eq!(stage.http.metric("sexton_dlq_purged_total", &count).await, Some(60.0));
}

#[tokio::test]
async fn several_operations_share_the_leader_and_begin_at_once() {
    let stage = Stage::with(1_000).await;
    let slow = json!({"filter": {"source": ["orders"], "task": ["send_email"]}, "per_second": 20});
    let slow = stage.http.ask(Ask::post("/dead-letters:retry", &slow)).await.with(202);
    let quick = json!({"filter": {"source": ["orders"], "task": ["parse_order"]}});
    let quick = stage.http.ask(Ask::post("/dead-letters:delete", &quick)).await.with(202);
    let ended = stage.http.ended(quick["items"][0]["id"].as_str().unwrap()).await;
    assert_eq!(ended["done"].as_u64(), Some(200), "{ended}");
    let slow = stage.http.ask(Ask::get(&format!("/operations/{}", slow["items"][0]["id"].as_str().unwrap()))).await;
    assert_eq!(slow.with(200)["state"], "running", "the one in front did not hold it up");
    let listed = stage.http.ask(Ask::get("/operations?limit=5")).await.with(200);
    let acts: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["delete", "retry"], "the newest first");
}
