//! Works off the bulk operations that people ask for over HTTP: the oldest first, but all of them in turn, one bounded
//! piece each.
//!
//! What was done is counted by the store in the step that does it; how far an operation has come is saved behind that. So
//! a new leader goes on where the old one stopped, and counts nothing twice. An operation that was cancelled is refused by
//! the store from then on.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::monotonic,
    ledger::{Act, Lease, Operation, OperationProgress, OperationState, StoreError, TriageLedger},
    metrics::{Metrics, Purged},
    rule::Rules,
    triage::{Bulk, Pace, announce_purge},
};

/// What an operation waits with for its next piece, which is done by the rules as they are then.
static NO_RULES: LazyLock<Rules> = LazyLock::new(Rules::default);

/// How often to look for new operations. One command of the store.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Operations that a look sees. More than that are not begun in so short a time; if they are, they come later.
const LOOKED_AT: usize = 50;
/// Operations that a new leader looks at.
const LOOKED_BACK_AT: usize = 1_000;
/// A piece is followed by a rest of the same length, so that workers hardly notice; at most this long.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// How long one waits for the pace of all operations to allow something, at most: soon enough to hear of a stop.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The operations loop of one term.
pub struct Operate {
    ledger: Arc<dyn TriageLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    rules: watch::Receiver<Arc<Rules>>,
    /// Ticks when this process was asked for an operation, so that it begins at once.
    asked: watch::Receiver<()>,
    /// Those that run, oldest first; the next one to be worked on is the first.
    running: Vec<Running>,
    /// Those that were looked at: at work, or at their end.
    known: HashSet<String>,
    /// When to look for new ones; at once in a new term.
    look_at: Option<Instant>,
}

/// An operation at work.
struct Running {
    operation: Operation,
    progress: OperationProgress,
    bulk: Bulk<'static>,
    pace: Pace,
    /// Something was done before it was taken on here.
    was_begun: bool,
}

impl Operate {
    /// Works for the source of this ledger.
    pub fn new(
        ledger: Arc<dyn TriageLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        rules: watch::Receiver<Arc<Rules>>,
        asked: watch::Receiver<()>,
    ) -> Operate {
        Operate { ledger, lease, metrics, rules, asked, running: Vec::new(), known: HashSet::new(), look_at: None }
    }

    /// Takes on operations that are new.
    async fn look(&mut self) -> Result<(), StoreError> {
        let max = if self.look_at.is_none() { LOOKED_BACK_AT } else { LOOKED_AT };
        let ids = self.ledger.operation_ids(max).await?;
        self.look_at = Some(monotonic() + LOOK_EVERY);
        for id in ids.iter().rev().filter(|id| !self.known.contains(*id)).cloned().collect::<Vec<_>>() {
            if let Some((operation, progress)) = self.ledger.operation(&id).await? {
                self.take_on(operation, progress).await?;
            }
            self.known.insert(id);
        }
        // What has left the list will not come back.
        if max == LOOKED_AT && self.known.len() > 2 * LOOKED_BACK_AT {
            self.known.retain(|id| ids.contains(id) || self.running.iter().any(|running| running.operation.id == *id));
        }
        Ok(())
    }

    async fn take_on(&mut self, operation: Operation, mut progress: OperationProgress) -> Result<(), StoreError> {
        if progress.state != OperationState::Running {
            return Ok(());
        }
        match Bulk::of(&operation, &NO_RULES) {
            Ok(bulk) => {
                let pace = Pace::new(operation.per_second);
                tracing::info!(
                    source = self.ledger.name(),
                    operation = operation.id,
                    by = operation.by.who,
                    act = operation.act.as_str(),
                    dry_run = operation.dry_run,
                    "an operation is being worked off"
                );
                let was_begun = progress.done > 0;
                self.running.push(Running { operation, progress, bulk, pace, was_begun });
            }
            Err(error) => {
                progress.state = OperationState::Failed;
                progress.error = Some(error.to_string());
                progress.ended_at = Some(self.ledger.clock().now());
                self.save(&operation.id, &mut progress).await?;
            }
        }
        Ok(())
    }

    /// Saves how far an operation has come; false if somebody else has ended it.
    async fn save(&self, id: &str, progress: &mut OperationProgress) -> Result<bool, StoreError> {
        match self.ledger.progress(Some(&self.lease), id, progress).await {
            Ok(revision) => progress.revision = revision,
            Err(StoreError::Moved) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Does one piece of the first operation whose pace allows it, and puts it behind the others; false if none does.
    async fn piece(&mut self) -> Result<bool, StoreError> {
        let ready = self.running.iter_mut().position(|running| !running.bulk.waits() || running.pace.room() > 0);
        let Some(ready) = ready else { return Ok(false) };
        let mut running = self.running.remove(ready);
        let room = running.pace.room();
        let before = (running.progress.matched, running.progress.done);
        let rules = Arc::clone(&self.rules.borrow());
        let mut bulk = running.bulk.by_rules(&rules);
        let outcome = bulk.step(&*self.ledger, &mut running.progress, room).await;
        running.bulk = bulk.by_rules(&NO_RULES);
        running.pace.take(running.progress.matched - before.0);
        let done = running.progress.done - before.1;
        if running.is_purge() && done > 0 {
            self.metrics.purged(self.ledger.name(), Purged::Purge, done);
        }
        match outcome {
            Ok(()) => {}
            Err(StoreError::Moved) => {
                self.cancelled(running).await?;
                return Ok(true);
            }
            Err(error) => {
                // What was done is counted by the store; where to go on follows from what is there.
                self.known.remove(&running.operation.id);
                self.look_at = None;
                return Err(error);
            }
        }
        if running.progress.state == OperationState::Done {
            self.announce(&running).await?;
        }
        if !self.save(&running.operation.id.clone(), &mut running.progress).await? {
            self.cancelled(running).await?;
        } else if running.progress.state == OperationState::Running {
            self.running.push(running);
        } else {
            self.told_end(&running.operation, &running.progress);
        }
        Ok(true)
    }

    /// A person has cancelled it, or it is gone.
    async fn cancelled(&self, mut running: Running) -> Result<(), StoreError> {
        let Some((_, progress)) = self.ledger.operation(&running.operation.id).await? else { return Ok(()) };
        running.progress = progress;
        self.announce(&running).await?;
        self.told_end(&running.operation, &running.progress);
        Ok(())
    }

    fn told_end(&self, operation: &Operation, progress: &OperationProgress) {
        tracing::info!(
            source = self.ledger.name(),
            operation = operation.id,
            state = progress.state.as_str(),
            matched = progress.matched,
            done = progress.done,
            "an operation has ended"
        );
    }

    /// A purge that has come to its end is announced, with what all leaders did of it.
    async fn announce(&self, running: &Running) -> Result<(), StoreError> {
        if !running.is_purge() {
            return Ok(());
        }
        let stored = self.ledger.operation(&running.operation.id).await?;
        let count = stored.map_or(running.progress.done, |(_, progress)| progress.done);
        // What an earlier leader did is counted; when that had died is not known any more.
        let died = running.bulk.died().filter(|_| !running.was_begun);
        announce_purge(&*self.ledger, Some(&self.lease), &running.operation.by, count, died).await
    }
}

impl Running {
    fn is_purge(&self) -> bool {
        self.operation.act == Act::Purge && !self.operation.dry_run
    }
}

#[async_trait]
impl Step for Operate {
    fn name(&self) -> &'static str {
        "operate"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        let now = monotonic();
        if self.look_at.is_none_or(|at| at <= now) {
            self.look().await?;
        }
        if self.piece().await? {
            return Ok(Next::After(now.elapsed().min(LONGEST_REST)));
        }
        let wait = if self.running.is_empty() { LOOK_EVERY } else { LONGEST_WAIT };
        tokio::select! {
            () = stop.cancelled() => {}
            Ok(()) = self.asked.changed() => self.look_at = Some(now),
            () = tokio::time::sleep(wait) => {}
        }
        Ok(Next::Again)
    }
}
