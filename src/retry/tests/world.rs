//! A small world in virtual time: workers that run jobs against a dependency, a DLQ with its due index, and a loop that
//! retries by what it learns. Workers move in steps of 50 ms, the loop in ticks of 200 ms.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{
    clock::millis,
    event::JobDead,
    ledger::{Flight, Place, Pool, Sight, Verdict, Whereabouts},
    letter::Millis,
    retry::{Aloft, Bucket, GroupLook, Hold, Learning, Learnt, Look, PoolLearnt, choose, conclude, learn},
    rule::Terms,
};

/// Between two moves of the workers.
const STEP_MS: i64 = 50;
/// Between two looks of the loop.
const TICK_MS: i64 = 200;
/// Groups in one look at the pool, at most.
const PAGE: usize = 100;
/// Jobs that run at the same time.
const WORKERS: usize = 50;
/// The virtual time at which a world begins.
const EPOCH: i64 = 1_800_000_000_000;

/// What a job meets when it runs: its group, the time since the world began in milliseconds, and dice from 0 to 1.
pub(super) type Dependency = Box<dyn Fn(&str, i64, f64) -> bool>;

/// A job in the DLQ: when it is due, a number that tells it from others, and how often it has been retried.
type Dead = (i64, usize, u32);

/// Where a job is that has been put back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Queued,
    Running { until: i64 },
    BackingOff { until: i64 },
    RanThrough,
    ReDied,
}

struct Job {
    flight: Flight,
    number: usize,
    retries: u32,
    life: Life,
    failed: u32,
}

/// One retry.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: i64,
    pub(super) group: String,
    pub(super) canary: bool,
    pub(super) verdict: Option<Verdict>,
}

pub(super) struct World {
    terms: Terms,
    pool: Pool,
    dependency: Dependency,
    /// How long a job runs.
    pub(super) run_ms: i64,
    /// Attempts the framework makes.
    pub(super) attempts: u32,
    dice: fastrand::Rng,
    now: i64,
    /// By group, in the order in which they become due.
    dlq: BTreeMap<String, BTreeSet<Dead>>,
    deaths: usize,
    /// When each group is looked at next, if not when its first entry is due.
    looks: BTreeMap<String, i64>,
    queue: VecDeque<usize>,
    jobs: Vec<Job>,
    /// Those that have not ended, for the workers and for the loop.
    alive: Vec<usize>,
    aloft: Vec<usize>,
    learnt: PoolLearnt,
    groups: BTreeMap<String, Learnt>,
    bucket: Bucket,
    /// Every retry, in order.
    pub(super) sent: Vec<Sent>,
    /// When each recovered.
    pub(super) recovered: Vec<(i64, String)>,
    /// When holds began, of a group or of the pool.
    pub(super) holds: Vec<(i64, Option<String>, i64)>,
    pub(super) exhausted: usize,
    /// The most that was ever in flight.
    pub(super) most_in_flight: u32,
}

impl World {
    /// A world in which these groups have just lost so many jobs each, all within the first second.
    pub(super) fn new(terms: Terms, seed: u64, deaths: &[(String, usize)], dependency: Dependency) -> World {
        let mut world = World {
            terms,
            pool: Pool::of("rule", "task"),
            dependency,
            run_ms: 100,
            attempts: 3,
            dice: fastrand::Rng::with_seed(seed),
            now: EPOCH,
            dlq: BTreeMap::new(),
            deaths: 0,
            looks: BTreeMap::new(),
            queue: VecDeque::new(),
            jobs: Vec::new(),
            alive: Vec::new(),
            aloft: Vec::new(),
            learnt: PoolLearnt::default(),
            groups: BTreeMap::new(),
            bucket: Bucket::new(0),
            sent: Vec::new(),
            recovered: Vec::new(),
            holds: Vec::new(),
            exhausted: 0,
            most_in_flight: 0,
        };
        for (group, count) in deaths {
            for _ in 0..*count {
                let at = world.dice.i64(0..1_000);
                world.bury(group, EPOCH + at, 0);
            }
        }
        world
    }

    /// Lets a job of this group die now, for the first time.
    pub(super) fn die(&mut self, group: &str) {
        self.bury(group, self.now, 0);
    }

    fn bury(&mut self, group: &str, died_at: i64, retries: u32) {
        if retries >= self.terms.max_retries {
            self.exhausted += 1;
            return;
        }
        let age = self.terms.age_needed(retries);
        let jittered = age.mul_f64(1.0 + 0.1 * self.dice.f64()).min(self.terms.max_backoff.max(age));
        let due = died_at + millis(jittered);
        self.deaths += 1;
        self.dlq.entry(group.to_owned()).or_default().insert((due, self.deaths, retries));
        // As a new entry does it: its group is looked at when it is due, unless it already is before.
        if let Some(look) = self.looks.get_mut(group) {
            *look = (*look).min(due);
        }
    }

    /// Milliseconds since the world began.
    pub(super) fn time(&self) -> i64 {
        self.now - EPOCH
    }

    pub(super) fn waiting(&self) -> usize {
        self.dlq.values().map(BTreeSet::len).sum()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.aloft.len()
    }

    /// When the last hold that began before this moment ends, or this moment.
    pub(super) fn hold_in_force(&self, at: i64) -> i64 {
        let ends =
            self.holds.iter().filter(|(began, _, until)| *began <= at && *until > at).map(|(_, _, until)| *until);
        ends.max().unwrap_or(at)
    }

    /// Runs until this time.
    pub(super) fn run(&mut self, until: Duration) {
        while self.time() < millis(until) {
            self.now += STEP_MS;
            self.work();
            if self.time() % TICK_MS == 0 {
                self.look();
                self.tick();
            }
        }
    }

    /// Runs until nothing waits and nothing is in flight, or until this time; returns when that was.
    pub(super) fn run_dry(&mut self, at_most: Duration) -> i64 {
        while self.time() < millis(at_most) && self.waiting() + self.in_flight() > 0 {
            self.run(Duration::from_millis((self.time() + TICK_MS).unsigned_abs()));
        }
        self.time()
    }

    /// What the workers and the framework do.
    fn work(&mut self) {
        let mut running = 0;
        for &n in &self.alive {
            let job = &mut self.jobs[n];
            match job.life {
                Life::Running { until } if until <= self.now => {
                    let works = (self.dependency)(&job.flight.place.group, self.now - EPOCH, self.dice.f64());
                    job.life = if works {
                        Life::RanThrough
                    } else {
                        job.failed += 1;
                        let backoff = 1_000 << (job.failed - 1);
                        if job.failed < self.attempts {
                            Life::BackingOff { until: self.now + backoff }
                        } else {
                            Life::ReDied
                        }
                    };
                }
                Life::Running { .. } => running += 1,
                Life::BackingOff { until } if until <= self.now => {
                    job.life = Life::Queued;
                    self.queue.push_back(n);
                }
                _ => {}
            }
        }
        self.alive.retain(|n| !matches!(self.jobs[*n].life, Life::RanThrough | Life::ReDied));
        while running < WORKERS {
            let Some(n) = self.queue.pop_front() else { break };
            self.jobs[n].life = Life::Running { until: self.now + self.run_ms };
            running += 1;
        }
    }

    /// What the loop does with the sights of its flights.
    fn look(&mut self) {
        let (now, mut steps, mut ended) = (Millis(self.now), Vec::new(), Vec::new());
        for &n in &self.aloft {
            let job = &mut self.jobs[n];
            let sight = match job.life {
                Life::RanThrough => Sight::RanThrough,
                Life::ReDied => Sight::ReDied,
                Life::BackingOff { .. } => {
                    Sight::Underway { at: Whereabouts::Clock(format!("retry:{}", job.failed)), failing: true }
                }
                Life::Queued | Life::Running { .. } => {
                    Sight::Underway { at: Whereabouts::Queue(job.failed.to_string()), failing: job.failed > 0 }
                }
            };
            let Some(step) = conclude(&job.flight, &sight, now) else { continue };
            job.flight = step.flight.clone();
            match step.verdict {
                None | Some(Verdict::Failing) => {}
                verdict => {
                    ended.push(n);
                    self.sent[job.number].verdict = verdict;
                }
            }
            steps.push(step);
        }
        self.aloft.retain(|n| !ended.contains(n));
        for n in ended {
            let (group, retries) = (self.jobs[n].flight.place.group.clone(), self.jobs[n].retries);
            match self.jobs[n].life {
                Life::RanThrough => self.recovered.push((self.time(), group)),
                _ => self.bury(&group, self.now, retries),
            }
        }
        let mut learning = Learning {
            pool: self.pool.clone(),
            learnt: PoolLearnt::read(Some(&self.learnt.to_json())),
            groups: std::mem::take(&mut self.groups),
        };
        let dice = &mut self.dice;
        let outcome = learn(now, &self.terms, &mut learning, &steps, &mut || dice.f64());
        self.groups = learning.groups;
        for lesson in &outcome.lessons {
            match &lesson.group {
                None => self.learnt = PoolLearnt::read(Some(&lesson.learnt)),
                Some(group) => _ = self.groups.insert(group.clone(), Learnt::read(Some(&lesson.learnt))),
            }
        }
        self.groups.retain(|_, learnt| learnt.keep_until(&self.terms) >= now);
        for change in outcome.changes {
            match (change.hold, change.group) {
                (Hold::Begun { until }, group) => self.holds.push((self.time(), group, until.0 - EPOCH)),
                (Hold::Lifted, group) => {
                    let time = self.time();
                    let held = self.holds.iter_mut().filter(|(_, of, until)| *of == group && *until > time);
                    held.for_each(|(_, _, until)| *until = time);
                    if let Some(group) = group {
                        self.looks.remove(&group);
                    }
                }
            }
        }
    }

    /// What the loop does with the pool.
    fn tick(&mut self) {
        let mut line: Vec<(i64, GroupLook)> = Vec::new();
        let aloft = Aloft::of(self.aloft.iter().map(|n| &self.jobs[*n].flight));
        for (group, entries) in &self.dlq {
            let Some((first, ..)) = entries.first() else { continue };
            let look = self.looks.get(group).unwrap_or(first);
            if *look <= self.now {
                let place = Place { pool: self.pool.clone(), group: group.clone() };
                let learnt = Learnt::read(self.groups.get(group).map(Learnt::to_json).as_deref());
                let due = entries.iter().take_while(|(due, ..)| *due <= self.now).count() as u64;
                line.push((*look, GroupLook { group: group.clone(), due, learnt, in_flight: aloft.of_group(&place) }));
            }
        }
        line.sort_by_key(|(look, _)| *look);
        let more = line.len() > PAGE;
        let groups: Vec<GroupLook> = line.into_iter().take(PAGE).map(|(_, group)| group).collect();
        let time = self.time().unsigned_abs();
        let tokens = self.bucket.tokens(time, self.terms.pace.per_second);
        let look = Look {
            now: Millis(self.now),
            terms: &self.terms,
            rule_in_flight: aloft.of_rule(self.pool.rule()),
            tokens,
            pool: &self.learnt,
            canaries_in_flight: aloft.canaries(&self.pool),
            groups: &groups,
            more,
            dice: self.dice.u64(..),
        };
        let choice = choose(&look);
        for (group, until) in &choice.held {
            self.looks.insert(group.clone(), until.0);
        }
        for group in &choice.to_the_end {
            self.looks.insert(group.clone(), self.now);
        }
        for (group, count) in &choice.send {
            self.send(group, *count);
        }
        let count: usize = choice.send.iter().map(|(_, count)| count).sum();
        self.bucket.take(time, u32::try_from(count).unwrap());
        self.most_in_flight = self.most_in_flight.max(u32::try_from(self.aloft.len()).unwrap());
    }

    fn send(&mut self, group: &str, count: usize) {
        let now = self.now;
        for _ in 0..count {
            let (due, _, retries) = self.dlq.get_mut(group).and_then(BTreeSet::pop_first).expect("chosen, so there");
            assert!(due <= now, "no more is chosen than is due");
            let learnt = self.groups.get(group).cloned().unwrap_or_default();
            let flight = Flight {
                place: Place { pool: self.pool.clone(), group: group.to_owned() },
                dead: JobDead::default(),
                stream: String::new(),
                dedup: None,
                sent_at: Millis(now),
                confirm_by: Millis(now + millis(self.terms.confirm_within)),
                rounds: self.learnt.rounds(&learnt, Millis(now), &self.terms),
                at: Whereabouts::Queue("0".to_owned()),
                seen_at: Millis(now),
                failing: false,
            };
            let n = self.jobs.len();
            let number = self.sent.len();
            let canary = flight.rounds.canary;
            self.sent.push(Sent { at: self.time(), group: group.to_owned(), canary, verdict: None });
            self.jobs.push(Job { flight, number, retries: retries + 1, life: Life::Queued, failed: 0 });
            self.alive.push(n);
            self.aloft.push(n);
            self.queue.push_back(n);
        }
    }
}
