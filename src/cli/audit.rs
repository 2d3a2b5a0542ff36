//! `sexton audit`: who, or which rule, did what.

use std::sync::Arc;

use clap::Args;
use globset::Glob;

use super::{
    exit::Failure,
    io::{Form, Io},
    ls::after,
    since::{Since, parse_since},
    source::{SourceArgs, chosen, split, store_time},
    table::{Column, Rows},
    text::{age, cut_line, line},
};
use crate::{
    ledger::TriageLedger,
    letter::Millis,
    triage::{AuditAsk, AuditItem, Cursor, Page, audit as read_audit},
};

/// Characters of a text that a table shows at most.
const LONGEST: usize = 200;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton audit
  sexton audit --since 2h
  sexton audit --entry 1795972370488-0
  sexton audit --job d40ec568-02f6-4bdc-b5f5-0f3f4f9e34b5 -o json
  sexton audit --since 2026-11-29T17:00:00Z -o jsonl | grep '\"by\":\"anna@'

Newest first, one source after the other. WHAT is retried, recovered, failing, re_died,
lost_sight, exhausted, twin_removed, removed, purged (one line for many entries), or
begun and the like for what many entries are done to. BY is a rule, or a person as
user@host. The log keeps the newest 100,000 lines or so of each source.

`-o json` has items (source, id, at, what, by, entry_id, job_id, task, detail, note,
operation) and next_cursor.";

/// Arguments of `sexton audit`.
#[derive(Args, Clone, Debug)]
pub(super) struct AuditArgs {
    #[command(flatten)]
    pub(super) at: SourceArgs,

    /// Glob on the source's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB", help_heading = "Filters")]
    source: Vec<Glob>,

    /// From when on: an age such as 2h, or a time such as 2026-11-29T17:00:00Z
    #[arg(long, value_name = "T", value_parser = parse_since, help_heading = "Filters")]
    since: Option<Since>,

    /// Only about this entry: ENTRY or SOURCE/ENTRY
    #[arg(long, value_name = "ENTRY", help_heading = "Filters")]
    entry: Option<String>,

    /// Only about this job
    #[arg(long, value_name = "JOB", help_heading = "Filters")]
    job: Option<String>,

    /// How many lines at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Paging")]
    limit: u32,

    /// List on from here: the cursor an earlier listing ended with
    #[arg(long, value_name = "CURSOR", help_heading = "Paging")]
    after: Option<String>,

    /// json: {"items":[…],"next_cursor":…}; jsonl: one item a line
    #[arg(short, long, value_enum, default_value_t = Form::Table, help_heading = "Output")]
    output: Form,
}

const COLUMNS: &[Column] = &[
    Column::whole("AGE"),
    Column::whole("WHAT"),
    Column::cut_to("BY", 12),
    Column::whole("ENTRY").gives_way(3),
    Column::cut_to("TASK", 12).gives_way(1),
    Column::cut_to("JOB", 8).gives_way(2),
    Column::cut_to("DETAIL", 20),
];

/// Lists the log.
pub(super) async fn audit(ledgers: &[Arc<dyn TriageLedger>], args: &AuditArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let mut sources = chosen(ledgers, &args.source)?;
    let mut entry = args.entry.clone();
    if let Some(text) = &args.entry {
        let (of, id) = split(ledgers, text)?;
        sources.retain(|ledger| of.iter().any(|of| of.name() == ledger.name()));
        if !sources.iter().any(|ledger| ledger.is_entry_id(id)) {
            let text = line(text);
            return Err(Failure::Usage(format!("--entry: {text:?} is no entry of a source that is being listed")));
        }
        entry = Some(id.to_owned());
    }
    let cursor = args.after.as_deref().map(|cursor| Cursor::parse(cursor, &sources)).transpose().map_err(after)?;
    let mut now = Millis(0);
    for ledger in &sources {
        now = now.max(store_time(*ledger).await?);
    }
    let ask = AuditAsk {
        since: args.since.map(|since| since.from(now)),
        entry,
        job: args.job.clone(),
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        after: cursor,
    };
    let page = read_audit(&sources, &ask).await?;
    match args.output {
        Form::Json => return Ok(io.json(&page)?),
        Form::Jsonl => page.items.iter().try_for_each(|item| io.json(item))?,
        Form::Table if page.items.is_empty() => writeln!(io.err, "no lines")?,
        Form::Table => write(&page, now, ledgers.len() > 1, io)?,
    }
    if let Some(next) = &page.next_cursor {
        io.out.flush()?;
        writeln!(io.err, "more with --after {}", line(next))?;
    }
    Ok(())
}

fn write(page: &Page<AuditItem>, now: Millis, with_source: bool, io: &mut Io<'_>) -> Result<(), Failure> {
    let mut rows = Rows::new(COLUMNS, io.screen);
    for item in &page.items {
        let cell = |text: &Option<String>| {
            text.as_deref().map_or_else(|| "-".to_owned(), |text| cut_line(text, LONGEST).into_owned())
        };
        let entry = match (&item.entry_id, with_source) {
            (Some(entry), true) => format!("{}/{}", item.source, line(entry)),
            (None, true) => item.source.clone(),
            (entry, false) => cell(entry),
        };
        let detail = match (&item.detail, &item.note) {
            (Some(detail), Some(note)) => Some(format!("{detail} ({note})")),
            (detail, note) => detail.clone().or_else(|| note.clone()),
        };
        let (what, by) = (line(&item.what).into_owned(), cut_line(&item.by, LONGEST).into_owned());
        rows.push(
            io.out,
            vec![age(now, item.time), what, by, entry, cell(&item.task), cell(&item.job_id), cell(&detail)],
        )?;
    }
    rows.write(io.out)?;
    Ok(())
}
