//! The delivery loop between a ledger in a private Redis and a real receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sexton::{
    config::{Format, HookConfig, Rate},
    delivery::LaneState,
    event::{Event, EventData, HookTest, JobRetry, Lane},
    loops::{Ended, prepare_lanes},
};

use crate::support::{
    SOON, eventually,
    hooks::{death, hook},
    lanes::{Running, Store, TTL, append},
    receiver::{Behaviour, Receiver, Request},
    redis::Options,
};

fn ids(requests: &[Request]) -> BTreeSet<&str> {
    requests.iter().map(Request::id).collect()
}

fn has_all(events: usize) -> impl Fn(&[Request]) -> bool {
    move |requests| ids(requests).len() >= events
}

/// The job a request tells the death of; `None` for anything else.
fn job(request: &Request) -> Option<String> {
    request.json()["data"]["job_id"].as_str().map(str::to_owned)
}

fn jobs(requests: &[Request]) -> Vec<String> {
    requests.iter().filter_map(job).collect()
}

fn test_of(hook: &str) -> Event {
    let test = HookTest { source: "orders".to_owned(), hook: hook.to_owned(), summary: "a test".to_owned() };
    Event { data: EventData::HookTest(test), ..death(0) }
}

/// Singles and what digests count, each `webhook-id` once.
fn told(requests: &[Request]) -> (u64, u64) {
    let bodies: BTreeMap<_, _> = requests.iter().map(|request| (request.id(), request.json())).collect();
    let digests: u64 = bodies.values().filter_map(|body| body["data"]["count"].as_u64()).sum();
    (bodies.values().filter(|body| body["type"] == "job.dead").count() as u64, digests)
}

#[tokio::test]
async fn every_event_is_delivered_once_and_only_what_came_after_the_hook() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    store.post((900..910).map(death)).await;
    let running = Running::start(&store, &hook(&receiver.url())).await;
    store.post((0..1_000).map(death)).await;
    receiver.until(SOON, has_all(1_000)).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!(running.deliveries("delivered"), 1_000);
    running.stop().await;
    assert_eq!(receiver.requests().len(), 1_000);
    assert_eq!(store.saved(Lane::Deaths).await.unsettled(), 0);

    // After a clean stop nothing is told again.
    let running = Running::start(&store, &hook(&receiver.url())).await;
    store.post([death(5_000)]).await;
    receiver.until(SOON, |requests| jobs(requests).contains(&"job-5000".to_owned())).await;
    running.stop().await;
    assert_eq!(receiver.requests().len(), 1_001);
}

#[tokio::test]
async fn between_an_event_and_its_request_stands_one_read_and_no_save() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    store.post([death(1)]).await;
    receiver.until(SOON, has_all(1)).await;
    running.stop().await;
    let (reads, saves) = (store.calls("xrange").await, store.calls("hset").await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    receiver.script([Behaviour::After(Duration::from_millis(100), Box::new(Behaviour::status(204)))]);
    let both = async || (store.calls("xrange").await >= reads + 2).then_some(());
    eventually("first reads of both lanes", SOON, both).await;
    let reads = store.calls("xrange").await;
    store.post([death(2)]).await;
    receiver.until(SOON, has_all(2)).await;
    assert!(store.calls("xrange").await <= reads + 2, "one for each lane");
    assert_eq!(store.calls("hset").await, saves, "the request did not wait for a save");
    running.stop().await;
}

#[tokio::test]
async fn a_failing_receiver_gets_everything_once_it_works_again_under_the_same_ids() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    receiver.otherwise(Behaviour::status(503));
    store.post((0..40).map(death)).await;
    receiver.until(SOON, |requests| requests.len() >= 17).await;
    let failed = receiver.requests().len();
    assert!(failed <= 18, "{failed}: no more than the first sixteen and a probe or two");
    running.until("a backlog", |running| running.backlog() == Some(40)).await;
    store.post((40..50).map(death)).await;
    running.until("what came since counts, too", |running| running.backlog() == Some(50)).await;
    receiver.otherwise(Behaviour::status(200));
    let requests = receiver.until(SOON, |requests| {
        let delivered: BTreeSet<_> = requests.iter().skip(failed).map(Request::id).collect();
        delivered.len() == 50
    });
    assert_eq!(ids(&requests.await).len(), 50);
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!(running.deliveries("delivered"), 50);
    running.stop().await;
}

#[tokio::test]
async fn a_kill_repeats_some_and_loses_none() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let config = hook(&receiver.url());
    for round in 0..10 {
        let running = Running::start(&store, &config).await;
        store.post((round * 100..(round + 1) * 100).map(death)).await;
        let some = usize::try_from(round * 100 + round * 7).unwrap();
        receiver.until(SOON, |requests| ids(requests).len() >= some).await;
        running.kill().await;
    }
    let running = Running::start(&store, &config).await;
    receiver.until(SOON, has_all(1_000)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_storm_beyond_the_rate_becomes_digests_whose_counts_add_up() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.rate = Rate::Limited { events: 10, per: Duration::from_secs(1) };
    let running = Running::start(&store, &config).await;
    for thousand in 0..20 {
        store.post((thousand * 1_000..(thousand + 1) * 1_000).map(death)).await;
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
    let (store, mut receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::with_cap(&store, &hook(&receiver.url()), 200).await;
    receiver.refuse().await;
    let places = store.post((0..300).map(death)).await;
    // The keeper of the outbox takes what no lane needs any more.
    let position = eventually("the lane lets the oldest go", SOON, async || {
        let position = store.saved(Lane::Deaths).await.position();
        (position >= places[100]).then_some(position)
    });
    let position = position.await;
    assert!(store.ledger.outbox_trim(&store.lease, Lane::Deaths, position, None).await.unwrap() >= 100);
    receiver.accept_again().await;
    let requests = receiver.until(2 * SOON, |requests| told(requests).0 + told(requests).1 >= 300).await;
    let (singles, folded) = told(&requests);
    assert_eq!(singles + folded, 300);
    assert!(folded >= 100, "{folded}");
    running.stop().await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_hears_nothing_until_the_configuration_changes() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    let running = Running::start(&store, &config).await;
    receiver.script([Behaviour::status(410)]);
    store.post([death(1)]).await;
    receiver.until(SOON, has_all(1)).await;
    running.until("rejected", |running| running.deliveries("rejected") == 1).await;
    store.post([death(2), death(3)]).await;
    running.until("rejected", |running| running.deliveries("rejected") == 3).await;
    running.stop().await;

    let running = Running::start(&store, &config).await;
    store.post([death(4)]).await;
    running.until("rejected", |running| running.deliveries("rejected") == 1).await;
    running.stop().await;

    config.fingerprint = "f2".to_owned();
    let running = Running::start(&store, &config).await;
    store.post([death(5)]).await;
    let requests = receiver.until(SOON, has_all(2)).await;
    assert_eq!(jobs(&requests), ["job-1", "job-5"]);
    running.stop().await;
}

#[tokio::test]
async fn a_resend_by_hand_is_taken_up_by_the_running_loop() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    let places = store.post((0..10).map(death)).await;
    receiver.until(SOON, has_all(10)).await;
    // As `sexton hooks resend` does: read, rewind, write over what was read, again if somebody was quicker.
    eventually("the lane to be at rest", SOON, async || {
        let saved = store.ledger.load_lane("oncall", Lane::Deaths).await.unwrap().unwrap();
        let mut state = LaneState::from_json(&saved.state).unwrap();
        if state.cursor() < places[9] || state.unsettled() > 0 {
            return None;
        }
        state.rewind(places[6]);
        store.ledger.edit_lane("oncall", Lane::Deaths, saved.revision, &state.to_json()).await.ok()
    })
    .await;
    let requests = receiver.until(SOON, |requests| requests.len() >= 13).await;
    let mut again = jobs(&requests[10..]);
    again.sort_unstable();
    assert_eq!(again, ["job-7", "job-8", "job-9"]);
    running.stop().await;
}

#[tokio::test]
async fn an_event_that_is_never_taken_does_not_hold_up_the_others() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    receiver.script([Behaviour::status(500)]);
    store.post([death(0)]).await;
    receiver.until(SOON, has_all(1)).await;
    store.post((1..50).map(death)).await;
    receiver.until(SOON, has_all(50)).await;
    let tries = |requests: &[Request]| -> Vec<_> {
        requests.iter().filter(|request| job(request).as_deref() == Some("job-0")).map(|request| request.at).collect()
    };
    let tries = tries(&receiver.until(SOON, |requests| tries(requests).len() == 2).await);
    assert!(tries[1].duration_since(tries[0]) >= Duration::from_millis(990), "the first pause is a second or more");
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!((running.deliveries("delivered"), running.deliveries("retried")), (50, 1));
    running.stop().await;
}

#[tokio::test]
async fn an_event_is_given_up_after_its_time() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.give_up_after = Duration::from_millis(300);
    let running = Running::start(&store, &config).await;
    receiver.otherwise(Behaviour::status(503));
    store.post([death(1), death(2)]).await;
    running.until("given up", |running| running.deliveries("given_up") == 2).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_test_goes_to_its_hook_alone_and_past_a_lane_of_deaths_that_waits() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    receiver.script(std::iter::repeat_n(Behaviour::Silent, 16));
    store.post((0..100).map(death)).await;
    receiver.until(SOON, |requests| requests.len() == 16).await;
    store.post([test_of("other"), test_of("oncall")]).await;
    let requests = receiver.until(SOON, |requests| requests.len() == 17).await;
    assert_eq!(requests[16].json()["data"]["hook"], "oncall");
    running.kill().await;
}

#[tokio::test]
async fn a_test_nobody_waits_for_any_more_is_not_sent() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    let mut con = store.redis.connect().await;
    let now = store.ledger.clock().now().0;
    let () = append(&test_of("oncall"), &format!("{}-0", now - 11 * 60_000)).query_async(&mut con).await.unwrap();
    let fresh = store.post([test_of("oncall")]).await;
    receiver.until(SOON, has_all(1)).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].id().ends_with(&fresh[0].to_string()), "{}", requests[0].id());
    assert_eq!(store.saved(Lane::Alerts).await.unsettled(), 0);
}

/// Leaves a lane as a long failure leaves it: one event waiting, and minutes until the next probe.
async fn long_failing(store: &Store, config: &HookConfig, lane: Lane, event: Event) {
    let place = store.post([event]).await[0];
    prepare_lanes(&*store.ledger, &store.lease, &config.name).await.unwrap();
    let now = store.ledger.clock().now().0;
    let saved = store.ledger.load_lane(&config.name, lane).await.unwrap().unwrap();
    let state = serde_json::json!({
        "cursor": place.to_string(),
        "pending": [[place.to_string(), 9, now - 600_000, now + 250_000]],
        "failing": {"since": now - 600_000, "failures": 9, "probes": 9, "next_at": now + 250_000},
    });
    store.ledger.edit_lane(&config.name, lane, saved.revision, &state.to_string()).await.unwrap();
}

#[tokio::test]
async fn what_one_lane_finds_working_the_other_tries_at_once() {
    for (failing, waits, fresh) in
        [(Lane::Alerts, test_of("oncall"), death(1)), (Lane::Deaths, death(1), test_of("oncall"))]
    {
        let (store, receiver) = (Store::start().await, Receiver::start().await);
        let config = hook(&receiver.url());
        long_failing(&store, &config, failing, waits).await;
        let running = Running::start(&store, &config).await;
        running.until("both lanes are open", |running| running.backlog() == Some(1)).await;
        store.post([fresh]).await;
        receiver.until(SOON, has_all(2)).await;
        running.until("caught up", |running| running.backlog() == Some(0)).await;
        running.stop().await;
        assert_eq!(store.saved(failing).await.failing_since(), None);
    }
}

#[tokio::test]
async fn what_goes_with_a_receiver_that_is_gone_is_counted_once_also_what_was_on_its_way() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    // Sixteen on their way; the others answer when the hook is off already, each in another way.
    let late = |status| Behaviour::After(Duration::from_millis(300), Box::new(Behaviour::status(status)));
    receiver.script([Behaviour::After(Duration::from_millis(100), Box::new(Behaviour::status(410)))]);
    receiver.script([late(204), late(503), late(400)]);
    receiver.otherwise(late(410));
    store.post((0..200).map(death)).await;
    running.until("rejected", |running| running.deliveries("rejected") >= 200).await;
    let metrics = Arc::clone(&running.metrics);
    // Waits for what is on its way.
    running.stop().await;
    let counted: Vec<_> = metrics
        .render()
        .lines()
        .filter(|line| line.starts_with("sexton_hook_deliveries_total{"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .collect();
    assert_eq!(counted.iter().sum::<u64>(), 200, "{counted:?}");
    assert!(receiver.requests().len() > 1);
    assert_eq!(store.saved(Lane::Deaths).await.unsettled(), 0);
}

#[tokio::test]
async fn what_one_lane_was_told_for_good_holds_for_the_other() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let running = Running::start(&store, &hook(&receiver.url())).await;
    receiver.script([Behaviour::status(410)]);
    store.post([death(1)]).await;
    running.until("rejected", |running| running.deliveries("rejected") == 1).await;
    store.post([test_of("oncall")]).await;
    running.until("rejected", |running| running.deliveries("rejected") == 2).await;
    running.stop().await;
    assert_eq!(receiver.requests().len(), 1);
    for lane in Lane::ALL {
        assert!(store.saved(lane).await.is_off("f1"), "{lane:?}");
    }
}

#[tokio::test]
async fn slack_is_sent_one_message_a_second() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.format = Format::Slack;
    let running = Running::start(&store, &config).await;
    store.post((0..4).map(death)).await;
    let requests = receiver.until(SOON, has_all(4)).await;
    for pair in requests.windows(2) {
        let apart = pair[1].at.duration_since(pair[0].at);
        assert!(apart >= Duration::from_millis(900), "{apart:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_store_in_trouble_delays_and_loses_nothing() {
    let mut store = Store::with(Options { appendonly: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let running = Running::start(&store, &hook(&receiver.url())).await;
    for n in 0..3 {
        store.redis.kill();
        eventually("it is noticed", SOON, async || running.trouble.is_on().then_some(())).await;
        store.redis.start_again().await;
        // Not through the ledger, whose own connection may not be back yet.
        let () = append(&death(n), "*").query_async(&mut store.redis.connect().await).await.unwrap();
        receiver.until(SOON, has_all(usize::try_from(n).unwrap() + 1)).await;
        running.until("it works again", |running| !running.trouble.is_on()).await;
    }
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
    assert_eq!(receiver.requests().len(), 3);
    assert_eq!(store.saved(Lane::Deaths).await.unsettled(), 0);
}

#[tokio::test]
async fn a_leader_that_lost_its_lease_stops_delivering() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut running = Running::start(&store, &hook(&receiver.url())).await;
    store.ledger.release(&store.lease).await.unwrap();
    store.ledger.try_lease("successor", TTL, 0).await.unwrap();
    store.post([death(1)]).await;
    let ended = tokio::time::timeout(SOON, running.loops.remove(0)).await.unwrap().unwrap();
    assert_eq!(ended, Ended::Fenced);
    running.kill().await;
}

/// What becomes of job `n`: its death, or one of what may follow, turn and turn about.
fn about_a_job(n: u64) -> Event {
    let EventData::JobDead(dead) = death(n).data else { panic!("it is a death") };
    let retry = || Box::new(JobRetry { dead: (*dead).clone(), ..JobRetry::default() });
    let data = match n % 4 {
        0 => EventData::JobDead(dead),
        1 => EventData::JobRetried(retry()),
        2 => EventData::JobRecovered(retry()),
        _ => EventData::JobExhausted(dead),
    };
    Event { data, ..death(n) }
}

/// How many events of each kind were told, singly or in a digest.
fn told_by_kind(requests: &[Request]) -> [u64; 4] {
    let bodies: BTreeMap<_, _> = requests.iter().map(|request| (request.id(), request.json())).collect();
    [("job.dead", "count"), ("job.retried", "retried"), ("job.recovered", "recovered"), ("job.exhausted", "exhausted")]
        .map(|(kind, name)| {
            let singles = bodies.values().filter(|body| body["type"] == kind).count() as u64;
            let digests = bodies.values().filter(|body| body["type"] == "dlq.digest");
            singles + digests.map(|body| body["data"][name].as_u64().unwrap()).sum::<u64>()
        })
}

#[tokio::test]
async fn what_becomes_of_jobs_is_told_singly_up_to_the_rate_and_then_in_digests_that_add_up() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.rate = Rate::Limited { events: 8, per: Duration::from_secs(1) };
    let running = Running::start(&store, &config).await;
    store.post((0..8).map(about_a_job)).await;
    let requests = receiver.until(SOON, has_all(8)).await;
    assert_eq!(told_by_kind(&requests), [2; 4]);
    store.post((8..2_000).map(about_a_job)).await;
    let requests = receiver.until(SOON, |requests| told_by_kind(requests).iter().sum::<u64>() >= 2_000).await;
    assert_eq!(told_by_kind(&requests), [500; 4]);
    assert!(requests.len() < 100, "{} requests", requests.len());
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_hook_that_does_not_say_what_it_wants_is_told_of_deaths_and_of_what_waits_for_a_person() {
    let (store, receiver) = (Store::start().await, Receiver::start().await);
    let mut config = hook(&receiver.url());
    config.events = Vec::new();
    let running = Running::start(&store, &config).await;
    store.post((0..8).map(about_a_job)).await;
    let requests = receiver.until(SOON, has_all(4)).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    running.stop().await;
    assert_eq!(told_by_kind(&requests), [2, 0, 0, 2]);
    assert_eq!(receiver.requests().len(), 4);
}
