//! What PagerDuty would get, with a receiver in its place.

use std::time::Duration;

use serde_json::{Value, json};
use sexton::{
    config::{Format, HookConfig, Secret, SecretSource},
    event::{Event, EventData, HookTest},
    letter::Millis,
};

use crate::support::{
    SOON,
    hooks::{death, firing, hook, resolved, still_firing},
    lanes::{Running, Store},
    receiver::{Behaviour, Receiver, Request},
};

const KEY: &str = "R0UTINGKEY0123456789abcdefABCDEF";

/// A hook whose URL says the host alone.
fn pager(receiver: &Receiver, routing_key: SecretSource) -> HookConfig {
    let url = receiver.url();
    let host = url.split("/in/").next().unwrap();
    HookConfig { format: Format::PagerDuty, routing_key: Some(routing_key), ..hook(host) }
}

fn inline() -> SecretSource {
    SecretSource::Inline(Secret::new(KEY))
}

/// What a request asks for: action, key of the incident, and whether it was told so before.
fn asked(request: &Request) -> (String, String) {
    let body = request.json();
    let text = |field: &str| body[field].as_str().unwrap().to_owned();
    (text("event_action"), text("dedup_key"))
}

fn all_asked(requests: &[Request]) -> Vec<(String, String)> {
    requests.iter().map(asked).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(action, key)| ((*action).to_owned(), (*key).to_owned())).collect()
}

#[tokio::test]
async fn an_incident_is_opened_told_of_again_and_closed() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    receiver.otherwise(Behaviour::Answer(202, Vec::new(), r#"{"status":"success"}"#));
    let running = Running::start(&store, &pager(&receiver, inline())).await;
    let since = store.ledger.clock().now();
    let all = [firing("a", since), still_firing("a", since), resolved("a", since, since), firing("b", since)];
    store.post(all).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 4).await;
    running.until("all are delivered", |running| running.deliveries("delivered") == 4).await;
    running.stop().await;
    assert!(requests.iter().all(|request| request.line.starts_with("POST /v2/enqueue ")), "{}", requests[0].line);
    assert!(requests.iter().all(|request| request.json()["routing_key"] == KEY));
    let of_a: Vec<_> = all_asked(&requests).into_iter().filter(|(_, key)| key == "incident-of-a").collect();
    let trigger = ("trigger", "incident-of-a");
    assert_eq!(of_a, pairs(&[trigger, trigger, ("resolve", "incident-of-a")]));
    let opened = requests.iter().map(Request::json).find(|body| body["dedup_key"] == "incident-of-b").unwrap();
    assert_eq!(opened["payload"]["custom_details"]["groups"][0]["deaths"], 34);
    assert_eq!(opened["payload"]["severity"], "critical");
}

#[tokio::test]
async fn a_late_beginning_never_follows_its_end() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let slow = |then| Behaviour::After(Duration::from_millis(300), Box::new(then));
    receiver.script([slow(Behaviour::status(503)), slow(Behaviour::Close), Behaviour::status(202)]);
    receiver.otherwise(Behaviour::status(202));
    let running = Running::start(&store, &pager(&receiver, inline())).await;
    let since = store.ledger.clock().now();
    store.post([firing("a", since), resolved("a", since, since)]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 4).await;
    running.until("both are delivered", |running| running.deliveries("delivered") == 2).await;
    running.stop().await;
    let trigger = ("trigger", "incident-of-a");
    assert_eq!(all_asked(&requests), pairs(&[trigger, trigger, trigger, ("resolve", "incident-of-a")]));
}

#[tokio::test]
async fn what_pagerduty_refuses_is_final_and_too_many_or_an_outage_are_not() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let pager_says = |status, headers| Behaviour::Answer(status, headers, r#"{"status":"x"}"#);
    let running = Running::start(&store, &pager(&receiver, inline())).await;
    let since = store.ledger.clock().now();
    receiver.script([pager_says(400, vec![]), pager_says(202, vec![])]);
    store.post([firing("a", since)]).await;
    running.until("it is refused", |running| running.deliveries("rejected") == 1).await;
    store.post([resolved("a", since, since)]).await;
    receiver.until(SOON, |requests| requests.len() == 2).await;
    receiver.script([
        pager_says(429, vec![("retry-after", "1".to_owned())]),
        pager_says(500, vec![]),
        pager_says(202, vec![]),
    ]);
    store.post([firing("b", since)]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 5).await;
    let waited = requests[3].at.duration_since(requests[2].at);
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    running.until("taken in the end", |running| running.deliveries("delivered") == 2).await;
    assert_eq!(running.deliveries("retried"), 2);
    running.stop().await;
}

#[tokio::test]
async fn deaths_of_a_group_are_one_incident_and_retries_are_not_sent() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &pager(&receiver, inline())).await;
    let exhausted = |n| match death(n).data {
        EventData::JobDead(dead) => Event { data: EventData::JobExhausted(dead), ..death(n) },
        other => panic!("{other:?}"),
    };
    let retried = Event { data: EventData::JobRetried(Box::default()), ..death(0) };
    let recovered = Event { data: EventData::JobRecovered(Box::default()), ..death(0) };
    store.post([retried, death(1), recovered, death(2), exhausted(2)]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 3).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
    assert_eq!(receiver.requests().len(), 3);
    let one = ("trigger", "sexton/orders/group/7c1f0e9a2b44");
    assert_eq!(all_asked(&requests), pairs(&[one, one, one]));
    let mut severities: Vec<Value> =
        requests.iter().map(|request| request.json()["payload"]["severity"].clone()).collect();
    severities.sort_by_key(Value::to_string);
    assert_eq!(severities, [json!("error"), json!("warning"), json!("warning")]);
}

#[tokio::test]
async fn a_test_rings_and_is_over_and_is_only_delivered_with_both() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    receiver.script([202, 503].map(Behaviour::status));
    receiver.otherwise(Behaviour::status(202));
    let running = Running::start(&store, &pager(&receiver, inline())).await;
    let test = HookTest { source: "orders".to_owned(), hook: "oncall".to_owned(), summary: "a test".to_owned() };
    store.post([Event { data: EventData::HookTest(test), ..death(0) }]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 4).await;
    running.until("delivered", |running| running.deliveries("delivered") == 1).await;
    running.stop().await;
    let key = requests[0].id().to_owned();
    let (trigger, resolve) = (("trigger", key.as_str()), ("resolve", key.as_str()));
    assert_eq!(all_asked(&requests), pairs(&[trigger, resolve, trigger, resolve]));
    assert_eq!(requests[0].json()["payload"]["severity"], "info");
}

#[tokio::test]
async fn a_key_in_a_file_may_come_late_and_change() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let running = Running::start(&store, &pager(&receiver, SecretSource::File(path.clone()))).await;
    store.post([firing("a", Millis(0))]).await;
    running.until("it cannot be sent yet", |running| running.deliveries("retried") >= 1).await;
    std::fs::write(&path, format!("{KEY}\n")).unwrap();
    let requests = receiver.until(SOON, |requests| requests.len() == 1).await;
    assert_eq!(requests[0].json()["routing_key"], KEY);
    std::fs::write(&path, "another").unwrap();
    store.post([firing("b", Millis(0))]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 2).await;
    assert_eq!(requests[1].json()["routing_key"], "another");
    running.stop().await;
}

#[tokio::test]
async fn no_answer_shows_the_key() {
    let receiver = Receiver::start().await;
    receiver.otherwise(Behaviour::Answer(400, Vec::new(), "no such key: R0UTINGKEY0123456789abcdefABCDEF"));
    let client = sexton::hook::Client::new(&pager(&receiver, inline())).unwrap();
    let sent = client.send(&firing("a", Millis(0)), Millis(0)).await;
    assert_eq!(sent.error.as_deref(), Some("400 Bad Request (its answer is not shown)"));
    assert!(!format!("{client:?}").contains(KEY));
}
