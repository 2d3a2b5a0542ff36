//! A worker that speaks smallage's protocol: takes jobs off a queue, runs them, tries again later, buries.
//!
//! Its jobs take no time, so it leaves out what guards long ones (liveness keys, reclaiming from a dead peer, dedup
//! claims, results) and needs no lease to move scheduled jobs, because that is one atomic step here.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult, Script, aio::MultiplexedConnection};
use tokio_util::sync::CancellationToken;

use super::job::{self, Dependencies, Fields, Outcome, Policy};
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

/// A worker for one queue of one namespace. Several may run side by side.
#[derive(Debug)]
pub struct Worker {
    client: Client,
    consumer: String,
    stream: String,
    dlq: String,
    clock: String,
    policy: Policy,
    dependencies: Dependencies,
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
            policy,
            dependencies,
            tally: Arc::default(),
        }
    }

    /// What it has done; goes on counting while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Works until told to stop, or until Redis fails.
    pub async fn run(self, stop: CancellationToken) -> RedisResult<()> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        let mut con = self.client.get_multiplexed_async_connection_with_config(&patient).await?;
        self.join_group(&mut con).await?;
        let promote = Script::new(include_str!("promote.lua"));
        let mut promote = promote.key(&self.clock);
        promote.arg(format!("{}:job:", self.clock)).arg(BATCH);
        while !stop.is_cancelled() {
            let _: u64 = promote.invoke_async(&mut con).await?;
            let entries = self.take(&mut con).await?;
            if !entries.is_empty() {
                self.work(&mut con, entries).await?;
            }
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
    async fn take(&self, con: &mut MultiplexedConnection) -> RedisResult<Entries> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(BATCH);
        read.arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(&self.stream).arg(">");
        let streams: Option<Vec<(String, Entries)>> = read.query_async(con).await?;
        Ok(streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect())
    }

    /// Runs jobs. What becomes of them is written first and the entries let go of afterwards: a crash in between
    /// repeats a job, the other order would lose one.
    async fn work(&self, con: &mut MultiplexedConnection, entries: Entries) -> RedisResult<()> {
        let now = store_time(con).await?;
        let mut written = Pipeline::new();
        let (mut done, mut failed, mut buried) = (0, 0, 0);
        for (_, fields) in &entries {
            let dice = fastrand::f64();
            match job::attempt(fields, &self.stream, now, self.policy, &self.dependencies, dice) {
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
                }
            }
        }
        if !written.is_empty() {
            written.exec_async(con).await?;
        }
        let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
        let mut let_go = Pipeline::new();
        let_go.atomic();
        let_go.cmd("XACK").arg(&self.stream).arg(GROUP).arg(&ids).ignore();
        let_go.cmd("XDEL").arg(&self.stream).arg(&ids).ignore();
        let_go.exec_async(con).await?;
        self.tally.done.fetch_add(done, Ordering::Relaxed);
        self.tally.failed.fetch_add(failed, Ordering::Relaxed);
        self.tally.buried.fetch_add(buried, Ordering::Relaxed);
        Ok(())
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
