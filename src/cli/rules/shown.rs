//! What a trial of rules has found, as it is shown.

use serde::Serialize;

use super::{
    tally::{Group, Tally},
    trial::{Trial, Tried, Verdict},
};
use crate::{
    cli::{
        exit::Failure,
        io::Io,
        show::Output,
        table::{Column, Rows},
        text::{count, counted, cut_line, line, until},
    },
    event::{ErrorText, rfc3339, text},
    letter::Millis,
    rule::Action,
};

/// Groups of each rule that the text shows.
const TOP: usize = 3;
/// Groups of each rule in JSON.
const TOP_JSON: usize = 10;
/// Characters of a group's sample.
const LONGEST_SAMPLE: usize = 120;

const COLUMNS: &[Column] = &[
    Column::whole("RULE"),
    Column::whole("ACTION"),
    Column::whole("ENTRIES"),
    Column::whole("JOBS").gives_way(2),
    Column::whole("SPENT").gives_way(1),
    Column::whole("DUE NOW"),
    Column::whole("FIRST DUE"),
];

/// Shows it.
pub(super) fn write(trial: &Trial<'_>, output: Output, io: &mut Io<'_>) -> Result<(), Failure> {
    match output {
        Output::Json => Ok(io.json(&Document::of(trial))?),
        Output::Text => write_text(trial, io),
    }
}

/// Rules always have a row; what no rule decides about has one if there is any of it.
fn shown<'t, 'r>(trial: &'t Trial<'r>) -> impl Iterator<Item = (Verdict<'r>, &'t Tally)> {
    let shown = |(verdict, tally): &&(Verdict<'_>, Tally)| matches!(verdict, Verdict::Rule(_)) || tally.entries > 0;
    trial.rows.iter().filter(shown).map(|(verdict, tally)| (*verdict, tally))
}

fn name(verdict: Verdict<'_>) -> String {
    match verdict {
        Verdict::Rule(rule) => rule.name.clone(),
        Verdict::NoRule => "no rule".to_owned(),
        Verdict::Never(never) => format!("never: {}", never.as_str()),
    }
}

fn action(verdict: Verdict<'_>) -> &'static str {
    match verdict {
        Verdict::Rule(rule) => match &rule.action {
            Action::Retry(_) => "retry",
            Action::Leave => "leave",
        },
        Verdict::NoRule | Verdict::Never(_) => "none",
    }
}

fn write_text(trial: &Trial<'_>, io: &mut Io<'_>) -> Result<(), Failure> {
    let cells: Vec<[String; 7]> = shown(trial).map(|(verdict, tally)| cells(verdict, tally, trial.now)).collect();
    let width = |n: usize, head: &str| cells.iter().map(|row| row[n].len()).max().unwrap_or(0).max(head.len());
    let widths = [0, 0, width(2, "ENTRIES"), width(3, "JOBS"), width(4, "SPENT"), width(5, "DUE NOW"), 0];
    let mut rows = Rows::new(COLUMNS, io.screen);
    for row in &cells {
        // Numbers stand to the right.
        let row = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        rows.push(io.out, row)?;
    }
    if !cells.is_empty() {
        rows.write(io.out)?;
    }
    for (verdict, tally) in shown(trial).filter(|(_, tally)| tally.entries > 0) {
        let (groups, more) = tally.groups.largest(TOP);
        let about = if tally.groups.are_estimated() { "~" } else { "" };
        let none_large = groups.is_empty();
        writeln!(io.out, "\n{}", line(&name(verdict)))?;
        for Group { group, count: entries, task, error, .. } in groups {
            let sample = [task.clone(), error.to_string()].into_iter().filter(|text| !text.is_empty());
            let sample = sample.collect::<Vec<_>>().join(": ");
            let (entries, sample) = (format!("{about}{}", count(*entries)), cut_line(&sample, LONGEST_SAMPLE));
            let shown = format!("  {entries:>8}  group {}  {sample}", line(group));
            writeln!(io.out, "{}", shown.trim_end())?;
        }
        match tally.groups.are_estimated() {
            true if none_large => writeln!(io.out, "            many groups, none of them large")?,
            true => writeln!(io.out, "            and many more groups")?,
            false if more > 0 => writeln!(io.out, "            and {}", counted(more, "more group", "more groups"))?,
            false => {}
        }
    }
    let Totals { entries, retry, due_now, spent, stay } = Totals::of(trial);
    if !cells.is_empty() {
        writeln!(io.out)?;
    }
    writeln!(
        io.out,
        "{}: {} to be retried, {} of them due now; {} with no retry left; {} that no rule retries",
        counted(entries, "entry", "entries"),
        count(retry),
        count(due_now),
        count(spent),
        count(stay)
    )?;
    for Tried { source, in_force, without_rules, never, .. } in &trial.sources {
        let note = match (in_force, without_rules) {
            (true, true) => "no rules are in force, and none were given",
            (true, false) => "these rules are in force",
            (false, true) => "these rules are not in force: no leader has adopted any",
            (false, false) => "these rules are not in force: the leader works by others",
        };
        writeln!(io.out, "{}: {note}", line(source))?;
        if let Some(never) = never {
            writeln!(io.err, "{}: {never}", line(source))?;
        }
    }
    Ok(())
}

fn cells(verdict: Verdict<'_>, tally: &Tally, now: Millis) -> [String; 7] {
    let retries = action(verdict) == "retry";
    let of_retry = |text: String| if retries { text } else { "-".to_owned() };
    let (jobs, estimated) = tally.jobs();
    [
        line(&name(verdict)).into_owned(),
        action(verdict).to_owned(),
        count(tally.entries),
        format!("{}{}", if estimated { "~" } else { "" }, count(jobs)),
        of_retry(count(tally.spent)),
        of_retry(count(tally.due_now)),
        tally.first_due.map_or_else(|| "-".to_owned(), |at| until(now, at)),
    ]
}

/// What becomes of all of them.
#[derive(Debug, Serialize)]
struct Totals {
    entries: u64,
    /// A rule retries them, now or later.
    retry: u64,
    /// Those of them that are due now.
    due_now: u64,
    /// Their jobs have had all the retries that their rule grants.
    spent: u64,
    /// Left, matched by no rule, or never to be retried.
    stay: u64,
}

impl Totals {
    fn of(trial: &Trial<'_>) -> Totals {
        let sum = |of: fn(&Tally) -> u64| trial.rows.iter().map(|(_, tally)| of(tally)).sum::<u64>();
        let (entries, spent) = (sum(|tally| tally.entries), sum(|tally| tally.spent));
        let retried = trial.rows.iter().filter(|(verdict, _)| action(*verdict) == "retry");
        let of_retry_rules: u64 = retried.map(|(_, tally)| tally.entries).sum();
        Totals {
            entries,
            retry: of_retry_rules - spent,
            due_now: sum(|tally| tally.due_now),
            spent,
            stay: entries - of_retry_rules,
        }
    }
}

#[derive(Serialize)]
struct Document<'t> {
    items: Vec<Item<'t>>,
    totals: Totals,
    sources: Vec<SourceShown<'t>>,
}

#[derive(Serialize)]
struct Item<'t> {
    /// None where no rule decides.
    rule: Option<String>,
    /// `retry`, `leave` or `none`.
    action: &'static str,
    /// Why no rule decides: `no_rule`, `malformed`, `foreign_stream` or `shed`.
    why: Option<&'static str>,
    entries: u64,
    jobs: u64,
    jobs_estimated: bool,
    spent: u64,
    due_now: u64,
    first_due: Option<String>,
    groups: Vec<GroupShown<'t>>,
    groups_estimated: bool,
}

#[derive(Serialize)]
struct GroupShown<'t> {
    group: &'t str,
    count: u64,
    task: Option<String>,
    error: &'t ErrorText,
}

#[derive(Serialize)]
struct SourceShown<'t> {
    source: &'t str,
    scanned: u64,
    rules_in_force: bool,
}

impl<'t> Document<'t> {
    fn of(trial: &'t Trial<'_>) -> Document<'t> {
        let source = |tried: &'t Tried| SourceShown {
            source: &tried.source,
            scanned: tried.scanned,
            rules_in_force: tried.in_force,
        };
        Document {
            items: shown(trial).map(|(verdict, tally)| Item::of(verdict, tally)).collect(),
            totals: Totals::of(trial),
            sources: trial.sources.iter().map(source).collect(),
        }
    }
}

impl<'t> Item<'t> {
    fn of(verdict: Verdict<'_>, tally: &'t Tally) -> Item<'t> {
        let (jobs, jobs_estimated) = tally.jobs();
        let group = |group: &'t Group| GroupShown {
            group: &group.group,
            count: group.count,
            task: text(&group.task),
            error: &group.error,
        };
        let (rule, why) = match verdict {
            Verdict::Rule(rule) => (Some(rule.name.clone()), None),
            Verdict::NoRule => (None, Some("no_rule")),
            Verdict::Never(never) => (None, Some(never.as_str())),
        };
        Item {
            rule,
            action: action(verdict),
            why,
            entries: tally.entries,
            jobs,
            jobs_estimated,
            spent: tally.spent,
            due_now: tally.due_now,
            first_due: tally.first_due.and_then(rfc3339),
            groups: tally.groups.largest(TOP_JSON).0.into_iter().map(group).collect(),
            groups_estimated: tally.groups.are_estimated(),
        }
    }
}
