//! The rules that Sexton comes with, as `shipped.yaml` has them.

use super::*;

/// They.
pub(super) fn shipped() -> Vec<AlertRule> {
    let rule = |name: &str, severity, kind| AlertRule { severity, ..AlertRule::new(name, kind) };
    let fast = Rising { over: mins(10), buckets: 10, at_least: 8, growth: 25 };
    let slow = Rising { over: mins(170), buckets: 17, at_least: 15, growth: 28 };
    vec![
        AlertRule { keep_firing_for: mins(15), ..rule("rising-fast", Severity::Critical, Kind::Rising(fast)) },
        AlertRule {
            keep_firing_for: mins(120),
            unless: vec!["rising-fast".to_owned()],
            ..rule("rising-slowly", Severity::Error, Kind::Rising(slow))
        },
        rule("burst", Severity::Warning, Kind::Burst(Burst { over: mins(5), deaths: 200 })),
        AlertRule {
            repeat: mins(24 * 60),
            ..rule("untriaged", Severity::Warning, Kind::Waiting(Waiting { entries: 1, older_than: mins(24 * 60) }))
        },
        AlertRule {
            by: vec![Key::Group],
            ..rule("new-kind", Severity::Info, Kind::NewGroup(NewGroup { quiet_for: mins(7 * 24 * 60) }))
        },
    ]
}

/// A duration as the file writes it: in the largest unit it is a whole number of, hours at most under three.
fn written(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes}m"),
        _ if minutes.is_multiple_of(24 * 60) && minutes > 24 * 60 => format!("{}d", minutes / (24 * 60)),
        _ if minutes.is_multiple_of(60) => format!("{}h", minutes / 60),
        _ => format!("{minutes}m"),
    }
}

/// A rule as the file writes it, its comments apart.
fn yaml(rule: &AlertRule) -> String {
    let usual = AlertRule::new("", Kind::Burst(Burst::default()));
    let mut lines = vec![format!("  - name: {}", rule.name)];
    lines.push(match &rule.kind {
        Kind::Rising(Rising { over, buckets, at_least, growth }) => format!(
            "rising: {{ over: {}, buckets: {buckets}, at_least: {at_least}, growth: {growth} }}",
            written(*over)
        ),
        Kind::Burst(Burst { over, deaths }) => format!("burst: {{ over: {}, deaths: {deaths} }}", written(*over)),
        Kind::Waiting(Waiting { entries, older_than }) => {
            format!("waiting: {{ entries: {entries}, older_than: {} }}", written(*older_than))
        }
        Kind::NewGroup(NewGroup { quiet_for }) => format!("new_group: {{ quiet_for: {} }}", written(*quiet_for)),
    });
    if !rule.by.is_empty() {
        lines.push(format!("by: [{}]", rule.by.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ")));
    }
    lines.push(format!("severity: {}", rule.severity.as_str()));
    if rule.keep_firing_for != usual.keep_firing_for {
        lines.push(format!("keep_firing_for: {}", written(rule.keep_firing_for)));
    }
    if rule.repeat != usual.repeat {
        lines.push(format!("repeat: {}", written(rule.repeat)));
    }
    if !rule.unless.is_empty() {
        lines.push(format!("unless: [{}]", rule.unless.join(", ")));
    }
    lines.join("\n    ")
}

#[test]
fn the_file_has_the_rules_that_the_weeks_were_run_with() {
    let file = include_str!("../shipped.yaml");
    let said: Vec<&str> = file.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty()).collect();
    let expected: Vec<String> = shipped().iter().map(yaml).collect();
    assert_eq!(said.join("\n"), format!("alerts:\n{}", expected.join("\n")));
    for rule in shipped() {
        assert_eq!(rule.problems(Duration::from_secs(5)), Vec::<String>::new(), "{}", rule.name);
        assert_eq!(rule.problems(Duration::from_secs(60)), Vec::<String>::new(), "{}", rule.name);
    }
}
