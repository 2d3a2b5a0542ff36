//! Receivers that cannot be reached, are not who they ought to be, or do not want what they get.

use std::time::Duration;

use crate::support::{
    checked::{check, check_with, config},
    https::{Age, Authority, Front},
    receiver::{Behaviour, Receiver},
    redis::{Options, Redis},
};

#[tokio::test]
async fn every_answer_is_told_with_what_to_do() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let hook = format!("{{name: oncall, url: \"{}\", timeout: 1s}}", receiver.url());
    let moved = Behaviour::Answer(302, vec![("location", "http://127.0.0.1/s3cret".to_owned())], "");
    let words = Behaviour::Answer(401, Vec::new(), "bad signature");
    for (behaviour, level, said, help) in [
        (Behaviour::status(200), "ok", "it took hook.test (200) in ", ""),
        (words, "error", "it refuses hook.test: 401 Unauthorized: bad signature", "mend `secret`"),
        (Behaviour::status(403), "error", "it refuses hook.test: 403 Forbidden", "mend `secret`"),
        (Behaviour::status(404), "error", "it refuses hook.test: 404 Not Found", "mend the path in `url`"),
        (Behaviour::status(410), "error", "it refuses hook.test: 410 Gone", "the receiver is gone"),
        (moved, "error", "it refuses hook.test: 302 Found", "put the new address into `url`"),
        (Behaviour::status(422), "error", "it refuses hook.test: 422 ", "is `format` the right one?"),
        (Behaviour::status(429), "warning", "it takes no more now: 429 ", "lower `rate`"),
        (Behaviour::status(500), "error", "it fails at hook.test: 500 ", "mend the receiver"),
        (Behaviour::Silent, "error", "it does not answer hook.test within its `timeout` of 1s", "raise `timeout`"),
        (
            Behaviour::After(Duration::from_millis(100), Box::new(Behaviour::status(204))),
            "ok",
            "it took hook.test (204) in ",
            "",
        ),
        (Behaviour::Garbage, "error", "hook.test did not get through: ", "whether an HTTP server listens"),
        (Behaviour::Close, "error", "hook.test did not get through: ", "whether an HTTP server listens"),
    ] {
        receiver.otherwise(behaviour.clone());
        let before = receiver.requests().len();
        let checked = check(&config(&redis.url(), &hook)).await;
        assert_eq!(receiver.requests().len(), before + 1, "{behaviour:?}");
        assert_eq!(checked.one("connect")["level"], "ok", "{behaviour:?}");
        let answer = checked.one("answer");
        assert_eq!(answer["level"], level, "{behaviour:?}: {answer}");
        assert!(answer["message"].as_str().unwrap().starts_with(said), "{behaviour:?}: {answer}");
        assert!(answer["help"].as_str().unwrap_or_default().contains(help), "{behaviour:?}: {answer}");
        assert_eq!(checked.code, i32::from(level == "error"), "{behaviour:?}");
        assert!(!checked.shown.contains("s3cret"), "{}", checked.shown);
    }
}

#[tokio::test]
async fn what_is_wrong_with_tls_is_told_and_nothing_is_sent_then() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let (ours, strange) = (Authority::new("ours"), Authority::new("strange"));
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("ca.pem");
    std::fs::write(&trusted, ours.pem()).unwrap();
    let variables = [("SSL_CERT_FILE", trusted.to_str().unwrap())];
    let https = |host: &str, port: u16| {
        config(&redis.url(), &format!("{{name: oncall, url: \"https://{host}:{port}/in/s3cret?token=s3cret\"}}"))
    };
    for (authority, name, age, said, help) in [
        (
            &strange,
            "localhost",
            Age::Good,
            "its certificate is from an authority that is not trusted here",
            "SSL_CERT_FILE",
        ),
        (&ours, "localhost", Age::Expired, "its certificate has expired", "renew"),
        (&ours, "localhost", Age::NotYet, "its certificate is not valid yet, by this machine's clock", "clock"),
        (&ours, "alerts.example.com", Age::Good, "its certificate is for another name", "as its certificate does"),
    ] {
        let front = Front::start(receiver.address(), authority, name, age).await;
        let checked = check_with(&https("localhost", front.port()), &[], &variables).await;
        let found = checked.one("oncall");
        assert_eq!((checked.code, &found["message"]), (1, &said.into()), "{}", checked.shown);
        assert!(found["help"].as_str().unwrap().contains(help), "{found}");
        assert!(!checked.shown.contains("s3cret"), "{}", checked.shown);
    }
    // A receiver that speaks no TLS at all.
    receiver.otherwise(Behaviour::Garbage);
    let checked = check_with(&https("localhost", receiver.address().port()), &[], &variables).await;
    assert_eq!(checked.code, 1, "{}", checked.shown);
    assert_eq!(receiver.requests().len(), 0);

    let front = Front::start(receiver.address(), &ours, "localhost", Age::Good).await;
    let checked = check_with(&https("localhost", front.port()), &["--no-send"], &variables).await;
    assert_eq!((checked.code, receiver.requests().len()), (0, 0), "{}", checked.shown);
    receiver.otherwise(Behaviour::status(204));
    let checked = check_with(&https("localhost", front.port()), &[], &variables).await;
    assert_eq!((checked.code, receiver.requests().len()), (0, 1), "{}", checked.shown);
    assert_eq!(checked.one("connect")["message"], "it can be reached, and its certificate is good");
}

#[tokio::test]
async fn an_incident_that_a_test_opens_is_closed_at_once() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let hook = format!("{{name: pager, format: pagerduty, url: \"{}\", routing_key: s3cretkey}}", receiver.url());
    receiver.otherwise(Behaviour::status(202));
    let checked = check(&config(&redis.url(), &hook)).await;
    assert_eq!(checked.code, 0, "{}", checked.shown);
    let told = receiver.requests();
    let said: Vec<_> = told.iter().map(|request| request.json()["event_action"].clone()).collect();
    assert_eq!(said, ["trigger", "resolve"]);
    assert_eq!(told[0].json()["dedup_key"], told[1].json()["dedup_key"]);
}
