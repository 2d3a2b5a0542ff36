//! A graveyard under rules: a private Redis, a leader's ledger, and what a retry loop would ask of it.

use std::{sync::Arc, time::Duration};

use redis::{AsyncCommands as _, Value, aio::MultiplexedConnection};
use sexton::{
    config::{Secret, SecretSource, SmallageConfig, SourceConfig, SourceKind},
    event::{EventData, Include, JobDead},
    ledger::{
        AttachOptions, By, Commit, Committed, Cursor, Death, Flight, HandRetry, JobCounts, Lease, Ledger as _, Place,
        Plan, PlanEnd, Pool, Raised, Refusal, Retried, Retry, Rounds, Settled, SourceLedger, TriageLedger as _,
        TryLease, Verdict,
    },
    letter::{DeadLetter, Millis},
    smallage::{self, Smallage},
};

use super::{
    graveyard::{Fields, bury},
    redis::Redis,
};

/// The namespace of every yard.
pub(crate) const NS: &str = "lrs";
/// The queue stream that letters come from.
pub(crate) const QUEUE: &str = "{lrs}:q:default:0";
/// The rule of every yard.
pub(crate) const RULE: &str = "flaky";

fn config(redis: &Redis) -> SmallageConfig {
    let url = SecretSource::Inline(Secret::new(redis.url()));
    SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None }
}

/// A ledger on this Redis, as one replica would open it.
pub(crate) fn open(redis: &Redis) -> Arc<dyn SourceLedger> {
    smallage::open(&SourceConfig { name: "orders".to_owned(), kind: SourceKind::Smallage(config(redis)) })
        .expect("the namespace is good")
}

/// The same with all that a person can do, in another process than whoever leads.
pub(crate) fn smallage(redis: &Redis) -> Smallage {
    Smallage::new("orders", config(redis)).expect("the namespace is good")
}

/// A Redis with a leader on it, whose rules are in force.
pub(crate) struct Yard {
    /// The server.
    pub(crate) redis: Redis,
    /// A connection of the test's own.
    pub(crate) con: MultiplexedConnection,
    /// The leader's ledger.
    pub(crate) ledger: Arc<dyn SourceLedger>,
    /// The leader's lease.
    pub(crate) lease: Lease,
    /// How far the leader has read.
    pub(crate) cursor: Cursor,
    /// The generation of its rules.
    pub(crate) generation: u64,
}

/// What a plan is made of: the letter, and what is known of its job.
pub(crate) type Planner<'a> = &'a (dyn Fn(&DeadLetter, JobCounts) -> Option<Plan> + Sync);

impl Yard {
    /// With the queue's stream there, and nothing dead yet.
    pub(crate) async fn open() -> Yard {
        Yard::on(Redis::start().await).await
    }

    /// The same on this Redis.
    pub(crate) async fn on(redis: Redis) -> Yard {
        let ledger = open(&redis);
        let mut con = redis.connect().await;
        let TryLease::Acquired(lease) = ledger.try_lease("me", Duration::from_secs(60), 0).await.expect("it is there")
        else {
            panic!("nobody else wants the lease")
        };
        let options = AttachOptions { announce_existing: true, ..AttachOptions::default() };
        let cursor = ledger.attach(&lease, options).await.expect("the lease is ours").cursor;
        let generation = ledger.adopt_rules(&lease, &cursor, "rules").await.expect("the lease is ours");
        let () = con.xgroup_create_mkstream(QUEUE, "workers", "0").await.expect("the queue can be made");
        Yard { redis, con, ledger, lease, cursor, generation }
    }

    /// Buries a letter, and has it read and planned.
    pub(crate) async fn bury(&mut self, fields: &Fields) -> String {
        let id = bury(&mut self.con, NS, fields).await;
        self.ingest(&waits).await;
        id
    }

    /// Reads on and commits, with these plans; plans anew where they are stale.
    pub(crate) async fn ingest(&mut self, plan: Planner<'_>) -> Committed {
        let batch = self.ledger.read(&self.cursor, 1_000, None).await.expect("Redis is there");
        let mut counts = vec![JobCounts::default(); batch.letters.len()];
        for _ in 0..2 {
            let deaths = batch.letters.iter().zip(&counts).map(|(letter, counts)| death(letter, plan(letter, *counts)));
            let commit = Commit {
                from: self.cursor.clone(),
                to: batch.cursor.clone(),
                deaths: deaths.collect(),
                existing: None,
                generation: self.generation,
            };
            match self.ledger.commit(&self.lease, commit).await.expect("the lease is ours") {
                PlanEnd::Stands(committed) => {
                    self.cursor = batch.cursor;
                    return committed;
                }
                PlanEnd::Stale(known) => counts = known,
            }
        }
        panic!("plans by what is known are not stale")
    }

    /// What is in the DLQ counts as read, without a word about it; how far that is.
    pub(crate) async fn skip_to_the_end(&mut self) -> Cursor {
        let batch = self.ledger.read(&self.cursor, 10_000, None).await.expect("Redis is there");
        let commit = Commit {
            from: self.cursor.clone(),
            to: batch.cursor.clone(),
            deaths: batch.letters.iter().map(|letter| Death { event: None, ..death(letter, None) }).collect(),
            existing: None,
            generation: self.generation,
        };
        self.ledger.commit(&self.lease, commit).await.expect("the lease is ours");
        batch.cursor
    }

    /// The retry of an entry as it stands now, allowed by everything.
    pub(crate) async fn planned(&self, entry: &str) -> Retry {
        let standing = self.ledger.standing(&[entry.to_owned()]).await.expect("Redis is there");
        let standing = standing.into_iter().next().flatten().expect("the entry is there");
        retry_of(&standing.letter, standing.job)
    }

    /// Retries one; what became of it.
    pub(crate) async fn retry(&self, retry: Retry) -> Retried {
        let mut retried = self.ledger.retry(&self.lease, self.generation, vec![retry]).await.expect("it is there");
        assert_eq!(retried.len(), 1);
        retried.swap_remove(0)
    }

    /// Retries one that nothing is in the way of.
    pub(crate) async fn send(&self, entry: &str) -> Flight {
        match self.retry(self.planned(entry).await).await {
            Retried::Sent(flight) => *flight,
            Retried::Refused(why) => panic!("{why:?}"),
        }
    }

    /// Retries one that something is in the way of.
    pub(crate) async fn refusal(&self, retry: Retry) -> Refusal {
        match self.retry(retry).await {
            Retried::Sent(flight) => panic!("{flight:?}"),
            Retried::Refused(why) => why,
        }
    }

    /// Ends every flight with this verdict.
    pub(crate) async fn end_all(&self, verdict: Verdict) {
        let flights = self.ledger.flights().await.expect("Redis is there");
        let ended = |flight| Settled { flight, verdict: Some(verdict), event: None };
        let settled: Vec<_> = flights.into_iter().map(ended).collect();
        self.ledger.settle(&self.lease, &settled, &[]).await.expect("the lease is ours");
    }

    /// The entries of a stream: ids, and fields as stored.
    pub(crate) async fn stream(&mut self, key: &str) -> Vec<(String, Fields)> {
        let answer = redis::cmd("XRANGE").arg(key).arg("-").arg("+").query_async(&mut self.con).await;
        let Value::Array(entries) = answer.expect("it can be read") else { panic!("XRANGE gives an array") };
        entries
            .into_iter()
            .map(|entry| redis::from_redis_value::<(String, Vec<Vec<u8>>)>(entry).expect("an entry has this shape"))
            .map(|(id, flat)| (id, flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()))
            .collect()
    }

    /// Entries that the index says it has, and those it has.
    pub(crate) async fn indexed(&mut self) -> (u64, u64) {
        let said = self.ledger.waiting().await.expect("Redis is there").entries;
        let groups: Vec<String> =
            self.con.keys(format!("{{{NS}}}:sexton:due:{}:*:*:*", self.generation)).await.unwrap();
        let mut there = 0;
        for group in groups {
            there += self.con.zcard::<_, u64>(group).await.expect("it is a sorted set");
        }
        (said, there)
    }

    /// What the audit log says, oldest first: what, entry, job.
    pub(crate) async fn audited(&self) -> Vec<(String, String, String)> {
        let mut lines = self.ledger.audit(None, None, 1_000).await.expect("Redis is there");
        lines.reverse();
        lines.into_iter().map(|line| (line.what, line.entry_id, line.job_id)).collect()
    }

    /// Every key and what it holds, to compare.
    pub(crate) async fn picture(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut keys: Vec<String> = self.con.keys("*").await.expect("Redis is there");
        keys.sort();
        let mut all = Vec::new();
        for key in keys {
            let dump: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut self.con).await.expect("Redis is there");
            all.push((key, dump));
        }
        all
    }
}

/// A person, with a reason.
pub(crate) fn anna() -> By {
    By { who: "anna@host".to_owned(), note: "smtp is back".to_owned(), operation: String::new() }
}

/// What a person asks for who wants these entries retried.
pub(crate) async fn wanted(ledger: &Smallage, entries: &[String]) -> Vec<HandRetry> {
    let mut retries = Vec::new();
    for entry in entries {
        let letter = ledger.entry(entry).await.expect("Redis is there").expect("the entry is there").letter;
        retries.push(hand_retry_of(&letter));
    }
    retries
}

/// A letter's retry by hand.
pub(crate) fn hand_retry_of(letter: &DeadLetter) -> HandRetry {
    HandRetry {
        dead: JobDead { deaths: 1, retries: 0, ..JobDead::of("orders", letter, Include::default()) },
        stream: letter.origin.clone(),
        dedup: letter.dedup.clone(),
        confirm_within: Duration::from_secs(900),
    }
}

/// Retries one entry by hand.
pub(crate) async fn by_hand(ledger: &Smallage, entry: &str) -> Raised {
    let retries = wanted(ledger, &[entry.to_owned()]).await;
    let mut raised = ledger.retry_by_hand(&anna(), retries).await.expect("Redis is there");
    assert_eq!(raised.len(), 1);
    raised.swap_remove(0)
}

/// Where the letters of a yard wait.
pub(crate) fn place(letter: &DeadLetter) -> Place {
    Place { pool: Pool::of(RULE, &letter.task), group: letter.group.0.clone() }
}

/// The plan to wait until the death, which is long over.
pub(crate) fn waits(letter: &DeadLetter, job: JobCounts) -> Option<Plan> {
    Some(Plan::Wait { place: place(letter), due: Millis(1_000), retries: job.retries })
}

/// The plan that nothing is granted any more.
pub(crate) fn spent(letter: &DeadLetter, job: JobCounts) -> Option<Plan> {
    let dead =
        JobDead { deaths: job.deaths + 1, retries: job.retries, ..JobDead::of("orders", letter, Include::default()) };
    let event = EventData::JobExhausted(Box::new(dead)).to_json();
    Some(Plan::Spent { event, rule: RULE.to_owned(), retries: job.retries })
}

/// A death of this letter, announced.
pub(crate) fn death(letter: &DeadLetter, plan: Option<Plan>) -> Death {
    Death {
        entry_id: letter.entry_id.clone(),
        job_id: letter.job_id.clone(),
        at: letter.died_at,
        event: Some(JobDead::of("orders", letter, Include::default()).to_json()),
        plan,
    }
}

/// A retry that every limit allows.
pub(crate) fn retry_of(letter: &DeadLetter, job: JobCounts) -> Retry {
    Retry {
        place: place(letter),
        dead: JobDead {
            deaths: job.deaths,
            retries: job.retries + 1,
            ..JobDead::of("orders", letter, Include::default())
        },
        stream: letter.origin.clone(),
        dedup: letter.dedup.clone(),
        retries: job.retries,
        max_retries: 3,
        not_before: Millis(1_000),
        max_queue_length: 10_000,
        confirm_within: Duration::from_secs(900),
        rounds: Rounds { pool: 1, group: 2, canary: true },
        event: r#"{"source":"orders"}"#.to_owned(),
    }
}
