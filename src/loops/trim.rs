//! Keeps the outbox small: what every hook is done with goes after a while, or sooner when room is short.
//!
//! What a hook still needs is never removed here; a hook that does not answer makes room itself, by folding. Nor is what
//! the watch over the line has not counted yet, unless room is short and it does not get on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::{millis, monotonic},
    config::OutboxConfig,
    delivery::LaneState,
    event::Lane,
    ledger::{AlertLedger, Lease, OutboxId, StoreError},
};

/// A watch that has not got on for this long, or for so many samples, holds up nobody any more: it counts in a storm
/// several times a second.
const PATIENCE: Duration = Duration::from_secs(30);
const SAMPLES: u32 = 20;
/// The shortest time between two looks, however fast the outbox grows.
const AT_LEAST: Duration = Duration::from_millis(50);

/// The trim loop of one lane in one term.
pub struct Trim {
    ledger: Arc<dyn AlertLedger>,
    lease: Lease,
    lane: Lane,
    hooks: Vec<String>,
    outbox: OutboxConfig,
    every: Duration,
    changes: watch::Receiver<u64>,
    /// When everything was last looked at, not just how much there is.
    looked_at: Option<Instant>,
    /// Where the watch stands, and since when it does although room is short.
    counted: Option<(OutboxId, Instant)>,
    /// It has been said that the watch is not waited for.
    told_stuck: bool,
}

impl Trim {
    /// For the lane of the outbox that these hooks read: trimmed every `every`, and sooner when room is short.
    pub fn new(
        ledger: Arc<dyn AlertLedger>,
        lease: Lease,
        lane: Lane,
        hooks: Vec<String>,
        outbox: OutboxConfig,
        every: Duration,
    ) -> Trim {
        let changes = ledger.outbox_changes(lane);
        Trim { ledger, lease, lane, hooks, outbox, every, changes, looked_at: None, counted: None, told_stuck: false }
    }

    /// The first event that some hook, or the watch, still needs; `None` if none needs any.
    async fn needed_from(&mut self, short: bool) -> Result<Option<OutboxId>, StoreError> {
        let mut needed = self.uncounted_from(short).await?;
        for hook in &self.hooks {
            let position = match self.ledger.load_lane(hook, self.lane).await {
                Ok(Some(saved)) => {
                    LaneState::from_json(&saved.state).map_or(OutboxId::default(), |lane| lane.position())
                }
                // A lane that has saved nothing yet may be about to read from the beginning.
                Ok(None) => OutboxId::default(),
                // What cannot be read as a lane delivers nothing either, and must not hold up the other hooks.
                Err(StoreError::Unexpected(_)) => continue,
                Err(error) => return Err(error),
            };
            needed = Some(needed.map_or(position, |least| least.min(position)));
        }
        Ok(needed)
    }

    /// The first event that the watch has not counted.
    async fn uncounted_from(&mut self, short: bool) -> Result<Option<OutboxId>, StoreError> {
        if self.lane != Lane::Deaths {
            return Ok(None);
        }
        let counted = self.ledger.counted_until().await?.unwrap_or_default();
        let now = monotonic();
        let since = self.counted.filter(|(before, _)| *before == counted).map_or(now, |(_, since)| since);
        self.counted = short.then_some((counted, since));
        let stuck = short && now.duration_since(since) >= PATIENCE.min(self.every * SAMPLES);
        if stuck && !self.told_stuck {
            tracing::warn!(
                source = self.ledger.name(),
                "the outbox is nearly full, and the watch does not get on: what it has not counted goes, and is missing in \
                 alerts by deaths"
            );
        }
        self.told_stuck = stuck;
        // The last one counted may go.
        Ok((!stuck).then_some(OutboxId { seq: counted.seq.saturating_add(1), ..counted }))
    }

    /// Trims; true if room is still short.
    async fn trim(&mut self) -> Result<bool, StoreError> {
        let len = self.ledger.outbox_len(self.lane).await?;
        // Room is made well before the outbox is full, and for a while ahead.
        let short = len > self.outbox.cap / 4 * 3;
        let looked = self.looked_at.is_some_and(|at| monotonic().duration_since(at) < self.every);
        if len == 0 || looked && !short {
            return Ok(false);
        }
        self.looked_at = Some(monotonic());
        let needed = self.needed_from(short).await?.unwrap_or(OutboxId { ms: u64::MAX, seq: 0 });
        let kept_since = self.ledger.clock().now().0.saturating_sub(millis(self.outbox.keep));
        let old = OutboxId { ms: u64::try_from(kept_since).unwrap_or(0), seq: 0 };
        self.ledger.outbox_trim(&self.lease, self.lane, old.min(needed), None).await?;
        if short {
            let surplus = len - self.outbox.cap / 2;
            self.ledger.outbox_trim(&self.lease, self.lane, needed, Some(surplus)).await?;
        }
        Ok(short)
    }
}

#[async_trait]
impl Step for Trim {
    fn name(&self) -> &'static str {
        "trim"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        if !self.trim().await? {
            tokio::select! {
                () = stop.cancelled() => return Ok(Next::Again),
                _ = self.changes.changed() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
        Ok(Next::After(AT_LEAST))
    }
}
