//! `sexton show`: everything about one entry.

use std::{borrow::Cow, sync::Arc};

use clap::{Args, ValueEnum};

use super::{
    attempts::{LONGEST_ERROR, heading, in_words, write_lives},
    exit::Failure,
    io::Io,
    payload,
    source::{SourceArgs, find, split, store_time},
    text::{count, counted, cut_line, line, when},
};
use crate::{
    ledger::TriageLedger,
    letter::Millis,
    triage::{Detail, Shown, lives_of},
};

/// Characters of a name or value in the record, where it is only glanced at.
const LONGEST_GLIMPSE: usize = 100;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton show 1795972370488-0
  sexton show orders/1795972370488-0
  sexton show 1795972370488-0 -o json | jq .fields

The payload is shown as what it is: JSON laid out, MessagePack as JSON, text, else its
bytes. Control characters and invisible ones are written out (\\x1b, \\u{202e}).

`-o json` has the fields of the job.dead event with traceback, attempt_errors and
payload (base64), traceback_cut, error_from_history, payload_form (empty, json, msgpack,
text, bytes), payload_bytes (its size), payload_text (what can be read of it, as a text;
left out for bytes), and in fields the record exactly as stored: names and values are
texts where they are UTF-8, else {\"base64\": …}.";

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
pub(super) async fn show(ledgers: &[Arc<dyn TriageLedger>], args: &ShowArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let (sources, entry) = split(ledgers, &args.entry)?;
    if !sources.iter().any(|ledger| ledger.is_entry_id(entry)) {
        return Err(Failure::Usage(format!(
            "{:?} is no entry: write ENTRY or SOURCE/ENTRY as `sexton ls` lists them",
            line(&args.entry)
        )));
    }
    let Some((ledger, raw)) = find(ledgers, &args.entry).await? else {
        return Err(Failure::Failed(format!("there is no entry {}", line(&args.entry))));
    };
    let shown = Shown::of(ledger, raw).await?;
    match args.output {
        Output::Json => io.json(&shown.exact(true))?,
        Output::Text => write(io, store_time(ledger).await?, &shown)?,
    }
    Ok(())
}

fn write(io: &mut Io<'_>, now: Millis, shown: &Shown) -> Result<(), Failure> {
    let Shown { source, raw, counts } = shown;
    let letter = &raw.letter;
    let out = &mut *io.out;
    writeln!(out, "{source}/{}", line(&letter.entry_id))?;
    let retried = counted(counts.retries.into(), "retry", "retries");
    let deaths = match counts.deaths {
        _ if letter.job_id.is_empty() => "no job id, so its deaths cannot be counted".to_owned(),
        0 => "not counted by Sexton yet".to_owned(),
        deaths => format!("{} so far, {retried} by Sexton", count(deaths.into())),
    };
    let delivered = counted(letter.deliveries.into(), "delivery", "deliveries");
    let attempts = match letter.foreign {
        // Only its own framework knows.
        true => "not known of a foreign entry".to_owned(),
        false => counted(letter.attempts.into(), "failed attempt", "failed attempts"),
    };
    let detail = Detail::of(letter);
    let error = cut_line(&letter.error.to_string(), LONGEST_ERROR).into_owned();
    let error = match detail.why_lost() {
        Some(why) => format!("{error}\n{:14}(from the history: {why})", ""),
        None => error,
    };
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
        ("error", Cow::Owned(error)),
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
    let lives = lives_of(letter);
    if lives.iter().any(|life| !life.is_empty()) {
        writeln!(out, "\nAttempts")?;
        write_lives(out, &lives)?;
    }
    if !letter.detail.is_empty() {
        writeln!(out, "\n{}", heading(detail, letter.detail.len()))?;
        out.write_all(payload::shown_text(&String::from_utf8_lossy(&letter.detail)).as_bytes())?;
    }
    let (form, payload) = payload::shown(&letter.payload);
    let size = counted(letter.payload.len() as u64, "byte", "bytes");
    writeln!(out, "\nPayload ({size}, {})", payload::name(form))?;
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
