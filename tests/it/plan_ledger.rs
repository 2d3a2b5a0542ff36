//! Commits under rules, and judging anew when they change, in a real Redis.

use std::time::Duration;

use redis::AsyncCommands as _;
use sexton::{
    event::{EventData, Lane},
    ledger::{
        AttachOptions, Commit, Committed, Cursor, Death, JobCounts, Judge, Judged, Judging, OutboxId, Place, Plan,
        PlanEnd, StoreError, TryLease, Verdict,
    },
    letter::{DeadLetter, Millis},
};

use crate::support::{
    graveyard::{bury, bury_many, dlq, job_id, letter, with},
    yard::{NS, Yard, death, place, spent, waits},
};

fn key(name: &str) -> String {
    format!("{{{NS}}}:sexton:{name}")
}

/// The events on the outbox: kind, deaths and retries.
async fn told(yard: &Yard) -> Vec<(&'static str, u32, u32)> {
    let page = yard.ledger.outbox(Lane::Deaths, OutboxId::default(), 100).await.unwrap();
    let one = |data: &EventData| match data {
        EventData::JobDead(dead) | EventData::JobExhausted(dead) => (data.kind().as_str(), dead.deaths, dead.retries),
        other => (other.kind().as_str(), 0, 0),
    };
    page.events.iter().map(|posted| one(&posted.event.data)).collect()
}

fn judged(
    letters: &[DeadLetter],
    counts: &[JobCounts],
    plan: impl Fn(&DeadLetter, JobCounts) -> Option<Plan>,
) -> Vec<Judged> {
    let one = |(letter, counts): (&DeadLetter, &JobCounts)| Judged {
        entry_id: letter.entry_id.clone(),
        job_id: letter.job_id.clone(),
        plan: plan(letter, *counts),
    };
    letters.iter().zip(counts).map(one).collect()
}

/// Judges what there is to judge, in pages; how many entries that were.
async fn judge_all(yard: &Yard, plan: impl Fn(&DeadLetter, JobCounts) -> Option<Plan>) -> usize {
    let mut all = 0;
    loop {
        let judging = yard.ledger.judging().await.unwrap();
        if !yard.ledger.is_after(&judging.until.0, &judging.judged) {
            return all;
        }
        let (batch, counts) = yard.ledger.read_to_judge(&judging.judged, &judging.until, 2).await.unwrap();
        let entries = judged(&batch.letters, &counts, &plan);
        all += entries.len();
        let step = Judge { generation: judging.generation, from: judging.judged, to: batch.cursor, entries };
        let end = yard.ledger.judge(&yard.lease, step).await.unwrap();
        assert!(matches!(end, PlanEnd::Stands(_)), "{end:?}");
    }
}

#[tokio::test]
async fn a_plan_for_another_number_of_retries_writes_nothing_and_tells_all_counts() {
    let mut yard = Yard::open().await;
    let again = letter(NS, 1);
    let id = yard.bury(&again).await;
    yard.send(&id).await;
    for fields in [&letter(NS, 2), &again, &again, &with(&again, "id", b"")] {
        bury(&mut yard.con, NS, fields).await;
    }
    let batch = yard.ledger.read(&yard.cursor, 10, None).await.unwrap();
    let plan = |letter| waits(letter, JobCounts::default());
    let commit = Commit {
        from: yard.cursor.clone(),
        to: batch.cursor.clone(),
        deaths: batch.letters.iter().map(|letter| death(letter, plan(letter))).collect(),
        existing: None,
        generation: yard.generation,
    };
    let before = yard.picture().await;
    let end = yard.ledger.commit(&yard.lease, commit).await.unwrap();
    let counts = |deaths, retries| JobCounts { deaths, retries };
    assert_eq!(end, PlanEnd::Stale(vec![counts(0, 0), counts(1, 1), counts(2, 1), counts(0, 0)]));
    assert_eq!(yard.picture().await, before);

    let committed = yard.ingest(&waits).await;
    assert_eq!(committed.jobs, [counts(1, 0), counts(2, 1), counts(3, 1), counts(1, 0)]);
    assert_eq!(committed.elsewhere, Vec::<usize>::new());
    assert_eq!(yard.indexed().await, (4, 4));
    let dead: Vec<_> = told(&yard).await.into_iter().filter(|(kind, ..)| *kind == "job.dead").collect();
    assert_eq!(
        dead,
        [("job.dead", 1, 0), ("job.dead", 1, 0), ("job.dead", 2, 1), ("job.dead", 3, 1), ("job.dead", 1, 0)]
    );
}

#[tokio::test]
async fn a_commit_by_other_rules_than_the_ledgers_is_refused() {
    let mut yard = Yard::open().await;
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let batch = yard.ledger.read(&yard.cursor, 10, None).await.unwrap();
    let before = yard.picture().await;
    for generation in [0, yard.generation + 1] {
        let commit = Commit {
            from: yard.cursor.clone(),
            to: batch.cursor.clone(),
            deaths: vec![death(&batch.letters[0], None)],
            existing: None,
            generation,
        };
        assert_eq!(yard.ledger.commit(&yard.lease, commit).await, Err(StoreError::Moved), "{generation}");
    }
    assert_eq!(yard.picture().await, before);
}

#[tokio::test]
async fn without_memory_or_rights_a_commit_with_plans_leaves_everything_as_it_was() {
    for setting in [
        &["CONFIG", "SET", "maxmemory", "1"][..],
        &["ACL", "SETUSER", "default", "-zadd"],
        &["ACL", "SETUSER", "default", "-xdel"],
    ] {
        let mut yard = Yard::open().await;
        bury(&mut yard.con, NS, &letter(NS, 1)).await;
        let batch = yard.ledger.read(&yard.cursor, 10, None).await.unwrap();
        let before = yard.picture().await;
        let () = redis::cmd(setting[0]).arg(&setting[1..]).query_async(&mut yard.con).await.unwrap();
        for event in [true, false] {
            let death = death(&batch.letters[0], waits(&batch.letters[0], JobCounts::default()));
            let event = death.event.clone().filter(|_| event);
            let commit = Commit {
                from: yard.cursor.clone(),
                to: batch.cursor.clone(),
                deaths: vec![Death { event, ..death }],
                existing: None,
                generation: yard.generation,
            };
            let refused = yard.ledger.commit(&yard.lease, commit).await;
            assert!(matches!(refused, Err(StoreError::NoWrites(_) | StoreError::Denied(_))), "{refused:?}");
            assert_eq!(yard.picture().await, before);
        }
    }
}

#[tokio::test]
async fn that_an_allowance_is_spent_is_said_once_until_the_job_is_retried_again() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let id = yard.bury(&fields).await;
    yard.send(&id).await;
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&spent).await.exhausted, [0]);
    bury(&mut yard.con, NS, &fields).await;
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&spent).await.exhausted, Vec::<usize>::new());
    let exhausted = |told: Vec<(&'static str, u32, u32)>| {
        told.into_iter().filter(|(kind, ..)| *kind == "job.exhausted").collect::<Vec<_>>()
    };
    assert_eq!(exhausted(told(&yard).await), [("job.exhausted", 2, 1)]);
    let lines: Vec<_> =
        yard.ledger.audit(None, None, 10).await.unwrap().into_iter().filter(|line| line.what == "exhausted").collect();
    assert_eq!(
        (lines.len(), &*lines[0].by, &*lines[0].task, &*lines[0].job_id),
        (1, "flaky", "charge_card", &*job_id(1))
    );
    assert_eq!(yard.indexed().await, (0, 0), "nothing waits");

    // Rules that grant more put it back; when that is spent, it is news.
    let entries = yard.stream(&dlq(NS)).await;
    yard.end_all(Verdict::ReDied).await;
    yard.send(&entries[2].0).await;
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&spent).await.exhausted, [0]);
    assert_eq!(exhausted(told(&yard).await).len(), 2);
}

#[tokio::test]
async fn a_job_that_others_have_put_back_is_told_apart() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let first = yard.bury(&fields).await;
    // Somebody takes it out, and it dies again; both burials may come in one batch.
    let () = yard.con.xdel(dlq(NS), &[&first]).await.unwrap();
    let second = bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&waits).await.elsewhere, [0]);
    // A twin of a crash is none: its brother is still there.
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&waits).await.elsewhere, Vec::<usize>::new());
    // Nor is a death after a retry of ours.
    let third = yard.stream(&dlq(NS)).await[1].0.clone();
    assert_ne!(third, second);
    yard.send(&third).await;
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&waits).await.elsewhere, Vec::<usize>::new());
    let last = yard.stream(&dlq(NS)).await[0].0.clone();
    let () = yard.con.xdel(dlq(NS), &[last]).await.unwrap();
    bury(&mut yard.con, NS, &letter(NS, 2)).await;
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&waits).await.elsewhere, [1]);
}

#[tokio::test]
async fn retries_count_although_the_death_before_them_is_forgotten() {
    let mut yard = Yard::open().await;
    let fields = letter(NS, 1);
    let id = yard.bury(&fields).await;
    // Its record has expired, while the entry was waiting for its rules.
    let record = key(&format!("job:{}", job_id(1)));
    let () = yard.con.del(&record).await.unwrap();
    yard.generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    judge_all(&yard, waits).await;
    let kept: i64 = yard.con.pttl(&record).await.unwrap();
    assert!(kept > 29 * 24 * 3_600_000, "what is made anew expires, too: {kept}");
    let () = yard.con.del(&record).await.unwrap();
    yard.send(&id).await;
    let kept: i64 = yard.con.pttl(&record).await.unwrap();
    assert!(kept > 29 * 24 * 3_600_000, "{kept}");
    bury(&mut yard.con, NS, &fields).await;
    assert_eq!(yard.ingest(&waits).await.jobs, [JobCounts { deaths: 1, retries: 1 }]);
}

#[tokio::test]
async fn rules_are_adopted_once_and_a_new_index_begins() {
    let mut yard = Yard::open().await;
    let id = yard.bury(&letter(NS, 1)).await;
    assert_eq!(yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "rules").await, Ok(yard.generation));
    assert_eq!(yard.indexed().await, (1, 1), "the same rules change nothing");
    let elsewhere = Cursor("5-5".to_owned());
    assert_eq!(yard.ledger.adopt_rules(&yard.lease, &elsewhere, "others").await, Err(StoreError::Moved));

    let next = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    assert!(next > yard.generation);
    let judging = yard.ledger.judging().await.unwrap();
    let expected = Judging {
        generation: next,
        fingerprint: "others".to_owned(),
        judged: Cursor("0-0".to_owned()),
        until: Cursor(id.clone()),
    };
    assert_eq!(judging, expected);
    yard.generation = next;
    assert_eq!(yard.indexed().await, (0, 0));
    // Without rules nothing is to be judged.
    let none = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "").await.unwrap();
    let judging = yard.ledger.judging().await.unwrap();
    assert!(none > next && !yard.ledger.is_after(&judging.until.0, &judging.judged));
}

#[tokio::test]
async fn where_there_never_were_rules_none_are_adopted() {
    let redis = crate::support::redis::Redis::start().await;
    let ledger = crate::support::yard::open(&redis);
    let TryLease::Acquired(lease) = ledger.try_lease("me", Duration::from_secs(60), 0).await.unwrap() else { panic!() };
    let cursor = ledger.attach(&lease, AttachOptions::default()).await.unwrap().cursor;
    assert_eq!(ledger.adopt_rules(&lease, &cursor, "").await, Ok(0));
    let nothing = Judging { judged: Cursor("0-0".to_owned()), until: Cursor("0-0".to_owned()), ..Judging::default() };
    assert_eq!(ledger.judging().await.unwrap(), nothing);
    assert_eq!(ledger.discard_old(&lease, 10).await, Ok(false));
}

#[tokio::test]
async fn what_was_there_is_judged_anew_in_pages() {
    let mut yard = Yard::open().await;
    let ids = bury_many(&mut yard.con, NS, 0..5).await;
    let twin = bury(&mut yard.con, NS, &letter(NS, 4)).await;
    yard.ingest(&|_, _| None).await;
    assert_eq!(yard.indexed().await, (0, 0));
    yard.generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    // What dies meanwhile is planned when it is read.
    yard.bury(&letter(NS, 9)).await;
    let () = yard.con.xdel(dlq(NS), &[&ids[1]]).await.unwrap();
    assert_eq!(judge_all(&yard, waits).await, 5);
    assert_eq!(yard.indexed().await, (6, 6));
    // A job's entries are known again: the older one gives way.
    let older = yard.planned(&ids[4]).await;
    assert_eq!(yard.refusal(older).await.as_str(), "superseded");
    yard.send(&twin).await;
    assert!(yard.stream(&dlq(NS)).await.iter().all(|(id, _)| *id != ids[4]));
}

#[tokio::test]
async fn a_step_of_judging_counts_once_and_leaves_out_what_is_gone() {
    let mut yard = Yard::open().await;
    let ids = bury_many(&mut yard.con, NS, 0..3).await;
    yard.ingest(&|_, _| None).await;
    yard.generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    let from = Cursor("0-0".to_owned());
    let (batch, counts) = yard.ledger.read_to_judge(&from, &yard.cursor, 10).await.unwrap();
    assert_eq!(counts, [JobCounts { deaths: 1, retries: 0 }; 3]);
    assert!(batch.caught_up && batch.cursor == yard.cursor && batch.heaviest > 500);
    let step = Judge {
        generation: yard.generation,
        from,
        to: batch.cursor.clone(),
        entries: judged(&batch.letters, &counts, |letter, counts| {
            if letter.entry_id == ids[0] { spent(letter, counts) } else { waits(letter, counts) }
        }),
    };
    let mut old = step.clone();
    old.generation -= 1;
    let mut stale = step.clone();
    if let Some(Plan::Wait { retries, .. }) = &mut stale.entries[2].plan {
        *retries = 1;
    }
    let before = yard.picture().await;
    assert_eq!(yard.ledger.judge(&yard.lease, old).await, Err(StoreError::Moved));
    assert_eq!(yard.ledger.judge(&yard.lease, stale).await, Ok(PlanEnd::Stale(counts)));
    assert_eq!(yard.picture().await, before);

    let () = yard.con.xdel(dlq(NS), &[&ids[1]]).await.unwrap();
    let PlanEnd::Stands(Committed { jobs, exhausted, elsewhere, .. }) =
        yard.ledger.judge(&yard.lease, step.clone()).await.unwrap()
    else {
        panic!("the plans are as they should be")
    };
    assert_eq!((jobs.len(), exhausted, elsewhere.len()), (0, vec![0], 0));
    assert_eq!(yard.indexed().await, (1, 1));
    let after = yard.picture().await;
    assert_eq!(yard.ledger.judge(&yard.lease, step).await, Err(StoreError::Moved), "once only");
    assert_eq!(yard.picture().await, after);
}

#[tokio::test]
async fn old_indexes_are_discarded_bit_by_bit_and_the_present_one_stays() {
    let mut yard = Yard::open().await;
    bury_many(&mut yard.con, NS, 0..20).await;
    // A group of each entry.
    let alone = |letter: &DeadLetter, job: JobCounts| {
        let place = Place { group: letter.entry_id.clone(), ..place(letter) };
        Some(Plan::Wait { place, due: Millis(1), retries: job.retries })
    };
    yard.ingest(&alone).await;
    yard.generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "others").await.unwrap();
    judge_all(&yard, waits).await;
    let () = yard.con.set(key("due:1:rubbish"), "x").await.unwrap();
    let () = yard.con.zadd(key("due:1"), "rubbish", 1).await.unwrap();
    let mut rounds = 0;
    while yard.ledger.discard_old(&yard.lease, 6).await.unwrap() {
        rounds += 1;
        assert!(rounds < 20);
    }
    assert!(rounds >= 3, "{rounds}");
    let left: Vec<String> = yard.con.keys(key("due:1*")).await.unwrap();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(yard.indexed().await, (20, 20));
    let before = yard.picture().await;
    assert_eq!(yard.ledger.discard_old(&yard.lease, 6).await, Ok(false));
    assert_eq!(yard.picture().await, before);
}

#[tokio::test]
async fn an_index_that_a_lost_state_has_left_behind_is_not_taken_up() {
    let mut yard = Yard::open().await;
    yard.bury(&letter(NS, 1)).await;
    let () = yard.con.del(key("state")).await.unwrap();
    yard.cursor = yard.ledger.attach(&yard.lease, AttachOptions::default()).await.unwrap().cursor;
    let generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, "rules").await.unwrap();
    assert!(generation > yard.generation);
    yard.generation = generation;
    assert_eq!(yard.indexed().await, (0, 0));
    while yard.ledger.discard_old(&yard.lease, 6).await.unwrap() {}
    let left: Vec<String> = yard.con.keys(key("due:*")).await.unwrap();
    assert_eq!(left, Vec::<String>::new());
    // The entries are read, and planned, anew.
    yard.ingest(&waits).await;
    assert_eq!(yard.indexed().await, (1, 1));
}
