//! The README says what the code does: its generated parts are generated here and compared.
//!
//! `SEXTON_WRITE_README=1 cargo test --test it readme` writes them anew.

use std::{fmt::Write as _, path::Path, time::Duration};

use sexton::{
    config::{self, Format},
    delivery::Outcome,
    event::{
        Alert, AlertGroup, Event, EventData, EventType, HookTest, Include, JobDead, JobRetry, Purge, Tally, rfc3339,
    },
    hook::{body, of_status},
    letter::Millis,
    metrics,
    retry::State,
    smallage::{Keys, least_rights, record::decode, rights_beyond, rights_on_sentinels},
};

use crate::support::graveyard::recorded;

#[test]
fn generated_parts_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let mut fresh = readme.clone();
    for (name, text) in parts() {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = fresh.find(&begin).unwrap_or_else(|| panic!("README.md has no {begin}")) + begin.len();
        let to = from + fresh[from..].find(&end).unwrap_or_else(|| panic!("README.md has no {end}"));
        fresh.replace_range(from..to, &format!("{text}\n"));
    }
    if std::env::var_os("SEXTON_WRITE_README").is_some() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    // Only the first line that differs is shown: the whole would hide it.
    let stale = readme.lines().zip(fresh.lines()).find(|(have, want)| have != want);
    let why = "write it anew: SEXTON_WRITE_README=1 cargo test --test it readme";
    assert!(stale.is_none() && readme.len() == fresh.len(), "{why}: {stale:?}");
}

#[test]
fn every_event_command_state_and_invariant_that_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for kind in EventType::ALL {
        assert!(readme.contains(&format!("| `{}` |", kind.as_str())), "README.md does not tell of {}", kind.as_str());
    }
    let help = crate::support::process::command().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    for line in commands.take_while(|line| line.starts_with("  ")) {
        let Some(command) = line.split_whitespace().next().filter(|command| *command != "help") else { continue };
        assert!(readme.contains(&format!("`sexton {command}")), "README.md does not tell of sexton {command}");
    }
    for state in State::ALL {
        assert!(readme.contains(&format!("| `{}` |", state.as_str())), "README.md does not tell of {}", state.as_str());
    }
    // ARCHITECTURE.md names the tests that hold each invariant; a test that was renamed must be renamed there.
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut named = 0;
    for name in architecture.split('`').filter(|text| text.contains("::") && !text.contains(' ')) {
        let Some((module, test)) = name.rsplit_once("::") else { continue };
        if !test.starts_with(|c: char| c.is_ascii_lowercase()) {
            continue;
        }
        // `replicas::…` is in tests/it, `src/delivery/tests/properties::…` says its whole path.
        let file = if module.contains('/') { root.join(module) } else { root.join("tests/it").join(module) };
        let source = std::fs::read_to_string(file.with_extension("rs"));
        let source = source.or_else(|_| std::fs::read_to_string(file.join("mod.rs"))).unwrap_or_default();
        assert!(source.contains(&format!("fn {test}(")), "ARCHITECTURE.md names {name}, which is not there");
        named += 1;
    }
    assert!(named >= 8, "{named}");
}

/// Where a link to a heading leads: as GitHub makes it of the heading's text.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_leads_somewhere_and_the_contents_are_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    // What is in a block of code is none of both.
    let (mut prose, mut code) = (Vec::new(), false);
    for line in readme.lines() {
        code ^= line.starts_with("```");
        if !code {
            prose.push(line);
        }
    }
    let headings = prose.iter().filter(|line| line.starts_with('#'));
    let anchors: Vec<String> = headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    let mut links = 0;
    for line in &prose {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let found = match link.strip_prefix('#') {
                Some(heading) => anchors.iter().any(|anchor| anchor == heading),
                None => link.starts_with("https://") || root.join(link).exists(),
            };
            assert!(found, "README.md links to {link}, which is not there");
            links += 1;
        }
    }
    assert!(links > 40, "{links}");
    let contents = readme.split_once("\n## ").unwrap().0;
    for section in prose.iter().filter_map(|line| line.strip_prefix("## ")) {
        let link = format!("(#{})", anchor(section));
        assert!(contents.contains(&link), "the contents of README.md do not have {section}");
    }
}

/// The generated parts, by name.
fn parts() -> Vec<(&'static str, String)> {
    vec![
        ("configuration", format!("```yaml\n{}```", config::REFERENCE)),
        ("rules", format!("```yaml\n{}```", config::RULES_REFERENCE)),
        ("rights", format!("```\n{}\n```", least_rights(&Keys::new("lrs").unwrap()))),
        ("rights beyond", format!("```\n{}\n```", rights_beyond().join("\n"))),
        ("rights on Sentinels", format!("```\n{}\n```", rights_on_sentinels())),
        ("metrics", metrics_table()),
        ("outcomes", outcomes_table()),
        ("job.dead", example(EventData::JobDead(Box::new(sample(0))), died(&sample(0)))),
        ("job.retried", example(EventData::JobRetried(Box::new(retry(None))), retried())),
        ("job.recovered", example(EventData::JobRecovered(Box::new(retry(Some(recovered())))), recovered())),
        ("job.exhausted", example(EventData::JobExhausted(Box::new(exhausted())), died(&exhausted()))),
        ("dlq.digest", example(digest(), Millis(1_795_973_305_000))),
        ("dlq.purged", example(EventData::Purged(purge()), Millis(1_795_973_305_000))),
        ("alert.firing", example(EventData::AlertFiring(Box::new(alert())), fired())),
        ("alert.resolved", example(EventData::AlertResolved(Box::new(over())), Millis(fired().0 + 2_700_000))),
        ("hook.test", example(EventData::HookTest(hook_test()), Millis(1_795_973_305_000))),
    ]
}

fn metrics_table() -> String {
    let mut table = "| metric | labels | meaning |\n| --- | --- | --- |".to_owned();
    for (name, labels, meaning) in metrics::REFERENCE {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        write!(table, "\n| `{name}` | {} | {meaning} |", labels.join(", ")).unwrap();
    }
    table
}

fn outcomes_table() -> String {
    let mut rows: Vec<(Outcome, Vec<String>)> = Vec::new();
    let mut add = |outcome: Outcome, what: String| match rows.iter_mut().find(|(known, _)| *known == outcome) {
        Some((_, list)) => list.push(what),
        None => rows.push((outcome, vec![what])),
    };
    let mut from = 200;
    for status in 200..600 {
        if status == 599 || of_status(status + 1, None) != of_status(from, None) {
            let range = if from == status { format!("{status}") } else { format!("{from}–{status}") };
            add(of_status(from, None), range);
            from = status + 1;
        }
    }
    let mut table = "| answer | what Sexton does |\n| --- | --- |".to_owned();
    for (outcome, what) in rows {
        let (more, does) = match outcome {
            Outcome::Delivered => ("", "done"),
            Outcome::Rejected => ("", "final: counted as `rejected`, not tried again; redirects are not followed"),
            Outcome::Retry { .. } => (
                ", no connection, a time-out, no HTTP",
                "tried again with growing, jittered pauses, `Retry-After` honoured up to an hour, until `give_up_after`",
            ),
            Outcome::SwitchedOff => ("", "the hook is switched off until its configuration changes"),
        };
        write!(table, "\n| {}{more} | {does} |", what.join(", ")).unwrap();
    }
    table
}

/// A real record's `job.dead`.
fn sample(n: usize) -> JobDead {
    let keys = Keys::new("lrs").unwrap();
    let failed: Vec<_> = recorded()
        .into_iter()
        .filter(|entry| entry.fields.contains(&(b"dlq_reason".to_vec(), b"max_attempts".to_vec())))
        .filter(|entry| entry.fields.iter().any(|(name, _)| name == b"traceparent"))
        .collect();
    let entry = &failed[n];
    let letter = decode(&keys, &entry.id, entry.fields.clone());
    JobDead { deaths: 1, ..JobDead::of("orders", &letter, Include::default()) }
}

/// When it was buried, as the outbox has it.
fn died(dead: &JobDead) -> Millis {
    Millis(dead.entry_id.split('-').next().unwrap().parse().unwrap())
}

/// When that of [`retry`] was put back: ten minutes after its death.
fn retried() -> Millis {
    Millis(died(&sample(1)).0 + 600_000)
}

fn recovered() -> Millis {
    Millis(retried().0 + 1_250)
}

/// The first retry of a job.
fn retry(recovered_at: Option<Millis>) -> JobRetry {
    let dead = JobDead { retries: 1, rule: Some("dependency-flaky".to_owned()), ..sample(1) };
    JobRetry { dead, retried_at: rfc3339(retried()), recovered_at: recovered_at.and_then(rfc3339) }
}

/// A job that died after every one of its three retries.
fn exhausted() -> JobDead {
    JobDead { deaths: 4, retries: 3, rule: Some("dependency-flaky".to_owned()), ..sample(2) }
}

fn digest() -> EventData {
    let mut tally = Tally::default();
    for n in 0..940 {
        let dead = sample(n % 3);
        tally.add(Millis(1_795_973_245_000 + i64::try_from(n).unwrap() * 20), &dead.group.clone(), || dead.clone());
    }
    for (times, data) in [
        (120, EventData::JobRetried(Box::new(retry(None)))),
        (80, EventData::JobRecovered(Box::new(retry(Some(recovered()))))),
        (3, EventData::JobExhausted(Box::new(exhausted()))),
    ] {
        let event = Event { id: String::new(), at: Millis(1_795_973_250_000), data };
        for _ in 0..times {
            assert!(tally.fold(&event, JobDead::clone));
        }
    }
    EventData::Digest(Box::new(tally.digest("orders", "rate")))
}

/// When [`alert`] fired: ten minutes after the first death of its group.
fn fired() -> Millis {
    Millis(died(&sample(1)).0 + 600_000)
}

/// A line that rises.
fn alert() -> Alert {
    let (dead, since) = (sample(1), rfc3339(died(&sample(1))));
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let error = dead.error.clone();
    let summary = format!(
        "orders, task send_email: the line rises, by 34 in 12m and in 10 of 12 steps, to 41 dead letters; mostly \
         send_email ({error})"
    );
    let group = AlertGroup {
        group: dead.group,
        task: dead.task,
        queue: dead.queue,
        reason: dead.reason,
        error,
        deaths: 34,
        first_died_at: since.clone(),
        last_died_at: rfc3339(fired()),
        retrying: Some(
            "Retries under rule dependency-flaky failed, so nothing of them is sent until 2026-11-29T17:51:02.000Z (in 13 \
             minutes); then one retry goes ahead, and the others follow when that recovers."
                .to_owned(),
        ),
    };
    Alert {
        source: "orders".to_owned(),
        incident: "9f86d081884c7d65".to_owned(),
        alert: "rising".to_owned(),
        severity: "critical".to_owned(),
        since,
        fired_at: rfc3339(fired()),
        labels: [label("source", "orders"), label("task", "send_email")].into(),
        value: 34,
        level: 41,
        summary,
        groups: vec![group],
        ..Alert::default()
    }
}

/// The end of [`alert`].
fn over() -> Alert {
    let summary =
        "orders, task send_email: rising is over after 45m; 57 jobs died since it began, 12 dead letters are left";
    Alert {
        resolved_at: rfc3339(Millis(fired().0 + 2_700_000)),
        value: 57,
        level: 12,
        summary: summary.to_owned(),
        groups: Vec::new(),
        ..alert()
    }
}

/// What retention removed in one go.
fn purge() -> Purge {
    Purge {
        source: "orders".to_owned(),
        why: "retention".to_owned(),
        by: "retention".to_owned(),
        note: Some("max_age 30d".to_owned()),
        count: 12_034,
        oldest_died_at: rfc3339(Millis(1_793_294_905_000)),
        newest_died_at: rfc3339(Millis(1_793_381_305_000)),
    }
}

fn hook_test() -> HookTest {
    HookTest { source: "orders".to_owned(), hook: "oncall".to_owned(), summary: "a test of the hook oncall".to_owned() }
}

/// The body of a `standard` hook, its fields in the order they are sent, the samples of a digest but the first left out.
fn example(data: EventData, at: Millis) -> String {
    let id = "msg_5f1c29ab_d1795972370488-0".to_owned();
    let data = match data {
        EventData::Digest(mut digest) => {
            digest.samples.truncate(1);
            EventData::Digest(digest)
        }
        data => data,
    };
    let event = Event { id, at, data };
    let body = body(Format::Standard, &event, None);
    let raw: Box<serde_json::value::RawValue> = serde_json::from_slice(&body.bytes).unwrap();
    format!("```json\n{}\n```", pretty(raw.get()))
}

/// JSON with line breaks and the order of fields kept.
fn pretty(json: &str) -> String {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    for c in json.chars() {
        if quoted {
            out.push(c);
            (quoted, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '{' | '[' => {
                depth += 1;
                out.push(c);
                // Small things stay on one line.
                if depth <= 2 {
                    write!(out, "\n{}", "  ".repeat(depth)).unwrap();
                }
            }
            '}' | ']' => {
                if depth <= 2 {
                    write!(out, "\n{}", "  ".repeat(depth - 1)).unwrap();
                }
                depth -= 1;
                out.push(c);
            }
            ',' if depth <= 2 => write!(out, ",\n{}", "  ".repeat(depth)).unwrap(),
            ',' => out.push_str(", "),
            ':' => out.push_str(": "),
            '"' => {
                quoted = true;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[test]
fn examples_are_json_and_times_are_durations() {
    for (name, text) in parts() {
        if let Some(json) = text.strip_prefix("```json\n") {
            let json: serde_json::Value = serde_json::from_str(json.trim_end_matches("```")).unwrap();
            assert_eq!(json["type"], name);
        }
    }
    // The reference says 10s and means it.
    assert!(config::REFERENCE.contains("ttl: 10s"));
    assert_eq!(
        config::Config::for_smallage("redis://localhost:6379", "lrs").unwrap().lease_ttl,
        Duration::from_secs(10)
    );
}
