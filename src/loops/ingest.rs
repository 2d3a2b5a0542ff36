//! From death to event: reads the DLQ in order and commits what it read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    event::{EventData, Include, JobDead, Lane},
    ledger::{
        Attached, Batch, Commit, Committed, Cursor, Death, Existing, ExistingStep, Lease, Ledger, PlanEnd, StoreError,
    },
    letter::DeadLetter,
    metrics::{DeadKind, Metrics},
};

/// How long one read waits for the next death. Short enough that a leader notices a lost store soon.
const BLOCK: Duration = Duration::from_secs(5);
/// Entries of a batch at most.
const LARGEST_BATCH: usize = 500;
/// Entries of a batch while nothing is known of their size: a DLQ full of huge ones must not fill memory.
const FIRST_BATCH: usize = 1;
/// Entries of a batch after a pause: what comes now may be of another size than what came before it.
const FRESH_BATCH: usize = 32;
/// What a batch should weigh at most.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
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

/// A commit under way, and what it is about.
struct Committing {
    outcome: JoinHandle<Result<Committed, StoreError>>,
    planned: Planned,
}

/// A batch whose commit has been planned.
struct Planned {
    batch: Batch,
    /// How many of its letters, from the end, are announced.
    announced: usize,
    /// Where the ledger is once the commit stands.
    after: Progress,
}

/// The ingest loop of one term.
///
/// A backlog flows through three stages at once: while Redis commits one batch, the next one is planned and the one
/// after that is being read. A single death goes straight through.
pub struct Ingest {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    options: IngestOptions,
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
        ledger: Arc<dyn Ledger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        options: IngestOptions,
        attached: Attached,
    ) -> Ingest {
        Ingest {
            ledger,
            lease,
            metrics,
            options,
            confirmed: Progress { cursor: attached.cursor, existing: attached.existing },
            committing: None,
            reading: None,
            batch_size: FIRST_BATCH,
            outbox_len: 0,
        }
    }

    /// Where the next batch begins: behind the commit under way, if there is one.
    fn progress(&self) -> &Progress {
        self.committing.as_ref().map_or(&self.confirmed, |committing| &committing.planned.after)
    }

    /// The next batch: the one that is being read already, or one that has yet to come. None once told to stop.
    async fn next_batch(&mut self, stop: &CancellationToken) -> Result<Option<Batch>, StoreError> {
        if let Some(reading) = self.reading.take() {
            return joined(reading.await).map(Some);
        }
        let progress = self.progress();
        // While the entries of before are being read there is something to commit even when none is left.
        let block = progress.existing.is_none().then_some(BLOCK);
        tokio::select! {
            () = stop.cancelled() => Ok(None),
            batch = self.ledger.read(&progress.cursor, self.batch_size, block) => batch.map(Some),
        }
    }

    /// Takes a batch through: reads on, plans it, and commits it once the commit before it stands.
    async fn take(&mut self, batch: Batch) -> Result<(), StoreError> {
        self.batch_size = next_batch_size(self.batch_size, &batch);
        let (straight, size) = (batch.caught_up, self.batch_size);
        if !straight {
            let (ledger, after) = (Arc::clone(&self.ledger), batch.cursor.clone());
            self.reading = Some(tokio::spawn(async move { ledger.read(&after, size, None).await }));
        }
        let (planned, commit) = self.plan(batch);
        self.confirm().await?;
        if straight {
            let committed = commit_in(&*self.ledger, &self.lease, commit).await?;
            self.stands(planned, &committed);
        } else {
            let (ledger, lease) = (Arc::clone(&self.ledger), self.lease.clone());
            let outcome = tokio::spawn(async move { commit_in(&*ledger, &lease, commit).await });
            self.committing = Some(Committing { outcome, planned });
        }
        Ok(())
    }

    /// Waits for the commit under way. If it fails, what was read beyond it is read again.
    async fn confirm(&mut self) -> Result<(), StoreError> {
        if let Some(Committing { outcome, planned }) = self.committing.take() {
            let committed = joined(outcome.await).inspect_err(|_| self.reading = None)?;
            self.stands(planned, &committed);
        }
        Ok(())
    }

    /// Takes over what a commit has done.
    fn stands(&mut self, planned: Planned, committed: &Committed) {
        if let (Some(existing), None) = (&self.confirmed.existing, &planned.after.existing) {
            let entries = existing.tally.count() + (planned.batch.letters.len() - planned.announced) as u64;
            tracing::info!(source = self.ledger.name(), entries, "the entries of before are counted");
        }
        self.count(&planned.batch, committed, planned.announced);
        self.outbox_len = committed.outbox_len;
        self.confirmed = planned.after;
    }

    fn plan(&self, batch: Batch) -> (Planned, Commit) {
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
        let death = |(n, letter): (usize, &DeadLetter)| Death {
            entry_id: letter.entry_id.clone(),
            job_id: letter.job_id.clone(),
            at: letter.died_at,
            event: (n >= old).then(|| JobDead::of(source, letter, self.options.include).to_json()),
            plan: None,
        };
        let deaths = batch.letters.iter().enumerate().map(death).collect();
        let commit =
            Commit { from: progress.cursor.clone(), to: batch.cursor.clone(), deaths, existing: step, generation: 0 };
        let after = Progress { cursor: batch.cursor.clone(), existing: existing_after };
        (Planned { batch, announced, after }, commit)
    }

    fn count(&self, batch: &Batch, committed: &Committed, announced: usize) {
        let first = batch.letters.len() - announced;
        let mut kinds: HashMap<DeadKind<'_>, u64> = HashMap::new();
        for (letter, job) in batch.letters.iter().zip(&committed.jobs).skip(first) {
            let DeadLetter { queue, task, reason, .. } = letter;
            *kinds.entry(DeadKind { queue, task, reason, again: job.retries > 0 }).or_default() += 1;
        }
        for (kind, count) in &kinds {
            self.metrics.jobs_dead(self.ledger.name(), kind, *count);
        }
        let source = self.ledger.name();
        match &batch.letters[first..] {
            [] => {}
            [one] => tracing::info!(
                source,
                entry = one.entry_id,
                job = one.job_id,
                task = one.task,
                reason = one.reason.as_str(),
                group = one.group.0,
                "a job is dead"
            ),
            many => tracing::info!(source, deaths = many.len(), until = batch.cursor.0, "jobs are dead"),
        }
    }
}

async fn commit_in(ledger: &dyn Ledger, lease: &Lease, commit: Commit) -> Result<Committed, StoreError> {
    match ledger.commit(lease, commit).await? {
        PlanEnd::Stands(committed) => Ok(committed),
        PlanEnd::Stale(_) => Err(StoreError::Unexpected("no plan was made, yet one is stale".to_owned())),
    }
}

/// What a task of ours came to. One that panicked takes this loop with it, as if the panic had happened here.
fn joined<T>(outcome: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    outcome.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(StoreError::Unavailable("the read was abandoned".to_owned())),
    })
}

/// Twice as many as last time while they are small, and never more than weigh [`BATCH_BYTES`] if all were as heavy as the
/// heaviest one seen.
fn next_batch_size(last: usize, batch: &Batch) -> usize {
    let fits = BATCH_BYTES / batch.heaviest.max(1);
    let most = if batch.caught_up { FRESH_BATCH } else { LARGEST_BATCH };
    fits.min(last.saturating_mul(2)).clamp(1, most)
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
