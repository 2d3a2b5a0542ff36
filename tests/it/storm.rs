//! Many deaths at once: folded, counted, and out of everybody's way.

use std::time::Duration;

use redis::AsyncCommands as _;

use crate::support::{
    SOON, eventually,
    graveyard::bury_many,
    process::{Sexton, Stream},
    receiver::{Behaviour, Receiver, Request},
    redis::{Options, Redis},
};

const NS: &str = "lrs";
const STORM: u64 = 100_000;

/// What is buried after a leader says so and before it has attached is announced, too.
fn config(redis: &Redis, hooks: &str) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks:\n{hooks}\nhttp: {{listen: \"127.0.0.1:0\"}}\nannounce_existing: true\n",
        redis.url()
    )
}

/// How many deaths these requests stand for: singles, and those in digests.
fn told(requests: &[Request]) -> (u64, u64) {
    let (mut singles, mut folded) = (0, 0);
    for request in requests {
        let body = request.json();
        match body["type"].as_str() {
            Some("job.dead") => singles += 1,
            Some("dlq.digest") => folded += body["data"]["count"].as_u64().unwrap(),
            other => panic!("{other:?}"),
        }
    }
    (singles, folded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_comes_as_singles_up_to_the_rate_and_digests_that_add_up() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let hook = format!("  - {{name: oncall, url: \"{}\", rate: 60/m}}", receiver.url());
    let sexton = Sexton::run(&config(&redis, &hook));
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    bury_many(&mut redis.connect().await, NS, 0..STORM).await;
    // The window closes a minute after its first event; the digest comes then.
    let requests = receiver
        .until(Duration::from_secs(100), |requests| {
            let (singles, folded) = told(requests);
            singles + folded >= STORM
        })
        .await;
    let (singles, folded) = told(&requests);
    assert_eq!(singles + folded, STORM);
    assert_eq!(singles, 60);
    let digests: Vec<_> = requests.iter().map(Request::json).filter(|body| body["type"] == "dlq.digest").collect();
    assert!(digests.len() <= 2, "{} digests", digests.len());
    let data = &digests[0]["data"];
    assert_eq!(data["why"], "rate");
    assert_eq!(data["samples"].as_array().unwrap().len(), 3);
    // Five tasks with one failure each, turn and turn about.
    let groups = data["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 5);
    assert_eq!(
        groups.iter().map(|group| group["count"].as_u64().unwrap()).sum::<u64>(),
        data["count"].as_u64().unwrap()
    );
    http.metric_is("sexton_jobs_dead_total", &[], 100_000.0).await;
    http.metric_is("sexton_hook_backlog", &[], 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_hook_holds_up_nobody_and_is_told_of_everything_in_the_end() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let (mut dead, alive) = (Receiver::start().await, Receiver::start().await);
    dead.refuse().await;
    let hooks = format!(
        "  - {{name: dead, url: \"{}\", rate: unlimited}}\n  - {{name: alive, url: \"{}\", rate: unlimited}}\n\
         outbox: {{cap: 2000}}",
        dead.url(),
        alive.url()
    );
    let sexton = Sexton::run(&config(&redis, &hooks));
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    // No faster than the living one can be told: it gets every single event, whatever the dead one does to the outbox.
    for n in (0..20_000).step_by(500) {
        bury_many(&mut con, NS, n..n + 500).await;
        let all = usize::try_from(n).unwrap() + 500;
        alive.until(SOON, |requests| requests.len() >= all).await;
    }
    assert_eq!(told(&alive.requests()), (20_000, 0));
    let length: u64 = con.xlen(format!("{{{NS}}}:sexton:outbox:deaths")).await.unwrap();
    assert!(length <= 2_000 + 500, "the cap holds: {length}");
    assert!(dead.connections() < 60, "a dead endpoint is probed, not hammered");
    let host = dead.url().split('/').nth(2).map(|host| format!("\"endpoint\":\"{host}\"")).unwrap();
    let named = |line: &str| (line.contains("the receiver is failing") && line.contains(&host)).then_some(());
    sexton.process.line("who it is that fails", named).await;
    http.metric_is("sexton_jobs_dead_total", &[], 20_000.0).await;

    dead.accept_again().await;
    let requests = dead
        .until(Duration::from_secs(90), |requests| {
            let (singles, folded) = told(requests);
            singles + folded >= 20_000
        })
        .await;
    let (singles, folded) = told(&requests);
    assert_eq!(singles + folded, 20_000);
    assert!(folded > 10_000, "what the cap would have taken is in a digest: {folded}");
    let total = format!("\"events\":{folded}");
    let ended = |line: &str| (line.contains("fits into the outbox again") && line.contains(&total)).then_some(());
    sexton.process.line("how much was folded, in the end", ended).await;
    let log = [Stream::Out, Stream::Err].map(|stream| sexton.process.shown(stream)).concat();
    for (what, times) in [("the outbox is nearly full", 1), ("fits into the outbox again", 1)] {
        assert_eq!(log.iter().filter(|line| line.contains(what)).count(), times, "{what}");
    }
    let digests = requests.iter().filter(|request| request.json()["type"] == "dlq.digest").count();
    assert_eq!(digests, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_does_not_wait_behind_a_storm() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    receiver.otherwise(Behaviour::After(Duration::from_millis(200), Box::new(Behaviour::status(200))));
    let hook = format!("  - {{name: oncall, url: \"{}\", rate: unlimited}}", receiver.url());
    let sexton = Sexton::run(&config(&redis, &hook));
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    bury_many(&mut redis.connect().await, NS, 0..20_000).await;
    http.metric_is("sexton_jobs_dead_total", &[], 20_000.0).await;

    let file = sexton.config_file();
    let mut test = crate::support::process::Process::start(
        crate::support::process::command().args(["hooks", "test", "oncall", "-c"]).arg(file),
    );
    let requests =
        receiver.until(SOON, |requests| requests.iter().any(|request| request.json()["type"] == "hook.test")).await;
    assert!(told_deaths(&requests) < 10_000, "the storm is still under way");
    assert_eq!(test.end().await.code(), Some(0));
    eventually("the backlog is known", SOON, || async {
        http.metric("sexton_hook_backlog", &[]).await.filter(|backlog| *backlog > 1_000.0)
    })
    .await;
}

fn told_deaths(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.json()["type"] == "job.dead").count()
}
