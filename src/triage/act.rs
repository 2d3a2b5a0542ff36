//! Retrying and removing entries that are named one by one.

use serde::Serialize;
use utoipa::ToSchema;

use super::listing::counts_of;
use crate::{
    event::{Include, JobDead},
    ledger::{self, Act, By, HandRetry, JobCounts, Raised, Refusal, Removal, TriageLedger},
    letter::DeadLetter,
    rule::{Decision, Rules, Terms},
};

/// Entries in one piece. The store does nothing else for as long as one takes.
pub const TOGETHER: usize = 100;

/// What is done with entries, and by whom.
#[derive(Clone, Debug)]
pub struct Doing<'a> {
    /// What.
    pub act: Act,
    /// By whom, and why.
    pub by: By,
    /// Only look what would become of them.
    pub dry_run: bool,
    /// The rules in force, if they are known: whose terms say how long a verdict on a retry is waited for.
    pub rules: &'a Rules,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Its job is back on its queue.
    Retried,
    /// It is no longer in the DLQ.
    Removed,
    /// A dry run: as far as can be told without doing it, it would be.
    Would,
    /// It is not, for the reason given.
    Refused,
}

/// What became of one entry, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Outcome {
    /// The source's name.
    pub source: String,
    /// The entry.
    pub entry_id: String,
    /// What became of it.
    pub outcome: End,
    /// Why it was refused, by its name in metrics and logs; `entry_gone` if somebody was faster.
    pub refusal: Option<&'static str>,
    /// The entry on the queue that its job is now.
    pub queue_entry: Option<String>,
}

impl Outcome {
    fn of(source: &str, entry_id: &str, outcome: End) -> Outcome {
        let (source, entry_id) = (source.to_owned(), entry_id.to_owned());
        Outcome { source, entry_id, outcome, refusal: None, queue_entry: None }
    }

    fn refused(source: &str, entry_id: &str, why: Refusal) -> Outcome {
        Outcome { refusal: Some(why.as_str()), ..Outcome::of(source, entry_id, End::Refused) }
    }

    fn retried(source: &str, entry_id: &str, raised: Raised) -> Outcome {
        match raised {
            Raised::Sent(to) => Outcome { queue_entry: Some(to), ..Outcome::of(source, entry_id, End::Retried) },
            Raised::Refused(why) => Outcome::refused(source, entry_id, why),
        }
    }

    /// Whether it was done, or would be.
    pub fn is_done(&self) -> bool {
        self.outcome != End::Refused
    }
}

impl Doing<'_> {
    /// Does it to these entries of a source, in order; one that is not there is an outcome, too.
    pub async fn to(&self, ledger: &dyn TriageLedger, entries: &[String]) -> ledger::Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(entries.len());
        for piece in entries.chunks(TOGETHER) {
            outcomes.extend(match self.act {
                Act::Delete | Act::Purge if !self.dry_run => self.remove(ledger, piece).await?,
                Act::Retry | Act::Delete | Act::Purge => self.look_and_retry(ledger, piece).await?,
            });
        }
        Ok(outcomes)
    }

    /// Does it to these letters of a source, which were read before.
    pub(super) async fn to_letters(
        &self,
        ledger: &dyn TriageLedger,
        letters: &[DeadLetter],
    ) -> ledger::Result<Vec<Outcome>> {
        match self.act {
            Act::Retry if !self.dry_run => {
                let counts = counts_of(ledger, letters).await?;
                self.retry(ledger, letters.iter().zip(counts).collect()).await
            }
            Act::Delete | Act::Purge if !self.dry_run => {
                let ids: Vec<String> = letters.iter().map(|letter| letter.entry_id.clone()).collect();
                self.remove(ledger, &ids).await
            }
            Act::Retry | Act::Delete | Act::Purge => {
                Ok(letters.iter().map(|letter| self.would(ledger.name(), letter)).collect())
            }
        }
    }

    /// As far as the letter alone can tell.
    fn would(&self, source: &str, letter: &DeadLetter) -> Outcome {
        match impossible(letter).filter(|_| self.act == Act::Retry) {
            Some(why) => Outcome::refused(source, &letter.entry_id, why),
            None => Outcome::of(source, &letter.entry_id, End::Would),
        }
    }

    async fn remove(&self, ledger: &dyn TriageLedger, entries: &[String]) -> ledger::Result<Vec<Outcome>> {
        let how = if self.act == Act::Purge { Removal::Purged } else { Removal::Removed };
        let source = ledger.name();
        let removed = ledger.remove(&self.by, how, entries).await?;
        let outcome = |(entry, removed): (&String, bool)| match removed {
            true => Outcome::of(source, entry, End::Removed),
            false => Outcome::refused(source, entry, Refusal::EntryGone),
        };
        Ok(entries.iter().zip(removed).map(outcome).collect())
    }

    async fn look_and_retry(&self, ledger: &dyn TriageLedger, entries: &[String]) -> ledger::Result<Vec<Outcome>> {
        let source = ledger.name();
        let standing = ledger.standing(entries).await?;
        let here: Vec<(&DeadLetter, JobCounts)> =
            standing.iter().flatten().map(|standing| (&standing.letter, standing.job)).collect();
        let mut ends = match self.dry_run {
            true => here.iter().map(|(letter, _)| self.would(source, letter)).collect(),
            false => self.retry(ledger, here).await?,
        }
        .into_iter();
        let outcome = |(entry, standing): (&String, &Option<ledger::Standing>)| {
            let end = standing.as_ref().and_then(|_| ends.next());
            end.unwrap_or_else(|| Outcome::refused(source, entry, Refusal::EntryGone))
        };
        Ok(entries.iter().zip(&standing).map(outcome).collect())
    }

    async fn retry(
        &self,
        ledger: &dyn TriageLedger,
        letters: Vec<(&DeadLetter, JobCounts)>,
    ) -> ledger::Result<Vec<Outcome>> {
        let source = ledger.name();
        let can = letters.iter().filter(|(letter, _)| impossible(letter).is_none());
        let retries: Vec<HandRetry> = can.map(|(letter, counts)| self.hand_retry(source, letter, *counts)).collect();
        let raised = if retries.is_empty() { Vec::new() } else { ledger.retry_by_hand(&self.by, retries).await? };
        let mut raised = raised.into_iter();
        let outcome = |(letter, _): &(&DeadLetter, JobCounts)| {
            let entry = &letter.entry_id;
            match impossible(letter) {
                Some(why) => Outcome::refused(source, entry, why),
                None => {
                    let raised = raised.next().unwrap_or(Raised::Refused(Refusal::EntryGone));
                    Outcome::retried(source, entry, raised)
                }
            }
        };
        Ok(letters.iter().map(outcome).collect())
    }

    fn hand_retry(&self, source: &str, letter: &DeadLetter, counts: JobCounts) -> HandRetry {
        let terms = match self.rules.decide(source, letter) {
            Decision::Retry(_, terms) => Some(terms.confirm_within),
            Decision::Never(_) | Decision::NoRule | Decision::Leave(_) => None,
        };
        HandRetry {
            dead: JobDead { deaths: counts.deaths, ..JobDead::of(source, letter, Include::default()) },
            stream: letter.origin.clone(),
            dedup: letter.dedup.clone(),
            confirm_within: terms.unwrap_or_else(|| Terms::default().confirm_within),
        }
    }
}

/// Why not even a person can have a letter retried: what it says is no job of this framework.
fn impossible(letter: &DeadLetter) -> Option<Refusal> {
    if letter.foreign {
        return Some(Refusal::ForeignStream);
    }
    let no_job = letter.job_id.is_empty() || letter.task.is_empty() || letter.origin.is_empty();
    no_job.then_some(Refusal::Malformed)
}
