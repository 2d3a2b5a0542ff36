//! Rights that are missing, each by its name; and what is told to do about it helps.

use redis::aio::MultiplexedConnection;
use sexton::smallage::{Keys, least_rights};

use crate::support::{
    checked::{Checked, check, config},
    redis::{Options, Redis},
};

pub(super) async fn acl(con: &mut MultiplexedConnection, words: &str) {
    let mut acl = redis::cmd("ACL");
    for word in words.split(' ') {
        acl.arg(word);
    }
    let () = acl.query_async(con).await.unwrap();
}

pub(super) fn missing(checked: &Checked) -> Vec<&str> {
    let found = checked.of("orders").into_iter().flat_map(|item| item["missing"].as_array().unwrap());
    found.map(|word| word.as_str().unwrap()).collect()
}

#[tokio::test]
async fn each_right_that_is_missing_is_named_and_the_remedy_grants_it() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let keys = Keys::new("lrs").unwrap();
    let least = least_rights(&keys).replace("PASSWORD", "pw").replace("ACL SETUSER", "SETUSER") + " +info";
    let url = format!("redis://sexton:pw@127.0.0.1:{}", redis.port().unwrap());
    let areas = "~{lrs}:dlq ~{lrs}:q:* ~{lrs}:dedup:* %R~{lrs}:sched ~{lrs}:sexton:*";
    let without = |area: &str| format!("resetkeys {}", areas.replace(area, "").replace("  ", " ").trim());
    for (change, expected) in [
        ("on".to_owned(), vec![]),
        ("-xadd".to_owned(), vec!["+xadd"]),
        ("-xdel".to_owned(), vec!["+xdel"]),
        ("-evalsha".to_owned(), vec!["+evalsha"]),
        ("-eval_ro".to_owned(), vec!["+eval_ro"]),
        ("-xinfo|stream".to_owned(), vec!["+xinfo|stream"]),
        ("-time".to_owned(), vec!["+time"]),
        ("-zmscore -get -xread".to_owned(), vec!["+get", "+xread", "+zmscore"]),
        (without("~{lrs}:q:*"), vec!["~{lrs}:q:*"]),
        (without("~{lrs}:dlq"), vec!["~{lrs}:dlq"]),
        (without("%R~{lrs}:sched"), vec!["%R~{lrs}:sched"]),
        (format!("-set {}", without("~{lrs}:dedup:*")), vec!["+set", "~{lrs}:dedup:*"]),
        // The rights of another namespace.
        (
            format!("resetkeys {}", areas.replace("lrs", "jobs")),
            vec!["~{lrs}:dlq", "~{lrs}:q:*", "~{lrs}:dedup:*", "%R~{lrs}:sched", "~{lrs}:sexton:*"],
        ),
        // Only to be read.
        (format!("{} %R~{{lrs}}:q:*", without("~{lrs}:q:*")), vec!["~{lrs}:q:*"]),
        // Every command, and but one key.
        (
            "+@all resetkeys ~{lrs}:dlq".to_owned(),
            vec!["~{lrs}:q:*", "~{lrs}:dedup:*", "%R~{lrs}:sched", "~{lrs}:sexton:*"],
        ),
        (
            "+@all resetkeys ~{lrs}:sexton:*".to_owned(),
            vec!["~{lrs}:dlq", "~{lrs}:q:*", "~{lrs}:dedup:*", "%R~{lrs}:sched"],
        ),
        (
            "resetkeys".to_owned(),
            vec!["~{lrs}:dlq", "~{lrs}:q:*", "~{lrs}:dedup:*", "%R~{lrs}:sched", "~{lrs}:sexton:*"],
        ),
    ] {
        acl(&mut con, &least).await;
        acl(&mut con, &format!("SETUSER sexton {change}")).await;
        let checked = check(&config(&url, "")).await;
        assert_eq!(missing(&checked), expected, "{change}: {}", checked.shown);
        let rights = checked.one("rights");
        assert_eq!(checked.code, if expected.is_empty() { 0 } else { 69 }, "{change}");
        // What may not be read is not said to be right.
        for (key, check) in [("~{lrs}:dlq", "dlq"), ("~{lrs}:sexton:*", "ledger")] {
            if expected.contains(&key) {
                let found = checked.one(check);
                let said = found["message"].as_str().unwrap();
                assert!(found["level"] == "warning" && said.ends_with("cannot be seen from here (NOPERM)"), "{found}");
            }
        }
        if let Some(help) = rights["help"].as_str() {
            acl(&mut con, help.strip_prefix("ACL ").unwrap()).await;
            let mended = check(&config(&url, "")).await;
            assert_eq!((mended.code, missing(&mended)), (0, vec![]), "{change}: {}", mended.shown);
        }
    }
    acl(&mut con, &least).await;
    acl(&mut con, "SETUSER sexton -@all").await;
    let checked = check(&config(&url, "")).await;
    let all = sexton::smallage::RIGHTS.len() + sexton::smallage::Area::ALL.len();
    // And INFO, which only the check uses.
    assert_eq!((checked.code, missing(&checked).len()), (69, all + 1), "{}", checked.shown);
}

#[tokio::test]
async fn who_may_not_see_what_it_is_is_warned_and_checked_all_the_same() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let least = least_rights(&Keys::new("lrs").unwrap()).replace("PASSWORD", "pw");
    acl(&mut con, least.strip_prefix("ACL ").unwrap()).await;
    let url = format!("redis://sexton:pw@127.0.0.1:{}", redis.port().unwrap());
    let checked = check(&config(&url, "")).await;
    assert_eq!((checked.code, missing(&checked)), (0, vec!["+info"]), "{}", checked.shown);
    assert_eq!(checked.one("version")["help"], "for the check alone: ACL SETUSER sexton +info");
    assert_eq!(checked.one("rights")["level"], "ok");
    assert_eq!(checked.of("memory").len(), 0);
}
