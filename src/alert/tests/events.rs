//! What the events of alerts and summaries say, and how large they get.

use super::*;
use crate::event::{ErrorText, EventData, JobDead};

const NOW: i64 = 1_794_787_200_000;

/// A death whose every text is as long as can be, in characters that JSON makes the most of.
fn monstrous(n: usize) -> JobDead {
    let long = |character: char| Some(format!("{n}{}", character.to_string().repeat(100_000)));
    JobDead {
        source: "orders".to_owned(),
        group: format!("{n:012x}"),
        task: long('\u{1}'),
        queue: long('\u{1}'),
        reason: long('\u{1}'),
        error: ErrorText { kind: long('\u{1}'), message: long('\u{1}') },
        history: "same".to_owned(),
        ..JobDead::default()
    }
}

fn watch() -> Watch {
    Watch::load("orders", Duration::from_secs(5), [("learnt", "all")]).0
}

#[test]
fn an_event_stays_small_whatever_the_texts_of_dead_letters_are() {
    let rules = [AlertRule {
        by: Key::ALL.to_vec(),
        hooks: Some((0..100).map(|n| format!("{n:063}")).collect()),
        ..AlertRule::new(&"r".repeat(63), Kind::Burst(Burst { over: mins(5), deaths: 1 }))
    }];
    let whole = [AlertRule { by: Vec::new(), ..rules[0].clone() }];
    for rules in [&rules, &whole] {
        let mut watch = watch();
        for n in 0..40 {
            watch.count(Millis(NOW), Millis(NOW), Arrival::First, &monstrous(n), rules);
        }
        let tick = watch.tick(Millis(NOW), Sample { entries: 40, in_flight: 0 }, rules, &[]);
        assert!(!tick.transitions.is_empty());
        for told in &tick.transitions {
            let json = told.event(|_| Some("\u{1}".repeat(100_000))).to_json();
            assert!(json.len() < 64 * 1024, "{} bytes", json.len());
        }
        let digest = watch.samples().summary(Millis(NOW - 60_000), Millis(NOW)).digest("orders", Vec::new(), None);
        let json = EventData::Digest(Box::new(digest)).to_json();
        assert!(json.len() < 64 * 1024, "{} bytes", json.len());
    }
}

#[test]
fn an_event_has_what_a_person_needs_and_the_end_says_when_it_was() {
    let rules = [AlertRule {
        severity: Severity::Critical,
        keep_firing_for: Duration::ZERO,
        hooks: Some(vec!["oncall".to_owned()]),
        by: vec![Key::Task],
        ..AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 2 }))
    }];
    let mut watch = watch();
    let dead = JobDead {
        group: "7c1f0e9a2b44".to_owned(),
        task: Some("send_email".to_owned()),
        queue: Some("default".to_owned()),
        reason: Some("max_attempts".to_owned()),
        error: ErrorText { kind: Some("ConnectionError".to_owned()), message: Some("timed out".to_owned()) },
        ..JobDead::default()
    };
    for n in 0..3 {
        watch.count(Millis(NOW + n), Millis(NOW + n), Arrival::First, &dead, &rules);
    }
    let fires = watch.tick(Millis(NOW + 10), Sample { entries: 3, in_flight: 1 }, &rules, &[]);
    let EventData::AlertFiring(alert) = fires.transitions[0].event(|cause| Some(format!("of {}", cause.group))) else {
        panic!("it fires")
    };
    assert_eq!(
        serde_json::to_value(&*alert).unwrap(),
        serde_json::json!({
            "source": "orders", "incident": alert.incident, "alert": "burst", "severity": "critical",
            "since": "2026-11-16T00:00:00.010Z", "fired_at": "2026-11-16T00:00:00.010Z", "resolved_at": null,
            "repeated": false, "labels": {"source": "orders", "task": "send_email"}, "value": 3, "level": 4,
            "summary": "orders, task send_email: 3 jobs died within 5m; send_email (ConnectionError: timed out)",
            "groups": [{
                "group": "7c1f0e9a2b44", "task": "send_email", "queue": "default", "reason": "max_attempts",
                "error": {"type": "ConnectionError", "message": "timed out"}, "deaths": 3,
                "first_died_at": "2026-11-16T00:00:00.000Z", "last_died_at": "2026-11-16T00:00:00.010Z",
                "retrying": "of 7c1f0e9a2b44"
            }],
            "hooks": ["oncall"]
        })
    );
    let to = ["oncall".to_owned(), "manager".to_owned()];
    let reminders = watch.reminders(Millis(NOW + 20), &rules, &[], &to);
    assert_eq!((reminders.len(), &reminders[0].hooks), (1, &Some(vec!["oncall".to_owned()])));
    assert!(watch.reminders(Millis(NOW + 20), &rules, &[], &to[1..]).is_empty(), "it was not told of it");

    let ends = watch.tick(Millis(NOW + 600_000), Sample { entries: 3, in_flight: 0 }, &rules, &[]);
    let over = ends.transitions[0].event(|_| None);
    let EventData::AlertResolved(resolved) = &over else { panic!("{over:?}") };
    assert_eq!((&resolved.incident, &resolved.fired_at), (&alert.incident, &alert.fired_at));
    assert_eq!(resolved.resolved_at.as_deref(), Some("2026-11-16T00:10:00.000Z"));
    assert_eq!(resolved.groups[0].retrying, None);
    let again = watch.reminders(Millis(NOW + 660_000), &rules, &[], &to);
    let EventData::AlertResolved(again) = again[0].event(|_| None) else { panic!("{again:?}") };
    assert!(again.repeated);
    assert_eq!((&again.resolved_at, &again.fired_at), (&resolved.resolved_at, &resolved.fired_at));
    assert!(watch.reminders(Millis(NOW + 900_000), &rules, &[], &to).is_empty(), "for five minutes");
}

#[test]
fn nobody_is_reminded_of_an_end_once_the_same_fires_anew() {
    let rules = [AlertRule {
        keep_firing_for: Duration::ZERO,
        ..AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 2 }))
    }];
    let mut watch = watch();
    let dead = JobDead { group: "7c1f0e9a2b44".to_owned(), ..JobDead::default() };
    let to = ["manager".to_owned()];
    let mut told = Vec::new();
    for (at, deaths) in [(0, 2), (600_000, 0), (650_000, 2)] {
        for _ in 0..deaths {
            watch.count(Millis(NOW + at), Millis(NOW + at), Arrival::First, &dead, &rules);
        }
        let tick = watch.tick(Millis(NOW + at), Sample { entries: 4, in_flight: 0 }, &rules, &[]);
        told.extend(tick.transitions.into_iter().map(|told| (told.change, told.incident)));
    }
    let [(Change::Fire, first), (Change::Resolve(_), over), (Change::Fire, second)] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(first == over && first != second);
    let reminders = watch.reminders(Millis(NOW + 660_000), &rules, &[], &to);
    let reminders: Vec<_> = reminders.iter().map(|told| (told.change, &told.incident)).collect();
    assert_eq!(reminders, [(Change::Repeat, second)]);
}

#[test]
fn what_happened_between_two_summaries_is_in_one_of_them() {
    let schedule = crate::rule::Window::parse("*/10 * * * *", crate::rule::Zone::UTC).unwrap();
    let mut watch = watch();
    let dead = JobDead { group: "7c1f0e9a2b44".to_owned(), task: Some("a".to_owned()), ..JobDead::default() };
    let (mut died, mut told) = (0, Vec::new());
    for tick in 0..500 {
        let now = Millis(NOW + 2_000 + tick * 5_000);
        watch.count(now, Millis(now.0 - 1), Arrival::First, &dead, &[]);
        died += 1;
        if let Some(summary) = watch.summary_due(&schedule, now) {
            let told_already: u64 = told.iter().sum();
            // The first summary begins where the watch did, which is one tick later than the first death.
            assert!(told_already + summary.died + 1 >= died, "{told_already} and {} of {died}", summary.died);
            told.push(summary.died);
        }
        watch.tick(now, Sample { entries: died, in_flight: 0 }, &[], &[]);
    }
    assert_eq!(told.len(), 4);
    assert_eq!(&told[1..], [120, 120, 120]);
}
