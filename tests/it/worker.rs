//! The demonstration's worker on a real Redis: jobs live and die by smallage's protocol.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::{AsyncCommands as _, Client, aio::MultiplexedConnection};
use sexton::demo::{
    job::{self, Dependencies, Policy},
    worker::{Conduct, Worker, dlq_stream, enqueue, queue_stream},
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    SOON,
    audit::{Allowed, Picture, audit},
    eventually,
    graveyard::dug_up,
    redis::{Options, Redis},
    workers::{Crew, Hiring, QUICK as QUICK_CREW, dedup_key, graves},
};

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

/// Nothing here retries, so no job may have more than one life.
fn no_retries(policy: Policy) -> Allowed {
    Allowed {
        min_age: Duration::from_secs(3600),
        backoff: 1.0,
        max_retries: 0,
        max_attempts: policy.max_attempts,
        elsewhere: BTreeSet::new(),
    }
}

async fn until_at_rest(con: &mut MultiplexedConnection) {
    eventually("nothing is left to do", SOON, || {
        let mut con = con.clone();
        async move { at_rest(&mut con).await.then_some(()) }
    })
    .await;
}

fn runs_of(picture: &Picture) -> BTreeMap<&str, usize> {
    let mut runs = BTreeMap::new();
    for run in &picture.runs {
        *runs.entry(run.job.as_str()).or_default() += 1;
    }
    runs
}

#[tokio::test]
async fn every_run_is_written_down_and_passes_the_audit() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let crew = Crew::start(&redis, "ns", &Hiring::default());
    crew.dependencies.break_down("smtp");
    let doomed = crew.enqueue(&mut con, "send_email", 0..50).await;
    let fine = crew.enqueue(&mut con, "resize_image", 0..50).await;
    let unknown = crew.enqueue(&mut con, "from_tomorrow", 0..1).await;
    eventually("all have come to their ends", SOON, || {
        let (crew, mut con) = (&crew, con.clone());
        async move {
            let picture = crew.picture(&mut con).await;
            (picture.dead.len() == 50 && picture.ran_through().len() == 50 && picture.queued.is_empty()).then_some(())
        }
    })
    .await;
    let picture = crew.picture(&mut con).await;
    assert_eq!(picture.scheduled, unknown, "a task nobody knows is handed back, without a run");
    assert_eq!(picture.runs.len(), 50 * 2 + 50);
    assert_eq!(picture.retries(QUICK_CREW.max_attempts), []);
    for grave in &picture.dead {
        let last = picture.runs.iter().rfind(|run| run.job == grave.job).unwrap();
        assert_eq!(
            (last.at, last.attempt, last.ok),
            (grave.at, 1, false),
            "a job is buried in the moment of its last run"
        );
    }
    let all = [doomed, fine, unknown].concat();
    assert_eq!(audit(&picture, &all, &no_retries(QUICK_CREW)), Vec::<String>::new());
    crew.stop().await;
}

#[tokio::test]
async fn a_job_with_a_dedup_key_runs_once_a_day_and_not_even_its_own_second_attempt_does() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let crew = Crew::start(&redis, "ns", &Hiring::default());
    crew.dependencies.break_down("smtp");
    let through = crew.enqueue_with_dedup(&mut con, "resize_image", 0..10).await;
    let swallowed = crew.enqueue_with_dedup(&mut con, "send_email", 10..20).await;
    until_at_rest(&mut con).await;
    let again = crew.enqueue(&mut con, "resize_image", 0..1).await;
    // The same key on another job, and one job with the key that is put back as it is.
    for (id, number) in [("another", 0), (swallowed[0].as_str(), 10)] {
        let mut record = job::record(id, "resize_image", number, sexton::letter::Millis(0));
        record.push((b"dedup".to_vec(), dedup_key(number).into_bytes()));
        let _: String = con.xadd(queue_stream("ns", "default"), "*", &record).await.unwrap();
    }
    until_at_rest(&mut con).await;
    let picture = crew.picture(&mut con).await;
    let runs = runs_of(&picture);
    for job in through.iter().chain(&swallowed).chain(&again) {
        assert_eq!(runs.get(job.as_str()), Some(&1), "{job}");
    }
    assert_eq!(runs.get("another"), None);
    assert!(picture.dead.is_empty(), "what fails with attempts left is lost");
    let holder: String = con.get(format!("{{ns}}:dedup:{}", dedup_key(10))).await.unwrap();
    assert_eq!(holder, swallowed[0]);
    let left: i64 = con.pttl(format!("{{ns}}:dedup:{}", dedup_key(0))).await.unwrap();
    assert!((86_000_000..=86_400_000).contains(&left), "{left} ms");

    // With the claim gone and an attempt beyond all limits it is buried at once, and nothing is lost.
    let () = con.del(format!("{{ns}}:dedup:{}", dedup_key(10))).await.unwrap();
    let mut record = job::record(&swallowed[0], "send_email", 10, sexton::letter::Millis(0));
    record.push((b"dedup".to_vec(), dedup_key(10).into_bytes()));
    record.iter_mut().filter(|(name, _)| name == b"attempt").for_each(|(_, value)| *value = b"1000000".to_vec());
    let _: String = con.xadd(queue_stream("ns", "default"), "*", &record).await.unwrap();
    until_at_rest(&mut con).await;
    assert_eq!(graves(&mut con, "ns").await, 1);
    crew.stop().await;
}

#[tokio::test]
async fn a_worker_that_dies_over_a_burial_buries_twice() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let conduct = Conduct { deaths: 3, ..Conduct::default() };
    let crew = Crew::start(&redis, "ns", &Hiring { workers: 1, conduct, ..Hiring::default() });
    crew.dependencies.break_down("smtp");
    let jobs = crew.enqueue(&mut con, "send_email", 0..10).await;
    until_at_rest(&mut con).await;
    let picture = crew.picture(&mut con).await;
    assert_eq!(picture.dead.len(), 13);
    let twins: Vec<&String> =
        jobs.iter().filter(|job| picture.dead.iter().filter(|grave| grave.job == **job).count() == 2).collect();
    assert_eq!(twins.len(), 3);
    let wrong = audit(&picture, &jobs, &no_retries(QUICK_CREW));
    assert_eq!(wrong.len(), 3, "nothing but that they lie there twice: {wrong:?}");
    assert!(wrong.iter().all(|wrong| wrong.contains("it lies in the DLQ 2 times")), "{wrong:?}");
    crew.stop().await;
}

#[tokio::test]
async fn workers_outlive_their_redis_and_repeat_no_run_if_they_write_in_one_step() {
    let mut redis = Redis::with(Options { tcp: true, appendonly: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let conduct = Conduct { one_step: true, ..Conduct::default() };
    let crew = Crew::start(&redis, "ns", &Hiring { conduct, ..Hiring::default() });
    crew.dependencies.break_down("smtp");
    let mut jobs = Vec::new();
    for round in 0..3 {
        jobs.extend(crew.enqueue(&mut con, "send_email", 0..1_000).await);
        jobs.extend(crew.enqueue(&mut con, "resize_image", 0..1_000).await);
        // In the middle of the work: some have run, most have not.
        eventually("some jobs have run", SOON, || {
            let mut con = con.clone();
            async move { (graves(&mut con, "ns").await > round * 1_000).then_some(()) }
        })
        .await;
        redis.kill();
        redis.start_again().await;
        con = redis.connect().await;
    }
    until_at_rest(&mut con).await;
    let picture = crew.picture(&mut con).await;
    assert_eq!(audit(&picture, &jobs, &no_retries(QUICK_CREW)), Vec::<String>::new());
    assert_eq!((picture.dead.len(), picture.ran_through().len()), (3_000, 3_000));
    assert!(picture.ran_through().values().all(|times| *times == 1));
    crew.stop().await;
}
