//! The reference is complete and true.

use std::path::Path;

use super::*;
use crate::config::{
    document::{self, Node, Value},
    shape,
};

/// The reference with every setting given, and its files in `folder`.
fn reference_in_full(folder: &Path) -> String {
    let mut full = String::new();
    for line in REFERENCE.lines().filter(|line| !["hooks: []", "retention: {}"].contains(line)) {
        full.push_str(line.strip_prefix('#').filter(|rest| !rest.starts_with('#')).unwrap_or(line));
        full.push('\n');
    }
    full.replace("/run/secrets/sexton", folder.to_str().unwrap())
}

/// Every key in a document with its path, as the table of shapes writes it.
fn paths(node: &Node, path: &str, found: &mut Vec<String>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| paths(item, &format!("{path}[]"), found)),
        Value::Map(entries) => {
            for (key, node) in entries {
                let path = if path.is_empty() { key.text.clone() } else { format!("{path}.{}", key.text) };
                found.push(path.clone());
                paths(node, &path, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_reference_stands_as_it_is_and_tells_the_defaults() {
    let reference = config(REFERENCE);
    let minimal = config("sources: [{ name: orders, smallage: { url: 'redis://localhost:6379' } }]");
    assert_eq!(format!("{reference:?}"), format!("{minimal:?}"));
    for line in REFERENCE.lines() {
        assert!(line.chars().count() <= 120, "too long: {line}");
    }
}

#[test]
fn the_reference_names_every_key_with_its_default() {
    let folder = tempfile::tempdir().unwrap();
    let tls = rcgen::generate_simple_self_signed(vec!["sexton".to_owned()]).unwrap();
    let (certificate, key) = (tls.cert.pem(), tls.signing_key.serialize_pem());
    for (name, content) in [
        ("billing-url", "redis://billing"),
        ("mails-password", "x"),
        ("sentinel-password", "x"),
        ("ca.pem", &certificate),
        ("client.pem", &certificate),
        ("client-key.pem", &key),
        ("chat-url", "https://chat.example.com"),
        ("chat-secret", SECRET),
        ("pager-key", "R0UTINGKEY"),
        ("token", "0123456789abcdef"),
        ("ci-token", "another-0123456789"),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let env = BTreeMap::from(
        [
            ("BILLING_REDIS_PASSWORD", "x"),
            ("SENTINEL_PASSWORD", "x"),
            ("ONCALL_SECRET", SECRET),
            ("PAGERDUTY_KEY", "R0UTINGKEY"),
            ("SEXTON_TOKEN", "0123456789abcdef"),
            ("SEXTON_BOT_TOKEN", "a-third-0123456789"),
        ]
        .map(|(name, value)| (name.into(), value.into())),
    );
    let full = reference_in_full(folder.path());
    let mut problems = Problems::new("full");
    let root = document::parse(&full, &env, None, &mut problems).unwrap();
    let mut given = Vec::new();
    paths(&root, "", &mut given);
    for (section, shape) in shape::ALL {
        for key in shape.keys {
            assert!(given.contains(&format!("{section}{key}")), "{section}{key} is not in the reference");
        }
    }

    // Of what can be given in two ways only one may be.
    let full = full.replace("  token: ${SEXTON_TOKEN}\n", "");
    let config = read_text("full", &full, &env).unwrap_or_else(|problems| panic!("{problems}\nin\n{full}"));
    let (shown, default) = (&config.hooks[0], hook(""));
    assert_eq!(shown.format, default.format);
    assert_eq!(shown.events, default.events);
    assert_eq!(shown.rate, default.rate);
    assert_eq!((shown.timeout, shown.give_up_after), (default.timeout, default.give_up_after));
    assert_eq!(shown.matcher.history, default.matcher.history);
    assert_eq!(smallage(&config, 0).namespace, smallage(&super::config(&with_source("")), 0).namespace);
}
