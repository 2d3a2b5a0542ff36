//! Several replicas on one DLQ: one acts, the others stand by.

use std::time::Duration;

use redis::AsyncCommands as _;
use sexton::clock::monotonic;

use crate::support::{
    SOON, eventually,
    graveyard::bury_many,
    ledger::every_death_announced_once,
    process::{Http, Sexton, Stream},
    redis::{Options, Redis},
};

const NS: &str = "lrs";
const TTL: Duration = Duration::from_secs(1);

fn config(redis: &Redis) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: {}ms}}\nannounce_existing: true\n",
        redis.url(),
        TTL.as_millis()
    )
}

async fn leads(http: Http) -> bool {
    http.metric("sexton_leader", &[("source", "orders")]).await == Some(1.0)
}

/// Which of these leads, once one does; never two.
async fn leader(ports: &[Http]) -> usize {
    eventually("one of them leads", SOON, || async {
        let mut leading = Vec::new();
        for (n, port) in ports.iter().enumerate() {
            if leads(*port).await {
                leading.push(n);
            }
        }
        leading.first().copied()
    })
    .await
}

#[tokio::test]
async fn of_three_replicas_one_leads_and_a_killed_one_is_replaced_in_time() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let mut replicas: Vec<Sexton> = (0..3).map(|_| Sexton::run(&config(&redis))).collect();
    let mut ports = Vec::new();
    for replica in &replicas {
        ports.push(replica.http().await);
    }
    let first = leader(&ports).await;
    for (n, port) in ports.iter().enumerate() {
        port.answers("/readyz", 200).await;
        assert_eq!(leads(*port).await, n == first, "replica {n}");
        let shows_the_dlq = port.metric("sexton_dlq_entries", &[]).await.is_some();
        assert!(n == first || !shows_the_dlq, "gauges about the DLQ are the leader's alone");
    }
    bury_many(&mut con, NS, 0..100).await;
    ports[first].metric_is("sexton_jobs_dead_total", &[], 100.0).await;

    replicas[first].process.kill();
    let killed = monotonic();
    let rest: Vec<Http> = ports.iter().enumerate().filter(|(n, _)| *n != first).map(|(_, port)| *port).collect();
    let second = leader(&rest).await;
    let took = killed.elapsed();
    assert!(took <= TTL + Duration::from_secs(2), "{took:?}");
    bury_many(&mut con, NS, 100..150).await;
    rest[second].metric_is("sexton_jobs_dead_total", &[], 50.0).await;
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(150));
}

#[tokio::test]
async fn a_frozen_leader_that_wakes_writes_nothing() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let old = Sexton::run(&config(&redis));
    let old_http = old.http().await;
    leader(&[old_http]).await;
    let new = Sexton::run(&config(&redis));
    let new_http = new.http().await;
    new.process.says("standing by").await;

    // Frozen somewhere in the middle of a great many deaths.
    let burial = tokio::spawn({
        let mut con = redis.connect().await;
        async move { bury_many(&mut con, NS, 0..20_000).await }
    });
    eventually("something is committed", SOON, || {
        let mut con = con.clone();
        async move {
            let deaths: Option<u64> = con.hget(format!("{{{NS}}}:sexton:state"), "deaths").await.unwrap();
            deaths.filter(|deaths| *deaths > 0)
        }
    })
    .await;
    old.process.freeze();
    burial.await.unwrap();
    leader(&[new_http]).await;
    eventually("everything is announced", SOON, || async {
        let mut con = redis.connect().await;
        (every_death_announced_once(&mut con, NS).await == Ok(20_000)).then_some(())
    })
    .await;
    let epoch: u64 = con.hget(format!("{{{NS}}}:sexton:state"), "epoch").await.unwrap();

    old.process.thaw();
    old.process.says("the lease is lost").await;
    old.process.says("standing by").await;
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(20_000));
    let now: u64 = con.hget(format!("{{{NS}}}:sexton:state"), "epoch").await.unwrap();
    assert_eq!(now, epoch, "the successor leads on undisturbed");
    old_http.metric_is("sexton_leader", &[], 0.0).await;
    assert_eq!(old_http.metric("sexton_dlq_entries", &[]).await, None, "with the lease go the gauges");
    assert!(leads(new_http).await);
}

#[tokio::test]
async fn a_clean_stop_hands_over_in_under_a_second() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    // A lease so long that nobody could wait it out.
    let config = config(&redis).replace("ttl: 1000ms", "ttl: 60s");
    let mut first = Sexton::run(&config);
    leader(&[first.http().await]).await;
    let mut took = Vec::new();
    for signal in ["TERM", "INT", "TERM", "INT", "TERM"] {
        let second = Sexton::run(&config);
        let port = second.http().await;
        second.process.says("standing by").await;
        let told = monotonic();
        if signal == "TERM" {
            first.process.terminate();
        } else {
            first.process.interrupt();
        }
        leader(&[port]).await;
        took.push(told.elapsed());
        assert_eq!(first.process.end().await.code(), Some(0), "{signal}");
        assert!(first.process.shown(Stream::Err).iter().any(|line| line.contains("sexton has stopped")));
        first = second;
    }
    // The median: one stop may fall into a moment when the other tests have both cores.
    took.sort();
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn one_dlq_under_two_names_has_one_leader_all_the_same() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let port = redis.port().unwrap();
    let source = |name: &str, host: &str| {
        format!("{{name: {name}, smallage: {{url: \"redis://{host}:{port}\", namespace: {NS}}}}}")
    };
    let sexton = Sexton::run(&format!(
        "sources: [{}, {}]\nhttp: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nannounce_existing: true\n",
        source("a", "127.0.0.1"),
        source("b", "localhost")
    ));
    let http = sexton.http().await;
    sexton.process.says("standing by").await;
    bury_many(&mut con, NS, 0..50).await;
    http.metric_is("sexton_jobs_dead_total", &[], 50.0).await;
    // Longer than a lease: whoever would take it from the other has had the chance.
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(http.metric("sexton_leader", &[]).await, Some(1.0), "over both names");
    let epoch: u64 = con.hget(format!("{{{NS}}}:sexton:state"), "epoch").await.unwrap();
    assert_eq!(epoch, 1);
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(50));
}
