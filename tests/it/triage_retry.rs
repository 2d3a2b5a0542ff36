//! Retries by hand in a real Redis: what a person can overrule, what not, and what becomes of it.

use std::{slice::from_ref, sync::Arc, time::Duration};

use redis::AsyncCommands as _;
use sexton::{
    event::Lane,
    ledger::{
        By, HandRetry, JobCounts, Ledger as _, OutboxId, Pool, Raised, Refusal, Retried, RetryLedger as _, StoreError,
        TriageLedger as _, Whereabouts,
    },
    loops::{self, Retry as RetryLoop, Trouble},
    metrics::Metrics,
    smallage::Smallage,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::{
    SOON, eventually,
    graveyard::{Fields, bury, bury_all, bury_many, dlq, job_id, letter, with},
    process::Sexton,
    receiver::Receiver,
    redis::Redis,
    workers::{Crew, Hiring, graves},
    yard::{NS, QUEUE, Yard, anna, by_hand, hand_retry_of, smallage, spent, waits, wanted},
};

fn key(name: &str) -> String {
    format!("{{{NS}}}:sexton:{name}")
}

fn deduped(n: u64, dedup: &str) -> Fields {
    let mut fields = letter(NS, n);
    fields.insert(3, (b"dedup".to_vec(), dedup.as_bytes().to_vec()));
    fields
}

async fn run(con: &mut redis::aio::MultiplexedConnection, command: &str) {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    let () = command.arg(words.collect::<Vec<_>>()).query_async(con).await.unwrap();
}

#[tokio::test]
async fn a_person_overrules_what_rules_say_and_the_job_gets_a_fresh_allowance() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let retries = [("retries", "3"), ("retries_seen", "3"), ("deaths", "3"), ("entries", "")];
    let () = yard.con.hset_multiple(key(&format!("job:{}", job_id(1))), &retries).await.unwrap();
    assert_eq!(yard.ingest(&spent).await.exhausted, [0]);
    let id = yard.stream(&dlq(NS)).await[0].0.clone();

    let Raised::Sent(queued) = by_hand(&hand, &id).await else { panic!("a person may") };
    let queue = yard.stream(QUEUE).await;
    assert_eq!((queue.len(), &queue[0].0), (1, &queued));
    assert!(yard.stream(&dlq(NS)).await.is_empty());
    let record = key(&format!("job:{}", job_id(1)));
    assert!(!yard.con.hexists::<_, _, bool>(&record, "exhausted").await.unwrap());
    assert_eq!(yard.ledger.jobs(&[job_id(1)]).await.unwrap(), [JobCounts { deaths: 4, retries: 0 }]);
    let line = yard.ledger.audit(None, None, 1).await.unwrap().remove(0);
    assert_eq!((&*line.what, &*line.by, &line.entry_id), ("retried", "anna@host", &id));
    assert_eq!((&*line.note, &line.detail, &*line.job_id), ("smtp is back", &queued, &*job_id(1)));
    let flight = yard.ledger.flights().await.unwrap().remove(0);
    assert!(flight.place.pool.is_by_hand());
    assert_eq!(flight.at, Whereabouts::Queue(queued));
    let events = yard.ledger.outbox(Lane::Deaths, OutboxId::default(), 10).await.unwrap().events;
    let told = &events.last().unwrap().event;
    assert_eq!((told.kind().as_str(), &told.data.job().unwrap().entry_id), ("job.retried", &id));

    // It dies again: the rules plan it as one that was never retried, and nobody else is suspected.
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let committed = yard.ingest(&waits).await;
    assert_eq!(committed.jobs, [JobCounts { deaths: 5, retries: 0 }]);
    assert!(committed.elsewhere.is_empty() && committed.exhausted.is_empty(), "{committed:?}");
    assert_eq!(yard.indexed().await, (1, 1));
    // And when their allowance is spent, that is said once more.
    let next = yard.stream(&dlq(NS)).await[0].0.clone();
    let () = yard.con.xdel(QUEUE, &[&queue[0].0]).await.unwrap();
    let seen = yard.ledger.look(&yard.ledger.flights().await.unwrap()).await.unwrap().sights;
    assert_eq!(seen, [sexton::ledger::Sight::ReDied]);
    yard.end_all(sexton::ledger::Verdict::ReDied).await;
    let last = yard.ledger.audit(None, None, 1).await.unwrap().remove(0);
    assert_eq!((&*last.what, &*last.by), ("re_died", Pool::BY_HAND));
    yard.send(&next).await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    assert_eq!(yard.ingest(&spent).await.exhausted, [0]);
}

#[tokio::test]
async fn what_a_person_cannot_overrule_has_its_name() {
    /// What is buried; what is done in Redis; how the retry is unlike one that goes; the refusal.
    type Case<'a> = (&'a Fields, &'a [&'a str], fn(&mut HandRetry), Refusal);
    let plain = letter(NS, 1);
    let huge: Fields = (0..10_000).map(|n| (format!("f{n}").into_bytes(), b"x".to_vec())).collect();
    let huge = [plain.clone(), huge].concat();
    let cases: &[Case<'_>] = &[
        (&plain, &["DEL {lrs}:dlq"], |_| {}, Refusal::EntryGone),
        (&plain, &["DEL {lrs}:q:default:0"], |_| {}, Refusal::QueueGone),
        (&plain, &["SET {lrs}:q:default:0 x"], |_| {}, Refusal::QueueGone),
        (&plain, &[], |retry| retry.stream = "partner:events".to_owned(), Refusal::ForeignStream),
        (&plain, &[], |retry| retry.stream = "{lrs}:q:default:1".to_owned(), Refusal::Malformed),
        (&plain, &[], |retry| retry.dead.job_id = Some("another".to_owned()), Refusal::Malformed),
        (&plain, &[], |retry| retry.dead.job_id = None, Refusal::Malformed),
        (&plain, &[], |retry| retry.dedup = Some("order".to_owned()), Refusal::Malformed),
        (&plain, &["SET {lrs}:sexton:job:JOB x"], |_| {}, Refusal::Malformed),
        (&huge, &[], |_| {}, Refusal::Malformed),
        (&with(&plain, "id", b""), &[], |_| {}, Refusal::Malformed),
        (&deduped(1, "k"), &["SET {lrs}:dedup:k another"], |_| {}, Refusal::DedupClaimed),
        (&deduped(1, "k"), &["SET {lrs}:sexton:raised:k another"], |_| {}, Refusal::DedupClaimed),
        (&plain, &["HSET {lrs}:sexton:flights JOB x"], |_| {}, Refusal::InFlight),
        (
            &plain,
            &["XADD {lrs}:dlq 9999999999999-0 id JOB", "HSET {lrs}:sexton:job:JOB entries ENTRY_9999999999999-0"],
            |_| {},
            Refusal::Superseded,
        ),
        (&plain, &["HSET {lrs}:sexton:job:JOB raised ENTRY_1_flaky"], |_| {}, Refusal::Superseded),
    ];
    for (fields, commands, prepare, expected) in cases {
        let mut yard = Yard::open().await;
        let hand = smallage(&yard.redis);
        let id = yard.bury(fields).await;
        let mut retry = wanted(&hand, from_ref(&id)).await.remove(0);
        prepare(&mut retry);
        for command in *commands {
            let mut words: Vec<String> = command.split(' ').map(|word| word.replace("JOB", &job_id(1))).collect();
            for word in &mut words {
                *word = word.replace("ENTRY", &id).replace('_', " ");
            }
            let mut command = redis::cmd(&words[0]);
            let () = command.arg(&words[1..]).query_async(&mut yard.con).await.unwrap();
        }
        let queued = yard.con.exists::<_, bool>(QUEUE).await.unwrap();
        let raised = hand.retry_by_hand(&anna(), vec![retry]).await.unwrap();
        assert_eq!(raised, [Raised::Refused(*expected)], "{commands:?}");
        let retried = yard.audited().await.into_iter().filter(|(what, ..)| what == "retried").count();
        assert_eq!(retried, 0, "{commands:?}");
        assert_eq!(yard.con.exists::<_, bool>(QUEUE).await.unwrap(), queued, "no queue is made: {expected:?}");
    }
}

#[tokio::test]
async fn what_was_buried_twice_goes_once_and_dedup_claims_are_kept_in_mind() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let older = bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let newer = bury(&mut yard.con, NS, &letter(NS, 1)).await;
    yard.ingest(&waits).await;
    assert_eq!(by_hand(&hand, &older).await, Raised::Refused(Refusal::Superseded));
    let retries = wanted(&hand, &[newer.clone(), older.clone()]).await;
    let raised = hand.retry_by_hand(&anna(), retries).await.unwrap();
    assert!(matches!(raised[0], Raised::Sent(_)));
    assert_eq!(raised[1], Raised::Refused(Refusal::EntryGone));
    let lines = yard.audited().await;
    assert_eq!(lines[1], ("twin_removed".to_owned(), older, job_id(1)));

    let id = yard.bury(&deduped(2, "k")).await;
    let () = yard.con.set(format!("{{{NS}}}:dedup:k"), job_id(2)).await.unwrap();
    let other = yard.bury(&deduped(3, "k")).await;
    assert!(matches!(by_hand(&hand, &id).await, Raised::Sent(_)));
    assert!(!yard.con.exists::<_, bool>(format!("{{{NS}}}:dedup:k")).await.unwrap());
    let queue = yard.stream(QUEUE).await;
    assert!(queue[1].1.contains(&(b"attempt".to_vec(), b"1000000".to_vec())));
    assert_eq!(by_hand(&hand, &other).await, Raised::Refused(Refusal::DedupClaimed));
}

#[tokio::test]
async fn two_who_retry_the_same_thousand_retry_each_once() {
    let mut yard = Yard::open().await;
    let ids = bury_many(&mut yard.con, NS, 0..1_000).await;
    yard.ingest(&waits).await;
    let (one, other) = (smallage(&yard.redis), smallage(&yard.redis));
    let mut retries = wanted(&one, &ids).await;
    let anna = anna();
    let first = one.retry_by_hand(&anna, retries.clone());
    retries.reverse();
    let bert = By { who: "bert@host".to_owned(), ..By::default() };
    let second = other.retry_by_hand(&bert, retries);
    // The loop wants some of them as well.
    let mut ruled = Vec::new();
    for standing in yard.ledger.standing(&ids[400..600]).await.unwrap() {
        let standing = standing.unwrap();
        ruled.push(crate::support::yard::retry_of(&standing.letter, standing.job));
    }
    let third = yard.ledger.retry(&yard.lease, yard.generation, ruled);
    let (first, second, third) = tokio::join!(first, second, third);
    let (first, mut second, third) = (first.unwrap(), second.unwrap(), third.unwrap());
    second.reverse();
    for n in 0..1_000 {
        let ruled = (400..600).contains(&n) && matches!(third[n - 400], Retried::Sent(_));
        let sent = [matches!(first[n], Raised::Sent(_)), matches!(second[n], Raised::Sent(_)), ruled];
        assert_eq!(sent.iter().filter(|sent| **sent).count(), 1, "{n}: {:?} {:?}", first[n], second[n]);
    }
    let refused = first.iter().chain(&second).filter_map(|raised| match raised {
        Raised::Refused(why) => Some(*why),
        Raised::Sent(_) => None,
    });
    let refused: Vec<Refusal> = refused.collect();
    assert!(refused.iter().all(|why| *why == Refusal::EntryGone || *why == Refusal::InFlight), "{refused:?}");
    assert_eq!(yard.stream(QUEUE).await.len(), 1_000);
    assert_eq!(yard.audited().await.len(), 1_000);
    assert!(first.iter().any(|raised| matches!(raised, Raised::Sent(_))));
    assert!(second.iter().any(|raised| matches!(raised, Raised::Sent(_))));
}

#[tokio::test]
async fn without_memory_or_rights_a_retry_by_hand_leaves_everything_as_it_was() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let ids = [yard.bury(&letter(NS, 1)).await, yard.bury(&deduped(2, "k")).await];
    let retries = wanted(&hand, &ids).await;
    let before = yard.picture().await;
    run(&mut yard.con, "CONFIG SET maxmemory 1").await;
    let refused = hand.retry_by_hand(&anna(), retries.clone()).await;
    assert!(matches!(refused, Err(StoreError::NoWrites(_))), "{refused:?}");
    run(&mut yard.con, "CONFIG SET maxmemory 0").await;
    assert_eq!(yard.picture().await, before);
    for command in ["xadd", "xdel", "hset", "hdel", "pexpire", "del", "set"] {
        run(&mut yard.con, &format!("ACL SETUSER default -{command}")).await;
        let refused = hand.retry_by_hand(&anna(), retries.clone()).await;
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{command}: {refused:?}");
        run(&mut yard.con, &format!("ACL SETUSER default +{command}")).await;
        // A connection that was denied something is closed, and there is a pause before the next.
        eventually("it connects again", SOON, || async { hand.leader().await.ok() }).await;
    }
    assert_eq!(yard.picture().await, before);
    let raised = hand.retry_by_hand(&anna(), retries).await.unwrap();
    assert!(raised.iter().all(|raised| matches!(raised, Raised::Sent(_))), "{raised:?}");
}

#[tokio::test]
async fn where_nobody_leads_a_job_that_died_again_can_be_retried_again() {
    let redis = Redis::start().await;
    let (hand, mut con) = (smallage(&redis), redis.connect().await);
    let () = con.xgroup_create_mkstream(QUEUE, "workers", "0").await.unwrap();
    let first = bury(&mut con, NS, &letter(NS, 1)).await;
    let Raised::Sent(queued) = by_hand(&hand, &first).await else { panic!("nothing is in the way") };
    // Nobody is told where nobody has ever led, and so clears away what is told.
    assert_eq!(hand.outbox_len(Lane::Deaths).await.unwrap(), 0);
    // Buried again by a worker that has not let go of the job yet.
    let second = bury(&mut con, NS, &letter(NS, 1)).await;
    assert_eq!(by_hand(&hand, &second).await, Raised::Refused(Refusal::InFlight));
    let () = con.xdel(QUEUE, &[&queued]).await.unwrap();
    assert!(matches!(by_hand(&hand, &second).await, Raised::Sent(_)));
    let lines: Vec<_> =
        hand.audit(None, None, 10).await.unwrap().into_iter().map(|line| (line.what, line.entry_id)).collect();
    let line = |what: &str, entry: &String| (what.to_owned(), entry.clone());
    assert_eq!(lines, [line("retried", &second), line("re_died", &first), line("retried", &first)]);
    let flights = hand.flights().await.unwrap();
    assert_eq!((flights.len(), &flights[0].dead.entry_id), (1, &second));

    // With a leader it is his to say what became of it.
    let third = bury(&mut con, NS, &letter(NS, 1)).await;
    let () = con.del(QUEUE).await.unwrap();
    let () = con.xgroup_create_mkstream(QUEUE, "workers", "0").await.unwrap();
    let () = con.set(key("lease"), "1:somebody").await.unwrap();
    assert_eq!(by_hand(&hand, &third).await, Raised::Refused(Refusal::InFlight));
}

#[tokio::test]
async fn of_too_many_flights_no_more_are_followed() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let flights: Vec<(String, &str)> = (0..4_999).map(|n| (format!("other {n}"), "x")).collect();
    let () = yard.con.hset_multiple(key("flights"), &flights).await.unwrap();
    let ids = bury_many(&mut yard.con, NS, 0..3).await;
    let raised = hand.retry_by_hand(&anna(), wanted(&hand, &ids).await).await.unwrap();
    assert!(raised.iter().all(|raised| matches!(raised, Raised::Sent(_))), "{raised:?}");
    assert_eq!(yard.con.hlen::<_, u64>(key("flights")).await.unwrap(), 5_000);
    assert_eq!((yard.ledger.flights().await.unwrap().len(), yard.audited().await.len()), (1, 3));
}

#[tokio::test]
async fn large_ones_go_in_more_steps() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let large = (0..50).map(|n| with(&letter(NS, n), "payload", &[b'x'; 200_000]));
    let ids = bury_all(&mut yard.con, NS, large).await;
    let retries = wanted(&hand, &ids).await;
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut yard.con).await.unwrap();
    let raised = hand.retry_by_hand(&anna(), retries).await.unwrap();
    assert_eq!((raised.len(), yard.stream(QUEUE).await.len()), (50, 50));
    let stats: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(&mut yard.con).await.unwrap();
    let calls: String = stats.get("cmdstat_evalsha").unwrap();
    let calls: u32 = calls.strip_prefix("calls=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(calls >= 5, "{calls} steps for ten megabytes");
}

#[tokio::test]
async fn a_client_killed_in_the_middle_leaves_nothing_half_done() {
    let mut yard = Yard::open().await;
    let ids = bury_many(&mut yard.con, NS, 0..3_000).await;
    let hand = Arc::new(smallage(&yard.redis));
    let retries = wanted(&hand, &ids).await;
    let client = {
        let (hand, retries) = (Arc::clone(&hand), retries.clone());
        tokio::spawn(async move { hand.retry_by_hand(&anna(), retries).await })
    };
    eventually("some have gone", SOON, || {
        let mut con = yard.con.clone();
        async move { (con.xlen::<_, u64>(QUEUE).await.ok()? > 200).then_some(()) }
    })
    .await;
    client.abort();
    run(&mut yard.con, "CLIENT KILL TYPE normal SKIPME yes").await;
    let _ = client.await;
    let (dead, queued) = (graves(&mut yard.con, NS).await, yard.stream(QUEUE).await.len());
    assert!(dead > 0 && dead + queued == 3_000, "{dead} dead, {queued} queued");
    assert_eq!(yard.con.xlen::<_, usize>(key("audit")).await.unwrap(), queued);
    assert_eq!(yard.con.hlen::<_, usize>(key("flights")).await.unwrap(), queued);
    // The next one goes on.
    let hand = smallage(&yard.redis);
    let raised = hand.retry_by_hand(&anna(), retries).await.unwrap();
    let sent = raised.iter().filter(|raised| matches!(raised, Raised::Sent(_))).count();
    assert_eq!((sent, yard.stream(QUEUE).await.len()), (dead, 3_000));
}

#[tokio::test]
async fn nothing_stale_stays_in_the_index() {
    let mut yard = Yard::open().await;
    let hand = smallage(&yard.redis);
    let id = yard.bury(&letter(NS, 1)).await;
    assert!(matches!(by_hand(&hand, &id).await, Raised::Sent(_)));
    assert_eq!(yard.indexed().await, (1, 1), "the loop finds it gone when it is due");
    let rules = watch::Sender::new(Arc::new(crate::retry_loop::rules(crate::retry_loop::SLOW)));
    let metrics = Arc::new(Metrics::new(&["orders"], &[]));
    metrics.leads("orders", true, &[]);
    let step = RetryLoop::new(yard.ledger.clone(), yard.lease.clone(), metrics, rules.subscribe());
    let stop = CancellationToken::new();
    let told = stop.clone();
    let loop_ = tokio::spawn(async move { loops::run(Box::new(step), &Trouble::new("orders", "retry"), told).await });
    eventually("the index is empty", SOON, || {
        let mut con = yard.con.clone();
        async move {
            let keys: Vec<String> = con.keys(key("due:*")).await.ok()?;
            keys.is_empty().then_some(())
        }
    })
    .await;
    stop.cancel();
    loop_.await.unwrap();
    assert_eq!(yard.ledger.waiting().await.unwrap().entries, 0);
}

#[tokio::test]
async fn the_leader_follows_what_another_process_has_retried_also_without_rules() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let crew = Crew::start(&redis, NS, &Hiring::default());
    crew.dependencies.break_down("smtp");
    let receiver = Receiver::start().await;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{}\", rate: unlimited, events: [\"job.*\"]}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 500ms}}\nsample_every: 200ms\n",
        redis.url(),
        receiver.url()
    ));
    let http = sexton.http().await;
    http.metric_is("sexton_retry_outcomes_total", &[("rule", Pool::BY_HAND), ("outcome", "recovered")], 0.0).await;
    crew.enqueue(&mut con, "send_email", 0..3).await;
    let all_dead = async |con: &redis::aio::MultiplexedConnection| {
        eventually("three are dead", SOON, || {
            let mut con = con.clone();
            async move { (graves(&mut con, NS).await == 3).then_some(()) }
        })
        .await;
    };
    all_dead(&con).await;
    http.metric_is("sexton_jobs_dead_total", &[], 3.0).await;
    let hand = smallage(&redis);
    let entries = async |hand: &Smallage| {
        let page = hand.page(None, 10).await.unwrap();
        page.letters.iter().map(hand_retry_of).collect::<Vec<_>>()
    };
    // The first time they die again, and are not taken for anything else.
    let raised = hand.retry_by_hand(&anna(), entries(&hand).await).await.unwrap();
    assert!(raised.iter().all(|raised| matches!(raised, Raised::Sent(_))), "{raised:?}");
    let by_hand = |outcome| [("rule", Pool::BY_HAND), ("outcome", outcome)];
    http.metric_is("sexton_retry_outcomes_total", &by_hand("re_died"), 3.0).await;
    all_dead(&con).await;
    crew.dependencies.mend("smtp");
    let raised = hand.retry_by_hand(&anna(), entries(&hand).await).await.unwrap();
    assert!(raised.iter().all(|raised| matches!(raised, Raised::Sent(_))), "{raised:?}");
    http.metric_is("sexton_retry_outcomes_total", &by_hand("recovered"), 3.0).await;
    let told = receiver
        .until(SOON, |requests| {
            requests.iter().filter(|request| request.json()["type"] == "job.recovered").count() == 3
        })
        .await;
    let kinds = |kind: &str| told.iter().filter(|request| request.json()["type"] == kind).count();
    assert_eq!((kinds("job.dead"), kinds("job.retried")), (6, 6));
    let lines = hand.audit(None, None, 100).await.unwrap();
    let count = |what: &str, by: &str| lines.iter().filter(|line| line.what == what && line.by == by).count();
    assert_eq!((count("retried", "anna@host"), count("re_died", "by hand"), count("recovered", "by hand")), (6, 3, 3));
    // Rules learn nothing from what people do.
    let learnt: Vec<String> = con.keys(key("learnt:*")).await.unwrap();
    assert!(learnt.is_empty() && !con.exists::<_, bool>(key("held")).await.unwrap(), "{learnt:?}");
    assert!(hand.flights().await.unwrap().is_empty());
    tokio::time::timeout(Duration::from_secs(5), crew.stop()).await.unwrap();
}
