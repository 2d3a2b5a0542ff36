//! What it costs to watch a DLQ where nothing happens: memory, commands, CPU.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sexton::clock::monotonic;

use super::{
    Figure,
    support::{
        graveyard::bury_many,
        process::Sexton,
        redis::{Options, Redis},
    },
};

const NS: &str = "lrs";
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// How long idleness is watched.
const IDLE: Duration = Duration::from_secs(30);

/// What one replica with a hook and the default settings costs.
struct Cost {
    leader_bytes: u64,
    standby_bytes: u64,
    commands_per_minute: f64,
    cpu: f64,
}

pub(super) async fn figures() -> Vec<Figure> {
    let few = watch(FEW).await;
    let many = watch(MANY).await;
    let mib = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    let memory = |what: &str, bytes: u64, most: f64, wanted: &'static str| Figure {
        what: what.to_owned(),
        measured: format!("{:.1} MiB", mib(bytes)),
        bare: "–".to_owned(),
        result: format!("{:.1} MiB", mib(bytes)),
        wanted,
        reached: mib(bytes) <= most,
    };
    let ratio = many.commands_per_minute / few.commands_per_minute;
    vec![
        memory("resident memory, leader, 1,000,000 entries ingested", many.leader_bytes, 32.0, "≤ 32 MiB"),
        memory("resident memory, standby", many.standby_bytes, 16.0, "≤ 16 MiB"),
        Figure {
            what: "Redis commands a minute, idle, leader and standby".to_owned(),
            measured: format!("{:.0} at 1,000,000", many.commands_per_minute),
            bare: format!("{:.0} at 1,000", few.commands_per_minute),
            result: format!("{ratio:.2} ×"),
            wanted: "the same",
            reached: (0.9..=1.1).contains(&ratio),
        },
        Figure {
            what: "CPU of an idle leader".to_owned(),
            measured: format!("{:.2} %", many.cpu * 100.0),
            bare: "–".to_owned(),
            result: format!("{:.2} %", many.cpu * 100.0),
            wanted: "≤ 1 % of a core",
            reached: many.cpu <= 0.01,
        },
    ]
}

async fn watch(entries: u64) -> Cost {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..entries).await;
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"http://127.0.0.1:9/\", secret: \"{}\"}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url(),
        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    );
    // Nothing may be sent while idleness is measured: the digest of the first visit has no taker.
    let config = config.replace("secret:", "events: [hook.test], secret:");
    let leader = Sexton::run(&config);
    let http = leader.http().await;
    http.metric_is("sexton_leader", &[("source", "orders")], 1.0).await;
    let standby = Sexton::run(&config);
    standby.http().await.answers("/readyz", 200).await;
    super::support::eventually("everything is ingested", Duration::from_secs(120), || async {
        let surveyed = http.metric("sexton_dlq_entries", &[]).await? > 0.0;
        let lag = http.metric("sexton_ingest_lag_entries", &[]).await?;
        (surveyed && lag < 0.5).then_some(())
    })
    .await;
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
