//! What every kind of answer means, with the real client against a real socket. The other half of the table of
//! outcomes is its unit test; here stands what can go wrong on the way to a status.

use std::time::Duration;

use sexton::{
    clock::monotonic,
    config::{Format, Secret, SecretSource},
    delivery::Outcome,
    hook::{Client, Sent},
    letter::Millis,
};

use crate::support::{
    hooks::{death, hook},
    receiver::{Behaviour, Receiver},
};

const NOW: Millis = Millis(1_795_972_370_488);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

const RETRY: Outcome = Outcome::Retry { after: None };

fn retry_after(seconds: u64) -> Outcome {
    Outcome::Retry { after: Some(Duration::from_secs(seconds)) }
}

/// One request to a receiver that behaves like this.
async fn send_to(behaviour: Behaviour) -> Sent {
    let receiver = Receiver::start().await;
    receiver.script([behaviour]);
    let mut config = hook(&receiver.url());
    config.timeout = Duration::from_millis(400);
    let sent = Client::new(&config).unwrap().send(&death(1), NOW).await;
    assert_eq!(receiver.requests().len(), 1, "one request, whatever the answer: no redirect, no silent retry");
    sent
}

#[tokio::test]
async fn the_table_of_outcomes() {
    let with = |status, name, value: &str| Behaviour::Answer(status, vec![(name, value.to_owned())], "some words");
    for (behaviour, status, outcome) in [
        (Behaviour::status(200), Some(200), Outcome::Delivered),
        (Behaviour::status(202), Some(202), Outcome::Delivered),
        (Behaviour::status(204), Some(204), Outcome::Delivered),
        (with(301, "location", "/elsewhere"), Some(301), Outcome::Rejected),
        (with(307, "location", "/elsewhere"), Some(307), Outcome::Rejected),
        (Behaviour::status(304), Some(304), Outcome::Rejected),
        (Behaviour::status(400), Some(400), Outcome::Rejected),
        (Behaviour::status(401), Some(401), Outcome::Rejected),
        (Behaviour::status(404), Some(404), Outcome::Rejected),
        (Behaviour::status(408), Some(408), RETRY),
        (Behaviour::status(410), Some(410), Outcome::SwitchedOff),
        (Behaviour::status(425), Some(425), RETRY),
        (Behaviour::status(429), Some(429), RETRY),
        (with(429, "retry-after", "7"), Some(429), retry_after(7)),
        (
            with(429, "retry-after", "Sun, 29 Nov 2026 17:13:00 GMT"),
            Some(429),
            Outcome::Retry { after: Some(Duration::from_millis(9_512)) },
        ),
        (with(429, "retry-after", "rubbish"), Some(429), RETRY),
        (Behaviour::status(500), Some(500), RETRY),
        (Behaviour::status(503), Some(503), RETRY),
        (with(503, "retry-after", "999999"), Some(503), retry_after(3_600)),
        (Behaviour::status(777), Some(777), RETRY),
        (Behaviour::Garbage, None, RETRY),
        (Behaviour::HalfStatus, None, RETRY),
        (Behaviour::Close, None, RETRY),
        (Behaviour::Silent, None, RETRY),
        (Behaviour::SlowHeaders(200), None, RETRY),
        (Behaviour::After(Duration::from_secs(3), Box::new(Behaviour::status(200))), None, RETRY),
        (Behaviour::After(Duration::from_millis(50), Box::new(Behaviour::status(200))), Some(200), Outcome::Delivered),
        // Once there is a status it counts, whatever becomes of the body.
        (Behaviour::EndlessBody(200), Some(200), Outcome::Delivered),
        (Behaviour::EndlessBody(400), Some(400), Outcome::Rejected),
        (Behaviour::StuckBody(200), Some(200), Outcome::Delivered),
        (Behaviour::StuckBody(500), Some(500), RETRY),
        (Behaviour::HalfBody(200), Some(200), Outcome::Delivered),
        (Behaviour::HalfBody(404), Some(404), Outcome::Rejected),
    ] {
        let started = monotonic();
        let sent = send_to(behaviour.clone()).await;
        assert_eq!((sent.status, sent.outcome), (status, outcome), "{behaviour:?}: {sent:?}");
        assert_eq!(sent.error.is_some(), outcome != Outcome::Delivered, "{behaviour:?}: {sent:?}");
        assert!(monotonic().duration_since(started) < Duration::from_secs(2), "{behaviour:?} held us up");
    }
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_and_nothing_says_the_url() {
    let mut receiver = Receiver::start().await;
    receiver.refuse().await;
    let sent = Client::new(&hook(&receiver.url())).unwrap().send(&death(1), NOW).await;
    assert_eq!((sent.status, sent.outcome), (None, RETRY));
    let error = sent.error.unwrap();
    assert!(error.to_lowercase().contains("refused"), "{error}");

    receiver.accept_again().await;
    let echo = "no such page: /in/s3cret-path?token=s3cret-token";
    receiver.script([Behaviour::Answer(404, Vec::new(), echo), Behaviour::Garbage]);
    let client = Client::new(&hook(&receiver.url())).unwrap();
    for _ in 0..2 {
        let said = format!("{:?}", client.send(&death(1), NOW).await);
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[tokio::test]
async fn an_answer_is_shown_unless_it_repeats_what_was_sent() {
    let receiver = Receiver::start().await;
    let mut config = hook(&receiver.url());
    config.headers = vec![("X-Api-Key".to_owned(), Secret::new("HEADERSECRET999"))];
    config.secrets = vec![SecretSource::Inline(Secret::new(SECRET))];
    let client = Client::new(&config).unwrap();
    for (status, said, shown) in [
        (400, "you sent: POST, x-api-key: HEADERSECRET999", false),
        (400, "unknown token s3cret-token for service s3cret-path", false),
        (401, "no such secret: MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
        (422, r#"{"data":{"task":"send_email","job_id":"job-1"}}"#, false),
        (422, "job-1 is not ours", false),
        (503, "job-1 must wait", false),
        (403, "invalid_token", true),
        (404, "no_service", true),
    ] {
        receiver.script([Behaviour::Answer(status, Vec::new(), said)]);
        let error = client.send(&death(1), NOW).await.error.unwrap();
        let expected = if shown { format!(": {said}") } else { " (its answer is not shown)".to_owned() };
        assert!(error.starts_with(&status.to_string()) && error.ends_with(&expected), "{said}: {error}");
    }
    // The signature is no secret of the configuration, but none of a log's business either.
    let signature = receiver.requests()[0].header("webhook-signature").unwrap().to_owned();
    receiver.script([Behaviour::Answer(401, Vec::new(), signature[..12].to_owned().leak())]);
    let error = client.send(&death(1), NOW).await.error.unwrap();
    assert!(error.ends_with("(its answer is not shown)"), "{error}");
}

#[tokio::test]
async fn of_a_url_a_log_may_show_host_and_port_alone() {
    for (url, endpoint) in [
        ("https://u:s3cret@hooks.example.test/s3cret?token=s3cret", Some("hooks.example.test:443")),
        ("http://10.0.0.7:8080/in", Some("10.0.0.7:8080")),
        ("http://[::1]/in", Some("[::1]:80")),
        ("not a url", None),
    ] {
        assert_eq!(Client::new(&hook(url)).unwrap().endpoint().as_deref(), endpoint, "{url}");
    }
}

#[tokio::test]
async fn a_url_or_secret_that_cannot_be_read_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let receiver = Receiver::start().await;
    let mut config = hook(&receiver.url());
    config.secrets = vec![SecretSource::File(path.clone())];
    let client = Client::new(&config).unwrap();
    for (content, delivered) in [(None, false), (Some("whsec_%%%"), false), (Some(SECRET), true)] {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let sent = client.send(&death(1), NOW).await;
        assert_eq!(sent.outcome == Outcome::Delivered, delivered, "{content:?}: {sent:?}");
        assert!(delivered || sent.outcome == RETRY);
    }
    assert!(receiver.requests()[0].is_signed_with(SECRET));
    for url in ["", "not a url", "ftp://example.test/", "unix:/x"] {
        let sent = Client::new(&hook(url)).unwrap().send(&death(1), NOW).await;
        assert_eq!(sent.outcome, RETRY, "{url}: {sent:?}");
    }
}

#[tokio::test]
async fn a_standard_request_is_signed_with_every_secret_and_dated_anew() {
    let receiver = Receiver::start().await;
    let mut config = hook(&receiver.url());
    config.secrets = [SECRET, OLD_SECRET].map(|secret| SecretSource::Inline(Secret::new(secret))).to_vec();
    config.headers = vec![("X-Team".to_owned(), Secret::new("payments"))];
    let client = Client::new(&config).unwrap();
    client.send(&death(1), NOW).await;
    client.send(&death(1), Millis(NOW.0 + 5_000)).await;
    let [first, again] = &receiver.requests()[..] else { panic!("two requests") };
    assert!(first.line.starts_with("POST /in/"), "{}", first.line);
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("x-team"), Some("payments"));
    assert_eq!(first.header("user-agent"), Some(concat!("sexton/", env!("CARGO_PKG_VERSION"))));
    assert_eq!((first.id(), again.id()), ("evt-1", "evt-1"));
    assert_eq!(first.header("webhook-timestamp"), Some("1795972370"));
    assert_eq!(again.header("webhook-timestamp"), Some("1795972375"));
    assert_eq!(first.header("webhook-signature").unwrap().split(' ').count(), 2);
    for secret in [SECRET, OLD_SECRET] {
        assert!(first.is_signed_with(secret) && again.is_signed_with(secret));
    }
    assert_eq!(first.body, again.body);
}

#[tokio::test]
async fn every_form_goes_out_with_its_own_type_and_signature() {
    for (format, content_type, signature) in [
        (Format::Standard, "application/json", Some("webhook-signature")),
        (Format::CloudEvents, "application/cloudevents+json", Some("webhook-signature")),
        (Format::Flexiq, "application/json", Some("x-flexiq-signature")),
        (Format::Slack, "application/json", None),
        (Format::PagerDuty, "application/json", None),
        (Format::Alertmanager, "application/json", None),
    ] {
        let receiver = Receiver::start().await;
        let mut config = hook(&receiver.url());
        config.format = format;
        config.secrets = vec![SecretSource::Inline(Secret::new(SECRET))];
        Client::new(&config).unwrap().send(&death(1), NOW).await;
        let request = &receiver.requests()[0];
        assert_eq!(request.header("content-type"), Some(content_type));
        for name in ["webhook-signature", "x-flexiq-signature"] {
            assert_eq!(request.header(name).is_some(), signature == Some(name), "{format:?} {name}");
        }
        assert_eq!(request.id(), "evt-1");
        assert_eq!(request.json().is_array(), format == Format::Alertmanager);
        assert!(request.line.starts_with("POST /in/s3cret-path?token=s3cret-token "), "{}", request.line);
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let receiver = Receiver::start().await;
    receiver.otherwise(Behaviour::Answer(200, Vec::new(), "ok"));
    let client = Client::new(&hook(&receiver.url())).unwrap();
    for n in 0..20 {
        assert_eq!(client.send(&death(n), NOW).await.outcome, Outcome::Delivered);
    }
    assert_eq!(receiver.connections(), 1);
}
