//! A worker that speaks smallage's protocol: takes jobs off a queue, runs them, tries again later, buries.
//!
//! Its jobs take no time, so it leaves out what guards long ones (liveness keys, reclaiming from a dead peer, results)
//! and needs no lease to move scheduled jobs, because that is one atomic step here.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult, Script, aio::MultiplexedConnection};
use tokio_util::sync::CancellationToken;

use super::job::{self, Dependencies, Fields, Outcome, Policy, Runnable};
use crate::letter::Millis;

/// Entries of a stream: id and fields.
type Entries = Vec<(String, Fields)>;

/// smallage's consumer group.
const GROUP: &str = "workers";
/// Jobs taken at a time.
const BATCH: usize = 500;
/// How long a read waits for jobs, and so how long a stop and a due job may have to wait.
const BLOCK: Duration = Duration::from_millis(50);
/// Above what any command of a worker takes; a blocking read has to fit in.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a dedup key stays claimed: a day.
const CLAIMED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Where a read begins: with what was taken before and not let go of, or with what nobody has taken yet.
const TAKEN_BEFORE: &str = "0";
const NOT_TAKEN: &str = ">";
/// Jobs enqueued in one go.
const PIPELINED: u64 = 1_000;

/// The queue stream of a namespace: its first shard, the only one here.
pub fn queue_stream(namespace: &str, queue: &str) -> String {
    format!("{{{namespace}}}:q:{queue}:0")
}

/// The DLQ stream of a namespace.
pub fn dlq_stream(namespace: &str) -> String {
    format!("{{{namespace}}}:dlq")
}

/// What workers have done so far.
#[derive(Debug, Default)]
pub struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    buried: AtomicU64,
}

impl Tally {
    /// Jobs that ran through.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Attempts that failed and will be made again.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Jobs put into the DLQ.
    pub fn buried(&self) -> u64 {
        self.buried.load(Ordering::Relaxed)
    }
}

/// What a worker has run, told outside of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The job.
    pub job: String,
    /// Attempts that had failed before.
    pub attempt: u32,
    /// Whether it ran through.
    pub ok: bool,
    /// When, by Redis.
    pub at: Millis,
    /// The job's entry on the queue.
    pub entry: String,
}

impl Seen {
    /// When the job was put on the queue, in milliseconds by Redis.
    pub fn queued_at(&self) -> i64 {
        self.entry.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(self.at.0)
    }
}

/// How a worker behaves beyond the protocol, for those who check what becomes of its jobs. By default: in no way.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// A stream to which it writes every run of a task: `id`, `task`, `attempt`, `ok` (1 or 0), `at` (milliseconds by
    /// Redis), `entry` (the job's entry on the queue).
    pub run_log: Option<String>,
    /// A list to which it adds every run, too, before anything of it is written: a Redis that fails over may forget
    /// what this remembers.
    pub witness: Option<Arc<Mutex<Vec<Seen>>>>,
    /// It lets go of jobs in the same step in which it writes what became of them, so that no crash repeats a run.
    pub one_step: bool,
    /// So many of its burials are those of a worker that dies right after them: it comes back, finds the job not let go
    /// of, and makes the attempt once more.
    pub deaths: u32,
}

/// A worker for one queue of one namespace. Several may run side by side. A clone is the same worker, started again: it
/// begins with what the other has taken and not let go of.
#[derive(Clone, Debug)]
pub struct Worker {
    client: Client,
    consumer: String,
    stream: String,
    dlq: String,
    clock: String,
    /// What every dedup key begins with.
    claims: String,
    policy: Policy,
    dependencies: Dependencies,
    conduct: Conduct,
    tally: Arc<Tally>,
}

impl Worker {
    /// A worker that is not running yet. It looks at `dependencies` before every attempt.
    pub fn new(client: Client, namespace: &str, queue: &str, policy: Policy, dependencies: Dependencies) -> Worker {
        Worker {
            client,
            consumer: format!("worker-{:08x}", fastrand::u32(..)),
            stream: queue_stream(namespace, queue),
            dlq: dlq_stream(namespace),
            clock: format!("{{{namespace}}}:sched"),
            claims: format!("{{{namespace}}}:dedup:"),
            policy,
            dependencies,
            conduct: Conduct::default(),
            tally: Arc::default(),
        }
    }

    /// The same worker, which behaves like this.
    pub fn with(mut self, conduct: Conduct) -> Worker {
        self.conduct = conduct;
        self
    }

    /// The same worker at another server: its Redis has moved.
    pub fn at(mut self, client: Client) -> Worker {
        self.client = client;
        self
    }

    /// What it has done; goes on counting while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Works until told to stop, or until Redis fails.
    pub async fn run(mut self, stop: CancellationToken) -> RedisResult<()> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        let mut con = self.client.get_multiplexed_async_connection_with_config(&patient).await?;
        self.join_group(&mut con).await?;
        let promote = Script::new(include_str!("promote.lua"));
        let mut promote = promote.key(&self.clock);
        promote.arg(format!("{}:job:", self.clock)).arg(BATCH);
        let mut from = TAKEN_BEFORE;
        while !stop.is_cancelled() {
            let _: u64 = promote.invoke_async(&mut con).await?;
            let entries = self.take(&mut con, from).await?;
            let died = !entries.is_empty() && self.work(&mut con, entries).await?;
            from = if died { TAKEN_BEFORE } else { NOT_TAKEN };
        }
        Ok(())
    }

    async fn join_group(&self, con: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream).arg(GROUP).arg("0").arg("MKSTREAM");
        match create.exec_async(con).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            joined => joined,
        }
    }

    /// Takes the next jobs, waiting a little for the first one.
    async fn take(&self, con: &mut MultiplexedConnection, from: &str) -> RedisResult<Entries> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(BATCH);
        read.arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(&self.stream).arg(from);
        let streams: Option<Vec<(String, Entries)>> = read.query_async(con).await?;
        Ok(streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect())
    }

    /// Runs jobs. What becomes of them is written first and the entries let go of afterwards: a crash in between
    /// repeats a job, the other order would lose one. True if the worker has died of it.
    async fn work(&mut self, con: &mut MultiplexedConnection, entries: Entries) -> RedisResult<bool> {
        let now = store_time(con).await?;
        let jobs: Vec<Option<Runnable>> = entries.iter().map(|(_, fields)| job::runnable(fields)).collect();
        let claimed = self.claim(con, &jobs).await?;
        let mut written = Pipeline::new();
        let mut let_go = Vec::new();
        let (mut done, mut failed, mut buried, mut died) = (0, 0, 0, false);
        for (((entry, fields), job), claimed) in entries.iter().zip(&jobs).zip(claimed) {
            let_go.push(entry.as_str());
            if !claimed {
                // Somebody holds the key, be it the job itself: it is let go of without a run.
                continue;
            }
            let dice = fastrand::f64();
            let outcome = job::attempt(fields, &self.stream, now, self.policy, &self.dependencies, dice);
            if let (Some(witness), Some(job)) = (&self.conduct.witness, job) {
                let (job, attempt, ok) = (job.id.clone(), job.attempt, outcome == Outcome::Done);
                let seen = Seen { job, attempt, ok, at: now, entry: entry.clone() };
                witness.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
            }
            if let (Some(log), Some(job)) = (&self.conduct.run_log, job) {
                let ok = outcome == Outcome::Done;
                written.cmd("XADD").arg(log).arg("*").arg("id").arg(&job.id).arg("task").arg(&job.task);
                written.arg("attempt").arg(job.attempt).arg("ok").arg(u8::from(ok));
                written.arg("at").arg(now.0).arg("entry").arg(entry).ignore();
            }
            match outcome {
                Outcome::Done => done += 1,
                Outcome::Later { scheduled_id, due, fields } => {
                    let record = format!("{}:job:{scheduled_id}", self.clock);
                    written.cmd("HSET").arg(record).arg(fields).arg("_stream").arg(&self.stream).ignore();
                    written.cmd("ZADD").arg(&self.clock).arg(due.0).arg(scheduled_id).ignore();
                    failed += 1;
                }
                Outcome::Buried(fields) => {
                    written.cmd("XADD").arg(&self.dlq).arg("*").arg(fields).ignore();
                    buried += 1;
                    if self.conduct.deaths > 0 {
                        self.conduct.deaths -= 1;
                        let_go.pop();
                        died = true;
                    }
                }
            }
        }
        if !self.conduct.one_step && !written.is_empty() {
            std::mem::take(&mut written).exec_async(con).await?;
        }
        if !let_go.is_empty() {
            written.cmd("XACK").arg(&self.stream).arg(GROUP).arg(&let_go).ignore();
            written.cmd("XDEL").arg(&self.stream).arg(&let_go).ignore();
        }
        if !written.is_empty() {
            written.atomic();
            written.exec_async(con).await?;
        }
        self.tally.done.fetch_add(done, Ordering::Relaxed);
        self.tally.failed.fetch_add(failed, Ordering::Relaxed);
        self.tally.buried.fetch_add(buried, Ordering::Relaxed);
        Ok(died)
    }

    /// Which of these jobs may run: of those with a dedup key whoever gets hold of it first, once a day.
    async fn claim(&self, con: &mut MultiplexedConnection, jobs: &[Option<Runnable>]) -> RedisResult<Vec<bool>> {
        let mut pipe = Pipeline::new();
        let keyed = |job: &Option<Runnable>| job.as_ref().is_some_and(|job| job.dedup.is_some());
        for job in jobs.iter().flatten() {
            if let Some(key) = &job.dedup {
                pipe.cmd("SET").arg(format!("{}{key}", self.claims)).arg(&job.id);
                pipe.arg("NX").arg("PX").arg(CLAIMED_FOR.as_millis() as u64);
            }
        }
        let mut won = Vec::new();
        if !pipe.is_empty() {
            won = pipe.query_async::<Vec<Option<String>>>(con).await?;
        }
        let mut won = won.into_iter();
        Ok(jobs.iter().map(|job| !keyed(job) || won.next().flatten().is_some()).collect())
    }
}

/// Puts one job of `task` for each of `numbers` on a queue; returns their ids in order.
pub async fn enqueue(
    con: &mut MultiplexedConnection,
    namespace: &str,
    queue: &str,
    task: &str,
    numbers: Range<u64>,
) -> RedisResult<Vec<String>> {
    let stream = queue_stream(namespace, queue);
    let mut ids = Vec::new();
    let mut next = numbers.start;
    while next < numbers.end {
        let until = numbers.end.min(next.saturating_add(PIPELINED));
        let now = store_time(con).await?;
        let mut pipe = Pipeline::new();
        for number in next..until {
            let id = job_id();
            pipe.cmd("XADD").arg(&stream).arg("*").arg(job::record(&id, task, number, now)).ignore();
            ids.push(id);
        }
        pipe.exec_async(con).await?;
        next = until;
    }
    Ok(ids)
}

/// Redis is the clock of smallage's workers, too.
async fn store_time(con: &mut MultiplexedConnection) -> RedisResult<Millis> {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(con).await?;
    Ok(Millis(seconds * 1000 + micros / 1000))
}

/// A random UUID (version 4).
fn job_id() -> String {
    let bits = (fastrand::u128(..) & !(0xf << 76) & !(0xc << 60)) | (0x4 << 76) | (0x8 << 60);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
