//! `sexton show`: everything about one entry.

use std::{borrow::Cow, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{
    errors::{attempts_of, in_words, write_attempts},
    exit::Failure,
    io::Io,
    payload::{shown, shown_text},
    source::{SourceArgs, find, store_time},
    text::{count, counted, cut_line, line, when},
};
use crate::{
    event::{Include, JobDead},
    ledger::{JobCounts, Ledger, RawLetter},
    letter::Millis,
};

/// Characters of an error.
const LONGEST_ERROR: usize = 2_000;
/// Characters of a name or value in the record, where it is only glanced at.
const LONGEST_GLIMPSE: usize = 100;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton show 1795972370488-0
  sexton show orders/1795972370488-0
  sexton show 1795972370488-0 -o json | jq .fields

Control characters and invisible ones are written out (\\x1b, \\u{202e}). `-o json`
has the fields of the job.dead event with traceback, attempts and payload (base64),
and in `fields` the record exactly as stored: names and values are texts where they
are UTF-8, else {\"base64\": …}.";

/// Arguments of `sexton show`.
#[derive(Args, Clone, Debug)]
pub(super) struct ShowArgs {
    /// The entry, as `ls` lists it: ENTRY or SOURCE/ENTRY
    entry: String,

    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// Output of the commands that show one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// One document.
    Json,
}

/// Shows an entry.
pub(super) async fn show(ledgers: &[Arc<dyn Ledger>], args: &ShowArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let Some((ledger, raw)) = find(ledgers, &args.entry).await? else {
        return Err(Failure::Failed(format!("there is no entry {}", line(&args.entry))));
    };
    let ids = [raw.letter.job_id.clone()];
    let counts = if ids[0].is_empty() {
        JobCounts::default()
    } else {
        ledger.jobs(&ids).await.map_err(Failure::store(ledger.name()))?.first().copied().unwrap_or_default()
    };
    match args.output {
        Output::Json => io.json(&Exact::of(ledger.name(), &raw, counts))?,
        Output::Text => write(io, ledger.name(), store_time(ledger).await?, &raw, counts)?,
    }
    Ok(())
}

fn write(io: &mut Io<'_>, source: &str, now: Millis, raw: &RawLetter, counts: JobCounts) -> Result<(), Failure> {
    let letter = &raw.letter;
    let out = &mut *io.out;
    writeln!(out, "{source}/{}", line(&letter.entry_id))?;
    let retried = counted(counts.retries.into(), "retry", "retries");
    let deaths = match counts.deaths {
        0 => "not counted by Sexton yet".to_owned(),
        deaths => format!("{} so far, {retried} by Sexton", count(deaths.into())),
    };
    let delivered = counted(letter.deliveries.into(), "delivery", "deliveries");
    let attempts = counted(letter.attempts.into(), "failed attempt", "failed attempts");
    let origin = match (letter.origin.is_empty(), letter.foreign) {
        (true, _) => Cow::Borrowed(""),
        (false, false) => line(&letter.origin),
        (false, true) => Cow::Owned(format!("{} (a foreign stream: it cannot be put back)", line(&letter.origin))),
    };
    let fields: [(&str, Cow<'_, str>); 14] = [
        ("job", line(&letter.job_id)),
        ("task", line(&letter.task)),
        ("queue", line(&letter.queue)),
        ("reason", line(letter.reason.as_str())),
        ("error", Cow::Owned(cut_line(&letter.error.to_string(), LONGEST_ERROR).into_owned())),
        ("group", line(&letter.group.0)),
        ("attempts", Cow::Owned(format!("{attempts}, {delivered} of the last queue entry"))),
        ("history", Cow::Borrowed(in_words(letter.verdict))),
        ("deaths", Cow::Owned(deaths)),
        ("enqueued", Cow::Owned(letter.enqueued_at.map_or_else(String::new, |at| when(now, at)))),
        ("died", Cow::Owned(when(now, letter.died_at))),
        ("origin", origin),
        ("dedup key", line(letter.dedup.as_deref().unwrap_or(""))),
        ("traceparent", line(letter.traceparent.as_deref().unwrap_or(""))),
    ];
    for (name, value) in fields {
        writeln!(out, "  {name:<12}{}", if value.is_empty() { "-" } else { &value })?;
    }
    writeln!(out, "\nAttempts")?;
    write_attempts(out, &attempts_of(letter))?;
    if !letter.detail.is_empty() {
        writeln!(out, "\nTraceback ({})", counted(letter.detail.len() as u64, "byte", "bytes"))?;
        out.write_all(shown_text(&String::from_utf8_lossy(&letter.detail)).as_bytes())?;
    }
    let (form, payload) = shown(&letter.payload);
    let size = counted(letter.payload.len() as u64, "byte", "bytes");
    writeln!(out, "\nPayload ({size}, {})", form.as_str())?;
    out.write_all(payload.as_bytes())?;
    let bytes: usize = raw.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    let fields = counted(raw.fields.len() as u64, "field", "fields");
    writeln!(out, "\nRecord ({fields}, {})", counted(bytes as u64, "byte", "bytes"))?;
    for (name, value) in &raw.fields {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        writeln!(out, "  {:<15} {}", cut_line(&name, LONGEST_GLIMPSE), cut_line(&value, LONGEST_GLIMPSE))?;
    }
    Ok(())
}

/// An entry with nothing left out and nothing changed.
#[derive(Serialize)]
struct Exact<'a> {
    #[serde(flatten)]
    job: JobDead,
    fields: Vec<(Bytes<'a>, Bytes<'a>)>,
}

impl<'a> Exact<'a> {
    fn of(source: &str, raw: &'a RawLetter, counts: JobCounts) -> Exact<'a> {
        let all = Include { traceback: true, history: true, payload: true };
        let job = JobDead { deaths: counts.deaths, retries: counts.retries, ..JobDead::of(source, &raw.letter, all) };
        Exact { job, fields: raw.fields.iter().map(|(name, value)| (Bytes(name), Bytes(value))).collect() }
    }
}

/// A text where the bytes are UTF-8, else `{"base64": …}`.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return to.serialize_str(text);
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.end()
    }
}
