//! The forms a request's body can have, one file each: pure functions from an event, already redacted, to bytes.
//!
//! A form that takes only some events, or has its own idea of success, gets a say in `Selection` and in the table of
//! outcomes; the four here take everything and follow the table.

mod cloudevents;
mod flexiq;
mod slack;
mod standard;

use std::time::Duration;

use crate::{
    config::Format,
    event::{Counts, Event},
};

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The bytes; always UTF-8.
    pub bytes: Vec<u8>,
    /// `Content-Type`.
    pub content_type: &'static str,
}

/// The body of a request in this form.
pub fn body(format: Format, event: &Event) -> Body {
    match format {
        Format::Standard => standard::body(event),
        Format::CloudEvents => cloudevents::body(event),
        Format::Flexiq => flexiq::body(event),
        Format::Slack => slack::body(event),
    }
}

/// The time a receiver of this form wants between two requests; zero if it takes many at once.
pub fn spacing(format: Format) -> Duration {
    match format {
        Format::Standard | Format::CloudEvents | Format::Flexiq => Duration::ZERO,
        // An incoming webhook takes about one message a second, and answers 429 to more. So a lane with a `rate` above
        // 60/m falls behind in a storm: it may send more singles in a window than it has time for.
        Format::Slack => Duration::from_secs(1),
    }
}

/// What a digest stands for in words: `940 jobs died, 12 were retried and 3 are exhausted`. With `more` it goes on from
/// what was told singly: `940 more jobs died …`.
fn in_words(counts: &Counts, more: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (number, one, many) in [
        (counts.deaths, "died", "died"),
        (counts.retried, "was retried", "were retried"),
        (counts.recovered, "ran through", "ran through"),
        (counts.exhausted, "is exhausted", "are exhausted"),
    ] {
        let verb = if number == 1 { one } else { many };
        if number > 0 && parts.is_empty() {
            parts.push(format!("{number} {}{} {verb}", if more { "more " } else { "" }, jobs(number)));
        } else if number > 0 {
            parts.push(format!("{number} {verb}"));
        }
    }
    listed(parts)
}

fn jobs(number: u64) -> &'static str {
    if number == 1 { "job" } else { "jobs" }
}

/// `a`, `a and b`, `a, b and c`; of nothing, `nothing`.
fn listed(mut parts: Vec<String>) -> String {
    let Some(last) = parts.pop() else { return "nothing".to_owned() };
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

/// JSON of texts, numbers and lists, which cannot fail.
fn json(content_type: &'static str, value: &impl serde::Serialize) -> Body {
    Body { bytes: serde_json::to_vec(value).expect("keys are texts and nothing else can fail"), content_type }
}

#[cfg(test)]
mod samples {
    //! The events that every form is shown.

    use crate::{
        event::{Counts, Digest, ErrorText, Event, EventData, GroupCount, HookTest, JobDead, JobRetry},
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_said_as_people_say_them() {
        for (numbers, expected) in [
            ([940, 0, 0, 0], "940 jobs died"),
            ([1, 1, 1, 1], "1 job died, 1 was retried, 1 ran through and 1 is exhausted"),
            ([940, 12, 0, 3], "940 jobs died, 12 were retried and 3 are exhausted"),
            ([0, 0, 1, 0], "1 job ran through"),
            ([0, 2, 1, 0], "2 jobs were retried and 1 ran through"),
            ([0, 0, 0, 2], "2 jobs are exhausted"),
            ([0, 0, 0, 0], "nothing"),
        ] {
            let [deaths, retried, recovered, exhausted] = numbers;
            let counts = Counts { deaths, retried, recovered, exhausted };
            assert_eq!(in_words(&counts, false), expected);
        }
        let counts = Counts { retried: 2, exhausted: 1, ..Counts::default() };
        assert_eq!(in_words(&counts, true), "2 more jobs were retried and 1 is exhausted");
    }
}
