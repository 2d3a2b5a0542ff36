//! `sexton hooks ls`: how every hook stands in every source.

use std::sync::Arc;

use clap::Args;

use super::{backlog, standing};
use crate::{
    cli::{
        exit::Failure,
        io::Io,
        show::Output,
        source::{ConfigArgs, named, store_time},
        table::{Column, Rows},
        text::{count, line},
    },
    config::Config,
    ledger::TriageLedger,
    triage::{Page, hooks},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton hooks ls
  sexton hooks ls -o json | jq '.items[] | {name, sources}'

Of the address only scheme and host are shown. BACKLOG is what the hook has not been
told of yet, as in sexton_hook_backlog; PENDING is the part of it that the leader has
read already and tries to deliver, or folds. `-o json` has the last trouble, too.";

/// Arguments of `sexton hooks ls`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct LsArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

const COLUMNS: &[Column] = &[
    Column::whole("HOOK"),
    Column::whole("FORMAT").gives_way(3),
    Column::cut_to("ADDRESS", 24).gives_way(1),
    Column::cut_to("EVENTS", 16).gives_way(4),
    Column::whole("RATE").gives_way(2),
    Column::cut_to("SOURCE", 16),
    Column::whole("LANE"),
    Column::cut_to("STATE", 20),
    Column::whole("BACKLOG"),
    Column::whole("PENDING"),
];

/// Lists the hooks.
pub(super) async fn ls(
    config: &Config,
    ledgers: &[Arc<dyn TriageLedger>],
    args: &LsArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let sources: Vec<&dyn TriageLedger> = ledgers.iter().map(AsRef::as_ref).collect();
    let items = hooks(&config.hooks, &sources).await?;
    if args.output == Output::Json {
        return Ok(io.json(&Page { items, next_cursor: None })?);
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
                        line(&hook.name).into_owned(),
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
