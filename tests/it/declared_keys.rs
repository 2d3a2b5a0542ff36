//! Scripts touch the keys they are given and no others, all with the namespace's hash tag: only then a Redis Cluster, and
//! the services that copy it, can run them.

use std::collections::{BTreeMap, BTreeSet};

use redis::AsyncCommands as _;
use sexton::{
    alert,
    event::{EventData, HookTest, Lane},
    ledger::{
        Act, AttachOptions, By, HandRetry, Judge, Judged, Lesson, Operation, OperationProgress, OutboxId, Place,
        Raised, Refusal, Relook, Removal, Retain, Retry, Scan, Settled, Sieve, TriageLedger as _, Verdict, Whereabouts,
    },
    letter::Millis,
    smallage::{Area, Keys, RIGHTS},
};

use crate::support::{
    graveyard::{Fields, bury, letter},
    monitor::{Monitor, Monitored},
    yard::{NS, QUEUE, Yard, anna, smallage, spent, waits, wanted},
};

/// Has every script do everything it can.
async fn tour(yard: &mut Yard) {
    let mut deduped: Fields = letter(NS, 2);
    deduped.push((b"dedup".to_vec(), b"k".to_vec()));
    let () = yard.con.set(format!("{{{NS}}}:dedup:k"), crate::support::graveyard::job_id(2)).await.unwrap();
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let id = bury(&mut yard.con, NS, &deduped).await;
    let other = bury(&mut yard.con, NS, &letter(NS, 3)).await;
    yard.ingest(&waits).await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let newest = yard.stream(&crate::support::graveyard::dlq(NS)).await[1].0.clone();
    let foreign = Retry { stream: "partner:events".to_owned(), ..yard.planned(&other).await };
    let young = Retry { not_before: Millis(i64::MAX), ..yard.planned(&id).await };
    assert_eq!(yard.refusal(young).await, Refusal::TooYoung);
    let first = yard.send(&newest).await;
    let second = yard.send(&id).await;
    assert_eq!(yard.refusal(foreign).await, Refusal::ForeignStream);
    yard.ingest(&spent).await;
    let place = first.place.clone();
    let relook = Relook { groups: vec![(place.group.clone(), None)], pool: Some(Millis(5)) };
    yard.ledger.relook(&yard.lease, yard.generation, &place.pool, &relook).await.unwrap();
    yard.ledger.drop_due(&yard.lease, yard.generation, &[(place.clone(), id)]).await.unwrap();
    let flights = [first.clone(), second.clone()];
    yard.ledger.look(&flights).await.unwrap();
    // More on the clock than is looked through whole.
    let names: Vec<(i64, String)> = (0..1_001).map(|n| (n, format!("cron:{n}"))).collect();
    let () = yard.con.zadd_multiple(format!("{{{NS}}}:sched"), &names).await.unwrap();
    let () = yard.con.del(QUEUE).await.unwrap();
    yard.ledger
        .look(
            &[Whereabouts::Clock("retry:x:1".to_owned()), first.at.clone()]
                .map(|at| sexton::ledger::Flight { at, ..second.clone() }),
        )
        .await
        .unwrap();
    let event = Some("{}".to_owned());
    let lesson = Lesson {
        pool: place.pool.clone(),
        group: Some(place.group.clone()),
        learnt: "x".to_owned(),
        held_until: Some(Millis(1)),
        keep_until: Millis(i64::MAX),
    };
    let settled = flights.map(|flight| Settled { flight, verdict: Some(Verdict::Recovered), event: event.clone() });
    yard.ledger.settle(&yard.lease, &settled, &[lesson]).await.unwrap();

    triage_tour(yard, &place).await;
    let old = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    let judging = yard.ledger.judging().await.unwrap();
    let (batch, counts) = yard.ledger.read_to_judge(&judging.judged, &judging.until, 10).await.unwrap();
    let entries = batch.letters.iter().zip(counts).map(|(letter, counts)| Judged {
        entry_id: letter.entry_id.clone(),
        job_id: letter.job_id.clone(),
        plan: waits(letter, counts),
    });
    let step = Judge { generation: old, from: judging.judged, to: batch.cursor.clone(), entries: entries.collect() };
    yard.ledger.judge(&yard.lease, step).await.unwrap();
    while yard.ledger.discard_old(&yard.lease, 2).await.unwrap() {}
    yard.ledger.survey(&yard.lease).await.unwrap();
    yard.ledger.check(&yard.lease, &yard.cursor).await.unwrap();
    yard.ledger.attach(&yard.lease, AttachOptions::default()).await.unwrap();
    yard.ledger.save_lane(&yard.lease, "oncall", Lane::Deaths, 0, "{}").await.unwrap();
    let fields = alert::Fields { set: vec![("cursor".to_owned(), "0-0".to_owned())], remove: vec!["m1".to_owned()] };
    let alert = EventData::AlertFiring(Box::default());
    yard.ledger.save_watch(&yard.lease, 0, &fields, &[alert]).await.unwrap();
    yard.ledger.outbox_trim(&yard.lease, Lane::Deaths, OutboxId::default(), None).await.unwrap();
    yard.ledger.renew(&yard.lease, std::time::Duration::from_secs(60)).await.unwrap();
    yard.ledger.release(&yard.lease).await.unwrap();
}

/// What people do, and the standing policy.
async fn triage_tour(yard: &mut Yard, place: &Place) {
    let hand = smallage(&yard.redis);
    let () = yard.con.xgroup_create_mkstream(QUEUE, "workers", "0").await.unwrap();
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
    hand.begin(&Operation { id: "18".to_owned(), ..operation }).await.unwrap();
    let by = By { operation: "17".to_owned(), ..anna() };
    let mut deduped: Fields = letter(NS, 5);
    deduped.push((b"dedup".to_vec(), b"k5".to_vec()));
    bury(&mut yard.con, NS, &letter(NS, 4)).await;
    let twin = bury(&mut yard.con, NS, &letter(NS, 4)).await;
    let ids = [twin, bury(&mut yard.con, NS, &deduped).await];
    yard.ingest(&waits).await;
    let mut retries = wanted(&hand, &ids).await;
    retries.push(HandRetry { stream: "partner:events".to_owned(), ..retries[0].clone() });
    let raised = hand.retry_by_hand(&by, retries).await.unwrap();
    assert!(matches!(raised[..2], [Raised::Sent(_), Raised::Sent(_)]), "{raised:?}");
    let mut left = Vec::new();
    for n in 6..9 {
        left.push(bury(&mut yard.con, NS, &letter(NS, n)).await);
    }
    yard.ingest(&waits).await;
    hand.remove(&by, Removal::Removed, &left[..1]).await.unwrap();
    hand.remove(&by, Removal::Purged, &left[1..2]).await.unwrap();
    let entries = vec![(left[2].clone(), Some(place.clone()))];
    let generation = yard.generation;
    assert_eq!(hand.retain(&yard.lease, &by, Retain { entries, generation }).await, Ok(1));
    let sieve = Sieve { job_id: Some("x".to_owned()), ..Sieve::default() };
    hand.scan(&Scan { max: 5, sieve, ..Scan::default() }).await.unwrap();
    let progress = OperationProgress { revision: 1, ..OperationProgress::default() };
    hand.progress(None, "17", &progress).await.unwrap();
    hand.announce(Some(&yard.lease), &EventData::HookTest(HookTest::default())).await.unwrap();
}

/// Fails if the list of rights does not grant this command on this key.
fn granted(keys: &Keys, command: &str, key: &str) {
    let command = if command == "XINFO" { "xinfo|stream".to_owned() } else { command.to_lowercase() };
    let area = Area::of(keys, key).unwrap_or_else(|| panic!("no right covers {key}"));
    let right = RIGHTS.iter().find(|right| right.command == command);
    let right = right.unwrap_or_else(|| panic!("no right covers {command}"));
    assert!(right.areas.contains(&area), "the right to {command} leaves out {key}");
}

#[tokio::test]
async fn scripts_touch_only_the_keys_they_are_given() {
    let mut yard = Yard::open().await;
    let mut monitor = Monitor::of(&yard.redis).await;
    tour(&mut yard).await;
    let _: Option<String> = yard.con.get("the end").await.unwrap();
    let keys = Keys::new(NS).unwrap();
    let mut given = BTreeSet::new();
    let (mut scripts, mut touched) = (BTreeSet::new(), BTreeMap::<String, u32>::new());
    for Monitored { by_script, words, .. } in monitor.until("the end").await {
        let command = words[0].to_uppercase();
        if command.starts_with("EVAL") {
            let count: usize = words[2].parse().unwrap();
            given = words[3..3 + count].iter().cloned().collect();
            assert!(given.iter().all(|key| key.starts_with("{lrs}:")), "{given:?}");
            scripts.insert(words[1].clone());
            for key in &given {
                granted(&keys, &command, key);
            }
            continue;
        }
        let key = match command.as_str() {
            "TIME" | "CLIENT" => continue,
            "XINFO" => &words[2],
            "XREAD" => &words[words.len() - 2],
            _ => &words[1],
        };
        // The test's own connection stands in for workers, and for Redis itself.
        if by_script || key.contains(":sexton:") {
            granted(&keys, &command, key);
        }
        if !by_script {
            continue;
        }
        assert!(given.contains(key), "a script was not given {key}: {words:?}");
        *touched.entry(command).or_default() += 1;
    }
    // By digest and by text: each was forgotten once.
    assert!(scripts.len() >= 30, "{}", scripts.len());
    for command in
        ["XDEL", "XADD", "DEL", "UNLINK", "ZADD", "ZREM", "HSET", "HDEL", "SET", "PEXPIRE", "ZMSCORE", "HINCRBY"]
    {
        assert!(touched.contains_key(command), "the tour leaves out {command}: {touched:?}");
    }
}
