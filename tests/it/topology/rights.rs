//! The least rights: README.md's list is what the code asks for, command by command, and everything works with it.

use std::{collections::BTreeSet, path::Path};

use redis::AsyncCommands as _;
use regex::Regex;
use serde_json::json;

use crate::support::{
    SOON,
    api::{Ask, TOKEN},
    eventually,
    process::{self, Process, Sexton, Stream},
    receiver::Receiver,
    redis::{Options, Redis},
    rights,
    workers::{Crew, Hiring, QUICK},
};

const NS: &str = "lrs";
/// Commands whose rights are given by their second word.
const CONTAINERS: [&str; 3] = ["xinfo", "sentinel", "cluster"];

/// What the sources and scripts of this folder ask a Redis for, as rights are written.
fn asked_for(folder: &str) -> BTreeSet<String> {
    // A command, and its second word where that follows; or how a script is called.
    let rust = Regex::new(r#"cmd\("([A-Z]+)"\)(?:\s*\.arg\("([A-Z-]+)"\))?|"(EVAL[A-Z_]*)""#).unwrap();
    let lua = Regex::new(r"call\('([A-Z]+)'(?:, '([A-Z]+)')?").unwrap();
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // What `sexton check --connect` asks it asks of whoever runs it.
                if !path.ends_with("inspect") {
                    folders.push(path);
                }
                continue;
            }
            let pattern = if path.extension().is_some_and(|extension| extension == "lua") { &lua } else { &rust };
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for words in pattern.captures_iter(text) {
                let word = |n: usize| words.get(n).map(|word| word.as_str().to_ascii_lowercase());
                let name = word(1).or_else(|| word(3)).unwrap();
                let second = word(2).filter(|_| CONTAINERS.contains(&name.as_str()));
                found.insert(second.map_or_else(|| name.clone(), |second| format!("{name}|{second}")));
            }
        }
    }
    found
}

/// The commands among the words of a list.
fn granted(words: &[String]) -> BTreeSet<String> {
    words.iter().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect()
}

#[test]
fn the_list_has_every_command_that_is_asked_for_and_no_other() {
    let mut listed = granted(&rights::of_sexton(NS));
    assert!(listed.len() > 30);
    listed.extend(granted(&rights::beyond("role")));
    listed.extend(granted(&rights::beyond("cluster|slots")));
    listed.extend(granted(&rights::of_sentinel()));
    // The client itself sends it.
    let select = BTreeSet::from(["select".to_owned()]);
    assert_eq!(granted(&rights::beyond("select")), select);
    assert_eq!(listed, asked_for("src/smallage"));
}

#[tokio::test]
async fn everything_works_with_the_least_rights() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    rights::grant(&mut con, &rights::of_sexton(NS)).await;
    let crew = Crew::start(&redis, NS, &Hiring { policy: QUICK, ..Hiring::default() });
    crew.dependencies.break_down("smtp");
    let receiver = Receiver::start().await;
    let (port, pw) = (redis.port().unwrap(), rights::PASSWORD);
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://sexton:{pw}@127.0.0.1:{port}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{}\", rate: unlimited, events: [\"*\"]}}]\n\
         http: {{listen: \"127.0.0.1:0\", token: {TOKEN}}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\n\
         rules: [rules.yaml]\nretention: {{max_entries: 15}}\noutbox: {{keep: 1s}}\n",
        receiver.url()
    );
    let alerts = "alerts:\n  - {name: rising, rising: {over: 2s, buckets: 4, at_least: 2, growth: 3}}\n  \
                  - {name: burst, burst: {over: 5s, deaths: 10}}\n  \
                  - {name: untriaged, waiting: {entries: 1, older_than: 1s}}\n  - {name: new-kind, new_group: {}}\n";
    let rules = format!(
        "retry:\n  - {{name: bugs, match: {{task: parse_order}}, action: leave}}\n  \
         - {{name: flaky, min_age: 500ms, backoff: 1, max_backoff: 500ms, max_retries: 1, pace: {{start: 50}}}}\n{alerts}"
    );
    let sexton = Sexton::run_with(&config, &[("rules.yaml", &rules)]);
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    crew.dependencies.break_down("crm");
    crew.enqueue(&mut con, "send_email", 0..30).await;
    let exhausted = crew.enqueue(&mut con, "sync_crm", 55..60).await;
    crew.enqueue(&mut con, "parse_order", 30..55).await;
    http.metric_is("sexton_jobs_dead_total", &[("task", "send_email")], 30.0).await;
    crew.dependencies.mend("smtp");
    http.metric_is("sexton_retry_outcomes_total", &[("outcome", "recovered")], 30.0).await;
    http.metric_is("sexton_entries_exhausted_total", &[], 5.0).await;
    eventually("retention has removed something", SOON * 2, || async move {
        http.metric("sexton_dlq_purged_total", &[("why", "retention")]).await.filter(|purged| *purged >= 1.0)
    })
    .await;
    receiver.until(SOON, |requests| requests.iter().any(|request| request.json()["type"] == "alert.firing")).await;

    // Another reading of the rules: everything that is in the DLQ is judged anew.
    let rules = format!("retry: [{{name: all, min_age: 1h, max_retries: 5}}]\n{alerts}");
    std::fs::write(sexton.folder().join("rules.yaml"), rules).unwrap();
    eventually("all are due some time", SOON, || async move {
        http.metric("sexton_retry_due_entries", &[]).await.filter(|due| *due >= 5.0)
    })
    .await;

    // People.
    let dead: Vec<(String, redis::Value)> =
        redis::cmd("XRANGE").arg("{lrs}:dlq").arg("-").arg("+").query_async(&mut con).await.unwrap();
    let [first, second, third, ..] = dead.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>()[..] else {
        panic!("there are more than three")
    };
    for line in [
        "ls",
        "ls --task parse_* --error ValueError --newer-than 1h -o jsonl",
        &format!("show {first}"),
        &format!("errors {first}"),
        &format!("errors {}", exhausted[0]),
        &format!("explain {first}"),
        "groups",
        "rules try",
        "alerts",
        "stats",
        "audit",
        "hooks ls",
        "hooks test oncall",
        "hooks resend oncall --since 1h --yes",
        &format!("retry {first} --yes"),
        &format!("rm {second} --yes"),
        "retry --task parse_* --dry-run --yes",
        "purge --older-than 1h --yes",
        &format!("explain {second}"),
    ] {
        let mut run = Process::start(process::command().args(line.split(' ')).arg("-c").arg(sexton.config_file()));
        let exit = run.end().await;
        assert_eq!(exit.code(), Some(0), "{line}: {:?}", run.shown(Stream::Err));
    }
    http.ask(Ask::post(&format!("/dead-letters/orders/{third}/retry"), &json!({}))).await.with(200);
    for (path, body) in [
        ("/dead-letters:retry", json!({"filter": {"task": ["parse_*"]}, "per_second": 100})),
        ("/dead-letters:purge", json!({"filter": {"older_than": "1h"}})),
        ("/dead-letters:delete", json!({"filter": {"task": ["parse_*"]}})),
    ] {
        let begun = http.ask(Ask::post(path, &body)).await.with(202);
        let id = begun["items"][0]["id"].as_str().unwrap();
        assert_eq!(http.ended(id).await["state"], "done", "{path}");
    }
    for path in
        ["/sources", "/dead-letters", "/groups", "/alerts", "/samples?over=1h", "/hooks", "/audit", "/operations"]
    {
        http.ask(Ask::get(path)).await.with(200);
    }
    // What is told is trimmed, once it is old enough.
    eventually("the outbox is trimmed", SOON, || {
        let mut con = con.clone();
        async move { (con.xlen::<_, u64>("{lrs}:sexton:outbox:deaths").await.unwrap() < 20).then_some(()) }
    })
    .await;
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("NOPERM"), "{shown}");
    let refused = rights::refused(&mut con).await;
    assert!(refused.is_empty(), "{refused:?}");
}
