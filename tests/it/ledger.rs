//! The ledger in a real Redis: what its scripts promise, step by step.

use std::{sync::Arc, time::Duration};

use redis::AsyncCommands as _;
use sexton::{
    clock::monotonic,
    config::{Secret, SecretSource, SmallageConfig, SourceConfig, SourceKind},
    event::{EventData, EventType, HookTest, Include, JobDead, Lane},
    ledger::{
        AttachOptions, Commit, Cursor, Death, ExistingStep, JobCounts, Lease, LeaseNow, Ledger, Loss, OutboxId,
        PlanEnd, StoreError, TryLease,
    },
    loops::{Next, Renew, Step as _},
    metrics::Metrics,
    smallage,
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    eventually,
    graveyard::{bury, bury_many, dlq, letter, with},
    redis::Redis,
};

const NS: &str = "lrs";
const TTL: Duration = Duration::from_secs(30);

/// A ledger on this Redis, as one replica would open it.
pub(crate) fn ledger(redis: &Redis) -> Arc<dyn Ledger> {
    let url = SecretSource::Inline(Secret::new(redis.url()));
    let config =
        SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None };
    smallage::open(&SourceConfig { name: "orders".to_owned(), kind: SourceKind::Smallage(config) })
        .expect("Redis is there")
}

async fn lease(ledger: &dyn Ledger) -> Lease {
    match ledger.try_lease("me", TTL, 0).await.expect("Redis is there") {
        TryLease::Acquired(lease) => lease,
        held => panic!("{held:?}"),
    }
}

async fn read_and_commit(ledger: &dyn Ledger, lease: &Lease, after: &Cursor) -> (Cursor, Vec<JobCounts>) {
    let batch = ledger.read(after, 1_000, None).await.expect("Redis is there");
    let deaths = batch
        .letters
        .iter()
        .map(|letter| Death {
            entry_id: letter.entry_id.clone(),
            job_id: letter.job_id.clone(),
            at: letter.died_at,
            event: Some(JobDead::of("orders", letter, Include::default()).to_json()),
            plan: None,
        })
        .collect();
    let commit = Commit { from: after.clone(), to: batch.cursor.clone(), deaths, existing: None, generation: 0 };
    let PlanEnd::Stands(committed) = ledger.commit(lease, commit).await.expect("Redis is there") else {
        panic!("there were no plans")
    };
    (batch.cursor, committed.jobs)
}

#[tokio::test]
async fn one_holder_at_a_time_and_the_epoch_only_rises() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let first = lease(&*ledger).await;
    assert_eq!(ledger.leader().await.unwrap().as_ref(), Some(&first));
    let held = ledger.try_lease("other", TTL, 0).await.unwrap();
    assert_eq!(held, TryLease::Held { by: "me".to_owned(), epoch: first.epoch });

    ledger.release(&first).await.unwrap();
    assert_eq!(ledger.leader().await.unwrap(), None);
    let TryLease::Acquired(second) = ledger.try_lease("other", TTL, 0).await.unwrap() else { panic!("it is free") };
    assert!(second.epoch > first.epoch);
    assert_eq!(ledger.renew(&first, TTL).await, Err(StoreError::Fenced));
    ledger.release(&first).await.unwrap();
    assert_eq!(ledger.leader().await.unwrap().as_ref(), Some(&second), "an old lease releases nothing");

    // A store that forgot everything must not hand out an epoch that has been used.
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connect().await).await.unwrap();
    let TryLease::Acquired(third) = ledger.try_lease("me", TTL, second.epoch).await.unwrap() else { panic!("free") };
    assert!(third.epoch > second.epoch);
}

#[tokio::test]
async fn who_waits_for_a_lease_is_woken_when_it_is_given_up_and_not_before() {
    let redis = Redis::start().await;
    let (leader, standby) = (ledger(&redis), ledger(&redis));
    let mut con = redis.connect().await;
    let key = format!("{{{NS}}}:sexton:lease");
    assert_eq!(standby.look_at_lease().await, Ok(LeaseNow::Free));
    let mut epoch = 0;
    for given_up_first in [false, true, false] {
        let first = lease(&*leader).await;
        assert!(first.epoch > epoch);
        epoch = first.epoch;
        let LeaseNow::Held { lease, left } = standby.look_at_lease().await.unwrap() else { panic!("it is held") };
        assert_eq!(lease, first);
        assert!(left <= TTL && left > TTL / 2, "{left:?}");

        // Nobody gives it up: the wait is as long as it was asked to be.
        let began = monotonic();
        standby.until_released(&lease, Duration::from_millis(50)).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());

        // Longer than a test may take, so that only the word can end it.
        let began = monotonic();
        if given_up_first {
            leader.release(&first).await.unwrap();
            standby.until_released(&lease, Duration::from_secs(5)).await.unwrap();
        } else {
            let (waited, released) =
                tokio::join!(standby.until_released(&lease, Duration::from_secs(5)), leader.release(&first));
            waited.and(released).unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(standby.look_at_lease().await, Ok(LeaseNow::Free));
    }
    // What could never run out, or is no lease, is nobody's.
    for odd in ["5:other", "rubbish"] {
        let () = con.set(&key, odd).await.unwrap();
        assert_eq!(standby.look_at_lease().await, Ok(LeaseNow::Free), "{odd}");
    }
    // Where the word cannot be left, the lease is given up all the same.
    let first = lease(&*leader).await;
    let () = redis::cmd("ACL").arg(&["SETUSER", "default", "-xadd"]).query_async(&mut con).await.unwrap();
    leader.release(&first).await.unwrap();
    assert_eq!(standby.look_at_lease().await, Ok(LeaseNow::Free));
}

#[tokio::test]
async fn a_lease_runs_out_by_itself_and_a_renewal_prolongs_it() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let first = lease(&*ledger).await;
    ledger.renew(&first, Duration::from_millis(80)).await.unwrap();
    eventually("the lease to run out", Duration::from_secs(5), async || {
        ledger.leader().await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(ledger.renew(&first, TTL).await, Err(StoreError::Fenced));
    let second = lease(&*ledger).await;
    ledger.renew(&second, Duration::from_secs(300)).await.unwrap();
    let left: i64 = con.pttl(format!("{{{NS}}}:sexton:lease")).await.unwrap();
    assert!(left > 100_000, "{left}");
}

#[tokio::test]
async fn a_commit_says_where_its_last_death_is_told_and_how_far_deaths_were_shown_is_remembered() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let me = lease(&*ledger).await;
    let attached =
        ledger.attach(&me, AttachOptions { announce_existing: true, ..AttachOptions::default() }).await.unwrap();
    assert_eq!(ledger.shown_until().await, Ok(None));
    let mut after = attached.cursor;
    for n in 0..3 {
        bury_many(&mut con, NS, n * 10..n * 10 + 2).await;
        let batch = ledger.read(&after, 10, None).await.unwrap();
        let told = |letter: &_| Some(JobDead::of("orders", letter, Include::default()).to_json());
        let deaths = batch.letters.iter().enumerate().map(|(at, letter)| Death {
            entry_id: letter.entry_id.clone(),
            job_id: letter.job_id.clone(),
            at: letter.died_at,
            // The last commit announces nothing, as of what was there before.
            event: told(letter).filter(|_| n < 2 && at < 2),
            plan: None,
        });
        let (from, to) = (after, batch.cursor.clone());
        let commit = Commit { from, to, deaths: deaths.collect(), existing: None, generation: 0 };
        let PlanEnd::Stands(committed) = ledger.commit(&me, commit).await.unwrap() else { panic!("without plans") };
        let end = ledger.outbox_end(Lane::Deaths).await.unwrap();
        assert_eq!(committed.told, (n < 2).then_some(end));
        after = batch.cursor;
    }
    let end = ledger.outbox_end(Lane::Deaths).await.unwrap();
    ledger.mark_shown(&me, end).await.unwrap();
    assert_eq!(ledger.shown_until().await, Ok(Some(end)));
    // What is no place was written by something else.
    let () = con.hset(format!("{{{NS}}}:sexton:state"), "shown", "rubbish").await.unwrap();
    assert_eq!(ledger.shown_until().await, Ok(None));
}

#[tokio::test]
async fn every_write_of_a_leader_without_the_lease_is_refused_and_changes_nothing() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..3).await;
    let old = lease(&*ledger).await;
    let attached =
        ledger.attach(&old, AttachOptions { announce_existing: true, ..AttachOptions::default() }).await.unwrap();
    ledger.release(&old).await.unwrap();
    ledger.try_lease("successor", TTL, 0).await.unwrap();
    let before = picture(&mut con).await;

    let batch = ledger.read(&attached.cursor, 10, None).await.unwrap();
    assert_eq!(ledger.mark_shown(&old, OutboxId { ms: 1, seq: 0 }).await, Err(StoreError::Fenced));
    let commit = Commit {
        from: attached.cursor.clone(),
        to: batch.cursor.clone(),
        deaths: Vec::new(),
        existing: None,
        generation: 0,
    };
    assert_eq!(ledger.commit(&old, commit).await, Err(StoreError::Fenced));
    assert_eq!(ledger.attach(&old, AttachOptions::default()).await, Err(StoreError::Fenced));
    assert_eq!(ledger.survey(&old).await, Err(StoreError::Fenced));
    assert_eq!(ledger.save_lane(&old, "oncall", Lane::Deaths, 0, "{}").await, Err(StoreError::Fenced));
    assert_eq!(ledger.outbox_trim(&old, Lane::Deaths, OutboxId::default(), None).await, Err(StoreError::Fenced));
    assert_eq!(ledger.renew(&old, TTL).await, Err(StoreError::Fenced));
    assert_eq!(picture(&mut con).await, before);
}

/// Every key and what it holds, to compare.
async fn picture(con: &mut redis::aio::MultiplexedConnection) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<String> = con.keys("*").await.expect("Redis is there");
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let dump: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(con).await.expect("Redis is there");
        all.push((key, dump));
    }
    all
}

#[tokio::test]
async fn a_commit_over_a_cursor_that_has_moved_is_refused() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let lease = lease(&*ledger).await;
    let attached = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    bury_many(&mut con, NS, 0..5).await;
    let (cursor, _) = read_and_commit(&*ledger, &lease, &attached.cursor).await;
    assert_eq!(ledger.outbox_len(Lane::Deaths).await.unwrap(), 5);
    let again =
        Commit { from: attached.cursor.clone(), to: cursor.clone(), deaths: Vec::new(), existing: None, generation: 0 };
    assert_eq!(ledger.commit(&lease, again).await, Err(StoreError::Moved));
    assert_eq!(ledger.outbox_len(Lane::Deaths).await.unwrap(), 5);
}

#[tokio::test]
async fn a_job_that_dies_again_is_counted_and_its_event_says_so() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let lease = lease(&*ledger).await;
    let attached = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    let record = letter(NS, 7);
    for _ in 0..2 {
        bury(&mut con, NS, &record).await;
    }
    let (cursor, jobs) = read_and_commit(&*ledger, &lease, &attached.cursor).await;
    assert_eq!(jobs, [JobCounts { deaths: 1, retries: 0 }, JobCounts { deaths: 2, retries: 0 }]);
    bury(&mut con, NS, &record).await;
    let (cursor, jobs) = read_and_commit(&*ledger, &lease, &cursor).await;
    assert_eq!(jobs, [JobCounts { deaths: 3, retries: 0 }]);

    let page = ledger.outbox(Lane::Deaths, OutboxId::default(), 10).await.unwrap();
    let deaths: Vec<u32> = page
        .events
        .iter()
        .map(|posted| match &posted.event.data {
            EventData::JobDead(dead) => dead.deaths,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deaths, [1, 2, 3]);
    let mut ids: Vec<_> = page.events.iter().map(|posted| posted.event.id.clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| id.starts_with("msg_") && !id.contains('.')), "{ids:?}");
    let keys: Vec<String> = con.keys(format!("{{{NS}}}:sexton:job:*")).await.unwrap();
    assert_eq!(keys.len(), 1);
    let forgotten: i64 = con.pttl(&keys[0]).await.unwrap();
    assert!(forgotten > 29 * 24 * 3600 * 1000, "{forgotten}");

    // Of a record without a job id nothing but this death is known, however often it comes.
    let nameless = with(&record, "id", b"");
    for _ in 0..2 {
        bury(&mut con, NS, &nameless).await;
    }
    let (_, jobs) = read_and_commit(&*ledger, &lease, &cursor).await;
    assert_eq!(jobs, [JobCounts { deaths: 1, retries: 0 }; 2]);
}

#[tokio::test]
async fn first_attach_marks_what_is_there_and_goes_on_counting_after_a_crash() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..4).await;
    let lease = lease(&*ledger).await;
    let attached = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    assert_eq!(attached.cursor, Cursor("0-0".to_owned()));
    let mut existing = attached.existing.unwrap();
    bury_many(&mut con, NS, 4..5).await;

    let batch = ledger.read(&attached.cursor, 2, None).await.unwrap();
    assert!(!batch.caught_up);
    for letter in &batch.letters {
        existing.tally.add(letter.died_at, &letter.group.0, || JobDead::of("orders", letter, Include::default()));
        assert!(!ledger.is_after(&letter.entry_id, &existing.until));
    }
    let step = Some(ExistingStep::Counting(Box::new(existing.tally.clone())));
    let commit = Commit {
        from: attached.cursor.clone(),
        to: batch.cursor.clone(),
        deaths: Vec::new(),
        existing: step,
        generation: 0,
    };
    ledger.commit(&lease, commit).await.unwrap();

    let again = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    assert_eq!(again.cursor, batch.cursor);
    assert_eq!(again.existing, Some(existing.clone()));
    let rest = ledger.read(&again.cursor, 10, None).await.unwrap();
    let new: Vec<bool> = rest.letters.iter().map(|l| ledger.is_after(&l.entry_id, &existing.until)).collect();
    assert_eq!(new, [false, false, true]);
    let digest = Some(Box::new(EventData::Digest(Box::new(existing.tally.digest("orders", "existing")))));
    let step = Some(ExistingStep::Done(digest));
    let commit = Commit {
        from: again.cursor.clone(),
        to: rest.cursor.clone(),
        deaths: Vec::new(),
        existing: step,
        generation: 0,
    };
    ledger.commit(&lease, commit).await.unwrap();
    let page = ledger.outbox(Lane::Deaths, OutboxId::default(), 10).await.unwrap();
    assert_eq!(page.events.iter().map(|p| p.event.kind()).collect::<Vec<_>>(), [EventType::DlqDigest]);
    let done = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    assert_eq!(done.existing, None);
}

#[tokio::test]
async fn a_store_that_lost_data_is_recognised() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let leader = lease(&*ledger).await;
    bury_many(&mut con, NS, 0..3).await;
    let attached =
        ledger.attach(&leader, AttachOptions { announce_existing: true, ..AttachOptions::default() }).await.unwrap();
    assert_eq!((attached.loss, &attached.existing), (None, &None));
    let (cursor, _) = read_and_commit(&*ledger, &leader, &attached.cursor).await;

    // The DLQ was deleted and begins anew with older ids, as after a clock that stepped back.
    let () = con.del(dlq(NS)).await.unwrap();
    let gone = ledger.attach(&leader, AttachOptions::default()).await.unwrap();
    assert_eq!((gone.cursor.0.as_str(), gone.loss), ("0-0", None), "an empty DLQ has nothing to say");
    let () = redis::cmd("HSET")
        .arg(format!("{{{NS}}}:sexton:state"))
        .arg("cursor")
        .arg(&cursor.0)
        .query_async(&mut con)
        .await
        .unwrap();
    let _: String = con.xadd(dlq(NS), "5-1", &[("v", "1")]).await.unwrap();
    let back = ledger.attach(&leader, AttachOptions::default()).await.unwrap();
    assert_eq!((back.cursor.0.as_str(), back.loss), ("0-0", Some(Loss::CursorAhead)));

    // Everything is gone, and this process knows that it had a ledger.
    let () = redis::cmd("FLUSHALL").query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 3..5).await;
    let leader = lease(&*ledger).await;
    let lost = ledger.attach(&leader, AttachOptions { seen_before: true, ..AttachOptions::default() }).await.unwrap();
    assert_eq!((lost.loss, lost.existing), (Some(Loss::Ledger), None));
    let (_, jobs) = read_and_commit(&*ledger, &leader, &lost.cursor).await;
    assert_eq!(jobs.len(), 2);
}

#[tokio::test]
async fn a_survey_tells_what_is_unread_and_what_left_unread() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let lease = lease(&*ledger).await;
    let empty = ledger.survey(&lease).await.unwrap();
    assert_eq!((empty.entries, empty.oldest, empty.lag), (0, None, 0));
    let attached = ledger.attach(&lease, AttachOptions::default()).await.unwrap();
    bury_many(&mut con, NS, 0..6).await;
    let unread = ledger.survey(&lease).await.unwrap();
    assert_eq!((unread.entries, unread.added, unread.lag, unread.unseen), (6, 6, 6, 0));
    assert!(unread.oldest.is_some());

    // Two go before they are read, the newest among them.
    let ids = ledger.page(None, 10).await.unwrap().letters;
    let _: u64 = con.xdel(dlq(NS), &[&ids[0].entry_id, &ids[3].entry_id]).await.unwrap();
    let (_, jobs) = read_and_commit(&*ledger, &lease, &attached.cursor).await;
    assert_eq!(jobs.len(), 4);
    let settled = ledger.survey(&lease).await.unwrap();
    assert_eq!((settled.entries, settled.lag, settled.unseen), (4, 0, 2));
    let once = ledger.survey(&lease).await.unwrap();
    assert_eq!((once.lag, once.unseen, once.added), (0, 0, 0), "what was missed is told once");

    // What comes while nobody leads is counted by the next leader, once.
    ledger.release(&lease).await.unwrap();
    bury_many(&mut con, NS, 6..9).await;
    let TryLease::Acquired(next) = ledger.try_lease("successor", TTL, 0).await.unwrap() else { panic!("it is free") };
    ledger.attach(&next, AttachOptions::default()).await.unwrap();
    assert_eq!(ledger.survey(&next).await.unwrap().added, 3);
    assert_eq!(ledger.survey(&next).await.unwrap().added, 0);
}

#[tokio::test]
async fn what_was_there_before_the_first_visit_does_not_count_as_added() {
    for (announce_existing, added) in [(false, 0), (true, 4)] {
        let redis = Redis::start().await;
        let ledger = ledger(&redis);
        let lease = lease(&*ledger).await;
        bury_many(&mut redis.connect().await, NS, 0..4).await;
        ledger.attach(&lease, AttachOptions { announce_existing, ..AttachOptions::default() }).await.unwrap();
        assert_eq!(ledger.survey(&lease).await.unwrap().added, added);
    }
}

#[tokio::test]
async fn a_lane_is_saved_over_the_revision_it_was_loaded_at_and_no_other() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let lease = lease(&*ledger).await;
    assert_eq!(ledger.load_lane("oncall", Lane::Deaths).await.unwrap(), None);
    let first = ledger.save_lane(&lease, "oncall", Lane::Deaths, 0, r#"{"a":1}"#).await.unwrap();
    let by_hand = ledger.edit_lane("oncall", Lane::Deaths, first, r#"{"a":2}"#).await.unwrap();
    assert_eq!(ledger.save_lane(&lease, "oncall", Lane::Deaths, first, "{}").await, Err(StoreError::Moved));
    let saved = ledger.load_lane("oncall", Lane::Deaths).await.unwrap().unwrap();
    assert_eq!((saved.revision, saved.state.as_str()), (by_hand, r#"{"a":2}"#));
    assert_eq!(ledger.load_lane("oncall", Lane::Alerts).await.unwrap(), None, "lanes are apart");

    // Rubbish for a revision loses nothing of the state, and the lane can be saved again.
    let key = format!("{{{NS}}}:sexton:hook:oncall:deaths");
    let () = redis.connect().await.hset(key, "revision", "rubbish").await.unwrap();
    let saved = ledger.load_lane("oncall", Lane::Deaths).await.unwrap().unwrap();
    assert_eq!((saved.revision, saved.state.as_str()), (0, r#"{"a":2}"#));
    assert_eq!(ledger.save_lane(&lease, "oncall", Lane::Deaths, saved.revision, "{}").await, Ok(1));
}

#[tokio::test]
async fn the_outbox_is_read_in_order_skips_what_is_newer_than_this_build_and_is_trimmed() {
    let redis = Redis::start().await;
    let ledger = ledger(&redis);
    let mut con = redis.connect().await;
    let lease = lease(&*ledger).await;
    let test = |n: u32| {
        EventData::HookTest(HookTest { source: "orders".to_owned(), hook: "oncall".to_owned(), summary: n.to_string() })
    };
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(ledger.append(&test(n)).await.unwrap());
    }
    let key = format!("{{{NS}}}:sexton:outbox:alerts");
    let _: String = con.xadd(&key, "*", &[("type", "alert.of_tomorrow"), ("data", "{}")]).await.unwrap();
    let page = ledger.outbox(Lane::Alerts, OutboxId::default(), 10).await.unwrap();
    assert_eq!(page.events.iter().map(|p| p.id).collect::<Vec<_>>(), ids);
    assert_eq!(page.unreadable, 1);
    assert!(page.last > Some(ids[2]), "reading goes on behind what cannot be read");
    assert_eq!(page.events[1].event.data, test(1));
    assert_eq!(ledger.outbox_get(Lane::Alerts, ids[1]).await.unwrap().map(|p| p.event.data), Some(test(1)));

    assert_eq!(ledger.outbox_trim(&lease, Lane::Alerts, ids[2], None).await.unwrap(), 2);
    assert_eq!(ledger.outbox_get(Lane::Alerts, ids[1]).await.unwrap(), None);
    assert_eq!(ledger.outbox_len(Lane::Alerts).await.unwrap(), 2);
}

#[tokio::test]
async fn a_renewal_fails_with_the_store_and_the_lease_is_lost_once_it_has_run_out() {
    let mut redis = Redis::start().await;
    let ledger = ledger(&redis);
    let lease = lease(&*ledger).await;
    let metrics = Arc::new(Metrics::new(&["orders"], &[]));
    let renew = |ttl| Renew::new(Arc::clone(&ledger), lease.clone(), Arc::clone(&metrics), ttl);
    let stop = CancellationToken::new();
    assert_eq!(renew(TTL).step(&stop).await, Ok(Next::After(TTL / 3)));
    redis.kill();
    // A failure that the runner took for a success would be logged as over at once.
    assert!(matches!(renew(TTL).step(&stop).await, Err(StoreError::Unavailable(_))));
    assert_eq!(renew(Duration::ZERO).step(&stop).await, Err(StoreError::Fenced));
}

/// How often Redis has been asked for this.
async fn calls(redis: &Redis, command: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut redis.connect().await).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn what_this_process_has_just_told_is_read_without_redis_and_reads_the_same() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let (writer, other) = (ledger(&redis), ledger(&redis));
    let lease = lease(&*writer).await;
    let options = AttachOptions { announce_existing: true, ..AttachOptions::default() };
    let attached = writer.attach(&lease, options).await.unwrap();
    bury_many(&mut con, NS, 0..4).await;
    // One that dies twice in one batch, and once more later.
    bury(&mut con, NS, &letter(NS, 2)).await;
    let (cursor, _) = read_and_commit(&*writer, &lease, &attached.cursor).await;
    bury(&mut con, NS, &letter(NS, 2)).await;
    let (cursor, counts) = read_and_commit(&*writer, &lease, &cursor).await;
    assert_eq!(counts[0].deaths, 3);

    writer.outbox(Lane::Deaths, OutboxId::default(), 1).await.unwrap();
    let asked = calls(&redis, "xrange").await;
    let all = writer.outbox(Lane::Deaths, OutboxId::default(), 99).await.unwrap();
    assert_eq!(all.events.len(), 6);
    assert_eq!(calls(&redis, "xrange").await, asked, "all of it was at hand");

    // Somebody else tells something in between: a reader of the writer's must not miss it.
    let foreign = EventData::JobDead(Box::new(JobDead { source: "orders".to_owned(), ..JobDead::default() }));
    let foreign_id: String = redis::cmd("XADD")
        .arg(format!("{{{NS}}}:sexton:outbox:deaths"))
        .arg("*")
        .arg("type")
        .arg("job.dead")
        .arg("data")
        .arg(foreign.to_json())
        .query_async(&mut con)
        .await
        .unwrap();
    bury_many(&mut con, NS, 7..9).await;
    read_and_commit(&*writer, &lease, &cursor).await;
    let everything = other.outbox(Lane::Deaths, OutboxId::default(), 99).await.unwrap();
    assert_eq!(everything.events.len(), 9);
    assert_eq!(everything.events[6].id.to_string(), foreign_id);
    let places = everything.events.iter().map(|posted| posted.id);
    for after in std::iter::once(OutboxId::default()).chain(places) {
        for max in 1..=10 {
            let (here, there) = (writer.outbox(Lane::Deaths, after, max), other.outbox(Lane::Deaths, after, max));
            assert_eq!(here.await.unwrap(), there.await.unwrap(), "{max} after {after}");
        }
    }
}

#[tokio::test]
async fn what_a_leader_of_before_still_reads_does_not_hide_what_was_lost() {
    let redis = Redis::start().await;
    let old = ledger(&redis);
    let mut con = redis.connect().await;
    let outbox = format!("{{{NS}}}:sexton:outbox:deaths");
    let term = lease(&*old).await;
    let options = AttachOptions { announce_existing: true, ..AttachOptions::default() };
    let attached = old.attach(&term, options).await.unwrap();
    bury_many(&mut con, NS, 0..2).await;
    let (cursor, _) = read_and_commit(&*old, &term, &attached.cursor).await;
    let before: Vec<u8> = redis::cmd("DUMP").arg(&outbox).query_async(&mut con).await.unwrap();
    bury_many(&mut con, NS, 2..4).await;
    read_and_commit(&*old, &term, &cursor).await;
    assert_eq!(old.has_lost().await, Ok(false));

    // A failover, and the next leader has written already.
    let () = con.set(format!("{{{NS}}}:sexton:lease"), "9:another").await.unwrap();
    let restore = redis::cmd("RESTORE").arg(&outbox).arg(0).arg(&before).arg("REPLACE").query_async(&mut con).await;
    let () = restore.unwrap();
    let death = JobDead { source: "orders".to_owned(), ..JobDead::default() };
    let written = OutboxId { ms: 9_000_000_000_000, seq: 0 };
    let mut write = redis::cmd("XADD");
    write.arg(&outbox).arg(written.to_string()).arg("type").arg("job.dead").arg("data").arg(death.to_json());
    let _: String = write.query_async(&mut con).await.unwrap();
    let read = old.outbox(Lane::Deaths, OutboxId { ms: written.ms - 1, seq: 0 }, 9).await.unwrap();
    assert_eq!(read.last, Some(written));
    assert_eq!(old.has_lost().await, Ok(true));
    assert_eq!(old.has_lost().await, Ok(false), "it is told once");
}
