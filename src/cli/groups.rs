//! `sexton groups`: the dead letters by what they have in common.

use std::sync::Arc;

use clap::Args;

use super::{
    exit::Failure,
    filter::FilterArgs,
    io::{Form, Io},
    progress::Progress,
    source::{RuledArgs, chosen, never},
    table::{Column, Rows},
    text::{age, count, counted, cut_line, line, until},
};
use crate::{
    config::SourceConfig,
    ledger::TriageLedger,
    rule::Rules,
    triage::{GroupItem, GroupState, Groups, groups as count_groups},
};

/// Characters of an error that a table shows at most.
const LONGEST_ERROR: usize = 200;
/// Characters of any other text of a record that a table shows at most.
const LONGEST_NAME: usize = 80;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton groups
  sexton groups --newer-than 1h
  sexton groups --task 'send_*' --limit 5 -o json
  sexton groups --smallage redis://localhost:6379 --rules rules/

A group is what has task, error type and normalised message in common. The largest come
first; task, queue, reason and error are those of the newest entry. LOOP is what the
retry loop does with it: on hold until then, how many of its retries are under way, that
a rule will retry it (waiting), that a rule leaves it (left) or none matches (no rule),
that no rule may (never), or that the rules in force are not known here (-).

Every entry is looked at, in a room that does not grow with the DLQ: beyond some
thousands of groups the rarest are folded into one line, and a count that may be too low
has a + behind it.

`-o json` has items (source, group, count, at_least, first_died_at, last_died_at, task,
queue, reason, error, entry_id, rule, state, in_flight, held_until), other (groups,
entries, estimated) for what is not listed, entries, and next_cursor, which is null.";

/// Arguments of `sexton groups`.
#[derive(Args, Clone, Debug)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    pub(super) ruled: RuledArgs,

    #[command(flatten)]
    filter: FilterArgs,

    /// How many groups at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Paging")]
    limit: u16,

    /// How to show them
    #[arg(short, long, value_enum, default_value_t = Form::Table, help_heading = "Output")]
    output: Form,
}

const COLUMNS: &[Column] = &[
    Column::whole("COUNT"),
    Column::whole("GROUP"),
    Column::whole("FIRST").gives_way(3),
    Column::whole("LAST"),
    Column::whole("LOOP").gives_way(1),
    Column::cut_to("TASK", 12),
    Column::cut_to("QUEUE", 7).gives_way(4),
    Column::cut_to("REASON", 12).gives_way(2),
    Column::cut_to("ERROR", 30),
];

/// Shows the groups.
pub(super) async fn groups(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn TriageLedger>],
    rules: &Rules,
    args: &GroupsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let filter = args.filter.compile()?;
    let sources = chosen(ledgers, &args.filter.source)?;
    let mut progress = Progress::of_search(io.screen);
    let found = count_groups(&sources, &filter, rules, args.limit.into(), &mut progress.told()).await;
    progress.clear();
    let found = found?;
    match args.output {
        Form::Json => Ok(io.json(&found)?),
        Form::Jsonl => Ok(found.items.iter().try_for_each(|item| io.json(item))?),
        Form::Table if found.items.is_empty() => {
            for ledger in sources {
                let overview = ledger.overview().await.map_err(Failure::store(ledger.name()))?;
                if let Some(never) = never(configured, ledger.name(), &overview) {
                    writeln!(io.err, "no entries; {never}")?;
                    return Ok(());
                }
            }
            Ok(writeln!(io.err, "no entries")?)
        }
        Form::Table => write(&found, ledgers.len() > 1, io),
    }
}

fn write(found: &Groups, with_source: bool, io: &mut Io<'_>) -> Result<(), Failure> {
    let counts: Vec<String> = found
        .items
        .iter()
        .map(|item| format!("{}{}", count(item.count), if item.at_least { "+" } else { "" }))
        .collect();
    let width = counts.iter().map(String::len).max().unwrap_or(0).max("COUNT".len());
    let mut rows = Rows::new(COLUMNS, io.screen);
    for (item, times) in found.items.iter().zip(counts) {
        // Numbers stand to the right.
        rows.push(io.out, row(item, format!("{times:>width$}"), with_source))?;
    }
    rows.write(io.out)?;
    let other = found.other;
    if other.groups > 0 {
        let about = if other.estimated { "up to " } else { "" };
        io.out.flush()?;
        writeln!(
            io.err,
            "and {about}{} with {}{}",
            counted(other.groups, "more group", "more groups"),
            counted(other.entries, "entry", "entries"),
            if other.estimated { ": too many to be counted apart" } else { "; --limit shows more" }
        )?;
    }
    Ok(())
}

fn row(item: &GroupItem, times: String, with_source: bool) -> Vec<String> {
    let cell =
        |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| cut_line(text, LONGEST_NAME).into_owned());
    let group = line(&item.group);
    let error = item.error.to_string();
    vec![
        times,
        if with_source { format!("{}/{group}", item.source) } else { group.into_owned() },
        age(item.times.now, item.times.first),
        age(item.times.now, item.times.last),
        looped(item),
        cell(item.task.as_deref()),
        cell(item.queue.as_deref()),
        cell(item.reason.as_deref()),
        if error.is_empty() { "-".to_owned() } else { cut_line(&error, LONGEST_ERROR).into_owned() },
    ]
}

/// What the retry loop does with it, in few words.
fn looped(item: &GroupItem) -> String {
    match (item.state, item.times.held_until) {
        (GroupState::Held, Some(at)) => format!("held, {}", until(item.times.now, at)),
        (GroupState::Held, None) => "held".to_owned(),
        (GroupState::Retrying, _) => format!("{} in flight", count(item.in_flight.into())),
        (GroupState::Waiting, _) => "waiting".to_owned(),
        (GroupState::Left, _) => "left".to_owned(),
        (GroupState::NoRule, _) => "no rule".to_owned(),
        (GroupState::Never, _) => "never".to_owned(),
        (GroupState::Unknown, _) => "-".to_owned(),
    }
}
