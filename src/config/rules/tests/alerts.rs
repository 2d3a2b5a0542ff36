//! Alert rules: what is read, and every problem that is found.

use super::*;
use crate::alert::{Key, Severity};

fn alerts(text: &str) -> Vec<AlertRule> {
    book(&[text]).unwrap_or_else(|problems| panic!("{problems}\nin\n{text}")).alerts
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A file whose first rule is called `r` and has these keys, from line 3 on.
fn alert(keys: &str) -> String {
    rule(keys).replacen("retry:", "alerts:", 1)
}

/// The same with `burst: {}` in line 3, and the keys from line 4 on.
fn burst(keys: &str) -> String {
    alert(&format!("burst: {{}}\n{keys}"))
}

#[test]
fn a_whole_file_of_alert_rules() {
    let alerts = alerts(
        r#"
alerts:
  - name: rising
    rising: { over: "${AGE}", buckets: 10, at_least: 8, growth: 25 }
    by: [task, queue, task]
    match: { source: orders, task: ["send_*", "charge_*"], reason: [malformed, shed] }
    severity: critical
    for: 30s
    keep_firing_for: 15m
    repeat: 1h
    hooks: [oncall]
    unless: [burst, new-kind]
  - { name: burst, burst: { over: 1m, deaths: 7 }, repeat: 0s, by: [] }
  - { name: untriaged, waiting: { entries: 5, older_than: 2d }, by: group, hooks: oncall, unless: burst }
  - { name: new-kind, new_group: { quiet_for: 14d }, severity: info }
"#,
    );
    let [rising, burst, untriaged, new] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!(rising.kind, Kind::Rising(Rising { over: secs(1_200), buckets: 10, at_least: 8, growth: 25 }));
    assert_eq!(rising.by, [Key::Task, Key::Queue], "each once");
    assert_eq!(rising.matcher.task.as_ref().unwrap().written(), ["send_*", "charge_*"]);
    assert!(rising.concerns("orders") && !rising.concerns("mails"));
    assert_eq!(rising.severity, Severity::Critical);
    assert_eq!([rising.for_, rising.keep_firing_for, rising.repeat], [secs(30), secs(900), secs(3_600)]);
    assert_eq!(rising.hooks, Some(vec!["oncall".to_owned()]));
    assert_eq!(rising.unless, ["burst", "new-kind"]);
    let expected = AlertRule::new("burst", Kind::Burst(Burst { over: secs(60), deaths: 7 }));
    assert_eq!(format!("{burst:?}"), format!("{:?}", AlertRule { repeat: Duration::ZERO, ..expected }));
    assert_eq!(untriaged.kind, Kind::Waiting(Waiting { entries: 5, older_than: secs(2 * 86_400) }));
    assert_eq!((&*untriaged.by, &*untriaged.unless), (&[Key::Group][..], &["burst".to_owned()][..]));
    assert_eq!(new.kind, Kind::NewGroup(NewGroup { quiet_for: secs(14 * 86_400) }));
    assert_eq!(new.severity, Severity::Info);
}

#[test]
fn what_is_not_given_has_its_default() {
    for (key, kind) in [
        ("rising", Kind::Rising(Rising::default())),
        ("burst", Kind::Burst(Burst::default())),
        ("waiting", Kind::Waiting(Waiting::default())),
        ("new_group", Kind::NewGroup(NewGroup::default())),
    ] {
        let read = alerts(&alert(&format!("{key}: {{}}")));
        assert_eq!(format!("{read:?}"), format!("{:?}", [AlertRule::new("r", kind)]));
    }
}

#[test]
fn alert_rules_may_be_called_like_retry_rules_and_stand_in_any_file() {
    let files =
        ["retry: [{ name: a }]\nalerts: [{ name: a, burst: {} }]", "alerts:\n- { name: b, rising: {}, unless: [a] }"];
    let book = book(&files).unwrap();
    assert_eq!(book.rules.retry.len(), 1);
    assert_eq!(book.alerts.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn problems_of_an_alert_rule() {
    check(
        alert,
        &[
            (
                "severity: info",
                "2:5: an alert rule has none of rising, burst, waiting, new_group; say what it watches for, such as rising: {}",
            ),
            (
                "burst: {}\nwaiting: {}",
                r#"4:5: "waiting" is given, but the rule watches for "burst" already; give it a rule of its own"#,
            ),
            (
                "rising: {}\nkeep_fireing_for: 5m",
                r#"4:5: unknown key "keep_fireing_for" in an alert rule; did you mean "keep_firing_for"?"#,
            ),
            (
                "rising:",
                r#"3:11: expected a mapping for "rising", found nothing; use these keys: over, buckets, at_least, growth"#,
            ),
            ("rising: { bucket: 5 }", r#"3:15: unknown key "bucket" in rising; did you mean "buckets"?"#),
            ("rising: { over: 25h }", r#"3:21: "over" is too long: "25h"; give 1s to 1d"#),
            ("rising: { buckets: 1 }", r#"3:24: "buckets" is too small: "1"; give at least 2"#),
            ("rising: { buckets: 25 }", r#"3:24: "buckets" is too large: "25"; give at most 24"#),
            ("rising: { at_least: 0 }", r#"3:25: "at_least" is too small: "0"; give at least 1"#),
            ("rising: { growth: 0 }", r#"3:23: "growth" is too small: "0"; give at least 1"#),
            (
                "rising: { growth: 1.5 }",
                r#"3:23: expected a whole number from 1 to 1000000000 for "growth", found "1.5"; write digits only"#,
            ),
            (
                "rising: { buckets: 10, at_least: 11 }",
                r#"3:38: "at_least" is 11, more than "buckets": 10; lower the one, or raise the other"#,
            ),
            // Where it is the default that does not fit there is no better place.
            (
                "rising: { buckets: 8 }",
                r#"3:13: "at_least" is 9, more than "buckets": 8; lower the one, or raise the other"#,
            ),
            (
                "rising: { over: 59s }",
                r#"3:21: "over" is 59s: each of its 12 buckets is shorter than "sample_every": 5s; make it longer, or "buckets" fewer"#,
            ),
            // One that is wrong is compared with nothing.
            ("rising: { buckets: 25, over: 1m }", r#"3:24: "buckets" is too large: "25"; give at most 24"#),
            (
                "rising: { buckets: '${NOBODY}', at_least: 13 }",
                "3:24: the variable NOBODY is not set; set it in Sexton's environment, or write $${ where no variable is meant",
            ),
            ("burst: { over: 4s }", r#"3:20: "over" is 4s, shorter than "sample_every": 5s; make it longer"#),
            ("burst: { deaths: 0 }", r#"3:22: "deaths" is too small: "0"; give at least 1"#),
            ("waiting: { entries: 1001 }", r#"3:25: "entries" is too large: "1001"; give at most 1000"#),
            ("waiting: { older_than: 0s }", r#"3:28: "older_than" is too short: "0s"; give 1s to 365d"#),
            ("new_group: { quiet_for: 31d }", r#"3:29: "quiet_for" is too long: "31d"; give 1h to 30d"#),
            ("new_group: { quiet_for: 10m }", r#"3:29: "quiet_for" is too short: "10m"; give 1h to 30d"#),
        ],
    );
    check(
        burst,
        &[
            ("by: [tsak]", r#"4:10: unknown value "tsak" for "by"; did you mean "task"?"#),
            (
                "by: {}",
                r#"4:9: expected a text for "by", found a mapping; write it as one text, in quotes if in doubt"#,
            ),
            ("match: { source: order }", r#"4:22: "order" matches no source; did you mean "orders"?"#),
            (
                "match: { reason: dead }",
                r#"4:22: unknown value "dead" for "reason"; known reasons: max_attempts, max_deliveries, unknown_task, malformed, shed"#,
            ),
            (
                "severity: warn",
                r#"4:15: unknown value "warn" for "severity"; known severities: info, warning, error, critical"#,
            ),
            ("for: 8d", r#"4:10: "for" is too long: "8d"; give 0s to 7d"#),
            (
                "keep_firing_for: ever",
                r#"4:22: expected a duration for "keep_firing_for", found "ever"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            ("repeat: 59s", r#"4:13: "repeat" is too short: "59s"; give 1m to 30d, or 0s to tell it once"#),
            ("repeat: 31d", r#"4:13: "repeat" is too long: "31d"; give 0s to 30d"#),
            ("hooks: [oncal]", r#"4:13: there is no hook "oncal"; did you mean "oncall"?"#),
            ("hooks: [oncall, chat]", r#"4:21: there is no hook "chat"; known hooks: oncall, audit"#),
            (
                "hooks: audit",
                r#"4:12: the hook "audit" takes no alert.firing; add that to the hook's events, or remove the hook here"#,
            ),
            ("hooks: []", r#"4:12: the list "hooks" is empty; name at least one, or remove the key"#),
            ("unless: []", r#"4:13: the list "unless" is empty; name at least one, or remove the key"#),
            ("unless: [R]", r#"4:14: "unless" names "R", but there is no such alert rule; did you mean "r"?"#),
            (
                "unless: [r]",
                r#"4:14: "unless" goes round in a circle: r, r; remove one of them, so that one of the rules tells in any case"#,
            ),
        ],
    );
}

#[test]
fn problems_of_alert_rules_together() {
    check(
        str::to_owned,
        &[
            (
                "alerts: {}",
                r#"1:9: expected a list for "alerts", found a mapping; write each item behind a dash, or [] for none"#,
            ),
            (
                "alerts: [x]",
                r#"1:10: expected a mapping for "alerts", found a text; use these keys: name, rising, burst, waiting, new_group, by, match, severity, for, keep_firing_for, repeat, hooks, unless"#,
            ),
            ("alerts: [{ burst: {} }]", r#"1:10: "name" is missing in an alert rule; give the alert rule a name"#),
            (
                "alerts:\n- { name: a, burst: {} }\n- { name: a, rising: {} }",
                r#"3:11: the name "a" is taken by the alert rule in line 2; give every one a name of its own"#,
            ),
        ],
    );
    let too_many: String = (0..=MOST_ALERT_RULES).map(|n| format!("- {{ name: r{n}, burst: {{}} }}\n")).collect();
    assert_eq!(
        problems(&[&format!("alerts:\n{too_many}")]),
        [
            "rules/1.yaml:102:3: there are more than 100 alert rules; write fewer: by: [task] makes one rule watch every \
             task by itself"
        ]
    );
}

#[test]
fn who_leaves_it_to_whom_is_checked_over_all_files() {
    let file = |rules: &[(&str, &str)]| -> String {
        let rules =
            rules.iter().map(|(name, unless)| format!("- {{ name: {name}, burst: {{}}, unless: [{unless}] }}\n"));
        format!("alerts:\n{}", rules.collect::<String>()).replace(", unless: []", "")
    };
    let places = |files: &[String]| -> Vec<String> {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let told = problems(&files);
        told.iter().map(|line| line.trim_start_matches("rules/").split("; ").next().unwrap().to_owned()).collect()
    };
    let circle = |place: &str, names: &str| format!("{place}: \"unless\" goes round in a circle: {names}");
    // A way that ends, however it forks, is none.
    let fine = [file(&[("a", "b, c"), ("b", "c")]), file(&[("c", "d"), ("d", "")])];
    assert_eq!(places(&fine), Vec::<String>::new());
    // Each circle once, where its first rule enters it; who only leads into one is in none.
    assert_eq!(
        places(&[file(&[("x", "a"), ("a", "b")]), file(&[("b", "c"), ("c", "a"), ("y", "z"), ("z", "c, y")])]),
        [circle("1.yaml:3:34", "a, b, c, a"), circle("2.yaml:4:34", "y, z, y")]
    );
    // One that nobody has, in whatever file.
    let unknown = "2.yaml:2:34: \"unless\" names \"bb\", but there is no such alert rule";
    assert_eq!(places(&[file(&[("b", "")]), file(&[("a", "bb")])]), [unknown]);
    // Whoever could not be read may have the name.
    for broken in ["alerts: [", "alerts: [{ name: Bb, burst: {} }]", "alerts: {}", "", "[]"] {
        let found = places(&[broken.to_owned(), file(&[("a", "bb")])]);
        assert!(found.len() == 1 && found[0].starts_with("1.yaml"), "{broken}: {found:?}");
    }
    // One that has another problem has its name all the same.
    let found = places(&["alerts: [{ name: bb }]".to_owned(), file(&[("a", "bb, cc")])]);
    assert!(found.len() == 2 && found[1].contains("names \"cc\""), "{found:?}");
}

#[test]
fn what_is_not_known_is_not_checked() {
    let text = text(&["alerts: [{ name: a, rising: { over: 12s }, hooks: [nobody], match: { source: none } }]"]);
    assert_eq!(RulesSource::default().read(&text, &env()).unwrap().alerts.len(), 1);
    let known = Known { hooks: Some(Vec::new()), ..Known::default() };
    let found = RulesSource { known, ..RulesSource::default() }.read(&text, &env()).unwrap_err().to_string();
    let expected = "rules/1.yaml:1:52: there is no hook \"nobody\"; define it under \"hooks\" in the configuration";
    assert_eq!(found, expected);
}

#[test]
fn problems_of_alerts_show_nothing_that_a_variable_gave() {
    let all = "'${WORD}'";
    let text = format!(
        "alerts:\n  - {{ name: {all}, rising: {{ over: {all}, buckets: {all} }}, by: {all}, severity: {all}, for: {all}, \
         repeat: {all}, match: {all}, hooks: {all}, unless: x }}\n  - {{ name: b, waiting: {all} }}\n  - {{ name: c, \
         burst: {{}}, unless: {all} }}\n"
    );
    let found = problems(&[&text]);
    assert!(found.len() >= 10, "{found:#?}");
    assert!(!found.iter().any(|line| line.contains("hunter2")), "{found:#?}");
}
