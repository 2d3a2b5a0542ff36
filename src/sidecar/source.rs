//! One source: standing by for its lease, and leading while it is ours.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    alert::AlertRule,
    config::{Config, HookConfig},
    event::{EventType, Include, Lane},
    hook::{Client, Selection, reminded_every},
    ledger::{
        AlertLedger, AttachOptions, Attached, Lease, Ledger, Loss, RetryLedger, SourceLedger, StoreError, TriageLedger,
        TryLease,
    },
    loops::{
        self, Deliver, DeliverTo, Ended, Ingest, IngestOptions, Judge, Operate, Renew, Retain, Retry, Step, Trim,
        Trouble, WatchOptions,
    },
    metrics::Metrics,
    rule::Rules,
};

/// How often a standby looks at the lease, at most. Short enough that a clean stop hands over within a second.
const LOOK_EVERY: Duration = Duration::from_millis(600);
/// Every so many looks, a standby tries for a lease that seems to be held.
const TRY_ANYWAY: u32 = 50;
/// What requests in flight get to end by themselves when Sexton is told to stop.
const GRACE: Duration = Duration::from_secs(3);
/// How long giving the lease up may take; a store that does not answer lets it run out.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a source is told of while Sexton runs.
#[derive(Clone)]
pub(super) struct Told {
    /// The retry rules in force.
    pub(super) rules: watch::Receiver<Arc<Rules>>,
    /// The alert rules in force.
    pub(super) alerts: watch::Receiver<Arc<[AlertRule]>>,
    /// That this process has been asked for an operation.
    pub(super) asked: watch::Receiver<()>,
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
    looks: u32,
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
            looks: 0,
            has_led: false,
            loss_counted: false,
            ask_for_loss: false,
        }
    }

    /// Stands by and leads, in turn, until told to stop. An error means that a loop died.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        while let Some(lease) = self.stand_by().await {
            let ended = self.lead(&lease).await;
            self.metrics.leads(self.ledger.name(), false, &self.hook_names());
            let rules = Arc::clone(&self.told.rules.borrow());
            let names: Vec<&str> = rules.retry.iter().map(|rule| rule.name.as_str()).collect();
            self.metrics.no_more_rules(self.ledger.name(), &names);
            ended?;
        }
        Ok(())
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
        let mut leader: Option<Lease> = None;
        let look_every = LOOK_EVERY.min(self.config.lease_ttl / 4);
        while !self.stop.is_cancelled() {
            let tried = self.try_for_lease().await;
            if tried.is_ok() && self.ask_for_loss {
                self.ask_for_loss().await;
            }
            match tried {
                Ok(TryLease::Acquired(lease)) => {
                    self.known_epoch = lease.epoch;
                    self.metrics.up(&source, true);
                    self.trouble.over();
                    return Some(lease);
                }
                Ok(TryLease::Held { by, epoch }) => {
                    self.known_epoch = self.known_epoch.max(epoch);
                    self.metrics.up(&source, true);
                    self.trouble.over();
                    let now = Lease { epoch, holder: by };
                    if leader.as_ref() != Some(&now) {
                        tracing::info!(source, leader = now.holder, epoch, "standing by");
                        leader = Some(now);
                    }
                }
                Err(error) => {
                    self.metrics.up(&source, false);
                    self.trouble.failed(&error);
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(look_every.mul_f64(0.8 + 0.4 * fastrand::f64())) => {}
            }
        }
        None
    }

    /// Whoever leads next may never have seen what a failover has taken with the lease; who led before has.
    async fn ask_for_loss(&mut self) {
        match self.ledger.has_lost().await {
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

    /// A look costs one read. Tried for is only a lease that is free, or that may be nobody's: one that cannot be read,
    /// and now and then any, since only the try can see that it would never run out.
    async fn try_for_lease(&mut self) -> Result<TryLease, StoreError> {
        self.looks = self.looks.wrapping_add(1);
        match self.ledger.leader().await {
            Ok(Some(lease)) if lease.holder != self.holder && !self.looks.is_multiple_of(TRY_ANYWAY) => {
                Ok(TryLease::Held { by: lease.holder, epoch: lease.epoch })
            }
            Ok(_) | Err(StoreError::Unexpected(_)) => {
                self.ledger.try_lease(&self.holder, self.config.lease_ttl, self.known_epoch).await
            }
            Err(error) => Err(error),
        }
    }

    /// Leads until told to stop, or until the lease is lost.
    async fn lead(&mut self, lease: &Lease) -> anyhow::Result<()> {
        let source = self.ledger.name().to_owned();
        tracing::info!(source, epoch = lease.epoch, "leading");
        let keep = CancellationToken::new();
        let renew = Renew::new(self.ledger.clone(), lease.clone(), Arc::clone(&self.metrics), self.config.lease_ttl);
        let mut renewal = JoinSet::new();
        self.spawn_loop(&mut renewal, &keep, Box::new(renew));

        let term = CancellationToken::new();
        let mut work = JoinSet::new();
        let ended = tokio::select! {
            attached = self.attach(lease) => match attached {
                Ok(attached) => {
                    self.metrics.leads(&source, true, &self.hook_names());
                    self.spawn_loops(&mut work, &term, lease, attached)?;
                    tokio::select! {
                        () = self.stop.cancelled() => Ended::Stopped,
                        ended = first(&mut work) => ended?,
                        ended = first(&mut renewal) => ended?,
                    }
                }
                Err(ended) => ended,
            },
            ended = first(&mut renewal) => ended?,
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
                if let Ok(rest) = tokio::time::timeout(GRACE * 2, rest).await {
                    rest?;
                }
                work.shutdown().await;
                let _ = tokio::time::timeout(RELEASE_TIMEOUT, self.ledger.release(lease)).await;
                tracing::info!(source, epoch = lease.epoch, "the lease is given up");
            }
        }
        keep.cancel();
        renewal.shutdown().await;
        Ok(())
    }

    /// Attaches, for as long as it takes; else why the term ended before.
    async fn attach(&mut self, lease: &Lease) -> Result<Attached, Ended> {
        let source = self.ledger.name().to_owned();
        let options = AttachOptions { announce_existing: self.config.announce_existing, seen_before: self.has_led };
        let trouble = self.trouble.at("attach");
        let attached = loop {
            match self.begin(lease, options).await {
                Ok(attached) => break attached,
                Err(StoreError::Fenced) => return Err(Ended::Fenced),
                Err(error) => trouble.failed(&error),
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                () = tokio::time::sleep(LOOK_EVERY.mul_f64(0.5 + fastrand::f64())) => {}
            }
        };
        trouble.over();
        self.has_led = true;
        if attached.loss.is_some() && !self.loss_counted {
            self.metrics.store_lost(&source);
        }
        self.loss_counted = false;
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
        self.ledger.attach(lease, options).await
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
