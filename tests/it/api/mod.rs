//! The API as programs use it: against the running sidecar and a real Redis.

mod bulk;
mod conformance;
mod limits;

use std::collections::BTreeSet;

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use serde_json::{Value, json};

use crate::support::{
    SOON,
    api::{Ask, CI_TOKEN, TOKEN, printed},
    eventually,
    graveyard::{bury_many, dlq},
    process::{Http, Sexton, command},
    redis::Redis,
};

const NS: &str = "lrs";

/// A configuration with two tokens, one of them in a file, and two sources of which the second is empty.
fn config(redis: &Redis) -> String {
    let url = redis.url();
    format!(
        "sources:\n  - {{name: orders, smallage: {{url: \"{url}\", namespace: {NS}}}}}\n  - {{name: mails, smallage: \
         {{url: \"{url}\", namespace: mails}}}}\nhttp:\n  listen: \"127.0.0.1:0\"\n  token: {TOKEN}\n  tokens: [{{name: \
         ci, token_file: ci-token}}]\nlease: {{ttl: 1s}}\nhooks: [{{name: oncall, url: \"http://127.0.0.1:9/in\"}}]\n"
    )
}

struct Stage {
    redis: Redis,
    con: MultiplexedConnection,
    sexton: Sexton,
    http: Http,
    ids: Vec<String>,
}

impl Stage {
    /// With so many dead letters, all read, and a queue that they can go back to.
    async fn with(letters: u64) -> Stage {
        let redis = Redis::start().await;
        let mut con = redis.connect().await;
        let ids = bury_many(&mut con, NS, 0..letters).await;
        let _: String = con.xadd(queue(), "*", &[("v", "1")]).await.unwrap();
        let sexton = Sexton::run_with(&config(&redis), &[("ci-token", CI_TOKEN)]);
        let http = sexton.http().await;
        http.metric_is("sexton_leader", &[("source", "orders")], 1.0).await;
        http.metric_is("sexton_ingest_lag_entries", &[("source", "orders")], 0.0).await;
        Stage { redis, con, sexton, http, ids }
    }

    async fn left(&self) -> usize {
        self.con.clone().xlen(dlq(NS)).await.unwrap()
    }

    /// Jobs that were put back.
    async fn queued(&self) -> usize {
        self.con.clone().xlen::<_, usize>(queue()).await.unwrap() - 1
    }
}

fn queue() -> String {
    format!("{{{NS}}}:q:default:0")
}

fn ids_of(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("a page has items");
    items.iter().map(|item| item["entry_id"].as_str().expect("an entry has an id").to_owned()).collect()
}

#[tokio::test]
async fn a_token_guards_what_changes_and_what_shows_a_payload() {
    let stage = Stage::with(3).await;
    let http = stage.http;
    let entry = format!("/dead-letters/orders/{}", stage.ids[0]);
    let rest = format!("/dead-letters/orders/{}", stage.ids[1]);
    let writes = [
        ("POST", format!("{rest}/retry")),
        ("DELETE", rest.clone()),
        ("POST", "/dead-letters:retry".to_owned()),
        ("POST", "/dead-letters:delete".to_owned()),
        ("POST", "/dead-letters:purge".to_owned()),
        ("POST", "/operations/0000/cancel".to_owned()),
    ];
    for (method, path) in &writes {
        let answer = http.ask(Ask::new(method, path)).await;
        assert_eq!(
            (answer.status, answer.header("www-authenticate")),
            (401, Some("Bearer realm=\"sexton\"")),
            "{path}"
        );
        for wrong in ["0123456789abcdef-defaulT", "0123456789abcdef", ""] {
            let answer = http.ask(Ask::new(method, path).bearer(wrong)).await;
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (401, Some("application/problem+json")),
                "{path}"
            );
        }
    }
    for path in ["/sources", "/dead-letters", "/groups", "/hooks", "/audit", "/operations", "/openapi.json", &entry] {
        assert_eq!(http.ask(Ask::get(path)).await.status, 200, "{path}");
        assert_eq!(
            http.ask(Ask::get(path).bearer("0123456789abcdef-other")).await.status,
            401,
            "a slip is told: {path}"
        );
    }
    let (shown, whole) = (http.ask(Ask::get(&entry)).await, http.ask(Ask::get(&entry).bearer(TOKEN)).await.with(200));
    assert!(!shown.body.contains("user0@example.test") && whole["payload_text"].as_str().unwrap().contains("user0@"));
    let shown = shown.json();
    assert!(shown.get("payload").is_none() && shown.get("fields").is_none() && shown["payload_form"] == "json");
    assert!(shown["traceback"].as_str().unwrap().contains("ConnectionError"));

    // Both tokens do, each under its name.
    http.ask(Ask::new("DELETE", &format!("{rest}?note=a+test")).bearer(CI_TOKEN)).await.with(200);
    http.ask(Ask::post(&format!("{entry}/retry"), &json!({"note": "once more"}))).await.with(200);
    let log = http.ask(Ask::get("/audit")).await.with(200);
    let told: Vec<_> = log["items"].as_array().unwrap().iter().map(|line| (&line["what"], &line["by"])).collect();
    assert!(told.contains(&(&json!("removed"), &json!("token:ci"))), "{log}");
    assert!(told.contains(&(&json!("retried"), &json!("token:default"))), "{log}");
    assert!(log.to_string().contains("a test") && log.to_string().contains("once more"), "{log}");
    assert_eq!((stage.left().await, stage.queued().await), (1, 1));
    assert_eq!(http.ask(Ask::new("DELETE", &rest).bearer(TOKEN)).await.status, 404, "it is gone");
}

#[tokio::test]
async fn a_token_in_a_file_may_change_and_none_is_let_in_meanwhile() {
    let stage = Stage::with(1).await;
    let (http, file) = (stage.http, stage.sexton.folder().join("ci-token"));
    let status = |token: &'static str| async move { http.ask(Ask::get("/sources").bearer(token)).await.status };
    assert_eq!(status(CI_TOKEN).await, 200);
    let becomes = |token: &'static str, wanted: u16| async move {
        let what = format!("{token} is answered {wanted}");
        eventually(&what, SOON, || async { (status(token).await == wanted).then_some(()) }).await;
    };
    std::fs::write(&file, "a-new-one-0123456789\n").unwrap();
    becomes("a-new-one-0123456789", 200).await;
    assert_eq!(status(CI_TOKEN).await, 401);
    // Too short to be one, or not there: nobody is let in.
    std::fs::write(&file, "short").unwrap();
    becomes("a-new-one-0123456789", 401).await;
    assert_eq!(status("short").await, 401);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, CI_TOKEN).unwrap();
    becomes(CI_TOKEN, 200).await;
    assert_eq!(status(TOKEN).await, 200, "the other one is as it was");
}

#[tokio::test]
async fn without_a_token_it_only_reads() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let ids = bury_many(&mut con, NS, 0..1).await;
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\"}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url()
    );
    let sexton = Sexton::run(&config);
    let http = sexton.http().await;
    let entry = format!("/dead-letters/orders/{}", ids[0]);
    let shown = http.ask(Ask::get(&entry)).await;
    assert!(shown.status == 200 && !shown.body.contains("user0@example.test"), "{shown:?}");
    for ask in [Ask::new("DELETE", &entry), Ask::new("POST", "/dead-letters:retry")] {
        let problem = http.ask(ask).await.with(403);
        assert!(problem["detail"].as_str().unwrap().contains("http.token_file"), "{problem}");
    }
    assert_eq!(http.ask(Ask::new("DELETE", &entry).bearer(TOKEN)).await.status, 401);
}

#[tokio::test]
async fn it_answers_what_the_commands_print() {
    let stage = Stage::with(60).await;
    let (http, file) = (stage.http, stage.sexton.config_file());
    let cli = |words: &[&str]| {
        let mut command = command();
        command.args(words).arg("-c").arg(&file);
        printed(command)
    };
    let entry = format!("orders/{}", stage.ids[7]);
    http.ask(Ask::post(&format!("/dead-letters/orders/{}/retry", stage.ids[0]), &json!({}))).await.with(200);
    // What is in flight changes by itself; nobody works on that queue.
    for (path, words) in [
        ("/dead-letters?limit=20", &["ls", "--limit", "20", "-o", "json"][..]),
        ("/dead-letters?task=send_*&task=charge_*", &["ls", "--task", "send_*", "--task", "charge_*", "-o", "json"]),
        (
            "/dead-letters?error=(?i)timed%20out&source=orders",
            &["ls", "--error", "(?i)timed out", "--source", "orders", "-o", "json"],
        ),
        (&format!("/dead-letters/{entry}"), &["show", &entry, "-o", "json"]),
        (&format!("/dead-letters/{entry}/errors"), &["errors", &entry, "-o", "json"]),
        (&format!("/dead-letters/{entry}/explain"), &["explain", &entry, "-o", "json"]),
        ("/groups?queue=default", &["groups", "--queue", "default", "-o", "json"]),
        ("/audit?limit=10", &["audit", "--limit", "10", "-o", "json"]),
        ("/hooks", &["hooks", "ls", "-o", "json"]),
        ("/alerts", &["alerts", "-o", "json"]),
    ] {
        let answer = http.ask(Ask::get(path).bearer(TOKEN)).await.with(200);
        assert_eq!(answer, cli(words), "{path}");
    }
}

#[tokio::test]
async fn the_line_is_shown_with_its_gaps() {
    let stage = Stage::with(40).await;
    let line = eventually("a sample is taken", SOON, || async {
        let line = stage.http.ask(Ask::get("/samples?source=orders&over=1h&points=60")).await.with(200);
        (!line["items"][0]["level"].is_null()).then_some(line)
    })
    .await;
    let (item, points) = (&line["items"][0], line["items"][0]["points"].as_array().unwrap());
    assert_eq!(
        (item["source"].as_str(), item["level"].as_u64(), item["over"].as_str()),
        (Some("orders"), Some(40), Some("1h"))
    );
    assert_eq!((points.len(), &points[59]["level"], &points[0]["level"]), (60, &json!(40), &Value::Null), "{line}");
    let at = |n: usize| points[n]["at"].as_str().unwrap();
    assert!(at(0) < at(1) && at(58) < at(59), "{line}");
}

#[tokio::test]
async fn pages_neither_skip_nor_repeat_while_entries_come_and_go() {
    let mut stage = Stage::with(200).await;
    let (mut seen, mut pages, mut after) = (Vec::new(), 0, String::new());
    let mut gone = BTreeSet::new();
    loop {
        let page = stage.http.ask(Ask::get(&format!("/dead-letters?limit=9&after={after}"))).await.with(200);
        seen.extend(ids_of(&page));
        pages += 1;
        let Some(next) = page["next_cursor"].as_str() else { break };
        after = next.to_owned();
        // New ones come in front; of the old ones some behind and some before the cursor go, the cursor's own among them.
        bury_many(&mut stage.con, NS, 1_000 + pages * 3..1_003 + pages * 3).await;
        let at = after.split_once('/').unwrap().1.to_owned();
        for id in [at, stage.ids[usize::try_from(pages).unwrap() * 2].clone()] {
            let _: usize = redis::cmd("XDEL").arg(dlq(NS)).arg(&id).query_async(&mut stage.con).await.unwrap();
            gone.insert(id);
        }
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "none came twice");
    let stayed: Vec<&String> = stage.ids.iter().filter(|id| !gone.contains(*id)).collect();
    let missed: Vec<_> = stayed.iter().filter(|id| !distinct.contains(**id)).collect();
    assert!(missed.is_empty() && stayed.len() > 100, "{missed:?}");
}

#[tokio::test]
async fn a_store_in_trouble_is_a_problem_that_says_when_to_ask_again() {
    let mut stage = Stage::with(1).await;
    stage.redis.kill();
    for ask in [Ask::get("/dead-letters"), Ask::get("/groups"), Ask::post("/dead-letters:retry", &json!({"all": true}))]
    {
        let answer = stage.http.ask(ask.clone()).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{ask:?} {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().starts_with("source orders: "), "{answer:?}");
    }
    // Which sources there are is known all the same.
    let sources = stage.http.ask(Ask::get("/sources")).await.with(200);
    assert!(sources["items"][0]["trouble"].is_string() && sources["items"][0]["entries"].is_null(), "{sources}");
    stage.redis.start_again().await;
    eventually("it works again", SOON, || async {
        (stage.http.ask(Ask::get("/dead-letters")).await.status == 200).then_some(())
    })
    .await;
}
