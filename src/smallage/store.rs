//! The smallage source as the ledger's contract wants it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{
    Keys, NamespaceError,
    connection::{Connection, Place, Script},
    tail::Tail,
};
use crate::{
    clock::StoreClock,
    config::{SmallageConfig, SourceConfig, SourceKind},
    event::{EventData, Lane},
    ledger::{
        AttachOptions, Attached, Batch, Commit, Committed, Cursor, DlqPage, JobCounts, Lease, LeaseNow, Ledger,
        OutboxId, OutboxPage, Overview, PlanEnd, Posted, RawLetter, Result, SavedLane, SourceLedger, Survey, TryLease,
    },
};

/// How long a job is remembered after its last death.
pub(super) const REMEMBER_JOBS: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a lane is remembered that nobody saves any more (its hook is gone from the configuration).
pub(super) const REMEMBER_LANES: Duration = Duration::from_secs(30 * 24 * 3600);
/// Lines that the audit log keeps, or somewhat more: what a person does to many entries one by one takes as many.
pub(super) const AUDIT_LINES: i64 = 100_000;
/// The longest a read of the DLQ may block.
pub(super) const LONGEST_BLOCK: Duration = Duration::from_secs(5);

/// One smallage namespace. Opening does no IO; connections are made when first needed.
#[derive(Debug)]
pub struct Smallage {
    name: String,
    pub(super) config: Arc<SmallageConfig>,
    pub(super) keys: Keys,
    pub(super) commands: Connection,
    pub(super) reads: Connection,
    /// A command is under way on `reads`, or was abandoned there.
    pub(super) reading: AtomicBool,
    pub(super) scripts: Scripts,
    pub(super) clock: StoreClock,
    /// The ledger's own id, part of every `webhook-id`; empty until first asked for.
    uid: RwLock<String>,
    /// The newest event on the deaths lane that this process has seen as a leader.
    newest: Mutex<Newest>,
    /// In the order of [`Lane::ALL`].
    changes: [watch::Sender<u64>; 2],
    /// What this process has appended to the deaths lane last.
    tail: Mutex<Tail>,
}

/// Events that were there: as long as the store loses nothing, they are until they are trimmed.
#[derive(Debug, Default)]
struct Newest {
    /// The connection that `seen` and `read` belong to.
    made: u64,
    /// Seen through an earlier connection, and not looked for since: it is not forgotten for what is new.
    before: Option<OutboxId>,
    /// Written, surveyed, or read before the store confirmed that this process leads.
    seen: Option<OutboxId>,
    /// Merely read: whoever is fenced already, and has not heard of it yet, reads what another wrote after a loss.
    read: Option<OutboxId>,
}

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) attach: Script,
    pub(super) commit: Script,
    pub(super) check: Script,
    pub(super) survey: Script,
    pub(super) lost: Script,
    pub(super) mark_shown: Script,
    pub(super) trim: Script,
    pub(super) save_lane: Script,
    pub(super) adopt: Script,
    pub(super) commit_plans: Script,
    pub(super) judge: Script,
    pub(super) discard: Script,
    pub(super) retry: Script,
    pub(super) drop_due: Script,
    pub(super) relook: Script,
    pub(super) look: Script,
    pub(super) settle: Script,
    pub(super) scan: Script,
    pub(super) remove: Script,
    pub(super) retain: Script,
    pub(super) announce: Script,
    pub(super) begin_operation: Script,
    pub(super) save_operation: Script,
    pub(super) save_watch: Script,
}

/// A script of several files: parts that others have as well, and its own last.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!(concat!("scripts/", $file))),+))
    };
}

/// Opens a source, whatever its kind. Does no IO. Where a [`Ledger`] is enough, it is one.
pub fn open(source: &SourceConfig) -> std::result::Result<Arc<dyn SourceLedger>, NamespaceError> {
    match &source.kind {
        SourceKind::Smallage(config) => Ok(Arc::new(Smallage::new(&source.name, config.clone())?)),
    }
}

impl Smallage {
    /// The namespace that `config` names, as the source `name`.
    pub fn new(name: &str, config: SmallageConfig) -> std::result::Result<Smallage, NamespaceError> {
        let keys = Keys::new(&config.namespace)?;
        let config = Arc::new(config);
        let place = Arc::new(Place::new(Arc::clone(&config), keys.lease()));
        Ok(Smallage {
            name: name.to_owned(),
            keys,
            commands: Connection::for_commands(Arc::clone(&place)),
            reads: Connection::for_blocking(place, LONGEST_BLOCK),
            config,
            reading: AtomicBool::new(false),
            scripts: Scripts {
                acquire: script!("lease_acquire.lua"),
                renew: script!("lease_renew.lua"),
                release: script!("lease_release.lua"),
                attach: script!("attach.lua"),
                commit: script!("parts/entries.lua", "parts/places.lua", "commit.lua"),
                check: script!("check.lua"),
                survey: script!("parts/entries.lua", "parts/lost.lua", "survey.lua"),
                lost: script!("parts/entries.lua", "parts/lost.lua", "lost.lua"),
                mark_shown: script!("mark_shown.lua"),
                trim: script!("outbox_trim.lua"),
                save_lane: script!("lane_save.lua"),
                adopt: script!("adopt.lua"),
                commit_plans: script!(
                    "parts/writes.lua",
                    "parts/entries.lua",
                    "parts/plans.lua",
                    "parts/places.lua",
                    "commit_plans.lua"
                ),
                judge: script!("parts/writes.lua", "parts/entries.lua", "parts/plans.lua", "judge.lua"),
                discard: script!("discard.lua"),
                retry: script!("parts/writes.lua", "parts/entries.lua", "parts/operations.lua", "retry.lua"),
                drop_due: script!("drop_due.lua"),
                relook: script!("relook.lua"),
                look: script!("parts/entries.lua", "look.lua"),
                settle: script!("parts/writes.lua", "settle.lua"),
                scan: script!("parts/entries.lua", "scan.lua"),
                remove: script!("parts/writes.lua", "parts/entries.lua", "parts/operations.lua", "remove.lua"),
                retain: script!("parts/writes.lua", "parts/entries.lua", "retain.lua"),
                announce: script!("announce.lua"),
                begin_operation: script!("parts/writes.lua", "parts/operations.lua", "operation_begin.lua"),
                save_operation: script!("operation_save.lua"),
                save_watch: script!("parts/writes.lua", "watch_save.lua"),
            },
            clock: StoreClock::default(),
            uid: RwLock::default(),
            newest: Mutex::default(),
            changes: [watch::Sender::new(0), watch::Sender::new(0)],
            tail: Mutex::default(),
        })
    }

    pub(super) fn uid(&self) -> String {
        self.uid.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_uid(&self, uid: String) {
        *self.uid.write().unwrap_or_else(PoisonError::into_inner) = uid;
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.commands.made();
        if newest.made != made {
            *newest = Newest { made, before: newest.before.or(newest.seen), ..Newest::default() };
        }
        newest
    }

    /// As the outbox has it; empty where none was seen yet.
    pub(super) fn newest_event(&self) -> String {
        let newest = self.newest();
        newest.before.or(newest.seen).map(|id| id.to_string()).unwrap_or_default()
    }

    /// This event was read.
    pub(super) fn has_read_event(&self, id: Option<OutboxId>) {
        let mut newest = self.newest();
        newest.read = newest.read.max(id);
    }

    /// The store has just confirmed that this process leads, and this event with it: so it did when it read the others.
    pub(super) fn has_seen_event(&self, id: Option<OutboxId>) {
        let mut newest = self.newest();
        newest.seen = newest.seen.max(id).max(newest.read);
    }

    /// A survey has found the newest event where it belongs, and the lane to end here.
    pub(super) fn has_found_newest_event(&self, end: Option<OutboxId>) {
        self.newest().before = None;
        self.has_seen_event(end);
    }

    pub(super) fn forget_newest_event(&self) {
        *self.newest() = Newest::default();
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of an append that is not kept at hand, so that nothing before it is taken for the end of the lane.
    pub(super) fn outbox_grew(&self, lane: Lane) {
        if lane == Lane::Deaths {
            self.tail().clear();
        }
        self.outbox_changed(lane);
    }

    /// Tells of an append.
    pub(super) fn outbox_changed(&self, lane: Lane) {
        self.changes[lane as usize].send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Ledger for Smallage {
    fn name(&self) -> &str {
        &self.name
    }

    fn dlq(&self) -> String {
        self.keys.dlq()
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn outbox_changes(&self, lane: Lane) -> watch::Receiver<u64> {
        self.changes[lane as usize].subscribe()
    }

    async fn try_lease(&self, holder: &str, ttl: Duration, known_epoch: u64) -> Result<TryLease> {
        self.acquire_lease(holder, ttl, known_epoch).await
    }

    async fn leader(&self) -> Result<Option<Lease>> {
        self.current_lease().await
    }

    async fn look_at_lease(&self) -> Result<LeaseNow> {
        self.see_lease().await
    }

    async fn until_released(&self, lease: &Lease, at_most: Duration) -> Result<()> {
        self.wait_for_release(lease, at_most).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<()> {
        self.renew_lease(lease, ttl).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.release_lease(lease).await
    }

    async fn attach(&self, lease: &Lease, options: AttachOptions) -> Result<Attached> {
        self.attach_dlq(lease, options).await
    }

    fn is_entry_id(&self, text: &str) -> bool {
        text.contains('-') && text.parse::<OutboxId>().is_ok()
    }

    fn is_after(&self, entry_id: &str, cursor: &Cursor) -> bool {
        let position = |id: &str| id.parse::<OutboxId>().unwrap_or_default();
        position(entry_id) > position(&cursor.0)
    }

    async fn read(&self, after: &Cursor, max: usize, block: Option<Duration>) -> Result<Batch> {
        self.read_dlq(after, max, block).await
    }

    async fn commit(&self, lease: &Lease, commit: Commit) -> Result<PlanEnd<Committed>> {
        self.commit_batch(lease, commit).await
    }

    async fn check(&self, lease: &Lease, cursor: &Cursor) -> Result<()> {
        self.check_cursor(lease, cursor).await
    }

    async fn survey(&self, lease: &Lease) -> Result<Survey> {
        self.survey_dlq(lease).await
    }

    async fn has_lost(&self) -> Result<bool> {
        self.has_lost_events().await
    }

    async fn mark_shown(&self, lease: &Lease, until: OutboxId) -> Result<()> {
        self.mark_as_shown(lease, until).await
    }

    async fn shown_until(&self) -> Result<Option<OutboxId>> {
        self.last_shown().await
    }

    async fn outbox(&self, lane: Lane, after: OutboxId, max: usize) -> Result<OutboxPage> {
        self.read_outbox(lane, after, max).await
    }

    async fn outbox_get(&self, lane: Lane, id: OutboxId) -> Result<Option<Posted>> {
        self.get_from_outbox(lane, id).await
    }

    async fn outbox_len(&self, lane: Lane) -> Result<u64> {
        self.count_outbox(lane).await
    }

    async fn outbox_end(&self, lane: Lane) -> Result<OutboxId> {
        self.end_of_outbox(lane).await
    }

    async fn outbox_trim(&self, lease: &Lease, lane: Lane, keep_from: OutboxId, at_most: Option<u64>) -> Result<u64> {
        self.trim_outbox(lease, lane, keep_from, at_most).await
    }

    async fn append(&self, data: &EventData) -> Result<OutboxId> {
        self.append_to_outbox(data).await
    }

    async fn load_lane(&self, hook: &str, lane: Lane) -> Result<Option<SavedLane>> {
        self.load_lane_state(hook, lane).await
    }

    async fn save_lane(&self, lease: &Lease, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        self.save_lane_state(&lease.token(), hook, lane, over, state).await
    }

    async fn edit_lane(&self, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        self.save_lane_state("", hook, lane, over, state).await
    }

    async fn overview(&self) -> Result<Overview> {
        self.look_over().await
    }

    async fn entry(&self, entry_id: &str) -> Result<Option<RawLetter>> {
        self.one_entry(entry_id).await
    }

    async fn page(&self, before: Option<&str>, max: usize) -> Result<DlqPage> {
        self.page_of_dlq(before, max).await
    }

    async fn jobs(&self, job_ids: &[String]) -> Result<Vec<JobCounts>> {
        self.job_counts(job_ids).await
    }
}
