//! Dead letters as smallage writes them: realistic ones by the thousand, recorded ones byte for byte, and rubbish.

use redis::{Pipeline, RedisResult, Value, aio::MultiplexedConnection};

/// The fields of one entry, in stream order, byte for byte.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The DLQ of a namespace.
pub(crate) fn dlq(namespace: &str) -> String {
    format!("{{{namespace}}}:dlq")
}

/// Entries sent in one go.
const PIPELINED: usize = 1_000;
/// When the letters made here were buried: 2026-11-29T17:12:50Z and later.
const DIED_AT: u64 = 1_795_972_370_000;

/// The failures that letters made here died of: task, error type, message with `#` for a number, module path and line.
const FAILURES: [(&str, &str, &str, &str); 5] = [
    ("send_email", "ConnectionError", "smtp.example.test:25 timed out after 10.0s", "mail/send.py"),
    ("charge_card", "TimeoutError", "POST https://pay.example.test/v1/charges/# exceeded 30s", "pay/charge.py"),
    ("sync_crm", "RuntimeError", "503 Service Unavailable for url https://crm.example.test/c/#", "crm/sync.py"),
    ("parse_order", "ValueError", "order # has no line items", "orders/parse.py"),
    (
        "ship_parcel",
        "asyncpg.exceptions.DeadlockDetectedError",
        "deadlock detected\nDETAIL:  Process # waits",
        "ship.py",
    ),
];

/// The `n`th realistic letter: about 1 KB, another job each, tasks and errors and the order of fields varied.
pub(crate) fn letter(namespace: &str, n: u64) -> Fields {
    letter_at(namespace, n, DIED_AT + n)
}

/// The same, buried at this time (in milliseconds).
pub(crate) fn letter_at(namespace: &str, n: u64, died_at: u64) -> Fields {
    let (task, kind, message, file) = FAILURES[usize::try_from(n % 5).expect("below five")];
    let message = message.replace('#', &(n * 7 + 1).to_string());
    let line = message.replace('\n', " ");
    let short = kind.rsplit('.').next().unwrap_or(kind);
    let detail = format!(
        "Traceback (most recent call last):\n  File \"/opt/venv/lib/python3.13/site-packages/smallage/core/worker.py\", \
         line 277, in _run_one\n    value = await handler(envelope)\n            ^^^^^^^^^^^^^^^^^^^^^^^\n  File \
         \"/srv/app/{file}\", line 52, in {task}\n    await client.request(order, timeout=settings.timeout)\n  File \
         \"/srv/app/client.py\", line 118, in request\n    raise self.translate(exc)\n{kind}: {message}\n"
    );
    let payload = format!("{{\"i\":{n},\"to\":\"user{n}@example.test\",\"note\":\"{}\"}}", "x".repeat(40));
    let mut fields: Vec<(&str, String)> = vec![
        ("v", "1".to_owned()),
        ("id", job_id(n)),
        ("task", task.to_owned()),
        ("payload", payload),
        ("enqueued_at", (died_at - 1_500).to_string()),
        ("attempt", "2".to_owned()),
        ("traceparent", format!("00-{n:032x}-{n:016x}-01")),
        ("history", format!("0: {short}: {line}\n1: {short}: {line}")),
    ];
    // Field order varies in the real thing, but what the burial adds always comes last.
    let len = fields.len();
    fields.rotate_left(usize::try_from(n).unwrap_or(0) % len);
    fields.extend([
        ("dlq_reason", "max_attempts".to_owned()),
        ("dlq_detail", detail),
        ("dlq_source", format!("{{{namespace}}}:q:default:0")),
        ("dlq_deliveries", "1".to_owned()),
        ("dlq_at", died_at.to_string()),
    ]);
    fields.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect()
}

/// The job id of the `n`th realistic letter; looks like a random UUID.
pub(crate) fn job_id(n: u64) -> String {
    // The golden ratio's bits spread neighbouring numbers over the whole range, one to one.
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [high, low] = [spread >> 32, spread & 0xffff_ffff];
    format!("{high:08x}-{:04x}-4{:03x}-8{:03x}-{low:012x}", n & 0xffff, (n >> 16) & 0xfff, (n >> 28) & 0xfff)
}

/// Appends one entry with these fields; returns its id.
pub(crate) async fn bury(con: &mut MultiplexedConnection, namespace: &str, fields: &Fields) -> String {
    bury_as(con, namespace, "*", fields).await
}

/// Appends one entry under an id of the caller's choice.
pub(crate) async fn bury_as(con: &mut MultiplexedConnection, namespace: &str, id: &str, fields: &Fields) -> String {
    let written = redis::cmd("XADD").arg(dlq(namespace)).arg(id).arg(fields).query_async(con).await;
    written.expect("the entry can be appended")
}

/// Appends the realistic letters of these numbers, many in one go; returns their ids in order.
pub(crate) async fn bury_many(
    con: &mut MultiplexedConnection,
    namespace: &str,
    numbers: std::ops::Range<u64>,
) -> Vec<String> {
    bury_all(con, namespace, numbers.map(|n| letter(namespace, n))).await
}

/// Appends letters, many in one go; returns their ids in order.
pub(crate) async fn bury_all(
    con: &mut MultiplexedConnection,
    namespace: &str,
    letters: impl Iterator<Item = Fields>,
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut letters = letters.peekable();
    while letters.peek().is_some() {
        let mut pipe = Pipeline::new();
        for letter in letters.by_ref().take(PIPELINED) {
            pipe.cmd("XADD").arg(dlq(namespace)).arg("*").arg(letter);
        }
        let written: RedisResult<Vec<String>> = pipe.query_async(con).await;
        ids.extend(written.expect("the letters can be appended"));
    }
    ids
}

/// One entry as a real smallage wrote it, or as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its stream id.
    pub(crate) id: String,
    /// Its fields.
    pub(crate) fields: Fields,
}

/// The entries in `tests/records/smallage-dlq.jsonl`, oldest first.
pub(crate) fn recorded() -> Vec<Entry> {
    include_str!("../../records/smallage-dlq.jsonl")
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a record is one line of JSON");
            let pairs = line["fields"].as_array().expect("a record has fields");
            let id = line["entry_id"].as_str().expect("a record has an id").to_owned();
            Entry { id, fields: pairs.iter().map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect() }
        })
        .collect()
}

/// A text is its bytes; what is not UTF-8 stands as `{"base64": …}`.
fn bytes(value: &serde_json::Value) -> Vec<u8> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    match value.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => STANDARD.decode(value["base64"].as_str().expect("text or base64")).expect("valid base64"),
    }
}

/// Appends the recorded entries under their own ids. The DLQ must not hold anything newer.
pub(crate) async fn bury_recorded(con: &mut MultiplexedConnection, namespace: &str) -> Vec<Entry> {
    let entries = recorded();
    for entry in &entries {
        bury_as(con, namespace, &entry.id, &entry.fields).await;
    }
    entries
}

/// An entry nobody should have written.
#[derive(Clone, Debug)]
pub(crate) struct Rubbish {
    /// What is wrong with it.
    pub(crate) what: &'static str,
    /// The id to append it under: `*`, or one that is the point.
    pub(crate) id: &'static str,
    /// Its fields.
    pub(crate) fields: Fields,
}

/// Rubbish of every kind, to be buried in this order: the last ones carry ids of the far future.
pub(crate) fn rubbish(namespace: &str) -> Vec<Rubbish> {
    let whole = letter(namespace, 0);
    let names: Vec<&'static str> = vec![
        "v",
        "id",
        "task",
        "payload",
        "enqueued_at",
        "attempt",
        "traceparent",
        "history",
        "dlq_reason",
        "dlq_detail",
        "dlq_source",
        "dlq_deliveries",
        "dlq_at",
    ];
    let mut all = Vec::new();
    let mut add = |what, fields: Fields| all.push(Rubbish { what, id: "*", fields });
    for &name in &names {
        add("a field is missing", whole.iter().filter(|(field, _)| field != name.as_bytes()).cloned().collect());
        add("a field is empty", with(&whole, name, b""));
        add("a field is 1 MB long", with(&whole, name, &vec![b'x'; 1 << 20]));
        add("a field is not UTF-8", with(&whole, name, b"\xff\xfe\x00\x80"));
        add("a field is NUL bytes", with(&whole, name, &[0; 16]));
        let mut doubled = whole.clone();
        doubled.push((name.as_bytes().to_vec(), b"another".to_vec()));
        add("a field comes twice", doubled);
    }
    for name in ["enqueued_at", "attempt", "dlq_deliveries", "dlq_at"] {
        for number in [
            "-1",
            "1.5",
            "1e400",
            " 7 ",
            "0x10",
            "٣",
            "4294967296",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "-9223372036854775809",
            "99999999999999999999999999999999",
        ] {
            add("a number overflows or is none", with(&whole, name, number.as_bytes()));
        }
        add("a number has a million digits", with(&whole, name, &vec![b'9'; 1_000_000]));
    }
    for date in ["253402300800000", "32503680000000000"] {
        add("a date of the far future", with(&whole, "dlq_at", date.as_bytes()));
        add("a date of the far future", with(&whole, "enqueued_at", date.as_bytes()));
    }
    add("nothing but junk", vec![(b"\xff\xfename".to_vec(), b"\x01\x02\xff".to_vec())]);
    add("an empty name and value", vec![(Vec::new(), Vec::new())]);
    add("a name 1 MB long", vec![(vec![b'n'; 1 << 20], b"value".to_vec())]);
    add("thousands of fields", (0..5_000).map(|n| (format!("f{n}").into_bytes(), vec![b'v'])).collect());
    add("a history of many empty lines", with(&whole, "history", &vec![b'\n'; 10_000]));
    add("a history that is no history", with(&whole, "history", "::\n7:\n: x: y\n☕".as_bytes()));
    add("a traceback of line ends only", with(&whole, "dlq_detail", b"\r\n\n\r\n"));
    add("a source with odd braces", with(&whole, "dlq_source", b"{}:q::"));
    add("control characters in the task", with(&whole, "task", "a\u{1b}[31m\n\u{202e}b\0".as_bytes()));
    for id in ["32503680000000-0", "9007199254740993-5", "9223372036854775808-18446744073709551614"] {
        all.push(Rubbish { what: "an id of the far future", id, fields: whole.clone() });
    }
    all
}

/// The fields with the value of one of them replaced.
pub(crate) fn with(fields: &Fields, name: &str, value: &[u8]) -> Fields {
    let replaced = fields.iter().map(|(field, old)| {
        let value = if field == name.as_bytes() { value.to_vec() } else { old.clone() };
        (field.clone(), value)
    });
    replaced.collect()
}

/// Appends all rubbish; returns the ids in order.
pub(crate) async fn bury_rubbish(con: &mut MultiplexedConnection, namespace: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for item in rubbish(namespace) {
        ids.push(bury_as(con, namespace, item.id, &item.fields).await);
    }
    ids
}

/// Every entry of the DLQ, oldest first, byte for byte.
pub(crate) async fn dug_up(con: &mut MultiplexedConnection, namespace: &str) -> Vec<Entry> {
    let reply: RedisResult<Value> = redis::cmd("XRANGE").arg(dlq(namespace)).arg("-").arg("+").query_async(con).await;
    array(reply.expect("the DLQ can be read"))
        .into_iter()
        .map(|entry| {
            let mut parts = array(entry).into_iter();
            let id = String::from_utf8(text(parts.next())).expect("an id is ASCII");
            let mut values = array(parts.next().unwrap_or(Value::Nil)).into_iter();
            let mut fields = Vec::new();
            while let Some(name) = values.next() {
                fields.push((text(Some(name)), text(values.next())));
            }
            Entry { id, fields }
        })
        .collect()
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        other => panic!("not an array: {other:?}"),
    }
}

fn text(value: Option<Value>) -> Vec<u8> {
    match value {
        Some(Value::BulkString(bytes)) => bytes,
        other => panic!("not a string: {other:?}"),
    }
}
