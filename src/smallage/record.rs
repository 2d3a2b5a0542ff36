//! From a DLQ record of smallage to a dead letter.
//!
//! Pure, and never fails: what cannot be read is left empty.

use super::Keys;
use crate::letter::{
    Account, Attempt, DeadLetter, ErrorInfo, Group, Millis, Reason, Verdict, bounded_text, conclude, hex, last_life,
};

/// Characters kept of texts that go into events.
const TEXT_CHARS: usize = 512;
/// Bytes of a trace context; a longer one is none.
const TRACEPARENT_BYTES: usize = 256;
/// How far `dlq_at` may lie after the entry id's time. Both are one Redis server's time, taken one after the other;
/// a day forgives a clock that was set back in between.
const DIED_AFTER_ID_MS: i64 = 24 * 3600 * 1000;
/// Entry ids before 2001-09-09 were given by hand and say nothing about time.
const FIRST_CLOCK_MS: i64 = 1_000_000_000_000;
/// The last millisecond of the year 9999.
const LAST_CALENDAR_MS: i64 = 253_402_300_799_999;

/// The names of the fields that are looked at; of the others nothing is read.
pub(super) const LOOKED_AT: [&str; 13] = [
    "id",
    "task",
    "payload",
    "enqueued_at",
    "attempt",
    "traceparent",
    "dedup",
    "history",
    "dlq_reason",
    "dlq_detail",
    "dlq_source",
    "dlq_deliveries",
    "dlq_at",
];

/// The fields that are looked at, as recorded.
#[derive(Default)]
struct Fields {
    id: Vec<u8>,
    task: Vec<u8>,
    payload: Vec<u8>,
    enqueued_at: Vec<u8>,
    attempt: Vec<u8>,
    traceparent: Vec<u8>,
    dedup: Vec<u8>,
    history: Vec<u8>,
    dlq_reason: Vec<u8>,
    dlq_detail: Vec<u8>,
    dlq_source: Vec<u8>,
    dlq_deliveries: Vec<u8>,
    dlq_at: Vec<u8>,
}

impl Fields {
    fn pick(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Fields {
        let mut picked = Fields::default();
        for (name, value) in fields {
            let field = match name.as_slice() {
                b"id" => &mut picked.id,
                b"task" => &mut picked.task,
                b"payload" => &mut picked.payload,
                b"enqueued_at" => &mut picked.enqueued_at,
                b"attempt" => &mut picked.attempt,
                b"traceparent" => &mut picked.traceparent,
                b"dedup" => &mut picked.dedup,
                b"history" => &mut picked.history,
                b"dlq_reason" => &mut picked.dlq_reason,
                b"dlq_detail" => &mut picked.dlq_detail,
                b"dlq_source" => &mut picked.dlq_source,
                b"dlq_deliveries" => &mut picked.dlq_deliveries,
                b"dlq_at" => &mut picked.dlq_at,
                _ => continue,
            };
            *field = value;
        }
        picked
    }

    /// What smallage itself wrote at the burial; the rest of a foreign entry is not its.
    fn of_burial(self) -> Fields {
        Fields {
            dlq_reason: self.dlq_reason,
            dlq_detail: self.dlq_detail,
            dlq_deliveries: self.dlq_deliveries,
            dlq_at: self.dlq_at,
            ..Fields::default()
        }
    }
}

/// What a record weighs: bytes of its names and values.
pub(super) fn weight(fields: &[(Vec<u8>, Vec<u8>)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Decodes one record of the DLQ.
///
/// Of a field that is there more than once the last counts, as it does for smallage's own workers. An entry is foreign
/// if `dlq_source` names a stream that is none of the namespace's queues; then only the `dlq_*` fields are read, and
/// whatever the foreign fields are called, they are not taken for a job's.
///
/// Texts that go into events are kept to 512 characters, the error's message to 2,000. A job id of more than 512 bytes is
/// shortened to its beginning and a digest, so that it still tells jobs apart. `detail`, `payload`, `origin` and `dedup`
/// are kept whole, and moved.
pub fn decode(keys: &Keys, entry_id: &str, fields: Vec<(Vec<u8>, Vec<u8>)>) -> DeadLetter {
    let mut fields = Fields::pick(fields);
    let origin = text(std::mem::take(&mut fields.dlq_source));
    let queue = keys.queue_of(&origin);
    let foreign = queue.is_none() && !origin.is_empty();
    let fields = if foreign { fields.of_burial() } else { fields };

    let reason = Reason::parse(&bounded_text(&fields.dlq_reason, TEXT_CHARS));
    let task = bounded_text(&fields.task, TEXT_CHARS);
    let history = Attempt::read_lines(&fields.history);
    let attempt = number(&fields.attempt);
    let life = last_life(&history, (!fields.attempt.is_empty()).then_some(attempt));
    let (error, verdict) = failure(&reason, &task, &fields.dlq_detail, life);
    DeadLetter {
        entry_id: entry_id.to_owned(),
        job_id: job_id(&fields.id),
        group: Group::of(&task, &error),
        task,
        queue: bounded_text(queue.unwrap_or(&origin).as_bytes(), TEXT_CHARS),
        attempts: match reason {
            // `attempt` counts the failures before the last one.
            Reason::MaxAttempts if !foreign => attempt.saturating_add(1),
            _ => attempt,
        },
        reason,
        error,
        detail: fields.dlq_detail,
        deliveries: number(&fields.dlq_deliveries),
        history,
        verdict,
        enqueued_at: time(&fields.enqueued_at),
        died_at: died_at(&fields.dlq_at, entry_id),
        traceparent: traceparent(&fields.traceparent),
        payload: fields.payload,
        dedup: Some(text(fields.dedup)).filter(|key| !key.is_empty()),
        origin,
        foreign,
    }
}

/// The error and the verdict. Only where attempts were used up does `detail` tell of a failed attempt; in the other
/// cases it says what smallage found, and the verdict is the history's alone.
fn failure(reason: &Reason, task: &str, detail: &[u8], history: &[Attempt]) -> (ErrorInfo, Verdict) {
    match reason {
        Reason::MaxAttempts | Reason::Other(_) => conclude(Account::read(detail), history),
        Reason::MaxDeliveries | Reason::Malformed => (Account::read(detail).error, Verdict::over(history, None)),
        Reason::UnknownTask => {
            let named = bounded_text(detail, TEXT_CHARS);
            let task = if named.trim().is_empty() { task } else { named.trim() };
            let message = format!("no worker knows the task {task:?}");
            (ErrorInfo { kind: String::new(), message }, Verdict::over(history, None))
        }
    }
}

/// The whole text, without a copy where it is UTF-8.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn job_id(bytes: &[u8]) -> String {
    if bytes.len() <= TEXT_CHARS {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(bytes);
    format!("{}{}", bounded_text(bytes, 64), hex(&digest[..16]))
}

/// A count; 0 where it is none, the highest where it is higher.
fn number(bytes: &[u8]) -> u32 {
    match digits(bytes) {
        Some(text) => text.parse().unwrap_or(u32::MAX),
        None => 0,
    }
}

/// A time in milliseconds that a calendar holds.
fn time(bytes: &[u8]) -> Option<Millis> {
    let ms = digits(bytes)?.parse().ok()?;
    (1..=LAST_CALENDAR_MS).contains(&ms).then_some(Millis(ms))
}

fn digits(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// `dlq_at` if it can be, else the entry id's time.
fn died_at(dlq_at: &[u8], entry_id: &str) -> Millis {
    let id_ms = entry_id.split('-').next().and_then(|ms| ms.parse::<i64>().ok()).unwrap_or(0);
    match time(dlq_at) {
        Some(at) if id_ms < FIRST_CLOCK_MS || at.0 <= id_ms.saturating_add(DIED_AFTER_ID_MS) => at,
        _ => Millis(id_ms),
    }
}

fn traceparent(bytes: &[u8]) -> Option<String> {
    let plain = (1..=TRACEPARENT_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    plain.then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::{super::records, *};
    use crate::event::{Include, JobDead};

    fn keys() -> Keys {
        Keys::new("lrs").unwrap()
    }

    fn decoded(id: &str, fields: &[(&str, &[u8])]) -> DeadLetter {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect();
        decode(&keys(), id, fields)
    }

    /// Entry id; queue; task; reason; error type; message, or its beginning if it ends with `…`; verdict; attempts.
    type Expected =
        (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str, u32);

    const MALFORMED: &str = "smallage.core.errors.MalformedEnvelope";
    const SMTP: &str = "smtp.example.test:25 timed out after 10.0s";
    const CRM: &str = "crm.example.test: read timed out after 5.0s";

    #[rustfmt::skip]
    const RECORDS: [Expected; 25] = [
        ("1795973237917-0", "default", "", "malformed", MALFORMED, "stream entry is missing field 'task'", "unknown", 0),
        ("1795973238720-0", "default", "gone_task", "unknown_task", "", "no worker knows the task \"gone_task\"", "unknown", 0),
        ("1795973239920-0", "default", "ok", "max_deliveries", "", "delivered 4 times", "unknown", 0),
        ("1795973241252-0", "partner:events", "", "max_deliveries", "", "delivered 4 times", "unknown", 0),
        ("1795973242803-0", "default", "deep", "max_attempts", "ConnectionError", "upstream reset the connection", "same", 3),
        ("1795973244144-0", "default", "group", "max_attempts", "ExceptionGroup",
            "unhandled errors in a TaskGroup (2 sub-exceptions)\nKeyError: 'sku'\nTimeoutError: shard 1 did not answer in 5s", "same", 3),
        ("1795973245356-0", "default", "chained", "max_attempts", "TimeoutError",
            "stock lookup timed out after 30s\nsee the runbook: stock-lookup", "same", 3),
        ("1795973246562-0", "default", "binary", "max_attempts", "ValueError", "naïve café ☕ \u{202e} payload ééé…", "same", 3),
        ("1795973249423-0", "default", "parse_order", "max_attempts", "ValueError", "order 0 has no line items", "same", 3),
        ("1795973249423-1", "default", "send_email", "max_attempts", "ConnectionError", SMTP, "same", 3),
        ("1795973249423-2", "default", "send_email", "max_attempts", "ConnectionError", SMTP, "same", 3),
        ("1795973249424-0", "default", "sync_crm", "max_attempts", "ConnectionResetError", "[Errno 104] Connection reset by peer", "mixed", 3),
        ("1795973249427-0", "default", "charge_card", "max_attempts", "TimeoutError", "POST https://pay.example.test/v1/charges/28289 exceeded 30s", "same", 3),
        ("1795973249427-1", "default", "charge_card", "max_attempts", "TimeoutError", "POST https://pay.example.test/v1/charges/28109 exceeded 30s", "same", 3),
        ("1795973249626-0", "default", "parse_order", "max_attempts", "ValueError", "order 3 has no line items", "same", 3),
        ("1795973249627-0", "default", "parse_order", "max_attempts", "ValueError", "order 1 has no line items", "same", 3),
        ("1795973249627-1", "default", "parse_order", "max_attempts", "ValueError", "order 2 has no line items", "same", 3),
        ("1795973249628-0", "default", "charge_card", "max_attempts", "TimeoutError", "POST https://pay.example.test/v1/charges/3982 exceeded 30s", "same", 3),
        ("1795973249628-1", "default", "send_email", "max_attempts", "ConnectionError", SMTP, "same", 3),
        ("1795973249628-2", "default", "sync_crm", "max_attempts", "TimeoutError", CRM, "mixed", 3),
        ("1795973249628-3", "default", "sync_crm", "max_attempts", "TimeoutError", CRM, "same", 3),
        ("1795973249628-4", "default", "send_email", "max_attempts", "ConnectionError", SMTP, "same", 3),
        ("1795973249628-5", "default", "charge_card", "max_attempts", "TimeoutError", "POST https://pay.example.test/v1/charges/24844 exceeded 30s", "same", 3),
        ("1795973249628-6", "default", "sync_crm", "max_attempts", "TimeoutError", CRM, "mixed", 3),
        ("1795973255826-0", "default", "send_email", "max_attempts", "ConnectionError", SMTP, "unknown", 1),
    ];

    #[test]
    fn every_real_record_is_read() {
        let records = records::all();
        assert_eq!(records.len(), RECORDS.len());
        for ((id, fields), expected) in records.into_iter().zip(RECORDS) {
            let letter = decode(&keys(), &id, fields);
            let mut message = letter.error.message.as_str();
            if let Some(start) = expected.5.strip_suffix('…') {
                assert!(message.len() > 200 && message.starts_with(start), "{id}: {message}");
                message = expected.5;
            }
            let (queue, task, reason) = (letter.queue.as_str(), letter.task.as_str(), letter.reason.as_str());
            let (kind, verdict) = (letter.error.kind.as_str(), letter.verdict.as_str());
            let found = (id.as_str(), queue, task, reason, kind, message, verdict, letter.attempts);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_bytes_of_real_records_are_kept_and_their_groups_found() {
        let mut groups = BTreeMap::<(String, String), BTreeSet<Group>>::new();
        for (id, fields) in records::all() {
            let of = |name: &str| fields.iter().find(|(n, _)| n == name.as_bytes()).map(|(_, value)| value.clone());
            let letter = decode(&keys(), &id, fields.clone());
            assert_eq!(Some(&letter.detail), of("dlq_detail").as_ref(), "{id}");
            assert_eq!(letter.payload, of("payload").unwrap_or_default(), "{id}");
            assert_eq!(Some(letter.origin.into_bytes()), of("dlq_source"), "{id}");
            assert_eq!(letter.died_at.0.to_string().into_bytes(), of("dlq_at").unwrap(), "{id}");
            assert_eq!(letter.dedup.map(String::into_bytes), of("dedup"), "{id}");
            assert_eq!(letter.traceparent.map(String::into_bytes), of("traceparent"), "{id}");
            assert_eq!(letter.foreign, letter.queue == "partner:events", "{id}");
            let enqueued = letter.enqueued_at.map(|at| at.0.to_string().into_bytes());
            assert_eq!(enqueued, of("enqueued_at"), "{id}");
            groups.entry((letter.task, letter.error.kind)).or_default().insert(letter.group);
        }
        // Each pair of task and error type in the records fails in one way of its own.
        assert_eq!(groups.len(), 13);
        assert!(groups.values().all(|of_pair| of_pair.len() == 1), "{groups:?}");
        assert_eq!(groups.values().flatten().collect::<BTreeSet<_>>().len(), 13);
    }

    #[test]
    fn a_foreign_entrys_own_fields_are_not_a_jobs() {
        let letter = decoded(
            "1795973241252-0",
            &[
                ("id", b"7"),
                ("task", b"invoice"),
                ("payload", b"x"),
                ("attempt", b"9"),
                ("history", b"0: A: x\n1: A: x"),
                ("dedup", b"k"),
                ("traceparent", b"00-1"),
                ("enqueued_at", b"1795973241000"),
                ("dlq_reason", b"max_attempts"),
                ("dlq_detail", b"Traceback (most recent call last):\nRefused: no\n"),
                ("dlq_source", b"partner:events"),
                ("dlq_deliveries", b"4"),
                ("dlq_at", b"1795973241251"),
            ],
        );
        assert!(letter.foreign);
        assert_eq!((letter.queue.as_str(), letter.origin.as_str()), ("partner:events", "partner:events"));
        assert_eq!((letter.job_id.as_str(), letter.task.as_str(), letter.attempts), ("", "", 0));
        assert_eq!((letter.deliveries, letter.died_at), (4, Millis(1_795_973_241_251)));
        assert_eq!(letter.error.to_string(), "Refused: no");
        assert!(letter.history.is_empty() && letter.payload.is_empty());
        assert_eq!((letter.dedup, letter.traceparent, letter.enqueued_at), (None, None, None));
    }

    #[test]
    fn the_verdict_is_about_this_life_of_the_job() {
        let verdict = |attempt: &[u8], history: &[u8]| {
            let detail = b"Traceback (most recent call last):\nValueError: order 7 has no line items\n";
            let fields: [(&str, &[u8]); 5] = [
                ("task", b"parse_order"),
                ("attempt", attempt),
                ("history", history),
                ("dlq_reason", b"max_attempts"),
                ("dlq_detail", detail),
            ];
            decoded("1795973241252-0", &fields).verdict
        };
        let put_back = b"0: TimeoutError: smtp\n1: TimeoutError: smtp\n0: ValueError: order 7 has no line items\n1: ValueError: order 7 has no line items";
        assert_eq!(verdict(b"2", put_back), Verdict::Same);
        assert_eq!(verdict(b"0", b"0: TimeoutError: smtp\n1: TimeoutError: smtp"), Verdict::Unknown);
        assert_eq!(verdict(b"2", b"0: TimeoutError: smtp\n1: TimeoutError: smtp"), Verdict::Mixed);
    }

    #[test]
    fn an_entry_without_fields_is_a_letter_too() {
        for id in ["1795973241252-0", "", "-", "x-y", "99999999999999999999-0"] {
            let letter = decoded(id, &[]);
            assert!(!letter.foreign, "nothing says that it came from elsewhere");
            assert_eq!(letter.entry_id, id);
            assert_eq!((letter.reason.as_str(), letter.reason.label()), ("", "other"));
            assert_eq!(letter.verdict, Verdict::Unknown);
            assert_eq!(letter.group.0.len(), 12);
        }
        assert_eq!(decoded("1795973241252-0", &[]).died_at, Millis(1_795_973_241_252));
    }

    #[test]
    fn of_a_doubled_field_the_last_counts() {
        let letter =
            decoded("1-0", &[("task", b"a"), ("dlq_source", b"x"), ("task", b"b"), ("dlq_source", b"{lrs}:q:c:0")]);
        assert_eq!((letter.task.as_str(), letter.queue.as_str(), letter.foreign), ("b", "c", false));
    }

    #[test]
    fn numbers_that_are_none_are_not_believed() {
        for (text, expected) in [
            ("3", 3),
            (" 3 ", 3),
            ("0", 0),
            ("4294967295", u32::MAX),
            ("4294967296", u32::MAX),
            ("99999999999999999999999999", u32::MAX),
            ("-1", 0),
            ("+1", 0),
            ("1e3", 0),
            ("", 0),
            ("\u{ff11}", 0),
        ] {
            let attempts =
                |reason: &[u8]| decoded("1-0", &[("attempt", text.as_bytes()), ("dlq_reason", reason)]).attempts;
            assert_eq!(attempts(b"malformed"), expected, "{text}");
            assert_eq!(attempts(b"max_attempts"), expected.saturating_add(1), "{text}");
            assert_eq!(decoded("1-0", &[("dlq_deliveries", text.as_bytes())]).deliveries, expected, "{text}");
        }
    }

    #[test]
    fn times_that_cannot_be_are_not_believed() {
        const ID: i64 = 1_795_973_241_252;
        for (id, dlq_at, expected) in [
            ("1795973241252-0", "1795973241251", ID - 1),
            ("1795973241252-7", "1700000000000", 1_700_000_000_000),
            ("1795973241252-0", "1796000000000", 1_796_000_000_000),
            ("1795973241252-0", "1796073241252", ID),
            ("1795973241252-0", "99999999999999999999", ID),
            ("1795973241252-0", "9223372036854775807", ID),
            ("1795973241252-0", "0", ID),
            ("1795973241252-0", "-5", ID),
            ("1795973241252-0", "soon", ID),
            ("1795973241252", "", ID),
            ("5-1", "1795973241251", ID - 1),
            ("5-1", "", 5),
            ("18446744073709551615-1", "1795973241251", ID - 1),
            ("18446744073709551615-1", "", 0),
            ("", "", 0),
        ] {
            assert_eq!(decoded(id, &[("dlq_at", dlq_at.as_bytes())]).died_at, Millis(expected), "{id} {dlq_at}");
        }
        for (enqueued_at, expected) in [
            ("1795973241252", Some(ID)),
            ("253402300799999", Some(LAST_CALENDAR_MS)),
            ("253402300800000", None),
            ("0", None),
            ("-1", None),
            ("", None),
        ] {
            let letter = decoded("1-0", &[("enqueued_at", enqueued_at.as_bytes())]);
            assert_eq!(letter.enqueued_at, expected.map(Millis), "{enqueued_at}");
        }
    }

    #[test]
    fn only_where_attempts_were_used_up_the_detail_tells_of_one() {
        let history = b"0: A: x\n1: A: x";
        for (reason, detail, error, verdict) in [
            ("max_deliveries", "delivered 4 times", "delivered 4 times", "same"),
            ("unknown_task", "gone", "no worker knows the task \"gone\"", "same"),
            ("unknown_task", " ", "no worker knows the task \"task\"", "same"),
            ("malformed", "Traceback (most recent call last):\nBad: y\n", "Bad: y", "same"),
            ("max_attempts", "Traceback (most recent call last):\nBad: y\n", "Bad: y", "mixed"),
            ("max_attempts", "", "A: x", "same"),
            ("poisoned", "Traceback (most recent call last):\nBad: y\n", "Bad: y", "mixed"),
        ] {
            let letter = decoded(
                "1-0",
                &[
                    ("task", b"task"),
                    ("history", history),
                    ("dlq_reason", reason.as_bytes()),
                    ("dlq_detail", detail.as_bytes()),
                    ("dlq_source", b"{lrs}:q:default:0"),
                ],
            );
            assert_eq!((letter.error.to_string().as_str(), letter.verdict.as_str()), (error, verdict), "{reason}");
            assert_eq!(letter.reason.as_str(), reason);
        }
    }

    #[test]
    fn a_huge_record_makes_a_small_event() {
        let names = [
            "id",
            "task",
            "enqueued_at",
            "attempt",
            "traceparent",
            "dedup",
            "history",
            "dlq_reason",
            "dlq_detail",
            "dlq_source",
            "dlq_deliveries",
            "dlq_at",
            "other",
        ];
        for filler in ["x", "\u{ff}", "x y\n"] {
            let huge = filler.repeat((1 << 20) / filler.len());
            let mut fields: Vec<_> = names.iter().map(|name| (*name, huge.as_bytes())).collect();
            fields.push((huge.as_str(), b"x"));
            let letter = decoded("1-0", &fields);
            assert_eq!((letter.detail.len(), letter.origin.len()), (huge.len(), huge.len()));
            let event = JobDead::of("orders", &letter, Include { history: true, ..Include::default() });
            let size = serde_json::to_string(&event).unwrap().len();
            assert!(size < 150_000, "{size}");
            let event = JobDead::of("orders", &letter, Include::default());
            let size = serde_json::to_string(&event).unwrap().len();
            assert!(size < 16_000, "{size}");
        }
    }

    #[test]
    fn job_ids_stay_exact_or_at_least_apart() {
        for id in ["d40ec568-1b2c", "é ☕", &"x".repeat(TEXT_CHARS)] {
            assert_eq!(decoded("1-0", &[("id", id.as_bytes())]).job_id, id);
        }
        let long = |end: &str| decoded("1-0", &[("id", format!("{}{end}", "x".repeat(TEXT_CHARS)).as_bytes())]).job_id;
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
        assert!(long("a").len() < 128);
    }

    /// The names that are looked at, and others.
    fn fields() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let name = prop_oneof![
            4 => prop::sample::select(vec![
                "v", "id", "task", "payload", "enqueued_at", "attempt", "traceparent", "dedup", "history", "dlq_reason",
                "dlq_detail", "dlq_source", "dlq_deliveries", "dlq_at",
            ]).prop_map(|name| name.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
        ];
        let value = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            any::<i128>().prop_map(|n| n.to_string().into_bytes()),
            "(max_attempts|max_deliveries|unknown_task|malformed|new)".prop_map(String::into_bytes),
            "(\\{lrs\\}:q:[a-z:]{0,9}|partner:events)".prop_map(String::into_bytes),
            "(Traceback \\(most recent call last\\):\n(  [a-z]{1,9}\n){0,3})?([A-Z][a-z]{1,9}: .{0,40}\n?){0,3}"
                .prop_map(String::into_bytes),
            "([0-9]{1,2}: [A-Z][a-z]{1,9}: .{0,40}\n?){0,4}".prop_map(String::into_bytes),
        ];
        prop::collection::vec((name, value), 0..20)
    }

    proptest! {
        #[test]
        fn decoding_never_fails_and_is_bounded(id in "([0-9]{1,22}(-[0-9]{1,22})?|.{0,20})", fields in fields()) {
            let letter = decode(&keys(), &id, fields.clone());
            prop_assert_eq!(&decode(&keys(), &id, fields), &letter, "decoding is a function");
            prop_assert_eq!(letter.group.0.len(), 12);
            prop_assert!(!letter.foreign || letter.job_id.is_empty() && letter.task.is_empty());
            let event = JobDead::of("orders", &letter, Include { traceback: true, history: true, payload: true });
            prop_assert!(serde_json::to_string(&event).is_ok());
        }
    }
}
