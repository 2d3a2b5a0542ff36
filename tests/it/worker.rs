//! The demonstration's worker on a real Redis: jobs live and die by smallage's protocol.

use std::time::Duration;

use redis::{AsyncCommands as _, Client, aio::MultiplexedConnection};
use sexton::demo::{
    job::{Dependencies, Policy},
    worker::{Worker, dlq_stream, enqueue, queue_stream},
};
use tokio_util::sync::CancellationToken;

use crate::support::{SOON, eventually, graveyard::dug_up, redis::Redis};

const QUICK: Policy =
    Policy { max_attempts: 3, initial_backoff: Duration::from_millis(5), max_backoff: Duration::from_millis(20) };

/// Nothing on the queue, nothing on the clock, nothing handed out and not let go of.
async fn at_rest(con: &mut MultiplexedConnection) -> bool {
    let waiting: u64 = con.xlen(queue_stream("ns", "default")).await.expect("the private Redis answers");
    let scheduled: u64 = con.zcard("{ns}:sched").await.expect("the private Redis answers");
    let pending: redis::Value = redis::cmd("XPENDING")
        .arg(queue_stream("ns", "default"))
        .arg("workers")
        .query_async(con)
        .await
        .expect("the private Redis answers");
    let redis::Value::Array(pending) = pending else { panic!("{pending:?}") };
    waiting == 0 && scheduled == 0 && pending[0] == redis::Value::Int(0)
}

#[tokio::test]
async fn jobs_die_while_their_dependency_is_down_and_run_when_it_is_mended() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let client = Client::open(redis.url()).unwrap();
    let dependencies = Dependencies::default();
    let stop = CancellationToken::new();
    // Two workers side by side: no job may be lost or buried twice between them.
    let workers: Vec<_> =
        (0..2).map(|_| Worker::new(client.clone(), "ns", "default", QUICK, dependencies.clone())).collect();
    let tallies: Vec<_> = workers.iter().map(Worker::tally).collect();
    let running: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(worker.run(stop.clone()))).collect();

    dependencies.break_down("smtp");
    let doomed = enqueue(&mut con, "ns", "default", "send_email", 0..1_500).await.unwrap();
    enqueue(&mut con, "ns", "default", "resize_image", 0..100).await.unwrap();
    eventually("every doomed job is buried", SOON, || {
        let mut con = con.clone();
        async move {
            let buried: u64 = con.xlen(dlq_stream("ns")).await.unwrap();
            (buried == 1_500 && at_rest(&mut con).await).then_some(())
        }
    })
    .await;
    let mut buried: Vec<String> = dug_up(&mut con, "ns")
        .await
        .iter()
        .map(|entry| String::from_utf8(entry.fields.iter().find(|(name, _)| name == b"id").unwrap().1.clone()).unwrap())
        .collect();
    let mut doomed = doomed;
    buried.sort();
    doomed.sort();
    assert_eq!(buried, doomed);

    dependencies.mend("smtp");
    enqueue(&mut con, "ns", "default", "send_email", 0..10).await.unwrap();
    eventually("everything has run", SOON, || async {
        (tallies.iter().map(|tally| tally.done()).sum::<u64>() == 110).then_some(())
    })
    .await;
    stop.cancel();
    for worker in running {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(tallies.iter().map(|tally| tally.failed()).sum::<u64>(), 3_000);
    assert_eq!(tallies.iter().map(|tally| tally.buried()).sum::<u64>(), 1_500);
    let keys: Vec<String> = redis::cmd("KEYS").arg("{ns}:sched:job:*").query_async(&mut con).await.unwrap();
    assert!(keys.is_empty(), "records are left on the clock: {keys:?}");
}
