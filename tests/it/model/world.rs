//! The world of a sequence: a real Redis whose clock stands still, and those who lead there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use sexton::{
    event::EventData,
    ledger::{AttachOptions, StoreError, TryLease},
    metrics::Metrics,
    rule::Rules,
};
use tokio::sync::watch;

use super::{
    leader::Leader,
    ops::{Cut, Handover, Loop, Op, QUEUES},
    people::PutOff,
    picture::{Camera, Line, Picture},
    reference::{Place, Reference, Wrong},
    rules::{RuleSet, real},
};
use crate::support::{
    redis::{Options, Redis},
    yard::{NS, open},
};

/// When every sequence begins: 2026-11-29T17:12:50Z.
const BEGINNING: i64 = 1_795_972_370_000;
/// A lease that only an operation ends.
const LEASE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Leaders who do not know that they are none, kept at most.
const STALE_LEADERS: usize = 2;
/// Everything there is in one sequence.
pub(super) struct World<'r> {
    redis: &'r mut Redis,
    pub(super) con: MultiplexedConnection,
    camera: Camera,
    /// The last picture.
    pub(super) picture: Picture,
    pub(super) reference: Reference,
    metrics: Arc<Metrics>,
    rules: watch::Sender<Arc<Rules>>,
    leader: Option<Leader>,
    /// Those who do not know that they lead no more.
    stale: Vec<Leader>,
    /// Leaders so far.
    leaders: u64,
    /// Jobs so far.
    pub(super) jobs: u64,
    /// By the name on the framework's clock.
    pub(super) put_off: BTreeMap<String, PutOff>,
    /// What has happened how often, for a look at whether anything does.
    pub(super) seen: BTreeMap<String, u64>,
    /// The picture after each operation.
    pub(super) story: Vec<Picture>,
}

/// What an operation may change besides what it does itself.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// Workers, people, the clock: nothing of the ledger's doing.
    Outside,
    /// A step of the leader.
    Leader,
    /// A step of one who leads no more: nothing at all.
    Stale,
}

/// A server for worlds.
pub(super) async fn server() -> Redis {
    let more = ["--enable-debug-command", "yes"].map(str::to_owned).to_vec();
    Redis::with(Options { stepped_clock: true, more, ..Options::default() }).await
}

impl<'r> World<'r> {
    /// A new one, in which nothing has happened.
    pub(super) async fn new(redis: &'r mut Redis) -> World<'r> {
        let mut con = redis.connect().await;
        // What has expired goes when somebody looks for it, not when the server has time for it: till then the clock may
        // have been set back.
        for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]] {
            let () = redis::cmd(command[0]).arg(&command[1..]).query_async(&mut con).await.expect("Redis is there");
        }
        let camera = Camera::new(con.clone());
        let mut world = World {
            redis,
            con,
            camera,
            picture: Picture::default(),
            reference: Reference::default(),
            metrics: Arc::new(Metrics::new(&["orders"], &[])),
            rules: watch::Sender::new(Arc::new(Rules::default())),
            leader: None,
            stale: Vec::new(),
            leaders: 0,
            jobs: 0,
            put_off: BTreeMap::new(),
            seen: BTreeMap::new(),
            story: Vec::new(),
        };
        world.set_clock(BEGINNING);
        world.make_queues().await;
        world.picture = world.camera.picture().await;
        world
    }

    /// Does one operation, and checks everything afterwards.
    pub(super) async fn does(&mut self, op: &Op) -> Result<(), Wrong> {
        let by = self.perform(op).await?;
        let before = self.picture.still();
        self.picture = self.camera.picture().await;
        self.count_what_is_new();
        self.story.push(self.picture.clone());
        match by {
            By::Leader => self.reference.take_in(&before, &self.picture)?,
            By::Stale if self.picture != before => {
                return Err(format!("one who leads no more has changed\n{before:?}\ninto\n{:?}", self.picture));
            }
            By::Outside if !self.picture.audit.is_empty() || !self.picture.events.is_empty() => {
                return Err(format!("the ledger wrote by itself: {:?}", self.picture));
            }
            By::Stale | By::Outside => {}
        }
        let is_idle = self.leader.as_ref().is_none_or(Leader::is_idle);
        self.reference.check(&before, &self.picture, is_idle)
    }

    async fn perform(&mut self, op: &Op) -> Result<By, Wrong> {
        match op {
            Op::Bury(job) => self.bury_new(*job).await,
            Op::Enqueue(job) => self.enqueue(*job).await,
            Op::BuryAgain(pick) => self.bury_again(*pick).await,
            Op::Work(work) => self.work(*work).await,
            Op::Promote => self.promote().await,
            Op::Step(which, cut) => return self.step(*which, *cut).await,
            Op::StaleStep(pick, which) => return self.stale_step(*pick, *which).await,
            Op::Handover(how) => return self.hand_over(*how).await,
            Op::Clock(by) => self.set_clock(self.reference.now + by),
            Op::ClockToAge(pick, plus) => {
                let ages = self.reference.ages_reached();
                if let Some(age) = pick_of(&ages, *pick) {
                    self.set_clock(self.reference.now.max(age + plus));
                }
            }
            Op::Rules(rules) => self.give_rules(rules),
            Op::Remove(pick) => {
                if let Some(id) = self.grave(*pick) {
                    self.remove(id).await;
                    self.reference.removed(id);
                }
            }
            Op::PutBack(pick) => self.put_back(*pick).await,
            Op::ScriptFlush => {
                let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut self.con).await.expect("Redis is there");
            }
            Op::DeleteQueue(pick) => {
                let stream = QUEUES[pick % QUEUES.len()];
                let () = self.con.del(stream).await.expect("Redis is there");
                self.reference.queue_deleted(stream);
            }
            Op::MakeQueues => self.make_queues().await,
        }
        Ok(By::Outside)
    }

    /// Whether there is anything on a queue.
    pub(super) fn is_work_left(&self) -> bool {
        self.reference.places().any(|place| matches!(place, Place::Queue(..)))
    }

    fn set_clock(&mut self, now: i64) {
        self.redis.stop_clock_at(now);
        self.reference.clock_set(now);
    }

    fn count_what_is_new(&mut self) {
        let deduped = |line: &&Line| line.what == "retried" && self.reference.has_dedup_key(&line.job);
        let deduped = self.picture.audit.iter().filter(deduped).map(|_| "retried with a dedup key");
        let existing = |event: &&EventData| matches!(event, EventData::Digest(_));
        let existing = self.picture.events.iter().filter(existing).map(|_| "what was there before is told");
        for what in self.picture.audit.iter().map(|line| line.what.as_str()).chain(deduped).chain(existing) {
            *self.seen.entry(what.to_owned()).or_default() += 1;
        }
    }

    fn has_seen(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    fn give_rules(&mut self, rules: &RuleSet) {
        self.rules.send_replace(real(rules));
        self.reference.rules_given(rules.clone());
    }
}

/// The loops.
impl World<'_> {
    async fn step(&mut self, which: Loop, cut: Cut) -> Result<By, Wrong> {
        if self.leader.is_none() {
            self.lead().await?;
        }
        let (waits, dies) = match cut {
            Cut::No => (None, false),
            Cut::Hangs(waits) => (Some(waits), false),
            Cut::Dies(waits) => (Some(waits), true),
        };
        let leader = self.leader.as_mut().expect("there is one");
        leader.leads_in(&self.picture);
        let outcome = leader.turn(which, waits, &self.picture).await?;
        match outcome {
            None if dies => {
                self.leader = None;
                self.has_seen("a leader dies in a step");
            }
            None => self.has_seen("a step hangs"),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(format!("{which:?} has failed: {error:?}")),
        }
        Ok(By::Leader)
    }

    async fn stale_step(&mut self, pick: usize, which: Loop) -> Result<By, Wrong> {
        let number = pick % self.stale.len().max(1);
        let Some(leader) = self.stale.get_mut(number) else { return Ok(By::Outside) };
        match leader.turn(which, None, &self.picture).await? {
            // Whoever is told that the lease is lost ends.
            Some(Err(StoreError::Fenced)) => {
                self.stale.swap_remove(number);
                self.has_seen("a stale leader is fenced");
            }
            // It may have found nothing to write; or that the ledger is not where it left it.
            None | Some(Ok(_) | Err(StoreError::Moved)) => {}
            Some(Err(error)) => return Err(format!("{which:?} of a stale leader has failed: {error:?}")),
        }
        Ok(By::Stale)
    }

    async fn hand_over(&mut self, how: Handover) -> Result<By, Wrong> {
        let Some(mut leader) = self.leader.take() else { return Ok(By::Outside) };
        match how {
            Handover::Crash => {}
            Handover::Lapse => {
                leader.leads_in(&self.picture);
                self.lease_runs_out().await;
                self.stale.push(leader);
                if self.stale.len() > STALE_LEADERS {
                    self.stale.remove(0);
                }
            }
            Handover::Stop => leader.comes_to_rest(&self.picture).await?,
        }
        Ok(By::Leader)
    }

    async fn lease_runs_out(&mut self) {
        let () = self.con.del(format!("{{{NS}}}:sexton:lease")).await.expect("Redis is there");
    }

    /// Another replica takes the lease of one who is gone.
    async fn lead(&mut self) -> Result<(), Wrong> {
        self.lease_runs_out().await;
        self.leaders += 1;
        let ledger = open(self.redis);
        let taken = ledger.try_lease(&format!("replica-{}", self.leaders), LEASE, 0).await;
        let Ok(TryLease::Acquired(lease)) = taken else { return Err(format!("nobody can lead: {taken:?}")) };
        if i64::try_from(lease.epoch).is_ok_and(|epoch| epoch <= self.picture.number("epoch")) {
            return Err(format!("the epoch does not rise: {lease:?}"));
        }
        let is_first = !self.picture.state.contains_key("cursor");
        let attached = ledger.attach(&lease, AttachOptions::default()).await;
        let attached = attached.map_err(|error| format!("a new leader cannot attach: {error:?}"))?;
        if attached.loss.is_some() {
            return Err(format!("nothing was lost: {attached:?}"));
        }
        if is_first {
            self.reference.first_attached();
        }
        self.leader = Some(Leader::new(ledger, lease, attached, &self.metrics, &self.rules));
        Ok(())
    }
}

/// One of these, by number; none if there are none.
pub(super) fn pick_of<T: Clone>(of: &[T], pick: usize) -> Option<T> {
    of.get(pick % of.len().max(1)).cloned()
}
