//! Keeps the lease while the store answers, and knows when it must be taken for lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::monotonic,
    ledger::{Lease, Ledger, StoreError},
    metrics::Metrics,
};

/// The renewal loop of one term. It outlives the other loops, so that they can settle.
pub struct Renew {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    ttl: Duration,
    /// When the store last confirmed the lease: before the request was sent, so this errs on the safe side.
    confirmed: Instant,
}

impl Renew {
    /// For a lease that was taken just now.
    pub fn new(ledger: Arc<dyn Ledger>, lease: Lease, metrics: Arc<Metrics>, ttl: Duration) -> Renew {
        let confirmed = monotonic();
        metrics.leads_until(ledger.name(), confirmed + ttl);
        Renew { ledger, lease, metrics, ttl, confirmed }
    }
}

#[async_trait]
impl Step for Renew {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn longest_pause(&self) -> Duration {
        self.ttl / 10
    }

    async fn step(&mut self, _stop: &CancellationToken) -> Result<Next, StoreError> {
        let asked = monotonic();
        let left = self.ttl.saturating_sub(asked.duration_since(self.confirmed));
        // An answer that comes after the lease has run out is of no use.
        let answer = tokio::time::timeout(left, self.ledger.renew(&self.lease, self.ttl))
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("no answer while the lease ran out".to_owned())));
        match answer {
            Ok(()) => {
                self.confirmed = asked;
                self.metrics.leads_until(self.ledger.name(), asked + self.ttl);
                self.metrics.up(self.ledger.name(), true);
                Ok(Next::After(self.ttl / 3))
            }
            Err(StoreError::Fenced) => Err(StoreError::Fenced),
            Err(error) => {
                let source = self.ledger.name();
                self.metrics.up(source, false);
                if monotonic().duration_since(self.confirmed) < self.ttl {
                    return Err(error);
                }
                tracing::warn!(source, code = error.code(), %error, "the lease could not be renewed in time");
                Err(StoreError::Fenced)
            }
        }
    }
}
