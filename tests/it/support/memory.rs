//! A ledger in memory: the outbox and the saved lanes, as far as delivery needs them, and the store's troubles on
//! demand. Everything else answers with an error.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sexton::{
    clock::StoreClock,
    event::{Event, EventData, Lane},
    ledger::{
        AttachOptions, Attached, Batch, Commit, Committed, Cursor, DlqPage, JobCounts, Lease, Ledger, OutboxId,
        OutboxPage, Overview, Posted, RawLetter, Result, SavedLane, StoreError, Survey, TryLease,
    },
};
use tokio::sync::watch;

/// The ledger.
#[derive(Debug)]
pub(crate) struct Memory {
    clock: StoreClock,
    changes: watch::Sender<u64>,
    outbox: Mutex<[BTreeMap<OutboxId, Event>; 2]>,
    lanes: Mutex<HashMap<(String, Lane), SavedLane>>,
    last: AtomicU64,
    /// Every lease with a lower epoch is fenced.
    epoch: AtomicU64,
    failing: Mutex<u32>,
    reads: AtomicU64,
    saves: AtomicU64,
}

fn elsewhere<T>() -> Result<T> {
    Err(StoreError::Unexpected("not in this ledger".to_owned()))
}

impl Memory {
    /// An empty one.
    pub(crate) fn new() -> Memory {
        Memory {
            clock: StoreClock::default(),
            changes: watch::Sender::new(0),
            outbox: Mutex::default(),
            lanes: Mutex::default(),
            last: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            failing: Mutex::default(),
            reads: AtomicU64::new(0),
            saves: AtomicU64::new(0),
        }
    }

    /// The lease that is good now.
    pub(crate) fn lease(&self) -> Lease {
        Lease { epoch: self.epoch.load(Ordering::Relaxed), holder: "test".to_owned() }
    }

    /// Another replica takes over.
    pub(crate) fn fence(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Appends events, as a commit of this process does.
    pub(crate) fn post(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            let id = OutboxId { ms: self.last.fetch_add(1, Ordering::Relaxed) + 1, seq: 0 };
            let lane = event.kind().lane();
            self.outbox.lock().unwrap()[lane as usize].insert(id, event);
        }
        self.changes.send_modify(|ticks| *ticks += 1);
    }

    /// The next `times` operations fail.
    pub(crate) fn fail(&self, times: u32) {
        *self.failing.lock().unwrap() = times;
    }

    /// Reads of the outbox so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Saves of lanes so far.
    pub(crate) fn saves(&self) -> u64 {
        self.saves.load(Ordering::Relaxed)
    }

    fn works(&self) -> Result<()> {
        let mut failing = self.failing.lock().unwrap();
        if *failing == 0 {
            return Ok(());
        }
        *failing -= 1;
        Err(StoreError::Unavailable("told to fail".to_owned()))
    }

    fn save(&self, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        let mut lanes = self.lanes.lock().unwrap();
        let key = (hook.to_owned(), lane);
        if lanes.get(&key).map_or(0, |saved| saved.revision) != over {
            return Err(StoreError::Moved);
        }
        lanes.insert(key, SavedLane { revision: over + 1, state: state.to_owned() });
        self.saves.fetch_add(1, Ordering::Relaxed);
        Ok(over + 1)
    }
}

#[async_trait]
impl Ledger for Memory {
    fn name(&self) -> &str {
        "orders"
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn outbox_changes(&self, _: Lane) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn is_entry_id(&self, _: &str) -> bool {
        unreachable!("nothing is looked up in these tests")
    }

    fn is_after(&self, _: &str, _: &Cursor) -> bool {
        unreachable!("nothing is ingested in these tests")
    }

    async fn outbox(&self, lane: Lane, after: OutboxId, max: usize) -> Result<OutboxPage> {
        self.works()?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let outbox = self.outbox.lock().unwrap();
        let after = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let events: Vec<_> = outbox[lane as usize]
            .range(after)
            .take(max)
            .map(|(id, event)| Posted { id: *id, event: event.clone() })
            .collect();
        Ok(OutboxPage { last: events.last().map(|posted| posted.id), events, unreadable: 0 })
    }

    async fn outbox_get(&self, lane: Lane, id: OutboxId) -> Result<Option<Posted>> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        Ok(outbox[lane as usize].get(&id).map(|event| Posted { id, event: event.clone() }))
    }

    async fn outbox_len(&self, lane: Lane) -> Result<u64> {
        self.works()?;
        Ok(self.outbox.lock().unwrap()[lane as usize].len() as u64)
    }

    async fn outbox_end(&self, lane: Lane) -> Result<OutboxId> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        Ok(outbox[lane as usize].last_key_value().map_or(OutboxId::default(), |(id, _)| *id))
    }

    async fn outbox_trim(&self, _: &Lease, lane: Lane, keep_from: OutboxId, _: Option<u64>) -> Result<u64> {
        let mut outbox = self.outbox.lock().unwrap();
        let kept = outbox[lane as usize].split_off(&keep_from);
        Ok(std::mem::replace(&mut outbox[lane as usize], kept).len() as u64)
    }

    async fn load_lane(&self, hook: &str, lane: Lane) -> Result<Option<SavedLane>> {
        self.works()?;
        Ok(self.lanes.lock().unwrap().get(&(hook.to_owned(), lane)).cloned())
    }

    async fn save_lane(&self, lease: &Lease, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        self.works()?;
        if lease.epoch < self.epoch.load(Ordering::Relaxed) {
            return Err(StoreError::Fenced);
        }
        self.save(hook, lane, over, state)
    }

    async fn edit_lane(&self, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        self.save(hook, lane, over, state)
    }

    async fn try_lease(&self, _: &str, _: Duration, _: u64) -> Result<TryLease> {
        elsewhere()
    }

    async fn leader(&self) -> Result<Option<Lease>> {
        elsewhere()
    }

    async fn renew(&self, _: &Lease, _: Duration) -> Result<()> {
        elsewhere()
    }

    async fn release(&self, _: &Lease) -> Result<()> {
        elsewhere()
    }

    async fn attach(&self, _: &Lease, _: AttachOptions) -> Result<Attached> {
        elsewhere()
    }

    async fn read(&self, _: &Cursor, _: usize, _: Option<Duration>) -> Result<Batch> {
        elsewhere()
    }

    async fn commit(&self, _: &Lease, _: Commit) -> Result<Committed> {
        elsewhere()
    }

    async fn check(&self, _: &Lease, _: &Cursor) -> Result<()> {
        elsewhere()
    }

    async fn survey(&self, _: &Lease) -> Result<Survey> {
        elsewhere()
    }

    async fn append(&self, _: &EventData) -> Result<OutboxId> {
        elsewhere()
    }

    async fn overview(&self) -> Result<Overview> {
        elsewhere()
    }

    async fn entry(&self, _: &str) -> Result<Option<RawLetter>> {
        elsewhere()
    }

    async fn page(&self, _: Option<&str>, _: usize) -> Result<DlqPage> {
        elsewhere()
    }

    async fn jobs(&self, _: &[String]) -> Result<Vec<JobCounts>> {
        elsewhere()
    }
}
