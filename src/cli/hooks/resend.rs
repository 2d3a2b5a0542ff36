//! `sexton hooks resend`: has a hook's lanes read again what the outbox still has.

use std::sync::Arc;

use clap::Args;

use super::{hook_named, switched_off};
use crate::{
    cli::{
        exit::Failure,
        io::Io,
        since::{Since, parse_since},
        source::{ConfigArgs, named, store_time},
        text::{counted, line},
    },
    config::{Config, Rate},
    event::{Lane, rfc3339},
    ledger::{OutboxId, TriageLedger},
    letter::Millis,
    triage::{lanes, rate_of},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton hooks resend oncall --since 2h
  sexton hooks resend oncall --since 2026-11-29T17:00:00Z --yes

Everything the outbox still has since then is sent again under its old webhook-id:
a receiver that knows ids it has seen is safe, any other sees the events twice, and
PagerDuty opens and closes anew what is long over. What exceeds the hook's `rate` is
folded into digests, as always. A hook that a 410 has switched off is sent nothing:
change its configuration first.";

/// Arguments of `sexton hooks resend`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ResendArgs {
    /// The hook
    name: String,

    #[command(flatten)]
    pub(super) config: ConfigArgs,

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

/// Has a hook's lanes send again what the outbox still has.
pub(super) async fn resend(
    config: &Config,
    ledgers: &[Arc<dyn TriageLedger>],
    args: &ResendArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let hook = hook_named(config, &args.name)?;
    let name = line(&hook.name);
    if !args.yes && !io.screen.asks {
        return Err(Failure::Usage("nobody can be asked here: give --yes".to_owned()));
    }
    let sources: Vec<&dyn TriageLedger> = match &args.source {
        Some(name) => vec![named(ledgers, name)?],
        None => ledgers.iter().map(AsRef::as_ref).collect(),
    };
    let mut planned = Vec::new();
    for ledger in sources {
        let source = ledger.name();
        let since = args.since.from(store_time(ledger).await?);
        let to = just_before(since);
        for lane in Lane::ALL {
            // Switched off, it would read them again only to pass them over.
            if lanes::is_off(ledger, &hook.name, &hook.fingerprint, lane).await.map_err(Failure::store(source))? {
                return Err(switched_off(&hook.name, &format!("nothing of {source} is sent again")));
            }
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
    let pace = match hook.rate {
        Rate::Unlimited => String::new(),
        Rate::Limited { .. } => format!(". What exceeds {} is folded into digests", rate_of(hook.rate)),
    };
    writeln!(
        io.out,
        "{} of the outbox will be read again for {name}; those it wants are sent under their old webhook-ids. A receiver \
         that knows ids it has seen is safe{pace}",
        counted(events, "event", "events"),
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
