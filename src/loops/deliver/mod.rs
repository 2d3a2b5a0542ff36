//! Delivers one lane of one hook: reads the outbox, sends what the plan says, and saves where it is.
//!
//! All decisions are the plan's; this is its hands. Nothing stands between an event's appearance in the outbox and its
//! request but one read: saving happens beside it.

mod behind;
mod peer;
mod report;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use self::peer::{Peer, Told};
use super::{Next, Step};
use crate::{
    clock::monotonic,
    config::{HookConfig, Rate},
    delivery::{Answer, Key, LaneState, Outcome, Plan, Policy, Taken, is_outdated},
    event::{Event, EventType, Lane},
    hook::{Client, Selection, Sent, newest_alone, spacing},
    ledger::{Lease, Ledger, OutboxId, Posted, StoreError},
    letter::Millis,
    metrics::{DeliveryOutcome, Metrics},
};

/// The outbox is read this often without being told of a change: other processes append too.
const POLL: Duration = Duration::from_secs(1);
/// A changed state is saved after this long, with everything that has changed meanwhile.
const SAVE_AFTER: Duration = Duration::from_millis(500);
/// How often a lane that has nothing to save looks whether somebody has changed what was saved.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// What both lanes of a hook need.
#[derive(Clone)]
pub struct DeliverTo<'a> {
    /// The source's ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The lease of this term.
    pub lease: Lease,
    /// The hook.
    pub hook: &'a HookConfig,
    /// Its client; clones share their connections.
    pub client: Client,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// Events in an outbox lane at most.
    pub outbox_cap: u64,
    /// How long requests on their way may take once told to stop.
    pub grace: Duration,
}

/// The loop of one lane.
pub struct Deliver {
    ledger: Arc<dyn Ledger>,
    lease: Lease,
    hook: String,
    lane: Lane,
    policy: Policy,
    selection: Selection,
    client: Client,
    metrics: Arc<Metrics>,
    backlog: Arc<Backlog>,
    peer: Peer,
    outbox_cap: u64,
    grace: Duration,
    changes: watch::Receiver<u64>,
    /// Unset until the saved state has been loaded.
    plan: Option<Plan>,
    revision: u64,
    /// What the save that is on its way, or failed last, holds.
    attempted: Option<String>,
    saving: JoinSet<(u64, Result<u64, StoreError>)>,
    /// Events read and not tried yet, so that the first try needs no second read.
    bodies: HashMap<OutboxId, Event>,
    sending: JoinSet<Done>,
    keys: HashMap<tokio::task::Id, Key>,
    caught_up: bool,
    unread: u64,
    /// The outbox has changed since it was read.
    told_read: bool,
    read_at: Option<Instant>,
    unsaved_since: Option<Instant>,
    /// Save at the next step: the outbox is about to lose what only the state knows, or somebody waits to read it.
    save_now: bool,
    look_at: Option<Instant>,
    count_at: Option<Instant>,
    reload_at: Option<Instant>,
    /// Events rejected in a row.
    rejected: u64,
    /// Events let go of since the outbox was nearly full; `None` while the lane keeps up.
    let_go: Option<u64>,
}

/// What became of one try.
enum Done {
    Sent {
        sent: Sent,
        /// Somebody waits to be told what became of it.
        is_test: bool,
    },
    /// The outbox no longer has the event.
    Gone,
    /// Not sent: nobody waits for it any more, or by now it would say something wrong.
    Outdated,
    /// The store did not give the event.
    NoStore,
}

/// The backlog of a hook: one gauge for both lanes.
#[derive(Debug, Default)]
struct Backlog([AtomicU64; 2]);

impl Backlog {
    fn set(&self, lane: Lane, events: u64) -> u64 {
        self.0[lane as usize].store(events, Ordering::Relaxed);
        self.0.iter().map(|events| events.load(Ordering::Relaxed)).sum()
    }
}

/// Gives both lanes of a hook a place to start from, if they have none: the end of the outbox, since a new hook has no
/// past. Done before the first event of a term is ingested, so that no event falls between.
pub async fn prepare_lanes(ledger: &dyn Ledger, lease: &Lease, hook: &str) -> Result<(), StoreError> {
    for lane in Lane::ALL {
        if ledger.load_lane(hook, lane).await?.is_none() {
            let state = LaneState::new(ledger.outbox_end(lane).await?).to_json();
            match ledger.save_lane(lease, hook, lane, 0, &state).await {
                // Somebody else was quicker, which is as good.
                Ok(_) | Err(StoreError::Moved) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Deliver {
    /// The loops of a hook's two lanes.
    pub fn lanes(to: &DeliverTo<'_>) -> [Deliver; 2] {
        let backlog = Arc::new(Backlog::default());
        let [one, other] = Peer::pair();
        let [deaths, alerts] = Lane::ALL;
        [Deliver::new(to, deaths, Arc::clone(&backlog), one), Deliver::new(to, alerts, backlog, other)]
    }

    fn new(to: &DeliverTo<'_>, lane: Lane, backlog: Arc<Backlog>, peer: Peer) -> Deliver {
        let policy = Policy {
            source: to.ledger.name().to_owned(),
            hook: to.hook.name.clone(),
            rate: if lane == Lane::Deaths { to.hook.rate } else { Rate::Unlimited },
            spacing: spacing(to.hook.format),
            newest_alone: newest_alone(to.hook.format),
            give_up_after: to.hook.give_up_after,
            fingerprint: to.hook.fingerprint.clone(),
        };
        Deliver {
            changes: to.ledger.outbox_changes(lane),
            ledger: Arc::clone(&to.ledger),
            lease: to.lease.clone(),
            hook: to.hook.name.clone(),
            lane,
            policy,
            selection: Selection::new(to.hook),
            client: to.client.clone(),
            metrics: Arc::clone(&to.metrics),
            backlog,
            peer,
            outbox_cap: to.outbox_cap,
            grace: to.grace,
            plan: None,
            revision: 0,
            attempted: None,
            saving: JoinSet::new(),
            bodies: HashMap::new(),
            sending: JoinSet::new(),
            keys: HashMap::new(),
            caught_up: false,
            unread: 0,
            told_read: true,
            read_at: None,
            unsaved_since: None,
            save_now: false,
            look_at: None,
            count_at: None,
            reload_at: None,
            rejected: 0,
            let_go: None,
        }
    }

    fn now(&self) -> Millis {
        self.ledger.clock().now()
    }

    /// Loads what was saved, or starts the lane.
    async fn open(&mut self) -> Result<(), StoreError> {
        prepare_lanes(self.ledger.as_ref(), &self.lease, &self.hook).await?;
        let Some(saved) = self.ledger.load_lane(&self.hook, self.lane).await? else {
            return Err(StoreError::Unexpected("a lane was saved and is not there".to_owned()));
        };
        self.revision = saved.revision;
        let state = LaneState::from_json(&saved.state).unwrap_or_else(|error| {
            // Sending twice is allowed, losing is not: read everything that is still there.
            tracing::error!(source = self.policy.source, hook = self.hook, lane = self.lane.as_str(), %error,
                "the saved delivery state cannot be read; starting from the oldest event in the outbox");
            LaneState::default()
        });
        let plan = Plan::new(self.policy.clone(), state);
        if plan.is_off() {
            self.peer.gone();
            self.warn_off();
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Reads one page, if there may be something to read and room for it. True if there may be more.
    async fn read(&mut self) -> Result<bool, StoreError> {
        let now = self.now();
        let Some(plan) = &mut self.plan else { return Ok(false) };
        let room = plan.read_up_to(now);
        let due = self.read_at.is_none_or(|at| monotonic().duration_since(at) >= POLL);
        if self.caught_up && !self.told_read && !due {
            return Ok(false);
        }
        if room == 0 {
            // There may be more by now: that is to be counted, though it cannot be read.
            self.caught_up = false;
            return Ok(false);
        }
        // Before the read, so that a change during it is noticed after it.
        self.changes.mark_unchanged();
        self.told_read = false;
        let page = self.ledger.outbox(self.lane, plan.cursor(), room).await.inspect_err(|_| self.told_read = true)?;
        self.read_at = Some(monotonic());
        self.caught_up = (page.events.len() as u64).saturating_add(page.unreadable) < room as u64;
        let now = self.ledger.clock().now();
        let (mut rejected, read) = (0, page.events.len() as u64 + page.unreadable);
        self.unread = if self.caught_up { 0 } else { self.unread.saturating_sub(read) };
        let leaving = self.client.leaving();
        for posted in page.events {
            let wanted = self.selection.wants(&posted.event);
            match plan.take(&posted, wanted, now, |dead| leaving.brief(dead)) {
                Taken::Single => drop(self.bodies.insert(posted.id, posted.event)),
                Taken::Rejected => rejected += 1,
                Taken::Folded | Taken::Skipped => {}
            }
        }
        if let Some(last) = page.last {
            plan.passed(last);
        }
        // What a later event has made superfluous is not pending any more.
        self.bodies.retain(|id, _| plan.state().attempts_of(*id).is_some());
        if page.unreadable > 0 {
            tracing::warn!(
                source = self.policy.source,
                hook = self.hook,
                lane = self.lane.as_str(),
                events = page.unreadable,
                "events of a newer version were skipped"
            );
        }
        if rejected > 0 {
            self.metrics.not_sent(&self.hook, DeliveryOutcome::Rejected, rejected);
        }
        Ok(!self.caught_up)
    }

    /// Takes over what the other lane has found out about the receiver.
    fn hear(&mut self, told: Told) {
        let now = self.now();
        let Some(plan) = &mut self.plan else { return };
        if told.gone {
            let notes: Vec<_> = plan.gone_elsewhere().into_iter().collect();
            self.tell(&notes, None);
        } else if told.works {
            plan.works_elsewhere(now);
        }
    }

    /// Lets time pass in the plan, starts what is due, and saves beside it.
    fn advance(&mut self) {
        if let Some(told) = self.peer.news() {
            self.hear(told);
        }
        let now = self.now();
        let Some(plan) = &mut self.plan else { return };
        let notes = plan.tick(now);
        while let Some(due) = plan.due(now) {
            let known = match due.key {
                Key::Digest(_) => due.digest,
                Key::Event(id) => self.bodies.remove(&id),
            };
            let try_it = attempt(Arc::clone(&self.ledger), self.client.clone(), self.lane, due.key, known);
            self.keys.insert(self.sending.spawn(try_it).id(), due.key);
        }
        if plan.is_unsaved() {
            self.unsaved_since.get_or_insert_with(monotonic);
        }
        let time = self.unsaved_since.is_some_and(|at| monotonic().duration_since(at) >= SAVE_AFTER);
        if self.saving.is_empty()
            && (time || self.save_now || plan.save_is_urgent())
            && let Some((version, state)) = plan.unsaved()
        {
            self.unsaved_since = None;
            self.save_now = false;
            self.attempted = Some(state.clone());
            let (ledger, lease) = (Arc::clone(&self.ledger), self.lease.clone());
            let (hook, lane, over) = (self.hook.clone(), self.lane, self.revision);
            self.saving.spawn(async move { (version, ledger.save_lane(&lease, &hook, lane, over, &state).await) });
        }
        let all = self.backlog.set(self.lane, plan.state().unsettled().saturating_add(self.unread));
        self.metrics.backlog(&self.policy.source, &self.hook, all);
        self.tell(&notes, None);
    }

    /// Takes over what a try came to.
    fn take_result(&mut self, result: Result<(tokio::task::Id, Done), JoinError>) {
        let now = self.now();
        let (id, done) = result.unwrap_or_else(|error| {
            let retry = Outcome::Retry { after: None };
            tracing::error!(source = self.policy.source, hook = self.hook, %error, "a delivery has crashed");
            let text = "the delivery has crashed".to_owned();
            let sent = Sent { outcome: retry, status: None, error: Some(text), seconds: 0.0 };
            (error.id(), Done::Sent { sent, is_test: false })
        });
        let Some(key) = self.keys.remove(&id) else { return };
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.awaits(key)) else { return };
        match done {
            Done::Gone => {
                let notes: Vec<_> = plan.gone(key).into_iter().collect();
                self.tell(&notes, None);
            }
            Done::NoStore => plan.postponed(key, now),
            Done::Outdated => {
                plan.skipped(key);
                tracing::debug!(source = self.policy.source, hook = self.hook, event = %key, "not sent: too late");
            }
            Done::Sent { sent, is_test } => {
                match sent.outcome {
                    Outcome::Delivered | Outcome::Rejected => self.peer.works(),
                    Outcome::SwitchedOff => self.peer.gone(),
                    Outcome::Retry { .. } => {}
                }
                let answer = Answer { outcome: sent.outcome, status: sent.status, error: sent.error.clone() };
                let notes = plan.settled(key, answer, now, fastrand::f64());
                self.save_now |= is_test;
                self.count(key, &sent);
                self.tell(&notes, Some(&sent));
            }
        }
    }

    /// Takes over what a save came to.
    async fn take_saved(&mut self, version: u64, saved: Result<u64, StoreError>) -> Result<(), StoreError> {
        match saved {
            Ok(revision) => {
                self.revision = revision;
                if let Some(plan) = &mut self.plan {
                    plan.saved(version);
                }
                Ok(())
            }
            Err(StoreError::Moved) => self.reload(version).await,
            Err(error) => Err(error),
        }
    }

    /// Somebody else has saved this lane (`sexton hooks resend`), the store was rolled back, or a save of ours arrived
    /// though its answer did not.
    async fn reload(&mut self, version: u64) -> Result<(), StoreError> {
        let saved = self.ledger.load_lane(&self.hook, self.lane).await?;
        let Some(plan) = &mut self.plan else { return Ok(()) };
        let Some(saved) = saved else {
            // The ledger has lost the lane; what we know is the best there is.
            self.revision = 0;
            return Ok(());
        };
        self.revision = saved.revision;
        if self.attempted.as_ref() == Some(&saved.state) {
            plan.saved(version);
            return Ok(());
        }
        match LaneState::from_json(&saved.state) {
            Ok(state) => {
                tracing::info!(source = self.policy.source, hook = self.hook, lane = self.lane.as_str(),
                    after = %state.cursor(), "the saved delivery state has changed under us; going on from it");
                plan.replace(state);
                self.bodies.clear();
                self.caught_up = false;
            }
            Err(error) => {
                tracing::error!(source = self.policy.source, hook = self.hook, lane = self.lane.as_str(), %error,
                    "a changed delivery state cannot be read; it is overwritten");
            }
        }
        Ok(())
    }

    /// A lane at rest saves nothing, so it would not notice that somebody else has.
    async fn look_for_changes(&mut self) -> Result<(), StoreError> {
        let now = monotonic();
        let rests = self.saving.is_empty() && self.plan.as_ref().is_some_and(|plan| !plan.is_unsaved());
        if !rests || self.reload_at.is_some_and(|at| at > now) {
            return Ok(());
        }
        self.reload_at = Some(now + RELOAD_EVERY);
        let saved = self.ledger.load_lane(&self.hook, self.lane).await?;
        if saved.is_some_and(|saved| saved.revision != self.revision) { self.reload(0).await } else { Ok(()) }
    }

    /// Waits for anything to do.
    async fn wait(&mut self, stop: &CancellationToken) -> Result<(), StoreError> {
        let now = self.now();
        let clock = monotonic();
        let Some(plan) = &self.plan else { return Ok(()) };
        let room = plan.read_up_to(now) > 0;
        let in_ms = |at: Millis| Duration::from_millis(u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0));
        let left = |since: Option<Instant>, period: Duration| {
            since.map_or(Duration::ZERO, |at| period.saturating_sub(clock.duration_since(at)))
        };
        let failing = plan.is_failing();
        let behind = self.is_behind();
        let mut wait = if room { left(self.read_at, POLL) } else { POLL };
        if behind {
            wait = wait.min(self.look_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(clock)));
        }
        if let Some(at) = plan.wake_at() {
            wait = wait.min(in_ms(at));
        }
        if plan.is_unsaved() && self.saving.is_empty() {
            wait = if self.save_now { Duration::ZERO } else { wait.min(left(self.unsaved_since, SAVE_AFTER)) };
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(result) = self.sending.join_next_with_id() => self.take_result(result),
            Some(saved) = self.saving.join_next() => self.take_save(saved).await?,
            Ok(()) = self.changes.changed(), if room && !self.told_read => {
                self.told_read = true;
            }
            // Only a lane that waits for the receiver cares at once; any other listens at its next step.
            told = self.peer.next(), if failing => self.hear(told),
            () = tokio::time::sleep(wait) => {}
        }
        self.collect().await
    }

    /// Takes over everything that has ended meanwhile.
    async fn collect(&mut self) -> Result<(), StoreError> {
        while let Some(result) = self.sending.try_join_next_with_id() {
            self.take_result(result);
        }
        while let Some(saved) = self.saving.try_join_next() {
            self.take_save(saved).await?;
        }
        Ok(())
    }

    async fn take_save(&mut self, saved: Result<(u64, Result<u64, StoreError>), JoinError>) -> Result<(), StoreError> {
        match saved {
            Ok((version, saved)) => self.take_saved(version, saved).await,
            Err(error) => Err(StoreError::Unexpected(format!("saving has crashed: {error}"))),
        }
    }
}

/// One try, on a task of its own.
async fn attempt(ledger: Arc<dyn Ledger>, client: Client, lane: Lane, key: Key, known: Option<Event>) -> Done {
    let event = match (known, key) {
        (Some(event), _) => event,
        (None, Key::Digest(_)) => return Done::Gone,
        (None, Key::Event(id)) => match ledger.outbox_get(lane, id).await {
            Ok(Some(Posted { event, .. })) => event,
            Ok(None) => return Done::Gone,
            Err(_) => return Done::NoStore,
        },
    };
    let now = ledger.clock().now();
    if is_outdated(&event, now) || client.has_lapsed(&event, now) {
        return Done::Outdated;
    }
    Done::Sent { sent: client.send(&event, now).await, is_test: event.kind() == EventType::HookTest }
}

#[async_trait]
impl Step for Deliver {
    fn name(&self) -> &'static str {
        "deliver"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        if self.plan.is_none() {
            self.open().await?;
        }
        // A store in trouble does not keep us from sending what we have already.
        let read = self.read().await;
        self.advance();
        let more = read?;
        self.relieve().await?;
        if more && self.plan.as_ref().is_some_and(|plan| plan.read_up_to(self.now()) > 0) {
            self.collect().await?;
            return Ok(Next::Again);
        }
        self.count_unread().await?;
        self.look_for_changes().await?;
        self.wait(stop).await?;
        Ok(Next::Again)
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        let _ = tokio::time::timeout(self.grace, async {
            while let Some(result) = self.sending.join_next_with_id().await {
                self.take_result(result);
            }
        })
        .await;
        // What is still on its way stays pending in what is saved, and is sent again under the same id.
        self.sending.abort_all();
        while let Some(saved) = self.saving.join_next().await {
            self.take_save(saved).await?;
        }
        let Some((version, state)) = self.plan.as_ref().and_then(Plan::unsaved) else { return Ok(()) };
        let saved = self.ledger.save_lane(&self.lease, &self.hook, self.lane, self.revision, &state).await;
        self.attempted = Some(state);
        self.take_saved(version, saved).await
    }
}
