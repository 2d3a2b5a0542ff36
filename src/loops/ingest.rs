//! From death to event: reads the DLQ in order and commits what it read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    event::{EventData, Include, JobDead, Lane},
    ledger::{Attached, Batch, Commit, Committed, Cursor, Death, Existing, ExistingStep, Lease, Ledger, StoreError},
    letter::DeadLetter,
    metrics::{DeadKind, Metrics},
};

/// How long one read waits for the next death. Short enough that a leader notices a lost store soon.
const BLOCK: Duration = Duration::from_secs(5);
/// Entries of a batch at most.
const LARGEST_BATCH: usize = 1_000;
/// Entries of the first batch: a DLQ full of huge entries must not fill memory before their size is known.
const FIRST_BATCH: usize = 16;
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

/// The ingest loop of one term.
pub struct Ingest {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    options: IngestOptions,
    cursor: Cursor,
    existing: Option<Existing>,
    batch_size: usize,
    /// Read but not committed yet.
    waiting: Option<Batch>,
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
            cursor: attached.cursor,
            existing: attached.existing,
            batch_size: FIRST_BATCH,
            waiting: None,
            outbox_len: 0,
        }
    }

    /// Commits a batch, while the next one is already being read if there is more.
    async fn commit_and_read_on(&mut self, batch: Batch) -> Result<(), StoreError> {
        self.batch_size = next_batch_size(self.batch_size, &batch);
        let plan = self.plan(&batch);
        let commit = Commit { from: &self.cursor, to: &batch.cursor, deaths: plan.deaths, existing: plan.step };
        // The read goes first on the wire: Redis answers it at once and commits while we decode.
        let (next, committed) = if batch.caught_up {
            (None, self.ledger.commit(&self.lease, commit).await)
        } else {
            let (next, committed) = tokio::join!(
                self.ledger.read(&batch.cursor, self.batch_size, None),
                self.ledger.commit(&self.lease, commit)
            );
            (Some(next), committed)
        };
        let committed = committed?;
        if let (Some(existing), None) = (&self.existing, &plan.existing_after) {
            let entries = existing.tally.count() + (batch.letters.len() - plan.announced) as u64;
            tracing::info!(source = self.ledger.name(), entries, "the entries of before are counted");
        }
        self.existing = plan.existing_after;
        self.count(&batch, &committed, plan.announced);
        self.cursor = batch.cursor;
        self.outbox_len = committed.outbox_len;
        // A failed read is repeated by the next step; the commit stands.
        self.waiting = next.and_then(Result::ok).filter(|next| !next.letters.is_empty());
        Ok(())
    }

    fn plan(&self, batch: &Batch) -> Plan {
        let source = self.ledger.name();
        let Some(existing) = &self.existing else {
            let deaths = batch
                .letters
                .iter()
                .map(|letter| death(letter, Some(Box::new(JobDead::of(source, letter, self.options.include)))))
                .collect();
            return Plan { deaths, step: None, existing_after: None, announced: batch.letters.len() };
        };
        // The boundary was taken at attach: entries behind it are new deaths, even in the same batch.
        let old = batch
            .letters
            .iter()
            .position(|letter| self.ledger.is_after(&letter.entry_id, &existing.until))
            .unwrap_or(batch.letters.len());
        let mut tally = existing.tally.clone();
        let mut deaths = Vec::with_capacity(batch.letters.len());
        for letter in &batch.letters[..old] {
            tally.add(letter.died_at, &letter.group.0, || JobDead::of(source, letter, Include::default()));
            deaths.push(death(letter, None));
        }
        for letter in &batch.letters[old..] {
            deaths.push(death(letter, Some(Box::new(JobDead::of(source, letter, self.options.include)))));
        }
        let done = old < batch.letters.len() || batch.caught_up || batch.cursor == existing.until;
        let announced = batch.letters.len() - old;
        if done {
            let digest =
                (tally.count() > 0).then(|| Box::new(EventData::Digest(Box::new(tally.digest(source, "existing")))));
            Plan { deaths, step: Some(ExistingStep::Done(digest)), existing_after: None, announced }
        } else {
            let step = Some(ExistingStep::Counting(Box::new(tally.clone())));
            let existing_after = Some(Existing { until: existing.until.clone(), tally });
            Plan { deaths, step, existing_after, announced }
        }
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

/// What a commit will say about a batch.
struct Plan {
    deaths: Vec<Death>,
    step: Option<ExistingStep>,
    existing_after: Option<Existing>,
    /// How many of the batch's letters, from the end, are announced.
    announced: usize,
}

fn death(letter: &DeadLetter, event: Option<Box<JobDead>>) -> Death {
    Death { job_id: letter.job_id.clone(), at: letter.died_at, event }
}

/// Twice as many as last time while they are small, and never more than what weighs [`BATCH_BYTES`].
fn next_batch_size(last: usize, batch: &Batch) -> usize {
    let heavy = batch.bytes / batch.letters.len().max(1);
    let fits = BATCH_BYTES / heavy.max(1);
    fits.min(last.saturating_mul(2)).clamp(1, LARGEST_BATCH)
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
        let batch = match self.waiting.take() {
            Some(batch) => batch,
            None => {
                // While the existing entries are being read there is something to commit even when none is left.
                let block = if self.existing.is_some() { None } else { Some(BLOCK) };
                tokio::select! {
                    () = stop.cancelled() => return Ok(Next::Again),
                    batch = self.ledger.read(&self.cursor, self.batch_size, block) => batch?,
                }
            }
        };
        if batch.letters.is_empty() && self.existing.is_none() {
            return Ok(Next::Again);
        }
        self.commit_and_read_on(batch).await?;
        Ok(Next::Again)
    }
}
