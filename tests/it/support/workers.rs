//! Workers in this process that speak smallage's protocol, break and mend on command, and write down every run.

use std::{ops::Range, sync::Arc, time::Duration};

use redis::{AsyncCommands as _, Client, Pipeline, aio::MultiplexedConnection};
use sexton::{
    demo::{
        job::{self, Dependencies, Fields, Policy},
        worker::{self, Conduct, Tally, Worker, dlq_stream, queue_stream},
    },
    letter::Millis,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    audit::{Grave, Picture, Run},
    redis::Redis,
};

/// The queue they work on.
pub(crate) const QUEUE: &str = "default";
/// The stream they write their runs to.
pub(crate) const RUNS: &str = "test:runs";
/// Attempts and pauses short enough for a test.
pub(crate) const QUICK: Policy =
    Policy { max_attempts: 2, initial_backoff: Duration::from_millis(20), max_backoff: Duration::from_millis(100) };
/// Before a worker whose Redis has failed is started again.
const BACK_AFTER: Duration = Duration::from_millis(50);
/// Jobs enqueued in one go.
const PIPELINED: usize = 1_000;

/// Who works, and how.
#[derive(Clone, Debug)]
pub(crate) struct Hiring {
    /// Workers side by side.
    pub(crate) workers: usize,
    /// When they try again.
    pub(crate) policy: Policy,
    /// What they do beyond the protocol, their log of runs apart.
    pub(crate) conduct: Conduct,
}

impl Default for Hiring {
    fn default() -> Hiring {
        Hiring { workers: 2, policy: QUICK, conduct: Conduct::default() }
    }
}

/// Some workers at work; they go home when dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    /// What breaks and is mended.
    pub(crate) dependencies: Dependencies,
    namespace: String,
    /// The stream they write their runs to.
    runs: String,
    stop: CancellationToken,
    workers: JoinSet<()>,
    tallies: Vec<Arc<Tally>>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Crew {
    /// Workers of this namespace. One whose Redis fails comes back until it is there again.
    pub(crate) fn start(redis: &Redis, namespace: &str, hiring: &Hiring) -> Crew {
        let url = redis.url();
        Crew::follow(Arc::new(move || url.clone()), namespace, RUNS, hiring)
    }

    /// Workers that ask `whereabouts` for the URL of their Redis whenever they have lost it; they write down their runs
    /// at `runs`.
    pub(crate) fn follow(
        whereabouts: Arc<dyn Fn() -> String + Send + Sync>,
        namespace: &str,
        runs: &str,
        hiring: &Hiring,
    ) -> Crew {
        let find = move || Client::open(whereabouts()).expect("the URL is good");
        let dependencies = Dependencies::default();
        let stop = CancellationToken::new();
        let (mut workers, mut tallies) = (JoinSet::new(), Vec::new());
        for _ in 0..hiring.workers {
            let conduct = Conduct { run_log: Some(runs.to_owned()), ..hiring.conduct.clone() };
            let worker = Worker::new(find(), namespace, QUEUE, hiring.policy, dependencies.clone()).with(conduct);
            tallies.push(worker.tally());
            let (stop, find) = (stop.clone(), find.clone());
            workers.spawn(async move {
                while worker.clone().at(find()).run(stop.clone()).await.is_err() && !stop.is_cancelled() {
                    tokio::time::sleep(BACK_AFTER).await;
                }
            });
        }
        Crew { dependencies, namespace: namespace.to_owned(), runs: runs.to_owned(), stop, workers, tallies }
    }

    /// Puts a job of `task` for each of `numbers` on the queue; returns their ids.
    pub(crate) async fn enqueue(
        &self,
        con: &mut MultiplexedConnection,
        task: &str,
        numbers: Range<u64>,
    ) -> Vec<String> {
        let ids = worker::enqueue(con, &self.namespace, QUEUE, task, numbers).await;
        ids.expect("jobs can be enqueued")
    }

    /// The same, each with a dedup key of its own.
    pub(crate) async fn enqueue_with_dedup(
        &self,
        con: &mut MultiplexedConnection,
        task: &str,
        numbers: Range<u64>,
    ) -> Vec<String> {
        let now = now(con).await;
        let mut ids = Vec::new();
        for chunk in numbers.collect::<Vec<_>>().chunks(PIPELINED) {
            let mut pipe = Pipeline::new();
            for &number in chunk {
                let id = super::graveyard::job_id(number);
                let mut record = job::record(&id, task, number, Millis(now));
                record.push((b"dedup".to_vec(), dedup_key(number).into_bytes()));
                pipe.cmd("XADD").arg(queue_stream(&self.namespace, QUEUE)).arg("*").arg(record).ignore();
                ids.push(id);
            }
            pipe.exec_async(con).await.expect("jobs can be enqueued");
        }
        ids
    }

    /// Runs that went through so far.
    pub(crate) fn done(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.done()).sum()
    }

    /// What has happened and where everything is, all at one moment.
    pub(crate) async fn picture(&self, con: &mut MultiplexedConnection) -> Picture {
        picture_by(con, &self.namespace, &self.runs).await
    }

    /// Sends them home, and waits until they have finished what they have in hand.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker does not panic");
        }
    }
}

/// The dedup key of the job with this number.
pub(crate) fn dedup_key(number: u64) -> String {
    format!("order-{number}")
}

/// The time by Redis, in milliseconds.
pub(crate) async fn now(con: &mut MultiplexedConnection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(con).await.expect("Redis answers");
    seconds * 1000 + micros / 1000
}

/// What has happened in a namespace and where everything is, all at one moment.
pub(crate) async fn picture(con: &mut MultiplexedConnection, namespace: &str) -> Picture {
    picture_by(con, namespace, RUNS).await
}

async fn picture_by(con: &mut MultiplexedConnection, namespace: &str, runs: &str) -> Picture {
    type Entries = Vec<(String, Fields)>;
    let mut pipe = Pipeline::new();
    pipe.atomic();
    for stream in [runs.to_owned(), dlq_stream(namespace), queue_stream(namespace, QUEUE)] {
        pipe.cmd("XRANGE").arg(stream).arg("-").arg("+");
    }
    pipe.cmd("ZRANGE").arg(format!("{{{namespace}}}:sched")).arg(0).arg(-1);
    let (runs, dead, queued, clock): (Entries, Entries, Entries, Vec<String>) =
        pipe.query_async(con).await.expect("Redis answers");
    let run = |(_, fields): &(String, Fields)| Run {
        job: text(fields, "id"),
        task: text(fields, "task"),
        attempt: number(fields, "attempt").try_into().expect("an attempt is a small number"),
        ok: number(fields, "ok") == 1,
        at: number(fields, "at"),
        entry: text(fields, "entry"),
    };
    Picture {
        runs: runs.iter().map(run).collect(),
        dead: dead
            .iter()
            .map(|(entry, fields)| Grave {
                entry: entry.clone(),
                job: text(fields, "id"),
                at: number(fields, "dlq_at"),
            })
            .collect(),
        queued: queued.iter().map(|(_, fields)| text(fields, "id")).collect(),
        // `retry:<job>:<attempt>` or `unknown:<job>:<seconds>`.
        scheduled: clock.iter().filter_map(|id| id.split(':').nth(1)).map(str::to_owned).collect(),
    }
}

fn text(fields: &Fields, name: &str) -> String {
    let value = fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value.as_slice());
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

fn number(fields: &Fields, name: &str) -> i64 {
    text(fields, name).parse().unwrap_or_else(|_| panic!("{name} is a number: {fields:?}"))
}

/// Entries in the DLQ.
pub(crate) async fn graves(con: &mut MultiplexedConnection, namespace: &str) -> usize {
    con.xlen(dlq_stream(namespace)).await.expect("Redis answers")
}
