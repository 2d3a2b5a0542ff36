//! The retry loop's part of the ledger in a real Redis: the due index, the atomic retry, and what it refuses.

use std::slice::from_ref;

use redis::AsyncCommands as _;
use sexton::{
    event::EventType,
    event::Lane,
    ledger::{
        DuePools, GroupView, JobCounts, OutboxId, Plan, Refusal, Relook, Retried, Retry, StoreError, TryLease,
        Whereabouts,
    },
    letter::Millis,
};

use crate::support::{
    graveyard::{Fields, bury, dlq, job_id, letter, with},
    yard::{NS, QUEUE, Yard, place, waits},
};

fn key(name: &str) -> String {
    format!("{{{NS}}}:sexton:{name}")
}

/// A letter of job `n` with this dedup key.
fn deduped(n: u64, dedup: &str) -> Fields {
    let mut fields = letter(NS, n);
    fields.insert(3, (b"dedup".to_vec(), dedup.as_bytes().to_vec()));
    fields
}

/// The fields as they go on the queue.
fn live(fields: &Fields, attempt: &str) -> Fields {
    let kept = fields.iter().filter(|(name, _)| !name.starts_with(b"dlq_"));
    kept.map(|(name, value)| (name.clone(), if name == b"attempt" { attempt.into() } else { value.clone() })).collect()
}

#[tokio::test]
async fn what_is_due_is_retried_and_leaves_the_dlq_and_the_index() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let id = yard.bury(&fields).await;
    assert_eq!(yard.indexed().await, (1, 1));
    let DuePools { pools, next } = yard.ledger.due_pools(yard.generation, 10).await.unwrap();
    let standing = yard.ledger.standing(from_ref(&id)).await.unwrap();
    let standing = standing[0].clone().unwrap();
    assert_eq!(standing.job, JobCounts { deaths: 1, retries: 0 });
    let place = place(&standing.letter);
    assert_eq!((pools, next), (vec![place.pool.clone()], None));
    let view = yard.ledger.pool(yard.generation, &place.pool, 10).await.unwrap();
    assert_eq!(view.groups, [GroupView { group: place.group.clone(), due: 1, learnt: None }]);
    let due = yard.ledger.due_entries(yard.generation, &place.pool, &[(place.group.clone(), 5)]).await.unwrap();
    assert_eq!(due, [vec![id.clone()]]);
    assert_eq!(yard.ledger.due_at(yard.generation, &place, &id).await.unwrap(), Some(Millis(1_000)));

    let flight = yard.send(&id).await;
    let queue = yard.stream(QUEUE).await;
    assert_eq!(flight.at, Whereabouts::Queue(queue[0].0.clone()));
    assert_eq!(flight.confirm_by.0 - flight.sent_at.0, 900_000);
    assert_eq!(queue[0].1, live(&fields, "0"));
    assert!(yard.stream(&dlq(NS)).await.is_empty());
    assert_eq!(yard.indexed().await, (0, 0));
    assert_eq!(yard.ledger.due_at(yard.generation, &place, &id).await.unwrap(), None);
    assert_eq!(yard.ledger.flights().await.unwrap(), [flight]);
    let lines = yard.ledger.audit(None, None, 10).await.unwrap();
    let line = &lines[0];
    assert_eq!((lines.len(), &*line.what, &*line.by, &line.entry_id), (1, "retried", "flaky", &id));
    assert_eq!((&*line.job_id, &*line.task, &line.detail), (&*job_id(1), "charge_card", &queue[0].0));
    let counts = yard.ledger.jobs(&[job_id(1)]).await.unwrap();
    assert_eq!(counts, [JobCounts { deaths: 1, retries: 1 }]);
    let page = yard.ledger.outbox(Lane::Deaths, OutboxId::default(), 10).await.unwrap();
    let kinds: Vec<_> = page.events.iter().map(|posted| posted.event.kind()).collect();
    assert_eq!((kinds, page.unreadable), (vec![EventType::JobDead], 1), "the data of this event is no real one");
    assert_eq!(yard.ledger.survey(&yard.lease).await.unwrap().in_flight, 1);
}

#[tokio::test]
async fn records_come_back_byte_for_byte() {
    let mut yard = Yard::open().await;
    let mut fields = letter(NS, 1);
    fields.rotate_left(3);
    let id = fields.iter().position(|(name, _)| name == b"id").unwrap();
    // Of a doubled field the last counts; both come back.
    fields.insert(id, (b"id".to_vec(), b"another".to_vec()));
    fields.insert(0, (b"attempt".to_vec(), b"7".to_vec()));
    fields.push((b"payload".to_vec(), (0..=255).collect()));
    fields.push((b"\xff\x00".to_vec(), b"\r\n\0".to_vec()));
    fields.push((Vec::new(), Vec::new()));
    fields.push((b"dlq".to_vec(), b"kept".to_vec()));
    fields.push((b"dlq_of_tomorrow".to_vec(), b"gone".to_vec()));
    let without: Fields = letter(NS, 2).into_iter().filter(|(name, _)| name != b"attempt").collect();
    let first = yard.bury(&fields).await;
    let second = yard.bury(&without).await;
    yard.send(&first).await;
    yard.send(&second).await;
    let queue = yard.stream(QUEUE).await;
    assert_eq!(queue[0].1, live(&fields, "0"));
    let mut expected = live(&without, "0");
    expected.push((b"attempt".to_vec(), b"0".to_vec()));
    assert_eq!(queue[1].1, expected);
}

#[tokio::test]
async fn every_refusal_has_its_name_and_leaves_the_index_right() {
    /// What is buried; what is done in Redis; how the retry is unlike one that goes; the refusal; how much later it is
    /// looked at (ms), or when, if it stays in the index.
    type Case<'a> = (&'a Fields, &'a [&'a str], fn(&mut Retry), Refusal, Option<i64>);
    let huge: Fields = (0..10_000).map(|n| (format!("f{n}").into_bytes(), b"x".to_vec())).collect();
    let huge = [letter(NS, 1), huge].concat();
    let plain = letter(NS, 1);
    let not_yet = Millis(4_000_000_000_000);
    let cases: &[Case<'_>] = &[
        (&plain, &["DEL {lrs}:dlq"], |_| {}, Refusal::EntryGone, None),
        (&plain, &[], |retry| retry.not_before = Millis(4_000_000_000_000), Refusal::TooYoung, Some(not_yet.0)),
        (&plain, &[], |retry| retry.max_retries = 0, Refusal::AllowanceSpent, None),
        (&plain, &[], |retry| retry.retries = 1, Refusal::Stale, Some(1_000)),
        (&plain, &["DEL {lrs}:q:default:0"], |_| {}, Refusal::QueueGone, Some(60_000)),
        (&plain, &["SET {lrs}:q:default:0 x"], |_| {}, Refusal::QueueGone, Some(60_000)),
        (
            &plain,
            &["XADD {lrs}:q:default:0 18446744073709551615-18446744073709551615 a b"],
            |_| {},
            Refusal::QueueGone,
            Some(60_000),
        ),
        (
            &plain,
            &["XADD {lrs}:q:default:0 * a b"],
            |retry| retry.max_queue_length = 1,
            Refusal::QueueTooLong,
            Some(5_000),
        ),
        (&plain, &[], |retry| retry.stream = "partner:events".to_owned(), Refusal::ForeignStream, None),
        (&plain, &[], |retry| retry.stream = "{lrs}:dlq".to_owned(), Refusal::ForeignStream, None),
        (&plain, &[], |retry| retry.stream = "{lrs}:q:default:1".to_owned(), Refusal::Malformed, None),
        (&plain, &[], |retry| retry.dead.job_id = Some("another".to_owned()), Refusal::Malformed, None),
        (&plain, &[], |retry| retry.dead.job_id = None, Refusal::Malformed, None),
        (&plain, &[], |retry| retry.dedup = Some("order".to_owned()), Refusal::Malformed, None),
        (&plain, &["SET {lrs}:sexton:job:JOB x"], |_| {}, Refusal::Malformed, None),
        (&huge, &[], |_| {}, Refusal::Malformed, None),
        (&with(&plain, "id", b"\xff"), &[], |_| {}, Refusal::Malformed, None),
        (&with(&plain, "id", b""), &[], |_| {}, Refusal::Malformed, None),
        (&deduped(1, ""), &[], |_| {}, Refusal::Malformed, None),
        (&deduped(1, "k"), &["SET {lrs}:dedup:k another"], |_| {}, Refusal::DedupClaimed, Some(60_000)),
        (&deduped(1, "k"), &["SET {lrs}:dedup:k another PX 20000"], |_| {}, Refusal::DedupClaimed, Some(20_000)),
        (&deduped(1, "k"), &["SET {lrs}:dedup:k another PX 80000000"], |_| {}, Refusal::DedupClaimed, Some(60_000)),
        (&deduped(1, "k"), &["LPUSH {lrs}:dedup:k x"], |_| {}, Refusal::DedupClaimed, Some(60_000)),
        (&plain, &["HSET {lrs}:sexton:flights JOB x"], |_| {}, Refusal::InFlight, Some(5_000)),
    ];
    for (fields, commands, prepare, expected, later) in cases {
        let mut yard = Yard::open().await;
        let id = yard.bury(fields).await;
        let mut retry = yard.planned(&id).await;
        prepare(&mut retry);
        for command in *commands {
            let command = command.replace("JOB", &job_id(1));
            let mut words = command.split(' ');
            let mut command = redis::cmd(words.next().unwrap());
            let () = command.arg(words.collect::<Vec<_>>()).query_async(&mut yard.con).await.unwrap();
        }
        let place = retry.place.clone();
        let queued = yard.con.exists::<_, bool>(QUEUE).await.unwrap();
        let before = yard.ledger.clock().now();
        assert_eq!(yard.refusal(retry).await, *expected, "{commands:?}");
        let due = yard.ledger.due_at(yard.generation, &place, &id).await.unwrap();
        match later {
            None => assert_eq!(due, None, "{expected:?}"),
            Some(at) if *at == 1_000 || *at == not_yet.0 => assert_eq!(due, Some(Millis(*at)), "{expected:?}"),
            Some(wait) => {
                let waited = due.unwrap().0 - before.0;
                assert!((wait - 1_000..wait + 20_000).contains(&waited), "{expected:?}: {waited}");
            }
        }
        let there = u64::from(due.is_some());
        assert_eq!(yard.indexed().await, (there, there), "{expected:?}");
        assert!(yard.audited().await.is_empty(), "{expected:?}");
        assert_eq!(yard.con.exists::<_, bool>(QUEUE).await.unwrap(), queued, "no queue is made: {expected:?}");
        assert_eq!(yard.ledger.jobs(&[job_id(1)]).await.unwrap()[0].retries, 0, "{expected:?}");
    }
}

#[tokio::test]
async fn a_refusal_brings_no_entry_forward() {
    // As when the clock is set back between the look at what is due and the retry.
    let due = Millis(4_000_000_000_000);
    for (command, expected) in [
        (["HSET", "{lrs}:sexton:flights", &job_id(1), "x"].as_slice(), Refusal::InFlight),
        (&["DEL", QUEUE], Refusal::QueueGone),
    ] {
        let mut yard = Yard::open().await;
        let id = bury(&mut yard.con, NS, &letter(NS, 1)).await;
        yard.ingest(&|letter, job| Some(Plan::Wait { place: place(letter), due, retries: job.retries })).await;
        let () = redis::cmd(command[0]).arg(&command[1..]).query_async(&mut yard.con).await.unwrap();
        let retry = yard.planned(&id).await;
        let place = retry.place.clone();
        assert_eq!(yard.refusal(retry).await, expected);
        assert_eq!(yard.ledger.due_at(yard.generation, &place, &id).await.unwrap(), Some(due), "{expected:?}");
    }
}

#[tokio::test]
async fn who_does_not_lead_and_who_goes_by_old_rules_changes_nothing() {
    let mut yard = Yard::open().await;
    let id = yard.bury(&letter(NS, 1)).await;
    let retry = yard.planned(&id).await;
    let place = retry.place.clone();
    let old = yard.generation - 1;
    let before = yard.picture().await;
    assert_eq!(yard.ledger.retry(&yard.lease, old, vec![retry.clone()]).await, Err(StoreError::Moved));
    assert_eq!(yard.ledger.drop_due(&yard.lease, old, &[(place.clone(), id.clone())]).await, Err(StoreError::Moved));
    assert_eq!(yard.picture().await, before);

    yard.ledger.release(&yard.lease).await.unwrap();
    let TryLease::Acquired(_) =
        yard.ledger.try_lease("successor", std::time::Duration::from_secs(60), 0).await.unwrap()
    else {
        panic!("it is free")
    };
    let before = yard.picture().await;
    let generation = yard.generation;
    assert_eq!(yard.ledger.retry(&yard.lease, generation, vec![retry]).await, Err(StoreError::Fenced));
    let dropped = yard.ledger.drop_due(&yard.lease, generation, &[(place.clone(), id)]).await;
    assert_eq!(dropped, Err(StoreError::Fenced));
    let relook = yard.ledger.relook(&yard.lease, generation, &place.pool, &Relook::default()).await;
    assert_eq!(relook, Err(StoreError::Fenced));
    assert_eq!(yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await, Err(StoreError::Fenced));
    assert_eq!(yard.picture().await, before);
}

#[tokio::test]
async fn without_memory_a_retry_leaves_everything_as_it_was() {
    let mut yard = Yard::open().await;
    let ids = [yard.bury(&letter(NS, 1)).await, yard.bury(&deduped(2, "k")).await];
    let () = yard.con.set(format!("{{{NS}}}:dedup:k"), job_id(2)).await.unwrap();
    let retries = vec![yard.planned(&ids[0]).await, yard.planned(&ids[1]).await];
    let before = yard.picture().await;
    let limit = async |con: &mut redis::aio::MultiplexedConnection, limit: &str| {
        let () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).query_async(con).await.unwrap();
    };
    limit(&mut yard.con, "1").await;
    let refused = yard.ledger.retry(&yard.lease, yard.generation, retries.clone()).await;
    assert!(matches!(refused, Err(StoreError::NoWrites(_))), "{refused:?}");
    assert_eq!(yard.picture().await, before);
    limit(&mut yard.con, "0").await;
    let retried = yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
    assert!(retried.iter().all(|outcome| matches!(outcome, Retried::Sent(_))), "{retried:?}");
}

#[tokio::test]
async fn without_a_right_a_retry_leaves_everything_as_it_was() {
    for command in ["xadd", "xdel", "hset", "hdel", "zadd", "zrem", "pexpire", "del", "set"] {
        let mut yard = Yard::open().await;
        let id = yard.bury(&deduped(1, "k")).await;
        let retry = yard.planned(&id).await;
        let before = yard.picture().await;
        let mut acl = redis::cmd("ACL");
        let () = acl.arg(&["SETUSER", "default", &format!("-{command}")]).query_async(&mut yard.con).await.unwrap();
        let refused = yard.ledger.retry(&yard.lease, yard.generation, vec![retry]).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{command}: {refused:?}");
        assert_eq!(yard.picture().await, before, "{command}");
    }
}

#[tokio::test]
async fn scripts_that_redis_has_forgotten_are_sent_again() {
    let mut yard = Yard::open().await;
    let ids = [yard.bury(&letter(NS, 1)).await, yard.bury(&letter(NS, 2)).await];
    yard.send(&ids[0]).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut yard.con).await.unwrap();
    yard.send(&ids[1]).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut yard.con).await.unwrap();
    let flights = yard.ledger.flights().await.unwrap();
    assert_eq!(yard.ledger.look(&flights).await.unwrap().sights.len(), 2);
    assert_eq!(yard.stream(QUEUE).await.len(), 2);
}

#[tokio::test]
async fn a_job_buried_twice_is_put_back_once_and_its_twin_goes() {
    // The twins are read together; the older, the newer, or both of them are tried, in either order.
    for order in [&[0][..], &[1], &[0, 1], &[1, 0]] {
        let mut yard = Yard::open().await;
        let fields = letter(NS, 1);
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.push(bury(&mut yard.con, NS, &fields).await);
        }
        yard.ingest(&waits).await;
        assert_eq!(yard.indexed().await, (2, 2));
        let mut retries = Vec::new();
        for n in order {
            retries.push(yard.planned(&ids[*n]).await);
        }
        let retried = yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
        let told: Vec<_> = retried
            .iter()
            .map(|outcome| match outcome {
                Retried::Sent(flight) => flight.dead.entry_id.clone(),
                Retried::Refused(why) => why.as_str().to_owned(),
            })
            .collect();
        let newer = ids[1].as_str();
        let expected: &[&str] = match order {
            [0] => &["superseded"],
            [1] => &[newer],
            [0, 1] => &["superseded", newer],
            _ => &[newer, "entry_gone"],
        };
        assert_eq!(told, expected);
        if order.contains(&1) {
            assert!(yard.stream(&dlq(NS)).await.is_empty());
            assert_eq!(yard.indexed().await, (0, 0));
            let audited: Vec<_> = yard.audited().await.into_iter().map(|(what, entry, _)| (what, entry)).collect();
            let line = |what: &str, n: usize| (what.to_owned(), ids[n].clone());
            assert_eq!(audited, [line("retried", 1), line("twin_removed", 0)]);
        } else {
            assert_eq!(yard.indexed().await, (2, 2), "the newer one stands for it, unless somebody removes that");
        }
        assert!(yard.stream(QUEUE).await.len() <= 1);
    }
}

#[tokio::test]
async fn a_twin_that_is_read_late_is_removed_and_not_retried() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let first = yard.bury(&fields).await;
    let late = bury(&mut yard.con, NS, &fields).await;
    yard.send(&first).await;
    assert_eq!(yard.stream(&dlq(NS)).await.len(), 1);
    let committed = yard.ingest(&waits).await;
    assert_eq!(committed.jobs, [JobCounts { deaths: 2, retries: 1 }], "it is a burial like any other");
    assert!(yard.stream(&dlq(NS)).await.is_empty());
    assert_eq!(yard.indexed().await, (0, 0));
    assert_eq!(yard.audited().await.pop(), Some(("twin_removed".to_owned(), late, job_id(1))));
    // The next death is a true one.
    let again = yard.bury(&fields).await;
    assert_eq!(yard.indexed().await, (1, 1));
    assert_eq!(yard.stream(&dlq(NS)).await[0].0, again);
}

#[tokio::test]
async fn a_job_that_forgot_an_old_twin_is_still_not_run_twice() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let mut ids = Vec::new();
    // More than a job's record remembers.
    for _ in 0..12 {
        ids.push(yard.bury(&fields).await);
    }
    let oldest = yard.planned(&ids[0]).await;
    yard.send(&ids[11]).await;
    assert_eq!(yard.stream(&dlq(NS)).await.len(), 4);
    let stale = Retry { retries: 1, ..oldest };
    assert_eq!(yard.refusal(stale.clone()).await, Refusal::InFlight);
    let () = yard.con.del(key("flights")).await.unwrap();
    assert_eq!(yard.refusal(stale).await, Refusal::Superseded);
    assert_eq!(yard.stream(&dlq(NS)).await.len(), 3, "it is removed");
    assert_eq!(yard.stream(QUEUE).await.len(), 1);
}

#[tokio::test]
async fn a_job_with_a_dedup_key_goes_with_its_claim_freed_and_one_attempt_left() {
    for claim in [None, Some(job_id(1))] {
        let mut yard = Yard::open().await;
        let fields = deduped(1, "order:7");
        let claimed = format!("{{{NS}}}:dedup:order:7");
        if let Some(owner) = &claim {
            let () = yard.con.set(&claimed, owner).await.unwrap();
        }
        let id = yard.bury(&fields).await;
        let twin_key = yard.bury(&deduped(2, "order:7")).await;
        let retries = vec![yard.planned(&id).await, yard.planned(&twin_key).await];
        let other = retries[1].clone();
        let retried = yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
        assert!(matches!(retried[0], Retried::Sent(_)));
        // The one would make a worker drop the other.
        assert_eq!(retried[1], Retried::Refused(Refusal::DedupClaimed));
        assert_eq!(yard.stream(QUEUE).await[0].1, live(&fields, "1000000"));
        assert!(!yard.con.exists::<_, bool>(&claimed).await.unwrap());
        // Also later, as long as it is in flight.
        assert_eq!(yard.refusal(other).await, Refusal::DedupClaimed);
    }
}

#[tokio::test]
async fn a_batch_counts_what_it_adds_to_a_queue_and_ends_at_its_limit() {
    let mut yard = Yard::open().await;
    let mut retries = Vec::new();
    for n in 0..4 {
        let id = yard.bury(&letter(NS, n)).await;
        retries.push(Retry { max_queue_length: 2, ..yard.planned(&id).await });
    }
    let retried = yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
    let sent: Vec<bool> = retried.iter().map(|outcome| matches!(outcome, Retried::Sent(_))).collect();
    assert_eq!(sent, [true, true, false, false]);
    assert_eq!(yard.indexed().await, (2, 2));
}

#[tokio::test]
async fn more_than_go_together_all_go() {
    let mut yard = Yard::open().await;
    let ids = crate::support::graveyard::bury_many(&mut yard.con, NS, 0..250).await;
    yard.ingest(&waits).await;
    let mut retries = Vec::new();
    for standing in yard.ledger.standing(&ids).await.unwrap() {
        let standing = standing.unwrap();
        retries.push(crate::support::yard::retry_of(&standing.letter, standing.job));
    }
    let retried = yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
    let sent = retried.iter().filter(|outcome| matches!(outcome, Retried::Sent(_))).count();
    assert_eq!((sent, yard.stream(QUEUE).await.len(), yard.indexed().await), (250, 250, (0, 0)));
    assert_eq!(yard.ledger.flights().await.unwrap().len(), 250);
}

#[tokio::test]
async fn pools_and_groups_are_looked_at_when_their_time_has_come() {
    let mut yard = Yard::open().await;
    let ids = [yard.bury(&letter(NS, 0)).await, yard.bury(&letter(NS, 1)).await];
    let places = [yard.planned(&ids[0]).await.place, yard.planned(&ids[1]).await.place];
    assert_ne!(places[0].pool, places[1].pool);
    let look = |groups, pool| Relook { groups, pool };
    let far = Millis(4_000_000_000_000);
    // The group's own time, the pool's, and that of the first entry: the latest counts.
    for (relook, expected) in [
        (look(vec![(places[0].group.clone(), Some(far))], None), Some(far)),
        (look(vec![(places[0].group.clone(), None)], Some(far)), Some(far)),
        (look(vec![(places[0].group.clone(), None)], Some(Millis(5))), None),
        (look(vec![(places[0].group.clone(), None)], None), None),
    ] {
        yard.ledger.relook(&yard.lease, yard.generation, &places[0].pool, &relook).await.unwrap();
        let due = yard.ledger.due_pools(yard.generation, 10).await.unwrap();
        assert_eq!(due.next, expected, "{relook:?}");
        assert_eq!(due.pools.contains(&places[0].pool), expected.is_none());
        assert!(due.pools.contains(&places[1].pool));
    }
    let due = yard.ledger.due_pools(yard.generation, 1).await.unwrap();
    assert_eq!((due.pools.len(), due.next), (1, Some(Millis(1_000))));

    // A new entry is looked at in time, however long its pool was to wait.
    let held = look(vec![(places[0].group.clone(), Some(far))], Some(far));
    yard.ledger.relook(&yard.lease, yard.generation, &places[0].pool, &held).await.unwrap();
    yard.bury(&letter(NS, 5)).await;
    assert_eq!(yard.ledger.due_pools(yard.generation, 10).await.unwrap().pools.len(), 2);

    // What is empty is forgotten.
    let entries: Vec<_> = yard.stream(&dlq(NS)).await.into_iter().map(|(id, _)| (places[0].clone(), id)).collect();
    yard.ledger.drop_due(&yard.lease, yard.generation, &entries).await.unwrap();
    assert_eq!(yard.indexed().await, (1, 1));
    let relook = look(vec![(places[0].group.clone(), Some(far))], Some(far));
    yard.ledger.relook(&yard.lease, yard.generation, &places[0].pool, &relook).await.unwrap();
    assert_eq!(yard.ledger.due_pools(yard.generation, 10).await.unwrap().pools, [places[1].pool.clone()]);
    let gone = yard.ledger.pool(yard.generation, &places[0].pool, 10).await.unwrap();
    assert_eq!(gone.groups, []);
}

#[tokio::test]
async fn rubbish_under_the_ledgers_names_makes_room() {
    let mut yard = Yard::open().await;
    let generation = yard.generation;
    let place = {
        let id = yard.bury(&letter(NS, 1)).await;
        yard.planned(&id).await.place
    };
    let index = [
        key(&format!("due:{generation}")),
        key(&format!("due:{generation}:{}", place.pool.0)),
        key(&format!("due:{generation}:{}:{}", place.pool.0, place.group)),
    ];
    let rubbish = async |con: &mut redis::aio::MultiplexedConnection, keys: &[String]| {
        for key in keys {
            let () = con.del(key).await.unwrap();
            let () = con.set(key, "rubbish").await.unwrap();
        }
    };
    rubbish(&mut yard.con, &index).await;
    rubbish(&mut yard.con, &[key("held"), key("flights"), key("audit")]).await;
    rubbish(&mut yard.con, &[key(&format!("job:{}", job_id(6)))]).await;
    // Reading finds nothing there.
    assert_eq!(yard.ledger.due_pools(generation, 10).await.unwrap(), DuePools::default());
    assert_eq!(yard.ledger.pool(generation, &place.pool, 10).await.unwrap().groups, []);
    assert_eq!(yard.ledger.flights().await.unwrap(), []);
    assert_eq!(yard.ledger.audit(None, None, 10).await.unwrap(), []);
    assert_eq!(yard.ledger.waiting().await.unwrap().held, []);
    assert_eq!(yard.ledger.survey(&yard.lease).await.unwrap().in_flight, 0);
    let all = yard.ledger.due_entries(generation, &place.pool, &[(place.group.clone(), 5)]).await.unwrap();
    assert_eq!(all, [Vec::<String>::new()]);
    // What is new is written all the same.
    let id = yard.bury(&letter(NS, 6)).await;
    assert_eq!(yard.ledger.due_pools(generation, 10).await.unwrap().pools, from_ref(&place.pool));
    yard.send(&id).await;
    assert_eq!(yard.ledger.flights().await.unwrap().len(), 1);
    assert_eq!(yard.ledger.jobs(&[job_id(6)]).await.unwrap(), [JobCounts { deaths: 1, retries: 1 }]);
    // A retry also gets past an index that is none, and a pool can be looked at again.
    let id = yard.bury(&letter(NS, 11)).await;
    let retry = yard.planned(&id).await;
    rubbish(&mut yard.con, &index).await;
    assert!(matches!(yard.retry(retry).await, Retried::Sent(_)));
    let relook = Relook { groups: vec![(place.group.clone(), None)], pool: None };
    yard.ledger.relook(&yard.lease, generation, &place.pool, &relook).await.unwrap();
    assert!(!yard.con.exists::<_, bool>(&index[0]).await.unwrap());
}

#[tokio::test]
async fn an_outbox_that_is_none_refuses_a_retry_before_anything_is_written() {
    let mut yard = Yard::open().await;
    let id = yard.bury(&letter(NS, 1)).await;
    let retry = yard.planned(&id).await;
    let () = yard.con.del(key("outbox:deaths")).await.unwrap();
    let () = yard.con.set(key("outbox:deaths"), "rubbish").await.unwrap();
    let before = yard.picture().await;
    let refused = yard.ledger.retry(&yard.lease, yard.generation, vec![retry]).await;
    assert!(matches!(refused, Err(StoreError::Unexpected(_))), "{refused:?}");
    assert_eq!(yard.picture().await, before);
}
