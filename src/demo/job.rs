//! One job of the demonstration: its record, and what becomes of an attempt at it.
//!
//! Pure: no clock, no IO, no dice. The record's format, the back-off, the history lines and the burial are smallage's;
//! the tasks and how they fail are made up.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{clock::millis, letter::Millis};

/// A record's fields in stored order, byte for byte.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The version of the record's format.
const VERSION: &str = "1";
/// What a record must have to be a job.
const REQUIRED: [&str; 6] = ["v", "id", "task", "payload", "enqueued_at", "attempt"];
/// What survives when a record is written anew for another attempt.
const OPTIONAL: [&str; 5] = ["payload_ref", "traceparent", "tracestate", "dedup", "result_ttl_ms"];
/// Bytes of a traceback that a burial keeps.
const DETAIL_BYTES: usize = 8_192;
/// Failures that the history keeps, and characters of each.
const HISTORY_LINES: usize = 10;
const HISTORY_CHARS: usize = 200;
/// A task nobody knows is handed back for this long, in case a newer worker comes; then it is buried.
const UNKNOWN_FOR: Duration = Duration::from_secs(6 * 3600);
const UNKNOWN_PAUSE: Duration = Duration::from_secs(30);

/// The things that jobs need, and which of them are down: a switch shared by whoever holds a clone.
#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    down: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Dependencies {
    /// From now on every job that needs it fails.
    pub fn break_down(&self, dependency: &'static str) {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).insert(dependency);
    }

    /// It works again.
    pub fn mend(&self, dependency: &'static str) {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).remove(dependency);
    }

    /// Whether it is down now.
    pub fn is_down(&self, dependency: &str) -> bool {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).contains(dependency)
    }
}

/// When a worker tries again, and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Failed attempts after which a job is buried; at least 1.
    pub max_attempts: u32,
    /// The pause after the first failure; doubled for every further one, ±20 %.
    pub initial_backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
}

impl Default for Policy {
    /// smallage's own defaults.
    fn default() -> Policy {
        Policy { max_attempts: 3, initial_backoff: Duration::from_secs(1), max_backoff: Duration::from_secs(300) }
    }
}

/// A job that a worker can run, as it knows it before it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runnable {
    /// The job's id.
    pub id: String,
    /// Its task, which the worker knows.
    pub task: String,
    /// Attempts that have failed before this one.
    pub attempt: u32,
    /// The key under which at most one job runs in a day.
    pub dedup: Option<String>,
}

/// What became of one attempt at a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran through.
    Done,
    /// It goes on the clock for another attempt.
    Later {
        /// Its name on the clock.
        scheduled_id: String,
        /// When it is due.
        due: Millis,
        /// The record to put back on the queue then.
        fields: Fields,
    },
    /// It goes to the DLQ.
    Buried(Fields),
}

/// The record of a new job. `number` is what its arguments are about.
pub fn record(id: &str, task: &str, number: u64, enqueued_at: Millis) -> Fields {
    let payload = format!("{{\"i\":{number},\"to\":\"user{number}@example.test\"}}");
    let trace = format!("00-{:0>32.32}-{number:016x}-01", id.replace('-', ""));
    let fields = [
        ("v", VERSION.to_owned()),
        ("id", id.to_owned()),
        ("task", task.to_owned()),
        ("payload", payload),
        ("enqueued_at", enqueued_at.0.to_string()),
        ("attempt", "0".to_owned()),
        ("traceparent", trace),
    ];
    fields.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect()
}

/// The job in `fields`, if it is one and its task is known: else an attempt at it ends without a run.
pub fn runnable(fields: &Fields) -> Option<Runnable> {
    let job = Job::read(fields).ok()?;
    TASKS.iter().any(|task| task.name == job.task).then(|| Runnable {
        id: job.id,
        task: job.task,
        attempt: job.attempt,
        dedup: value(fields, "dedup").map(|key| String::from_utf8_lossy(key).into_owned()),
    })
}

/// Makes one attempt at the job in `fields`, read from the queue stream `origin`. `dice` in 0..1 spreads the back-off.
pub fn attempt(
    fields: &Fields,
    origin: &str,
    now: Millis,
    policy: Policy,
    dependencies: &Dependencies,
    dice: f64,
) -> Outcome {
    let job = match Job::read(fields) {
        Ok(job) => job,
        Err(complaint) => return Outcome::Buried(bury(fields, "malformed", &malformed(&complaint), origin, now)),
    };
    let Some(task) = TASKS.iter().find(|task| task.name == job.task) else {
        let age = now.0.saturating_sub(job.enqueued_at);
        if age > millis(UNKNOWN_FOR) {
            return Outcome::Buried(bury(fields, "unknown_task", &job.task, origin, now));
        }
        let scheduled_id = format!("unknown:{}:{}", job.id, age / 1000);
        return later(scheduled_id, now, UNKNOWN_PAUSE, job.rewritten(job.attempt, &job.history));
    };
    let fails = task.needs.is_none_or(|dependency| dependencies.is_down(dependency));
    let Some(failure) = task.failure_of(job.attempt).filter(|_| fails) else { return Outcome::Done };
    let message = failure.message.replace('#', &job.number.to_string());
    let failed = job.attempt.saturating_add(1);
    if failed >= policy.max_attempts {
        let detail = traceback(task, failure, &message);
        return Outcome::Buried(bury(fields, "max_attempts", &detail, origin, now));
    }
    let line = format!("{}: {}: {message}", job.attempt, failure.kind).replace('\n', " ");
    let mut history = job.history.clone();
    history.push(line.chars().take(HISTORY_CHARS).collect());
    let surplus = history.len().saturating_sub(HISTORY_LINES);
    history.drain(..surplus);
    let doubled = policy.initial_backoff.saturating_mul(2_u32.saturating_pow(job.attempt)).min(policy.max_backoff);
    let pause = doubled.mul_f64(0.8 + 0.4 * dice.clamp(0.0, 1.0));
    later(format!("retry:{}:{failed}", job.id), now, pause, job.rewritten(failed, &history))
}

fn later(scheduled_id: String, now: Millis, pause: Duration, fields: Fields) -> Outcome {
    Outcome::Later { scheduled_id, due: Millis(now.0.saturating_add(millis(pause))), fields }
}

/// The record as the DLQ gets it: everything it had, then what the burial adds.
fn bury(fields: &Fields, reason: &str, detail: &str, origin: &str, now: Millis) -> Fields {
    let detail = &detail.as_bytes()[..detail.len().min(DETAIL_BYTES)];
    let mut buried = fields.clone();
    for (name, value) in [
        ("dlq_reason", reason.as_bytes()),
        ("dlq_detail", detail),
        ("dlq_source", origin.as_bytes()),
        ("dlq_deliveries", b"1"),
        ("dlq_at", now.0.to_string().as_bytes()),
    ] {
        buried.push((name.as_bytes().to_vec(), value.to_vec()));
    }
    buried
}

/// A record that makes sense.
struct Job<'a> {
    fields: &'a Fields,
    id: String,
    task: String,
    number: u64,
    enqueued_at: i64,
    attempt: u32,
    history: Vec<String>,
}

impl Job<'_> {
    /// Reads a record, or says what is wrong with it.
    fn read(fields: &Fields) -> Result<Job<'_>, String> {
        for name in REQUIRED {
            value(fields, name).ok_or_else(|| format!("stream entry is missing field '{name}'"))?;
        }
        let text = |name| String::from_utf8_lossy(value(fields, name).unwrap_or_default()).into_owned();
        if text("v") != VERSION {
            return Err(format!("unsupported envelope version '{}', expected '{VERSION}'", text("v")));
        }
        let payload: serde_json::Value = serde_json::from_str(&text("payload")).unwrap_or_default();
        Ok(Job {
            fields,
            id: text("id"),
            task: text("task"),
            number: payload["i"].as_u64().unwrap_or_default(),
            enqueued_at: text("enqueued_at").parse().map_err(|_| "enqueued_at is not a number".to_owned())?,
            attempt: text("attempt").parse().map_err(|_| "attempt is not a number".to_owned())?,
            history: text("history").lines().map(str::to_owned).collect(),
        })
    }

    /// The record for another attempt; fields that smallage does not know are dropped, as it drops them.
    fn rewritten(&self, attempt: u32, history: &[String]) -> Fields {
        let known = |name: &[u8]| REQUIRED.iter().chain(&OPTIONAL).any(|known| known.as_bytes() == name);
        let mut fields: Fields = self.fields.iter().filter(|(name, _)| known(name)).cloned().collect();
        for (name, value) in &mut fields {
            if name == b"attempt" {
                *value = attempt.to_string().into_bytes();
            }
        }
        if !history.is_empty() {
            fields.push((b"history".to_vec(), history.join("\n").into_bytes()));
        }
        fields
    }
}

fn value<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value.as_slice())
}

/// A task that workers know.
struct Task {
    name: &'static str,
    /// What it needs to run through; without one it fails always, or never if it has no failures.
    needs: Option<&'static str>,
    /// How the first attempt fails, the second, and so on round and round. `#` stands for the job's number.
    failures: &'static [Failure],
    file: &'static str,
    line: u32,
    code: &'static str,
}

impl Task {
    /// How this attempt fails, if it has to; none for a task that never does.
    fn failure_of(&self, attempt: u32) -> Option<&'static Failure> {
        let turn = usize::try_from(attempt).unwrap_or_default().checked_rem(self.failures.len())?;
        self.failures.get(turn)
    }
}

/// One way to fail.
struct Failure {
    kind: &'static str,
    message: &'static str,
}

const TASKS: [Task; 5] = [
    Task {
        name: "send_email",
        needs: Some("smtp"),
        failures: &[Failure {
            kind: "ConnectionRefusedError",
            message: "[Errno 111] Connect call failed ('smtp.example.test', 25)",
        }],
        file: "mail.py",
        line: 41,
        code: "await smtp.connect(settings.smtp_host, settings.smtp_port)",
    },
    Task {
        name: "charge_card",
        needs: Some("pay"),
        failures: &[Failure {
            kind: "TimeoutError",
            message: "POST https://pay.example.test/v1/charges/# exceeded 30s",
        }],
        file: "pay.py",
        line: 87,
        code: "await pay.charge(order.total, timeout=30)",
    },
    Task {
        name: "sync_crm",
        needs: Some("crm"),
        failures: &[
            Failure { kind: "TimeoutError", message: "crm.example.test: read timed out after 5.0s" },
            Failure { kind: "ConnectionResetError", message: "[Errno 104] Connection reset by peer" },
            Failure { kind: "RuntimeError", message: "503 Service Unavailable for url https://crm.example.test/c/#" },
        ],
        file: "crm.py",
        line: 23,
        code: "response = await crm.put(contact)",
    },
    Task {
        name: "parse_order",
        needs: None,
        failures: &[Failure { kind: "ValueError", message: "order # has no line items" }],
        file: "orders.py",
        line: 112,
        code: "raise ValueError(f\"order {order.number} has no line items\")",
    },
    Task { name: "resize_image", needs: None, failures: &[], file: "images.py", line: 1, code: "" },
];

/// What Python prints when the task fails so.
fn traceback(task: &Task, failure: &Failure, message: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"/opt/venv/lib/python3.13/site-packages/smallage/core/worker.py\", \
         line 277, in _run_one\n    value = await handler(envelope)\n            ^^^^^^^^^^^^^^^^^^^^^^^\n  File \
         \"/srv/app/{}\", line {}, in {}\n    {}\n{}: {message}\n",
        task.file, task.line, task.name, task.code, failure.kind
    )
}

/// What Python prints for a record that is no job.
fn malformed(complaint: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"/opt/venv/lib/python3.13/site-packages/smallage/core/worker.py\", \
         line 257, in _run_one\n    envelope = from_fields(record.fields)\nsmallage.core.errors.MalformedEnvelope: \
         {complaint}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "{lrs}:q:default:0";
    const NOW: Millis = Millis(1_795_972_370_488);

    fn text(fields: &Fields, name: &str) -> String {
        String::from_utf8(value(fields, name).unwrap_or_else(|| panic!("{name} is missing")).to_vec()).unwrap()
    }

    fn names(fields: &Fields) -> Vec<String> {
        fields.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn try_it(fields: &Fields, dependencies: &Dependencies) -> Outcome {
        attempt(fields, STREAM, NOW, Policy::default(), dependencies, 0.5)
    }

    /// Attempts until it is done or buried; returns the pauses in between, and the end.
    fn live(mut fields: Fields, dependencies: &Dependencies) -> (Vec<i64>, Outcome) {
        let mut pauses = Vec::new();
        loop {
            match try_it(&fields, dependencies) {
                Outcome::Later { due, fields: next, .. } => {
                    pauses.push(due.0 - NOW.0);
                    fields = next;
                }
                end => return (pauses, end),
            }
        }
    }

    #[test]
    fn a_job_fails_only_while_what_it_needs_is_down() {
        let dependencies = Dependencies::default();
        for task in ["send_email", "charge_card", "sync_crm", "resize_image"] {
            assert_eq!(try_it(&record("job", task, 1, NOW), &dependencies), Outcome::Done, "{task}");
        }
        dependencies.clone().break_down("smtp");
        assert!(matches!(try_it(&record("job", "send_email", 1, NOW), &dependencies), Outcome::Later { .. }));
        assert_eq!(try_it(&record("job", "charge_card", 1, NOW), &dependencies), Outcome::Done);
        dependencies.mend("smtp");
        assert_eq!(try_it(&record("job", "send_email", 1, NOW), &dependencies), Outcome::Done);
    }

    #[test]
    fn a_job_is_buried_after_its_last_attempt_with_all_that_a_burial_tells() {
        let dependencies = Dependencies::default();
        dependencies.break_down("pay");
        let (pauses, end) = live(record("job-7", "charge_card", 42, NOW), &dependencies);
        assert_eq!(pauses, [1_000, 2_000]);
        let Outcome::Buried(fields) = end else { panic!("{end:?}") };
        assert_eq!(
            names(&fields).join(" "),
            "v id task payload enqueued_at attempt traceparent history dlq_reason dlq_detail dlq_source dlq_deliveries \
             dlq_at"
        );
        let error = "TimeoutError: POST https://pay.example.test/v1/charges/42 exceeded 30s";
        assert_eq!(text(&fields, "attempt"), "2");
        assert_eq!(text(&fields, "history"), format!("0: {error}\n1: {error}"));
        assert_eq!(text(&fields, "dlq_reason"), "max_attempts");
        assert!(text(&fields, "dlq_detail").ends_with(&format!("\n{error}\n")));
        assert_eq!(text(&fields, "dlq_source"), STREAM);
        assert_eq!(text(&fields, "dlq_at"), NOW.0.to_string());
    }

    #[test]
    fn a_job_can_be_run_if_it_is_one_and_its_task_is_known() {
        let mut fields = record("job", "send_email", 1, NOW);
        let known = Runnable { id: "job".into(), task: "send_email".into(), attempt: 0, dedup: None };
        assert_eq!(runnable(&fields), Some(known.clone()));
        fields.push((b"dedup".to_vec(), b"order-1".to_vec()));
        assert_eq!(runnable(&fields), Some(Runnable { dedup: Some("order-1".into()), ..known }));
        assert_eq!(runnable(&record("job", "from_tomorrow", 1, NOW)), None);
        fields.retain(|(name, _)| name != b"payload");
        assert_eq!(runnable(&fields), None);
    }

    #[test]
    fn an_unhealthy_dependency_fails_in_another_way_each_time() {
        let dependencies = Dependencies::default();
        dependencies.break_down("crm");
        let (_, end) = live(record("job", "sync_crm", 3, NOW), &dependencies);
        let Outcome::Buried(fields) = end else { panic!("{end:?}") };
        assert_eq!(
            text(&fields, "history"),
            "0: TimeoutError: crm.example.test: read timed out after 5.0s\n1: ConnectionResetError: [Errno 104] \
             Connection reset by peer"
        );
        assert!(text(&fields, "dlq_detail").contains("\nRuntimeError: 503 Service Unavailable"));
    }

    #[test]
    fn a_record_that_is_no_job_is_buried_at_once_as_it_is() {
        for (name, bad, complaint) in [
            ("task", None, "missing field 'task'"),
            ("v", Some("9"), "unsupported envelope version '9'"),
            ("attempt", Some("99999999999999999999"), "attempt is not a number"),
        ] {
            let mut fields = record("job", "send_email", 1, NOW);
            match bad {
                None => fields.retain(|(field, _)| field != name.as_bytes()),
                Some(bad) => fields.iter_mut().filter(|(field, _)| field == name.as_bytes()).for_each(|(_, value)| {
                    *value = bad.as_bytes().to_vec();
                }),
            }
            fields.push((b"\xffjunk".to_vec(), b"\xff".to_vec()));
            let Outcome::Buried(buried) = try_it(&fields, &Dependencies::default()) else { panic!("{name}") };
            assert_eq!(buried[..fields.len()], fields[..]);
            assert_eq!(text(&buried, "dlq_reason"), "malformed");
            assert!(text(&buried, "dlq_detail").contains(complaint), "{complaint}");
        }
    }

    #[test]
    fn an_unknown_task_is_handed_back_for_six_hours_and_then_buried() {
        let fresh = record("job", "from_tomorrow", 1, Millis(NOW.0 - 5_000));
        let Outcome::Later { scheduled_id, due, fields } = try_it(&fresh, &Dependencies::default()) else { panic!() };
        assert_eq!((scheduled_id.as_str(), due.0 - NOW.0), ("unknown:job:5", 30_000));
        assert_eq!(fields, fresh);
        let old = record("job", "from_tomorrow", 1, Millis(NOW.0 - 6 * 3_600_000 - 1));
        let Outcome::Buried(fields) = try_it(&old, &Dependencies::default()) else { panic!() };
        assert_eq!(
            (text(&fields, "dlq_reason"), text(&fields, "dlq_detail")),
            ("unknown_task".into(), "from_tomorrow".into())
        );
    }

    #[test]
    fn backoff_is_spread_by_a_fifth_and_capped() {
        let dependencies = Dependencies::default();
        dependencies.break_down("smtp");
        let policy = Policy { max_attempts: u32::MAX, ..Policy::default() };
        for (failed, dice, expected) in [(0, 0.0, 800), (0, 1.0, 1_200), (3, 0.5, 8_000), (4_000_000, 0.5, 300_000)] {
            let job = Job::read(&record("job", "send_email", 1, NOW)).unwrap().rewritten(failed, &[]);
            let Outcome::Later { due, .. } = attempt(&job, STREAM, NOW, policy, &dependencies, dice) else { panic!() };
            assert_eq!(due.0 - NOW.0, expected, "{failed} {dice}");
        }
    }
}
