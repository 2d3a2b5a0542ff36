//! `sexton rules`: what rules would do.

mod shown;
mod tally;
mod trial;

use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{exit::Failure, io::Io, source::RuledArgs};
use crate::{config::SourceConfig, ledger::TriageLedger, rule::Rules};

/// Arguments of `sexton rules`.
#[derive(Args, Clone, Debug)]
pub(super) struct RulesArgs {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// What to do with rules.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Verb {
    /// Show what the rules would do with the DLQ as it is now
    #[command(after_help = trial::EXAMPLES)]
    Try(trial::TryArgs),
}

impl Verb {
    /// Where the sources and the rules are found.
    pub(super) fn ruled(&self) -> &RuledArgs {
        match self {
            Verb::Try(args) => &args.ruled,
        }
    }
}

/// Runs one of the verbs.
pub(super) async fn rules(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn TriageLedger>],
    rules: &Rules,
    args: &RulesArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    match &args.verb {
        Verb::Try(args) => trial::try_rules(configured, ledgers, rules, args, io).await,
    }
}
