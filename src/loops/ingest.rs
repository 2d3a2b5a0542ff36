//! From death to event: reads the DLQ in order, plans by the rules, and commits what it read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle},
};
use tokio_util::sync::CancellationToken;

use super::{Next, Step, batch};
use crate::{
    event::{EventData, Include, JobDead, Lane, rfc3339},
    ledger::{
        Attached, Batch, Commit, Committed, Cursor, Death, Existing, ExistingStep, JobCounts, Lease, Plan, PlanEnd,
        RetryLedger, StoreError,
    },
    letter::DeadLetter,
    metrics::{DeadKind, Metrics},
    retry::{Fate, fate},
    rule::{Action, Rules},
};

/// How long one read waits for the next death. Short enough that a leader notices a lost store soon.
const BLOCK: Duration = Duration::from_secs(5);
/// Entries of a batch at most.
const LARGEST_BATCH: usize = 500;
/// Entries of a batch after a pause: what comes now may be of another size than what came before it.
const FRESH_BATCH: usize = 32;
/// Tries at a plan that turns out to be made with the wrong counts each time. Only a person who retries by hand at this
/// very moment can make more than one needed.
const PLANS: usize = 5;
/// How long to wait when the outbox is full.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// What ingest does the same way in every term.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// What the outbox keeps of each letter beyond the usual: what any hook includes.
    pub include: Include,
    /// Events in the outbox at most; reading waits while it is full.
    pub outbox_cap: u64,
}

/// How far the DLQ has been read.
#[derive(Clone, Debug)]
struct Progress {
    cursor: Cursor,
    /// Set while the entries of before are being read.
    existing: Option<Existing>,
}

/// The rules that plans are made by, and the ledger's number for them.
#[derive(Clone, Debug, Default)]
struct InForce {
    rules: Arc<Rules>,
    generation: u64,
}

/// A commit under way, and what it is about.
struct Committing {
    outcome: JoinHandle<Result<PlanEnd<Committed>, StoreError>>,
    planned: Planned,
}

/// A batch whose commit has been planned.
struct Planned {
    batch: Batch,
    /// How many of its letters, from the end, are announced.
    announced: usize,
    /// Which of them have spent what this rule grants them.
    spent: HashMap<usize, String>,
    /// Where the ledger is once the commit stands.
    after: Progress,
}

/// The ingest loop of one term.
///
/// A backlog flows through three stages at once: while Redis commits one batch, the next one is planned and the one
/// after that is being read. A single death goes straight through.
pub struct Ingest {
    ledger: Arc<dyn RetryLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    options: IngestOptions,
    rules: watch::Receiver<Arc<Rules>>,
    in_force: InForce,
    /// The ledger is to adopt the rules as they are now: at the beginning of a term, and when they have changed.
    adopt: bool,
    /// What the ledger has confirmed.
    confirmed: Progress,
    committing: Option<Committing>,
    reading: Option<JoinHandle<Result<Batch, StoreError>>>,
    batch_size: usize,
    outbox_len: u64,
}

impl Ingest {
    /// Goes on from where the new leader attached.
    pub fn new(
        ledger: Arc<dyn RetryLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        options: IngestOptions,
        rules: watch::Receiver<Arc<Rules>>,
        attached: Attached,
    ) -> Ingest {
        Ingest {
            ledger,
            lease,
            metrics,
            options,
            rules,
            in_force: InForce::default(),
            adopt: true,
            confirmed: Progress { cursor: attached.cursor, existing: attached.existing },
            committing: None,
            reading: None,
            batch_size: batch::FIRST,
            outbox_len: 0,
        }
    }

    /// Where the next batch begins: behind the commit under way, if there is one.
    fn progress(&self) -> &Progress {
        self.committing.as_ref().map_or(&self.confirmed, |committing| &committing.planned.after)
    }

    /// Makes the ledger work by the rules as they are now. The entries that are already there are judged anew by another
    /// loop; from here on every plan is made by these.
    async fn adopt_rules(&mut self) -> Result<(), StoreError> {
        // Until it is done: a store that fails in the middle must not leave the old rules in force.
        self.adopt = true;
        self.confirm().await?;
        let rules = Arc::clone(&self.rules.borrow_and_update());
        let generation = self.ledger.adopt_rules(&self.lease, &self.confirmed.cursor, &rules.fingerprint).await?;
        let retrying = rules.retry.iter().filter(|rule| matches!(rule.action, Action::Retry(_)));
        let names: Vec<&str> = retrying.map(|rule| rule.name.as_str()).collect();
        self.metrics.rules(self.ledger.name(), &names);
        self.in_force = InForce { rules, generation };
        self.adopt = false;
        Ok(())
    }

    /// The next batch: the one that is being read already, or one that has yet to come. None once told to stop, and when
    /// the rules have changed.
    async fn next_batch(&mut self, stop: &CancellationToken) -> Result<Option<Batch>, StoreError> {
        if let Some(reading) = self.reading.take() {
            return joined(reading.await).map(Some);
        }
        let progress = self.committing.as_ref().map_or(&self.confirmed, |committing| &committing.planned.after);
        // While the entries of before are being read there is something to commit even when none is left.
        let block = progress.existing.is_none().then_some(BLOCK);
        tokio::select! {
            // In this order: who is told to stop sends no read that nobody waits for.
            biased;
            () = stop.cancelled() => Ok(None),
            () = changed(&mut self.rules) => {
                // It counts as seen now.
                self.adopt = true;
                Ok(None)
            }
            batch = self.ledger.read(&progress.cursor, self.batch_size, block) => batch.map(Some),
        }
    }

    /// Takes a batch through: reads on, plans it, and commits it once the commit before it stands.
    async fn take(&mut self, batch: Batch) -> Result<(), StoreError> {
        let most = if batch.caught_up { FRESH_BATCH } else { LARGEST_BATCH };
        self.batch_size = batch::next_size(self.batch_size, batch.heaviest, most);
        let (straight, size) = (batch.caught_up, self.batch_size);
        if !straight {
            let (ledger, after) = (Arc::clone(&self.ledger), batch.cursor.clone());
            self.reading = Some(tokio::spawn(async move { ledger.read(&after, size, None).await }));
        }
        let (planned, commit) = self.plan(batch, None);
        self.confirm().await?;
        if straight {
            let end = self.ledger.commit(&self.lease, commit).await?;
            self.bring_to_stand(planned, end).await?;
        } else {
            let (ledger, lease) = (Arc::clone(&self.ledger), self.lease.clone());
            let outcome = tokio::spawn(async move { ledger.commit(&lease, commit).await });
            self.committing = Some(Committing { outcome, planned });
        }
        Ok(())
    }

    /// Waits for the commit under way. If it fails, what was read beyond it is read again.
    async fn confirm(&mut self) -> Result<(), StoreError> {
        if let Some(Committing { outcome, planned }) = self.committing.take() {
            let end = joined(outcome.await).inspect_err(|_| self.reading = None)?;
            self.bring_to_stand(planned, end).await.inspect_err(|_| self.reading = None)?;
        }
        Ok(())
    }

    /// Takes over what a commit has done; one that did nothing, because the ledger knows more of the jobs than the plan
    /// did, is planned and made anew.
    async fn bring_to_stand(&mut self, mut planned: Planned, mut end: PlanEnd<Committed>) -> Result<(), StoreError> {
        let mut plans = 0;
        let committed = loop {
            match end {
                PlanEnd::Stands(committed) => break committed,
                PlanEnd::Stale(_) if plans == PLANS => {
                    let why = "the counts of a job change faster than they can be planned by";
                    return Err(StoreError::Unexpected(why.to_owned()));
                }
                PlanEnd::Stale(counts) => {
                    plans += 1;
                    let commit;
                    (planned, commit) = self.plan(planned.batch, Some(&counts));
                    end = self.ledger.commit(&self.lease, commit).await?;
                }
            }
        };
        self.stands(planned, &committed);
        Ok(())
    }

    /// Takes over what a commit has done.
    fn stands(&mut self, planned: Planned, committed: &Committed) {
        if let (Some(existing), None) = (&self.confirmed.existing, &planned.after.existing) {
            let entries = existing.tally.count() + (planned.batch.letters.len() - planned.announced) as u64;
            tracing::info!(source = self.ledger.name(), entries, "the entries of before are counted");
        }
        self.count(&planned, committed);
        self.outbox_len = committed.outbox_len;
        self.confirmed = planned.after;
    }

    /// Plans a batch that begins where the ledger is, or will be. Without the counts of its jobs every death counts as a
    /// first one.
    fn plan(&self, batch: Batch, counts: Option<&[JobCounts]>) -> (Planned, Commit) {
        let source = self.ledger.name();
        let progress = self.progress();
        // The boundary was taken at attach: entries behind it are new deaths, even in the same batch.
        let old = progress.existing.as_ref().map_or(0, |existing| {
            batch.letters.partition_point(|letter| !self.ledger.is_after(&letter.entry_id, &existing.until))
        });
        let announced = batch.letters.len() - old;
        let mut step = None;
        let mut existing_after = None;
        if let Some(existing) = &progress.existing {
            let mut tally = existing.tally.clone();
            for letter in &batch.letters[..old] {
                // The least that is known of its deaths is this one.
                let sample = || JobDead { deaths: 1, ..JobDead::of(source, letter, Include::default()) };
                tally.add(letter.died_at, &letter.group.0, sample);
            }
            if announced > 0 || batch.caught_up || batch.cursor == existing.until {
                let digest = || Box::new(EventData::Digest(Box::new(tally.digest(source, "existing"))));
                step = Some(ExistingStep::Done((tally.count() > 0).then(digest)));
            } else {
                step = Some(ExistingStep::Counting(Box::new(tally.clone())));
                existing_after = Some(Existing { until: existing.until.clone(), tally });
            }
        }
        let in_force = &self.in_force;
        let death = |(n, letter): (usize, &DeadLetter)| {
            let before = counts.and_then(|counts| counts.get(n)).copied().unwrap_or_default();
            let Fate { rule, next_retry_at, plan } = fate(&in_force.rules, source, letter, before);
            let event = || {
                let dead = JobDead::of(source, letter, self.options.include);
                let next_retry_at = next_retry_at.and_then(rfc3339);
                JobDead { rule: rule.map(str::to_owned), next_retry_at, ..dead }.to_json()
            };
            Death {
                entry_id: letter.entry_id.clone(),
                job_id: letter.job_id.clone(),
                at: letter.died_at,
                event: (n >= old).then(event),
                plan,
            }
        };
        let deaths: Vec<Death> = batch.letters.iter().enumerate().map(death).collect();
        let spent = |(n, death): (usize, &Death)| match &death.plan {
            Some(Plan::Spent { rule, .. }) => Some((n, rule.clone())),
            _ => None,
        };
        let spent = deaths.iter().enumerate().filter_map(spent).collect();
        let commit = Commit {
            from: progress.cursor.clone(),
            to: batch.cursor.clone(),
            deaths,
            existing: step,
            generation: in_force.generation,
        };
        let after = Progress { cursor: batch.cursor.clone(), existing: existing_after };
        (Planned { batch, announced, spent, after }, commit)
    }

    /// One death in the log, with what the rules make of it.
    fn tell(&self, letter: &DeadLetter, counts: JobCounts) {
        let before = JobCounts { deaths: counts.deaths.saturating_sub(1), ..counts };
        let Fate { rule, next_retry_at, .. } = fate(&self.in_force.rules, self.ledger.name(), letter, before);
        tracing::info!(
            source = self.ledger.name(),
            entry = letter.entry_id,
            job = letter.job_id,
            task = letter.task,
            reason = letter.reason.as_str(),
            error = letter.error.kind,
            group = letter.group.0,
            deaths = counts.deaths,
            retries = counts.retries,
            rule,
            next_retry_at = next_retry_at.and_then(rfc3339),
            "a job is dead"
        );
    }

    fn count(&self, planned: &Planned, committed: &Committed) {
        let Planned { batch, announced, spent, .. } = planned;
        let first = batch.letters.len() - announced;
        let mut kinds: HashMap<DeadKind<'_>, u64> = HashMap::new();
        for (letter, job) in batch.letters.iter().zip(&committed.jobs).skip(first) {
            let DeadLetter { queue, task, reason, .. } = letter;
            *kinds.entry(DeadKind { queue, task, reason, again: job.retries > 0 }).or_default() += 1;
        }
        self.metrics.jobs_dead(self.ledger.name(), &kinds, committed.told);
        let source = self.ledger.name();
        match &batch.letters[first..] {
            [] => {}
            [one] => self.tell(one, committed.jobs.last().copied().unwrap_or_default()),
            many => {
                let again = committed.jobs.iter().skip(first).filter(|job| job.deaths > 1).count();
                tracing::info!(source, deaths = many.len(), again, until = batch.cursor.0, "jobs are dead");
            }
        }
        for n in &committed.exhausted {
            let (Some(letter), Some(rule)) = (batch.letters.get(*n), spent.get(n)) else { continue };
            self.metrics.exhausted(source, rule);
            let (entry, job, task, group) = (&letter.entry_id, &letter.job_id, &letter.task, &letter.group.0);
            tracing::warn!(source, entry, job, task, group, rule, "the allowance is spent: it waits for a person");
        }
        if let Some(letter) = committed.elsewhere.first().and_then(|n| batch.letters.get(*n)) {
            tracing::info!(
                source,
                jobs = committed.elsewhere.len(),
                entry = letter.entry_id,
                job = letter.job_id,
                "died again after somebody else had put it back: a person, or another loop on this DLQ"
            );
        }
    }
}

/// Waits until the rules change; for ever if nobody is left who could change them.
async fn changed(rules: &mut watch::Receiver<Arc<Rules>>) {
    if rules.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What a task of ours came to. One that panicked takes this loop with it, as if the panic had happened here.
fn joined<T>(outcome: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    outcome.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(StoreError::Unavailable("the read was abandoned".to_owned())),
    })
}

#[async_trait]
impl Step for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        if self.outbox_len >= self.options.outbox_cap {
            self.outbox_len = self.ledger.outbox_len(Lane::Deaths).await?;
            if self.outbox_len >= self.options.outbox_cap {
                return Ok(Next::After(FULL_PAUSE));
            }
        }
        if self.adopt || self.rules.has_changed().unwrap_or(false) {
            self.adopt_rules().await?;
        }
        let Some(batch) = self.next_batch(stop).await? else { return Ok(Next::Again) };
        if batch.letters.is_empty() && self.progress().existing.is_none() {
            self.confirm().await?;
            // A quiet DLQ tells nothing; a store that has lost data must not wait for the next death to be noticed.
            self.ledger.check(&self.lease, &self.confirmed.cursor).await?;
            return Ok(Next::Again);
        }
        self.take(batch).await?;
        Ok(Next::Again)
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        self.confirm().await
    }
}
