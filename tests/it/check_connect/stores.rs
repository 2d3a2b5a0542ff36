//! Stores that answer, and would not keep what they are given, or take nothing.

use redis::{AsyncCommands as _, aio::MultiplexedConnection};

use crate::support::{
    checked::{check, config},
    receiver::Receiver,
    redis::{Options, Redis},
};

async fn set(con: &mut MultiplexedConnection, name: &str, value: &str) {
    let () = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query_async(con).await.unwrap();
}

#[tokio::test]
async fn what_it_evicts_and_forgets_is_told() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    for (limit, policy, level, code) in [
        ("1gb", "allkeys-lru", "error", 1),
        ("0", "allkeys-lru", "warning", 0),
        ("1gb", "volatile-lru", "warning", 0),
        ("1gb", "noeviction", "ok", 0),
    ] {
        set(&mut con, "maxmemory", limit).await;
        set(&mut con, "maxmemory-policy", policy).await;
        let checked = check(&config(&redis.url(), "")).await;
        assert_eq!((checked.code, &checked.one("memory")["level"]), (code, &level.into()), "{}", checked.shown);
    }
    // Nothing of it is kept over a restart, as all of these private servers are.
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!(checked.one("persistence")["level"], "warning", "{}", checked.shown);
    set(&mut con, "save", "3600 1").await;
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!(checked.one("persistence")["level"], "ok", "{}", checked.shown);
}

#[tokio::test]
async fn one_that_takes_no_writes_cannot_be_used() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    set(&mut con, "maxmemory", "1").await;
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!((checked.code, &checked.one("writes")["message"]), (69, &"it is out of memory (OOM)".into()));
    // And nothing else of it is held against it but that it is full.
    assert_eq!(checked.one("rights")["level"], "ok", "{}", checked.shown);
    set(&mut con, "maxmemory", "0").await;
    set(&mut con, "min-replicas-to-write", "1").await;
    let checked = check(&config(&redis.url(), "")).await;
    assert!(checked.one("writes")["message"].as_str().unwrap().ends_with("(NOREPLICAS)"), "{}", checked.shown);
    set(&mut con, "min-replicas-to-write", "0").await;

    let primary = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let port = primary.port().unwrap().to_string();
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port).query_async(&mut con).await.unwrap();
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!(checked.code, 69);
    let errors = checked.at("error");
    assert!(errors.contains(&("version", "this is a replica, and Sexton has to write")), "{}", checked.shown);
    assert!(checked.shown.contains(&format!("name the primary, 127.0.0.1:{port}")), "{}", checked.shown);
}

#[tokio::test]
async fn a_key_of_another_kind_and_an_empty_namespace_are_told() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let checked = check(&config(&redis.url(), "")).await;
    let dlq = checked.one("dlq");
    assert_eq!((&dlq["level"], checked.code), (&"warning".into(), 0), "{dlq}");
    assert_eq!(dlq["message"], "nothing of smallage is under the namespace lrs yet");
    let () = con.set("{lrs}:leader", "worker").await.unwrap();
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!(checked.one("dlq")["level"], "ok", "{}", checked.shown);
    for key in ["{lrs}:dlq", "{lrs}:sexton:outbox:deaths"] {
        let () = con.set(key, "x").await.unwrap();
        let checked = check(&config(&redis.url(), "")).await;
        let errors = checked.at("error");
        assert_eq!((checked.code, errors.len()), (69, 1), "{}", checked.shown);
        assert!(errors[0].1.starts_with(&format!("{key} is no stream")), "{errors:?}");
        let () = con.del(key).await.unwrap();
    }
}

#[tokio::test]
async fn its_clock_is_held_against_this_machines_and_signs_the_test() {
    let mut redis = Redis::with(Options { tcp: true, stepped_clock: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let hook = format!("{{name: oncall, url: \"{}\"}}", receiver.url());
    for (step, level, said, code) in [
        (60, "warning", "its clock is 60 s ahead of this machine's", 0),
        (-120, "warning", "its clock is 60 s behind this machine's", 0),
        (-3_540, "error", "its clock is 60 min behind this machine's", 1),
    ] {
        redis.step_clock(step);
        let checked = check(&config(&redis.url(), &hook)).await;
        let clock = checked.one("clock");
        let message = clock["message"].as_str().unwrap();
        // A second may pass while it is looked at.
        let near = said.replace("60 s ahead", "59 s ahead").replace("60 s behind", "59 s behind");
        assert!(message.starts_with(said) || message.starts_with(&near), "{message}");
        assert_eq!((&clock["level"], checked.code), (&level.into(), code), "{}", checked.shown);
    }
    let stamps: Vec<i64> = receiver
        .requests()
        .iter()
        .map(|request| request.header("webhook-timestamp").unwrap().parse().unwrap())
        .collect();
    assert!((100..140).contains(&(stamps[0] - stamps[1])), "{stamps:?}");
    assert!((3_500..3_600).contains(&(stamps[1] - stamps[2])), "{stamps:?}");
}
