//! `sexton alerts` through the real binary: what a sidecar has seen, while it runs and when it is gone.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{
    SOON, eventually,
    graveyard::{bury, letter_at},
    process::{Sexton, command},
    redis::{Options, Redis},
    workers::now,
    yard::NS,
};

const RULES: &str = "
alerts:
  - { name: quick, burst: { over: 1m, deaths: 4 }, severity: critical }
  - { name: slow, burst: { over: 1m, deaths: 4 }, by: [task], for: 1h }
  - { name: left, waiting: { entries: 3, older_than: 1h } }
";

/// Runs `sexton …` with this configuration: its exit code, and what it has printed.
async fn run(line: &str, sexton: &Sexton) -> (i32, String) {
    let mut command = tokio::process::Command::from(command());
    command.args(line.split(' ')).arg("-c").arg(sexton.config_file());
    let ended = command.stdin(Stdio::null()).output().await.unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stdout).unwrap())
}

async fn alerts(sexton: &Sexton) -> Value {
    let (code, out) = run("alerts -o json", sexton).await;
    assert_eq!(code, 0, "{out}");
    serde_json::from_str(&out).unwrap()
}

/// Rule, state, value and progress of everything that is shown.
fn standing(shown: &Value) -> Vec<Value> {
    let of = |item: &Value| json!([item["alert"], item["state"], item["value"], item["progress"]]);
    shown["items"].as_array().unwrap().iter().map(of).collect()
}

#[tokio::test]
async fn alerts_stand_as_a_sidecar_has_seen_them_also_when_it_is_gone() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
         sample_every: 200ms\nrules: [rules.yaml]\n",
        redis.url()
    );
    let mut sexton = Sexton::run_with(&config, &[("rules.yaml", RULES)]);
    sexton.http().await.metric_is("sexton_leader", &[("source", "orders")], 1.0).await;
    let time = u64::try_from(now(&mut con).await).unwrap();
    // Of one task; two of them died long ago by what their records say, and are part of no burst.
    for n in 0..6 {
        let ago = if n < 2 { 2 * 3_600_000 } else { 1_000 };
        bury(&mut con, NS, &letter_at(NS, 5 * n, time - ago)).await;
    }
    let fires = eventually("the burst is seen", SOON, || async {
        let shown = alerts(&sexton).await;
        (shown["items"][0]["state"] == "firing").then_some(shown)
    })
    .await;
    assert_eq!(fires["sources"][0]["stale"], false);
    let (_, stats) = run("stats", &sexton).await;
    assert!(stats.contains("  alerts    1 firing (quick), 1 pending, sampled "), "{stats}");

    sexton.process.terminate();
    assert!(sexton.process.end().await.success());
    let gone = eventually("that nobody looks is seen", SOON, || async {
        let shown = alerts(&sexton).await;
        (shown["sources"][0]["stale"] == true).then_some(shown)
    })
    .await;
    assert_eq!((&gone["sources"][0]["led"], &gone["sources"][0]["level"]), (&false.into(), &6.into()));
    let expected = [
        json!(["quick", "firing", 4, 1.0]),
        json!(["slow", "pending", 4, 1.0]),
        json!(["left", "quiet", 2, 2.0 / 3.0]),
    ];
    assert_eq!(standing(&gone), expected);
    let (code, out) = run("alerts", &sexton).await;
    assert!(code == 0 && out.contains("nobody has looked since") && out.contains("(no sidecar leads)"), "{out}");
}
