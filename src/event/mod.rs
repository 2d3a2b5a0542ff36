//! What hooks are told: the events, and their one JSON shape.
//!
//! Pure. An event is made once, written to the outbox as JSON, and read from there by every hook.

mod alert;
mod digest;
mod purge;
mod time;

pub use alert::{Alert, AlertGroup, OTHER};
pub use digest::{Counts, Digest, GroupCount, Outlook, Tally};
pub use purge::Purge;
pub use time::rfc3339;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::letter::{DeadLetter, ErrorInfo, Millis};

/// Every kind of event there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// A job landed in the DLQ.
    JobDead,
    /// A dead job was put back on its queue.
    JobRetried,
    /// A retried job ran through.
    JobRecovered,
    /// A retried job died once more, and its rule grants it no further retry.
    JobExhausted,
    /// Many events about jobs in one.
    DlqDigest,
    /// Entries were removed for their age or number.
    DlqPurged,
    /// Something is wrong, or still is.
    AlertFiring,
    /// It is over.
    AlertResolved,
    /// A person tries a hook.
    HookTest,
}

impl EventType {
    /// All of them, in the order the documentation lists them.
    pub const ALL: [EventType; 9] = [
        EventType::JobDead,
        EventType::JobRetried,
        EventType::JobRecovered,
        EventType::JobExhausted,
        EventType::DlqDigest,
        EventType::DlqPurged,
        EventType::AlertFiring,
        EventType::AlertResolved,
        EventType::HookTest,
    ];

    /// The wire name, such as `job.dead`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::JobDead => "job.dead",
            EventType::JobRetried => "job.retried",
            EventType::JobRecovered => "job.recovered",
            EventType::JobExhausted => "job.exhausted",
            EventType::DlqDigest => "dlq.digest",
            EventType::DlqPurged => "dlq.purged",
            EventType::AlertFiring => "alert.firing",
            EventType::AlertResolved => "alert.resolved",
            EventType::HookTest => "hook.test",
        }
    }

    /// The kind with this wire name.
    pub fn parse(name: &str) -> Option<EventType> {
        EventType::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The lane it travels in: what is rare, and what a person waits for, never waits behind deaths.
    pub fn lane(self) -> Lane {
        match self {
            EventType::JobDead
            | EventType::JobRetried
            | EventType::JobRecovered
            | EventType::JobExhausted
            | EventType::DlqDigest => Lane::Deaths,
            EventType::DlqPurged | EventType::AlertFiring | EventType::AlertResolved | EventType::HookTest => {
                Lane::Alerts
            }
        }
    }
}

/// The two lanes of every hook, each an outbox of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// What happens to jobs; may be a storm, and is folded.
    Deaths,
    /// What a person must see now; never folded, never behind a storm.
    Alerts,
}

impl Lane {
    /// Both lanes.
    pub const ALL: [Lane; 2] = [Lane::Deaths, Lane::Alerts];

    /// Its name in keys and logs: `deaths` or `alerts`.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Deaths => "deaths",
            Lane::Alerts => "alerts",
        }
    }
}

/// One event as the outbox holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The `webhook-id`: the same on every try, to every hook, after every restart. Holds no `.`.
    pub id: String,
    /// When it happened, by the store's clock.
    pub at: Millis,
    /// What happened.
    pub data: EventData,
}

impl Event {
    /// The kind of event, which follows from its data.
    pub fn kind(&self) -> EventType {
        self.data.kind()
    }
}

/// The `data` of an event, by kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EventData {
    /// Of `job.dead`.
    JobDead(Box<JobDead>),
    /// Of `job.retried`.
    JobRetried(Box<JobRetry>),
    /// Of `job.recovered`.
    JobRecovered(Box<JobRetry>),
    /// Of `job.exhausted`.
    JobExhausted(Box<JobDead>),
    /// Of `dlq.digest`.
    Digest(Box<Digest>),
    /// Of `dlq.purged`.
    Purged(Purge),
    /// Of `alert.firing`.
    AlertFiring(Box<Alert>),
    /// Of `alert.resolved`.
    AlertResolved(Box<Alert>),
    /// Of `hook.test`.
    HookTest(HookTest),
}

impl EventData {
    /// The data as the outbox stores it.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The kind of event this is the data of.
    pub fn kind(&self) -> EventType {
        match self {
            EventData::JobDead(_) => EventType::JobDead,
            EventData::JobRetried(_) => EventType::JobRetried,
            EventData::JobRecovered(_) => EventType::JobRecovered,
            EventData::JobExhausted(_) => EventType::JobExhausted,
            EventData::Digest(_) => EventType::DlqDigest,
            EventData::Purged(_) => EventType::DlqPurged,
            EventData::AlertFiring(_) => EventType::AlertFiring,
            EventData::AlertResolved(_) => EventType::AlertResolved,
            EventData::HookTest(_) => EventType::HookTest,
        }
    }

    /// The dead letter that an event about a job is about; none if it is about no single job.
    pub fn job(&self) -> Option<&JobDead> {
        match self {
            EventData::JobDead(dead) | EventData::JobExhausted(dead) => Some(dead),
            EventData::JobRetried(retry) | EventData::JobRecovered(retry) => Some(&retry.dead),
            EventData::Digest(_)
            | EventData::Purged(_)
            | EventData::AlertFiring(_)
            | EventData::AlertResolved(_)
            | EventData::HookTest(_) => None,
        }
    }

    /// As [`EventData::job`], to be changed.
    pub fn job_mut(&mut self) -> Option<&mut JobDead> {
        match self {
            EventData::JobDead(dead) | EventData::JobExhausted(dead) => Some(dead),
            EventData::JobRetried(retry) | EventData::JobRecovered(retry) => Some(&mut retry.dead),
            EventData::Digest(_)
            | EventData::Purged(_)
            | EventData::AlertFiring(_)
            | EventData::AlertResolved(_)
            | EventData::HookTest(_) => None,
        }
    }

    /// The name of the source it comes from.
    pub fn source(&self) -> &str {
        match self {
            EventData::JobDead(dead) | EventData::JobExhausted(dead) => &dead.source,
            EventData::JobRetried(retry) | EventData::JobRecovered(retry) => &retry.dead.source,
            EventData::Digest(digest) => &digest.source,
            EventData::Purged(purge) => &purge.source,
            EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => &alert.source,
            EventData::HookTest(test) => &test.source,
        }
    }

    /// What it says of an incident; none for all but the two kinds of alert event.
    pub fn alert(&self) -> Option<&Alert> {
        match self {
            EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => Some(alert),
            _ => None,
        }
    }

    /// The names of the hooks it is addressed to; none for every hook that wants its kind.
    pub fn addressed_to(&self) -> Option<&[String]> {
        match self {
            EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => alert.hooks.as_deref(),
            EventData::Digest(digest) => digest.hooks.as_deref(),
            _ => None,
        }
    }

    /// Reads the `data` of an event of this kind as the outbox stores it.
    pub fn from_json(kind: EventType, json: &str) -> Result<EventData, serde_json::Error> {
        Ok(match kind {
            EventType::JobDead => EventData::JobDead(serde_json::from_str(json)?),
            EventType::JobRetried => EventData::JobRetried(serde_json::from_str(json)?),
            EventType::JobRecovered => EventData::JobRecovered(serde_json::from_str(json)?),
            EventType::JobExhausted => EventData::JobExhausted(serde_json::from_str(json)?),
            EventType::DlqDigest => EventData::Digest(serde_json::from_str(json)?),
            EventType::DlqPurged => EventData::Purged(serde_json::from_str(json)?),
            EventType::AlertFiring => EventData::AlertFiring(serde_json::from_str(json)?),
            EventType::AlertResolved => EventData::AlertResolved(serde_json::from_str(json)?),
            EventType::HookTest => EventData::HookTest(serde_json::from_str(json)?),
        })
    }
}

/// The `data` of `job.dead` and of `job.exhausted`, and an item of `sexton ls -o json`. Times are RFC 3339 in UTC, fields without a value `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobDead {
    /// The source's name.
    pub source: String,
    /// The entry's id in the DLQ.
    pub entry_id: String,
    /// The job's id.
    pub job_id: Option<String>,
    /// The task's name.
    pub task: Option<String>,
    /// The queue's name.
    pub queue: Option<String>,
    /// Why it was buried.
    pub reason: Option<String>,
    /// The exception that ended the last attempt.
    pub error: ErrorText,
    /// Failed attempts in this life of the job.
    pub attempts: u32,
    /// How often the last queue entry was handed to a worker.
    pub deliveries: u32,
    /// `same`, `mixed` or `unknown`.
    pub history: String,
    /// The fingerprint: 12 hexadecimal digits.
    pub group: String,
    /// When the job was first put on its queue.
    pub enqueued_at: Option<String>,
    /// When it was buried.
    pub died_at: Option<String>,
    /// How often this job has died, this time included.
    pub deaths: u32,
    /// How often Sexton has retried it.
    pub retries: u32,
    /// The retry rule that decides about it.
    pub rule: Option<String>,
    /// When that rule will retry it.
    pub next_retry_at: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// On request only (`include`): the framework's account of the last failure, its first 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// On request only (`include`): the recorded attempts, oldest first, one `Type: message` each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_errors: Option<Vec<String>>,
    /// On request only (`include`): the job's arguments, base64; left out above 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// Type and message of an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorText {
    /// The exception's type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The exception's message.
    pub message: Option<String>,
}

impl std::fmt::Display for ErrorText {
    /// `Type: message`, or the one that is there.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.kind, &self.message) {
            (Some(kind), Some(message)) => write!(f, "{kind}: {message}"),
            (Some(only), None) | (None, Some(only)) => f.write_str(only),
            (None, None) => Ok(()),
        }
    }
}

impl From<&ErrorInfo> for ErrorText {
    fn from(error: &ErrorInfo) -> ErrorText {
        ErrorText { kind: text(&error.kind), message: text(&error.message) }
    }
}

/// The `data` of `job.retried` and `job.recovered`: the dead letter that was retried, as `job.dead` has it, with the
/// counts after the retry, and when that was. Its fields stand beside those of the dead letter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRetry {
    /// The dead letter; `next_retry_at` is `null`.
    #[serde(flatten)]
    pub dead: JobDead,
    /// When it was put back on its queue.
    pub retried_at: Option<String>,
    /// When it was seen to have run through; `null` in `job.retried`.
    pub recovered_at: Option<String>,
}

/// The `data` of `hook.test`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookTest {
    /// The source whose ledger carried it.
    pub source: String,
    /// The hook meant.
    pub hook: String,
    /// A line for whoever reads it at the other end.
    pub summary: String,
}

/// Bytes of a traceback that an event carries at most; smallage itself keeps 8,192.
const TRACEBACK_BYTES: usize = 16 * 1024;
/// Bytes of a payload that an event carries at most; a larger one is left out.
const PAYLOAD_BYTES: usize = 64 * 1024;

/// Parts of a dead letter that leave only on request. The same switches say what a hook gets and what the outbox keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Include {
    /// The framework's account of the last failure.
    pub traceback: bool,
    /// The error of every recorded attempt.
    pub history: bool,
    /// The job's arguments.
    pub payload: bool,
}

impl Include {
    /// What either wants.
    pub fn or(self, other: Include) -> Include {
        Include {
            traceback: self.traceback || other.traceback,
            history: self.history || other.history,
            payload: self.payload || other.payload,
        }
    }
}

/// JSON of our own events and tallies, which cannot fail: their keys are texts.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("an event is made of texts, numbers and lists")
}

/// None for an empty text, which events have as `null`.
pub(crate) fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

impl JobDead {
    /// The data as the outbox stores it.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The event's data for a letter. `deaths` and `retries` are 0 until the ledger fills them in.
    pub fn of(source: &str, letter: &DeadLetter, include: Include) -> JobDead {
        use base64::Engine as _;
        JobDead {
            source: source.to_owned(),
            entry_id: letter.entry_id.clone(),
            job_id: text(&letter.job_id),
            task: text(&letter.task),
            queue: text(&letter.queue),
            reason: text(letter.reason.as_str()),
            error: ErrorText::from(&letter.error),
            attempts: letter.attempts,
            deliveries: letter.deliveries,
            history: letter.verdict.as_str().to_owned(),
            group: letter.group.0.clone(),
            enqueued_at: letter.enqueued_at.and_then(rfc3339),
            died_at: rfc3339(letter.died_at),
            deaths: 0,
            retries: 0,
            rule: None,
            next_retry_at: None,
            traceparent: letter.traceparent.clone(),
            traceback: include.traceback.then(|| {
                let kept = letter.detail.len().min(TRACEBACK_BYTES);
                String::from_utf8_lossy(&letter.detail[..kept]).into_owned()
            }),
            attempt_errors: include
                .history
                .then(|| letter.history.iter().map(|attempt| attempt.error.to_string()).collect()),
            payload: (include.payload && letter.payload.len() <= PAYLOAD_BYTES)
                .then(|| base64::engine::general_purpose::STANDARD.encode(&letter.payload)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead() -> JobDead {
        let some = |text: &str| Some(text.to_owned());
        JobDead {
            source: "orders".to_owned(),
            entry_id: "1-0".to_owned(),
            job_id: some("d40ec568"),
            task: some("send_email"),
            queue: some("default"),
            reason: some("max_attempts"),
            error: ErrorText { kind: some("ConnectionError"), message: some("timed out: \"deaths\":0,\"retries\":0") },
            attempts: 3,
            deliveries: 1,
            history: "same".to_owned(),
            group: "7c1f0e9a2b44".to_owned(),
            enqueued_at: some("2026-11-29T17:12:40.000Z"),
            died_at: some("2026-11-29T17:12:50.488Z"),
            deaths: 4,
            retries: 3,
            rule: some("dependency-flaky"),
            ..JobDead::default()
        }
    }

    fn retry(dead: JobDead, recovered_at: Option<&str>) -> Box<JobRetry> {
        let retried_at = Some("2026-11-29T17:32:50.488Z".to_owned());
        Box::new(JobRetry { dead, retried_at, recovered_at: recovered_at.map(str::to_owned) })
    }

    /// One of every kind.
    fn all() -> Vec<EventData> {
        let everything = JobDead {
            next_retry_at: Some("2026-11-29T17:22:50.488Z".to_owned()),
            traceback: Some("Traceback".to_owned()),
            attempt_errors: Some(vec!["E: x".to_owned()]),
            payload: Some("e30=".to_owned()),
            ..dead()
        };
        vec![
            EventData::JobDead(Box::new(everything.clone())),
            EventData::JobRetried(retry(everything, None)),
            EventData::JobRecovered(retry(dead(), Some("2026-11-29T17:33:00.000Z"))),
            EventData::JobRecovered(Box::default()),
            EventData::JobExhausted(Box::new(dead())),
            EventData::Digest(Box::new(Digest { source: "orders".to_owned(), ..Digest::default() })),
            EventData::Purged(Purge { source: "orders".to_owned(), ..Purge::default() }),
            EventData::AlertFiring(Box::new(Alert { source: "orders".to_owned(), ..Alert::default() })),
            EventData::AlertResolved(Box::new(Alert { source: "orders".to_owned(), ..Alert::default() })),
            EventData::HookTest(HookTest { source: "orders".to_owned(), ..HookTest::default() }),
        ]
    }

    #[test]
    fn every_kind_has_a_name_and_comes_back_from_its_json() {
        let all = all();
        for kind in EventType::ALL {
            assert_eq!(EventType::parse(kind.as_str()), Some(kind));
            assert!(all.iter().any(|data| data.kind() == kind), "{kind:?}");
        }
        for data in all {
            assert_eq!(EventData::from_json(data.kind(), &data.to_json()).unwrap(), data);
        }
    }

    #[test]
    fn what_is_about_a_job_shows_its_dead_letter_and_everything_shows_its_source() {
        for mut data in all() {
            let is_about_a_job = data.kind().as_str().starts_with("job.");
            assert_eq!(data.job().is_some(), is_about_a_job, "{data:?}");
            assert_eq!(data.job().cloned(), data.job_mut().cloned());
            if let Some(dead) = data.job_mut() {
                dead.source = "orders".to_owned();
            }
            assert_eq!(data.source(), "orders", "{data:?}");
        }
    }

    #[test]
    fn a_death_is_exactly_as_documented() {
        assert_eq!(
            EventData::JobExhausted(Box::new(dead())).to_json(),
            concat!(
                r#"{"source":"orders","entry_id":"1-0","job_id":"d40ec568","task":"send_email","queue":"default","#,
                r#""reason":"max_attempts","error":{"type":"ConnectionError","#,
                r#""message":"timed out: \"deaths\":0,\"retries\":0"},"attempts":3,"deliveries":1,"history":"same","#,
                r#""group":"7c1f0e9a2b44","enqueued_at":"2026-11-29T17:12:40.000Z","#,
                r#""died_at":"2026-11-29T17:12:50.488Z","deaths":4,"retries":3,"rule":"dependency-flaky","#,
                r#""next_retry_at":null,"traceparent":null}"#
            )
        );
        assert_eq!(EventData::JobDead(Box::new(dead())).to_json(), dead().to_json());
    }

    #[test]
    fn a_retry_is_its_dead_letter_and_two_times_more() {
        let dead_letter = dead().to_json();
        let begin = dead_letter.strip_suffix('}').unwrap();
        let retried = format!(r#"{begin},"retried_at":"2026-11-29T17:32:50.488Z","recovered_at":null}}"#);
        assert_eq!(EventData::JobRetried(retry(dead(), None)).to_json(), retried);
        let recovered = retried.replace("null}", r#""2026-11-29T17:33:00.000Z"}"#);
        assert_eq!(EventData::JobRecovered(retry(dead(), Some("2026-11-29T17:33:00.000Z"))).to_json(), recovered);
    }

    #[test]
    fn a_retry_is_read_also_where_something_is_unknown_or_missing() {
        let json = dead().to_json().replacen('{', r#"{"later":[1],"#, 1);
        let data = EventData::from_json(EventType::JobRetried, &json).unwrap();
        assert_eq!(data, EventData::JobRetried(Box::new(JobRetry { dead: dead(), ..JobRetry::default() })));
        assert!(EventData::from_json(EventType::JobRetried, r#"{"retried_at":null}"#).is_err());
    }
}
