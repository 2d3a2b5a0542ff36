//! What is read from configurations without problems.

use std::time::Duration;

use super::*;
use crate::{config::hook::EVENTS, event::EventType};

#[test]
fn a_whole_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let tls = rcgen::generate_simple_self_signed(vec!["sexton".to_owned()]).unwrap();
    let (certificate, key) = (tls.cert.pem(), tls.signing_key.serialize_pem());
    for (name, content) in [
        ("redis-url", "rediss+sentinel://a,b/mymaster"),
        ("password", "secret\n"),
        ("ca.pem", &certificate),
        ("client.pem", &certificate),
        ("client.key", &key),
        ("hook-url", "https://chat.example.com/services/T0/B0/x\n"),
        ("token", "0123456789abcdef\n"),
        ("new", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n"),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let text = r#"
sources:
  - name: orders
    smallage: { url: "redis://localhost:6379/1", namespace: 1, username: 7, password: 12345 }
  - name: mails
    smallage:
      url_file: redis-url
      password_file: password
      tls: { ca: ca.pem, cert: client.pem, key: client.key, server_name: redis.internal }
      sentinel: { username: asks, password: hunter3 }
  - name: local
    smallage: { url: "unix:///run/redis.sock", password: "${PASSWORD}$$" }
hooks:
  - name: oncall
    url: https://alerts.example.com/in
    format: cloudevents
    secret: ["${SECRET}", MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz]
    events: ["job.*", hook.test]
    match:
      source: [orders, "m*"]
      queue: high
      task: ["charge_*", "send_{mail,sms}"]
      reason: [max_attempts, shed]
      error: '(?i)refused$'
      history: mixed
      group: 7c1f0e9a2b44
    headers: { X-Team: payments, X-Empty: "" }
    rate: 10/s
    timeout: 500ms
    give_up_after: 7d
    include: [traceback, payload]
    redact: ['\b\d{13,16}\b', 'a$${2}']
  - { name: chat, url_file: hook-url, format: slack, rate: 30/m, match: { history: any } }
  - { name: flexiq, url: "http://127.0.0.1:8080/", format: flexiq, secret: any text, rate: unlimited }
  - { name: files, url: "http://h", secret_file: new }
announce_existing: ${FLAG}
http:
  listen: "[::]:80"
  token_file: token
  tokens: [{ name: ci, token: another-0123456789 }]
lease: { ttl: 1500ms }
sample_every: 1m
outbox: { cap: 100, keep: 0s }
log: { format: text, level: "warn,sexton::hook=debug" }
rules: []
retention: { max_age: 30d, max_entries: 1000000 }
"#;
    let path = folder.path().join("sexton.yaml");
    std::fs::write(&path, text).unwrap();
    let config = read(&path, &env()).unwrap_or_else(|problems| panic!("{problems}"));

    let file = |name: &str| SecretSource::File(folder.path().join(name));
    let names: Vec<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["orders", "mails", "local"]);
    let orders = smallage(&config, 0);
    assert_eq!(orders.url, inline("redis://localhost:6379/1"));
    assert_eq!((orders.namespace.as_str(), orders.username.as_deref()), ("1", Some("7")));
    assert_eq!(orders.password, Some(inline("12345")));
    assert_eq!(orders.tls, None);
    let mails = smallage(&config, 1);
    assert_eq!((&mails.url, &mails.password), (&file("redis-url"), &Some(file("password"))));
    assert_eq!((mails.namespace.as_str(), &mails.username), ("lrs", &None));
    let pem = |name: &str| Some(folder.path().join(name));
    let (ca, cert, key, server_name) =
        (pem("ca.pem"), pem("client.pem"), pem("client.key"), Some("redis.internal".to_owned()));
    assert_eq!(mails.tls, Some(TlsConfig { ca, cert, key, server_name }));
    let sentinel = mails.sentinel.as_ref().unwrap();
    assert_eq!((sentinel.username.as_deref(), &sentinel.password), (Some("asks"), &Some(inline("hunter3"))));
    assert_eq!(smallage(&config, 2).password, Some(inline("hun#ter: 2$")));

    let oncall = &config.hooks[0];
    assert_eq!((oncall.name.as_str(), oncall.format), ("oncall", Format::CloudEvents));
    assert_eq!(oncall.url, inline("https://alerts.example.com/in"));
    assert_eq!(oncall.secrets, [inline(SECRET), inline("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz")]);
    assert_eq!(oncall.events, ["job.*", "hook.test"]);
    let matcher = &oncall.matcher;
    let matches = |globs: &Option<crate::rule::Globs>, text: &str| globs.as_ref().unwrap().is_match(text);
    assert!(matches(&matcher.source, "mails") && !matches(&matcher.source, "local"));
    assert!(matches(&matcher.queue, "high") && !matches(&matcher.queue, "higher"));
    assert!(matches(&matcher.task, "send_sms") && !matches(&matcher.task, "send_fax"));
    assert_eq!(matcher.reason.as_deref(), Some(&["max_attempts".to_owned(), "shed".to_owned()][..]));
    assert_eq!(matcher.error.as_ref().map(regex::Regex::as_str), Some("(?i)refused$"));
    assert_eq!(matcher.history.as_deref(), Some("mixed"));
    assert_eq!(matcher.group.as_deref(), Some(&["7c1f0e9a2b44".to_owned()][..]));
    assert_eq!(
        oncall.headers,
        [("X-Team".to_owned(), Secret::new("payments")), ("X-Empty".to_owned(), Secret::new(""))]
    );
    assert_eq!(oncall.rate, Rate::Limited { events: 10, per: Duration::from_secs(1) });
    assert_eq!(oncall.timeout, Duration::from_millis(500));
    assert_eq!(oncall.give_up_after, Duration::from_secs(7 * 86_400));
    assert_eq!(oncall.include, Include { traceback: true, history: false, payload: true });
    let redact: Vec<&str> = oncall.redact.iter().map(regex::Regex::as_str).collect();
    assert_eq!(redact, [r"\b\d{13,16}\b", "a${2}"]);

    let chat = &config.hooks[1];
    let slow = Rate::Limited { events: 30, per: Duration::from_secs(60) };
    assert_eq!((chat.format, chat.rate, &chat.url), (Format::Slack, slow, &file("hook-url")));
    assert_eq!(chat.matcher.history, None);
    assert_eq!((&config.hooks[2].secrets[..], config.hooks[2].rate), (&[inline("any text")][..], Rate::Unlimited));
    assert_eq!(config.hooks[3].secrets, [file("new")]);

    assert!(config.announce_existing);
    assert_eq!(config.http.listen, "[::]:80");
    let tokens: Vec<_> = config.http.tokens.iter().map(|token| (token.name.as_str(), token.secret.clone())).collect();
    assert_eq!(tokens, [("default", file("token")), ("ci", inline("another-0123456789"))]);
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    assert_eq!(config.retention, RetentionConfig { max_age: Some(month), max_entries: Some(1_000_000) });
    assert_eq!((config.lease_ttl, config.sample_every), (Duration::from_millis(1500), Duration::from_secs(60)));
    assert_eq!(config.outbox, OutboxConfig { cap: 100, keep: Duration::ZERO });
    assert_eq!(config.log, LogConfig { format: LogFormat::Text, level: "warn,sexton::hook=debug".into() });
}

#[test]
fn pagerduty_and_alertmanager_need_what_they_need_and_no_more() {
    let text = with_source(
        "hooks:\n  - { name: pager, format: pagerduty, routing_key: '${WORD}', events: [job.retried, 'alert.*'] }\n  - { name: am, \
         url: 'http://am:9093', format: alertmanager, rate: 10/s }\n  - { name: eu, url: 'https://eu', format: pagerduty, \
         routing_key: x }\n",
    );
    let hooks = config(&text).hooks;
    assert_eq!(
        (hooks[0].format, &hooks[0].url),
        (Format::PagerDuty, &inline("https://events.pagerduty.com/v2/enqueue"))
    );
    assert_eq!((&hooks[0].routing_key, &hooks[0].events[0][..]), (&Some(inline("hunter2")), "job.retried"));
    assert_eq!((hooks[1].format, &hooks[1].routing_key), (Format::Alertmanager, &None));
    assert_eq!(hooks[2].url, inline("https://eu"));
    assert!(!format!("{hooks:?}").contains("hunter2"));
    let taken =
        |format: Format| EventType::ALL.into_iter().filter(move |kind| !format.takes(*kind)).collect::<Vec<_>>();
    let [retried, recovered] = [EventType::JobRetried, EventType::JobRecovered];
    let [digest, purged] = [EventType::DlqDigest, EventType::DlqPurged];
    for format in Format::ALL {
        let expected = match format {
            Format::PagerDuty => vec![retried, recovered, purged],
            Format::Alertmanager => vec![retried, recovered, digest, purged],
            _ => Vec::new(),
        };
        assert_eq!(taken(format), expected, "{format:?}");
    }
}

#[test]
fn a_fingerprint_follows_the_values_and_nothing_else() {
    let base = hook("rate: 60/m\nsecret: ${SECRET}").fingerprint;
    assert_eq!(base.len(), 16);
    for same in ["secret: ${SECRET}\nrate: '60/m'", &format!("rate: 60/m # slow\nsecret: \"{SECRET}\"")] {
        assert_eq!(hook(same).fingerprint, base, "{same}");
    }
    let mut seen = vec![base];
    for other in [
        "rate: 61/m\nsecret: ${SECRET}",
        "rate: 60/m",
        "rate: 60/m\nsecret: AAEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
        "headers: { A: b, B: c }",
        "headers: { A: bB, Bc: '' }",
        "redact: [ab, c]",
        "redact: [a, bc]",
        "redact: [abc]",
    ] {
        let fingerprint = hook(other).fingerprint;
        assert!(!seen.contains(&fingerprint), "{other}");
        seen.push(fingerprint);
    }
}

#[test]
fn flags_alone_make_a_configuration_with_all_defaults() {
    let from_flags = Config::for_smallage("redis://:pw@db:6379", "lrs").unwrap();
    let from_text = config("sources: [{ name: lrs, smallage: { url: 'redis://:pw@db:6379' } }]");
    assert_eq!(format!("{from_flags:?}"), format!("{from_text:?}"));
    assert_eq!(smallage(&from_flags, 0).url, inline("redis://:pw@db:6379"));

    // What cannot be a source's name as it stands gives the nearest one.
    for (namespace, name) in [("My.App", "my-app"), ("-_x", "x"), ("é", "smallage"), ("a_b-1", "a_b-1")] {
        let config = Config::for_smallage("redis://db", namespace).unwrap();
        assert_eq!((config.sources[0].name.as_str(), &*smallage(&config, 0).namespace), (name, namespace));
    }

    assert_eq!(
        Config::for_smallage("http://:hunter2@db", "a:b").unwrap_err().to_string(),
        "command line: the URL of --smallage has the unknown scheme http; write redis://HOST:6379, unix:///PATH, \
         redis+sentinel://HOST,HOST/MASTER or redis+cluster://HOST,HOST; with TLS rediss instead of redis\n\
         command line: \"a:b\" is no namespace of smallage; give smallage's own with --namespace, without { } and :"
    );
}

#[test]
fn every_event_of_this_version_can_be_named() {
    for kind in EventType::ALL {
        assert!(EVENTS.contains(&kind.as_str()), "{kind:?}");
    }
}
