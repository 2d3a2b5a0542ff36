//! What is done, and what became of it, in words.

use std::collections::BTreeMap;

use crate::{
    cli::text::{count, counted},
    ledger::{Act, Refusal},
};

/// `retry`, `remove`.
pub(super) fn verb(act: Act) -> &'static str {
    match act {
        Act::Retry => "retry",
        Act::Delete => "remove",
        Act::Purge => "purge",
    }
}

/// `a retry`, `a removal`: what the audit log says has begun.
pub(super) fn begun(act: Act) -> &'static str {
    match act {
        Act::Retry => "a retry",
        Act::Delete => "a removal",
        Act::Purge => "a purge",
    }
}

/// `retried`, `removed`.
pub(super) fn done(act: Act) -> &'static str {
    match act {
        Act::Retry => "retried",
        Act::Delete => "removed",
        Act::Purge => "purged",
    }
}

/// Why an entry was refused, in words; the name itself for what only rules are refused for.
pub(super) fn refused(name: &str) -> &str {
    match Refusal::parse(name) {
        Some(Refusal::EntryGone) => "it is no longer in the DLQ",
        Some(Refusal::QueueGone) => "its queue does not exist: no worker reads it, and it would swallow the job",
        Some(Refusal::DedupClaimed) => "another job holds its dedup key: a worker would drop it without running it",
        Some(Refusal::InFlight) => "a retry of the same job is under way",
        Some(Refusal::Superseded) => "the same job has a newer entry in the DLQ: retry that",
        Some(Refusal::ForeignStream) => "it comes from a foreign stream, where it cannot be put back",
        Some(Refusal::Malformed) => "its record is no job",
        Some(_) | None => name,
    }
}

/// `20 in_flight, 4 entry_gone`, the most frequent first; empty without any.
pub(super) fn refusals(refused: &BTreeMap<String, u64>) -> String {
    let mut all: Vec<(&String, &u64)> = refused.iter().collect();
    all.sort_by(|a, b| b.1.cmp(a.1));
    all.iter().map(|(name, times)| format!("{} {name}", count(**times))).collect::<Vec<_>>().join(", ")
}

/// `1,180 retried, 24 not: 20 in_flight, 4 entry_gone`.
pub(super) fn result(act: Act, dry_run: bool, were: u64, refused: &BTreeMap<String, u64>) -> String {
    let entries = counted(were, "entry", "entries");
    let said = if dry_run { format!("{entries} would be {}", done(act)) } else { format!("{entries} {}", done(act)) };
    let not: u64 = refused.values().sum();
    if not == 0 { said } else { format!("{said}, {} not: {}", count(not), refusals(refused)) }
}
