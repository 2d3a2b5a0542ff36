//! The loops around the ledger's part: whom a round looks at, who goes, and what is left behind.

use std::{sync::Arc, time::Duration};

use redis::AsyncCommands as _;
use sexton::{
    event::Include,
    ledger::{AttachOptions, Retried, StoreError},
    loops::{self, Ended, Ingest, IngestOptions, Retry, Step as _, Trouble},
    metrics::Metrics,
    rule::{Action, Matcher, Pace, RetryRule, Rules, Terms},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::support::{
    SOON, eventually,
    graveyard::{dlq, letter, with},
    yard::{NS, RULE, Yard, waits},
};

/// Rules with the yard's fingerprint: everything may go at once, but for the pace.
pub(crate) fn rules(pace: Pace) -> Rules {
    let terms = Terms { min_age: Duration::from_millis(100), pace, ..Terms::default() };
    let action = Action::Retry(Box::new(terms));
    let rule = RetryRule { name: RULE.to_owned(), matcher: Matcher::default(), action };
    Rules { retry: vec![rule], fingerprint: "rules".to_owned() }
}

pub(crate) const SLOW: Pace = Pace { start: 1, max_in_flight: 100, per_second: 50, max_queue_length: 10_000 };

/// A retry loop that runs until it is dropped or stopped.
struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Ended>,
    _rules: watch::Sender<Arc<Rules>>,
}

impl Running {
    fn on(yard: &Yard, pace: Pace) -> Running {
        let rules = watch::Sender::new(Arc::new(rules(pace)));
        let metrics = Arc::new(Metrics::new(&["orders"], &[]));
        metrics.leads("orders", true, &[]);
        let step = Retry::new(yard.ledger.clone(), yard.lease.clone(), metrics, rules.subscribe());
        let stop = CancellationToken::new();
        let told = stop.clone();
        let run = async move { loops::run(Box::new(step), &Trouble::new("orders", "retry"), told).await };
        Running { stop, ended: tokio::spawn(run), _rules: rules }
    }

    async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.ended.await.expect("it does not panic"), Ended::Stopped);
    }
}

fn index(yard: &Yard) -> String {
    format!("{{{NS}}}:sexton:due:{}", yard.generation)
}

#[tokio::test]
async fn a_group_that_was_emptied_by_a_leader_now_dead_is_forgotten() {
    let mut yard = Yard::open().await;
    let id = yard.bury(&letter(NS, 1)).await;
    // The leader is killed after the retry, before it has said when to look again.
    let retry = yard.planned(&id).await;
    assert!(matches!(yard.retry(retry).await, Retried::Sent(_)));
    let left: Vec<String> = yard.con.keys(format!("{}:*", index(&yard))).await.unwrap();
    assert!(!left.is_empty(), "there is something to be forgotten");
    let running = Running::on(&yard, SLOW);
    eventually("the index is empty", SOON, || {
        let (mut con, index) = (yard.con.clone(), index(&yard));
        async move {
            let keys: Vec<String> = con.keys(format!("{index}*")).await.ok()?;
            keys.is_empty().then_some(())
        }
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn the_tasks_of_a_rule_share_its_pace() {
    let mut yard = Yard::open().await;
    for n in 0..40 {
        let task: &[u8] = if n < 20 { b"send_email" } else { b"charge_card" };
        yard.bury(&with(&letter(NS, n), "task", task)).await;
    }
    // Nobody works, so what goes stays in flight: ten at most, and either task could take them all.
    let pace = Pace { start: 10, max_in_flight: 10, per_second: 1_000, max_queue_length: 10_000 };
    let running = Running::on(&yard, pace);
    let flights = eventually("ten are in flight", SOON, || {
        let ledger = yard.ledger.clone();
        async move { ledger.flights().await.ok().filter(|flights| flights.len() == 10) }
    })
    .await;
    let emails = flights.iter().filter(|flight| flight.dead.task.as_deref() == Some("send_email")).count();
    assert!((2..=8).contains(&emails), "{emails} of ten");
    running.stop().await;
}

#[tokio::test]
async fn thousands_that_a_person_has_purged_hold_up_nobody() {
    let mut yard = Yard::open().await;
    for n in 0..3_000 {
        crate::support::graveyard::bury(&mut yard.con, NS, &letter(NS, n)).await;
    }
    while yard.ingest(&waits).await.jobs.len() == 1_000 {}
    assert_eq!(yard.indexed().await, (3_000, 3_000));
    let () = yard.con.del(dlq(NS)).await.unwrap();
    yard.bury(&letter(NS, 3_001)).await;
    let running = Running::on(&yard, SLOW);
    let flights = eventually("the one that is there goes", Duration::from_secs(5), || {
        let ledger = yard.ledger.clone();
        async move { ledger.flights().await.ok().filter(|flights| !flights.is_empty()) }
    })
    .await;
    assert_eq!(flights.len(), 1);
    running.stop().await;
    assert_eq!(yard.indexed().await, (0, 0));
}

#[tokio::test]
async fn rules_that_could_not_be_adopted_at_first_are_adopted_later() {
    let yard = Yard::open().await;
    let in_force = watch::Sender::new(Arc::new(Rules { fingerprint: "first".to_owned(), ..rules(SLOW) }));
    let attached = yard.ledger.attach(&yard.lease, AttachOptions::default()).await.unwrap();
    let metrics = Arc::new(Metrics::new(&["orders"], &[]));
    metrics.leads("orders", true, &[]);
    let options = IngestOptions { include: Include::default(), outbox_cap: 50_000 };
    let mut ingest =
        Ingest::new(yard.ledger.clone(), yard.lease.clone(), metrics, options, in_force.subscribe(), attached);
    // A step waits for deaths as long as there are none: told to stop, it comes back once the rules are adopted.
    let stop = CancellationToken::new();
    stop.cancel();
    ingest.step(&stop).await.unwrap();
    assert_eq!(yard.ledger.judging().await.unwrap().fingerprint, "first");

    in_force.send_replace(Arc::new(Rules { fingerprint: "second".to_owned(), ..rules(SLOW) }));
    let memory = |bytes: &'static str| {
        let mut con = yard.con.clone();
        async move {
            let set = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec_async(&mut con).await;
            set.unwrap();
        }
    };
    memory("1").await;
    assert!(matches!(ingest.step(&stop).await, Err(StoreError::NoWrites(_))));
    memory("0").await;
    ingest.step(&stop).await.unwrap();
    assert_eq!(yard.ledger.judging().await.unwrap().fingerprint, "second");
}
