//! `sexton hooks`: how the hooks stand, one test event, and sending again; and what of a hook may be shown.

mod ls;
mod resend;
mod test;

use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{
    exit::Failure,
    io::Io,
    source::ConfigArgs,
    text::{age, count, cut_line, line},
};
use crate::{
    config::{Config, HookConfig},
    ledger::TriageLedger,
    letter::Millis,
    triage::lanes::{LanePicture, Standing},
};

/// Characters of an error where a lane's state is shown.
const LONGEST_REASON: usize = 60;

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton hooks ls
  sexton hooks test oncall
  sexton hooks resend oncall --since 2h

Each has more to say with --help.";

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
    #[command(after_help = ls::EXAMPLES)]
    Ls(ls::LsArgs),
    /// Send a hook a test event
    #[command(after_help = test::EXAMPLES)]
    Test(test::TestArgs),
    /// Send a hook again what the outbox still has
    #[command(after_help = resend::EXAMPLES)]
    Resend(resend::ResendArgs),
}

impl Verb {
    /// Where the hooks and sources are found.
    pub(super) fn config(&self) -> &ConfigArgs {
        match self {
            Verb::Ls(args) => &args.config,
            Verb::Test(args) => &args.config,
            Verb::Resend(args) => &args.config,
        }
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

/// How a lane stands, in words.
pub(super) fn standing(now: Millis, lane: &LanePicture) -> String {
    match lane.state {
        Standing::Failing => in_trouble(now, lane, "failing", false),
        Standing::Rejecting => in_trouble(now, lane, "rejecting", true),
        Standing::Delivering => "delivering".to_owned(),
        Standing::Off => "off (410)".to_owned(),
        Standing::New => "not served yet".to_owned(),
        Standing::Unreadable => "unreadable".to_owned(),
    }
}

/// `failing (503) for 12s`, or `failing for 12s: ` and why there was no status.
fn in_trouble(now: Millis, lane: &LanePicture, verb: &str, rejected: bool) -> String {
    let since = lane.since.map(|since| format!(" for {}", age(now, since))).unwrap_or_default();
    // A lane may have trouble of both kinds; the other one explains nothing.
    let trouble = lane.last_trouble.as_ref().filter(|trouble| trouble.rejected == rejected);
    match trouble.map(|trouble| (trouble.status, &trouble.error)) {
        Some((Some(status), _)) => format!("{verb} ({status}){since}"),
        // An error is followed by its causes; the last one says most, and there is little room.
        Some((None, error)) => {
            let cause = error.rsplit(": ").next().unwrap_or(error);
            format!("{verb}{since}: {}", cut_line(cause, LONGEST_REASON))
        }
        None => format!("{verb}{since}"),
    }
}

/// Why nothing is sent to a hook that is switched off.
fn switched_off(hook: &str, so: &str) -> Failure {
    Failure::Failed(format!(
        "{} is switched off, so {so}: its endpoint answered 410. It comes back when its configuration changes",
        line(hook)
    ))
}

/// A lane's backlog, as far as it was counted.
pub(super) fn backlog(lane: &LanePicture) -> String {
    format!("{}{}", count(lane.backlog), if lane.backlog_is_more { "+" } else { "" })
}

/// Runs one of the verbs.
pub(super) async fn hooks(
    config: &Config,
    ledgers: &[Arc<dyn TriageLedger>],
    args: &HooksArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    match &args.verb {
        Verb::Ls(args) => ls::ls(config, ledgers, args, io).await,
        Verb::Test(args) => test::test(config, ledgers, args, io).await,
        Verb::Resend(args) => resend::resend(config, ledgers, args, io).await,
    }
}
