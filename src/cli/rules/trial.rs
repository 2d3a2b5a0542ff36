//! `sexton rules try`: walks through the DLQs and asks the rules about every entry. Nothing is written.

use std::{collections::HashMap, sync::Arc};

use clap::Args;

use super::{shown, tally::Tally};
use crate::{
    cli::{
        exit::Failure,
        filter::FilterArgs,
        io::Io,
        progress::Progress,
        show::Output,
        source::{RuledArgs, chosen, never},
    },
    config::SourceConfig,
    ledger::{JobCounts, Plan, TriageLedger},
    letter::{DeadLetter, Millis},
    retry::{Fate, fate},
    rule::{Action, Decision, Never, RetryRule, Rules},
    triage::{Order, PIECE, Walk},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton rules try
  sexton rules try --rules new-rules.yaml
  sexton rules try --task 'send_*' --newer-than 1h -o json
  sexton rules try --smallage redis://localhost:6379 --rules rules/

Asks the rules of the configuration, or those in the files of --rules, about every entry
of the DLQs: which rule decides about how many entries, how many of their jobs have had
all their retries (SPENT), how many entries are old enough now and in the window of
their rule (DUE NOW), and when the first is. Whatever is due, a rule sends no faster
than its `pace` allows, and nothing of a group on hold: `sexton explain ENTRY` tells.

Nothing is written. Memory does not grow with the DLQ: of very many jobs or groups the
numbers are estimates, and marked as such (~, or jobs_estimated and groups_estimated).";

/// Arguments of `sexton rules try`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TryArgs {
    #[command(flatten)]
    pub(super) ruled: RuledArgs,

    #[command(flatten)]
    filter: FilterArgs,

    /// json: {"items":[…],"totals":…,"sources":[…]}, an item for each rule, and for what no rule decides about
    #[arg(short, long, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    output: Output,
}

/// Tries the rules.
pub(super) async fn try_rules(
    configured: &[SourceConfig],
    ledgers: &[Arc<dyn TriageLedger>],
    rules: &Rules,
    args: &TryArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let filter = args.filter.compile()?;
    let mut trial = Trial::new(rules);
    let mut progress = Progress::of_search(io.screen);
    for ledger in chosen(ledgers, &args.filter.source)? {
        let source = ledger.name();
        // Asked first because the answer brings the store's time, by which ages are counted.
        let overview = ledger.overview().await.map_err(Failure::store(source))?;
        let now = ledger.clock().now();
        let judging = ledger.judging().await.map_err(Failure::store(source))?;
        let mut walk = Walk::new(ledger, &filter, now, Order::NewestFirst);
        while let Some(letters) = walk.next(PIECE).await.map_err(Failure::store(source))? {
            let ids: Vec<String> = letters.iter().map(|letter| letter.job_id.clone()).collect();
            let jobs = ledger.jobs(&ids).await.map_err(Failure::store(source))?;
            for (letter, job) in letters.iter().zip(jobs) {
                trial.ask(source, now, letter, job);
            }
            progress.show(source, walk.looked_at(), overview.entries);
        }
        trial.now = now;
        trial.sources.push(Tried {
            source: source.to_owned(),
            scanned: walk.looked_at(),
            in_force: judging.fingerprint == rules.fingerprint,
            without_rules: judging.fingerprint.is_empty(),
            never: never(configured, source, &overview),
        });
    }
    progress.clear();
    shown::write(&trial, args.output, io)
}

/// What the rules would do.
pub(super) struct Trial<'r> {
    rules: &'r Rules,
    /// Where each rule's row is.
    places: HashMap<&'r str, usize>,
    /// Rule after rule, then what no rule decides about.
    pub(super) rows: Vec<(Verdict<'r>, Tally)>,
    /// What was looked at.
    pub(super) sources: Vec<Tried>,
    /// The time of the store that was looked at last.
    pub(super) now: Millis,
}

/// Who decides about an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict<'r> {
    /// This rule.
    Rule(&'r RetryRule),
    /// None matches.
    NoRule,
    /// None may.
    Never(Never),
}

impl Verdict<'_> {
    fn is(&self, never: Option<Never>) -> bool {
        match self {
            Verdict::Rule(_) => false,
            Verdict::NoRule => never.is_none(),
            Verdict::Never(this) => never == Some(*this),
        }
    }
}

/// A source that was looked at.
#[derive(Debug)]
pub(super) struct Tried {
    /// Its name.
    pub(super) source: String,
    /// Entries looked at, whether they passed the filter or not.
    pub(super) scanned: u64,
    /// Its ledger works by these rules.
    pub(super) in_force: bool,
    /// Its ledger works by no rules.
    pub(super) without_rules: bool,
    /// What to say if nothing ever was there.
    pub(super) never: Option<String>,
}

impl<'r> Trial<'r> {
    fn new(rules: &'r Rules) -> Trial<'r> {
        let nobody = [
            Verdict::NoRule,
            Verdict::Never(Never::Malformed),
            Verdict::Never(Never::Foreign),
            Verdict::Never(Never::Shed),
        ];
        let rows = rules.retry.iter().map(Verdict::Rule).chain(nobody);
        Trial {
            rules,
            places: rules.retry.iter().enumerate().map(|(n, rule)| (rule.name.as_str(), n)).collect(),
            rows: rows.map(|verdict| (verdict, Tally::default())).collect(),
            sources: Vec::new(),
            now: Millis(0),
        }
    }

    /// Asks about a letter whose job the ledger knows so much of.
    fn ask(&mut self, source: &str, now: Millis, letter: &DeadLetter, known: JobCounts) {
        // The deaths that are known include this one.
        let before = JobCounts { deaths: known.deaths.saturating_sub(1), ..known };
        let Fate { rule, plan, .. } = fate(self.rules, source, letter, before);
        let place = match rule {
            Some(rule) => self.places.get(rule).copied(),
            None => {
                let never = match self.rules.decide(source, letter) {
                    Decision::Never(never) => Some(never),
                    Decision::NoRule | Decision::Leave(_) | Decision::Retry(..) => None,
                };
                self.rows.iter().position(|(verdict, _)| verdict.is(never))
            }
        };
        let Some((verdict, tally)) = place.and_then(|place| self.rows.get_mut(place)) else { return };
        tally.add(letter);
        match plan {
            Some(Plan::Spent { .. }) => tally.spent += 1,
            Some(Plan::Wait { due, .. }) => {
                if let Some(at) = opens(*verdict, due, now) {
                    tally.due(at, now);
                }
            }
            None => {}
        }
    }
}

/// When an entry that is due then goes at the earliest: not while its rule's window is closed. None if it never opens.
fn opens(verdict: Verdict<'_>, due: Millis, now: Millis) -> Option<Millis> {
    let window = match verdict {
        Verdict::Rule(RetryRule { action: Action::Retry(terms), .. }) => terms.window.as_ref(),
        Verdict::Rule(_) | Verdict::NoRule | Verdict::Never(_) => None,
    };
    match window {
        Some(window) if due <= now && !window.is_open(now) => window.opens_after(now),
        _ => Some(due),
    }
}
