//! What is read from rules files, and every problem that is found in them.

mod alerts;
mod looking;

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    alert::{Burst, Kind, NewGroup, Rising, Waiting},
    config::{RULES_REFERENCE, shape},
    rule::{Action, Terms},
};

fn env() -> BTreeMap<String, String> {
    [("AGE", "20m"), ("WORD", "hunter2")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Files as they would be found in a folder `rules`.
fn text(files: &[&str]) -> RulesText {
    let file = |(n, text): (usize, &&str)| (format!("rules/{}.yaml", n + 1), text.as_bytes().to_vec());
    RulesText::of(files.iter().enumerate().map(file))
}

/// Where there are two sources and two hooks, of which one takes no alerts.
fn book(files: &[&str]) -> Result<RuleBook, Problems> {
    let hook = |name: &str, events: &str| KnownHook {
        name: name.to_owned(),
        format: crate::config::Format::Standard,
        events: vec![events.to_owned()],
    };
    let known = Known {
        sources: Some(vec!["orders".to_owned(), "mails".to_owned()]),
        hooks: Some(vec![hook("oncall", "alert.*"), hook("audit", "job.*")]),
        sample_every: Some(Duration::from_secs(5)),
    };
    RulesSource { known, ..RulesSource::default() }.read(&text(files), &env())
}

fn read(files: &[&str]) -> Result<Rules, Problems> {
    book(files).map(|book| book.rules)
}

fn rules(text: &str) -> Rules {
    read(&[text]).unwrap_or_else(|problems| panic!("{problems}\nin\n{text}"))
}

fn problems(files: &[&str]) -> Vec<String> {
    match read(files) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
    }
}

/// A file whose first rule is called `r` and has these keys, from line 3 on.
fn rule(keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    format!("retry:\n  - name: r\n{keys}")
}

fn terms(rules: &Rules, name: &str) -> Terms {
    match &rules.named(name).unwrap().action {
        Action::Retry(terms) => (**terms).clone(),
        Action::Leave => panic!("{name} leaves"),
    }
}

/// Checks that each text, put in its place, has exactly the one problem beside it; tells of all that have not.
fn check(place: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (text, expected) in cases {
        let expected = format!("rules/1.yaml:{expected}");
        let found = problems(&[&place(text)]).join("\n");
        if found != expected {
            wrong.push_str(&format!("{text}\n  expected {expected}\n  found    {found}\n\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_whole_file_of_rules() {
    let rules = rules(
        r#"
retry:
  - name: dependency-flaky
    match:
      source: [orders]
      queue: ["*"]
      task: ["send_*", "charge_*"]
      reason: [max_attempts]
      error: '(?i)timed? ?out|\b(429|50[234])\b'
      history: any
    min_age: ${AGE}
    max_retries: 5
    backoff: 1.5
    max_backoff: 12h
    confirm_within: 30m
    window: "* 8-19 * * Mon-Fri"
    timezone: Europe/Berlin
    pace: { start: 2, max_in_flight: 20, per_second: 5, max_queue_length: 1000 }
  - name: bugs
    match: { history: same }
    action: leave
  - { name: once, match: { history: unknown }, action: leave }
  - { name: rest, action: retry, min_age: 1d }
alerts: []
"#,
    );
    let names: Vec<&str> = rules.retry.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["dependency-flaky", "bugs", "once", "rest"]);
    let flaky = terms(&rules, "dependency-flaky");
    let durations = [flaky.min_age, flaky.max_backoff, flaky.confirm_within].map(|length| length.as_secs() / 60);
    assert_eq!((durations, flaky.max_retries, flaky.backoff), ([20, 720, 30], 5, 1.5));
    assert_eq!(flaky.window.as_ref().map(ToString::to_string).as_deref(), Some("* 8-19 * * Mon-Fri (Europe/Berlin)"));
    let pace = flaky.pace;
    assert_eq!((pace.start, pace.max_in_flight, pace.per_second, pace.max_queue_length), (2, 20, 5, 1000));
    let matcher = &rules.retry[0].matcher;
    assert_eq!(matcher.task.as_ref().unwrap().written(), ["send_*", "charge_*"]);
    assert_eq!(matcher.history, None);
    assert!(matches!(rules.retry[1].action, Action::Leave));
    assert_eq!(rules.retry[2].matcher.history.as_deref(), Some("unknown"));
    // What is not given has its default; max_backoff is never below min_age.
    let rest = terms(&rules, "rest");
    let day = Duration::from_secs(86_400);
    let expected = Terms { min_age: day, max_backoff: day, ..Terms::default() };
    assert_eq!(format!("{rest:?}"), format!("{expected:?}"));
    assert_eq!(rules.fingerprint.len(), 16);
}

#[test]
fn rules_stand_in_the_order_of_their_files() {
    let rules = read(&["retry: [{ name: b, match: { task: b } }]", "alerts: []", "retry:\n- name: a\n"]).unwrap();
    assert_eq!(rules.retry.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["b", "a"]);
    let none = read(&["retry: []", "{}"]).unwrap();
    assert!(none.is_empty() && none.fingerprint.is_empty());
}

#[test]
fn only_what_rules_say_gives_them_their_fingerprint() {
    let base = rules("retry: [{ name: a, match: { task: [x, y] }, min_age: 20m }, { name: b }]").fingerprint;
    for same in [
        "# soon\nretry:\n  - min_age: 20m # or so\n    match:\n      task: [\"y\", 'x']\n    name: a\n  - name: b\n",
        "retry: [{ name: a, match: { task: [x, y] }, min_age: '${AGE}', backoff: 2 }, { name: b, action: retry }]",
        "retry: [{ name: a, match: { task: [x, y], history: any }, min_age: 1200s, max_backoff: 360m }, { name: b }]\n",
    ] {
        assert_eq!(rules(same).fingerprint, base, "{same}");
    }
    assert_eq!(
        read(&["retry: [{ name: a, match: { task: [x, y] }, min_age: 20m }]", "retry: [{ name: b }]"])
            .unwrap()
            .fingerprint,
        base,
        "the files do not count"
    );
    for other in [
        "retry: [{ name: a, match: { task: [x, z] }, min_age: 20m }, { name: b }]",
        "retry: [{ name: a, match: { task: [x, y] }, min_age: 21m }, { name: b }]",
        "retry: [{ name: a, match: { task: [x, y] }, min_age: 20m }, { name: c }]",
        "retry: [{ name: a, match: { task: [x, y] }, min_age: 20m }, { name: b, action: leave }]",
        "retry: [{ name: a, match: { task: [x, y] }, min_age: 20m }]",
    ] {
        assert_ne!(rules(other).fingerprint, base, "{other}");
    }
}

#[test]
fn problems_of_a_file_as_a_whole() {
    check(
        str::to_owned,
        &[
            ("", " the rules file is empty; write retry: [] into it where it has no rules"),
            ("# later\n", " the rules file is empty; write retry: [] into it where it has no rules"),
            (
                "retry: [",
                "2:1: this is not YAML: while parsing a node, did not find expected node content; check \
             indentation, quotes and brackets here and in the line above",
            ),
            (
                "- name: a\n",
                r#"1:1: expected a mapping for "the rules file", found a list; use these keys: retry, alerts"#,
            ),
            ("retri: []", r#"1:1: unknown key "retri" in a rules file; did you mean "retry"?"#),
            ("sources: []", r#"1:1: unknown key "sources" in a rules file; known keys: retry, alerts"#),
            (
                "retry: {}",
                r#"1:8: expected a list for "retry", found a mapping; write each item behind a dash, or [] for none"#,
            ),
            (
                "retry:",
                r#"1:6: expected a list for "retry", found nothing; write each item behind a dash, or [] for none"#,
            ),
            (
                "retry: [x]",
                r#"1:9: expected a mapping for "retry", found a text; use these keys: name, match, action, min_age, max_retries, backoff, max_backoff, confirm_within, window, timezone, pace"#,
            ),
            ("retry: [{ match: {} }]", r#"1:9: "name" is missing in a retry rule; give the rule a name"#),
            (
                "retry: [{ name: 'A b' }]",
                r#"1:17: expected a name for "name", found "A b"; use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit"#,
            ),
            (
                "retry:\n- { name: a, match: { task: x } }\n- { name: a }",
                r#"3:11: the name "a" is taken by the rule in line 2; give every one a name of its own"#,
            ),
        ],
    );
    let too_many: String = (0..=MOST_RULES).map(|n| format!("- {{ name: r{n}, match: {{ task: t{n} }} }}\n")).collect();
    assert_eq!(
        problems(&[&format!("retry:\n{too_many}")]),
        ["rules/1.yaml:202:3: there are more than 200 rules; write fewer: one rule can name many tasks and errors"]
    );
}

#[test]
fn problems_of_a_rule() {
    check(
        rule,
        &[
            ("min_aeg: 5m", r#"3:5: unknown key "min_aeg" in a retry rule; did you mean "min_age"?"#),
            ("action: leav", r#"3:13: unknown value "leav" for "action"; did you mean "leave"?"#),
            ("match: { tsak: x }", r#"3:14: unknown key "tsak" in a match; did you mean "task"?"#),
            ("match: { source: order }", r#"3:22: "order" matches no source; did you mean "orders"?"#),
            ("match: { source: [mails, 'x*'] }", r#"3:30: "x*" matches no source; known sources: orders, mails"#),
            (
                "match: { error: '(' }",
                r#"3:21: "error" holds a regular expression that cannot be used: unclosed group at its character 1; mend it there; put it in single quotes, and write $$ for $ before { or $"#,
            ),
            (
                "match: { error: '/timeout/i' }",
                r#"3:21: "error" has slashes around its expression, as in JavaScript; write it without them, and flags in front: (?i)timed out; a slash that is meant is [/]"#,
            ),
            (
                "match: { reason: dead }",
                r#"3:22: unknown value "dead" for "reason"; known reasons: max_attempts, max_deliveries, unknown_task"#,
            ),
            (
                "action: leave\nmatch: { reason: dead }",
                r#"4:22: unknown value "dead" for "reason"; known reasons: max_attempts, max_deliveries, unknown_task, malformed, shed"#,
            ),
            (
                "match: { reason: malformed }",
                r#"3:22: the reason "malformed" is never retried; remove it, or write action: leave"#,
            ),
            (
                "match: { reason: [max_attempts, shed] }",
                r#"3:37: the reason "shed" is never retried; remove it, or write action: leave"#,
            ),
            ("min_age: 99ms", r#"3:14: "min_age" is too short: "99ms"; give 100ms to 14d"#),
            ("min_age: 15d", r#"3:14: "min_age" is too long: "15d"; give 100ms to 14d"#),
            ("min_age: 10M", r#"3:14: "min_age" is too long: "10M"; give 100ms to 14d; M is months, m is minutes"#),
            (
                "min_age: soon",
                r#"3:14: expected a duration for "min_age", found "soon"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            (
                "min_age: 2h\nmax_backoff: 90m",
                r#"4:18: "max_backoff" is 90m, less than "min_age": 2h; no retry comes before min_age: raise the one, or lower the other"#,
            ),
            (
                "max_backoff: 5m",
                r#"3:18: "max_backoff" is 5m, less than "min_age": 10m; no retry comes before min_age: raise the one, or lower the other"#,
            ),
            // One that is wrong is compared with nothing.
            (
                "min_age: soon\nmax_backoff: 5m",
                r#"3:14: expected a duration for "min_age", found "soon"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            (
                "pace: { start: 200, max_in_flight: 20000 }",
                r#"3:40: "max_in_flight" is too large: "20000"; give at most 10000"#,
            ),
            (
                "max_retries: 0",
                r#"3:18: "max_retries" is 0, so the rule would retry nothing; give at least 1; a rule that is to retry nothing has action: leave"#,
            ),
            ("max_retries: 1001", r#"3:18: "max_retries" is too large: "1001"; give at most 1000"#),
            (
                "backoff: 0.5",
                r#"3:14: expected a number from 1 to 100 for "backoff", found "0.5"; write it like 2 or 1.5"#,
            ),
            (
                "backoff: 1e1",
                r#"3:14: expected a number from 1 to 100 for "backoff", found "1e1"; write it like 2 or 1.5"#,
            ),
            (
                "backoff: inf",
                r#"3:14: expected a number from 1 to 100 for "backoff", found "inf"; write it like 2 or 1.5"#,
            ),
            (
                "backoff: 1.2.3",
                r#"3:14: expected a number from 1 to 100 for "backoff", found "1.2.3"; write it like 2 or 1.5"#,
            ),
            ("confirm_within: 25h", r#"3:21: "confirm_within" is too long: "25h"; give 100ms to 1d"#),
            (
                "window: '* * * *'",
                r#"3:13: "window" has 4 fields instead of 5 or 6; write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri"#,
            ),
            (
                "window: '* 22-6 * * *'",
                r#"3:13: "window" has "22-6" for the hour, which runs backwards; write 22-23,0-6"#,
            ),
            (
                "window: '* 24 * * *'",
                r#"3:13: "window" has "24" for the hour, which cannot be read; write 0 to 23 (a night is 22-23,0-6), *, a list (a,b), a range (a-b, a < b) or a step (*/n, a-b/n)"#,
            ),
            (
                "window: '0 8-19 * * *'",
                r#"3:13: "window" is open for 1 minute an hour; write * 8-19 * * * for the whole hours, or name at least 6 minutes: 0-5 8-19 * * *"#,
            ),
            (
                "window: '*/15 * * * Mon'",
                r#"3:13: "window" is open for 4 minutes an hour; write * * * * Mon for the whole hours, or name at least 6 minutes: 0-5 * * * Mon"#,
            ),
            (
                "window: '0 0 8 * * *'",
                r#"3:13: "window" is open for 1 second an hour; write * 8 * * * for the whole hours, or name at least 6 minutes: 0-5 8 * * *"#,
            ),
            (
                "window: * 8-19 * * *",
                "3:13: this is not YAML: while scanning an anchor or alias, did not find expected alphabetic or numeric character; put a value that begins with * or & in quotes, here or in the line above",
            ),
            (
                "window: */10 8-19 * * *",
                "3:13: this is not YAML: while parsing node, found unknown anchor; put a value that begins with * or & in quotes, here or in the line above",
            ),
            ("window: '* * 31 2 *'", r#"3:13: "window" names no day that any year has; give a day that the month has"#),
            ("timezone: UTC", r#"3:5: "timezone" is given, but no "window"; give the window, or remove it"#),
            (
                "window: '* * * * *'\ntimezone: Berlin",
                r#"4:15: unknown time zone "Berlin"; did you mean "Europe/Berlin"?"#,
            ),
            (
                "window: '* * * * *'\ntimezone: europe/berln",
                r#"4:15: unknown time zone "europe/berln"; did you mean "Europe/Berlin"?"#,
            ),
            (
                "window: '* * * * *'\ntimezone: home",
                r#"4:15: unknown time zone "home"; write it as in the zone database: Europe/Berlin, America/New_York or UTC"#,
            ),
            (
                "pace: { start: 101 }",
                r#"3:20: "start" is 101, more than "max_in_flight": 100; lower the one, or raise the other"#,
            ),
            (
                "pace: { start: 5, max_in_flight: 4 }",
                r#"3:20: "start" is 5, more than "max_in_flight": 4; lower the one, or raise the other"#,
            ),
            (
                "pace: { per_second: 0 }",
                r#"3:25: "per_second" is 0, so the rule would retry nothing; give at least 1; a rule that is to retry nothing has action: leave"#,
            ),
            (
                "pace: { max_in_flight: 00 }",
                r#"3:28: "max_in_flight" is 0, so the rule would retry nothing; give at least 1; a rule that is to retry nothing has action: leave"#,
            ),
            (
                "pace: { max_queue_length: -1 }",
                r#"3:31: expected a whole number from 1 to 1000000000 for "max_queue_length", found "-1"; write digits only"#,
            ),
            ("pace: { perSecond: 5 }", r#"3:13: unknown key "perSecond" in a pace; did you mean "per_second"?"#),
            (
                "action: leave\nmax_retries: 3",
                r#"4:5: "max_retries" is given, but the rule leaves what it matches; remove it, or remove action: leave"#,
            ),
        ],
    );
    // A rule that leaves may say that it leaves what is never retried anyway.
    assert!(problems(&[&rule("action: leave\nmatch: { reason: [malformed, shed] }")]).is_empty());
}

#[test]
fn a_rule_that_can_never_match_is_told_of() {
    let late = "retry:\n  - name: late\n    match: { task: charge_card, reason: max_attempts, error: timed out }\n";
    let help = "put the narrower rule first, or remove one of them";
    let expected = |late: &str, early: &str| {
        vec![format!(
            "{late}: the rule \"late\" can never match: \"early\" in line {early} takes all that it could; {help}"
        )]
    };
    for early in
        ["{}", "{ task: 'charge_*' }", "{ reason: [unknown_task, max_attempts] }", "{ error: 'time|timed ?out' }"]
    {
        let early = format!("retry: [{{ name: early, match: {early} }}]");
        assert_eq!(problems(&[&early, late]), expected("rules/2.yaml:2:5", "1 of rules/1.yaml"), "{early}");
    }
    for early in ["{ task: 'send_*' }", "{ history: same }", "{ reason: unknown_task }", "{ error: '^timed' }"] {
        let early = format!("retry: [{{ name: early, match: {early} }}]");
        assert!(problems(&[&early, late]).is_empty(), "{early}");
    }
    assert_eq!(problems(&["retry:\n- name: early\n- name: late\n"]), expected("rules/1.yaml:3:3", "2"));
    // Of a rule with a problem it is not known what it takes.
    let broken = problems(&["retry: [{ name: early, match: { task: '[' } }]", late]);
    assert!(broken.len() == 1 && broken[0].starts_with("rules/1.yaml:1:"), "{broken:?}");
    let unset = problems(&["retry: [{ name: early, match: { error: '${NOBODY}' } }]", late]);
    assert!(unset.len() == 1 && unset[0].contains("NOBODY is not set"), "{unset:?}");
}

#[test]
fn all_problems_come_at_once_file_by_file() {
    let first = "retry:\n  - { name: a, max_retries: 0, min_age: x }\n  - { name: b, backof: 2 }\nalert: []\n";
    let second = "retry:\n  - { name: a, match: { history: smae } }\n  - { name: c, min_age: '${NOBODY}' }\n";
    let places: Vec<String> =
        problems(&[first, "", second]).iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    let expected = ["1.yaml:2:29", "1.yaml:2:41", "1.yaml:3:16", "1.yaml:4:1", "2.yaml", "3.yaml:2:13", "3.yaml:2:34"];
    let expected = expected.iter().chain(&["3.yaml:3:25"]).map(|place| format!("rules/{place}"));
    assert_eq!(places, expected.collect::<Vec<_>>());
    let taken = &problems(&[first, "", second])[5];
    assert!(taken.contains("the name \"a\" is taken by the rule in line 2 of rules/1.yaml"), "{taken}");
}

#[test]
fn no_problem_shows_what_a_variable_gave() {
    let all = "'${WORD}'";
    let text = format!(
        "retry:\n  - {{ name: {all}, match: {{ source: {all}, error: '${{WORD}}(', group: {all}, history: {all} }}, \
         action: {all}, min_age: {all}, backoff: {all}, max_retries: {all}, window: '{}', timezone: {all}, pace: {all} }}\n  \
         - {{ name: x, window: '${{WORD}} * * * *' }}\n",
        "${WORD} ".repeat(5)
    );
    let found = problems(&[&text]);
    assert!(found.len() >= 12, "{found:#?}");
    assert!(!found.iter().any(|line| line.contains("hunter2")), "{found:#?}");
}

/// The reference with every setting given.
fn reference_in_full() -> String {
    RULES_REFERENCE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with('#')).unwrap_or(line).to_owned() + "\n")
        .collect()
}

/// Every key in a document with its path.
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
fn the_reference_stands_as_it_is_names_every_key_and_tells_the_defaults() {
    let shown = terms(&rules(RULES_REFERENCE), "dependency-flaky");
    assert_eq!(format!("{shown:?}"), format!("{:?}", Terms::default()));
    let kinds = [
        Kind::Rising(Rising::default()),
        Kind::Burst(Burst::default()),
        Kind::Waiting(Waiting::default()),
        Kind::NewGroup(NewGroup::default()),
    ];
    let alerts = book(&[RULES_REFERENCE]).unwrap().alerts;
    assert_eq!(alerts.len(), kinds.len());
    for (shown, kind) in alerts.iter().zip(kinds) {
        assert_eq!(format!("{shown:?}"), format!("{:?}", AlertRule::new(&shown.name, kind)));
    }
    for line in RULES_REFERENCE.lines() {
        assert!(line.chars().count() <= 120, "too long: {line}");
    }
    let full = reference_in_full();
    assert!(terms(&rules(&full), "dependency-flaky").window.is_some());
    let root = document::parse(&full, &env(), None, &mut Problems::new("full")).unwrap();
    let mut given = Vec::new();
    paths(&root, "", &mut given);
    for (section, shape) in shape::ALL_OF_RULES {
        for key in shape.keys {
            assert!(given.contains(&format!("{section}{key}")), "{section}{key} is not in the reference");
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(
        text in "([a-c]|\\$\\{|[ \n\t:,&*!|>'\"{}?#%@~-]|\\[|\\]|retry: |name: a|match: |window: |pace: |alerts: |rising: |unless: |by: |- |&a |\\*a ){0,60}"
    ) {
        let _ = read(&[&text]);
    }

    #[test]
    fn no_damage_to_the_reference_makes_reading_panic(
        at in 0..RULES_REFERENCE.len(), length in 0_usize..200, put in "\\PC{0,3}"
    ) {
        let mut text = RULES_REFERENCE.as_bytes().to_vec();
        let end = (at + length).min(text.len());
        text.splice(at..end, put.into_bytes());
        let _ = RulesSource::default().read(&RulesText::of([("x".to_owned(), text)]), &env());
    }
}
