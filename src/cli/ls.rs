//! `sexton ls`: the entries of the DLQs, newest first.

use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::{
    exit::Failure,
    filter::{FilterArgs, Found, Walk},
    io::{Io, json},
    progress::Progress,
    source::{SourceArgs, chosen, never},
    table::{Column, Rows},
    text::{age, cut_line, line},
};
use crate::{
    config::SourceConfig,
    ledger::{Ledger, RetryLedger},
    letter::Millis,
};

/// Characters of an error that a table shows at most.
const LONGEST_ERROR: usize = 200;
/// Characters of any other text of the record that a table shows at most.
const LONGEST_NAME: usize = 80;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton ls
  sexton ls --task 'send_*' --newer-than 1h
  sexton ls --error '(?i)timed? ?out' --older-than 10m -o jsonl
  sexton ls --smallage redis://localhost:6379 --limit 10

Entries are listed newest first, one source after the other in the order of the
configuration. Where there is more, a cursor is given: `--after CURSOR` lists on
from there, whatever came or went meanwhile.";

/// Arguments of `sexton ls`.
#[derive(Args, Clone, Debug)]
pub(super) struct LsArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    #[command(flatten)]
    filter: FilterArgs,

    /// How many entries at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Paging")]
    limit: u64,

    /// List on from here: the cursor an earlier listing ended with
    #[arg(long, value_name = "CURSOR", conflicts_with = "offset", help_heading = "Paging")]
    after: Option<String>,

    /// Skip this many matching entries. Shifts while entries come and go, so pages may overlap or miss some; prefer
    /// --after
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Paging")]
    offset: u64,

    /// json: {"items":[…],"next_cursor":…}, items with the fields of the job.dead event; jsonl: one item a line
    #[arg(short, long, value_enum, default_value_t = Form::Table, help_heading = "Output")]
    output: Form,
}

/// How entries are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Table,
    /// One document.
    Json,
    /// One item a line.
    Jsonl,
}

/// Lists entries.
pub(super) async fn ls(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn RetryLedger>],
    args: &LsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let filter = args.filter.compile()?;
    let sources = chosen(ledgers, &args.filter.source)?;
    let start = match &args.after {
        Some(cursor) => Cursor::parse(cursor, &sources)?,
        None => Cursor { source: 0, before: None },
    };
    let mut listing = Listing::new(args.output, ledgers.len() > 1, io)?;
    let mut progress = Progress::new(filter.is_selective());
    let (mut skip, mut left, mut scanned) = (args.offset, args.limit, 0);
    let (mut before, mut empty) = (start.before, Vec::new());
    for (number, ledger) in sources.iter().enumerate().skip(start.source) {
        // Asked first because the answer brings the store's time, by which ages are counted.
        let overview = ledger.overview().await.map_err(Failure::store(ledger.name()))?;
        let entries = overview.entries;
        empty.extend(never(configured, ledger.name(), &overview));
        let mut walk = Walk::new(*ledger, &filter, ledger.clock().now(), before.take());
        while let Some(found) = walk.next().await.map_err(Failure::store(ledger.name()))? {
            let skipped = skip.min(found.len() as u64);
            skip -= skipped;
            let mut wanted: Vec<Found> =
                found.into_iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).collect();
            let room = usize::try_from(left).unwrap_or(usize::MAX);
            let more_here = wanted.len() > room || !walk.ended();
            wanted.truncate(room);
            left -= wanted.len() as u64;
            fill_in(*ledger, &mut wanted).await?;
            if !wanted.is_empty() {
                progress.clear(io)?;
            }
            for entry in &wanted {
                listing.entry(ledger.clock().now(), entry, io)?;
            }
            if left == 0 {
                progress.clear(io)?;
                let next = match wanted.last() {
                    Some(last) if more_here => Some(format!("{}/{}", ledger.name(), last.job.entry_id)),
                    _ => sources.get(number + 1).map(|next| format!("{}/", next.name())),
                };
                return listing.end(next, &empty, io);
            }
            progress.show(ledger.name(), scanned + walk.scanned, entries, io)?;
        }
        scanned += walk.scanned;
    }
    progress.clear(io)?;
    listing.end(None, &empty, io)
}

/// Deaths and retries as the ledger knows them; of a record without a job id only this death is known.
async fn fill_in(ledger: &dyn Ledger, found: &mut [Found]) -> Result<(), Failure> {
    for found in found.iter_mut().filter(|found| found.job.job_id.is_none()) {
        found.job.deaths = 1;
    }
    let ids: Vec<String> = found.iter().filter_map(|found| found.job.job_id.clone()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let counts = ledger.jobs(&ids).await.map_err(Failure::store(ledger.name()))?;
    let known = found.iter_mut().filter(|found| found.job.job_id.is_some());
    for (found, counts) in known.zip(counts) {
        found.job.deaths = counts.deaths;
        found.job.retries = counts.retries;
    }
    Ok(())
}

/// Where a listing goes on: `source/entry`, after that entry, or `source/`, at that source's newest. Opaque to users.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    /// Number of the source among those listed.
    source: usize,
    /// Only entries older than this one.
    before: Option<String>,
}

impl Cursor {
    fn parse(text: &str, sources: &[&dyn RetryLedger]) -> Result<Cursor, Failure> {
        let bad = |why: &str| Failure::Usage(format!("--after: {:?} {why}", line(text)));
        let no_cursor = || bad("is not a cursor of an earlier listing");
        let (name, entry) = text.split_once('/').ok_or_else(no_cursor)?;
        let source = sources.iter().position(|ledger| ledger.name() == name).ok_or_else(|| match sources {
            [only] => bad(&format!("is not of the only source being listed, which is called {}", only.name())),
            _ => bad("is of a source that is not being listed"),
        })?;
        if !entry.is_empty() && !sources[source].is_entry_id(entry) {
            return Err(no_cursor());
        }
        Ok(Cursor { source, before: (!entry.is_empty()).then(|| entry.to_owned()) })
    }
}

// The error gets what room there is: a narrow terminal loses the other columns first.
const COLUMNS: &[Column] = &[
    Column::whole("AGE"),
    Column::whole("ENTRY"),
    Column::cut_to("TASK", 12),
    Column::cut_to("QUEUE", 7).gives_way(3),
    Column::cut_to("REASON", 12).gives_way(1),
    Column::whole("GROUP").gives_way(2),
    Column::cut_to("ERROR", 30),
];

/// Entries on their way out.
enum Listing {
    Table { rows: Rows, with_source: bool, any: bool },
    Json { any: bool },
    Jsonl,
}

impl Listing {
    fn new(form: Form, with_source: bool, io: &mut Io<'_>) -> Result<Listing, Failure> {
        Ok(match form {
            Form::Table => Listing::Table { rows: Rows::new(COLUMNS, io.screen), with_source, any: false },
            Form::Json => {
                io.out.write_all(b"{\"items\":[")?;
                Listing::Json { any: false }
            }
            Form::Jsonl => Listing::Jsonl,
        })
    }

    fn entry(&mut self, now: Millis, found: &Found, io: &mut Io<'_>) -> Result<(), Failure> {
        match self {
            Listing::Table { rows, with_source, any } => {
                *any = true;
                rows.push(io.out, row(now, found, *with_source))?;
            }
            Listing::Json { any } => {
                io.out.write_all(if *any { b",\n" } else { b"\n" })?;
                *any = true;
                json(io.out, &found.job)?;
            }
            Listing::Jsonl => io.json(&found.job)?,
        }
        Ok(())
    }

    /// `empty` says of each source where nothing ever was that it is one.
    fn end(self, next: Option<String>, empty: &[String], io: &mut Io<'_>) -> Result<(), Failure> {
        match self {
            Listing::Table { any: false, .. } if empty.is_empty() => writeln!(io.err, "no entries")?,
            Listing::Table { any: false, .. } => {
                for empty in empty {
                    writeln!(io.err, "no entries; {empty}")?;
                }
            }
            Listing::Table { mut rows, .. } => {
                rows.write(io.out)?;
                hint(next, io)?;
            }
            Listing::Json { any } => {
                io.out.write_all(if any { b"\n],\"next_cursor\":" } else { b"],\"next_cursor\":" })?;
                json(io.out, &next)?;
                io.out.write_all(b"}\n")?;
            }
            Listing::Jsonl => hint(next, io)?,
        }
        Ok(())
    }
}

fn hint(next: Option<String>, io: &mut Io<'_>) -> Result<(), Failure> {
    if let Some(next) = next {
        io.out.flush()?;
        writeln!(io.err, "more with --after {}", line(&next))?;
    }
    Ok(())
}

fn row(now: Millis, found: &Found, with_source: bool) -> Vec<String> {
    let job = &found.job;
    let error = job.error.to_string();
    let cell =
        |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| cut_line(text, LONGEST_NAME).into_owned());
    let entry = line(&job.entry_id);
    let entry = if with_source { format!("{}/{entry}", job.source) } else { entry.into_owned() };
    vec![
        age(now, found.died_at),
        entry,
        cell(job.task.as_deref()),
        cell(job.queue.as_deref()),
        cell(job.reason.as_deref()),
        cell(Some(&job.group)),
        if error.is_empty() { "-".to_owned() } else { cut_line(&error, LONGEST_ERROR).into_owned() },
    ]
}
