//! Where retried jobs are and what becomes of them, in a real Redis.

use redis::AsyncCommands as _;
use sexton::{
    event::Lane,
    ledger::{Flight, Lesson, OutboxId, Pool, Settled, Sight, Verdict, Waiting, Whereabouts},
    letter::Millis,
};

use crate::support::{
    SOON, eventually,
    graveyard::{Fields, bury, dlq, job_id, letter, with},
    yard::{NS, QUEUE, Yard, waits},
};

const SCHED: &str = "{lrs}:sched";

fn key(name: &str) -> String {
    format!("{{{NS}}}:sexton:{name}")
}

/// A yard with one retry in flight, of a job that was enqueued a moment ago.
async fn in_flight(fields: &Fields) -> (Yard, Flight) {
    let mut yard = Yard::open().await;
    let now = yard.ledger.clock().now().0;
    let id = yard.bury(&with(fields, "enqueued_at", (now - 5_000).to_string().as_bytes())).await;
    let flight = yard.send(&id).await;
    (yard, flight)
}

impl Yard {
    async fn sight(&self, flight: &Flight) -> Sight {
        let sights = self.ledger.look(std::slice::from_ref(flight)).await.unwrap();
        assert!(sights.at >= flight.seen_at && sights.sights.len() == 1);
        sights.sights[0].clone()
    }

    /// A worker lets go of the job's queue entry.
    async fn ack(&mut self, flight: &Flight) {
        let Whereabouts::Queue(entry) = &flight.at else { panic!("it is on its queue") };
        assert_eq!(self.con.xdel::<_, _, u64>(QUEUE, &[entry]).await.unwrap(), 1);
    }

    /// The framework puts a job on its queue.
    async fn enqueue(&mut self, job: &str, attempt: &str) -> String {
        self.con.xadd(QUEUE, "*", &[("id", job), ("attempt", attempt), ("payload", "x")]).await.unwrap()
    }

    async fn schedule(&mut self, name: &str) {
        let () = self.con.zadd(SCHED, name, 4_000_000_000_000_i64).await.unwrap();
    }
}

fn queue(entry: &str) -> Whereabouts {
    Whereabouts::Queue(entry.to_owned())
}

fn underway(at: Whereabouts, failing: bool) -> Sight {
    Sight::Underway { at, failing }
}

#[tokio::test]
async fn a_job_is_found_wherever_the_framework_may_have_put_it() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let job = job_id(1);
    assert_eq!(yard.sight(&flight).await, underway(flight.at.clone(), false));

    // Its first attempt fails: it is on the clock before its entry goes.
    yard.schedule(&format!("retry:{job}:1")).await;
    assert_eq!(yard.sight(&flight).await, underway(flight.at.clone(), false));
    yard.ack(&flight).await;
    let clock = Whereabouts::Clock(format!("retry:{job}:1"));
    assert_eq!(yard.sight(&flight).await, underway(clock.clone(), true));
    let on_clock = Flight { at: clock.clone(), ..flight.clone() };
    assert_eq!(yard.sight(&on_clock).await, underway(clock, true));

    // It comes back to the queue, among others, and fails again, between two looks.
    let () = yard.con.del(SCHED).await.unwrap();
    for other in ["a", "b"] {
        yard.enqueue(other, "1").await;
    }
    let entry = yard.enqueue(&job, "1").await;
    assert_eq!(yard.sight(&on_clock).await, underway(queue(&entry), true));
    assert_eq!(yard.sight(&flight).await, underway(queue(&entry), true));
    let later = Flight { at: queue(&entry), ..flight.clone() };
    assert_eq!(yard.sight(&later).await, underway(queue(&entry), true));
    yard.ack(&later).await;
    yard.schedule(&format!("retry:{job}:19")).await;
    assert_eq!(yard.sight(&later).await, underway(Whereabouts::Clock(format!("retry:{job}:19")), true));

    // It runs through.
    let () = yard.con.del(SCHED).await.unwrap();
    for flight in [&flight, &on_clock, &later] {
        assert_eq!(yard.sight(flight).await, Sight::RanThrough);
    }
}

#[tokio::test]
async fn a_job_whose_task_no_worker_knows_is_found_on_the_clock() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let job = job_id(1);
    yard.ack(&flight).await;
    // The name holds its age in seconds, as of when it was put off.
    yard.schedule(&format!("unknown:{job}:5")).await;
    let name = Whereabouts::Clock(format!("unknown:{job}:5"));
    assert_eq!(yard.sight(&flight).await, underway(name.clone(), false));
    assert_eq!(yard.sight(&Flight { at: name.clone(), ..flight.clone() }).await, underway(name.clone(), false));
    let hours_ago = Flight { seen_at: Millis(flight.seen_at.0 - 7_200_000), ..flight.clone() };
    let () = yard.con.del(SCHED).await.unwrap();
    for flight in [&flight, &hours_ago] {
        assert_eq!(yard.sight(flight).await, Sight::RanThrough);
    }
    // Of a clock with too much on it to look through, names are asked for; after a long time there are too many.
    for n in 0..1_001 {
        yard.schedule(&format!("retry:other-{n}:1")).await;
    }
    assert_eq!(yard.sight(&flight).await, Sight::RanThrough);
    assert_eq!(yard.sight(&hours_ago).await, Sight::Unclear);
    yard.schedule(&format!("unknown:{job}:5")).await;
    assert_eq!(yard.sight(&flight).await, underway(name, false));
}

#[tokio::test]
async fn a_job_is_found_although_the_clock_was_set_back_since_it_was_seen() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let job = job_id(1);
    yard.ack(&flight).await;
    // What became of it since has happened before, by that clock.
    let seen = Flight { seen_at: Millis(flight.seen_at.0 + 60_000), ..flight };
    let name = format!("unknown:{job}:1");
    yard.schedule(&name).await;
    let look = async |yard: &Yard| yard.ledger.look(std::slice::from_ref(&seen)).await.unwrap().sights;
    assert_eq!(look(&yard).await, [underway(Whereabouts::Clock(name), false)]);
    let () = yard.con.del(SCHED).await.unwrap();
    let entry = yard.enqueue(&job, "1").await;
    assert_eq!(look(&yard).await, [underway(queue(&entry), true)]);
}

#[tokio::test]
async fn a_job_that_goes_on_has_not_died_although_an_earlier_life_was_buried_once_more() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let job = job_id(1);
    yard.bury(&letter(NS, 1)).await;
    assert_eq!(yard.sight(&flight).await, underway(flight.at.clone(), false));
    yard.ack(&flight).await;
    let name = format!("retry:{job}:1");
    yard.schedule(&name).await;
    assert_eq!(yard.sight(&flight).await, underway(Whereabouts::Clock(name), true));
    let () = yard.con.del(SCHED).await.unwrap();
    let entry = yard.enqueue(&job, "1").await;
    assert_eq!(yard.sight(&flight).await, underway(queue(&entry), true));
    yard.ack(&Flight { at: queue(&entry), ..flight.clone() }).await;
    assert_eq!(yard.sight(&flight).await, Sight::ReDied);
}

#[tokio::test]
async fn a_job_is_found_on_another_shard_when_their_number_has_changed() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let job = job_id(1);
    yard.ack(&flight).await;
    let shard = "{lrs}:q:default:5";
    let entry: String = yard.con.xadd(shard, "*", &[("id", job.as_str()), ("attempt", "1")]).await.unwrap();
    let there = queue(&format!("{entry} {shard}"));
    assert_eq!(yard.sight(&flight).await, underway(there.clone(), true));
    let found = Flight { at: there.clone(), ..flight.clone() };
    assert_eq!(yard.sight(&found).await, underway(there, true));
    // From there it may come back, or end.
    let _: u64 = yard.con.xdel(shard, &[&entry]).await.unwrap();
    assert_eq!(yard.sight(&found).await, Sight::RanThrough);
    let entry = yard.enqueue(&job, "2").await;
    let Sight::Underway { at: Whereabouts::Queue(at), failing: true } = yard.sight(&found).await else { panic!() };
    let back = Flight { at: queue(&at), ..flight };
    assert_eq!(at, format!("{entry} {QUEUE}"));
    assert_eq!(yard.sight(&back).await, underway(back.at.clone(), true));
}

#[tokio::test]
async fn a_new_death_counts_once_it_has_been_read() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    assert_eq!(yard.sight(&flight).await, underway(flight.at.clone(), false), "its worker has not let go of it yet");
    yard.ack(&flight).await;
    assert_eq!(yard.sight(&flight).await, Sight::Unclear, "whose death is unread?");
    yard.ingest(&waits).await;
    assert_eq!(yard.sight(&flight).await, Sight::ReDied);
    // Also when somebody has taken the entry away since.
    let () = yard.con.del(dlq(NS)).await.unwrap();
    assert_eq!(yard.sight(&flight).await, Sight::ReDied);
}

#[tokio::test]
async fn a_twin_that_is_read_late_is_no_new_death() {
    let mut yard = Yard::open().await;
    let first = yard.bury(&letter(NS, 1)).await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let flight = yard.send(&first).await;
    yard.ack(&flight).await;
    assert_eq!(yard.sight(&flight).await, Sight::Unclear);
    yard.ingest(&waits).await;
    assert_eq!(yard.sight(&flight).await, Sight::RanThrough);
}

#[tokio::test]
async fn a_death_taken_away_unread_hides_what_was_in_flight_then_and_nothing_else() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    yard.ack(&flight).await;
    let unread = bury(&mut yard.con, NS, &letter(NS, 2)).await;
    let () = yard.con.xdel(dlq(NS), &[unread]).await.unwrap();
    assert_eq!(yard.sight(&flight).await, Sight::Unclear);

    // It cannot have been the death of a job that was put back only afterwards.
    let mut yard = Yard::open().await;
    let id = yard.bury(&letter(NS, 1)).await;
    let unread = bury(&mut yard.con, NS, &letter(NS, 2)).await;
    let () = yard.con.xdel(dlq(NS), &[&unread]).await.unwrap();
    let over = unread.split('-').next().unwrap().parse::<i64>().unwrap();
    eventually("the next millisecond", SOON, || async {
        (yard.ledger.look(&[]).await.unwrap().at.0 > over).then_some(())
    })
    .await;
    let flight = yard.send(&id).await;
    yard.ack(&flight).await;
    assert_eq!(yard.sight(&flight).await, Sight::RanThrough);
}

#[tokio::test]
async fn a_clock_that_has_gone_back_tells_nothing_of_what_is_not_seen() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    let ahead = Flight { seen_at: Millis(flight.seen_at.0 + 60_000), ..flight.clone() };
    assert_eq!(
        yard.ledger.look(std::slice::from_ref(&ahead)).await.unwrap().sights,
        [underway(flight.at.clone(), false)]
    );
    yard.ack(&flight).await;
    assert_eq!(yard.ledger.look(&[ahead]).await.unwrap().sights, [Sight::Unclear]);
}

#[tokio::test]
async fn without_what_would_tell_of_a_death_nothing_is_concluded() {
    for (what, commands) in [
        ("no record", vec!["DEL {lrs}:sexton:job:JOB"]),
        ("a record of another type", vec!["DEL {lrs}:sexton:job:JOB", "SET {lrs}:sexton:job:JOB x"]),
        ("no cursor", vec!["HDEL {lrs}:sexton:state cursor"]),
        ("a cursor that is none", vec!["HSET {lrs}:sexton:state cursor x"]),
        ("no state", vec!["DEL {lrs}:sexton:state", "SET {lrs}:sexton:state x"]),
        ("no clock", vec!["DEL {lrs}:sched", "SET {lrs}:sched x"]),
        ("no queue", vec!["DEL {lrs}:q:default:0", "SET {lrs}:q:default:0 x"]),
        ("no DLQ", vec!["DEL {lrs}:dlq", "SET {lrs}:dlq x"]),
    ] {
        let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
        yard.ack(&flight).await;
        assert_eq!(yard.sight(&flight).await, Sight::RanThrough);
        for command in commands {
            let command = command.replace("JOB", &job_id(1));
            let words: Vec<_> = command.split(' ').collect();
            let () = redis::cmd(words[0]).arg(&words[1..]).query_async(&mut yard.con).await.unwrap();
        }
        assert_eq!(yard.sight(&flight).await, Sight::Unclear, "{what}");
    }
}

#[tokio::test]
async fn a_queue_with_too_much_on_it_tells_nothing_of_what_is_not_seen() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    yard.ack(&flight).await;
    for n in 0..1_000 {
        yard.enqueue(&n.to_string(), "0").await;
    }
    yard.enqueue(&job_id(1), "1").await;
    assert_eq!(yard.sight(&flight).await, Sight::Unclear);
    let () = redis::cmd("XTRIM").arg(&[QUEUE, "MAXLEN", "900"]).query_async(&mut yard.con).await.unwrap();
    assert!(matches!(yard.sight(&flight).await, Sight::Underway { failing: true, .. }));
}

#[tokio::test]
async fn a_job_dropped_for_its_dedup_key_did_not_run() {
    let mut fields = letter(NS, 1);
    fields.push((b"dedup".to_vec(), b"k".to_vec()));
    let (mut yard, flight) = in_flight(&fields).await;
    // Its high attempt is no failure.
    assert_eq!(yard.sight(&flight).await, underway(flight.at.clone(), false));
    yard.ack(&flight).await;
    for (owner, expected) in
        [(job_id(1), Sight::RanThrough), ("another".to_owned(), Sight::Swallowed), (job_id(1), Sight::RanThrough)]
    {
        let () = yard.con.set(format!("{{{NS}}}:dedup:k"), owner).await.unwrap();
        assert_eq!(yard.sight(&flight).await, expected);
    }
    let () = yard.con.del(format!("{{{NS}}}:dedup:k")).await.unwrap();
    assert_eq!(yard.sight(&flight).await, Sight::RanThrough);
}

#[tokio::test]
async fn many_are_looked_for_at_once_and_told_apart() {
    let mut yard = Yard::open().await;
    crate::support::graveyard::bury_many(&mut yard.con, NS, 0..230).await;
    yard.ingest(&waits).await;
    let ids: Vec<_> = yard.stream(&dlq(NS)).await.into_iter().map(|(id, _)| id).collect();
    let retries: Vec<_> = yard.ledger.standing(&ids).await.unwrap();
    let retries = retries.into_iter().flatten().map(|s| crate::support::yard::retry_of(&s.letter, s.job)).collect();
    yard.ledger.retry(&yard.lease, yard.generation, retries).await.unwrap();
    let mut flights = yard.ledger.flights().await.unwrap();
    flights
        .sort_by(|a, b| a.dead.entry_id.len().cmp(&b.dead.entry_id.len()).then(a.dead.entry_id.cmp(&b.dead.entry_id)));
    for flight in flights.iter().step_by(2) {
        yard.ack(flight).await;
    }
    let sights = yard.ledger.look(&flights).await.unwrap().sights;
    for (n, sight) in sights.iter().enumerate() {
        assert_eq!(*sight == Sight::RanThrough, n % 2 == 0, "{n}: {sight:?}");
    }
    assert_eq!(sights.len(), 230);
}

fn moved(flight: &Flight, at: Whereabouts) -> Flight {
    Flight { at, seen_at: Millis(flight.seen_at.0 + 1), ..flight.clone() }
}

#[tokio::test]
async fn a_verdict_is_written_once_with_its_event_and_its_line() {
    let (yard, flight) = in_flight(&letter(NS, 1)).await;
    let before = yard.ledger.outbox_len(Lane::Deaths).await.unwrap();
    let at = Whereabouts::Clock("retry:x:1".to_owned());
    let failing = Flight { failing: true, ..moved(&flight, at.clone()) };
    let step = |flight: &Flight, verdict, event: Option<&str>| {
        vec![Settled { flight: flight.clone(), verdict, event: event.map(str::to_owned) }]
    };
    // It moves; that alone says nothing.
    let there = moved(&flight, at);
    yard.ledger.settle(&yard.lease, &step(&there, None, None), &[]).await.unwrap();
    assert_eq!(yard.ledger.flights().await.unwrap(), [there]);
    assert_eq!(yard.audited().await.len(), 1);
    // It fails, and the answer to that is lost.
    for _ in 0..2 {
        yard.ledger.settle(&yard.lease, &step(&failing, Some(Verdict::Failing), None), &[]).await.unwrap();
        assert_eq!(yard.ledger.flights().await.unwrap(), std::slice::from_ref(&failing));
    }
    for _ in 0..2 {
        let settled = step(&failing, Some(Verdict::Recovered), Some(r#"{"source":"orders"}"#));
        yard.ledger.settle(&yard.lease, &settled, &[]).await.unwrap();
        assert_eq!(yard.ledger.flights().await.unwrap(), []);
    }
    let what: Vec<_> = yard.audited().await.into_iter().map(|(what, ..)| what).collect();
    assert_eq!(what, ["retried", "failing", "recovered"]);
    assert_eq!(yard.ledger.outbox_len(Lane::Deaths).await.unwrap(), before + 1);
    let outbox = yard.ledger.outbox(Lane::Deaths, OutboxId::default(), 100).await.unwrap();
    assert!(outbox.last.is_some());
}

#[tokio::test]
async fn a_verdict_about_an_earlier_retry_does_not_touch_a_later_one() {
    let (mut yard, first) = in_flight(&letter(NS, 1)).await;
    yard.end_all(Verdict::ReDied).await;
    yard.ack(&first).await;
    let id = yard.bury(&letter(NS, 1)).await;
    let second = yard.send(&id).await;
    let late = vec![Settled { flight: first, verdict: Some(Verdict::LostSight), event: None }];
    yard.ledger.settle(&yard.lease, &late, &[]).await.unwrap();
    assert_eq!(yard.ledger.flights().await.unwrap(), [second]);
    assert!(yard.audited().await.iter().all(|(what, ..)| what != "lost_sight"));
}

#[tokio::test]
async fn lessons_are_kept_for_as_long_as_they_say_and_holds_are_counted_by_rule() {
    let mut yard = Yard::open().await;
    let now = yard.ledger.look(&[]).await.unwrap().at.0.max(yard.ledger.clock().now().0);
    let pool = |rule, task| Pool::of(rule, task);
    let lesson = |pool: &Pool, group: Option<&str>, learnt: &str, keep: i64, held: Option<i64>| Lesson {
        pool: pool.clone(),
        group: group.map(str::to_owned),
        learnt: learnt.to_owned(),
        held_until: held.map(|held| Millis(now + held)),
        keep_until: Millis(now.saturating_add(keep)),
    };
    let (a, b) = (pool("flaky", "send"), pool("slow", "send"));
    let lessons = [
        lesson(&a, None, "of a", 60_000, Some(60_000)),
        lesson(&a, Some("g"), "of a's g", 60_000, Some(60_000)),
        lesson(&a, Some("h"), "of a's h", i64::MAX, Some(-5_000)),
        lesson(&b, Some("g"), "of b's g", 60_000, Some(60_000)),
        lesson(&b, None, "long over", -60_000, None),
    ];
    yard.ledger.settle(&yard.lease, &[], &lessons).await.unwrap();
    let of =
        [(a.clone(), None), (a.clone(), Some("g".to_owned())), (b.clone(), Some("g".to_owned())), (b.clone(), None)];
    let learnt = yard.ledger.learnt(&of).await.unwrap();
    let known = |text: &str| Some(text.to_owned());
    assert_eq!(learnt, [known("of a"), known("of a's g"), known("of b's g"), None]);
    let held = vec![("flaky".to_owned(), 1), ("slow".to_owned(), 1)];
    assert_eq!(yard.ledger.waiting().await.unwrap(), Waiting { entries: 0, held });
    let kept: i64 = yard.con.pttl(key(&format!("learnt:group:{}:g", a.0))).await.unwrap();
    assert!((30_000..=60_000).contains(&kept), "{kept}");
    let kept: i64 = yard.con.pttl(key(&format!("learnt:group:{}:h", a.0))).await.unwrap();
    assert!(kept > 86_400_000, "{kept}");

    let lessons = [lesson(&a, None, "", 60_000, None), lesson(&a, Some("g"), "more", 60_000, None)];
    yard.ledger.settle(&yard.lease, &[], &lessons).await.unwrap();
    assert_eq!(yard.ledger.learnt(&of).await.unwrap(), [None, known("more"), known("of b's g"), None]);
    assert_eq!(yard.ledger.waiting().await.unwrap().held, [("slow".to_owned(), 1)]);
    let kept: Vec<String> = yard.con.zrange(key("held"), 0, -1).await.unwrap();
    assert_eq!(kept, [format!("{}:g", b.0)], "what is over is not kept");
}

#[tokio::test]
async fn without_the_lease_memory_or_rights_nothing_is_settled() {
    let (lost, full) = (&["DEL", "{lrs}:sexton:lease"][..], &["CONFIG", "SET", "maxmemory", "1"][..]);
    for (command, expected) in
        [(lost, "fenced"), (full, "no_writes"), (&["ACL", "SETUSER", "default", "-zadd"], "denied")]
    {
        let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
        let event = Some(r#"{"source":"orders"}"#.to_owned());
        let settled = [Settled { flight, verdict: Some(Verdict::Recovered), event }];
        let lesson = Lesson {
            pool: Pool::of("flaky", "send"),
            group: None,
            learnt: "x".to_owned(),
            held_until: Some(Millis(1)),
            keep_until: Millis(i64::MAX),
        };
        let () = redis::cmd(command[0]).arg(&command[1..]).query_async(&mut yard.con).await.unwrap();
        let before = yard.picture().await;
        let refused = yard.ledger.settle(&yard.lease, &settled, &[lesson]).await;
        assert_eq!(refused.map_err(|error| error.code()), Err(expected));
        assert_eq!(yard.picture().await, before);
    }
}

#[tokio::test]
async fn flights_that_cannot_be_read_are_left_alone() {
    let (mut yard, flight) = in_flight(&letter(NS, 1)).await;
    for (job, value) in [("a", ""), ("b", "1-0 2-0 3 4 0 {}"), ("c", "1-0 2-0 x y 0 {}"), ("d", "{}")] {
        let () = yard.con.hset(key("flights"), job, value).await.unwrap();
    }
    assert_eq!(yard.ledger.flights().await.unwrap(), [flight]);
    assert_eq!(yard.ledger.survey(&yard.lease).await.unwrap().in_flight, 5);
}

#[tokio::test]
async fn the_audit_log_is_read_from_the_newest_line_on() {
    let mut yard = Yard::open().await;
    for n in 0..5 {
        let id = yard.bury(&letter(NS, n)).await;
        yard.send(&id).await;
    }
    let all = yard.ledger.audit(None, None, 10).await.unwrap();
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|line| line.at.0 > 0 && line.what == "retried"));
    assert_eq!(all[0].job_id, job_id(4));
    let page = yard.ledger.audit(None, None, 2).await.unwrap();
    let rest = yard.ledger.audit(Some(&page[1].id), None, 10).await.unwrap();
    assert_eq!([&page[..], &rest[..]].concat(), all);
}
