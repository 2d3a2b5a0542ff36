//! `sexton stats`: the picture of every source in one screen.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Write,
    sync::Arc,
};

use clap::Args;
use serde::Serialize;

use super::{
    exit::Failure,
    hooks::{backlog, standing},
    io::Io,
    show::Output,
    source::{SourceArgs, never},
    text::{age, count, counted, cut_line, line, when},
};
use crate::{
    alert::{State, Watch},
    config::Config,
    event::{Lane, rfc3339},
    ledger::{Flight, Overview, SourceLedger, Waiting},
    letter::{DeadLetter, Millis},
    triage::{Filter, LanesShown, Order, Walk, lanes_of},
};

/// Entries that groups and tasks are counted over.
const NEWEST: usize = 1_000;
/// Groups and tasks listed.
const TOP: usize = 5;
/// Characters of an error in the list of groups.
const LONGEST_ERROR: usize = 120;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton stats
  sexton stats -c sexton.yaml -o json

Groups and tasks are counted over the newest 1,000 entries of each source. Entries in
the due index wait for a rule to retry them, whether they are due or not. A hold is one
of a group, or of all groups of a task that have not recovered lately. `sexton explain
ENTRY` tells of one entry what it waits for, and `sexton alerts` what fires.";

/// Arguments of `sexton stats`.
#[derive(Args, Clone, Debug)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// One source.
#[derive(Debug, Serialize)]
struct Picture {
    source: String,
    entries: u64,
    oldest: Option<String>,
    newest: Option<String>,
    added: u64,
    /// Entries not read yet; none if Sexton has never led here.
    lag: Option<u64>,
    /// Deaths announced, which those are not that were there before Sexton came.
    announced: u64,
    leader: Option<Leader>,
    retries: Retries,
    alerts: Alerts,
    outbox: Outbox,
    hooks: Vec<HookStands>,
    top: Top,
    /// What to say if nothing ever was here.
    #[serde(skip)]
    never: Option<String>,
    #[serde(skip)]
    now: Millis,
    #[serde(skip)]
    ends: (Option<Millis>, Option<Millis>),
}

#[derive(Debug, Serialize)]
struct Leader {
    holder: String,
    epoch: u64,
}

/// What the retry loop does.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Retries {
    /// Retries without a verdict yet.
    in_flight: u64,
    /// Entries in the due index, whether they are due or not.
    waiting: u64,
    /// By the name of the rule; those for which there is nothing to say are left out.
    rules: BTreeMap<String, RuleStands>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct RuleStands {
    /// Its retries without a verdict yet.
    in_flight: u64,
    /// Holds of its groups, and of tasks as a whole, at this moment.
    held: u64,
}

impl Retries {
    fn of(flights: &[Flight], waiting: Waiting) -> Retries {
        let mut rules = BTreeMap::<String, RuleStands>::new();
        for flight in flights {
            rules.entry(flight.place.pool.rule().to_owned()).or_default().in_flight += 1;
        }
        for (rule, holds) in waiting.held {
            rules.entry(rule).or_default().held = holds;
        }
        Retries { in_flight: flights.len() as u64, waiting: waiting.entries, rules }
    }
}

/// What the alert rules have noticed, as the ledger has it.
#[derive(Debug, PartialEq, Serialize)]
struct Alerts {
    /// Incidents that fire.
    firing: u64,
    /// Incidents that are pending.
    pending: u64,
    /// When the last sample was taken.
    sampled_at: Option<String>,
    #[serde(skip)]
    sampled: Option<Millis>,
    /// The rules of those that fire, each once.
    #[serde(skip)]
    rules: Vec<String>,
}

impl Alerts {
    fn of(watch: &Watch) -> Alerts {
        let live = watch.incidents().live();
        let (firing, pending): (Vec<_>, Vec<_>) = live.iter().partition(|incident| incident.state == State::Firing);
        let rules: BTreeSet<&String> = firing.iter().map(|incident| &incident.rule).collect();
        let sampled = watch.samples().last();
        Alerts {
            firing: firing.len() as u64,
            pending: pending.len() as u64,
            sampled_at: sampled.and_then(rfc3339),
            sampled,
            rules: rules.into_iter().cloned().collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Outbox {
    deaths: u64,
    alerts: u64,
}

#[derive(Debug, Serialize)]
struct HookStands {
    hook: String,
    #[serde(flatten)]
    stands: LanesShown,
}

/// What is frequent among the newest entries.
#[derive(Debug, Default, Serialize)]
struct Top {
    /// Entries looked at.
    over: u64,
    groups: Vec<Counted>,
    /// Groups beyond those listed.
    more_groups: u64,
    tasks: Vec<Counted>,
    /// Tasks beyond those listed.
    more_tasks: u64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Counted {
    /// The group or the task.
    name: String,
    count: u64,
    /// Task and error of the group's newest entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<String>,
}

/// Shows the picture. A source that cannot be reached does not hide the others.
pub(super) async fn stats(
    config: &Config,
    ledgers: &[Arc<dyn SourceLedger>],
    args: &StatsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let mut pictures = Vec::new();
    let mut failure = None;
    for ledger in ledgers {
        match picture(config, ledger.as_ref()).await {
            Ok(picture) if args.output == Output::Json => pictures.push(picture),
            Ok(picture) => write(&picture, io)?,
            Err(failed) => {
                if let Some(before) = failure.replace(failed) {
                    writeln!(io.err, "sexton: {}", line(&before.to_string()))?;
                }
            }
        }
    }
    if args.output == Output::Json {
        #[derive(Serialize)]
        struct Items {
            items: Vec<Picture>,
        }
        io.json(&Items { items: pictures })?;
    }
    failure.map_or(Ok(()), Err)
}

async fn picture(config: &Config, ledger: &dyn SourceLedger) -> Result<Picture, Failure> {
    let source = ledger.name();
    let overview = ledger.overview().await.map_err(Failure::store(source))?;
    let never = never(&config.sources, source, &overview);
    let Overview { entries, oldest, newest, added, lag, deaths, leader, outbox } = overview;
    let flights = ledger.flights().await.map_err(Failure::store(source))?;
    let retries = Retries::of(&flights, ledger.waiting().await.map_err(Failure::store(source))?);
    let saved = ledger.load_watch().await.map_err(Failure::store(source))?;
    let alerts = Alerts::of(&Watch::load(source, config.sample_every, saved.fields).0);
    let mut hooks = Vec::new();
    for hook in &config.hooks {
        hooks.push(HookStands { hook: hook.name.clone(), stands: lanes_of(ledger, hook).await? });
    }
    let everything = Filter::default();
    let mut walk = Walk::new(ledger, &everything, Millis(0), Order::NewestFirst);
    let mut letters = Vec::new();
    while letters.len() < NEWEST
        && let Some(page) = walk.next(NEWEST - letters.len()).await.map_err(Failure::store(source))?
    {
        letters.extend(page.into_iter().map(Sample::of));
    }
    Ok(Picture {
        source: source.to_owned(),
        entries,
        oldest: oldest.and_then(rfc3339),
        newest: newest.and_then(rfc3339),
        added,
        lag,
        announced: deaths,
        leader: leader.map(|lease| Leader { holder: lease.holder, epoch: lease.epoch }),
        retries,
        alerts,
        outbox: Outbox { deaths: outbox[0], alerts: outbox[1] },
        hooks,
        top: top(&letters),
        never,
        now: ledger.clock().now(),
        ends: (oldest, newest),
    })
}

/// What is kept of an entry for counting.
#[derive(Debug)]
struct Sample {
    group: String,
    task: String,
    error: String,
}

impl Sample {
    fn of(letter: DeadLetter) -> Sample {
        let error = letter.error.to_string().chars().take(LONGEST_ERROR).collect();
        Sample { group: letter.group.0, task: letter.task, error }
    }
}

/// The most frequent groups and tasks; `letters` are newest first.
fn top(letters: &[Sample]) -> Top {
    let largest = |mut all: Vec<Counted>| {
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        let more = all.len().saturating_sub(TOP) as u64;
        all.truncate(TOP);
        (all, more)
    };
    let mut groups: HashMap<&str, Counted> = HashMap::new();
    let mut tasks: HashMap<&str, Counted> = HashMap::new();
    for letter in letters {
        let group = groups.entry(&letter.group).or_insert_with(|| Counted {
            name: letter.group.clone(),
            count: 0,
            sample: Some(format!("{}: {}", letter.task, letter.error)),
        });
        group.count += 1;
        let task = Counted { name: letter.task.clone(), count: 0, sample: None };
        tasks.entry(&letter.task).or_insert(task).count += 1;
    }
    let (groups, more_groups) = largest(groups.into_values().collect());
    let (tasks, more_tasks) = largest(tasks.into_values().collect());
    Top { over: letters.len() as u64, groups, more_groups, tasks, more_tasks }
}

fn write(picture: &Picture, io: &mut Io<'_>) -> Result<(), Failure> {
    let (out, now) = (&mut *io.out, picture.now);
    let ended = |at: Option<Millis>| at.map_or_else(|| "-".to_owned(), |at| when(now, at));
    writeln!(out, "{}", line(&picture.source))?;
    match &picture.never {
        Some(never) => writeln!(out, "  entries   no entries; {never}")?,
        None => writeln!(out, "  entries   {}, {} ever", count(picture.entries), count(picture.added))?,
    }
    writeln!(out, "  oldest    {}", ended(picture.ends.0))?;
    writeln!(out, "  newest    {}", ended(picture.ends.1))?;
    match picture.lag {
        Some(lag) => {
            let deaths = counted(picture.announced, "death", "deaths");
            writeln!(out, "  ledger    {deaths} announced, {} not read yet", counted(lag, "entry", "entries"))?;
        }
        None => writeln!(out, "  ledger    Sexton has never led here")?,
    }
    match &picture.leader {
        Some(leader) => writeln!(out, "  leader    {}, epoch {}", line(&leader.holder), leader.epoch)?,
        None => writeln!(out, "  leader    nobody leads")?,
    }
    let Retries { in_flight, waiting, rules } = &picture.retries;
    let waiting = counted(*waiting, "entry", "entries");
    writeln!(out, "  retries   {} in flight, {waiting} in the due index", count(*in_flight))?;
    for (rule, RuleStands { in_flight, held }) in rules {
        let held = counted(*held, "hold", "holds");
        writeln!(out, "  rule      {}: {} in flight, {held}", line(rule), count(*in_flight))?;
    }
    let Alerts { firing, pending, sampled, rules, .. } = &picture.alerts;
    let which = if rules.is_empty() { String::new() } else { format!(" ({})", line(&rules.join(", "))) };
    let sampled = sampled.map_or_else(|| "no sample yet".to_owned(), |at| format!("sampled {} ago", age(now, at)));
    writeln!(out, "  alerts    {} firing{which}, {} pending, {sampled}", count(*firing), count(*pending))?;
    writeln!(
        out,
        "  outbox    {} in the {} lane, {} in the {} lane",
        count(picture.outbox.deaths),
        Lane::ALL[0].as_str(),
        count(picture.outbox.alerts),
        Lane::ALL[1].as_str()
    )?;
    for hook in &picture.hooks {
        for lane in &hook.stands.lanes {
            let read = match lane.read_until {
                Some(at) => format!("read up to {}", when(now, at)),
                None => "nothing read yet".to_owned(),
            };
            writeln!(
                out,
                "  hook      {} {}: {}, {read}, backlog {}, of that {} pending",
                line(&hook.hook),
                lane.lane,
                standing(now, lane),
                backlog(lane),
                count(lane.pending)
            )?;
        }
    }
    if picture.top.over > 0 {
        writeln!(out, "  among the newest {}:", counted(picture.top.over, "entry", "entries"))?;
        for Counted { name, count: times, sample } in &picture.top.groups {
            let sample = sample.as_deref().unwrap_or("");
            writeln!(out, "  {:>7}  group {}  {}", count(*times), line(name), cut_line(sample, LONGEST_ERROR))?;
        }
        more(out, picture.top.more_groups, "group", "groups")?;
        for Counted { name, count: times, .. } in &picture.top.tasks {
            let name = if name.is_empty() { "-".into() } else { line(name) };
            writeln!(out, "  {:>7}  task {name}", count(*times))?;
        }
        more(out, picture.top.more_tasks, "task", "tasks")?;
    }
    Ok(())
}

/// Says that a list ends before its end, if it does.
fn more(out: &mut dyn Write, number: u64, one: &str, many: &str) -> Result<(), Failure> {
    if number > 0 {
        writeln!(out, "           and {} more {}", count(number), if number == 1 { one } else { many })?;
    }
    Ok(())
}
