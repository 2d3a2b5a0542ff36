//! The smallage source as people's contract wants it.

use async_trait::async_trait;

use super::Smallage;
use crate::{
    event::EventData,
    ledger::{
        By, HandRetry, Lease, Operation, OperationProgress, Raised, Removal, Result, Retain, Scan, Scanned,
        TriageLedger,
    },
};

#[async_trait]
impl TriageLedger for Smallage {
    async fn scan(&self, scan: &Scan) -> Result<Scanned> {
        self.scan_dlq(scan).await
    }

    async fn retry_by_hand(&self, by: &By, retries: Vec<HandRetry>) -> Result<Vec<Raised>> {
        self.raise_by_hand(by, &retries).await
    }

    async fn remove(&self, by: &By, how: Removal, entries: &[String]) -> Result<Vec<bool>> {
        self.remove_by_hand(by, how, entries).await
    }

    async fn retain(&self, lease: &Lease, by: &By, retain: Retain) -> Result<u64> {
        self.remove_by_policy(lease, by, &retain).await
    }

    async fn announce(&self, lease: Option<&Lease>, event: &EventData) -> Result<()> {
        self.announce_event(lease, event).await
    }

    async fn note(&self, by: &By, what: &str, detail: &str) -> Result<()> {
        self.add_line(by, what, "", detail).await
    }

    async fn begin(&self, operation: &Operation) -> Result<()> {
        self.begin_operation(operation).await
    }

    async fn operation(&self, id: &str) -> Result<Option<(Operation, OperationProgress)>> {
        self.one_operation(id).await
    }

    async fn operation_ids(&self, max: usize) -> Result<Vec<String>> {
        self.newest_ids(max).await
    }

    async fn operations(&self, max: usize) -> Result<Vec<(Operation, OperationProgress)>> {
        self.newest_operations(max).await
    }

    async fn progress(&self, lease: Option<&Lease>, id: &str, progress: &OperationProgress) -> Result<u64> {
        self.save_operation(lease, id, progress).await
    }
}
