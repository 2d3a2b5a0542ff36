//! The world of a sequence: the loops on a real Redis whose clock stands still, the workers, and the people.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use sexton::{
    event::Include,
    ledger::{AttachOptions, Lease, RetryLedger, StoreError, TryLease},
    loops::{Ingest, IngestOptions, Judge, Next, Retry, Step, Wanted},
    metrics::Metrics,
    rule::Rules,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    ops::{Cut, DEDUP_KEYS, ERRORS, End, Handover, Kind, Loop, NewJob, Op, QUEUES, TASKS, Work},
    picture::{Camera, Id, Picture, text},
    reference::{Grave, Place, Reference, Wrong},
    rules::{RuleSet, real},
};
use crate::support::{
    graveyard::{Fields, bury, dlq, with},
    redis::Redis,
    yard::{NS, open},
};

/// When every sequence begins: 2026-11-29T17:12:50Z.
const BEGINNING: i64 = 1_795_972_370_000;
/// A lease that only an operation ends.
const LEASE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The workers' attempts in one life.
const MAX_ATTEMPTS: u32 = 2;
/// The pauses that workers put jobs off for, in milliseconds: after a failure, and for a task they do not know.
const BACKOFF: i64 = 1_000;
const UNKNOWN_PAUSE: i64 = 30_000;
/// A task that nobody knows is buried after this, in milliseconds.
const UNKNOWN_FOR: i64 = 6 * 3_600_000;
/// How long a dedup key stays claimed, in milliseconds.
const CLAIMED_FOR: i64 = 24 * 3_600_000;
/// Leaders who do not know that they are none, kept at most.
const STALE_LEADERS: usize = 2;
/// No step takes longer; far above what a busy machine needs.
const HANGS: Duration = Duration::from_secs(5);
/// A stream that is none of the framework's queues.
const FOREIGN: &str = "partner:events";

/// A step under way, which gives its loop back.
type Turn = Pin<Box<dyn Future<Output = (Box<dyn Step>, Result<Next, StoreError>)>>>;

/// A loop: at rest, or in the middle of a step.
enum Seat {
    Idle(Box<dyn Step>),
    Busy(Turn, CancellationToken),
    /// The process is gone.
    Empty,
}

/// A replica that leads, or thinks so.
struct Leader {
    ledger: Arc<dyn RetryLedger>,
    lease: Lease,
    /// How far the DLQ had been read when it led last.
    read: Id,
    /// In the order of [`Loop::ALL`].
    seats: [Seat; 3],
}

/// What the framework has put off.
struct PutOff {
    due: i64,
    stream: String,
    record: Fields,
}

/// Everything there is in one sequence.
pub(super) struct World<'r> {
    redis: &'r mut Redis,
    con: MultiplexedConnection,
    camera: Camera,
    /// The last picture.
    pub(super) picture: Picture,
    pub(super) reference: Reference,
    metrics: Arc<Metrics>,
    rules: watch::Sender<Arc<Rules>>,
    leader: Option<Leader>,
    stale: Vec<Leader>,
    leaders: u64,
    jobs: u64,
    put_off: BTreeMap<String, PutOff>,
    /// What has happened how often, for a look at whether anything does.
    pub(super) seen: BTreeMap<String, u64>,
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

impl<'r> World<'r> {
    /// A new one, in which nothing has happened.
    pub(super) async fn new(redis: &'r mut Redis) -> World<'r> {
        let mut con = redis.connect().await;
        for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
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
        for line in &self.picture.audit {
            *self.seen.entry(line.what.clone()).or_default() += 1;
        }
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
        let is_idle = self.leader.as_ref().is_none_or(|leader| {
            leader.seats.iter().all(|seat| !matches!(seat, Seat::Busy(..)))
        });
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

    fn has_seen(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    fn give_rules(&mut self, rules: &RuleSet) {
        self.rules.send_replace(real(rules));
        self.reference.rules_given(rules.clone());
    }
}

/// Workers and people.
impl World<'_> {
    async fn make_queues(&mut self) {
        for stream in QUEUES {
            let made: redis::RedisResult<()> = self.con.xgroup_create_mkstream(stream, "workers", "0").await;
            // It may be there already.
            drop(made);
        }
    }

    fn record(&mut self, job: NewJob) -> (String, Fields) {
        self.jobs += 1;
        let id = if job.kind == Kind::Nameless { String::new() } else { format!("job-{}", self.jobs) };
        let mut fields = vec![
            ("v", "1".to_owned()),
            ("id", id.clone()),
            ("task", TASKS[job.task].to_owned()),
            ("payload", format!("{{\"i\":{}}}", self.jobs)),
            ("enqueued_at", self.reference.now.to_string()),
            ("attempt", "0".to_owned()),
        ];
        if let Kind::Dedup(key) = job.kind {
            fields.push(("dedup", DEDUP_KEYS[key].to_owned()));
        }
        let len = fields.len();
        // The order of fields varies.
        fields.rotate_left(usize::try_from(self.jobs).unwrap_or(0) % len);
        (id, fields.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect())
    }

    async fn bury_new(&mut self, job: NewJob) {
        let (_, record) = self.record(job);
        let stream = if job.kind == Kind::Foreign { FOREIGN } else { QUEUES[job.queue] };
        let (reason, error) = match job.kind {
            Kind::MaxDeliveries => ("max_deliveries", None),
            Kind::UnknownTask => ("unknown_task", None),
            Kind::Malformed => ("malformed", None),
            Kind::Plain | Kind::Dedup(_) | Kind::Foreign | Kind::Nameless => ("max_attempts", Some(job.error)),
        };
        let (id, mut grave) = self.bury(&record, stream, reason, error).await;
        grave.never = matches!(job.kind, Kind::Malformed | Kind::Foreign | Kind::Nameless);
        if job.kind == Kind::Foreign {
            grave.job = String::new();
        }
        self.reference.buried(id, grave, None, None);
    }

    /// Buries a record as the framework does.
    async fn bury(&mut self, record: &Fields, stream: &str, reason: &str, error: Option<usize>) -> (Id, Grave) {
        let (job, task) = (text(record, "id"), text(record, "task"));
        let detail = match (reason, error) {
            (_, Some(error)) => {
                let (kind, message) = ERRORS[error];
                format!("Traceback (most recent call last):\n  File \"/srv/app.py\", line 1, in f\n{kind}: {message}\n")
            }
            ("unknown_task", None) => task.clone(),
            (_, None) => "delivered 4 times".to_owned(),
        };
        let now = self.reference.now;
        let mut fields = record.clone();
        for (name, value) in [
            ("dlq_reason", reason),
            ("dlq_detail", &detail),
            ("dlq_source", stream),
            ("dlq_deliveries", "1"),
            ("dlq_at", &now.to_string()),
        ] {
            fields.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        let id = bury(&mut self.con, NS, &fields).await.parse().expect("an id");
        let mut grave = Grave::new(&job, &task, reason, stream, now, record.clone());
        grave.error = error.map_or(String::new(), |error| ERRORS[error].0.to_owned());
        grave.dedup = Some(text(record, "dedup")).filter(|key| !key.is_empty());
        (id, grave)
    }

    async fn enqueue(&mut self, job: NewJob) {
        let (id, record) = self.record(job);
        let place = self.add_to(QUEUES[job.queue], &record).await;
        self.reference.enqueued(&id, Some(text(&record, "dedup")).filter(|key| !key.is_empty()), place);
    }

    async fn add_to(&mut self, stream: &str, record: &Fields) -> Place {
        let id: String =
            redis::cmd("XADD").arg(stream).arg("*").arg(record).query_async(&mut self.con).await.expect("it is a stream");
        Place::Queue(stream.to_owned(), id.parse().expect("an id"))
    }

    async fn bury_again(&mut self, pick: usize) {
        let graves: Vec<(Id, Grave)> =
            self.reference.present().filter(|(_, grave)| !grave.never).map(|(id, grave)| (id, grave.clone())).collect();
        let Some((again, grave)) = pick_of(&graves, pick) else { return };
        let error = ERRORS.iter().position(|(kind, _)| *kind == grave.error);
        let (id, twin) = self.bury(&grave.record, &grave.stream, &grave.reason, error).await;
        self.reference.buried(id, twin, None, Some(again));
    }

    async fn work(&mut self, Work { pick, end, dies }: Work) {
        let queued: Vec<(String, Id)> = self
            .reference
            .places()
            .filter_map(|place| match place {
                Place::Queue(stream, id) => Some((stream.clone(), *id)),
                Place::Clock(_) => None,
            })
            .collect();
        let Some((stream, entry)) = pick_of(&queued, pick) else { return };
        let place = Place::Queue(stream.clone(), entry);
        let record = self.picture.queues[&stream][&entry].clone();
        let (job, dedup) = (text(&record, "id"), text(&record, "dedup"));
        if !dedup.is_empty() && end != End::Unknown {
            let mut claim = redis::cmd("SET");
            claim.arg(format!("{{{NS}}}:dedup:{dedup}")).arg(&job).arg("NX").arg("PX").arg(CLAIMED_FOR);
            let claimed: Option<String> = claim.query_async(&mut self.con).await.expect("Redis is there");
            if claimed.is_none() {
                // Whoever holds the key, be it the job itself: it is let go of without a run.
                let () = self.con.xdel(&stream, &[entry.to_string()]).await.expect("Redis is there");
                return self.reference.swallowed(&place);
            }
        }
        self.ends(&place, &stream, &record, &job, end).await;
        if !dies {
            let () = self.con.xdel(&stream, &[entry.to_string()]).await.expect("Redis is there");
            self.reference.let_go(&place);
        }
    }

    /// What a worker writes of the end of an attempt.
    async fn ends(&mut self, place: &Place, stream: &str, record: &Fields, job: &str, end: End) {
        let number = |field: &str| text(record, field).parse::<i64>().expect("a number");
        let now = self.reference.now;
        match end {
            End::Ok => self.reference.ran_through(place),
            End::Fails(error) => {
                let failed = number("attempt") + 1;
                if failed >= i64::from(MAX_ATTEMPTS) {
                    let (id, grave) = self.bury(record, stream, "max_attempts", Some(error)).await;
                    return self.reference.buried(id, grave, Some(place), None);
                }
                let again = with(record, "attempt", failed.to_string().as_bytes());
                self.put_off(place, &format!("retry:{job}:{failed}"), now + BACKOFF, stream, again).await;
                self.reference.put_off(place, &format!("retry:{job}:{failed}"), true);
            }
            End::Unknown => {
                let age = (now - number("enqueued_at")).max(0);
                if age > UNKNOWN_FOR {
                    let (id, grave) = self.bury(record, stream, "unknown_task", None).await;
                    return self.reference.buried(id, grave, Some(place), None);
                }
                let name = format!("unknown:{job}:{}", age / 1000);
                self.put_off(place, &name, now + UNKNOWN_PAUSE, stream, record.clone()).await;
                self.reference.put_off(place, &name, false);
            }
        }
    }

    async fn put_off(&mut self, _from: &Place, name: &str, due: i64, stream: &str, record: Fields) {
        let () = self.con.zadd(format!("{{{NS}}}:sched"), name, due).await.expect("Redis is there");
        self.put_off.insert(name.to_owned(), PutOff { due, stream: stream.to_owned(), record });
    }

    async fn promote(&mut self) {
        let now = self.reference.now;
        let due: Vec<String> =
            self.put_off.iter().filter(|(_, put_off)| put_off.due <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            let PutOff { stream, record, .. } = self.put_off.remove(&name).expect("it is put off");
            let to = self.add_to(&stream, &record).await;
            let () = self.con.zrem(format!("{{{NS}}}:sched"), &name).await.expect("Redis is there");
            self.reference.promoted(&name, to);
        }
    }

    fn grave(&self, pick: usize) -> Option<Id> {
        pick_of(&self.reference.present().map(|(id, _)| id).collect::<Vec<_>>(), pick)
    }

    async fn remove(&mut self, id: Id) {
        let () = self.con.xdel(dlq(NS), &[id.to_string()]).await.expect("Redis is there");
    }

    async fn put_back(&mut self, pick: usize) {
        let Some(id) = self.grave(pick) else { return };
        let (_, grave) = self.reference.present().find(|(known, _)| *known == id).expect("it is in the DLQ");
        let (stream, record, never) = (grave.stream.clone(), with(&grave.record, "attempt", b"0"), grave.never);
        if never || !self.picture.queues.contains_key(&stream) {
            return;
        }
        let place = self.add_to(&stream, &record).await;
        self.remove(id).await;
        self.reference.put_back(id, place);
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
        leader.read = self.picture.cursor();
        let unread = self.picture.dlq.keys().next_back().is_some_and(|last| *last > leader.read);
        let outcome = leader.turn(which, waits, unread).await.map_err(|hangs| format!("{which:?} {hangs}"))?;
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
        let unread = self.picture.dlq.keys().next_back().is_some_and(|last| *last > leader.read);
        let outcome = leader.turn(which, None, unread).await;
        match outcome {
            // Whoever is told that the lease is lost ends.
            Ok(Some(Err(StoreError::Fenced))) => {
                drop(self.stale.swap_remove(number));
                self.has_seen("a stale leader is fenced");
            }
            // It may have found nothing to write; or that the ledger is not where it left it.
            Ok(Some(Ok(_) | Err(StoreError::Moved)) | None) => {}
            Ok(Some(Err(error))) => return Err(format!("{which:?} of a stale leader has failed: {error:?}")),
            Err(hangs) => return Err(format!("{which:?} of a stale leader {hangs}")),
        }
        Ok(By::Stale)
    }

    async fn hand_over(&mut self, how: Handover) -> Result<By, Wrong> {
        let Some(mut leader) = self.leader.take() else { return Ok(By::Outside) };
        match how {
            Handover::Crash => drop(leader),
            Handover::Lapse => {
                leader.read = self.picture.cursor();
                self.lease_runs_out().await;
                self.stale.push(leader);
                if self.stale.len() > STALE_LEADERS {
                    self.stale.remove(0);
                }
            }
            Handover::Stop => {
                for which in Loop::ALL {
                    leader.comes_to_rest(which).await?;
                }
                leader.ledger.release(&leader.lease).await.map_err(|error| format!("the lease is kept: {error:?}"))?;
            }
        }
        self.settled().await;
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
        let (metrics, rules) = (|| Arc::clone(&self.metrics), || self.rules.subscribe());
        let options = IngestOptions { include: Include::default(), outbox_cap: 50_000 };
        let wanted = Wanted { retried: true, recovered: true };
        let (shared, held) = (|| Arc::clone(&ledger), || lease.clone());
        let seats = [
            Seat::Idle(Box::new(Ingest::new(shared(), held(), metrics(), options, rules(), attached))),
            Seat::Idle(Box::new(Judge::new(shared(), held(), metrics(), rules()))),
            Seat::Idle(Box::new(Retry::new(shared(), held(), metrics(), rules(), wanted))),
        ];
        self.leader = Some(Leader { ledger, lease, read: Id::default(), seats });
        Ok(())
    }

    /// Waits until what a process that is gone has still sent has been done.
    async fn settled(&mut self) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let () = redis::cmd("PING").query_async(&mut self.con).await.expect("Redis is there");
    }
}

impl Leader {
    /// Takes a step of a loop, or goes on with the one it is in; none if it was cut off after so many waits. There is
    /// something `unread`, so that a read need not wait.
    async fn turn(
        &mut self,
        which: Loop,
        waits: Option<usize>,
        unread: bool,
    ) -> Result<Option<Result<Next, StoreError>>, &'static str> {
        let seat = &mut self.seats[which as usize];
        let (mut turn, stop) = match std::mem::replace(seat, Seat::Empty) {
            Seat::Busy(turn, stop) => (turn, stop),
            Seat::Idle(mut step) => {
                let stop = CancellationToken::new();
                let told = stop.clone();
                let turn: Turn = Box::pin(async move {
                    let outcome = step.step(&told).await;
                    (step, outcome)
                });
                (turn, stop)
            }
            Seat::Empty => return Ok(Some(Err(StoreError::Fenced))),
        };
        // Whoever is told to stop does not wait for anything to come. Time stands still here, so nothing would.
        if which != Loop::Ingest || !unread {
            stop.cancel();
        }
        let mut waited = 0;
        let step = poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => {
                waited += 1;
                if waits.is_some_and(|most| waited >= most) { Poll::Ready(None) } else { Poll::Pending }
            }
        });
        let Ok(ended) = tokio::time::timeout(HANGS, step).await else { return Err("hangs") };
        let outcome = match ended {
            Some((step, outcome)) => {
                *seat = Seat::Idle(step);
                Some(outcome)
            }
            None => {
                *seat = Seat::Busy(turn, stop);
                None
            }
        };
        // What is under way on the connection is done when a later command is answered.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            self.ledger.leader().await.expect("Redis is there");
        }
        Ok(outcome)
    }

    /// A loop is told to stop while it leads.
    async fn comes_to_rest(&mut self, which: Loop) -> Result<(), Wrong> {
        if matches!(self.seats[which as usize], Seat::Busy(..)) {
            let ended = self.turn(which, None, false).await.map_err(|hangs| format!("{which:?} {hangs}"))?;
            if let Some(Err(error)) = ended {
                return Err(format!("{which:?} has failed: {error:?}"));
            }
        }
        match &mut self.seats[which as usize] {
            Seat::Idle(step) => step.settle().await.map_err(|error| format!("{which:?} cannot come to rest: {error:?}")),
            Seat::Busy(..) | Seat::Empty => Ok(()),
        }
    }
}

/// One of these, by number; none if there are none.
fn pick_of<T: Clone>(of: &[T], pick: usize) -> Option<T> {
    of.get(pick % of.len().max(1)).cloned()
}
