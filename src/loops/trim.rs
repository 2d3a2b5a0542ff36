//! Keeps the outbox small: what every hook is done with goes after a while, or sooner when room is short.
//!
//! What a hook still needs is never removed here; a hook that does not answer makes room itself, by folding.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::millis,
    config::OutboxConfig,
    delivery::LaneState,
    event::Lane,
    ledger::{Lease, Ledger, OutboxId, StoreError},
};

/// The shortest time between two looks, however fast the outbox grows.
const AT_LEAST: Duration = Duration::from_millis(50);

/// The trim loop of one term.
pub struct Trim {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    hooks: Vec<String>,
    outbox: OutboxConfig,
    every: Duration,
    changes: watch::Receiver<u64>,
    /// Room was short when last looked at.
    short: bool,
}

impl Trim {
    /// For the outbox that these hooks read; looked at when it grows, and every `every`.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        lease: Lease,
        hooks: Vec<String>,
        outbox: OutboxConfig,
        every: Duration,
    ) -> Trim {
        let changes = ledger.outbox_changes();
        Trim { ledger, lease, hooks, outbox, every, changes, short: false }
    }

    /// The first event of a lane that some hook still needs; `None` if none needs any.
    async fn needed_from(&self, lane: Lane) -> Result<Option<OutboxId>, StoreError> {
        let mut needed: Option<OutboxId> = None;
        for hook in &self.hooks {
            // A lane that has saved nothing yet may be about to read from the beginning.
            let position = match self.ledger.load_lane(hook, lane).await? {
                Some(saved) => LaneState::from_json(&saved.state).map_or(OutboxId::default(), |state| state.position()),
                None => OutboxId::default(),
            };
            needed = Some(needed.map_or(position, |least| least.min(position)));
        }
        Ok(needed)
    }

    /// Trims one lane; true if room is still short.
    async fn trim(&self, lane: Lane) -> Result<bool, StoreError> {
        let len = self.ledger.outbox_len(lane).await?;
        if len == 0 {
            return Ok(false);
        }
        let needed = self.needed_from(lane).await?.unwrap_or(OutboxId { ms: u64::MAX, seq: 0 });
        let kept_since = self.ledger.clock().now().0.saturating_sub(millis(self.outbox.keep));
        let old = OutboxId { ms: u64::try_from(kept_since).unwrap_or(0), seq: 0 };
        self.ledger.outbox_trim(&self.lease, lane, old.min(needed), None).await?;
        // Room is made well before the outbox is full, and for a while ahead.
        if len <= self.outbox.cap / 4 * 3 {
            return Ok(false);
        }
        self.ledger.outbox_trim(&self.lease, lane, needed, Some(len - self.outbox.cap / 2)).await?;
        Ok(true)
    }
}

#[async_trait]
impl Step for Trim {
    fn name(&self) -> &'static str {
        "trim"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        if !self.short {
            tokio::select! {
                () = stop.cancelled() => return Ok(Next::Again),
                _ = self.changes.changed() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
        self.short = false;
        for lane in Lane::ALL {
            self.short |= self.trim(lane).await?;
        }
        Ok(Next::After(AT_LEAST))
    }
}
