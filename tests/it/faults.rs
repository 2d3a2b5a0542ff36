//! Redis in every kind of trouble: Sexton says what is wrong, waits without hammering, goes on by itself, and loses
//! nothing that Redis still has.

use std::time::Duration;

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use sexton::{
    clock::monotonic,
    config::{Secret, SecretSource, SmallageConfig},
    event::{EventData, HookTest},
    ledger::{Act, By, Ledger as _, Operation, Raised, Removal, Retain, RetryLedger as _, Scan, TriageLedger as _},
    letter::Millis,
    smallage::Smallage,
};

use crate::support::{
    SOON, eventually,
    graveyard::{bury_as, bury_many, dlq, job_id, letter},
    ledger::{announced, every_death_announced_once},
    process::{self, Http, Process, Sexton, Stream},
    receiver::Receiver,
    redis::{Options, Redis},
    rights,
    yard::{QUEUE, anna, hand_retry_of},
};

const NS: &str = "lrs";
/// How long a fault lasts that only time can tell from a short one: longer than the lease.
const LONG: Duration = Duration::from_secs(3);

fn config(redis: &Redis) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\n",
        redis.url()
    )
}

/// A Redis and a Sexton that leads there, with ten deaths announced.
async fn at_work(options: Options) -> (Redis, MultiplexedConnection, Sexton, Http) {
    at_work_as(options, "200ms").await
}

/// The same, and it samples this often.
async fn at_work_as(options: Options, sample_every: &str) -> (Redis, MultiplexedConnection, Sexton, Http) {
    let redis = Redis::with(Options { tcp: true, ..options }).await;
    let mut con = redis.connect().await;
    let sexton = Sexton::run(&config(&redis).replace("200ms", sample_every));
    let http = sexton.http().await;
    // Only a leader that has attached looks at the DLQ; what is there before that counts as existing.
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    bury_many(&mut con, NS, 0..10).await;
    all_announced(&mut con, 10).await;
    (redis, con, sexton, http)
}

async fn all_announced(con: &mut MultiplexedConnection, entries: usize) {
    let deadline = monotonic() + SOON;
    loop {
        let got = every_death_announced_once(con, NS).await;
        if got == Ok(entries) {
            return;
        }
        assert!(monotonic() < deadline, "not all {entries} deaths are announced, each once: {got:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn connections(con: &mut MultiplexedConnection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query_async(con).await.expect("INFO works");
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.and_then(|count| count.trim().parse().ok()).expect("INFO counts connections")
}

fn times_said(sexton: &Sexton, text: &str) -> usize {
    sexton.process.shown(Stream::Err).iter().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn redis_is_killed_and_comes_back_with_its_data() {
    let (mut redis, _, sexton, http) = at_work(Options { appendonly: true, ..Options::default() }).await;
    redis.kill();
    sexton.process.says("the store cannot be reached").await;
    http.metric_is("sexton_up", &[], 0.0).await;
    http.answers("/livez", 200).await;
    http.answers("/readyz", 200).await;
    redis.start_again().await;
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
    http.metric_is("sexton_up", &[], 1.0).await;
}

#[tokio::test]
async fn redis_is_not_there_yet_at_the_start() {
    let mut redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    redis.kill();
    let sexton = Sexton::run(&config(&redis));
    let http = sexton.http().await;
    http.answers("/readyz", 200).await;
    sexton.process.says("the store cannot be reached").await;
    tokio::time::sleep(LONG).await;
    assert_eq!(times_said(&sexton, "failing; trying again"), 1, "a repeated failure is logged once");
    redis.start_again().await;
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    sexton.process.says("works again").await;
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..10).await;
    all_announced(&mut con, 10).await;
}

#[tokio::test]
async fn redis_hangs_for_longer_than_the_lease() {
    let (redis, mut con, sexton, http) = at_work(Options::default()).await;
    redis.freeze();
    sexton.process.says("no answer").await;
    http.metric_is("sexton_leader", &[], 0.0).await;
    tokio::time::sleep(LONG).await;
    redis.thaw();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
    http.metric_is("sexton_leader", &[], 1.0).await;
}

#[tokio::test]
async fn redis_is_flushed() {
    let (_redis, mut con, sexton, _) = at_work(Options::default()).await;
    let () = redis::cmd("FLUSHALL").query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..30).await;
    all_announced(&mut con, 20).await;
    sexton.process.says("the store has lost the ledger").await;
}

#[tokio::test]
async fn the_script_cache_is_flushed_again_and_again() {
    let (_redis, mut con, _sexton, _) = at_work(Options::default()).await;
    for round in 1..20 {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut con).await.unwrap();
        bury_many(&mut con, NS, round * 10..round * 10 + 10).await;
    }
    all_announced(&mut con, 200).await;
}

#[tokio::test]
async fn redis_becomes_a_replica_and_a_primary_again() {
    let (_redis, mut con, sexton, http) = at_work(Options::default()).await;
    // A primary that does not exist: the replica goes on serving what it has, and takes no writes.
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).query_async(&mut con).await.unwrap();
    sexton.process.says("READONLY").await;
    http.metric_is("sexton_leader", &[], 0.0).await;
    let before = connections(&mut con).await;
    tokio::time::sleep(LONG).await;
    let tries = connections(&mut con).await - before;
    assert!(tries < 40, "{tries} connections in {LONG:?}");
    let () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
}

#[tokio::test]
async fn redis_is_out_of_memory() {
    let (_redis, mut con, sexton, _) = at_work(Options::default()).await;
    sexton.process.freeze();
    bury_many(&mut con, NS, 10..20).await;
    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query_async(&mut con).await.unwrap();
    sexton.process.thaw();
    sexton.process.says("OOM").await;
    assert_eq!(every_death_announced_once(&mut con, NS).await.map_err(|wrong| wrong.contains("10 missing")), Err(true));
    let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).query_async(&mut con).await.unwrap();
    all_announced(&mut con, 20).await;
}

#[tokio::test]
async fn redis_cannot_persist() {
    let more = ["--enable-protected-configs", "yes"].map(str::to_owned).to_vec();
    let options = Options { save: Some("3600 1"), more, ..Options::default() };
    let (redis, mut con, sexton, _) = at_work(options).await;
    sexton.process.freeze();
    bury_many(&mut con, NS, 10..20).await;
    // A folder where the snapshot should go makes saving fail, and then Redis refuses writes.
    let folder: (String, String) = redis::cmd("CONFIG").arg("GET").arg("dir").query_async(&mut con).await.unwrap();
    let snapshot = std::path::Path::new(&folder.1).join("in-the-way.rdb");
    std::fs::create_dir(&snapshot).unwrap();
    let set = |name: &str, value: &str| redis::cmd("CONFIG").arg("SET").arg(name).arg(value).to_owned();
    let () = set("dbfilename", "in-the-way.rdb").query_async(&mut con).await.unwrap();
    let () = redis::cmd("BGSAVE").query_async(&mut con).await.unwrap();
    eventually("the snapshot has failed", SOON, || {
        let mut con = con.clone();
        async move {
            let info: String = redis::cmd("INFO").arg("persistence").query_async(&mut con).await.unwrap();
            info.contains("rdb_last_bgsave_status:err").then_some(())
        }
    })
    .await;
    sexton.process.thaw();
    sexton.process.says("MISCONF").await;
    let () = set("stop-writes-on-bgsave-error", "no").query_async(&mut con).await.unwrap();
    all_announced(&mut con, 20).await;
    drop(redis);
}

#[tokio::test]
async fn redis_takes_no_more_connections() {
    let (_redis, mut con, sexton, http) = at_work(Options::default()).await;
    let () = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).query_async(&mut con).await.unwrap();
    let () = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query_async(&mut con).await.unwrap();
    sexton.process.says("maxclients").await;
    http.metric_is("sexton_up", &[], 0.0).await;
    let () = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1000).query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
}

#[tokio::test]
async fn the_password_is_wrong_and_later_corrected() {
    let redis = Redis::with(Options { tcp: true, requirepass: Some("right"), ..Options::default() }).await;
    let mut con = redis.connect().await;
    let secrets = tempfile::tempdir().unwrap();
    let file = secrets.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let port = redis.port().unwrap();
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://127.0.0.1:{port}\", password_file: {}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\n",
        file.display()
    ));
    let http = sexton.http().await;
    sexton.process.says("WRONGPASS").await;
    let before = connections(&mut con).await;
    tokio::time::sleep(LONG).await;
    let tries = connections(&mut con).await - before;
    assert!((1..20).contains(&tries), "{tries} connections in {LONG:?}");
    std::fs::write(&file, "right\n").unwrap();
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    bury_many(&mut con, NS, 0..10).await;
    all_announced(&mut con, 10).await;

    // The password rotates while connections stand, and they break some time later.
    let () = redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("newer").query_async(&mut con).await.unwrap();
    std::fs::write(&file, "newer\n").unwrap();
    let () = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("newer") && !shown.contains("right"), "no secret is ever logged");
}

#[tokio::test]
async fn redis_is_loading() {
    let slow = ["--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024"];
    let more = slow.map(str::to_owned).to_vec();
    let options = Options { save: Some("3600 1"), more, ..Options::default() };
    let (mut redis, mut con, sexton, http) = at_work(options).await;
    let mut filler = redis::pipe();
    for n in 0..10_000 {
        filler.cmd("SET").arg(format!("filler:{n}")).arg(n).ignore();
    }
    let () = filler.query_async(&mut con).await.unwrap();
    assert!(redis.stop().success());
    http.metric_is("sexton_leader", &[], 0.0).await;
    redis.launch();
    sexton.process.says("LOADING").await;
    redis.ready().await.unwrap();
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
}

#[tokio::test]
async fn redis_is_rolled_back_while_the_lease_lives_on() {
    let (_redis, mut con, sexton, _) = at_work(Options::default()).await;
    let state = format!("{{{NS}}}:sexton:state");
    let outbox = format!("{{{NS}}}:sexton:outbox:deaths");
    let before: Vec<u8> = redis::cmd("DUMP").arg(&state).query_async(&mut con).await.unwrap();
    let outbox_before: Vec<u8> = redis::cmd("DUMP").arg(&outbox).query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
    // As after a failover to a replica that had the entries and not yet what was made of them.
    let mut rollback = redis::pipe();
    for (key, dump) in [(&state, &before), (&outbox, &outbox_before)] {
        rollback.cmd("RESTORE").arg(key).arg(0).arg(dump).arg("REPLACE").ignore();
    }
    let () = rollback.atomic().query_async(&mut con).await.unwrap();
    // Nothing dies any more: it has to be noticed all the same.
    all_announced(&mut con, 20).await;
    sexton.process.says("the ledger is not where this leader left it").await;
}

#[tokio::test]
async fn what_a_commit_has_noticed_is_not_taken_for_another_loss() {
    // Nobody looks at the outbox but who commits, and a new leader.
    let (_redis, mut con, sexton, http) = at_work_as(Options::default(), "5m").await;
    let state = format!("{{{NS}}}:sexton:state");
    let outbox = format!("{{{NS}}}:sexton:outbox:deaths");
    let state_before: Vec<u8> = redis::cmd("DUMP").arg(&state).query_async(&mut con).await.unwrap();
    let outbox_before: Vec<u8> = redis::cmd("DUMP").arg(&outbox).query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..20).await;
    all_announced(&mut con, 20).await;
    let mut rollback = redis::pipe();
    for (key, dump) in [(&state, &state_before), (&outbox, &outbox_before)] {
        rollback.cmd("RESTORE").arg(key).arg(0).arg(dump).arg("REPLACE").ignore();
    }
    let () = rollback.atomic().query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 20..30).await;
    sexton.process.says("the ledger is not where this leader left it").await;
    // The new term has looked at everything once: it would end here if it took what it sees for a loss of its own.
    http.metric_is("sexton_dlq_entries", &[], 30.0).await;
    bury_many(&mut con, NS, 30..40).await;
    all_announced(&mut con, 40).await;
    http.metric_is("sexton_store_losses_total", &[], 1.0).await;
    assert_eq!(times_said(&sexton, "attaching anew"), 1);
    assert_eq!(con.hget::<_, _, u64>(&state, "epoch").await.unwrap(), 2);
}

#[tokio::test]
async fn redis_loses_the_lease_with_all_that_was_written_since() {
    // The next sample is far away: only who has committed knows.
    let (_redis, mut con, sexton, http) = at_work_as(Options::default(), "5m").await;
    let key = |name: &str| format!("{{{NS}}}:sexton:{name}");
    // Nothing has died for long: the lane is empty.
    let outbox = key("outbox:deaths");
    let () = redis::cmd("XTRIM").arg(&outbox).arg("MAXLEN").arg(0).query_async(&mut con).await.unwrap();
    let before: Vec<u8> = redis::cmd("DUMP").arg(&outbox).query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 10..11).await;
    eventually("the death is announced", SOON, || {
        let (mut con, outbox) = (con.clone(), outbox.clone());
        async move { (con.xlen::<_, u64>(&outbox).await.unwrap() == 1).then_some(()) }
    })
    .await;
    // As after a failover to a replica that was far behind, where another has taken the lease.
    let mut rollback = redis::pipe();
    rollback.cmd("SET").arg(key("lease")).arg("9:another").arg("PX").arg(60_000).ignore();
    rollback.cmd("RESTORE").arg(&outbox).arg(0).arg(&before).arg("REPLACE").ignore();
    let () = rollback.atomic().query_async(&mut con).await.unwrap();
    sexton.process.says("the lease is lost").await;
    sexton.process.says("events that were written there are gone").await;
    http.metric_is("sexton_store_losses_total", &[], 1.0).await;
}

#[tokio::test]
async fn the_dlq_is_deleted_and_begins_anew_with_lower_ids() {
    let (_redis, mut con, sexton, _) = at_work(Options::default()).await;
    let () = con.del(dlq(NS)).await.unwrap();
    bury_as(&mut con, NS, "5-1", &letter(NS, 100)).await;
    sexton.process.says("the DLQ ends before the last entry read").await;
    eventually("the entry is announced", SOON, || {
        let mut con = con.clone();
        async move { announced(&mut con, NS).await.contains_key("5-1").then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn somebody_writes_rubbish_into_the_ledger() {
    let (_redis, mut con, sexton, _) = at_work(Options::default()).await;
    let key = |name: &str| format!("{{{NS}}}:sexton:{name}");
    for (field, more) in [("deaths", 10..20), ("seen", 20..30), ("counted", 30..40), ("epoch", 40..50)] {
        let () = con.hset(key("state"), field, "rubbish").await.unwrap();
        let all = usize::try_from(more.end).unwrap();
        bury_many(&mut con, NS, more).await;
        all_announced(&mut con, all).await;
    }
    // A lease that is none, or that would never run out, is nobody's.
    for rubbish in ["rubbish", "7:somebody who is gone"] {
        let () = con.set(key("lease"), rubbish).await.unwrap();
        sexton.process.says("the lease is lost").await;
        eventually("the lease is taken", Duration::from_secs(60), || {
            let mut con = con.clone();
            async move {
                let held: Option<String> = con.get(key("lease")).await.unwrap();
                held.filter(|held| held != rubbish)
            }
        })
        .await;
    }
    bury_many(&mut con, NS, 50..60).await;
    all_announced(&mut con, 60).await;
    // Without a cursor that makes sense everything counts as new: told twice rather than never.
    let () = con.hset(key("state"), "cursor", "rubbish").await.unwrap();
    bury_many(&mut con, NS, 60..70).await;
    sexton.process.says("the store has lost the ledger").await;
    eventually("the new ones are announced", SOON, || {
        let mut con = con.clone();
        async move { (announced(&mut con, NS).await.len() == 70).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn a_commit_that_is_refused_counts_nothing() {
    let (_redis, mut con, sexton, http) = at_work(Options::default()).await;
    // An outbox of another type refuses the first write of every commit.
    let outbox = format!("{{{NS}}}:sexton:outbox:deaths");
    let () = con.rename(&outbox, "aside").await.unwrap();
    let () = con.set(&outbox, "in the way").await.unwrap();
    bury_many(&mut con, NS, 10..13).await;
    sexton.process.says("WRONGTYPE").await;
    tokio::time::sleep(LONG).await;
    let () = con.rename("aside", &outbox).await.unwrap();
    all_announced(&mut con, 13).await;
    let job: u32 = con.hget(format!("{{{NS}}}:sexton:job:{}", job_id(10)), "deaths").await.unwrap();
    assert_eq!(job, 1, "however often it was tried");
    http.metric_is("sexton_jobs_dead_total", &[], 13.0).await;
}

/// What people do, as this user.
async fn triage_with(url: &str, con: &mut redis::aio::MultiplexedConnection) {
    let url = SecretSource::Inline(Secret::new(url.to_owned()));
    let config =
        SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None };
    let hand = Smallage::new("orders", config).unwrap();
    let () = con.xgroup_create_mkstream(QUEUE, "workers", "0").await.unwrap();
    let scan = Scan { max: 10, oldest_first: true, ..Scan::default() };
    let letters = hand.scan(&scan).await.unwrap().letters;
    let operation = Operation {
        id: "17".to_owned(),
        act: Act::Delete,
        filter: serde_json::Value::Null,
        by: anna(),
        dry_run: false,
        per_second: None,
        asked_at: Millis(1),
    };
    hand.begin(&operation).await.unwrap();
    let by = By { operation: "17".to_owned(), ..anna() };
    let raised = hand.retry_by_hand(&by, vec![hand_retry_of(&letters[0])]).await.unwrap();
    assert!(matches!(raised[0], Raised::Sent(_)), "{raised:?}");
    let ids: Vec<String> = letters[1..3].iter().map(|letter| letter.entry_id.clone()).collect();
    assert_eq!(hand.remove(&by, Removal::Removed, &ids[..1]).await.unwrap(), [true]);
    assert_eq!(hand.remove(&by, Removal::Purged, &ids[1..]).await.unwrap(), [true]);
    let (_, progress) = hand.operations(10).await.unwrap().remove(0);
    assert_eq!(progress.done, 3);
    hand.progress(None, "17", &progress).await.unwrap();
    hand.note(&by, "finished", "").await.unwrap();
    let lease = hand.leader().await.unwrap().expect("the sidecar leads");
    let retain = Retain { entries: vec![(letters[3].entry_id.clone(), None)], generation: 0 };
    assert_eq!(hand.retain(&lease, &by, retain).await.unwrap(), 1);
    hand.announce(Some(&lease), &EventData::HookTest(HookTest::default())).await.unwrap();
    assert!(!hand.audit(None, Some(Millis(1)), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_least_rights_are_enough() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    rights::grant(&mut con, &rights::of_sexton(NS)).await;
    let receiver = Receiver::start().await;
    let port = redis.port().unwrap();
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://sexton:pw@127.0.0.1:{port}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{}\", rate: unlimited}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\noutbox: {{cap: 100, keep: 1s}}\n",
        receiver.url()
    ));
    let http = sexton.http().await;
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    for n in (0..300).step_by(10) {
        bury_many(&mut con, NS, n..n + 10).await;
        receiver.until(SOON, |requests| requests.len() as u64 >= n + 10).await;
    }
    http.metric_is("sexton_dlq_entries", &[], 300.0).await;
    for command in [&["ls"][..], &["stats"], &["errors", &job_id(7)], &["hooks", "ls"], &["hooks", "test", "oncall"]] {
        let mut run = Process::start(process::command().args(command).arg("-c").arg(sexton.config_file()));
        let exit = run.end().await;
        assert_eq!(exit.code(), Some(0), "{command:?}: {:?}", run.shown(Stream::Err));
    }
    triage_with(&format!("redis://sexton:pw@127.0.0.1:{port}"), &mut con).await;
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("NOPERM"), "{shown}");
    let refused = rights::refused(&mut con).await;
    assert!(refused.is_empty(), "{refused:?}");
}
