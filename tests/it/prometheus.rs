//! The rules for Prometheus: they do what they say by promtool, and speak of metrics, labels and headings that exist.

use std::{path::PathBuf, process::Command};

use sexton::{
    config::{self, ProcessEnv},
    ledger::Verdict,
    metrics::{self, DeliveryOutcome},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// Runs promtool beside the rules.
fn promtool(arguments: &[&str]) {
    let ran = Command::new("promtool").args(arguments).current_dir(root().join("rules/prometheus")).output();
    let ran = ran.expect("promtool is there: sh .ci/need promtool");
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(ran.status.success(), "promtool {}: {said}", arguments.join(" "));
}

#[test]
fn prometheus_takes_the_rules_and_they_fire_when_they_should() {
    promtool(&["check", "rules", "sexton.yaml"]);
    promtool(&["test", "rules", "sexton_test.yaml"]);
}

/// What begins with `sexton_`, and what stands in braces behind it.
fn metrics_named(text: &str) -> Vec<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = |at: usize| !text[..at].chars().next_back().is_some_and(is_name);
    let named = text.match_indices("sexton_").filter(|(at, _)| begins(*at)).map(|(at, _)| {
        let rest = &text[at..];
        let (name, behind) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let braces = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
        (name, braces.map_or("", |(braces, _)| braces))
    });
    named.collect()
}

/// Labels that Prometheus itself gives.
const GIVEN: [&str; 4] = ["pod", "namespace", "job", "instance"];

#[test]
fn every_metric_and_every_label_that_the_rules_name_exists() {
    let outcomes: Vec<&str> = DeliveryOutcome::ALL
        .into_iter()
        .map(DeliveryOutcome::as_str)
        .chain(Verdict::ALL.into_iter().map(Verdict::as_str))
        .collect();
    let mut named = 0;
    for file in ["rules/prometheus/sexton.yaml", "rules/prometheus/sexton_test.yaml"] {
        let text = read(file).replace("sexton_test.yaml", "");
        for (name, selector) in metrics_named(&text) {
            let known = metrics::REFERENCE.iter().find(|(known, ..)| *known == name);
            let (_, labels, _) = known.unwrap_or_else(|| panic!("{file}: there is no metric {name}"));
            for (label, value) in selector.split(", ").filter_map(|part| part.split_once('=')) {
                assert!(labels.contains(&label) || GIVEN.contains(&label), "{file}: {name} has no label {label}");
                for value in value.trim_matches(['~', '"']).split('|').filter(|_| label == "outcome") {
                    assert!(outcomes.contains(&value), "{file}: {name} has no outcome {value}");
                }
            }
            named += 1;
        }
    }
    assert!(named >= 40, "{named}");
}

#[test]
fn every_alert_says_what_to_do_where_and_is_tested() {
    let readme = read("README.md");
    let headings: Vec<&str> =
        readme.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim()).collect();
    let rules = read("rules/prometheus/sexton.yaml");
    let tests = read("rules/prometheus/sexton_test.yaml");
    let mut alerts = rules.split("- alert: ");
    alerts.next();
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for annotation in ["summary: ", "description: ", "severity: "] {
            assert!(alert.contains(annotation), "{name} has no {annotation}");
        }
        let runbook = alert.split_once("runbook: README.md, under \"");
        let runbook = runbook.and_then(|(_, rest)| rest.split_once("\"\n")).map(|(heading, _)| heading);
        let runbook = runbook.unwrap_or_else(|| panic!("{name} has no runbook"));
        assert!(headings.contains(&runbook), "{name}: README.md has no heading {runbook}");
        assert!(tests.contains(&format!("alertname=\"{name}\", alertstate=\"firing\"")), "{name} fires in no test");
        assert!(readme.contains(&format!("`{name}`")), "README.md does not tell of {name}");
    }
}

#[test]
fn sexton_does_not_take_them_for_its_own() {
    let folder = root().join("rules").display().to_string();
    let config = format!("sources: [{{name: orders, smallage: {{url: \"redis://x\"}}}}]\nrules: [{folder:?}]\n");
    let config = config::read_text("sexton.yaml", &config, &ProcessEnv).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(!config.rules.is_empty());
}
