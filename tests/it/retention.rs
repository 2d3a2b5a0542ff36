//! Retention: what a DLQ keeps, and what stays whatever the policy says.

use redis::aio::MultiplexedConnection;

use crate::support::{
    SOON, eventually,
    graveyard::{bury_all, bury_as, letter_at},
    ledger::{buried, outbox_of},
    process::{Http, Sexton},
    redis::Redis,
    workers::now,
};

const NS: &str = "lrs";
const HOUR: i64 = 3_600_000;
/// Keeps every `send_email` in the due index for a day; of five letters one is of that task.
const RULES: &str = "retry: [{name: later, match: {task: [send_email]}, min_age: 1d}]\n";

fn config(redis: &Redis, retention: &str) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
         retention: {retention}\nrules: [rules.yaml]\n",
        redis.url()
    )
}

/// Buries the letters of these numbers as if they had died so long ago; returns their ids.
async fn bury_old(con: &mut MultiplexedConnection, numbers: std::ops::Range<u64>, ago: i64) -> Vec<String> {
    let died = u64::try_from(now(con).await - ago).unwrap();
    let mut ids = Vec::new();
    for n in numbers {
        ids.push(bury_as(con, NS, &format!("{died}-{}", n + 1), &letter_at(NS, n, died)).await);
    }
    ids
}

/// Waits until the policy has removed so many.
async fn removed(http: Http, entries: f64) {
    http.metric_is("sexton_dlq_purged_total", &[("source", "orders"), ("why", "retention")], entries).await;
}

#[tokio::test]
async fn what_is_too_old_goes_but_for_what_a_rule_will_retry() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    // More than a piece, and the head is all of entries that stay.
    let died = u64::try_from(now(&mut con).await - 3 * HOUR).unwrap();
    let mut waiting = Vec::new();
    for n in 0..600 {
        waiting.push(bury_as(&mut con, NS, &format!("{died}-{}", n + 1), &letter_at(NS, n * 5, died)).await);
    }
    let old = bury_old(&mut con, 1..1_000, 2 * HOUR).await;
    let young = bury_old(&mut con, 0..50, HOUR / 2).await;
    let sexton = Sexton::run_with(&config(&redis, "{max_age: 1h}"), &[("rules.yaml", RULES)]);
    let http = sexton.http().await;
    removed(http, 800.0).await;
    let left = buried(&mut con, NS).await;
    let wait_too = |id: &&String| (old.iter().position(|old| old == *id).unwrap() + 1).is_multiple_of(5);
    let expected: Vec<&String> = waiting.iter().chain(old.iter().filter(wait_too)).chain(&young).collect();
    assert_eq!(left.iter().collect::<Vec<_>>(), expected);

    let told = eventually("it is announced", SOON, || {
        let mut con = con.clone();
        async move { Some(outbox_of(&mut con, NS, "alerts").await).filter(|told| !told.is_empty()) }
    })
    .await;
    let [(kind, event)] = &told[..] else { panic!("one event: {told:?}") };
    assert_eq!((kind.as_str(), event["count"].as_u64()), ("dlq.purged", Some(800)));
    assert_eq!((event["why"].as_str(), event["by"].as_str()), (Some("retention"), Some("retention")));
    assert_eq!(event["note"], "max_age 1h");
    // None of those that were looked at died outside these bounds.
    let day = |field: &str| event[field].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert!(day("oldest_died_at") < day("newest_died_at"), "{event}");
}

#[tokio::test]
async fn what_is_too_much_goes_the_oldest_first_and_goes_on_to_do_so() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let first = bury_old(&mut con, 0..700, HOUR).await;
    let sexton = Sexton::run_with(&config(&redis, "{max_entries: 500}"), &[("rules.yaml", RULES)]);
    removed(sexton.http().await, 160.0).await;
    // Of the 200 that are not among the newest 500 every fifth waits for its retry; nothing else goes in its place.
    let left = buried(&mut con, NS).await;
    let stays = |n: &usize| n.is_multiple_of(5) || *n >= 200;
    let expected: Vec<&String> = (0..700).filter(stays).map(|n| &first[n]).collect();
    assert_eq!(left.iter().collect::<Vec<_>>(), expected);
    bury_all(&mut con, NS, (700..720).map(|n| letter_at(NS, n, 1_795_972_370_000))).await;
    removed(sexton.http().await, 176.0).await;
    assert_eq!(buried(&mut con, NS).await.len(), 500 + 220 / 5);
}
