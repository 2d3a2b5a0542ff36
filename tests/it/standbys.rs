//! Fifty sidecars on one DLQ: what those cost that only stand by, and who leads when.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use sexton::clock::monotonic;

use crate::support::{
    SOON, eventually,
    fleet::{Fleet, of_standbys, terms},
    graveyard::bury_many,
    ledger::every_death_announced_once,
    monitor::{Monitor, Monitored},
    process::Stream,
    redis::{Options, Redis},
};

const NS: &str = "lrs";
const SIDECARS: usize = 50;
/// Shorter than the default, so the standbys look more often.
const TTL: Duration = Duration::from_secs(3);
/// How long they are watched while nothing happens: some looks of each.
const QUIET: Duration = Duration::from_secs(6);

/// Everything Redis was told since the last time.
async fn told(monitor: &mut Monitor, con: &mut redis::aio::MultiplexedConnection, mark: &str) -> Vec<Monitored> {
    let () = redis::cmd("ECHO").arg(mark).query_async(con).await.unwrap();
    monitor.until(mark).await
}

#[tokio::test]
async fn fifty_sidecars_have_one_leader_and_the_others_cost_redis_next_to_nothing() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let mut monitor = Monitor::of(&redis).await;
    let mut all: Vec<Monitored> = Vec::new();

    let mut fleet = Fleet::start(&redis, NS, SIDECARS, TTL).await;
    let (mut leader, mut epoch) = fleet.led_above(0).await;
    let start = told(&mut monitor, &mut con, "all stand by").await;
    // Each greets Redis on two connections, looks and waits; only the first few can have found the lease free.
    assert!(start.len() < SIDECARS * 24, "{} commands until all stand by", start.len());
    all.extend(start);

    told(&mut monitor, &mut con, "begin").await;
    let began = monotonic();
    tokio::time::sleep(QUIET).await;
    let took = began.elapsed();
    let quiet = told(&mut monitor, &mut con, "end").await;
    let theirs = of_standbys(&quiet);
    let per_second = theirs.len() as f64 / took.as_secs_f64();
    assert!(per_second < 100.0, "{per_second:.1} commands a second of {} standbys", SIDECARS - 1);
    let looking: BTreeSet<&str> =
        theirs.iter().filter(|told| told.command() == "PTTL").map(|told| told.from.as_str()).collect();
    assert_eq!(looking.len(), SIDECARS - 1, "every standby looks");
    // They do not all wait equally long, and so do not look all at once. How long they were told to wait, since a busy
    // machine may bring together what was apart.
    let waits: Vec<&String> =
        theirs.iter().filter(|told| told.command() == "XREAD").map(|told| &told.words[2]).collect();
    let distinct = waits.iter().collect::<BTreeSet<_>>().len();
    assert!(distinct > waits.len() / 2, "{distinct} of {} waits differ: {waits:?}", waits.len());
    all.extend(quiet);

    bury_many(&mut con, NS, 0..50).await;
    for killed in 1..=3 {
        let at = monotonic();
        fleet.sidecars[leader].process.kill();
        let (next, taken) = fleet.taken_above(epoch).await;
        let took = at.elapsed();
        assert!(took <= TTL + Duration::from_secs(2), "kill {killed}: {took:?}");
        fleet.sidecars.remove(leader);
        (leader, epoch) = (if next > leader { next - 1 } else { next }, taken);
        bury_many(&mut con, NS, killed * 50..killed * 50 + 50).await;
    }
    let mut handovers = Vec::new();
    for _ in 0..3 {
        let at: Instant = monotonic();
        fleet.sidecars[leader].process.terminate();
        let (next, taken) = fleet.taken_above(epoch).await;
        handovers.push(at.elapsed());
        let mut gone = fleet.sidecars.remove(leader);
        assert_eq!(gone.process.end().await.code(), Some(0));
        (leader, epoch) = (if next > leader { next - 1 } else { next }, taken);
    }
    handovers.sort();
    assert!(handovers[1] < Duration::from_secs(1), "{handovers:?}");
    eventually("every death is announced, once", SOON, || {
        let mut con = con.clone();
        async move { (every_death_announced_once(&mut con, NS).await == Ok(200)).then_some(()) }
    })
    .await;

    all.extend(told(&mut monitor, &mut con, "the end").await);
    let terms = terms(&all, NS).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(terms, (1..=epoch).collect::<Vec<_>>(), "each epoch was taken, once");
    assert_eq!(epoch, 7, "nobody led but after a kill or a stop");
    for sidecar in &fleet.sidecars {
        let lines = sidecar.process.shown(Stream::Err);
        assert!(!lines.iter().any(|line| line.contains("the lease is lost")), "{lines:#?}");
    }
}
