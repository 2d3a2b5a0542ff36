//! `sexton hooks`: how the hooks stand, one test event, and sending again.

use std::{sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    exit::Failure,
    io::Io,
    lanes::{self, Fate, LanePicture, Standing},
    show::Output,
    source::{SourceArgs, named, store_time},
    table::{Column, Rows},
    text::{age, count, counted, line},
};
use crate::{
    clock::{millis, monotonic},
    config::{Config, HookConfig, Rate, SecretSource},
    event::{EventData, EventType, HookTest, Lane, rfc3339},
    ledger::{Ledger, OutboxId},
    letter::Millis,
};

/// How often a test looks what has become of its event.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const LS_EXAMPLES: &str = "\
Examples:
  sexton hooks ls
  sexton hooks ls -o json | jq '.items[] | {name, sources}'

Of the address only scheme and host are shown. BACKLOG is what waits in the outbox,
PENDING what is read but neither delivered nor given up.";

const TEST_EXAMPLES: &str = "\
Examples:
  sexton hooks test oncall
  sexton hooks test oncall --source orders --wait 1m

Puts a hook.test event into the ledger of one source. The leader of that source
delivers it as it delivers everything else, so this tries the whole way: without a
leader nothing is delivered now.";

const RESEND_EXAMPLES: &str = "\
Examples:
  sexton hooks resend oncall --since 2h
  sexton hooks resend oncall --since 2026-11-29T17:00:00Z --yes

Everything the outbox still has since then is sent again under its old webhook-id:
a receiver that knows ids it has seen is safe, any other sees the events twice. What
exceeds the hook's `rate` is folded into digests, as always.";

/// Arguments of `sexton hooks`.
#[derive(Args, Clone, Debug)]
pub(super) struct HooksArgs {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// What to do with hooks.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Verb {
    /// List the hooks and how they stand
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Send a hook a test event
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Send a hook again what the outbox still has
    #[command(after_help = RESEND_EXAMPLES)]
    Resend(ResendArgs),
}

impl Verb {
    /// Where the sources are found.
    pub(super) fn source(&self) -> &SourceArgs {
        match self {
            Verb::Ls(args) => &args.config,
            Verb::Test(args) => &args.config,
            Verb::Resend(args) => &args.config,
        }
    }
}

/// Arguments of `sexton hooks ls`.
#[derive(Args, Clone, Debug)]
pub(super) struct LsArgs {
    #[command(flatten)]
    config: SourceArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// Arguments of `sexton hooks test`.
#[derive(Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// The hook
    name: String,

    #[command(flatten)]
    config: SourceArgs,

    /// The source whose leader delivers it [default: the first in the configuration]
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// How long to wait for the result
    #[arg(long, value_name = "TIME", default_value = "15s")]
    wait: humantime::Duration,
}

/// Arguments of `sexton hooks resend`.
#[derive(Args, Clone, Debug)]
pub(super) struct ResendArgs {
    /// The hook
    name: String,

    #[command(flatten)]
    config: SourceArgs,

    /// Only of this source [default: all]
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// From when on: an age such as 2h, or a time such as 2026-11-29T17:00:00Z
    #[arg(long, value_name = "T", value_parser = parse_since)]
    since: Since,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// A point in time, perhaps counted from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(Duration),
    At(Millis),
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return Ok(Since::Ago(ago));
    }
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(time) => Ok(Since::At(Millis(time.timestamp_millis()))),
        Err(_) => Err("write an age such as 2h, or a time such as 2026-11-29T17:00:00Z".to_owned()),
    }
}

/// Scheme and host of a URL; nothing else of it may be shown.
pub(super) fn origin_of(url: &SecretSource) -> String {
    let Ok(secret) = url.read() else { return "(its file cannot be read)".to_owned() };
    match url::Url::parse(secret.reveal()) {
        Ok(url) => match (url.host(), url.port()) {
            (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
            (Some(host), None) => format!("{}://{host}", url.scheme()),
            (None, _) => format!("{}:", url.scheme()),
        },
        Err(_) => "(no URL)".to_owned(),
    }
}

/// A rate as the configuration has it: `60/m`.
pub(super) fn rate_of(rate: Rate) -> String {
    match rate {
        Rate::Unlimited => "unlimited".to_owned(),
        Rate::Limited { events, per } => match per.as_secs() {
            1 => format!("{events}/s"),
            60 => format!("{events}/m"),
            3_600 => format!("{events}/h"),
            seconds => format!("{events}/{seconds}s"),
        },
    }
}

fn hook_named<'a>(config: &'a Config, name: &str) -> Result<&'a HookConfig, Failure> {
    config.hooks.iter().find(|hook| hook.name == name).ok_or_else(|| {
        let known: Vec<&str> = config.hooks.iter().map(|hook| hook.name.as_str()).collect();
        let known =
            if known.is_empty() { "none is configured".to_owned() } else { format!("there is {}", known.join(", ")) };
        Failure::Usage(format!("there is no hook {:?}; {known}", line(name)))
    })
}

/// A hook as it stands.
#[derive(Debug, Serialize)]
struct HookShown<'a> {
    name: &'a str,
    format: &'static str,
    /// Scheme and host.
    address: String,
    events: &'a [String],
    rate: String,
    sources: Vec<LanesShown>,
}

/// A hook's lanes in one source.
#[derive(Debug, Serialize)]
pub(super) struct LanesShown {
    pub(super) source: String,
    pub(super) lanes: Vec<LanePicture>,
}

/// Both lanes of a hook in one source.
pub(super) async fn lanes_of(ledger: &dyn Ledger, hook: &HookConfig) -> Result<LanesShown, Failure> {
    let mut lanes = Vec::new();
    for lane in Lane::ALL {
        let picture = lanes::picture(ledger, &hook.name, &hook.fingerprint, lane).await;
        lanes.push(picture.map_err(Failure::store(ledger.name()))?);
    }
    Ok(LanesShown { source: ledger.name().to_owned(), lanes })
}

/// How a lane stands, in words.
pub(super) fn standing(now: Millis, lane: &LanePicture) -> String {
    match (lane.state, lane.failing_since) {
        (Standing::Failing, Some(since)) => format!("failing for {}", age(now, since)),
        (Standing::Failing, None) => "failing".to_owned(),
        (Standing::Delivering, _) => "delivering".to_owned(),
        (Standing::Off, _) => "off (410)".to_owned(),
        (Standing::New, _) => "not served yet".to_owned(),
        (Standing::Unreadable, _) => "unreadable".to_owned(),
    }
}

/// A lane's backlog, as far as it was counted.
pub(super) fn backlog(lane: &LanePicture) -> String {
    format!("{}{}", count(lane.backlog), if lane.backlog_is_more { "+" } else { "" })
}

const COLUMNS: &[Column] = &[
    Column { head: "HOOK", may_be_cut: false },
    Column { head: "FORMAT", may_be_cut: false },
    Column { head: "ADDRESS", may_be_cut: true },
    Column { head: "EVENTS", may_be_cut: true },
    Column { head: "RATE", may_be_cut: false },
    Column { head: "SOURCE", may_be_cut: true },
    Column { head: "LANE", may_be_cut: false },
    Column { head: "STATE", may_be_cut: false },
    Column { head: "BACKLOG", may_be_cut: false },
    Column { head: "PENDING", may_be_cut: false },
];

/// Lists the hooks.
async fn ls(config: &Config, ledgers: &[Arc<dyn Ledger>], args: &LsArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let mut items = Vec::new();
    for hook in &config.hooks {
        let mut sources = Vec::new();
        for ledger in ledgers {
            sources.push(lanes_of(ledger.as_ref(), hook).await?);
        }
        items.push(HookShown {
            name: &hook.name,
            format: hook.format.as_str(),
            address: origin_of(&hook.url),
            events: &hook.events,
            rate: rate_of(hook.rate),
            sources,
        });
    }
    if args.output == Output::Json {
        #[derive(Serialize)]
        struct Items<'a> {
            items: Vec<HookShown<'a>>,
        }
        io.json(&Items { items })?;
        return Ok(());
    }
    if items.is_empty() {
        writeln!(io.err, "no hooks are configured")?;
        return Ok(());
    }
    let mut rows = Rows::new(COLUMNS, io.screen);
    for hook in &items {
        for source in &hook.sources {
            let now = store_time(named(ledgers, &source.source)?).await?;
            for lane in &source.lanes {
                rows.push(
                    io.out,
                    vec![
                        line(hook.name).into_owned(),
                        hook.format.to_owned(),
                        hook.address.clone(),
                        line(&hook.events.join(",")).into_owned(),
                        hook.rate.clone(),
                        line(&source.source).into_owned(),
                        lane.lane.to_owned(),
                        standing(now, lane),
                        backlog(lane),
                        count(lane.pending),
                    ],
                )?;
            }
        }
    }
    rows.write(io.out)?;
    Ok(())
}

/// Sends a test event and waits for what becomes of it.
async fn test(config: &Config, ledgers: &[Arc<dyn Ledger>], args: &TestArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let hook = hook_named(config, &args.name)?;
    let ledger = match &args.source {
        Some(name) => named(ledgers, name)?,
        None => ledgers.first().map(AsRef::as_ref).ok_or_else(|| Failure::Usage("there is no source".to_owned()))?,
    };
    let source = ledger.name();
    let data = EventData::HookTest(HookTest {
        source: source.to_owned(),
        hook: hook.name.clone(),
        summary: format!("A test of the hook {} by hand. Nothing has happened.", hook.name),
    });
    let lane = EventType::HookTest.lane();
    let id = ledger.append(&data).await.map_err(Failure::store(source))?;
    let leader = ledger.leader().await.map_err(Failure::store(source))?;
    let Some(leader) = leader else {
        return Err(Failure::Failed(format!(
            "the test event {id} is in the ledger of {source}, but nobody leads there: nothing delivers it until a \
             sidecar runs"
        )));
    };
    writeln!(io.out, "the test event {id} is in the ledger of {source}; {} delivers it", line(&leader.holder))?;
    io.out.flush()?;
    let began = monotonic();
    let fate = loop {
        let fate =
            lanes::fate(ledger, &hook.name, &hook.fingerprint, lane, id).await.map_err(Failure::store(source))?;
        if matches!(fate, Fate::Settled | Fate::Off) || began.elapsed() >= *args.wait {
            break fate;
        }
        tokio::time::sleep(LOOK_EVERY.min(args.wait.saturating_sub(began.elapsed()))).await;
    };
    let took = format!("{:.1} s", began.elapsed().as_secs_f64());
    let name = line(&hook.name);
    match fate {
        Fate::Settled => {
            writeln!(
                io.out,
                "settled after {took}: {name} took it, unless the leader's log says that it was refused for good"
            )?;
            Ok(())
        }
        Fate::Off => Err(Failure::Failed(format!(
            "{name} is switched off: its endpoint answered 410. It comes back when its configuration changes"
        ))),
        Fate::Trying(failed) => Err(Failure::Failed(format!(
            "not delivered after {took}: {}, and the leader goes on trying; its log says why",
            counted(failed.into(), "try has failed", "tries have failed")
        ))),
        Fate::Waiting => Err(Failure::Failed(format!(
            "not delivered after {took}: the leader has not come to it yet. Does it run with this hook?"
        ))),
    }
}

/// Has a hook's lanes send again what the outbox still has.
async fn resend(
    config: &Config,
    ledgers: &[Arc<dyn Ledger>],
    args: &ResendArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let hook = hook_named(config, &args.name)?;
    let name = line(&hook.name);
    if !args.yes && !io.screen.asks {
        return Err(Failure::Usage("nobody can be asked here: give --yes".to_owned()));
    }
    let sources: Vec<&dyn Ledger> = match &args.source {
        Some(name) => vec![named(ledgers, name)?],
        None => ledgers.iter().map(AsRef::as_ref).collect(),
    };
    let mut planned = Vec::new();
    for ledger in sources {
        let source = ledger.name();
        let since = match args.since {
            Since::Ago(ago) => Millis(store_time(ledger).await?.0.saturating_sub(millis(ago))),
            Since::At(at) => at,
        };
        let to = just_before(since);
        for lane in Lane::ALL {
            let events = lanes::events_since(ledger, &hook.name, lane, to).await.map_err(Failure::store(source))?;
            match events {
                None | Some(0) => {}
                Some(events) => planned.push((ledger, lane, to, events)),
            }
        }
        let oldest = ledger.outbox(Lane::Deaths, OutboxId::default(), 1).await.map_err(Failure::store(source))?;
        if let Some(oldest) = oldest.events.first().filter(|oldest| oldest.id > to)
            && let Some(time) = i64::try_from(oldest.id.ms).ok().and_then(|ms| rfc3339(Millis(ms)))
        {
            writeln!(io.err, "{source}: the outbox reaches back to {time}")?;
        }
    }
    let events: u64 = planned.iter().map(|(.., events)| events).sum();
    if events == 0 {
        writeln!(io.out, "the outbox has nothing since then that {name} was told of already: nothing to send again")?;
        return Ok(());
    }
    writeln!(
        io.out,
        "{} of the outbox will be read again for {name}; those it wants are sent under their old webhook-ids. A receiver \
         that knows ids it has seen is safe. Rate: {}; more is folded into digests",
        counted(events, "event", "events"),
        rate_of(hook.rate)
    )?;
    if !args.yes && !io.ask(&format!("Send them to {name} again?"))? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    for (ledger, lane, to, events) in planned {
        lanes::rewind(ledger, &hook.name, lane, to).await?;
        let source = ledger.name();
        let leader = ledger.leader().await.map_err(Failure::store(source))?;
        let note = if leader.is_some() { "" } else { "; nobody leads there, so it waits for a sidecar" };
        writeln!(
            io.out,
            "{source}: the {} lane reads {} again{note}",
            lane.as_str(),
            counted(events, "event", "events")
        )?;
    }
    Ok(())
}

/// The last place of the outbox before `since`.
fn just_before(since: Millis) -> OutboxId {
    match u64::try_from(since.0) {
        Ok(ms) if ms > 0 => OutboxId { ms: ms - 1, seq: u64::MAX },
        _ => OutboxId::default(),
    }
}

/// Runs one of the verbs.
pub(super) async fn hooks(
    config: &Config,
    ledgers: &[Arc<dyn Ledger>],
    args: &HooksArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    match &args.verb {
        Verb::Ls(args) => ls(config, ledgers, args, io).await,
        Verb::Test(args) => test(config, ledgers, args, io).await,
        Verb::Resend(args) => resend(config, ledgers, args, io).await,
    }
}
