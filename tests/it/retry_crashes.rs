//! The retry loop under fire: leaders killed and frozen, Redis gone, full, forgetful or with a clock that jumps. By the
//! workers' own log of runs nothing is lost, retried too early or too often, or run twice for one decision.

use std::{collections::HashMap, time::Duration};

use redis::{AsyncCommands as _, Script, aio::MultiplexedConnection};
use sexton::demo::worker::{Conduct, dlq_stream};

use crate::support::{
    SOON, eventually,
    process::Sexton,
    receiver::Request,
    redis::Options,
    stage::{Breath, FLUTTER, HECTIC, NS, OUTAGES, Rhythm, Stage, Terms, leader},
    workers::Hiring,
};

/// After this, what has not been retried is not going to be without a reason.
const LONG: Duration = Duration::from_millis(1_500);
/// How long everything may take to come to its end once the trouble is over.
const IN_THE_END: Duration = Duration::from_secs(60);
const KILLS: u32 = 100;

/// The lease as it stands.
async fn lease(con: &mut MultiplexedConnection) -> Option<String> {
    con.get(format!("{{{NS}}}:sexton:lease")).await.expect("Redis answers")
}

/// Lets a dead leader's lease run out now.
async fn expire(con: &mut MultiplexedConnection, lease: Option<String>) {
    let script = Script::new("return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])");
    let mut call = script.key(format!("{{{NS}}}:sexton:lease"));
    let _: redis::Value = call.arg(lease).invoke_async(con).await.expect("Redis answers");
}

#[expect(clippy::print_stdout, reason = "the seed is shown when the test fails")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_a_hundred_times_breaks_no_promise() {
    // Printed on failure: the same seed kills at the same moments, as far as the machine allows.
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    // Two sieges side by side take half the time: mostly they wait.
    tokio::join!(siege(fastrand::Rng::with_seed(seed), FLUTTER), siege(fastrand::Rng::with_seed(seed + 1), OUTAGES));
}

/// Kills half of the leaders.
async fn siege(mut random: fastrand::Rng, rhythm: Rhythm) {
    let mut stage = Stage::set(Options::default(), &Hiring::default(), HECTIC).await;
    let mut replicas = [stage.sexton(), stage.sexton()];
    leader(&replicas).await;
    stage.enqueue("parse_order", 3).await;
    stage.wave(200).await;
    let breath = stage.breathing(rhythm);
    for kill in 0..KILLS / 2 {
        stage.enqueue("send_email", 6).await;
        let leading = leader(&replicas).await;
        let most = if random.bool() {
            // While it attaches, ingests, looks and settles, which it does at once.
            60_000
        } else {
            // While it retries and follows.
            until_something_is_retried(&mut stage.con).await;
            30_000
        };
        tokio::time::sleep(Duration::from_micros(random.u64(0..most))).await;
        let held = lease(&mut stage.con).await;
        replicas[leading].process.kill();
        // Now and then the lease is waited for; mostly that would only be time.
        if kill % 10 > 0 {
            expire(&mut stage.con, held).await;
        }
        replicas[leading] = stage.sexton();
    }
    drop(breath);
    let picture = stage.settles(IN_THE_END).await;
    let retries = picture.retries(stage.allowed.max_attempts);
    assert!(retries.iter().any(|retry| !retry.ok) && retries.iter().any(|retry| retry.number > 1));
    stage.ledger_agrees(&picture).await;
}

/// Waits until an entry leaves the DLQ, though not for ever.
async fn until_something_is_retried(con: &mut MultiplexedConnection) {
    let before = removed(con).await;
    let more = async {
        while removed(con).await <= before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(LONG, more).await;
}

/// Entries that have ever left the DLQ.
async fn removed(con: &mut MultiplexedConnection) -> u64 {
    let mut info = redis::cmd("XINFO");
    let info: HashMap<String, redis::Value> =
        info.arg("STREAM").arg(dlq_stream(NS)).query_async(con).await.expect("there is a DLQ");
    let count = |name: &str| redis::from_redis_value_ref::<u64>(&info[name]).expect("a count");
    count("entries-added") - count("length")
}

#[tokio::test]
async fn a_frozen_leader_that_wakes_retries_nothing() {
    let mut stage = Stage::set(Options::default(), &Hiring::default(), HECTIC).await;
    let replicas = [stage.sexton(), stage.sexton()];
    leader(&replicas).await;
    for _ in 0..6 {
        stage.wave(50).await;
        let breath = stage.breathing(FLUTTER);
        let old = leader(&replicas).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..300_000))).await;
        replicas[old].process.freeze();
        let new = 1 - old;
        leader(std::slice::from_ref(&replicas[new])).await;
        replicas[old].process.thaw();
        replicas[old].http().await.metric_is("sexton_leader", &[], 0.0).await;
        drop(breath);
    }
    let picture = stage.settles(IN_THE_END).await;
    stage.ledger_agrees(&picture).await;
}

/// One leader, and workers whose log is exact even where Redis dies under them.
async fn at_work(options: Options) -> (Stage, Sexton) {
    let conduct = Conduct { one_step: true, ..Conduct::default() };
    let stage = Stage::set(options, &Hiring { conduct, ..Hiring::default() }, HECTIC).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    (stage, sexton)
}

/// Has a wave of jobs die of a dependency that then works most of the time, and waits until they are being retried.
async fn in_the_middle(stage: &mut Stage) -> Breath {
    stage.wave(150).await;
    let before = retries(stage).await;
    let breath = stage.breathing(FLUTTER);
    let deadline = sexton::clock::monotonic() + SOON;
    while retries(stage).await <= before {
        assert!(sexton::clock::monotonic() < deadline, "no retry within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    breath
}

async fn retries(stage: &mut Stage) -> usize {
    let picture = stage.picture().await;
    picture.retries(stage.allowed.max_attempts).len()
}

#[tokio::test]
async fn redis_is_killed_in_the_middle_and_comes_back() {
    let (mut stage, _sexton) = at_work(Options { appendonly: true, ..Options::default() }).await;
    for _ in 0..4 {
        let breath = in_the_middle(&mut stage).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..600_000))).await;
        stage.redis.kill();
        stage.redis.start_again().await;
        stage.con = stage.redis.connect().await;
        drop(breath);
    }
    let picture = stage.settles(IN_THE_END).await;
    stage.ledger_agrees(&picture).await;
}

#[tokio::test]
async fn redis_runs_out_of_memory_in_the_middle() {
    let (mut stage, sexton) = at_work(Options::default()).await;
    let limit = |bytes: u64| redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).to_owned();
    for _ in 0..4 {
        let breath = in_the_middle(&mut stage).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..600_000))).await;
        let () = limit(1).query_async(&mut stage.con).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        let () = limit(0).query_async(&mut stage.con).await.unwrap();
        drop(breath);
    }
    sexton.process.says("OOM").await;
    let picture = stage.settles(IN_THE_END).await;
    stage.ledger_agrees(&picture).await;
}

#[tokio::test]
async fn the_script_cache_is_flushed_again_and_again() {
    let (mut stage, _sexton) = at_work(Options::default()).await;
    let mut con = stage.redis.connect().await;
    let flushing = tokio::spawn(async move {
        loop {
            let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut con).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    for _ in 0..3 {
        let breath = in_the_middle(&mut stage).await;
        tokio::time::sleep(LONG).await;
        drop(breath);
    }
    let picture = stage.settles(IN_THE_END).await;
    assert!(!flushing.is_finished());
    flushing.abort();
    stage.ledger_agrees(&picture).await;
}

#[tokio::test]
async fn a_pod_whose_clock_is_hours_off_retries_in_time() {
    for off in [7_200, -7_200] {
        let mut stage = Stage::set(Options::default(), &Hiring::default(), HECTIC).await;
        let sexton = stage.sexton_off_time(off);
        leader(std::slice::from_ref(&sexton)).await;
        stage.enqueue("send_email", 30).await;
        stage.dead(30).await;
        let dead = stage.now().await;
        let picture = stage.settles(SOON).await;
        let retries = picture.retries(stage.allowed.max_attempts);
        let last = retries.iter().map(|retry| retry.put_back).max().unwrap();
        assert!(last - dead.0 < 10_000, "{off}: the last retry {} ms after the deaths", last - dead.0);
        // What is told has Redis's time, too.
        let recovered =
            |requests: &[Request]| requests.iter().filter(|request| request.json()["type"] == "job.recovered").count();
        let requests = stage.receiver.until(SOON, |requests| recovered(requests) == 30).await;
        for body in requests.iter().map(Request::json) {
            for at in [&body["timestamp"], &body["data"]["retried_at"], &body["data"]["recovered_at"]] {
                let Some(at) = at.as_str() else { continue };
                let at = chrono::DateTime::parse_from_rfc3339(at).unwrap().timestamp_millis();
                assert!((at - dead.0).abs() < 60_000, "{off}: {body}");
            }
        }
        stage.ledger_agrees(&picture).await;
    }
}

#[tokio::test]
async fn ages_are_by_the_clock_of_redis_however_it_jumps() {
    const MINUTE: i64 = 60;
    let terms = Terms { min_age: 60.0, max_backoff: 60.0, ..HECTIC };
    let options = Options { stepped_clock: true, ..Options::default() };
    let mut stage = Stage::set(options, &Hiring::default(), terms).await;
    let sexton = stage.sexton();
    leader(std::slice::from_ref(&sexton)).await;
    // Jobs die; then the clock jumps by so many seconds before, and by so many more after a while. Only after the second
    // jump are they old enough.
    for (round, (before, after)) in [(0, 70), (30, 40), (-3_600, 3_670), (-3_600, 70)].into_iter().enumerate() {
        let (round, jumps_while_alive) = (u64::try_from(round).unwrap(), round == 3);
        if jumps_while_alive {
            stage.redis.step_clock(before);
        }
        stage.crew.dependencies.break_down("smtp");
        stage.enqueue("send_email", 10).await;
        stage.dead(10).await;
        stage.crew.dependencies.mend("smtp");
        if !jumps_while_alive {
            stage.redis.step_clock(before);
        }
        assert!(before < MINUTE);
        tokio::time::sleep(LONG).await;
        stage.dead(10).await;
        stage.redis.step_clock(after);
        stage.through((round + 1) * 10, SOON).await;
    }
    let picture = stage.settles(SOON).await;
    assert_eq!(picture.retries(stage.allowed.max_attempts).len(), 40);
    stage.ledger_agrees(&picture).await;
    // What was put back before the clock went back by an hour may be unclear until it has caught up.
    stage.redis.step_clock(3_600);
    eventually("nothing is in flight", SOON, || async {
        sexton.http().await.metric("sexton_retries_in_flight", &[]).await.filter(|flights| *flights < 0.5)
    })
    .await;
}
