//! The plans of a batch as the scripts take them: what is spent, and what waits, by group.

use std::collections::BTreeMap;

use super::{
    Keys,
    connection::{Arg, KeyList},
};
use crate::{
    event::JobDead,
    ledger::{Place, Plan},
};

/// Entries in one call of `ZADD` at most: a script cannot pass on more than a few thousand values at once.
const TOGETHER: usize = 1_000;

/// What the rules plan for a batch.
#[derive(Debug)]
pub(super) struct Plans<'a> {
    spent: Vec<Spent<'a>>,
    /// By group, when its entries become due.
    waiting: BTreeMap<&'a Place, Vec<(i64, &'a str)>>,
}

#[derive(Debug)]
struct Spent<'a> {
    /// Which of the batch.
    number: usize,
    event: &'a str,
    rule: &'a str,
    job_id: &'a str,
    task: String,
}

impl<'a> Plans<'a> {
    /// Of a batch: entry, job and plan of each.
    pub(super) fn of(batch: impl Iterator<Item = (&'a str, &'a str, Option<&'a Plan>)>) -> Plans<'a> {
        let (mut spent, mut waiting) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for (number, (entry_id, job_id, plan)) in batch.enumerate() {
            match plan {
                None => {}
                Some(Plan::Wait { place, due, .. }) => waiting.entry(place).or_default().push((due.0, entry_id)),
                Some(Plan::Spent { event, rule, .. }) => {
                    let told = serde_json::from_str::<JobDead>(event).unwrap_or_default();
                    spent.push(Spent { number, event, rule, job_id, task: told.task.unwrap_or_default() });
                }
            }
        }
        Plans { spent, waiting }
    }

    /// Appends them to a call's arguments, and their keys to its keys, as `parts/plans.lua` wants them.
    pub(super) fn args<'s: 'a>(&'s self, names: &Keys, generation: u64, keys: &mut KeyList, args: &mut Vec<Arg<'a>>) {
        args.push(Arg::place(self.spent.len()));
        for spent in &self.spent {
            args.extend([
                Arg::place(spent.number),
                Arg::Text(spent.event),
                Arg::Text(spent.rule),
                Arg::Text(spent.job_id),
                Arg::Text(&spent.task),
            ]);
        }
        args.push(keys.number(names.due(generation)));
        let groups: Vec<_> = self
            .waiting
            .iter()
            .flat_map(|(place, entries)| entries.chunks(TOGETHER).map(|together| (*place, together)))
            .collect();
        args.push(Arg::place(groups.len()));
        for (place, entries) in groups {
            args.extend([
                keys.number(names.due_group(generation, place)),
                keys.number(names.due_pool(generation, &place.pool)),
                Arg::Text(&place.pool.0),
                Arg::Text(&place.group),
                Arg::Int(entries.iter().map(|(due, _)| *due).min().unwrap_or_default()),
                Arg::place(entries.len()),
            ]);
            args.extend(entries.iter().flat_map(|(due, entry_id)| [Arg::Int(*due), Arg::Text(entry_id)]));
        }
    }
}

/// The retries that a plan is for, as an argument; empty without a plan.
pub(super) fn retries_planned(plan: Option<&Plan>) -> Arg<'static> {
    match plan {
        None => Arg::Text(""),
        Some(Plan::Wait { retries, .. } | Plan::Spent { retries, .. }) => Arg::Int(i64::from(*retries)),
    }
}
