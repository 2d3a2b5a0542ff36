//! The forms a request's body can have, one file each: pure functions from an event, already redacted, to bytes.
//!
//! Which events a form takes is [`Format::takes`]'s to say; all follow the one table of outcomes.

mod alertmanager;
mod cloudevents;
mod flexiq;
mod pagerduty;
mod shorten;
mod slack;
mod standard;
mod words;

use std::time::Duration;

use crate::{
    config::{Format, Secret},
    event::Event,
    letter::Millis,
};

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The bytes; always UTF-8.
    pub bytes: Vec<u8>,
    /// `Content-Type`.
    pub content_type: &'static str,
}

/// The body of a request in this form. `routing_key` is PagerDuty's; no other form looks at it.
pub fn body(format: Format, event: &Event, routing_key: Option<&Secret>) -> Body {
    match format {
        Format::Standard => standard::body(event),
        Format::CloudEvents => cloudevents::body(event),
        Format::Flexiq => flexiq::body(event),
        Format::Slack => slack::body(event),
        Format::PagerDuty => pagerduty::body(event, routing_key),
        Format::Alertmanager => alertmanager::body(event),
    }
}

/// What is sent right behind an event once that was taken, so that it leaves nothing open: a test is over at once.
pub(super) fn closing(format: Format, event: &Event, routing_key: Option<&Secret>) -> Option<Body> {
    (format == Format::PagerDuty).then(|| pagerduty::closing(event, routing_key)).flatten()
}

/// Where a receiver of this form listens, for a URL that only says on which host.
pub(super) fn path(format: Format) -> Option<&'static str> {
    match format {
        Format::Standard | Format::CloudEvents | Format::Flexiq | Format::Slack => None,
        Format::PagerDuty => Some("/v2/enqueue"),
        Format::Alertmanager => Some("/api/v2/alerts"),
    }
}

/// How often a receiver of this form wants to hear that an alert still fires; never, where it remembers by itself.
pub fn reminded_every(format: Format) -> Option<Duration> {
    (format == Format::Alertmanager).then_some(alertmanager::REMINDED_EVERY)
}

/// Whether of several tellings that an incident fires only the newest means anything to a receiver of this form, and
/// incidents of the same labels are one thing to it.
pub fn newest_alone(format: Format) -> bool {
    format == Format::Alertmanager
}

/// True for an event that has become wrong by `now`: told that late, it would say the opposite of what it did.
pub(super) fn has_lapsed(format: Format, event: &Event, now: Millis) -> bool {
    format == Format::Alertmanager && alertmanager::has_lapsed(event, now)
}

/// The time a receiver of this form wants between two requests; zero if it takes many at once.
pub fn spacing(format: Format) -> Duration {
    match format {
        Format::Standard | Format::CloudEvents | Format::Flexiq | Format::PagerDuty | Format::Alertmanager => {
            Duration::ZERO
        }
        // An incoming webhook takes about one message a second, and answers 429 to more. So a lane with a `rate` above
        // 60/m falls behind in a storm: it may send more singles in a window than it has time for.
        Format::Slack => Duration::from_secs(1),
    }
}

/// JSON of texts, numbers and lists, which cannot fail.
fn json(content_type: &'static str, value: &impl serde::Serialize) -> Body {
    Body { bytes: serde_json::to_vec(value).expect("keys are texts and nothing else can fail"), content_type }
}

#[cfg(test)]
mod samples {
    //! The events that every form is shown.

    use std::collections::BTreeMap;

    use crate::{
        event::{
            Alert, AlertGroup, Counts, Digest, ErrorText, Event, EventData, GroupCount, HookTest, JobDead, JobRetry,
            Outlook, Purge,
        },
        letter::Millis,
    };

    pub(super) fn dead() -> JobDead {
        JobDead {
            source: "orders".to_owned(),
            entry_id: "1795972370488-0".to_owned(),
            job_id: Some("d40ec568".to_owned()),
            task: Some("send_email".to_owned()),
            queue: Some("default".to_owned()),
            reason: Some("max_attempts".to_owned()),
            error: ErrorText {
                kind: Some("ConnectionError".to_owned()),
                message: Some("smtp.example.test:25 timed out after 10.0s".to_owned()),
            },
            attempts: 3,
            deliveries: 1,
            history: "same".to_owned(),
            group: "7c1f0e9a2b44".to_owned(),
            enqueued_at: Some("2026-11-29T17:12:40.000Z".to_owned()),
            died_at: Some("2026-11-29T17:12:50.488Z".to_owned()),
            deaths: 1,
            ..JobDead::default()
        }
    }

    pub(super) fn event(data: EventData) -> Event {
        Event { id: "evt_1".to_owned(), at: Millis(1_795_972_370_488), data }
    }

    pub(super) fn job_dead() -> Event {
        event(EventData::JobDead(Box::new(dead())))
    }

    /// After two retries by rule.
    pub(super) fn retry() -> JobRetry {
        let retried_at = Some("2026-11-29T17:32:51.000Z".to_owned());
        let rule = Some("dependency-flaky".to_owned());
        JobRetry { dead: JobDead { deaths: 2, retries: 2, rule, ..dead() }, retried_at, recovered_at: None }
    }

    pub(super) fn retried() -> Event {
        event(EventData::JobRetried(Box::new(retry())))
    }

    pub(super) fn recovered() -> Event {
        let recovered_at = Some("2026-11-29T17:32:52.000Z".to_owned());
        event(EventData::JobRecovered(Box::new(JobRetry { recovered_at, ..retry() })))
    }

    pub(super) fn exhausted() -> Event {
        event(EventData::JobExhausted(Box::new(JobDead { deaths: 4, retries: 3, ..retry().dead })))
    }

    /// Of one listed group.
    pub(super) fn digest_of(counts: Counts, listed: Counts) -> Digest {
        let error = dead().error;
        let group =
            GroupCount { group: "7c1f0e9a2b44".to_owned(), counts: listed, task: Some("send_email".to_owned()), error };
        Digest {
            source: "orders".to_owned(),
            why: "rate".to_owned(),
            counts,
            from: Some("2026-11-29T17:12:50.488Z".to_owned()),
            until: Some("2026-11-29T17:13:50.488Z".to_owned()),
            groups: vec![group],
            other_count: counts.without(listed).deaths,
            groups_estimated: false,
            samples: vec![dead()],
            outlook: None,
            hooks: None,
        }
    }

    pub(super) fn digest() -> Event {
        let deaths = |deaths| Counts { deaths, ..Counts::default() };
        event(EventData::Digest(Box::new(digest_of(deaths(940), deaths(900)))))
    }

    /// As `digest:` asks for it.
    pub(super) fn summary() -> Event {
        let counts = Counts { deaths: 12, retried: 5, recovered: 3, exhausted: 0 };
        let outlook = Outlook {
            died_again: 2,
            waiting: Some(9),
            sparkline: "▁▁▂▅█ ▃▂".to_owned(),
            lowest: Some(0),
            highest: Some(41),
            firing: vec!["rising".to_owned()],
        };
        let listed = Counts { deaths: 12, ..Counts::default() };
        let digest = Digest { why: "schedule".to_owned(), outlook: Some(outlook), ..digest_of(counts, listed) };
        event(EventData::Digest(Box::new(digest)))
    }

    /// What the retry loop does with the alert's group.
    pub(super) const RETRYING: &str = "Retries under rule flaky failed, so nothing of them is sent until \
        2026-11-29T17:40:00.000Z (in 27 minutes); then one retry goes ahead, and the others follow when that recovers.";

    pub(super) fn alert() -> Alert {
        let some = |text: &str| Some(text.to_owned());
        Alert {
            source: "orders".to_owned(),
            incident: "9f86d081884c7d65".to_owned(),
            alert: "rising".to_owned(),
            severity: "critical".to_owned(),
            since: some("2026-11-29T17:02:00.000Z"),
            fired_at: some("2026-11-29T17:12:50.488Z"),
            resolved_at: None,
            repeated: false,
            labels: BTreeMap::from(
                [("source", "orders"), ("task", "send_email")].map(|(key, value)| (key.to_owned(), value.to_owned())),
            ),
            value: 34,
            level: 41,
            summary:
                "orders, task send_email: the line rises, by 34 in 12m and in 10 of 12 steps, to 41 dead letters; \
                      mostly send_email (ConnectionError: smtp.example.test:25 timed out after 10.0s)"
                    .to_owned(),
            groups: vec![AlertGroup {
                group: "7c1f0e9a2b44".to_owned(),
                task: some("send_email"),
                queue: some("default"),
                reason: some("max_attempts"),
                error: dead().error,
                deaths: 34,
                first_died_at: some("2026-11-29T17:02:00.000Z"),
                last_died_at: some("2026-11-29T17:12:00.000Z"),
                retrying: some(RETRYING),
            }],
            hooks: None,
        }
    }

    pub(super) fn firing() -> Event {
        event(EventData::AlertFiring(Box::new(alert())))
    }

    /// Twenty minutes later.
    pub(super) fn resolved() -> Event {
        let over = Alert {
            resolved_at: Some("2026-11-29T17:32:50.488Z".to_owned()),
            value: 57,
            level: 12,
            summary: "orders, task send_email: rising is over after 20m; 57 jobs died since it began, 12 dead letters \
                      are left"
                .to_owned(),
            groups: Vec::new(),
            ..alert()
        };
        Event { at: Millis(1_795_973_570_488), ..event(EventData::AlertResolved(Box::new(over))) }
    }

    pub(super) fn purged() -> Event {
        event(EventData::Purged(Purge {
            source: "orders".to_owned(),
            why: "purge".to_owned(),
            by: "anna@host".to_owned(),
            note: Some("<!channel> old".to_owned()),
            count: 900_000,
            ..Purge::default()
        }))
    }

    pub(super) fn test() -> Event {
        event(EventData::HookTest(HookTest {
            source: "orders".to_owned(),
            hook: "oncall".to_owned(),
            summary: "a test".to_owned(),
        }))
    }

    pub(super) fn parsed(body: &super::Body) -> serde_json::Value {
        serde_json::from_slice(&body.bytes).unwrap()
    }
}
