//! Keeps the lease while the store answers, and knows when it must be taken for lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Next, Step, Trouble};
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
    trouble: Trouble,
}

impl Renew {
    /// For a lease that was taken just now.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        ttl: Duration,
        trouble: &Trouble,
    ) -> Renew {
        let trouble = trouble.at("lease");
        Renew { ledger, lease, metrics, ttl, confirmed: monotonic(), trouble }
    }
}

#[async_trait]
impl Step for Renew {
    fn name(&self) -> &'static str {
        "lease"
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
                self.trouble.over();
                self.metrics.up(self.ledger.name(), true);
                Ok(Next::After(self.ttl / 3))
            }
            Err(StoreError::Fenced) => Err(StoreError::Fenced),
            Err(error) => {
                self.trouble.failed(&error);
                self.metrics.up(self.ledger.name(), false);
                if monotonic().duration_since(self.confirmed) >= self.ttl {
                    return Err(StoreError::Fenced);
                }
                Ok(Next::After((self.ttl / 10).mul_f64(0.5 + fastrand::f64())))
            }
        }
    }
}
