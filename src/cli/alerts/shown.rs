//! How alerts stand, as it is shown.

use std::collections::BTreeMap;

use crate::{
    alert::{Holds, Line},
    cli::{
        exit::Failure,
        io::Io,
        table::{Column, Rows},
        text::{age, count, counted, cut_line, line, until},
    },
    triage::{AlertFound as Found, AlertState as State, Standing},
};

/// Quiet rows of one rule that the table shows: a rule may tell hundreds of things apart.
const QUIET_ROWS: usize = 3;
/// Incidents that fire of which the text tells more, the gravest first.
const TOLD: usize = 3;
/// Groups of one incident that the text shows.
const TOP: usize = 3;
/// Characters of a group's sample.
const LONGEST_SAMPLE: usize = 120;
/// Characters of what an alert is about.
const LONGEST_LABELS: usize = 80;
/// Columns that stand beside a line.
const BESIDE_LINE: u16 = 34;

const COLUMNS: &[Column] = &[
    Column::whole("STATE"),
    Column::cut_to("ALERT", 12),
    Column::whole("SEVERITY").gives_way(3),
    Column::cut_to("ABOUT", 12).gives_way(1),
    Column::whole("SINCE").gives_way(2),
    Column::cut_to("HOW FAR", 24),
];

/// Shows one source to a person. `never` is what to say if nothing ever was there.
pub(super) fn write(standing: &Standing<'_>, never: Option<&str>, io: &mut Io<'_>) -> Result<(), Failure> {
    writeln!(io.out, "{}: {}", line(&standing.source), looked(standing))?;
    if let Some(never) = never {
        writeln!(io.err, "{}: {never}", line(&standing.source))?;
    }
    for (name, shown) in ["last hour", "24 hours"].into_iter().zip(&standing.lines) {
        if let Some((lowest, highest)) = shown.range() {
            let line = fitting(shown, io.screen.width);
            writeln!(io.out, "  {name:<9}  {line}  {} to {}", count(lowest), count(highest))?;
        }
    }
    if !standing.has_rules {
        writeln!(io.out, "  no alert rules are given for it: `rules:` in the configuration names them, or --rules")?;
    }
    let (mut rows, mut left_out) = (Rows::new(COLUMNS, io.screen), BTreeMap::<&str, (usize, u64)>::new());
    for item in &standing.items {
        let (shown, more) = left_out.entry(&item.alert).or_default();
        if item.state == State::Quiet && *shown >= QUIET_ROWS {
            *more += 1;
            continue;
        }
        *shown += usize::from(item.state == State::Quiet);
        rows.push(io.out, row(standing, item))?;
    }
    if !standing.items.is_empty() {
        writeln!(io.out)?;
        rows.write(io.out)?;
    }
    for (alert, (_, more)) in left_out.into_iter().filter(|(_, (_, more))| *more > 0) {
        writeln!(io.out, "and {} of {}, farther from firing", counted(more, "more", "more"), line(alert))?;
    }
    let told = || standing.items.iter().filter(|item| item.state == State::Firing && item.summary.is_some());
    told().take(TOLD).try_for_each(|item| tell(item, io))?;
    let more = told().count().saturating_sub(TOLD) as u64;
    if more > 0 {
        writeln!(io.out, "\nand {}: -o json tells of all", counted(more, "more that fires", "more that fire"))?;
    }
    Ok(())
}

/// How long the line is, and when somebody looked last.
fn looked(standing: &Standing<'_>) -> String {
    let leads = if standing.led { "a sidecar leads, its log says why" } else { "no sidecar leads" };
    let (Some(level), Some(at)) = (standing.level, standing.sampled_at) else {
        return format!("no sample has been taken yet ({leads})");
    };
    let (letters, ago) = (counted(level, "dead letter", "dead letters"), age(standing.now, at));
    if standing.stale {
        return format!("{letters} as of {ago} ago; nobody has looked since, and this is how it was then ({leads})");
    }
    format!("{letters}, sampled {ago} ago")
}

/// The line, in as many parts as there is room for.
fn fitting(shown: &Line, width: Option<u16>) -> Line {
    let room = width.map_or(usize::MAX, |width| usize::from(width.saturating_sub(BESIDE_LINE)).max(8));
    let together = shown.levels.len().div_ceil(room).max(1);
    let highest = |parts: &[Option<u64>]| parts.iter().copied().max().flatten();
    Line { levels: shown.levels.chunks(together).map(highest).collect() }
}

fn row(standing: &Standing<'_>, item: &Found<'_>) -> Vec<String> {
    let labels = item.labels.iter().filter(|(key, _)| *key != "source");
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key} {value}")).collect();
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    vec![
        item.state.as_str().to_owned(),
        line(&item.alert).into_owned(),
        item.severity.as_str().to_owned(),
        or_none(cut_line(&labels.join(", "), LONGEST_LABELS).into_owned()),
        item.since.map_or_else(|| "-".to_owned(), |since| age(standing.now, since)),
        how_far(standing, item),
    ]
}

/// How far it is from firing, or from its end.
fn how_far(standing: &Standing<'_>, item: &Found<'_>) -> String {
    let now = standing.now;
    let mut parts = Vec::new();
    match item.state {
        State::Resolved => {
            let lasted = item.fired_at.zip(item.resolved_at).map(|(from, to)| format!(", fired for {}", age(to, from)));
            let ago = item.resolved_at.map(|at| age(now, at)).unwrap_or_default();
            return format!("over {ago} ago{}", lasted.unwrap_or_default());
        }
        State::Firing => parts.extend(item.resolves_at.map(|at| format!("is over: resolved {}", until(now, at)))),
        State::Pending => parts.extend(item.fires_at.map(|at| format!("fires {}", until(now, at)))),
        State::Quiet => {}
    }
    let needs = item.needs.iter().map(|need| format!("{} of {} {}", need.have, need.need, need.what));
    let needs: Vec<String> = needs.collect();
    let is_new = item.holds() == Some(Holds::Yes);
    match item.rule {
        None => parts.push("its rule is not among those given".to_owned()),
        Some(_) if !needs.is_empty() => parts.push(needs.join(", ")),
        Some(_) => parts.push(if is_new { "a new group" } else { "no new group" }.to_owned()),
    }
    let told_by = item.reading.as_ref().and_then(|reading| reading.told_by.as_deref());
    match (item.state, told_by, item.holds()) {
        (State::Quiet, Some(by), _) => parts.push(format!("left to {by}")),
        (_, _, Some(Holds::Unknown)) => parts.push("nobody looked for some of the time".to_owned()),
        (State::Quiet, None, Some(Holds::Yes)) => parts.push("holds, not told yet".to_owned()),
        _ => {}
    }
    parts.join("; ")
}

/// What a hook would be told of an incident.
fn tell(item: &Found<'_>, io: &mut Io<'_>) -> Result<(), Failure> {
    let Some(summary) = &item.summary else { return Ok(()) };
    writeln!(io.out, "\n{} ({})\n  {}", line(&item.alert), item.incident.as_deref().unwrap_or("-"), line(summary))?;
    for group in item.groups.iter().take(TOP) {
        let sample = [group.task.clone().unwrap_or_default(), group.error.to_string()];
        let sample: Vec<String> = sample.into_iter().filter(|text| !text.is_empty()).collect();
        let (deaths, sample) = (count(group.deaths), sample.join(": "));
        let shown = format!("  {deaths:>8}  group {}  {}", line(&group.group), cut_line(&sample, LONGEST_SAMPLE));
        writeln!(io.out, "{}", shown.trim_end())?;
    }
    Ok(())
}
