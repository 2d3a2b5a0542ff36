//! A real Prometheus scrapes three replicas for five minutes, while a dependency is down, Redis stands still and dies, and
//! leaders are stopped, killed and frozen: what it has in the end is what happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use sexton::metrics;

use crate::support::{
    SOON, eventually,
    process::{Http, Sexton},
    prometheus::{Prometheus, Series},
    redis::{Options, Redis},
    workers::{Crew, Hiring},
};

const NS: &str = "lrs";
const EVERY: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(5);
/// Within this long after the store is there again, or a leader is gone, there is a leader, and Prometheus has seen it:
/// the lease, two seconds, and two scrapes.
const HAND_OVER: Duration = Duration::from_secs(11);
/// More than die between two scrapes, and that three times: so many leaders end.
const UNSEEN_AT_MOST: f64 = 40.0;
/// Jobs arrive so often.
const ARRIVALS: Duration = Duration::from_millis(500);

const RULES: &str = "retry: [{name: flaky, match: {task: [send_email]}, min_age: 10s, max_retries: 2, backoff: 1}]\n\
                     alerts: [{name: burst, burst: {over: 1m, deaths: 150}}]\n";

fn config(redis: &Redis) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
         lease: {{ttl: {}s}}\nsample_every: 1s\nannounce_existing: true\nrules: [rules.yaml]\n",
        redis.url(),
        TTL.as_secs()
    )
}

struct Play {
    redis: Redis,
    crew: Crew,
    prometheus: Prometheus,
    replicas: Vec<(Sexton, Http)>,
    began: f64,
    started: u64,
    jobs: u64,
    /// When there may have been no leader, in Prometheus's time.
    without: Vec<(f64, f64)>,
}

impl Play {
    async fn begin() -> Play {
        let redis = Redis::with(Options { tcp: true, appendonly: true, ..Options::default() }).await;
        let crew = Crew::start(&redis, NS, &Hiring { workers: 1, ..Hiring::default() });
        for dependency in ["smtp", "pay"] {
            crew.dependencies.break_down(dependency);
        }
        let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules/prometheus/sexton.yaml");
        let prometheus = Prometheus::start(EVERY, &[rules]).await;
        let began = prometheus.now().await;
        let (replicas, without) = (Vec::new(), vec![(began, began)]);
        let mut play = Play { redis, crew, prometheus, replicas, began, started: 0, jobs: 0, without };
        for _ in 0..3 {
            play.one_more().await;
        }
        play
    }

    /// Another pod.
    async fn one_more(&mut self) {
        let sexton = Sexton::run_with(&config(&self.redis), &[("rules.yaml", RULES)]);
        let http = sexton.http().await;
        self.prometheus.scrape(http, &[("pod", &format!("sexton-{}", self.started)), ("namespace", "jobs")]);
        self.started += 1;
        self.replicas.push((sexton, http));
    }

    /// The replica that leads, out of the others.
    async fn leader(&mut self) -> (Sexton, Http) {
        let leads = eventually("a replica leads", SOON, async || {
            for (n, (_, http)) in self.replicas.iter().enumerate() {
                if http.metric("sexton_leader", &[]).await == Some(1.0) {
                    return Some(n);
                }
            }
            None
        });
        let leads = leads.await;
        self.replicas.remove(leads)
    }

    async fn con(&self) -> MultiplexedConnection {
        self.redis.connect().await
    }

    async fn enqueue(&mut self, task: &str, count: u64) {
        let mut con = self.con().await;
        self.crew.enqueue(&mut con, task, self.jobs..self.jobs + count).await;
        self.jobs += count;
    }

    /// Jobs arrive steadily until so long after the beginning.
    async fn until(&mut self, seconds: f64) {
        loop {
            let left = self.began + seconds - self.prometheus.now().await;
            if left <= 0.0 {
                return;
            }
            self.enqueue("send_email", 1).await;
            tokio::time::sleep(ARRIVALS.min(Duration::from_secs_f64(left))).await;
        }
    }

    /// While this goes on, and for a hand-over after it, nobody may lead.
    async fn without_leader(&mut self, from: f64) {
        let to = self.prometheus.now().await;
        self.without.push((from, to));
    }

    async fn deaths(&self) -> f64 {
        let added: Vec<redis::Value> = redis::cmd("XINFO")
            .arg("STREAM")
            .arg(format!("{{{NS}}}:dlq"))
            .query_async(&mut self.con().await)
            .await
            .expect("jobs have died");
        let at =
            added.iter().position(|value| matches!(value, redis::Value::BulkString(name) if name == b"entries-added"));
        let count: f64 =
            redis::from_redis_value(added[at.expect("Redis 7 counts them") + 1].clone()).expect("a number");
        count
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_five_minutes_of_trouble_prometheus_sees_what_happened() {
    let mut play = Play::begin().await;
    play.until(30.0).await;

    // A roll-out: the leader is told to stop.
    let from = play.prometheus.now().await;
    let (mut stopped, http) = play.leader().await;
    stopped.process.terminate();
    assert!(stopped.process.end().await.success());
    play.without_leader(from).await;
    play.one_more().await;
    play.until(50.0).await;
    play.prometheus.forget(http);

    // A node dies.
    let from = play.prometheus.now().await;
    let (mut killed, http) = play.leader().await;
    killed.process.kill();
    play.without_leader(from).await;
    play.one_more().await;
    play.until(75.0).await;
    play.prometheus.forget(http);

    // A dependency more is down, and very many jobs need it: of a task that nobody has seen die so far.
    play.enqueue("charge_card", 300).await;
    play.until(95.0).await;

    // The leader stands still for longer than its lease, and wakes.
    let from = play.prometheus.now().await;
    let frozen = play.leader().await;
    frozen.0.process.freeze();
    play.without_leader(from).await;
    play.until(110.0).await;
    frozen.0.process.thaw();
    play.replicas.push(frozen);
    play.until(130.0).await;

    // Redis stands still, shorter and longer than the lease.
    for (still, until) in [(1, 150.0), (8, 180.0)] {
        let from = play.prometheus.now().await;
        play.redis.freeze();
        tokio::time::sleep(Duration::from_secs(still)).await;
        play.redis.thaw();
        play.without_leader(from).await;
        play.until(until).await;
    }

    // Redis dies, and comes back with what it has written down.
    let from = play.prometheus.now().await;
    play.redis.kill();
    tokio::time::sleep(Duration::from_secs(6)).await;
    play.redis.start_again().await;
    play.without_leader(from).await;
    play.until(210.0).await;

    // What was down works again; retries go out and recover. Then a roll-out in the middle of that.
    play.crew.dependencies.mend("smtp");
    play.until(235.0).await;
    let from = play.prometheus.now().await;
    let (mut stopped, http) = play.leader().await;
    stopped.process.terminate();
    assert!(stopped.process.end().await.success());
    play.without_leader(from).await;
    play.one_more().await;
    play.until(260.0).await;
    play.prometheus.forget(http);
    play.crew.dependencies.break_down("smtp");
    play.until(285.0).await;
    play.crew.dependencies.mend("smtp");

    let left = play.began + 300.0 - play.prometheus.now().await;
    tokio::time::sleep(Duration::from_secs_f64(left.max(0.0))).await;
    check(&play).await;
}

/// Everything that is asked of what Prometheus has.
async fn check(play: &Play) {
    let prometheus = &play.prometheus;
    let deaths = play.deaths().await;
    // The last ones are seen with one of the next scrapes; if they are not, it is told below.
    let all_seen = async {
        while prometheus.query("sum(last_over_time(sexton_jobs_dead_total[10m]))").await.unwrap()[0].last() < deaths {
            tokio::time::sleep(EVERY).await;
        }
    };
    let _ = tokio::time::timeout(SOON, all_seen).await;
    let everything = prometheus.query("{__name__=~\"sexton_.+\"}[10m]").await.unwrap();
    let mut wrong = Vec::new();
    backwards(&everything, &mut wrong);
    let dead = counted(&everything, "sexton_jobs_dead_total", &mut wrong);
    if dead != deaths {
        wrong.push(format!("{dead} deaths were counted, {deaths} died"));
    }
    // Of this a leader that ends may take with it what it has counted since its last scrape.
    let added = counted(&everything, "sexton_dlq_added_total", &mut wrong);
    if added > deaths || added < deaths - UNSEEN_AT_MOST {
        wrong.push(format!("{added} were counted as added, {deaths} died"));
    }
    let increase = prometheus.query("sum(increase(sexton_jobs_dead_total[6m]))").await.unwrap()[0].last();
    if (increase / deaths - 1.0).abs() > 0.05 {
        wrong.push(format!("increase says {increase}, {deaths} died"));
    }
    leaders(&everything, &mut wrong);
    sums(play, &mut wrong).await;
    assert!(wrong.is_empty(), "{} of {deaths} deaths:\n{}", wrong.len(), wrong.join("\n"));
}

/// What tells one process's line from any other.
fn line(series: &Series) -> String {
    let labels: Vec<String> = series.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.join(",")
}

/// Counters that go backwards.
fn backwards(everything: &[Series], wrong: &mut Vec<String>) {
    let counts = |name: &str| ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end));
    let mut seen = 0;
    for series in everything.iter().filter(|series| counts(series.label("__name__"))) {
        seen += 1;
        if let Some(pair) = series.samples.windows(2).find(|pair| pair[1].1 < pair[0].1) {
            wrong.push(format!("goes backwards: {} {pair:?}", line(series)));
        }
    }
    assert!(seen > 50, "{seen} counters");
}

/// By how much a counter has risen in the sight of Prometheus, over all its lines, each of which has to begin at 0.
fn counted(everything: &[Series], name: &str, wrong: &mut Vec<String>) -> f64 {
    let mut sum = 0.0;
    for series in everything.iter().filter(|series| series.label("__name__") == name) {
        let first = series.samples[0].1;
        if first != 0.0 {
            wrong.push(format!("does not begin at 0 but at {first}: {}", line(series)));
        }
        sum += series.last() - first;
    }
    sum
}

/// A time in milliseconds, to be compared.
fn instant(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

/// Gauges of leaders that somebody else shows, and two who lead at the same time.
fn leaders(everything: &[Series], wrong: &mut Vec<String>) {
    let mut leads: BTreeSet<(&str, i64)> = BTreeSet::new();
    let mut terms: Vec<(&str, i64, i64)> = Vec::new();
    for series in everything.iter().filter(|series| series.label("__name__") == "sexton_leader") {
        let mut term: Option<(i64, i64)> = None;
        for (at, value) in &series.samples {
            let at = instant(*at);
            if *value == 1.0 {
                leads.insert((series.label("instance"), at));
                term = Some(term.map_or((at, at), |(from, _)| (from, at)));
            } else if let Some((from, to)) = term.take() {
                terms.push((series.label("instance"), from, to));
            }
        }
        terms.extend(term.map(|(from, to)| (series.label("instance"), from, to)));
    }
    assert!(terms.len() >= 6, "{terms:?}");
    for (n, a) in terms.iter().enumerate() {
        for b in &terms[n + 1..] {
            if a.1 <= b.2 && b.1 <= a.2 {
                wrong.push(format!("two lead at the same time: {a:?} {b:?}"));
            }
        }
    }
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, ..) in metrics::REFERENCE.iter().filter(|(_, _, help)| help.contains("(leader only)")) {
        for series in everything.iter().filter(|series| series.label("__name__") == *name) {
            *shown.entry(name).or_default() += series.samples.len();
            let not_leading = |(at, _): &&(f64, f64)| !leads.contains(&(series.label("instance"), instant(*at)));
            let left: Vec<_> = series.samples.iter().filter(not_leading).collect();
            if !left.is_empty() {
                wrong.push(format!("shown by one who does not lead: {} {left:?}", line(series)));
            }
        }
    }
    for name in ["sexton_dlq_level", "sexton_groups_held", "sexton_alert_firing", "sexton_retries_in_flight"] {
        assert!(shown.get(name).is_some_and(|samples| *samples > 50), "{name}: {shown:?}");
    }
}

/// One leader at every moment but at hand-overs, and never two for as long as a lease.
async fn sums(play: &Play, wrong: &mut Vec<String>) {
    let prometheus = &play.prometheus;
    let (from, to) = (play.began + HAND_OVER.as_secs_f64(), play.began + 300.0);
    let sum = prometheus.query_range("sum(sexton_leader)", from, to, 1.0).await.unwrap();
    let up = prometheus.query_range("max(sexton_up)", from, to, 1.0).await.unwrap();
    // A busy machine may be late with an answer; then Prometheus cannot know.
    let late = prometheus.query_range("up == 0", from, to, 1.0).await.unwrap();
    let late: BTreeSet<i64> = late.iter().flat_map(|line| &line.samples).map(|(at, _)| instant(*at)).collect();
    let excused = |at: f64| {
        let goes_on = |(from, to): &(f64, f64)| (*from..to + HAND_OVER.as_secs_f64()).contains(&at);
        play.without.iter().any(goes_on) || late.contains(&instant(at))
    };
    let mut two = 0.0;
    for (at, leaders) in &sum[0].samples {
        two = if *leaders > 1.0 { two + 1.0 } else { 0.0 };
        if two > TTL.as_secs_f64() {
            wrong.push(format!("{leaders} lead, {:.0} s after the beginning", at - play.began));
        }
        if *leaders == 0.0 && !excused(*at) {
            wrong.push(format!("nobody leads, {:.0} s after the beginning", at - play.began));
        }
    }
    for (at, _) in up[0].samples.iter().filter(|(at, up)| *up == 0.0 && !excused(*at)) {
        wrong.push(format!("nobody is up, {:.0} s after the beginning", at - play.began));
    }
    let led = sum[0].samples.iter().filter(|(_, leaders)| *leaders == 1.0).count();
    assert!(led > 200, "one led in {led} of {} seconds", sum[0].samples.len());
    let fired =
        prometheus.query("max by (alertname) (max_over_time(ALERTS{alertstate=\"firing\"}[10m]))").await.unwrap();
    let fired: Vec<&str> = fired.iter().map(|alert| alert.label("alertname")).collect();
    if fired != ["SextonBurst"] {
        wrong.push(format!("alerts of Prometheus that fired: {fired:?}"));
    }
}
