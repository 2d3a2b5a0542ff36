//! Removing entries by hand and by the standing policy, in a real Redis.

use std::collections::HashSet;

use redis::AsyncCommands as _;
use sexton::{
    ledger::{
        By, Cursor, Ledger as _, Place, Removal, Retain, RetryLedger as _, StoreError, TriageLedger as _, TryLease,
    },
    letter::Millis,
};

use crate::support::{
    graveyard::{bury, bury_all, bury_many, dlq, job_id, letter, with},
    redis::Redis,
    yard::{NS, Yard, anna, place, smallage, waits},
};

async fn set_memory(con: &mut redis::aio::MultiplexedConnection, limit: &str) {
    let () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).query_async(con).await.unwrap();
}

#[tokio::test]
async fn chosen_entries_go_with_a_line_each() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    let mut ids = bury_many(&mut con, NS, 0..450).await;
    let foreign = with(&letter(NS, 450), "dlq_source", b"partner:events");
    ids.push(bury(&mut con, NS, &foreign).await);
    let () = con.xdel(dlq(NS), &[&ids[3]]).await.unwrap();
    let asked: Vec<String> =
        ids.iter().cloned().chain([ids[5].clone(), "1-1".to_owned(), "no id".to_owned()]).collect();
    let removed = hand.remove(&anna(), Removal::Removed, &asked).await.unwrap();
    let there: Vec<bool> = (0..asked.len()).map(|n| n < 451 && n != 3).collect();
    assert_eq!(removed, there);
    assert_eq!(con.xlen::<_, u64>(dlq(NS)).await.unwrap(), 0);
    let mut lines = hand.audit(None, None, 1_000).await.unwrap();
    lines.reverse();
    assert_eq!(lines.len(), 450);
    for line in &lines {
        assert_eq!((&*line.what, &*line.by, &*line.note), ("removed", "anna@host", "smtp is back"));
    }
    assert_eq!((&lines[0].entry_id, &*lines[0].job_id, &*lines[0].task), (&ids[0], &*job_id(0), "send_email"));
    let last = &lines[449];
    assert_eq!((&last.entry_id, &*last.job_id, &*last.task), (&ids[450], "", ""), "a foreign entry has no job");
}

#[tokio::test]
async fn a_purge_has_a_line_for_each_piece() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    let ids = bury_many(&mut con, NS, 0..2_500).await;
    let () = con.xdel(dlq(NS), &[&ids[0]]).await.unwrap();
    let removed = hand.remove(&anna(), Removal::Purged, &ids[..2_400]).await.unwrap();
    assert_eq!(removed.iter().filter(|removed| **removed).count(), 2_399);
    assert_eq!(con.xlen::<_, u64>(dlq(NS)).await.unwrap(), 100);
    let mut lines = hand.audit(None, None, 10).await.unwrap();
    lines.reverse();
    let told: Vec<_> = lines.iter().map(|line| (&*line.what, line.entry_id.clone(), line.detail.clone())).collect();
    let piece =
        |first: &String, count: u64, last: &String| ("purged", first.clone(), format!("{count} entries, up to {last}"));
    let expected =
        [piece(&ids[1], 999, &ids[999]), piece(&ids[1_000], 1_000, &ids[1_999]), piece(&ids[2_000], 400, &ids[2_399])];
    assert_eq!(told, expected);
    // Where nothing is left to go, nothing is told.
    hand.remove(&anna(), Removal::Purged, &ids[..10]).await.unwrap();
    assert_eq!(hand.audit(None, None, 10).await.unwrap().len(), 3);
    // The log goes back to a moment, if one is given.
    assert_eq!(hand.audit(None, Some(Millis(lines[2].at.0 + 1)), 10).await.unwrap(), []);
    assert_eq!(hand.audit(None, Some(lines[0].at), 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_redis_that_is_full_can_be_emptied() {
    for how in [Removal::Removed, Removal::Purged] {
        let redis = Redis::start().await;
        let (hand, mut con) = (smallage(&redis), redis.connect().await);
        let ids = bury_many(&mut con, NS, 0..3_000).await;
        let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query_async(&mut con).await.unwrap();
        let used: u64 = info.get("used_memory").unwrap();
        set_memory(&mut con, &(used - 500_000).to_string()).await;
        let full: redis::RedisResult<()> = con.set("x", "y").await;
        assert_eq!(full.unwrap_err().code(), Some("OOM"));
        assert_eq!(hand.remove(&anna(), how, &ids[..2_500]).await.unwrap(), vec![true; 2_500]);
        // As soon as there is room the lines are written, also those of before.
        let lines = hand.audit(None, None, 10_000).await.unwrap();
        let told: HashSet<&str> = lines.iter().map(|line| line.entry_id.as_str()).collect();
        match how {
            Removal::Removed => assert!(lines.len() == 2_500 && told.len() == 2_500, "{}", lines.len()),
            Removal::Purged => assert!(lines.last().unwrap().detail.contains(" entries, up to "), "{lines:?}"),
        }
        assert!(told.contains(&*ids[0]));
        // Where there is never any, they go all the same.
        set_memory(&mut con, "1").await;
        let removed = hand.remove(&anna(), how, &ids[2_490..2_600]).await.unwrap();
        assert_eq!(removed.iter().filter(|removed| **removed).count(), 100);
        assert_eq!(hand.audit(None, None, 10_000).await.unwrap().len(), lines.len());
    }
}

#[tokio::test]
async fn without_memory_or_rights_nothing_goes_without_its_line() {
    for how in [Removal::Removed, Removal::Purged] {
        let mut yard = Yard::open().await;
        let hand = smallage(&yard.redis);
        let id = yard.bury(&letter(NS, 1)).await;
        let before = yard.picture().await;
        set_memory(&mut yard.con, "1").await;
        let retain = Retain { entries: vec![(id.clone(), None)], generation: yard.generation };
        let refused = hand.retain(&yard.lease, &anna(), retain).await;
        assert!(matches!(refused, Err(StoreError::NoWrites(_))), "{refused:?}");
        set_memory(&mut yard.con, "0").await;
        let mut acl = redis::cmd("ACL");
        let () = acl.arg(&["SETUSER", "default", "-xadd"]).query_async(&mut yard.con).await.unwrap();
        let refused = hand.remove(&anna(), how, &[id]).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{how:?}: {refused:?}");
        assert_eq!(yard.picture().await, before, "{how:?}");
    }
}

#[tokio::test]
async fn a_log_of_another_type_stands_in_nobodys_way() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    for name in ["audit", "operations"] {
        let () = con.set(format!("{{{NS}}}:sexton:{name}"), "rubbish").await.unwrap();
    }
    let id = bury(&mut con, NS, &letter(NS, 1)).await;
    assert_eq!(hand.remove(&anna(), Removal::Purged, &[id]).await.unwrap(), [true]);
    hand.note(&anna(), "looked", "at nothing").await.unwrap();
}

#[tokio::test]
async fn large_entries_are_removed_in_more_steps() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    let ids = bury_all(&mut con, NS, (0..40).map(|n| with(&letter(NS, n), "payload", &[b'x'; 200_000]))).await;
    assert_eq!(hand.remove(&anna(), Removal::Removed, &ids).await.unwrap(), [true; 40]);
    let stats: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(&mut con).await.unwrap();
    let calls: String = stats.get("cmdstat_evalsha").unwrap();
    assert!(!calls.starts_with("calls=1,"), "{calls}");
}

#[tokio::test]
async fn retention_takes_only_what_nobody_waits_for() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let by = By { who: "retention".to_owned(), ..By::default() };
    let due = yard.bury(&letter(NS, 1)).await;
    let in_flight = {
        // An older burial of a job that is on its queue.
        let twin = yard.bury(&letter(NS, 2)).await;
        let newest = yard.bury(&letter(NS, 3)).await;
        let mut retry = yard.planned(&newest).await;
        retry.dead.job_id = Some(job_id(3));
        yard.retry(retry).await;
        let flights = format!("{{{NS}}}:sexton:flights");
        let flight: String = yard.con.hget(&flights, job_id(3)).await.unwrap();
        let () = yard.con.hset(&flights, job_id(2), flight).await.unwrap();
        twin
    };
    bury(&mut yard.con, NS, &letter(NS, 4)).await;
    yard.ingest(&|_, _| None).await;
    let stays_put = yard.stream(&dlq(NS)).await[2].0.clone();
    let unread = bury(&mut yard.con, NS, &letter(NS, 5)).await;
    let place_of = async |id: &str| -> Option<Place> {
        let letter = hand.entry(id).await.unwrap()?.letter;
        Some(place(&letter))
    };
    let entries = vec![
        (due.clone(), place_of(&due).await),
        (in_flight.clone(), None),
        (stays_put.clone(), place_of(&stays_put).await),
        (unread.clone(), None),
        ("1-1".to_owned(), None),
    ];
    let retain = |generation| Retain { entries: entries.clone(), generation };
    let before = yard.picture().await;
    let moved = hand.retain(&yard.lease, &by, retain(yard.generation - 1)).await;
    assert_eq!(moved, Err(StoreError::Moved));
    let other = sexton::ledger::Lease { epoch: 9, holder: "other".to_owned() };
    assert_eq!(hand.retain(&other, &by, retain(yard.generation)).await, Err(StoreError::Fenced));
    assert_eq!(yard.picture().await, before);

    // What is yet to be judged may have to wait for its retry.
    let generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    assert_eq!(hand.retain(&yard.lease, &by, retain(generation)).await.unwrap(), 0);
    yard.generation = generation;
    let judging = yard.ledger.judging().await.unwrap();
    let (batch, counts) = yard.ledger.read_to_judge(&judging.judged, &judging.until, 10).await.unwrap();
    let plan =
        |letter: &sexton::letter::DeadLetter, counts| (letter.entry_id == due).then(|| waits(letter, counts)).flatten();
    let judged = batch.letters.iter().zip(counts).map(|(letter, counts)| sexton::ledger::Judged {
        entry_id: letter.entry_id.clone(),
        job_id: letter.job_id.clone(),
        plan: plan(letter, counts),
    });
    let step = sexton::ledger::Judge { generation, from: judging.judged, to: batch.cursor, entries: judged.collect() };
    yard.ledger.judge(&yard.lease, step).await.unwrap();

    assert_eq!(hand.retain(&yard.lease, &by, retain(generation)).await.unwrap(), 1);
    let left: Vec<String> = yard.stream(&dlq(NS)).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, [due, in_flight.clone(), unread]);
    let line = hand.audit(None, None, 1).await.unwrap().remove(0);
    assert_eq!((&*line.what, &*line.by, &line.entry_id), ("purged", "retention", &stays_put));
    assert_eq!(line.detail, format!("1 entries, up to {stays_put}"));
    // When its job is not in flight any more, the twin goes as well.
    yard.end_all(sexton::ledger::Verdict::Recovered).await;
    let () = yard.con.del(format!("{{{NS}}}:sexton:flights")).await.unwrap();
    assert_eq!(hand.retain(&yard.lease, &by, retain(generation)).await.unwrap(), 1);
    assert!(hand.entry(&in_flight).await.unwrap().is_none());
}

#[tokio::test]
async fn retention_works_without_rules_too() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    let TryLease::Acquired(lease) = hand.try_lease("me", std::time::Duration::from_secs(60), 0).await.unwrap() else {
        panic!("nobody else wants it")
    };
    let ids = bury_many(&mut con, NS, 0..500).await;
    let entries = ids.iter().map(|id| (id.clone(), None)).collect();
    let retain = Retain { entries, generation: 0 };
    assert_eq!(hand.retain(&lease, &anna(), retain.clone()).await, Err(StoreError::Moved), "before a leader attaches");
    let cursor = hand.attach(&lease, sexton::ledger::AttachOptions::default()).await.unwrap().cursor;
    assert_eq!(hand.retain(&lease, &anna(), retain.clone()).await, Ok(0), "nothing is read yet");
    let commit = sexton::ledger::Commit {
        from: cursor,
        to: Cursor(ids[399].clone()),
        deaths: Vec::new(),
        existing: None,
        generation: 0,
    };
    hand.commit(&lease, commit).await.unwrap();
    assert_eq!(hand.retain(&lease, &anna(), retain).await, Ok(400));
    assert_eq!(con.xlen::<_, u64>(dlq(NS)).await.unwrap(), 100);
}
