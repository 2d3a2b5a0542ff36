//! Alerts as people get them: Sexton itself, its rules in a file, and a receiver.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::AsyncCommands as _;
use sexton::clock::monotonic;

use crate::support::{
    SOON, eventually,
    graveyard::{Fields, bury_all, letter_at},
    process::Sexton,
    receiver::{Behaviour, Receiver, Request},
    redis::{Options, Redis},
    stage::{HECTIC, Stage, leader},
    workers::{Hiring, now},
};

const NS: &str = "lrs";
const EPISODES: u64 = 6;

fn config(redis: &Redis, receiver: &Receiver, more: &str) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{}\", rate: unlimited{more}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 500ms}}\nsample_every: 100ms\nannounce_existing: true\n\
         rules: [rules.yaml]\n",
        redis.url(),
        receiver.url()
    )
}

/// Letters that die now.
async fn dead(redis: &Redis, numbers: std::ops::Range<u64>) -> Vec<Fields> {
    let died_at = u64::try_from(now(&mut redis.connect().await).await).expect("after 1970");
    numbers.map(|n| letter_at(NS, n, died_at)).collect()
}

async fn bury(redis: &Redis, numbers: std::ops::Range<u64>) {
    let letters = dead(redis, numbers).await;
    bury_all(&mut redis.connect().await, NS, letters.into_iter()).await;
}

/// What was told of alerts: kind and incident, with the ids it came under.
fn pages(requests: &[Request]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut pages: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for request in requests {
        let body = request.json();
        let kind = body["type"].as_str().unwrap();
        if kind.starts_with("alert.") {
            let incident = body["data"]["incident"].as_str().unwrap().to_owned();
            pages.entry((kind.to_owned(), incident)).or_default().insert(request.id().to_owned());
        }
    }
    pages
}

fn count(requests: &[Request], kind: &str) -> usize {
    pages(requests).keys().filter(|(known, _)| known == kind).count()
}

#[expect(clippy::print_stdout, reason = "the seed is shown when the test fails")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_at_any_moment_loses_no_page_and_sends_none_under_another_id() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let rules = "alerts: [{name: burst, burst: {over: 6s, deaths: 3}, for: 700ms, keep_firing_for: 700ms}]\n";
    let run = || Sexton::run_with(&config(&redis, &receiver, ", events: [\"alert.*\"]"), &[("rules.yaml", rules)]);
    let mut replicas = [run(), run()];
    leader(&replicas).await;
    for episode in 0..EPISODES {
        // Pending for most of a second, firing until six seconds after, and then no more.
        let kills = [random.u64(0..1_200), random.u64(1_200..6_000), random.u64(6_000..8_000)];
        bury(&redis, episode * 5..episode * 5 + 5).await;
        let began = monotonic();
        for at in kills {
            tokio::time::sleep(Duration::from_millis(at).saturating_sub(began.elapsed())).await;
            let leading = leader(&replicas).await;
            replicas[leading].process.kill();
            replicas[leading] = run();
        }
        let wanted = usize::try_from(episode).unwrap() + 1;
        receiver.until(SOON, |requests| count(requests, "alert.resolved") >= wanted).await;
    }
    leader(&replicas).await;
    let pages = pages(&receiver.requests());
    let of = |kind: &str| -> BTreeSet<&str> {
        let of_kind = pages.keys().filter(|(known, _)| known == kind);
        of_kind.map(|(_, incident)| incident.as_str()).collect()
    };
    assert_eq!(of("alert.firing"), of("alert.resolved"), "what fires is over once, under the same incident");
    assert_eq!(of("alert.firing").len(), usize::try_from(EPISODES).unwrap());
    let renamed: Vec<_> = pages.iter().filter(|(_, ids)| ids.len() != 1).collect();
    assert!(renamed.is_empty(), "told under several ids: {renamed:?}");
    let told: u64 = redis.connect().await.xlen(format!("{{{NS}}}:sexton:outbox:alerts")).await.unwrap();
    assert_eq!(told, 2 * EPISODES, "and written once each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_goes_out_while_a_hundred_thousand_deaths_wait_for_a_slow_hook() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    receiver.otherwise(Behaviour::After(Duration::from_millis(200), Box::new(Behaviour::status(200))));
    let rules = "alerts: [{name: burst, burst: {over: 5m, deaths: 100000}, severity: critical}]\n";
    // A burial so fast holds up Redis, and with it the lease.
    let config = config(&redis, &receiver, "").replace("ttl: 500ms", "ttl: 10s");
    let sexton = Sexton::run_with(&config, &[("rules.yaml", rules)]);
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    bury(&redis, 0..100_000).await;
    eventually("all of them are read", Duration::from_secs(60), || async {
        http.metric("sexton_jobs_dead_total", &[]).await.filter(|dead| *dead >= 100_000.0)
    })
    .await;
    let ingested = monotonic();
    let requests = receiver.until(SOON, |requests| count(requests, "alert.firing") == 1).await;
    let page = requests.iter().find(|request| request.json()["type"] == "alert.firing").unwrap();
    let waited = page.at.saturating_duration_since(ingested);
    assert!(waited < Duration::from_secs(5), "{waited:?} after the last death was read");
    assert_eq!(page.json()["data"]["value"], 100_000, "and none is missing in it");
    let deaths = requests.iter().filter(|request| request.json()["type"] == "job.dead").count();
    assert!(deaths < 20_000, "the storm is still under way: {deaths}");
    http.metric_is("sexton_alert_firing", &[("alert", "burst"), ("severity", "critical")], 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_retries_neither_feed_the_line_nor_hide_its_rise() {
    let alerts = "alerts:\n  - {name: rising, rising: {over: 6s, buckets: 6, at_least: 4, growth: 40}, \
                  keep_firing_for: 1s}\n  - {name: burst, burst: {over: 20s, deaths: 101}, keep_firing_for: 1s}\n";
    let mut stage = Stage::set(Options::default(), &Hiring::default(), HECTIC).await;
    let sexton = stage.sexton_with_alerts(alerts);
    let http = sexton.http().await;
    leader(std::slice::from_ref(&sexton)).await;
    let told = |stage: &Stage| -> Vec<String> {
        let requests = stage.receiver.requests();
        let mut told: Vec<String> = requests.iter().filter_map(alert).collect();
        told.dedup();
        told
    };
    // A hundred die at once, and die again and again of retries of ours until their allowance is spent.
    stage.wave(100).await;
    http.metric_is("sexton_entries_exhausted_total", &[], 100.0).await;
    assert!(stage.logged("retried").await >= 300);
    assert_eq!(told(&stage), Vec::<String>::new(), "it is one burst of a hundred, and a flat line");
    // Now they die steadily, and most of them are on their way back at any time.
    for _ in 0..8 {
        stage.wave(12).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    eventually("the line rises", SOON, || async { told(&stage).contains(&"rising fires".to_owned()).then_some(()) })
        .await;
    stage.settles(Duration::from_secs(30)).await;
    eventually("the line rises no more", SOON, || async {
        told(&stage).contains(&"rising is over".to_owned()).then_some(())
    })
    .await;
}

fn alert(request: &Request) -> Option<String> {
    let body = request.json();
    let what = match body["type"].as_str()? {
        "alert.firing" => "fires",
        "alert.resolved" => "is over",
        _ => return None,
    };
    Some(format!("{} {what}", body["data"]["alert"].as_str()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alert_rules_are_taken_over_while_it_runs_and_a_lost_ledger_is_no_end() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let burst = |name: &str| format!("alerts: [{{name: {name}, burst: {{over: 2m, deaths: 3}}}}]\n");
    let config = config(&redis, &receiver, ", events: [\"alert.*\"]");
    let sexton = Sexton::run_with(&config, &[("rules.yaml", &burst("before"))]);
    let http = sexton.http().await;
    http.metric_is("sexton_alert_firing", &[("alert", "before")], 0.0).await;
    bury(&redis, 0..3).await;
    http.metric_is("sexton_alert_firing", &[("alert", "before")], 1.0).await;
    std::fs::write(sexton.folder().join("rules.yaml"), burst("after")).unwrap();
    http.metric_is("sexton_alert_firing", &[("alert", "after")], 1.0).await;
    assert_eq!(http.metric("sexton_alert_firing", &[("alert", "before")]).await, None);
    let requests = receiver.until(SOON, |requests| pages(requests).len() == 3).await;
    let mut told: Vec<String> = requests.iter().filter_map(alert).collect();
    told.sort();
    assert_eq!(told, ["after fires", "before fires", "before is over"], "what is withdrawn is over");

    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connect().await).await.unwrap();
    sexton.process.says("the store has lost the ledger").await;
    http.metric_is("sexton_alert_firing", &[("alert", "after")], 0.0).await;
    bury(&redis, 3..6).await;
    http.metric_is("sexton_alert_firing", &[("alert", "after")], 1.0).await;
    let fires = |requests: &[Request]| requests.iter().filter_map(alert).filter(|told| told == "after fires").count();
    receiver.until(SOON, |requests| fires(requests) == 2).await;
}
