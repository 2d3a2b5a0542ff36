//! The forms a request's body can have, one file each: pure functions from an event, already redacted, to bytes.
//!
//! A form that takes only some events, or has its own idea of success, gets a say in `Selection` and in the table of
//! outcomes; the four here take everything and follow the table.

mod cloudevents;
mod flexiq;
mod slack;
mod standard;

use std::time::Duration;

use crate::{config::Format, event::Event};

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

/// JSON of texts, numbers and lists, which cannot fail.
fn json(content_type: &'static str, value: &impl serde::Serialize) -> Body {
    Body { bytes: serde_json::to_vec(value).expect("keys are texts and nothing else can fail"), content_type }
}

#[cfg(test)]
mod samples {
    //! The events that every form is shown.

    use crate::{
        event::{Digest, ErrorText, Event, EventData, GroupCount, HookTest, JobDead},
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

    pub(super) fn digest() -> Event {
        let error = dead().error;
        event(EventData::Digest(Box::new(Digest {
            source: "orders".to_owned(),
            why: "rate".to_owned(),
            count: 940,
            from: Some("2026-11-29T17:12:50.488Z".to_owned()),
            until: Some("2026-11-29T17:13:50.488Z".to_owned()),
            groups: vec![GroupCount {
                group: "7c1f0e9a2b44".to_owned(),
                count: 900,
                task: Some("send_email".to_owned()),
                error,
            }],
            other_count: 40,
            groups_estimated: false,
            samples: vec![dead()],
        })))
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
