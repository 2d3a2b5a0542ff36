//! The part of the contract that the retry loop needs: the due index, the atomic retry, what is in flight, and what has
//! been learnt.
//!
//! The due index has three levels, so that a look at it costs the same however many entries wait: *pools* (one rule and
//! one task) with the time of their next look; in each pool its *groups* with the time of theirs; in each group its
//! entries with the time they become due. A time of a pool or group is a hint ("nothing to do before"), never a right:
//! whether an entry may be retried is decided when it is.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Batch, Committed, Cursor, JobCounts, Lease, Ledger, Result};
use crate::{
    event::JobDead,
    letter::{DeadLetter, Millis, hex},
    rule::Never,
};

/// One rule and one task: `<rule>:<12 hexadecimal digits of SHA-256(task)>`. What is learnt of one of its groups counts
/// for the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pool(pub String);

impl Pool {
    /// What stands for the rule where a person retries, also in metrics. No rule can have this name.
    pub const BY_HAND: &str = "by hand";

    /// Of this rule and this task.
    pub fn of(rule: &str, task: &str) -> Pool {
        Pool(format!("{rule}:{}", hex(&Sha256::digest(task)[..6])))
    }

    /// True of what a person has retried: no rule is to learn from it.
    pub fn is_by_hand(&self) -> bool {
        self.rule() == Pool::BY_HAND
    }

    /// The rule's name.
    pub fn rule(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(rule, _)| rule)
    }
}

/// Where an entry waits: its pool, and its group in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The pool.
    pub pool: Pool,
    /// The fingerprint.
    pub group: String,
}

/// What the rules plan for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It waits in the due index.
    Wait {
        /// Where.
        place: Place,
        /// Until when.
        due: Millis,
        /// For a job retried this often. If the ledger knows another number, nothing is written and the plan is made
        /// anew.
        retries: u32,
    },
    /// Its allowance is spent. If that has not been said of the job yet, this event is appended to the outbox.
    Spent {
        /// The `data` of `job.exhausted` as JSON.
        event: String,
        /// The rule that had retried it.
        rule: String,
        /// As in `Wait`.
        retries: u32,
    },
}

/// How a commit of plans ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEnd<T> {
    /// It stands.
    Stands(T),
    /// A plan took a job for one that has been retried another number of times. Nothing was written; these are the
    /// counts before the deaths at hand, for every entry in order: plan again.
    Stale(Vec<JobCounts>),
}

/// Which rules the ledger works by, and how far the entries from before them have been judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judging {
    /// Rises whenever the rules change; 0 if there never were any.
    pub generation: u64,
    /// The fingerprint of the rules.
    pub fingerprint: String,
    /// Entries up to here have been judged by these rules.
    pub judged: Cursor,
    /// Entries up to here are to be judged; what comes later was judged when it was read.
    pub until: Cursor,
}

/// A step of judging: entries from before the rules, read in order.
#[derive(Clone, Debug)]
pub struct Judge {
    /// As read from [`RetryLedger::judging`]; the step is refused if the ledger has moved on.
    pub generation: u64,
    /// The entries were read after this.
    pub from: Cursor,
    /// Judged from now on.
    pub to: Cursor,
    /// One for each entry, in order.
    pub entries: Vec<Judged>,
}

/// One entry of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The entry.
    pub entry_id: String,
    /// Its job, if the record carries an id.
    pub job_id: String,
    /// What is planned for it; none for an entry that stays put.
    pub plan: Option<Plan>,
}

/// The pools whose next look has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuePools {
    /// They, the longest overdue first.
    pub pools: Vec<Pool>,
    /// When the first of the others is to be looked at.
    pub next: Option<Millis>,
}

/// A pool as one look sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// What has been learnt of it, as JSON.
    pub learnt: Option<String>,
    /// Its groups whose next look has come, the longest overdue first.
    pub groups: Vec<GroupView>,
}

/// A group of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The fingerprint.
    pub group: String,
    /// Entries that are due.
    pub due: u64,
    /// What has been learnt of it, as JSON.
    pub learnt: Option<String>,
}

/// Not before when a pool and some of its groups are to be looked at again. Without such a time it is when their first
/// entry is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relook {
    /// Groups looked at, with their time.
    pub groups: Vec<(String, Option<Millis>)>,
    /// The pool's own time.
    pub pool: Option<Millis>,
}

/// An entry that may be retried, with what the ledger knows of its job.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The letter.
    pub letter: DeadLetter,
    /// The job's counts.
    pub job: JobCounts,
}

/// What would stand in the way of an entry's retry besides its age, its job's allowance and what has been learnt. For
/// explaining: whether an entry is retried is decided when it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prospects {
    /// The newest entry of its job in the DLQ, if that came after it.
    pub newer: Option<String>,
    /// Entries of the queue stream that it came from; none if there is no such stream.
    pub queue_length: Option<u64>,
    /// Another job holds its dedup key.
    pub dedup_claimed: bool,
}

/// One retry that the leader has decided on.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Where its entry waits.
    pub place: Place,
    /// The letter's event data with the counts as they will be; goes into the flight, and into `job.retried`.
    pub dead: JobDead,
    /// The queue stream the job goes to.
    pub stream: String,
    /// The job's dedup key.
    pub dedup: Option<String>,
    /// The job must have been retried this often so far.
    pub retries: u32,
    /// The rule's `max_retries`.
    pub max_retries: u32,
    /// Not before this moment by the store's clock: the death, and the age needed without jitter.
    pub not_before: Millis,
    /// The rule's `max_queue_length`.
    pub max_queue_length: u64,
    /// The rule's `confirm_within`.
    pub confirm_within: Duration,
    /// The rounds of what has been learnt of pool and group, at this moment.
    pub rounds: Rounds,
    /// The `data` of `job.retried` as JSON.
    pub event: String,
}

/// Which rounds of learning a retry belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The pool's.
    pub pool: u64,
    /// The group's.
    pub group: u64,
    /// It was sent although nothing was known of its group: one of the pool's canaries.
    #[serde(default)]
    pub canary: bool,
}

/// What became of one decided retry.
#[derive(Clone, Debug, PartialEq)]
pub enum Retried {
    /// The job is back on its queue.
    Sent(Box<Flight>),
    /// It is not, and this is why.
    Refused(Refusal),
}

/// Why an entry was not retried. What can pass leaves the entry in the due index with a later time; what cannot takes it
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The lease is another's. The whole batch was refused.
    NotLeader,
    /// The entry is no longer in the DLQ: a person or another loop was faster. Out of the index.
    EntryGone,
    /// The job died too recently.
    TooYoung,
    /// The rule grants the job no further retry. Out of the index.
    AllowanceSpent,
    /// The queue's stream does not exist: no worker reads it, and it would swallow the job.
    QueueGone,
    /// The queue is longer than the rule allows.
    QueueTooLong,
    /// Another job holds the dedup key: a worker would drop this one without running it.
    DedupClaimed,
    /// A retry of the same job has no verdict yet.
    InFlight,
    /// The same job has a newer entry in the DLQ, which stands for it for as long as it is there; or it was in the DLQ
    /// when its job was put back, and is removed.
    Superseded,
    /// The ledger knows another number of retries than the plan. Looked at again soon.
    Stale,
    /// The entry comes from a foreign (broker-mode) stream. Out of the index.
    ForeignStream,
    /// The record is no job. Out of the index.
    Malformed,
    /// An overfull queue had refused the job. Out of the index.
    Shed,
    /// The group, or its pool, is on hold.
    GroupHeld,
    /// The rule's window is closed.
    WindowClosed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 15] = [
        Refusal::NotLeader,
        Refusal::EntryGone,
        Refusal::TooYoung,
        Refusal::AllowanceSpent,
        Refusal::QueueGone,
        Refusal::QueueTooLong,
        Refusal::DedupClaimed,
        Refusal::InFlight,
        Refusal::Superseded,
        Refusal::Stale,
        Refusal::ForeignStream,
        Refusal::Malformed,
        Refusal::Shed,
        Refusal::GroupHeld,
        Refusal::WindowClosed,
    ];

    /// Its name in metrics, logs and the store's answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::NotLeader => "not_leader",
            Refusal::EntryGone => "entry_gone",
            Refusal::TooYoung => "too_young",
            Refusal::AllowanceSpent => "allowance_spent",
            Refusal::QueueGone => "queue_gone",
            Refusal::QueueTooLong => "queue_too_long",
            Refusal::DedupClaimed => "dedup_claimed",
            Refusal::InFlight => "in_flight",
            Refusal::Superseded => "superseded",
            Refusal::Stale => "stale",
            Refusal::ForeignStream => "foreign_stream",
            Refusal::Malformed => "malformed",
            Refusal::Shed => "shed",
            Refusal::GroupHeld => "group_held",
            Refusal::WindowClosed => "window_closed",
        }
    }

    /// The refusal of an entry that is never retried by rule.
    pub fn of(never: Never) -> Refusal {
        match never {
            Never::Foreign => Refusal::ForeignStream,
            Never::Malformed => Refusal::Malformed,
            Never::Shed => Refusal::Shed,
        }
    }

    /// The refusal with this name.
    pub fn parse(name: &str) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.as_str() == name)
    }
}

/// A retry without a final verdict yet, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flight {
    /// Where its entry waited.
    pub place: Place,
    /// The dead letter that was retried, with the counts after the retry: `deaths` is what the ledger knew when it was
    /// sent.
    pub dead: JobDead,
    /// The queue stream.
    pub stream: String,
    /// The job's dedup key.
    pub dedup: Option<String>,
    /// When it was put back, by the store's clock.
    pub sent_at: Millis,
    /// After this it is lost sight of.
    pub confirm_by: Millis,
    /// The rounds it was sent in.
    pub rounds: Rounds,
    /// Where it was seen last.
    pub at: Whereabouts,
    /// When it was seen there.
    pub seen_at: Millis,
    /// Its first new attempt has failed, and this has been taken into account.
    pub failing: bool,
}

/// Where a job in flight is. smallage always writes the next place before it leaves the last one, so at any moment a
/// living job is in one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whereabouts {
    /// On its queue, as this entry: waiting or running.
    Queue(String),
    /// Put off by the framework under this name: it waits for its next attempt, or for a worker that knows its task.
    Clock(String),
}

/// What one look at a flight has found, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It is still on its way.
    Underway {
        /// Where.
        at: Whereabouts,
        /// A new attempt of it has failed.
        failing: bool,
    },
    /// It is in none of its places and has not died: it ran through.
    RanThrough,
    /// It has died again.
    ReDied,
    /// A worker has dropped it without running it, because another job holds its dedup key.
    Swallowed,
    /// This cannot be told yet: deaths are still unread, or too much is on the queue to look through.
    Unclear,
}

/// The sights of several flights, and when they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sights {
    /// The store's time.
    pub at: Millis,
    /// One for each flight, in order.
    pub sights: Vec<Sight>,
}

/// How a retry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The job ran through.
    Recovered,
    /// Its first new attempt failed; the end is still to come.
    Failing,
    /// It died again.
    ReDied,
    /// No verdict within `confirm_within`.
    LostSight,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 4] = [Verdict::Recovered, Verdict::Failing, Verdict::ReDied, Verdict::LostSight];

    /// Its name in metrics and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Recovered => "recovered",
            Verdict::Failing => "failing",
            Verdict::ReDied => "re_died",
            Verdict::LostSight => "lost_sight",
        }
    }
}

/// One flight's change: what the ledger writes of it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The flight as it is from now on.
    pub flight: Flight,
    /// Its verdict, if there is one now. All but `Failing` end the flight.
    pub verdict: Option<Verdict>,
    /// The `data` of `job.recovered` as JSON, if it has recovered.
    pub event: Option<String>,
}

/// What has been learnt of a pool, or of a group in it, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// The pool.
    pub pool: Pool,
    /// The group; none for the pool itself.
    pub group: Option<String>,
    /// What has been learnt; empty to forget it.
    pub learnt: String,
    /// On hold until then.
    pub held_until: Option<Millis>,
    /// It says nothing any more after this moment, and may go: what a thousand groups of one have taught is not kept
    /// for longer than it is of use.
    pub keep_until: Millis,
}

/// One line of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Its id; the order of the log.
    pub id: String,
    /// When, by the store's clock.
    pub at: Millis,
    /// What was done or found: `retried`, `recovered`, `failing`, `re_died`, `lost_sight`, `exhausted`, `twin_removed`;
    /// `removed` by hand; `purged`, which stands for many; or what was noted.
    pub what: String,
    /// The rule, or who did it by hand.
    pub by: String,
    /// The entry in the DLQ; of a purge the first one, of a note none.
    pub entry_id: String,
    /// The job.
    pub job_id: String,
    /// The task.
    pub task: String,
    /// More, such as the id of the new queue entry.
    pub detail: String,
    /// What the person who did it wrote to it.
    #[serde(default)]
    pub note: String,
    /// The bulk operation that it was a part of.
    #[serde(default)]
    pub operation: String,
}

/// A source whose jobs can be put back. Every write takes the lease and checks it in the same atomic step.
#[async_trait]
pub trait RetryLedger: Ledger {
    /// Makes the rules with this fingerprint the ones in force, and returns the generation. If they are not already, the
    /// due index is begun anew: entries up to `cursor` are to be judged. [`StoreError::Moved`](super::StoreError::Moved)
    /// if the ledger's cursor is another. Does nothing where there never were rules and `fingerprint` is empty.
    async fn adopt_rules(&self, lease: &Lease, cursor: &Cursor, fingerprint: &str) -> Result<u64>;

    /// Which rules are in force, and how far judging has come.
    async fn judging(&self) -> Result<Judging>;

    /// Reads up to `max` entries after `after` and not after `until`, oldest first, with what the ledger knows of their
    /// jobs.
    async fn read_to_judge(&self, after: &Cursor, until: &Cursor, max: usize) -> Result<(Batch, Vec<JobCounts>)>;

    /// Writes a step of judging. [`StoreError::Moved`](super::StoreError::Moved) if the generation or the place has
    /// changed. An entry that has left the DLQ meanwhile is left out.
    async fn judge(&self, lease: &Lease, step: Judge) -> Result<PlanEnd<Committed>>;

    /// Removes up to about `max` groups of indexes of generations before the present one; true if more is left.
    async fn discard_old(&self, lease: &Lease, max: usize) -> Result<bool>;

    /// Up to `max` pools that are due now. One read, whatever is in the index.
    async fn due_pools(&self, generation: u64, max: usize) -> Result<DuePools>;

    /// A pool with up to `max` of its groups.
    async fn pool(&self, generation: u64, pool: &Pool, max: usize) -> Result<PoolView>;

    /// For each of these groups of a pool up to so many entries that are due, the longest overdue first.
    async fn due_entries(&self, generation: u64, pool: &Pool, groups: &[(String, usize)]) -> Result<Vec<Vec<String>>>;

    /// These entries and their jobs, in order; none for an entry that is no longer there.
    async fn standing(&self, entries: &[String]) -> Result<Vec<Option<Standing>>>;

    /// Retries these, each atomically and all in one step: checks everything first, then puts the job on its queue,
    /// counts it, writes flight, event and audit line, and removes the entry from the DLQ and from the index.
    /// [`StoreError::Moved`](super::StoreError::Moved) if other rules are in force by now.
    async fn retry(&self, lease: &Lease, generation: u64, retries: Vec<Retry>) -> Result<Vec<Retried>>;

    /// Takes entries out of the index that the rules do not want there. [`StoreError::Moved`](super::StoreError::Moved)
    /// if other rules are in force by now.
    async fn drop_due(&self, lease: &Lease, generation: u64, entries: &[(Place, String)]) -> Result<()>;

    /// Sets when a pool and its groups are looked at again.
    async fn relook(&self, lease: &Lease, generation: u64, pool: &Pool, relook: &Relook) -> Result<()>;

    /// All retries without a final verdict.
    async fn flights(&self) -> Result<Vec<Flight>>;

    /// Looks where these flights are. Takes nothing but reads, and asks nothing of the workers.
    async fn look(&self, flights: &[Flight]) -> Result<Sights>;

    /// Writes verdicts and what was learnt from them, in one step: the flights, events and audit lines, and the lessons.
    async fn settle(&self, lease: &Lease, settled: &[Settled], lessons: &[Lesson]) -> Result<()>;

    /// What has been learnt of pools and groups, as JSON, in order.
    async fn learnt(&self, of: &[(Pool, Option<String>)]) -> Result<Vec<Option<String>>>;

    /// Entries in the due index, and for each rule that has any the groups on hold at this moment.
    async fn waiting(&self) -> Result<Waiting>;

    /// When this entry is due, if it is in the index at this place.
    async fn due_at(&self, generation: u64, place: &Place, entry_id: &str) -> Result<Option<Millis>>;

    /// What would stand in the way of this letter's retry now. Takes nothing but reads, and no snapshot of them.
    async fn prospects(&self, letter: &DeadLetter) -> Result<Prospects>;

    /// The audit log from the newest line on, or before a line's id, and not further back than `since`; up to `max`
    /// lines. The log keeps so many lines, not so many days: what is older than its last line is forgotten.
    async fn audit(&self, before: Option<&str>, since: Option<Millis>, max: usize) -> Result<Vec<AuditLine>>;
}

/// The due index in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Entries in it.
    pub entries: u64,
    /// Groups on hold, by rule.
    pub held: Vec<(String, u64)>,
}
