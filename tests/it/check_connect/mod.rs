//! `sexton check --connect`: everything that is wrong before the rollout, by name, and nothing written.

mod forms;
mod hooks;
mod reach;
mod rights;
mod stores;

use redis::AsyncCommands as _;

use crate::support::{
    checked::{check, check_with, config, run},
    graveyard::letter,
    monitor::Monitor,
    receiver::Receiver,
    redis::{Options, Redis},
    yard::{NS, Yard},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

fn oncall(receiver: &Receiver) -> String {
    format!("{{name: oncall, url: \"{}\", secret: {SECRET}}}", receiver.url())
}

/// What of a Redis changes when anything is written.
async fn traces(redis: &Redis) -> (String, u64) {
    let mut con = redis.connect().await;
    let info: String = redis::cmd("INFO").query_async(&mut con).await.unwrap();
    let changes = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save:")).unwrap();
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut con).await.unwrap();
    (changes.to_owned(), keys)
}

#[tokio::test]
async fn where_all_is_well_it_says_so_sends_one_signed_test_and_writes_nothing() {
    let options = Options { tcp: true, appendonly: true, save: Some("3600 1000000"), ..Options::default() };
    let mut yard = Yard::on(Redis::with(options).await).await;
    yard.bury(&letter(NS, 1)).await;
    let before = traces(&yard.redis).await;
    let mut monitor = Monitor::of(&yard.redis).await;
    let receiver = Receiver::start().await;

    let checked = check(&config(&yard.redis.url(), &oncall(&receiver))).await;

    assert_eq!((checked.code, checked.at("error"), checked.at("warning")), (0, vec![], vec![]), "{}", checked.shown);
    let said = |check: &str| checked.one(check)["message"].as_str().unwrap().to_owned();
    assert!(said("version").ends_with(", a standalone primary"), "{}", said("version"));
    assert_eq!(said("dlq"), "{lrs}:dlq has 1 entry");
    assert_eq!(said("ledger"), "me leads, in epoch 1");
    assert_eq!(said("rights"), "the user default has all rights that are needed: 38 commands, 5 keys");
    assert!(said("answer").starts_with("it took hook.test (204) in "), "{}", said("answer"));
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].is_signed_with(SECRET));
    assert_eq!(requests[0].json()["type"], "hook.test");
    assert_eq!(requests[0].json()["data"]["hook"], "oncall");

    let _: Option<String> = yard.con.get("the end").await.unwrap();
    let commands = monitor.until("the end").await;
    // It asked for the right to write, and what it asked with could change nothing.
    assert!(commands.iter().any(|told| told.words[0] == "XDEL"), "{commands:?}");
    assert_eq!(traces(&yard.redis).await, before);
    let added: redis::Value =
        redis::cmd("XINFO").arg("STREAM").arg("{lrs}:dlq").query_async(&mut yard.con).await.unwrap();
    assert!(format!("{added:?}").contains("entries-added\"'), int(1)"), "{added:?}");
}

#[tokio::test]
async fn everything_is_told_at_once_and_a_store_that_cannot_be_used_decides_how_it_ends() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut receiver = Receiver::start().await;
    receiver.refuse().await;
    let text = format!(
        "sources:\n- {{name: orders, smallage: {{url: \"{}\"}}}}\n\
         - {{name: mails, smallage: {{url: \"redis://:s3cret-password@redis.invalid:1\"}}}}\n\
         hooks:\n- {}\n- {{name: other, url: \"https://s3cret-user@hook.invalid/s3cret-path\"}}\n\
         http: {{listen: \"{}\"}}\n",
        redis.url(),
        oncall(&receiver),
        // Taken by the test itself.
        Receiver::start().await.address(),
    );
    let checked = check(&text).await;
    assert_eq!(checked.code, 69, "{}", checked.shown);
    assert!(checked.of("orders").iter().all(|item| item["level"] != "error"), "{}", checked.shown);
    let errors = checked.at("error");
    assert_eq!(
        errors,
        [
            ("reach", "no address is known for its host, redis.invalid"),
            ("connect", "the connection is refused: nothing listens there"),
            ("connect", "no address is known for its host, hook.invalid"),
        ]
    );
    assert!(!checked.shown.contains("s3cret"), "{}", checked.shown);

    let (code, out, err) = run(&text, &["--connect"], &[]).await;
    assert_eq!((code, err.as_str()), (69, ""), "{out}{err}");
    assert!(out.ends_with("\n\n3 errors, 2 warnings\n"), "{out}");
    assert!(out.starts_with("source orders: smallage namespace lrs at redis://127.0.0.1:"), "{out}");
    assert!(
        out.contains("\nerror    source mails: no address is known for its host, redis.invalid\n         mend "),
        "{out}"
    );
    assert!(!format!("{out}{err}").contains("s3cret"), "{out}{err}");
    let (code, out, _) = run(&text, &["--connect", "-o", "jsonl"], &[]).await;
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines.len()), (69, checked.items.len()));
}

#[tokio::test]
async fn without_connect_nothing_is_connected_to() {
    let receiver = Receiver::start().await;
    let text = config("redis://:s3cret@redis.invalid:1", &oncall(&receiver));
    let (code, out, err) = run(&text, &["-o", "json"], &[]).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(!out.contains("s3cret") && out.contains("\"errors\":0,\"warnings\":0"), "{out}");
    let broken = run(&text.replace("name: orders", "nmae: orders"), &["--connect"], &[]).await;
    assert_eq!(broken.0, 78, "{broken:?}");
    let checked = check_with(&text, &["--no-send"], &[]).await;
    assert_eq!((checked.code, receiver.connections(), receiver.requests().len()), (69, 1, 0), "{}", checked.shown);
}
