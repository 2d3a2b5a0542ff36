//! `sexton ls`: the entries of the DLQs, newest first.

use std::sync::Arc;

use clap::Args;

use super::{
    exit::Failure,
    filter::FilterArgs,
    io::{Form, Io, json},
    progress::Progress,
    source::{SourceArgs, chosen, never},
    table::{Column, Rows},
    text::{age, cut_line, line},
};
use crate::{
    config::SourceConfig,
    ledger::TriageLedger,
    letter::Millis,
    rule::Rules,
    triage::{self, Ask, Cursor, Listed, Listing},
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

/// Lists entries. `rules` are those that may be in force; none if they are not known.
pub(super) async fn ls(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn TriageLedger>],
    rules: &Rules,
    args: &LsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let filter = args.filter.compile()?;
    let sources = chosen(ledgers, &args.filter.source)?;
    let after = args.after.as_deref().map(|cursor| Cursor::parse(cursor, &sources)).transpose().map_err(after)?;
    let mut listing = Listing::new(&sources, &filter, rules, Ask { limit: args.limit, after, offset: args.offset });
    let mut written = Written::new(args.output, ledgers.len() > 1, io)?;
    let mut progress = Progress::of_search(io.screen);
    while let Some(found) = listing.next().await? {
        let now = listing.now();
        progress.aside(|| found.iter().try_for_each(|entry| written.entry(now, entry, io)))?;
        if let Some(come) = listing.progress().filter(|_| filter.is_selective()) {
            progress.show(come.source, come.looked_at, come.entries);
        }
    }
    progress.clear();
    let empty: Vec<String> =
        listing.overviews().iter().filter_map(|(source, overview)| never(configured, source, overview)).collect();
    written.end(listing.next_cursor(), &empty, io)
}

/// A cursor that is none is the command line's fault.
pub(super) fn after(error: triage::Error) -> Failure {
    match error {
        triage::Error::Cursor(..) => Failure::Usage(format!("--after: {error}")),
        error => error.into(),
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
enum Written {
    Table { rows: Rows, with_source: bool, any: bool },
    Json { any: bool },
    Jsonl,
}

impl Written {
    fn new(form: Form, with_source: bool, io: &mut Io<'_>) -> Result<Written, Failure> {
        Ok(match form {
            Form::Table => Written::Table { rows: Rows::new(COLUMNS, io.screen), with_source, any: false },
            Form::Json => {
                io.out.write_all(b"{\"items\":[")?;
                Written::Json { any: false }
            }
            Form::Jsonl => Written::Jsonl,
        })
    }

    fn entry(&mut self, now: Millis, found: &Listed, io: &mut Io<'_>) -> Result<(), Failure> {
        match self {
            Written::Table { rows, with_source, any } => {
                *any = true;
                rows.push(io.out, row(now, found, *with_source))?;
            }
            Written::Json { any } => {
                io.out.write_all(if *any { b",\n" } else { b"\n" })?;
                *any = true;
                json(io.out, &found.job)?;
            }
            Written::Jsonl => io.json(&found.job)?,
        }
        Ok(())
    }

    /// `empty` says of each source where nothing ever was that it is one.
    fn end(self, next: Option<&str>, empty: &[String], io: &mut Io<'_>) -> Result<(), Failure> {
        match self {
            Written::Table { any: false, .. } if empty.is_empty() => writeln!(io.err, "no entries")?,
            Written::Table { any: false, .. } => {
                for empty in empty {
                    writeln!(io.err, "no entries; {empty}")?;
                }
            }
            Written::Table { mut rows, .. } => {
                rows.write(io.out)?;
                hint(next, io)?;
            }
            Written::Json { any } => {
                io.out.write_all(if any { b"\n],\"next_cursor\":" } else { b"],\"next_cursor\":" })?;
                json(io.out, &next)?;
                io.out.write_all(b"}\n")?;
            }
            Written::Jsonl => hint(next, io)?,
        }
        Ok(())
    }
}

fn hint(next: Option<&str>, io: &mut Io<'_>) -> Result<(), Failure> {
    if let Some(next) = next {
        io.out.flush()?;
        writeln!(io.err, "more with --after {}", line(next))?;
    }
    Ok(())
}

fn row(now: Millis, found: &Listed, with_source: bool) -> Vec<String> {
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
