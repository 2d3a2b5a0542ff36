//! The smallage source as the retry loop's contract wants it.

use async_trait::async_trait;

use super::Smallage;
use crate::{
    ledger::{
        AuditLine, Batch, Committed, Cursor, DuePools, Flight, JobCounts, Judge, Judging, Lease, Lesson, Place,
        PlanEnd, Pool, PoolView, Prospects, Relook, Result, Retried, Retry, RetryLedger, Settled, Sights, Standing,
        Waiting,
    },
    letter::{DeadLetter, Millis},
};

#[async_trait]
impl RetryLedger for Smallage {
    async fn adopt_rules(&self, lease: &Lease, cursor: &Cursor, fingerprint: &str) -> Result<u64> {
        self.adopt(lease, cursor, fingerprint).await
    }

    async fn judging(&self) -> Result<Judging> {
        self.judging_state().await
    }

    async fn read_to_judge(&self, after: &Cursor, until: &Cursor, max: usize) -> Result<(Batch, Vec<JobCounts>)> {
        self.page_to_judge(after, until, max).await
    }

    async fn judge(&self, lease: &Lease, step: Judge) -> Result<PlanEnd<Committed>> {
        self.judge_step(lease, &step).await
    }

    async fn discard_old(&self, lease: &Lease, max: usize) -> Result<bool> {
        self.discard_generations(lease, max).await
    }

    async fn due_pools(&self, generation: u64, max: usize) -> Result<DuePools> {
        self.pools_due(generation, max).await
    }

    async fn pool(&self, generation: u64, pool: &Pool, max: usize) -> Result<PoolView> {
        self.view_pool(generation, pool, max).await
    }

    async fn due_entries(&self, generation: u64, pool: &Pool, groups: &[(String, usize)]) -> Result<Vec<Vec<String>>> {
        self.entries_due(generation, pool, groups).await
    }

    async fn standing(&self, entries: &[String]) -> Result<Vec<Option<Standing>>> {
        self.stand(entries).await
    }

    async fn retry(&self, lease: &Lease, generation: u64, retries: Vec<Retry>) -> Result<Vec<Retried>> {
        self.raise(lease, generation, retries).await
    }

    async fn drop_due(&self, lease: &Lease, generation: u64, entries: &[(Place, String)]) -> Result<()> {
        self.drop_entries(lease, generation, entries).await
    }

    async fn relook(&self, lease: &Lease, generation: u64, pool: &Pool, relook: &Relook) -> Result<()> {
        self.look_again(lease, generation, pool, relook).await
    }

    async fn flights(&self) -> Result<Vec<Flight>> {
        self.all_flights().await
    }

    async fn look(&self, flights: &[Flight]) -> Result<Sights> {
        self.look_for(flights).await
    }

    async fn settle(&self, lease: &Lease, settled: &[Settled], lessons: &[Lesson]) -> Result<()> {
        self.settle_flights(lease, settled, lessons).await
    }

    async fn learnt(&self, of: &[(Pool, Option<String>)]) -> Result<Vec<Option<String>>> {
        self.lessons(of).await
    }

    async fn waiting(&self) -> Result<Waiting> {
        self.count_waiting().await
    }

    async fn due_at(&self, generation: u64, place: &Place, entry_id: &str) -> Result<Option<Millis>> {
        self.due_time(generation, place, entry_id).await
    }

    async fn prospects(&self, letter: &DeadLetter) -> Result<Prospects> {
        self.prospects_of(letter).await
    }

    async fn audit(&self, before: Option<&str>, since: Option<Millis>, max: usize) -> Result<Vec<AuditLine>> {
        self.audit_lines(before, since, max).await
    }
}
