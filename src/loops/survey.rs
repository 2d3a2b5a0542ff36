//! Looks at the DLQ at regular intervals: the gauges, and what was missed.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    ledger::{Lease, Ledger, StoreError},
    metrics::Metrics,
};

/// The survey loop of one term.
pub struct Survey {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    every: Duration,
}

impl Survey {
    /// Surveys every `every`.
    pub fn new(ledger: Arc<dyn Ledger>, lease: Lease, metrics: Arc<Metrics>, every: Duration) -> Survey {
        Survey { ledger, lease, metrics, every }
    }
}

#[async_trait]
impl Step for Survey {
    fn name(&self) -> &'static str {
        "survey"
    }

    async fn step(&mut self, _stop: &CancellationToken) -> Result<Next, StoreError> {
        let survey = self.ledger.survey(&self.lease).await?;
        let source = self.ledger.name();
        self.metrics.surveyed(source, &survey);
        if survey.unseen > 0 {
            tracing::warn!(
                source,
                entries = survey.unseen,
                "entries left the DLQ before they could be read; they are not announced"
            );
        }
        Ok(Next::After(self.every))
    }
}
