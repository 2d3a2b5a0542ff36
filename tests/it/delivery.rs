//! The delivery loop between a ledger in memory and a real receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sexton::{
    config::{HookConfig, Rate},
    delivery::LaneState,
    event::{Event, EventData, HookTest, Lane},
    hook::Client,
    ledger::{Ledger as _, OutboxId},
    loops::{Deliver, DeliverTo, Ended, Trouble, prepare_lanes, run},
    metrics::Metrics,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{
    hooks::{death, hook},
    memory::Memory,
    receiver::{Behaviour, Receiver, Request},
};

const SOON: Duration = Duration::from_secs(10);

/// Both lanes of a hook, running.
struct Running {
    stop: CancellationToken,
    loops: Vec<JoinHandle<Ended>>,
    metrics: Arc<Metrics>,
}

impl Running {
    async fn start(ledger: &Arc<Memory>, config: &HookConfig) -> Running {
        Running::with_cap(ledger, config, 50_000).await
    }

    async fn with_cap(ledger: &Arc<Memory>, config: &HookConfig, outbox_cap: u64) -> Running {
        prepare_lanes(ledger.as_ref(), &ledger.lease(), &config.name).await.unwrap();
        let metrics = Arc::new(Metrics::new(&["orders"], &[&config.name]));
        let to = DeliverTo {
            ledger: Arc::clone(ledger) as Arc<dyn sexton::ledger::Ledger>,
            lease: ledger.lease(),
            hook: config,
            client: Client::new(config).unwrap(),
            metrics: Arc::clone(&metrics),
            outbox_cap,
            grace: SOON,
        };
        let stop = CancellationToken::new();
        let lanes = Deliver::lanes(&to).map(|lane| {
            let stop = stop.clone();
            tokio::spawn(async move { run(Box::new(lane), &Trouble::new("orders", "test"), stop).await })
        });
        Running { stop, loops: lanes.into(), metrics }
    }

    /// A clean stop.
    async fn stop(self) {
        self.stop.cancel();
        for one in self.loops {
            assert_eq!(tokio::time::timeout(SOON, one).await.unwrap().unwrap(), Ended::Stopped);
        }
    }

    /// As a SIGKILL would.
    async fn kill(self) {
        for one in self.loops {
            one.abort();
            let _ = one.await;
        }
    }

    fn metric(&self, line: &str) -> Option<u64> {
        let text = self.metrics.render();
        text.lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok())
    }

    fn deliveries(&self, outcome: &str) -> u64 {
        let line = format!("sexton_hook_deliveries_total{{hook=\"oncall\",outcome=\"{outcome}\"}}");
        self.metric(&line).unwrap()
    }

    fn backlog(&self) -> Option<u64> {
        self.metric("sexton_hook_backlog{hook=\"oncall\",source=\"orders\"}")
    }

    /// Waits until the condition holds, looking again whenever the runtime has had a moment.
    async fn until(&self, what: &str, condition: impl Fn(&Running) -> bool) {
        let waiting = async {
            while !condition(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(SOON, waiting).await.is_ok(), "never: {what}\n{}", self.metrics.render());
    }
}

fn ids(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().map(Request::id).collect()
}

fn has_all(events: usize) -> impl Fn(&[Request]) -> bool {
    move |requests| ids(requests).len() >= events
}

async fn saved(ledger: &Memory, lane: Lane) -> LaneState {
    LaneState::from_json(&ledger.load_lane("oncall", lane).await.unwrap().unwrap().state).unwrap()
}

/// Singles and what digests count, each `webhook-id` once.
fn told(requests: &[Request]) -> (u64, u64) {
    let bodies: BTreeMap<_, _> = requests.iter().map(|request| (request.id(), request.json())).collect();
    let digests: u64 = bodies.values().filter_map(|body| body["data"]["count"].as_u64()).sum();
    (bodies.values().filter(|body| body["type"] == "job.dead").count() as u64, digests)
}

#[tokio::test]
async fn every_event_is_delivered_once_and_only_what_came_after_the_hook() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    ledger.post((900..910).map(death));
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    ledger.post((0..1_000).map(death));
    receiver.until(SOON, has_all(1_000)).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!(running.deliveries("delivered"), 1_000);
    running.stop().await;
    assert_eq!(receiver.requests().len(), 1_000);
    assert_eq!(saved(&ledger, Lane::Deaths).await.unsettled(), 0);

    // After a clean stop nothing is told again.
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    ledger.post([death(5_000)]);
    receiver.until(SOON, |requests| requests.iter().any(|request| request.id() == "evt-5000")).await;
    running.stop().await;
    assert_eq!(receiver.requests().len(), 1_001);
}

#[tokio::test]
async fn between_an_event_and_its_request_stands_one_read_and_no_save() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    ledger.post([death(1)]);
    receiver.until(SOON, has_all(1)).await;
    running.stop().await;
    let (reads, saves) = (ledger.reads(), ledger.saves());
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    receiver.script([Behaviour::After(Duration::from_millis(100), Box::new(Behaviour::status(204)))]);
    running.until("first reads of both lanes", |_| ledger.reads() >= reads + 2).await;
    let (reads, lane_saves) = (ledger.reads(), ledger.saves());
    ledger.post([death(2)]);
    receiver.until(SOON, has_all(2)).await;
    assert!(ledger.reads() <= reads + 2, "one for each lane");
    assert_eq!((ledger.saves(), lane_saves), (saves, saves), "the request did not wait for a save");
    running.stop().await;
}

#[tokio::test]
async fn a_failing_receiver_gets_everything_once_it_works_again_under_the_same_ids() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    receiver.otherwise(Behaviour::status(503));
    ledger.post((0..40).map(death));
    receiver.until(SOON, |requests| requests.len() >= 17).await;
    let failed = receiver.requests().len();
    assert!(failed <= 18, "{failed}: no more than the first sixteen and a probe or two");
    running.until("a backlog", |running| running.backlog() == Some(40)).await;
    receiver.otherwise(Behaviour::status(200));
    let requests = receiver.until(SOON, |requests| {
        let delivered: BTreeSet<_> = requests.iter().skip(failed).map(Request::id).collect();
        delivered.len() == 40
    });
    assert_eq!(ids(&requests.await).len(), 40);
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!(running.deliveries("delivered"), 40);
    running.stop().await;
}

#[tokio::test]
async fn a_kill_repeats_some_and_loses_none() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let config = hook(&receiver.url());
    for round in 0..10 {
        let running = Running::start(&ledger, &config).await;
        ledger.post((round * 100..(round + 1) * 100).map(death));
        let some = usize::try_from(round * 100 + round * 7).unwrap();
        receiver.until(SOON, |requests| ids(requests).len() >= some).await;
        running.kill().await;
    }
    let running = Running::start(&ledger, &config).await;
    receiver.until(SOON, has_all(1_000)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_storm_beyond_the_rate_becomes_digests_whose_counts_add_up() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.rate = Rate::Limited { events: 10, per: Duration::from_secs(1) };
    let running = Running::start(&ledger, &config).await;
    for thousand in 0..20 {
        ledger.post((thousand * 1_000..(thousand + 1) * 1_000).map(death));
    }
    let requests = receiver.until(SOON, |requests| told(requests).0 + told(requests).1 >= 20_000).await;
    let (singles, folded) = told(&requests);
    assert_eq!(singles + folded, 20_000);
    assert!(singles <= 30, "{singles} singles in at most a few windows");
    running.stop().await;
    assert_eq!(told(&receiver.requests()), (singles, folded));
}

#[tokio::test]
async fn what_the_outbox_cannot_keep_for_a_dead_receiver_is_counted_in_a_digest() {
    let (ledger, mut receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::with_cap(&ledger, &hook(&receiver.url()), 200).await;
    receiver.refuse().await;
    ledger.post((0..300).map(death));
    let waiting = async {
        while saved(&ledger, Lane::Deaths).await.position() < (OutboxId { ms: 100, seq: 0 }) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("the lane lets the oldest go");
    // The keeper of the outbox takes what no lane needs any more.
    let position = saved(&ledger, Lane::Deaths).await.position();
    assert!(ledger.outbox_trim(&ledger.lease(), Lane::Deaths, position, None).await.unwrap() >= 100);
    receiver.accept_again().await;
    let requests = receiver.until(2 * SOON, |requests| told(requests).0 + told(requests).1 >= 300).await;
    let (singles, folded) = told(&requests);
    assert_eq!(singles + folded, 300);
    assert!(folded >= 100, "{folded}");
    running.stop().await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_hears_nothing_until_the_configuration_changes() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let mut config = hook(&receiver.url());
    let running = Running::start(&ledger, &config).await;
    receiver.script([Behaviour::status(410)]);
    ledger.post([death(1)]);
    receiver.until(SOON, has_all(1)).await;
    running.until("rejected", |running| running.deliveries("rejected") == 1).await;
    ledger.post([death(2), death(3)]);
    running.until("rejected", |running| running.deliveries("rejected") == 3).await;
    running.stop().await;

    let running = Running::start(&ledger, &config).await;
    ledger.post([death(4)]);
    running.until("rejected", |running| running.deliveries("rejected") == 1).await;
    running.stop().await;

    config.fingerprint = "f2".to_owned();
    let running = Running::start(&ledger, &config).await;
    ledger.post([death(5)]);
    let requests = receiver.until(SOON, has_all(2)).await;
    assert_eq!(requests.iter().map(Request::id).collect::<Vec<_>>(), ["evt-1", "evt-5"]);
    running.stop().await;
}

#[tokio::test]
async fn a_resend_by_hand_is_taken_up_by_the_running_loop() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    ledger.post((0..10).map(death));
    receiver.until(SOON, has_all(10)).await;
    // As `sexton hooks resend` does: read, rewind, write over what was read, again if somebody was quicker.
    loop {
        let saved = ledger.load_lane("oncall", Lane::Deaths).await.unwrap().unwrap();
        let mut state = LaneState::from_json(&saved.state).unwrap();
        if state.cursor().ms < 10 || state.unsettled() > 0 {
            // Not saved yet; the loop does so within a moment.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        state.rewind(OutboxId { ms: 7, seq: 0 });
        if ledger.edit_lane("oncall", Lane::Deaths, saved.revision, &state.to_json()).await.is_ok() {
            break;
        }
    }
    let requests = receiver.until(SOON, |requests| requests.len() >= 13).await;
    let mut again: Vec<_> = requests.iter().skip(10).map(Request::id).collect();
    again.sort_unstable();
    assert_eq!(again, ["evt-7", "evt-8", "evt-9"]);
    running.stop().await;
}

#[tokio::test]
async fn an_event_that_is_never_taken_does_not_hold_up_the_others() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    receiver.script([Behaviour::status(500)]);
    ledger.post([death(0)]);
    receiver.until(SOON, has_all(1)).await;
    ledger.post((1..50).map(death));
    receiver.until(SOON, has_all(50)).await;
    let tries = |requests: &[Request]| -> Vec<_> {
        requests.iter().filter(|request| request.id() == "evt-0").map(|request| request.at).collect()
    };
    let tries = tries(&receiver.until(SOON, |requests| tries(requests).len() == 2).await);
    assert!(tries[1].duration_since(tries[0]) >= Duration::from_millis(990), "the first pause is a second or more");
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!((running.deliveries("delivered"), running.deliveries("retried")), (50, 1));
    running.stop().await;
}

#[tokio::test]
async fn an_event_is_given_up_after_its_time() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.give_up_after = Duration::from_millis(300);
    let running = Running::start(&ledger, &config).await;
    receiver.otherwise(Behaviour::status(503));
    ledger.post([death(1), death(2)]);
    running.until("given up", |running| running.deliveries("given_up") == 2).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_test_goes_to_its_hook_alone_and_past_a_lane_of_deaths_that_waits() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    receiver.script(std::iter::repeat_n(Behaviour::Silent, 16));
    ledger.post((0..100).map(death));
    receiver.until(SOON, |requests| requests.len() == 16).await;
    let test =
        |hook: &str| HookTest { source: "orders".to_owned(), hook: hook.to_owned(), summary: "a test".to_owned() };
    let event = |hook: &str| Event { id: format!("test-{hook}"), data: EventData::HookTest(test(hook)), ..death(1) };
    ledger.post([event("other"), event("oncall")]);
    let requests = receiver.until(SOON, |requests| requests.len() == 17).await;
    assert_eq!(requests[16].id(), "test-oncall");
    running.kill().await;
}

#[tokio::test]
async fn a_store_in_trouble_delays_and_loses_nothing() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let running = Running::start(&ledger, &hook(&receiver.url())).await;
    for n in 0..5 {
        ledger.fail(3);
        ledger.post([death(n)]);
        receiver.until(SOON, has_all(usize::try_from(n).unwrap() + 1)).await;
    }
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    ledger.fail(0);
    running.stop().await;
    assert_eq!(receiver.requests().len(), 5);
}

#[tokio::test]
async fn a_leader_that_lost_its_lease_stops_delivering() {
    let (ledger, receiver) = (Arc::new(Memory::new()), Receiver::start().await);
    let mut running = Running::start(&ledger, &hook(&receiver.url())).await;
    ledger.fence();
    ledger.post([death(1)]);
    let ended = tokio::time::timeout(SOON, running.loops.remove(0)).await.unwrap().unwrap();
    assert_eq!(ended, Ended::Fenced);
    running.kill().await;
}
