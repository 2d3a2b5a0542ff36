//! Deaths, crashes of workers, retries, changes of the rules and people at random, on a real Redis: what must hold after
//! every step, whatever came before it.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice::from_ref,
};

use redis::AsyncCommands as _;
use sexton::{
    ledger::{JobCounts, Judge, Judged, Plan, Retried, Retry, Settled, Sight, Verdict},
    letter::DeadLetter,
};

use crate::support::{
    graveyard::{bury, dlq, job_id, letter, with},
    yard::{NS, QUEUE, Yard, retry_of, spent, waits},
};

const SEEDS: u64 = 12;
const STEPS: usize = 150;
const JOBS: u64 = 4;
const MOST: u32 = 3;

fn plan(letter: &DeadLetter, job: JobCounts) -> Option<Plan> {
    if job.retries < MOST { waits(letter, job) } else { spent(letter, job) }
}

struct World {
    yard: Yard,
    dice: fastrand::Rng,
    /// Every burial that there was.
    burials: BTreeSet<String>,
    /// Burials that people have removed.
    by_hand: BTreeSet<String>,
    rules: u64,
}

impl World {
    async fn bury(&mut self, job: u64) {
        // The same job may fail in two ways, and so wait in two groups.
        let fields = with(&letter(NS, job), "dlq_detail", format!("E{}: x", self.dice.u8(..2)).as_bytes());
        self.burials.insert(bury(&mut self.yard.con, NS, &fields).await);
    }

    /// A worker takes something off the queue: it runs through, it dies, or its worker dies just after burying it.
    async fn work(&mut self) {
        let queue = self.yard.stream(QUEUE).await;
        let Some((entry, fields)) = self.dice.choice(&queue) else { return };
        let id = &fields.iter().find(|(name, _)| name == b"id").unwrap().1;
        let job = (0..JOBS).find(|job| job_id(*job).as_bytes() == id).unwrap();
        let fate = self.dice.u8(..3);
        if fate > 0 {
            self.bury(job).await;
        }
        if fate < 2 {
            let _: u64 = self.yard.con.xdel(QUEUE, &[entry]).await.unwrap();
        }
    }

    async fn retry(&mut self) {
        let mut entries: Vec<String> = self.burials.iter().cloned().collect();
        self.dice.shuffle(&mut entries);
        entries.truncate(6);
        let standing = self.yard.ledger.standing(&entries).await.unwrap();
        let retries: Vec<_> = standing
            .into_iter()
            .flatten()
            // Only what has been read can be in the index.
            .filter(|standing| !self.yard.ledger.is_after(&standing.letter.entry_id, &self.yard.cursor))
            .map(|standing| Retry { max_retries: MOST, ..retry_of(&standing.letter, standing.job) })
            .collect();
        let retried = self.yard.ledger.retry(&self.yard.lease, self.yard.generation, retries).await.unwrap();
        for outcome in retried {
            if let Retried::Sent(flight) = outcome {
                assert_eq!(self.yard.ledger.look(from_ref(&flight)).await.unwrap().sights.len(), 1);
            }
        }
    }

    async fn settle(&mut self) {
        let flights = self.yard.ledger.flights().await.unwrap();
        let sights = self.yard.ledger.look(&flights).await.unwrap().sights;
        let mut settled = Vec::new();
        for (flight, sight) in flights.into_iter().zip(sights) {
            let verdict = match sight {
                Sight::RanThrough => Verdict::Recovered,
                Sight::ReDied => Verdict::ReDied,
                Sight::Underway { .. } | Sight::Unclear | Sight::Swallowed => continue,
            };
            settled.push(Settled { flight, verdict: Some(verdict), event: None });
        }
        self.yard.ledger.settle(&self.yard.lease, &settled, &[]).await.unwrap();
    }

    async fn change_rules(&mut self) {
        self.rules += 1;
        let yard = &mut self.yard;
        let fingerprint = self.rules.to_string();
        yard.generation = yard.ledger.adopt_rules(&yard.lease, &yard.cursor, &fingerprint).await.unwrap();
        loop {
            let judging = yard.ledger.judging().await.unwrap();
            if !yard.ledger.is_after(&judging.until.0, &judging.judged) {
                break;
            }
            let (batch, counts) = yard.ledger.read_to_judge(&judging.judged, &judging.until, 3).await.unwrap();
            let entries = batch.letters.iter().zip(counts).map(|(letter, counts)| Judged {
                entry_id: letter.entry_id.clone(),
                job_id: letter.job_id.clone(),
                plan: plan(letter, counts),
            });
            let entries = entries.collect();
            let step = Judge { generation: judging.generation, from: judging.judged, to: batch.cursor, entries };
            yard.ledger.judge(&yard.lease, step).await.unwrap();
        }
        while yard.ledger.discard_old(&yard.lease, 3).await.unwrap() {}
    }

    async fn step(&mut self) {
        match self.dice.u8(..20) {
            0..4 => {
                let job = self.dice.u64(..JOBS);
                // A job that lives is not enqueued again by its own application.
                let living = self.yard.stream(QUEUE).await.len() + self.yard.stream(&dlq(NS)).await.len();
                if living < 3 {
                    self.bury(job).await;
                }
            }
            4..9 => self.work().await,
            9..12 => drop(self.yard.ingest(&plan).await),
            12..16 => self.retry().await,
            16..18 => self.settle().await,
            18 => {
                let dead = self.yard.stream(&dlq(NS)).await;
                if let Some((entry, _)) = self.dice.choice(&dead) {
                    let _: u64 = self.yard.con.xdel(dlq(NS), &[entry]).await.unwrap();
                    self.by_hand.insert(entry.clone());
                }
            }
            _ => self.change_rules().await,
        }
    }

    async fn check(&mut self) {
        let (said, there) = self.yard.indexed().await;
        assert_eq!(said, there, "the index says how much is in it");
        let dead: BTreeSet<String> = self.yard.stream(&dlq(NS)).await.into_iter().map(|(id, _)| id).collect();
        let mut left: BTreeMap<String, u32> = BTreeMap::new();
        let mut retried: BTreeMap<String, u32> = BTreeMap::new();
        let mut aloft: BTreeSet<String> = BTreeSet::new();
        for (what, entry, job) in self.yard.audited().await {
            match what.as_str() {
                "retried" => {
                    assert!(aloft.insert(job.clone()), "{job} is in flight twice");
                    *retried.entry(job).or_default() += 1;
                    *left.entry(entry).or_default() += 1;
                }
                "twin_removed" => *left.entry(entry).or_default() += 1,
                "recovered" | "re_died" => assert!(aloft.remove(&job), "{job} was in flight"),
                "exhausted" => {}
                other => panic!("{other}"),
            }
        }
        for entry in &self.by_hand {
            *left.entry(entry.clone()).or_default() += 1;
        }
        for entry in &self.burials {
            let times = left.get(entry).copied().unwrap_or(0) + u32::from(dead.contains(entry));
            assert_eq!(times, 1, "{entry} is in the DLQ, or has left it in one way");
        }
        let flights: BTreeSet<_> =
            self.yard.ledger.flights().await.unwrap().into_iter().map(|f| f.dead.job_id.unwrap()).collect();
        assert_eq!(flights, aloft);
        let jobs: Vec<String> = (0..JOBS).map(job_id).collect();
        for (job, counts) in jobs.iter().zip(self.yard.ledger.jobs(&jobs).await.unwrap()) {
            assert_eq!(counts.retries, retried.get(job).copied().unwrap_or(0), "{job}");
            assert!(counts.retries <= MOST, "{job}: {counts:?}");
        }
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "where it was is shown when the test fails")]
async fn whatever_happens_nothing_is_lost_counted_twice_or_sent_twice() {
    let mut happened: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut world = World {
            yard: Yard::open().await,
            dice: fastrand::Rng::with_seed(seed),
            burials: BTreeSet::new(),
            by_hand: BTreeSet::new(),
            rules: 0,
        };
        for n in 0..STEPS {
            world.step().await;
            println!("seed {seed}, step {n}");
            world.check().await;
        }
        for (what, ..) in world.yard.audited().await {
            *happened.entry(what).or_default() += 1;
        }
    }
    for what in ["retried", "recovered", "re_died", "twin_removed", "exhausted"] {
        assert!(happened.get(what).is_some_and(|times| *times >= 5), "{happened:?}");
    }
}
