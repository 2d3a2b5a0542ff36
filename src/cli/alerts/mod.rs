//! `sexton alerts`: what fires, what is pending, and how far every rule is from firing.

mod shown;

use std::sync::Arc;

use clap::Args;
use globset::Glob;

use super::{
    exit::Failure,
    io::{Form, Io},
    source::{RuledArgs, chosen, never},
    text::line,
};
use crate::{
    config::SourceConfig,
    ledger::SourceLedger,
    triage::{AlertItem, AlertsShown, Measure, Standing},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton alerts
  sexton alerts --source orders
  sexton alerts --rules new-rules/
  sexton alerts -o json | jq '.items[] | select(.state == \"firing\")'

What fires comes first, then what is pending, then the other rules, the one nearest to
firing first, and last what was resolved within a day. All is as the last sample showed
it, which a sidecar takes every few seconds; where nobody does, that is said.

Nothing is written, and no sidecar need be running; the secrets of hooks need not be
there. The rules are those that the configuration names, or the files of --rules: what
these say of the line as it is.

`-o json` has items with the fields of the event (source, incident, alert, severity,
since, fired_at, resolved_at, labels, value, summary, groups) and state (firing,
pending, quiet or resolved), fires_at, resolves_at, holds, needs, progress, told_by and
known_rule; and sources with sampled_at, stale, led, level and line.";

/// Arguments of `sexton alerts`.
#[derive(Args, Clone, Debug)]
pub(super) struct AlertsArgs {
    #[command(flatten)]
    pub(super) ruled: RuledArgs,

    /// Glob on the source's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB", help_heading = "Filters")]
    source: Vec<Glob>,

    /// json: {"items":[…],"next_cursor":null,"sources":[…]}; jsonl: one item a line
    #[arg(short, long, value_enum, default_value_t = Form::Table, help_heading = "Output")]
    output: Form,
}

/// Shows them. A source that cannot be reached does not hide the others.
pub(super) async fn alerts(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn SourceLedger>],
    measure: Measure<'_>,
    args: &AlertsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let (mut all, mut failure) = (Vec::new(), None);
    for ledger in chosen(ledgers, &args.source)? {
        let (standing, never) = match look(configured, ledger, measure).await {
            Ok(found) => found,
            Err(failed) => {
                if let Some(before) = failure.replace(failed) {
                    writeln!(io.err, "sexton: {}", line(&before.to_string()))?;
                }
                continue;
            }
        };
        if !standing.unreadable.is_empty() {
            let names = line(&standing.unreadable.join(", ")).into_owned();
            writeln!(io.err, "{}: written by another version, and left out: {names}", line(&standing.source))?;
        }
        match args.output {
            Form::Table => {
                if !all.is_empty() {
                    writeln!(io.out)?;
                }
                shown::write(&standing, never.as_deref(), io)?;
            }
            Form::Jsonl => standing.items.iter().try_for_each(|item| io.json(&AlertItem::of(item)))?,
            Form::Json => {}
        }
        all.push(standing);
    }
    if args.output == Form::Json {
        io.json(&AlertsShown::of(&all))?;
    }
    failure.map_or(Ok(()), Err)
}

async fn look<'r>(
    configured: &[SourceConfig],
    ledger: &dyn SourceLedger,
    measure: Measure<'r>,
) -> Result<(Standing<'r>, Option<String>), Failure> {
    let overview = ledger.overview().await.map_err(Failure::store(ledger.name()))?;
    let never = never(configured, ledger.name(), &overview);
    let standing = Standing::look(ledger, &overview, measure).await.map_err(Failure::store(ledger.name()))?;
    Ok((standing, never))
}
