//! What it costs to watch a DLQ where nothing happens: memory, commands, CPU. Without rules, and with rules in force by
//! which every entry waits in the due index.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sexton::clock::monotonic;

use super::{
    Figure,
    support::{
        eventually,
        graveyard::{bury_all, letter_at},
        process::Sexton,
        redis::{Options, Redis},
        workers::now,
    },
};

const NS: &str = "lrs";
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// How long it may take until everything is ingested, or is in the due index.
const PREPARED_WITHIN: Duration = Duration::from_secs(300);
/// Rules by which all wait for longer than this takes: a pool for each of the five tasks, and many groups in some.
const RULES: &str = "retry: [{name: later, match: {}, min_age: 7d, max_backoff: 7d}]\n";
/// How long idleness is watched.
const IDLE: Duration = Duration::from_secs(30);

/// What one replica with a hook and the default settings costs.
struct Cost {
    leader_bytes: u64,
    standby_bytes: u64,
    commands_per_minute: f64,
    cpu: f64,
}

/// Without rules.
pub(super) async fn figures() -> Vec<Figure> {
    measure(false, "", "ingested").await
}

/// With rules.
pub(super) async fn waiting_figures() -> Vec<Figure> {
    measure(true, ", all waiting by rule", "waiting by rule").await
}

async fn measure(rules: bool, which: &str, state: &str) -> Vec<Figure> {
    let few = watch(FEW, rules).await;
    let many = watch(MANY, rules).await;
    let mib = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    let memory = |what: String, bytes: u64, most: f64, wanted: &'static str| Figure {
        what,
        measured: format!("{:.1} MiB", mib(bytes)),
        bare: "–".to_owned(),
        result: format!("{:.1} MiB", mib(bytes)),
        wanted,
        reached: mib(bytes) <= most,
    };
    let ratio = many.commands_per_minute / few.commands_per_minute;
    vec![
        memory(format!("resident memory, leader, 1,000,000 entries {state}"), many.leader_bytes, 32.0, "≤ 32 MiB"),
        memory(format!("resident memory, standby{which}"), many.standby_bytes, 16.0, "≤ 16 MiB"),
        Figure {
            what: format!("Redis commands a minute, idle, leader and standby{which}"),
            measured: format!("{:.0} at 1,000,000", many.commands_per_minute),
            bare: format!("{:.0} at 1,000", few.commands_per_minute),
            result: format!("{ratio:.2} ×"),
            wanted: "the same",
            reached: (0.9..=1.1).contains(&ratio),
        },
        Figure {
            what: format!("CPU of an idle leader{which}"),
            measured: format!("{:.2} %", many.cpu * 100.0),
            bare: format!("{:.2} % at 1,000", few.cpu * 100.0),
            result: format!("{:.2} %", many.cpu * 100.0),
            wanted: "≤ 1 % of a core",
            reached: many.cpu <= 0.01,
        },
    ]
}

async fn watch(entries: u64, rules: bool) -> Cost {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let died_at = u64::try_from(now(&mut con).await).expect("after 1970");
    bury_all(&mut con, NS, (0..entries).map(|n| letter_at(NS, n, died_at))).await;
    // Nothing may be sent while idleness is measured: the digest of the first visit has no taker.
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"http://127.0.0.1:9/\", events: [hook.test], secret: \"{}\"}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n{}",
        redis.url(),
        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
        if rules { "rules: [rules.yaml]\n" } else { "" }
    );
    let files: &[_] = if rules { &[("rules.yaml", RULES)] } else { &[] };
    let leader = Sexton::run_with(&config, files);
    let http = leader.http().await;
    http.metric_is("sexton_leader", &[("source", "orders")], 1.0).await;
    let standby = Sexton::run_with(&config, files);
    standby.http().await.answers("/readyz", 200).await;
    eventually("everything is ingested", PREPARED_WITHIN, || async {
        let surveyed = http.metric("sexton_dlq_entries", &[]).await? > 0.0;
        let lag = http.metric("sexton_ingest_lag_entries", &[]).await?;
        (surveyed && lag < 0.5).then_some(())
    })
    .await;
    if rules {
        let all = entries as f64;
        eventually("everything waits in the due index", PREPARED_WITHIN, || async {
            http.metric("sexton_retry_due_entries", &[]).await.filter(|waiting| *waiting >= all)
        })
        .await;
    }
    let (commands, cpu, began) = (commands(&mut con).await, leader.process.cpu_time(), monotonic());
    tokio::time::sleep(IDLE).await;
    let took = began.elapsed().as_secs_f64();
    let commands = self::commands(&mut con).await - commands;
    Cost {
        leader_bytes: leader.process.resident_bytes(),
        standby_bytes: standby.process.resident_bytes(),
        commands_per_minute: commands as f64 / took * 60.0,
        cpu: (leader.process.cpu_time() - cpu).as_secs_f64() / took,
    }
}

/// Commands ever processed, those inside scripts not counted.
async fn commands(con: &mut MultiplexedConnection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query_async(con).await.expect("INFO works");
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.and_then(|count| count.trim().parse().ok()).expect("INFO counts commands")
}
