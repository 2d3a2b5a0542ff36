//! A stand-in until the ledger of triage is here.

use async_trait::async_trait;

use super::Smallage;
use crate::{
    event::EventData,
    ledger::{
        By, HandRetry, Lease, Ledger as _, Operation, OperationProgress, Raised, Removal, Result, Retain, Scan,
        Scanned, StoreError, TriageLedger,
    },
};

fn not_yet<T>() -> Result<T> {
    Err(StoreError::Unexpected("not yet".to_owned()))
}

#[async_trait]
impl TriageLedger for Smallage {
    async fn scan(&self, scan: &Scan) -> Result<Scanned> {
        let page = self.page(scan.from.as_deref(), scan.max).await?;
        Ok(Scanned { looked_at: page.letters.len() as u64, letters: page.letters, next: page.next })
    }

    async fn retry_by_hand(&self, _: &By, _: Vec<HandRetry>) -> Result<Vec<Raised>> {
        not_yet()
    }

    async fn remove(&self, _: &By, _: Removal, _: &[String]) -> Result<Vec<bool>> {
        not_yet()
    }

    async fn retain(&self, _: &Lease, _: &By, _: Retain) -> Result<u64> {
        not_yet()
    }

    async fn announce(&self, _: Option<&Lease>, _: &EventData) -> Result<()> {
        not_yet()
    }

    async fn note(&self, _: &By, _: &str, _: &str) -> Result<()> {
        not_yet()
    }

    async fn begin(&self, _: &Operation) -> Result<()> {
        not_yet()
    }

    async fn operation(&self, _: &str) -> Result<Option<(Operation, OperationProgress)>> {
        not_yet()
    }

    async fn operations(&self, _: usize) -> Result<Vec<(Operation, OperationProgress)>> {
        not_yet()
    }

    async fn progress(&self, _: Option<&Lease>, _: &str, _: &OperationProgress) -> Result<u64> {
        not_yet()
    }
}
