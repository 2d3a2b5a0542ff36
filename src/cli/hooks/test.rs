//! `sexton hooks test`: one event, the whole way to the receiver.

use std::{sync::Arc, time::Duration};

use clap::Args;

use super::{hook_named, switched_off};
use crate::{
    cli::{
        exit::Failure,
        io::Io,
        source::{ConfigArgs, named},
        text::{counted, line},
    },
    clock::monotonic,
    config::Config,
    event::{EventData, EventType, HookTest},
    ledger::TriageLedger,
    triage::lanes::{self, Fate, Standing},
};

/// How often a test looks what has become of its event.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton hooks test oncall
  sexton hooks test oncall --source orders --wait 1m

Puts a hook.test event into the ledger of one source. The leader of that source
delivers it as it delivers everything else, so this tries the whole way: without a
leader nothing is written.";

/// Arguments of `sexton hooks test`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TestArgs {
    /// The hook
    name: String,

    #[command(flatten)]
    pub(super) config: ConfigArgs,

    /// The source whose leader delivers it [default: the first in the configuration]
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// How long to wait for the result
    #[arg(long, value_name = "TIME", default_value = "15s")]
    wait: humantime::Duration,
}

/// Sends a test event and waits for what becomes of it.
pub(super) async fn test(
    config: &Config,
    ledgers: &[Arc<dyn TriageLedger>],
    args: &TestArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
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
    // An event that nothing delivers would only lie there and surprise somebody later.
    let leader = ledger.leader().await.map_err(Failure::store(source))?;
    let Some(leader) = leader else {
        return Err(Failure::Failed(format!(
            "nobody leads {source}: nothing would deliver a test event until a sidecar runs there, so none was written"
        )));
    };
    let stands = lanes::picture(ledger, &hook.name, &hook.fingerprint, lane).await.map_err(Failure::store(source))?;
    if stands.state == Standing::Off {
        return Err(switched_off(&hook.name, "no test event was written"));
    }
    let id = ledger.append(&data).await.map_err(Failure::store(source))?;
    writeln!(io.out, "the test event {id} is in the ledger of {source}; {} delivers it", line(&leader.holder))?;
    io.out.flush()?;
    let began = monotonic();
    let fate = loop {
        let fate =
            lanes::fate(ledger, &hook.name, &hook.fingerprint, lane, id).await.map_err(Failure::store(source))?;
        if !matches!(fate, Fate::Trying { .. } | Fate::Waiting) || began.elapsed() >= *args.wait {
            break fate;
        }
        tokio::time::sleep(LOOK_EVERY.min(args.wait.saturating_sub(began.elapsed()))).await;
    };
    let took = format!("{:.1} s", began.elapsed().as_secs_f64());
    let name = line(&hook.name);
    Err(match fate {
        Fate::Delivered => {
            writeln!(io.out, "delivered after {took}: {name} took it")?;
            return Ok(());
        }
        Fate::Rejected(error) => Failure::Failed(format!("rejected: {}", line(&error))),
        Fate::Off => switched_off(&hook.name, "the test event is not sent"),
        Fate::GivenUp(Some(error)) => {
            Failure::Failed(format!("not delivered, and no longer tried; the last error: {}", line(&error)))
        }
        Fate::GivenUp(None) => Failure::Failed(
            "not delivered: the leader has passed it over. Does it run with this hook, and in this version?".to_owned(),
        ),
        Fate::Trying { failed, last } => {
            let tries = match failed {
                0 => "no try has come to an end".to_owned(),
                failed => counted(failed.into(), "try has failed", "tries have failed"),
            };
            let last = last.map(|error| format!("; the last error: {}", line(&error))).unwrap_or_default();
            Failure::Failed(format!("not delivered after {took}: {tries}, and the leader goes on trying{last}"))
        }
        Fate::Waiting => Failure::Failed(format!(
            "not delivered after {took}: the leader has not come to it yet. Does it run with this hook?"
        )),
    })
}
