//! Bulk operations as the ledger keeps them, in a real Redis.

use std::collections::BTreeMap;

use redis::AsyncCommands as _;
use sexton::{
    event::{EventData, HookTest, Lane},
    ledger::{
        Act, By, Ledger as _, Operation, OperationProgress, OperationState, Raised, Removal, RetryLedger as _,
        StoreError, TriageLedger as _, TryLease,
    },
    letter::Millis,
    smallage::Smallage,
};

use crate::support::{
    graveyard::{bury, bury_many, letter},
    redis::Redis,
    yard::{NS, QUEUE, Yard, anna, smallage, wanted},
};

fn operation(id: &str, asked_at: i64) -> Operation {
    Operation {
        id: id.to_owned(),
        act: Act::Retry,
        filter: serde_json::json!({"task": ["send_*"]}),
        by: anna(),
        dry_run: false,
        per_second: Some(50),
        asked_at: Millis(asked_at),
    }
}

fn part_of(id: &str) -> By {
    By { operation: id.to_owned(), ..anna() }
}

async fn progress(hand: &Smallage, id: &str) -> OperationProgress {
    hand.operation(id).await.unwrap().expect("it is there").1
}

#[tokio::test]
async fn what_is_done_is_counted_where_it_is_done() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    hand.begin(&operation("17", 5)).await.unwrap();
    let (begun, fresh) = hand.operation("17").await.unwrap().unwrap();
    assert_eq!(begun, operation("17", 5));
    assert_eq!(fresh, OperationProgress { revision: 1, ..OperationProgress::default() });
    assert_eq!(hand.begin(&operation("17", 6)).await, Err(StoreError::Moved));
    let line = hand.audit(None, None, 10).await.unwrap().remove(0);
    assert_eq!((&*line.what, &*line.by, &*line.operation), ("begun", "anna@host", "17"));
    assert_eq!((&*line.detail, &*line.note), (r#"a retry of {"task":["send_*"]}"#, "smtp is back"));

    let ids = bury_many(&mut yard.con, NS, 0..150).await;
    let twice: Vec<_> = [wanted(&hand, &ids).await, wanted(&hand, &ids[..7]).await].concat();
    let raised = hand.retry_by_hand(&part_of("17"), twice).await.unwrap();
    assert_eq!(raised.iter().filter(|raised| matches!(raised, Raised::Sent(_))).count(), 150);
    let more = bury_many(&mut yard.con, NS, 200..210).await;
    hand.remove(&part_of("17"), Removal::Removed, &[&more[..], &ids[..3]].concat()).await.unwrap();
    let counted = progress(&hand, "17").await;
    let refused = BTreeMap::from([("entry_gone".to_owned(), 10)]);
    assert_eq!((counted.done, counted.refused, counted.revision), (160, refused, 1), "counts are no change of state");
    assert_eq!(hand.audit(None, None, 1).await.unwrap()[0].operation, "17");

    // A part of what does not run any more is not done.
    let cancelled = OperationProgress { state: OperationState::Cancelled, ..fresh };
    assert_eq!(hand.progress(None, "17", &cancelled).await, Ok(2));
    let id = bury(&mut yard.con, NS, &letter(NS, 300)).await;
    let (before, counted) = (yard.picture().await, progress(&hand, "17").await);
    let retries = wanted(&hand, std::slice::from_ref(&id)).await;
    assert_eq!(hand.retry_by_hand(&part_of("17"), retries.clone()).await, Err(StoreError::Moved));
    assert_eq!(hand.retry_by_hand(&part_of("none"), retries).await, Err(StoreError::Moved));
    assert_eq!(hand.remove(&part_of("17"), Removal::Purged, &[id]).await, Err(StoreError::Moved));
    // The order within a large hash may change by itself.
    let but_hashes = |picture: Vec<(String, Vec<u8>)>| {
        let hashes = [":flights", ":operation:17"];
        picture.into_iter().filter(|(key, _)| !hashes.iter().any(|end| key.ends_with(end))).collect::<Vec<_>>()
    };
    assert!(but_hashes(yard.picture().await) == but_hashes(before), "nothing has changed");
    assert_eq!(progress(&hand, "17").await, counted);
    assert_eq!(yard.con.hlen::<_, u64>(format!("{{{NS}}}:sexton:flights")).await.unwrap(), 150);
    assert_eq!(yard.stream(QUEUE).await.len(), 150);
}

#[tokio::test]
async fn who_goes_on_does_not_undo_that_a_person_has_cancelled_it() {
    let yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    hand.begin(&operation("17", 5)).await.unwrap();
    let mut leaders = progress(&hand, "17").await;
    leaders = OperationProgress {
        from: Some("9-1".to_owned()),
        looked_at: 100,
        matched: 40,
        done: 999,
        refused: BTreeMap::from([("x".to_owned(), 1)]),
        ..leaders
    };
    leaders.revision = hand.progress(Some(&yard.lease), "17", &leaders).await.unwrap();
    let saved = progress(&hand, "17").await;
    let uncounted = OperationProgress { done: 0, refused: BTreeMap::new(), ..leaders.clone() };
    assert_eq!(saved, uncounted, "what is done is counted elsewhere");
    let persons = OperationProgress { state: OperationState::Cancelled, ended_at: Some(Millis(7)), ..saved };
    assert_eq!(hand.progress(None, "17", &persons).await, Ok(3));
    assert_eq!(hand.progress(Some(&yard.lease), "17", &leaders).await, Err(StoreError::Moved));
    let now = progress(&hand, "17").await;
    assert_eq!((now.state, now.ended_at, now.revision), (OperationState::Cancelled, Some(Millis(7)), 3));
    let failed = OperationProgress { state: OperationState::Failed, error: Some("no".to_owned()), ..now };
    let other = sexton::ledger::Lease { epoch: 9, holder: "other".to_owned() };
    assert_eq!(hand.progress(Some(&other), "17", &failed).await, Err(StoreError::Fenced));
    assert_eq!(hand.progress(None, "none", &failed).await, Err(StoreError::Moved));
    hand.progress(Some(&yard.lease), "17", &failed).await.unwrap();
    assert_eq!(progress(&hand, "17").await.error.as_deref(), Some("no"));
}

#[tokio::test]
async fn the_oldest_operations_are_forgotten_but_for_those_that_run() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    for n in 0..1_000 {
        hand.begin(&operation(&format!("{n:04}"), n)).await.unwrap();
        if n != 1 {
            let done = OperationProgress { state: OperationState::Done, revision: 1, ..OperationProgress::default() };
            hand.progress(None, &format!("{n:04}"), &done).await.unwrap();
        }
    }
    let known = async |hand: &Smallage| {
        let all = hand.operations(10_000).await.unwrap();
        all.into_iter().map(|(operation, _)| operation.id).collect::<Vec<_>>()
    };
    assert_eq!(known(&hand).await.len(), 1_000);
    for n in 1_000..1_003 {
        hand.begin(&operation(&format!("{n:04}"), n)).await.unwrap();
    }
    let ids = known(&hand).await;
    assert_eq!((ids.len(), &*ids[0], &*ids[998], &*ids[999]), (1_000, "1002", "0004", "0001"));
    assert_eq!(con.zcard::<_, u64>(format!("{{{NS}}}:sexton:operations")).await.unwrap(), 1_000);
    for id in ["0000", "0002", "0003"] {
        assert!(hand.operation(id).await.unwrap().is_none(), "{id}");
    }
    assert_eq!(hand.operations(2).await.unwrap().len(), 2);
    let left: i64 = con.pttl(format!("{{{NS}}}:sexton:operation:0001")).await.unwrap();
    assert!((6 * 86_400_000..=7 * 86_400_000).contains(&left), "{left}");
    // One that has expired leaves the list.
    let () = con.del(format!("{{{NS}}}:sexton:operation:0007")).await.unwrap();
    hand.begin(&operation("1003", 1_003)).await.unwrap();
    assert_eq!(con.zscore::<_, _, Option<f64>>(format!("{{{NS}}}:sexton:operations"), "0007").await.unwrap(), None);
}

#[tokio::test]
async fn rubbish_among_operations_is_passed_over() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    assert!(hand.operations(10).await.unwrap().is_empty());
    hand.begin(&operation("17", 5)).await.unwrap();
    let key = |name: &str| format!("{{{NS}}}:sexton:{name}");
    let () = con.hset(key("operation:17"), "looked_at", "many").await.unwrap();
    let () = con.hset(key("operation:17"), "refused:x", "often").await.unwrap();
    let () = con.set(key("operation:18"), "rubbish").await.unwrap();
    let () = con.hset(key("operation:19"), "operation", "no JSON").await.unwrap();
    for id in ["18", "19", "20"] {
        let () = con.zadd(key("operations"), id, 9).await.unwrap();
    }
    let all = hand.operations(10).await.unwrap();
    assert_eq!((all.len(), all[0].1.looked_at), (1, 0));
    let nothing = OperationProgress::default();
    assert_eq!(hand.progress(None, "18", &nothing).await, Err(StoreError::Moved));
    let () = con.set(key("operations"), "rubbish").await.unwrap();
    assert!(hand.operations(10).await.unwrap().is_empty());
    hand.begin(&operation("21", 5)).await.unwrap();
    assert_eq!(hand.operations(10).await.unwrap().len(), 1);
    // Without memory none begins by half.
    let () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).query_async(&mut con).await.unwrap();
    assert!(matches!(hand.begin(&operation("22", 5)).await, Err(StoreError::NoWrites(_))));
    assert!(matches!(hand.progress(None, "21", &nothing).await, Err(StoreError::Moved | StoreError::NoWrites(_))));
    assert!(!con.exists::<_, bool>(key("operation:22")).await.unwrap());
}

#[tokio::test]
async fn notes_stand_in_the_log_and_events_on_the_outbox() {
    let redis = Redis::start().await;
    let hand = smallage(&redis);
    let TryLease::Acquired(lease) = hand.try_lease("me", std::time::Duration::from_secs(60), 0).await.unwrap() else {
        panic!("nobody else wants it")
    };
    let by = By { note: "é".repeat(5_000), ..anna() };
    hand.note(&by, "finished", "12 entries").await.unwrap();
    let line = hand.audit(None, None, 1).await.unwrap().remove(0);
    assert_eq!((&*line.what, &*line.detail, &*line.entry_id), ("finished", "12 entries", ""));
    assert_eq!(line.note.chars().count(), 1_000);
    let event = EventData::HookTest(HookTest { source: "orders".to_owned(), ..HookTest::default() });
    hand.announce(None, &event).await.unwrap();
    hand.announce(Some(&lease), &event).await.unwrap();
    hand.release(&lease).await.unwrap();
    assert_eq!(hand.announce(Some(&lease), &event).await, Err(StoreError::Fenced));
    assert_eq!(hand.outbox_len(Lane::Alerts).await.unwrap(), 2);
}
