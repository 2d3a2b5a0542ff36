//! After the rules have changed: judges the entries anew that are in the DLQ already, page by page, in the background.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step, batch};
use crate::{
    ledger::{Batch, JobCounts, Judge as JudgeStep, Judged, Judging, Lease, Plan, PlanEnd, RetryLedger, StoreError},
    metrics::Metrics,
    retry::fate,
    rule::Rules,
};

/// Entries of a page at most: small enough that deaths and retries go on meanwhile.
const PAGE: usize = 500;
/// What lies between two pages.
const PAUSE: Duration = Duration::from_millis(25);
/// How soon to look again whether the ledger works by the rules of this process.
const SOON: Duration = Duration::from_millis(200);
/// How often to look when nothing has changed.
const IDLE: Duration = Duration::from_secs(60);
/// Groups of an old index that are removed at a time.
const DISCARDED: usize = 200;
/// Tries at a page whose counts change while it is planned.
const PLANS: usize = 5;

/// The judge loop of one term.
pub struct Judge {
    ledger: Arc<dyn RetryLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    rules: watch::Receiver<Arc<Rules>>,
    /// Entries judged since the rules changed; none if there is nothing to judge.
    judged: Option<u64>,
    page_size: usize,
}

impl Judge {
    /// Judges by the rules as they are at any time.
    pub fn new(
        ledger: Arc<dyn RetryLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        rules: watch::Receiver<Arc<Rules>>,
    ) -> Judge {
        Judge { ledger, lease, metrics, rules, judged: None, page_size: batch::FIRST }
    }

    async fn page(&mut self, rules: &Rules, judging: Judging) -> Result<(), StoreError> {
        let source = self.ledger.name();
        let (batch, mut counts) = self.ledger.read_to_judge(&judging.judged, &judging.until, self.page_size).await?;
        self.page_size = batch::next_size(self.page_size, batch.heaviest, PAGE);
        let to = if batch.letters.is_empty() { judging.until.clone() } else { batch.cursor.clone() };
        for _ in 0..PLANS {
            let entries = plan(rules, source, &batch, &counts);
            let spent: Vec<Option<String>> = entries.iter().map(spent_rule).collect();
            let step =
                JudgeStep { generation: judging.generation, from: judging.judged.clone(), to: to.clone(), entries };
            match self.ledger.judge(&self.lease, step).await? {
                PlanEnd::Stale(now) => counts = now,
                PlanEnd::Stands(committed) => {
                    for rule in committed.exhausted.iter().filter_map(|n| spent.get(*n)?.as_ref()) {
                        self.metrics.exhausted(source, rule);
                    }
                    if self.judged.is_none() {
                        tracing::info!(source, until = judging.until.0, "the rules are new: judging what is waiting");
                    }
                    self.judged = Some(self.judged.unwrap_or(0) + batch.letters.len() as u64);
                    return Ok(());
                }
            }
        }
        // Somebody is at work on these very jobs; they are looked at again in the next step.
        Ok(())
    }
}

fn plan(rules: &Rules, source: &str, batch: &Batch, counts: &[JobCounts]) -> Vec<Judged> {
    let letters = batch.letters.iter().enumerate();
    letters
        .map(|(n, letter)| {
            // The deaths that are known include this one.
            let known = counts.get(n).copied().unwrap_or_default();
            let before = JobCounts { deaths: known.deaths.saturating_sub(1), ..known };
            Judged {
                entry_id: letter.entry_id.clone(),
                job_id: letter.job_id.clone(),
                plan: fate(rules, source, letter, before).plan,
            }
        })
        .collect()
}

fn spent_rule(judged: &Judged) -> Option<String> {
    match &judged.plan {
        Some(Plan::Spent { rule, .. }) => Some(rule.clone()),
        _ => None,
    }
}

#[async_trait]
impl Step for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        let rules = Arc::clone(&self.rules.borrow_and_update());
        let judging = self.ledger.judging().await?;
        if judging.fingerprint != rules.fingerprint {
            return Ok(Next::After(SOON));
        }
        if judging.generation > 0 && self.ledger.is_after(&judging.until.0, &judging.judged) {
            // A page of a generation that is gone meanwhile: the next step sees which one is in force.
            return match self.page(&rules, judging).await {
                Ok(()) | Err(StoreError::Moved) => Ok(Next::After(PAUSE)),
                Err(error) => Err(error),
            };
        }
        if let Some(entries) = self.judged.take() {
            tracing::info!(source = self.ledger.name(), entries, "what was waiting is judged by the new rules");
        }
        if self.ledger.discard_old(&self.lease, DISCARDED).await? {
            return Ok(Next::After(PAUSE));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            changed = self.rules.changed() => if changed.is_err() {
                // Nobody is left who could change them: the process is about to end.
                return Ok(Next::After(IDLE));
            },
            () = tokio::time::sleep(IDLE) => {}
        }
        Ok(Next::Again)
    }
}
