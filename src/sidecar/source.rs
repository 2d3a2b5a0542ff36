//! One source: standing by for its lease, and leading while it is ours.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    alert::AlertRule,
    clock::monotonic,
    config::{Config, HookConfig},
    event::{EventData, EventType, Include, Lane},
    hook::{Client, Selection, reminded_every},
    http::Terms,
    ledger::{
        AlertLedger, AttachOptions, Attached, Lease, LeaseNow, Ledger, Loss, OutboxId, RetryLedger, SourceLedger,
        StoreError, TriageLedger, TryLease,
    },
    letter::Reason,
    loops::{
        self, Deliver, DeliverTo, Ended, Ingest, IngestOptions, Judge, Operate, Renew, Retain, Retry, Step, Trim,
        Trouble, WatchOptions,
    },
    metrics::{DeadKind, Metrics},
    rule::Rules,
};

/// The pause after a look at the lease that failed, and between tries to attach.
const PAUSE: Duration = Duration::from_millis(600);
/// How often a standby looks at a lease that nobody gives up and that does not run out before, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How far apart standbys look when a lease has run out, at most: the first one takes it, and the others see that.
const APART: Duration = Duration::from_millis(500);
/// The same when it was given up: however few they are, the lease is to be taken at once.
const APART_AT_ONCE: Duration = Duration::from_millis(100);
/// What requests in flight get to end by themselves when Sexton is told to stop.
const GRACE: Duration = Duration::from_millis(2_500);
/// What the loops get in all to come to rest, these requests and saving what became of them included.
const REST: Duration = Duration::from_secs(3);
/// How long giving the lease up may take; a store that does not answer lets it run out.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Deaths that were announced longer ago are not counted late: they would look like an outage of now.
const COUNTED_LATE_MS: u64 = 600_000;
/// Events read at a time: few, for each may be large.
const PAGE: usize = 100;

/// What a source is told of while Sexton runs.
#[derive(Clone)]
pub(super) struct Told {
    /// The retry rules in force.
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    /// The alert rules in force.
    pub(super) alerts: watch::Receiver<Arc<[AlertRule]>>,
    /// That this process has been asked for an operation.
    pub(super) asked: watch::Receiver<()>,
    /// Where it tells what it leads.
    pub(super) terms: Terms,
}

/// One replica's part in one source.
pub(super) struct Watch {
    ledger: Arc<dyn SourceLedger>,
    config: Arc<Config>,
    told: Told,
    metrics: Arc<Metrics>,
    holder: String,
    stop: CancellationToken,
    trouble: Trouble,
    known_epoch: u64,
    has_led: bool,
    /// A loss of the store's has been counted, and it has not been attached to anew yet.
    loss_counted: bool,
    /// A term has ended otherwise than by a loss: whether there was one is asked as soon as there is somebody to ask.
    ask_for_loss: bool,
}

impl Watch {
    pub(super) fn new(
        ledger: Arc<dyn SourceLedger>,
        config: Arc<Config>,
        told: Told,
        metrics: Arc<Metrics>,
        holder: &str,
        stop: CancellationToken,
    ) -> Watch {
        let trouble = Trouble::new(ledger.name(), "standby");
        // Two sources may turn out to be one DLQ: they must then not take each other for themselves.
        let holder = format!("{holder}/{}", ledger.name());
        Watch {
            ledger,
            config,
            told,
            metrics,
            holder,
            stop,
            trouble,
            known_epoch: 0,
            has_led: false,
            loss_counted: false,
            ask_for_loss: false,
        }
    }

    /// Stands by and leads, in turn, until told to stop. An error means that a loop died.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        while let Some(lease) = self.stand_by().await {
            let ended = self.lead(&lease).await;
            self.lead_no_more();
            ended?;
        }
        Ok(())
    }

    /// Shows nothing more of a leader.
    fn lead_no_more(&self) {
        self.told.terms.end(self.ledger.name());
        self.metrics.leads(self.ledger.name(), false, &self.hook_names());
        let rules = Arc::clone(&self.told.rules.borrow());
        let names: Vec<&str> = rules.retry.iter().map(|rule| rule.name.as_str()).collect();
        self.metrics.no_more_rules(self.ledger.name(), &names);
    }

    fn hook_names(&self) -> Vec<&str> {
        self.config.hooks.iter().map(|hook| hook.name.as_str()).collect()
    }

    /// The hooks that are told of this source.
    fn hooks(&self) -> Vec<&HookConfig> {
        let source = self.ledger.name();
        let wants = |hook: &&HookConfig| hook.matcher.source.as_ref().is_none_or(|sources| sources.is_match(source));
        self.config.hooks.iter().filter(wants).collect()
    }

    /// Waits for the lease; `None` once told to stop.
    async fn stand_by(&mut self) -> Option<Lease> {
        let source = self.ledger.name().to_owned();
        let stop = self.stop.clone();
        let mut leader: Option<Lease> = None;
        loop {
            let looked = stop.run_until_cancelled(self.ledger.look_at_lease()).await?;
            if looked.is_ok() && self.ask_for_loss {
                stop.run_until_cancelled(self.ask_for_loss()).await?;
            }
            let waited = match looked {
                Ok(LeaseNow::Held { lease, left }) if lease.holder != self.holder => {
                    self.known_epoch = self.known_epoch.max(lease.epoch);
                    self.metrics.up(&source, true);
                    self.trouble.over();
                    if leader.as_ref() != Some(&lease) {
                        tracing::info!(source, leader = lease.holder, epoch = lease.epoch, "standing by");
                    }
                    let waited = stop.run_until_cancelled(self.until_free(&lease, left)).await?;
                    leader = Some(lease);
                    waited
                }
                // One in our own name is ours to take anew: the answer to an earlier try was lost.
                Ok(LeaseNow::Held { .. } | LeaseNow::Free) => match self.try_for_lease().await? {
                    Ok(Some(lease)) => {
                        self.metrics.up(&source, true);
                        self.trouble.over();
                        return Some(lease);
                    }
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                self.metrics.up(&source, false);
                self.trouble.failed(&error);
                stop.run_until_cancelled(tokio::time::sleep(jittered(PAUSE))).await?;
            }
        }
    }

    /// Whoever leads next may never have seen what a failover has taken with the lease; who led before has.
    async fn ask_for_loss(&mut self) {
        match self.ledger.has_lost().await {
            // What ended an earlier term of ours, which has not been attached to since.
            Ok(true) if self.loss_counted => self.ask_for_loss = false,
            Ok(true) => {
                tracing::warn!(
                    source = self.ledger.name(),
                    "the store has lost data: events that were written there are gone, as after a failover"
                );
                self.metrics.store_lost(self.ledger.name());
                self.loss_counted = true;
                self.ask_for_loss = false;
            }
            Ok(false) => self.ask_for_loss = false,
            // The next look asks again.
            Err(_) => {}
        }
    }

    /// Tries for a lease that is to be had; `Ok(None)` if somebody was quicker, `None` once told to stop.
    async fn try_for_lease(&mut self) -> Option<Result<Option<Lease>, StoreError>> {
        let (ledger, stop) = (Arc::clone(&self.ledger), self.stop.clone());
        let tried = ledger.try_lease(&self.holder, self.config.lease_ttl, self.known_epoch);
        tokio::pin!(tried);
        let tried = tokio::select! {
            tried = &mut tried => tried,
            // What may be ours already must not be left to run out.
            () = stop.cancelled() => tokio::time::timeout(RELEASE_TIMEOUT, tried).await.ok()?,
        };
        match tried {
            Ok(TryLease::Acquired(lease)) => {
                self.known_epoch = lease.epoch;
                if stop.is_cancelled() {
                    self.release(&lease).await;
                    return None;
                }
                Some(Ok(Some(lease)))
            }
            Ok(TryLease::Held { epoch, .. }) => {
                self.known_epoch = self.known_epoch.max(epoch);
                Some(Ok(None))
            }
            Err(error) => Some(Err(error)),
        }
    }

    async fn release(&self, lease: &Lease) {
        match tokio::time::timeout(RELEASE_TIMEOUT, self.ledger.release(lease)).await {
            Ok(Ok(())) => {
                tracing::info!(source = self.ledger.name(), epoch = lease.epoch, "the lease is given up");
            }
            Ok(Err(error)) => {
                tracing::warn!(source = self.ledger.name(), epoch = lease.epoch, %error,
                    "the lease could not be given up: it runs out by itself");
            }
            Err(_) => {
                tracing::warn!(
                    source = self.ledger.name(),
                    epoch = lease.epoch,
                    "the store did not answer in time that the lease is given up: it may have to run out by itself"
                );
            }
        }
    }

    /// Waits until this lease may be free: given up, or run out. Standbys do not wait equally long, so that they neither
    /// look nor try all at once.
    async fn until_free(&self, lease: &Lease, left: Duration) -> Result<(), StoreError> {
        let at_most = if left > LOOK_EVERY {
            LOOK_EVERY.mul_f64(0.8 + 0.2 * fastrand::f64())
        } else {
            left + APART.min(self.config.lease_ttl / 4).mul_f64(fastrand::f64())
        };
        let began = monotonic();
        self.ledger.until_released(lease, at_most).await?;
        if began.elapsed() < at_most {
            tokio::time::sleep(APART_AT_ONCE.mul_f64(fastrand::f64())).await;
        }
        Ok(())
    }

    /// Leads until told to stop, or until the lease is lost.
    async fn lead(&mut self, lease: &Lease) -> anyhow::Result<()> {
        let source = self.ledger.name().to_owned();
        tracing::info!(source, epoch = lease.epoch, "leading");
        let keep = CancellationToken::new();
        let renew = Renew::new(self.ledger.clone(), lease.clone(), Arc::clone(&self.metrics), self.config.lease_ttl);
        let mut renewal = JoinSet::new();
        self.spawn_loop(&mut renewal, &keep, Box::new(renew));

        let (term, stop) = (CancellationToken::new(), self.stop.clone());
        let mut work = JoinSet::new();
        let ended = tokio::select! {
            attached = self.attach(lease) => match attached {
                Ok(attached) => {
                    self.metrics.leads(&source, true, &self.hook_names());
                    self.told.terms.begin(&self.ledger, lease);
                    self.spawn_loops(&mut work, &term, lease, attached)?;
                    tokio::select! {
                        () = stop.cancelled() => Ended::Stopped,
                        ended = first(&mut work) => ended?,
                        ended = first(&mut renewal) => ended?,
                    }
                }
                Err(ended) => ended,
            },
            ended = first(&mut renewal) => ended?,
            // Also in the middle of an answer that may not come: attaching can be broken off anywhere.
            () = stop.cancelled() => Ended::Stopped,
        };
        term.cancel();
        match ended {
            Ended::Fenced => {
                tracing::warn!(source, epoch = lease.epoch, "the lease is lost; standing by");
                self.ask_for_loss = true;
                work.shutdown().await;
            }
            Ended::Stopped | Ended::Moved => {
                if ended == Ended::Moved {
                    tracing::warn!(
                        source,
                        "the ledger is not where this leader left it: the store has lost data, or something else wrote \
                         to it; attaching anew"
                    );
                    self.metrics.store_lost(&source);
                    self.loss_counted = true;
                }
                let rest = async {
                    while let Some(ended) = work.join_next().await {
                        ended.context("a loop died while it came to rest")?;
                    }
                    anyhow::Ok(())
                };
                if let Ok(rest) = tokio::time::timeout(REST, rest).await {
                    rest?;
                }
                work.shutdown().await;
                // Before another one can begin to.
                self.lead_no_more();
                self.release(lease).await;
            }
        }
        keep.cancel();
        renewal.shutdown().await;
        Ok(())
    }

    /// Attaches, for as long as it takes; else why the term ended before.
    async fn attach(&mut self, lease: &Lease) -> Result<Attached, Ended> {
        let source = self.ledger.name().to_owned();
        let options = AttachOptions {
            announce_existing: self.config.announce_existing,
            seen_before: self.has_led,
            loss_known: self.loss_counted,
        };
        let trouble = self.trouble.at("attach");
        let attached = loop {
            match self.begin(lease, options).await {
                Ok(attached) => break attached,
                Err(StoreError::Fenced) => return Err(Ended::Fenced),
                Err(error) => trouble.failed(&error),
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                () = tokio::time::sleep(jittered(PAUSE)) => {}
            }
        };
        trouble.over();
        self.has_led = true;
        if attached.loss.is_some() && !self.loss_counted {
            self.metrics.store_lost(&source);
        }
        self.loss_counted = false;
        // Who leads looks for that itself.
        self.ask_for_loss = false;
        match attached.loss {
            Some(Loss::Ledger) => tracing::warn!(
                source,
                "the store has lost the ledger; going on from what exists, everything in the DLQ counts as new"
            ),
            Some(Loss::CursorAhead) => tracing::warn!(
                source,
                "the DLQ ends before the last entry read: the store has lost data; going on from what exists"
            ),
            None => {}
        }
        if !attached.dlq_exists {
            tracing::warn!(
                source,
                dlq = self.ledger.dlq(),
                "there is no DLQ yet; if jobs have died, the namespace is wrong"
            );
        }
        if attached.existing.is_some() {
            tracing::info!(source, "first visit: entries already in the DLQ are counted, not announced one by one");
        }
        Ok(attached)
    }

    /// The lanes get their places before the first event can be written, so that no event falls between.
    async fn begin(&self, lease: &Lease, options: AttachOptions) -> Result<Attached, StoreError> {
        for hook in self.hooks() {
            match loops::prepare_lanes(&*self.ledger, lease, &hook.name).await {
                // One hook's ruined lane must not hold up everything else; its own loops go on complaining.
                Err(StoreError::Unexpected(why)) => {
                    tracing::error!(source = self.ledger.name(), hook = hook.name, why, "the hook has no lane");
                }
                prepared => prepared?,
            }
        }
        let attached = self.ledger.attach(lease, options).await?;
        self.take_over_counts().await?;
        Ok(attached)
    }

    /// Counts the deaths that were announced, and of which Prometheus has not been told by who led before.
    async fn take_over_counts(&self) -> Result<(), StoreError> {
        let (source, shown) = (self.ledger.name(), self.ledger.shown_until().await?);
        let end = self.ledger.outbox_end(Lane::Deaths).await?.max(shown.unwrap_or_default());
        let now = u64::try_from(self.ledger.clock().now().0).unwrap_or_default();
        let oldest = OutboxId { ms: now.saturating_sub(COUNTED_LATE_MS), seq: 0 };
        // Where nobody scrapes, nothing is missing.
        let mut after = shown.map_or(end, |shown| shown.max(oldest));
        let mut dead: HashMap<(Option<String>, Option<String>, Reason, bool), u64> = HashMap::new();
        while after < end {
            let page = self.ledger.outbox(Lane::Deaths, after, PAGE).await?;
            for posted in page.events.into_iter().filter(|posted| posted.id <= end) {
                if let EventData::JobDead(death) = posted.event.data {
                    let reason = Reason::parse(death.reason.as_deref().unwrap_or_default());
                    *dead.entry((death.queue, death.task, reason, death.retries > 0)).or_default() += 1;
                }
            }
            after = page.last.unwrap_or(end);
        }
        let mut kinds: HashMap<DeadKind<'_>, u64> = HashMap::new();
        for ((queue, task, reason, again), count) in &dead {
            let (queue, task) = (queue.as_deref().unwrap_or_default(), task.as_deref().unwrap_or_default());
            kinds.insert(DeadKind { queue, task, reason, again: *again }, *count);
        }
        self.metrics.jobs_dead(source, &kinds, None);
        self.metrics.counts_from(source, end, shown);
        Ok(())
    }

    fn spawn_loops(
        &self,
        work: &mut JoinSet<Ended>,
        term: &CancellationToken,
        lease: &Lease,
        attached: Attached,
    ) -> anyhow::Result<()> {
        let hooks = self.hooks();
        let (ledger, metrics) = (|| -> Arc<dyn Ledger> { self.ledger.clone() }, || Arc::clone(&self.metrics));
        let mut steps: Vec<Box<dyn Step>> = Vec::new();
        for hook in &hooks {
            let client = Client::new(hook).with_context(|| format!("hook {}", hook.name))?;
            let to = DeliverTo {
                ledger: ledger(),
                lease: lease.clone(),
                hook,
                client,
                metrics: metrics(),
                outbox_cap: self.config.outbox.cap,
                grace: GRACE,
            };
            for lane in Deliver::lanes(&to) {
                steps.push(Box::new(lane));
            }
        }
        let include = hooks.iter().fold(Include::default(), |all, hook| all.or(hook.include));
        let options = IngestOptions { include, outbox_cap: self.config.outbox.cap };
        let names: Vec<String> = hooks.iter().map(|hook| hook.name.clone()).collect();
        let every = self.config.sample_every;
        let rules = || self.told.rules.clone();
        let retries = || -> Arc<dyn RetryLedger> { self.ledger.clone() };
        let alerts = || -> Arc<dyn AlertLedger> { self.ledger.clone() };
        let triage = || -> Arc<dyn TriageLedger> { self.ledger.clone() };
        let watch = WatchOptions { every, digest: self.config.digest.clone(), reminded: reminded(&hooks) };
        steps.push(Box::new(Ingest::new(retries(), lease.clone(), metrics(), options, rules(), attached)));
        steps.push(Box::new(Judge::new(retries(), lease.clone(), metrics(), rules())));
        steps.push(Box::new(Retry::new(retries(), lease.clone(), metrics(), rules())));
        let watch = loops::Watch::new(alerts(), lease.clone(), metrics(), watch, self.told.alerts.clone(), rules());
        steps.push(Box::new(watch));
        steps.push(Box::new(Operate::new(triage(), lease.clone(), metrics(), rules(), self.told.asked.clone())));
        let retention = self.config.retention;
        if let Some(retain) = Retain::new(triage(), lease.clone(), metrics(), rules(), retention) {
            steps.push(Box::new(retain));
        }
        for lane in Lane::ALL {
            steps.push(Box::new(Trim::new(alerts(), lease.clone(), lane, names.clone(), self.config.outbox, every)));
        }
        for step in steps {
            self.spawn_loop(work, term, step);
        }
        Ok(())
    }

    fn spawn_loop(&self, among: &mut JoinSet<Ended>, stop: &CancellationToken, step: Box<dyn Step>) {
        let (trouble, stop) = (self.trouble.at(step.name()), stop.clone());
        among.spawn(async move { loops::run(step, &trouble, stop).await });
    }
}

/// Somewhere around a pause.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

/// The hooks that want to be told again and again what fires: Alertmanager takes for over what it hears no more of.
fn reminded(hooks: &[&HookConfig]) -> Vec<String> {
    let wants = |hook: &&&HookConfig| {
        reminded_every(hook.format).is_some() && Selection::new(hook).subscribed(EventType::AlertFiring)
    };
    hooks.iter().filter(wants).map(|hook| hook.name.clone()).collect()
}

/// How the first of these loops ended. A panic in one is an error.
async fn first(loops: &mut JoinSet<Ended>) -> anyhow::Result<Ended> {
    match loops.join_next().await {
        Some(ended) => ended.context("a loop died"),
        // Nothing was running: wait for whatever else ends the term.
        None => std::future::pending().await,
    }
}
