//! The ledger: what Sexton remembers about one source, kept in that source's own store.
//!
//! This is the contract that every kind of source fulfils; it speaks of no framework and no store. The loops know
//! nothing else, and meet nowhere else.

mod alerts;
mod error;
mod inspect;
mod retries;
mod triage;

pub use alerts::{AlertLedger, SavedWatch};
pub use error::StoreError;
pub use inspect::{Aspect, Finding, Inspect, Level};
pub use retries::{
    AuditLine, DuePools, Flight, GroupView, Judge, Judged, Judging, Lesson, Place, Plan, PlanEnd, Pool, PoolView,
    Prospects, Refusal, Relook, Retried, Retry, RetryLedger, Rounds, Settled, Sight, Sights, Standing, Verdict,
    Waiting, Whereabouts,
};

pub use triage::{
    Act, By, HandRetry, Operation, OperationProgress, OperationState, Raised, Removal, Retain, Scan, Scanned, Sieve,
    TriageLedger,
};

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    clock::StoreClock,
    event::{Event, EventData, Lane, Tally},
    letter::{DeadLetter, Millis},
};

/// What every ledger operation returns.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A position in the DLQ: everything up to and including it has been read. Opaque outside its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cursor(pub String);

/// A position in an outbox lane. Opaque, but ordered: `OutboxId::cmp` is the order of the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxId {
    /// Milliseconds by the store's clock.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl std::fmt::Display for OutboxId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl std::str::FromStr for OutboxId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<OutboxId, Self::Err> {
        let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
        Ok(OutboxId { ms: ms.parse()?, seq: seq.parse()? })
    }
}

/// The right to act on a source, held by one replica at a time and checked by every write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Rises with every change of leader and never falls.
    pub epoch: u64,
    /// Who holds it: host, process and a random part.
    pub holder: String,
}

impl Lease {
    /// What the store holds while this lease is good: `<epoch>:<holder>`.
    pub fn token(&self) -> String {
        format!("{}:{}", self.epoch, self.holder)
    }
}

/// What became of a try for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryLease {
    /// It is ours.
    Acquired(Lease),
    /// Another replica holds it.
    Held {
        /// Its holder, as [`Lease::holder`].
        by: String,
        /// Its epoch.
        epoch: u64,
    },
}

/// What a standby sees of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseNow {
    /// Somebody holds it.
    Held {
        /// Whose it is.
        lease: Lease,
        /// When it runs out, from now, unless it is renewed.
        left: Duration,
    },
    /// Nobody does, or what is there is no lease that would ever run out: it may be tried for.
    Free,
}

/// Where a new leader starts reading, and what it found out on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    /// Read on after this.
    pub cursor: Cursor,
    /// While reading what was there before Sexton first came: announce nothing one by one, tally it.
    pub existing: Option<Existing>,
    /// The store has lost data since the last leader; already mended, to be said.
    pub loss: Option<Loss>,
    /// Whether there is a DLQ at all: there is none before the first death, nor where the configuration is wrong.
    pub dlq_exists: bool,
}

/// The entries that were in the DLQ before Sexton first came.
#[derive(Clone, Debug, PartialEq)]
pub struct Existing {
    /// The last of them.
    pub until: Cursor,
    /// What has been counted of them so far.
    pub tally: Tally,
}

/// How a store turned out to have lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The ledger is gone though this process had one (FLUSHALL, a new empty store).
    Ledger,
    /// The DLQ ends before the ledger's cursor (restored, recreated, or failed over to a lagging replica).
    CursorAhead,
}

/// How a leader attaches.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachOptions {
    /// Announce what is already in the DLQ one by one.
    pub announce_existing: bool,
    /// This process has led this source before: an empty ledger means it was lost, not that this is the first visit.
    pub seen_before: bool,
    /// This process knows already that the store has lost data since it led: that is not told again.
    pub loss_known: bool,
}

/// One read of the DLQ, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The letters, oldest first.
    pub letters: Vec<DeadLetter>,
    /// The cursor after this batch.
    pub cursor: Cursor,
    /// What the heaviest entry weighs: bytes of its names and values.
    pub heaviest: usize,
    /// True if the read came back short, so nothing more was there at that moment.
    pub caught_up: bool,
}

/// What a leader commits of one batch, in one atomic step.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The cursor the batch was read after; the commit is refused if the ledger's is another.
    pub from: Cursor,
    /// The cursor from now on.
    pub to: Cursor,
    /// One for each letter, in order.
    pub deaths: Vec<Death>,
    /// Set while existing entries are being read.
    pub existing: Option<ExistingStep>,
    /// The generation of the rules that the plans were made by: 0 without rules, and then no death has a plan and no
    /// entry is remembered with its job. The commit is refused if the ledger's is another.
    pub generation: u64,
}

/// One death in a commit.
#[derive(Clone, Debug)]
pub struct Death {
    /// The entry.
    pub entry_id: String,
    /// The job, if the record carries an id.
    pub job_id: String,
    /// When it died.
    pub at: Millis,
    /// The `data` of the event to append to the outbox ([`crate::event::JobDead`] as JSON, `deaths` and `retries` 0: the
    /// ledger fills them in), or none for an entry that was there before.
    pub event: Option<String>,
    /// What the rules plan for it; none for an entry that stays put.
    pub plan: Option<Plan>,
}

/// Progress through the existing entries.
#[derive(Clone, Debug)]
pub enum ExistingStep {
    /// More to come; remember the tally.
    Counting(Box<Tally>),
    /// That was the last; append this digest to the outbox, if there was anything to count.
    Done(Option<Box<EventData>>),
}

/// What a commit found out about each of its deaths, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// For each death: how often the job has died now, and how often Sexton had retried it. Empty for a step of judging.
    pub jobs: Vec<JobCounts>,
    /// Events in the outbox lane afterwards.
    pub outbox_len: u64,
    /// The place of the last death that it has announced, if it has announced any.
    pub told: Option<OutboxId>,
    /// Which of them (by place in the commit) have now been said to be exhausted.
    pub exhausted: Vec<usize>,
    /// Which of them died again although nobody but another loop, or a person, can have put them back: all earlier
    /// entries of the job have left the DLQ, and there was no retry of ours since.
    pub elsewhere: Vec<usize>,
}

/// What the ledger knows of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Deaths, this one included; of a record without a job id only this one is known.
    pub deaths: u32,
    /// Retries by Sexton.
    pub retries: u32,
}

/// The DLQ and the ledger at one moment, as the leader sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Entries in the DLQ.
    pub entries: u64,
    /// When the oldest of them was buried.
    pub oldest: Option<Millis>,
    /// Entries added to the DLQ since the last survey, whoever made it.
    pub added: u64,
    /// Entries added that have not been read yet.
    pub lag: u64,
    /// Retries of ours without a final verdict yet.
    pub in_flight: u64,
    /// Entries that were taken away before they were read, found since the last survey.
    pub unseen: u64,
    /// Where the deaths lane of the outbox ends; `None` if there is none.
    pub told: Option<OutboxId>,
    /// An event that this process has read there is gone, and was not trimmed: the store has lost data. Told once.
    pub lost: bool,
}

/// What a delivery lane has saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLane {
    /// Rises with every save, whoever makes it.
    pub revision: u64,
    /// The lane's state as JSON.
    pub state: String,
}

/// An event and its place in the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// Its place.
    pub id: OutboxId,
    /// The event.
    pub event: Event,
}

/// A page of the outbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxPage {
    /// The events that could be read, in order.
    pub events: Vec<Posted>,
    /// The last place read, unreadable events included; `None` if there was nothing.
    pub last: Option<OutboxId>,
    /// Events whose stored form this build cannot read (written by a newer one), skipped.
    pub unreadable: u64,
}

/// A picture of the source for people: `sexton stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Entries in the DLQ.
    pub entries: u64,
    /// When the oldest was buried.
    pub oldest: Option<Millis>,
    /// When the newest was buried.
    pub newest: Option<Millis>,
    /// Entries ever added to the DLQ.
    pub added: u64,
    /// Entries added but not read by Sexton yet; `None` if Sexton has never led here.
    pub lag: Option<u64>,
    /// Deaths committed to the ledger.
    pub deaths: u64,
    /// Who leads, if anybody.
    pub leader: Option<Lease>,
    /// Events in each outbox lane, in the order of [`Lane::ALL`].
    pub outbox: [u64; 2],
}

/// A page of the DLQ, newest first.
#[derive(Clone, Debug, Default)]
pub struct DlqPage {
    /// The letters, newest first.
    pub letters: Vec<DeadLetter>,
    /// Read on before this entry; `None` at the end.
    pub next: Option<String>,
}

/// One source's DLQ and ledger. Every write takes the lease and checks it in the same atomic step
/// ([`StoreError::Fenced`]); reads need none.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The source's name.
    fn name(&self) -> &str;

    /// The DLQ's name in the store, for people.
    fn dlq(&self) -> String;

    /// The store's clock, set anew by every answer that carries the time.
    fn clock(&self) -> &StoreClock;

    /// Ticks whenever this process has appended to this lane of the outbox.
    fn outbox_changes(&self, lane: Lane) -> watch::Receiver<u64>;

    /// Tries for the lease. `known_epoch` is the highest epoch this process has seen, so that it rises even where the
    /// store forgot.
    async fn try_lease(&self, holder: &str, ttl: Duration, known_epoch: u64) -> Result<TryLease>;

    /// Who holds the lease now.
    async fn leader(&self) -> Result<Option<Lease>>;

    /// Looks at the lease, and takes over the store's time. Cheap: with [`Ledger::until_released`] all that a standby
    /// does.
    async fn look_at_lease(&self) -> Result<LeaseNow>;

    /// Waits until this lease is given up, or `at_most`, which the store may cut short. One command however long it
    /// takes; what was given up before it was asked is not missed. One caller at a time, and none beside
    /// [`Ledger::read`].
    async fn until_released(&self, lease: &Lease, at_most: Duration) -> Result<()>;

    /// Extends the lease to `ttl` from now.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<()>;

    /// Gives the lease up and wakes those who wait for it, so that a standby can take it at once. Not an error if it is no longer ours.
    async fn release(&self, lease: &Lease) -> Result<()>;

    /// Finds where to read on, repairs what a loss of data broke, and remembers it.
    async fn attach(&self, lease: &Lease, options: AttachOptions) -> Result<Attached>;

    /// Whether a text can be an entry's id at all.
    fn is_entry_id(&self, text: &str) -> bool;

    /// Whether an entry lies behind a cursor, in the order of reading.
    fn is_after(&self, entry_id: &str, cursor: &Cursor) -> bool;

    /// Reads up to `max` entries after `after`, waiting up to `block` for the first one.
    async fn read(&self, after: &Cursor, max: usize, block: Option<Duration>) -> Result<Batch>;

    /// Commits a batch: outbox, job records, due index, counters and cursor, in one step or not at all.
    /// [`StoreError::Moved`] if the ledger's cursor is not `from`, or its generation another: attach again.
    async fn commit(&self, lease: &Lease, commit: Commit) -> Result<PlanEnd<Committed>>;

    /// Looks whether the ledger is still where this leader left it, and the DLQ reaches that far.
    /// [`StoreError::Moved`] if not (the store has lost data, or somebody else has written): attach again.
    async fn check(&self, lease: &Lease, cursor: &Cursor) -> Result<()>;

    /// Looks at the DLQ and the ledger at one moment, and settles what was missed.
    async fn survey(&self, lease: &Lease) -> Result<Survey>;

    /// Whether the store has lost an event that this process has written or surveyed there; for who does not lead, and so
    /// does not survey. Told once.
    async fn has_lost(&self) -> Result<bool> {
        Ok(false)
    }

    /// Remembers that Prometheus has been shown the deaths up to this place, and was not shown those behind it.
    async fn mark_shown(&self, lease: &Lease, until: OutboxId) -> Result<()>;

    /// Up to where it has been shown them; nothing if it never was.
    async fn shown_until(&self) -> Result<Option<OutboxId>>;

    /// Reads up to `max` events of a lane after `after`.
    async fn outbox(&self, lane: Lane, after: OutboxId, max: usize) -> Result<OutboxPage>;

    /// The event at this place, if the outbox still has it and this build can read it.
    async fn outbox_get(&self, lane: Lane, id: OutboxId) -> Result<Option<Posted>>;

    /// Events in a lane.
    async fn outbox_len(&self, lane: Lane) -> Result<u64>;

    /// Where the lane's outbox ends now.
    async fn outbox_end(&self, lane: Lane) -> Result<OutboxId>;

    /// Removes events of a lane before `keep_from`, all or about `at_most` of the oldest; returns how many.
    async fn outbox_trim(&self, lease: &Lease, lane: Lane, keep_from: OutboxId, at_most: Option<u64>) -> Result<u64>;

    /// Appends an event by hand, without a lease (`sexton hooks test`).
    async fn append(&self, data: &EventData) -> Result<OutboxId>;

    /// What a hook's lane has saved, if anything.
    async fn load_lane(&self, hook: &str, lane: Lane) -> Result<Option<SavedLane>>;

    /// Saves a lane over revision `over` (0 for the first time); returns the new revision.
    /// [`StoreError::Moved`] if somebody saved in between: load again.
    async fn save_lane(&self, lease: &Lease, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64>;

    /// Saves a lane by hand, without a lease (`sexton hooks resend`). The same check of the revision.
    async fn edit_lane(&self, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64>;

    /// A picture for people.
    async fn overview(&self) -> Result<Overview>;

    /// One entry of the DLQ.
    async fn entry(&self, entry_id: &str) -> Result<Option<RawLetter>>;

    /// Up to `max` entries older than `before` (from the newest on without it), newest first.
    async fn page(&self, before: Option<&str>, max: usize) -> Result<DlqPage>;

    /// What the ledger knows of these jobs, in order.
    async fn jobs(&self, job_ids: &[String]) -> Result<Vec<JobCounts>>;
}

/// A source with everything that its leader and people can ask of it.
pub trait SourceLedger: AlertLedger + TriageLedger + Inspect {}

impl<L: AlertLedger + TriageLedger + Inspect> SourceLedger for L {}

/// One entry, decoded and as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RawLetter {
    /// What it says.
    pub letter: DeadLetter,
    /// Its fields in stored order, byte for byte.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}
