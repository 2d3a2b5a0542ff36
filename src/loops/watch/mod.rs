//! Watches the line: looks at the DLQ at regular intervals, which gives the gauges, counts what happens to jobs, and tells
//! what the alert rules notice.
//!
//! All judgement is [`crate::alert`]'s; these are its hands. What it remembers is in the ledger, saved in the same step in
//! which events are appended: after any trouble with that it is loaded anew.

mod aged;
mod count;
mod tell;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step, batch};
use crate::{
    alert::{self, Aged, AlertRule, Sample, Summary, Tick, Transition},
    clock::{millis, monotonic},
    config::DigestConfig,
    event::Lane,
    ledger::{AlertLedger, Lease, StoreError, Survey},
    letter::Millis,
    metrics::Metrics,
    rule::Rules,
};

/// How often the oldest entries are looked at, and hooks that want to hear it again are told what fires; with samples so
/// close to each other that twelve of them take less, after so many.
const NOW_AND_THEN: Duration = Duration::from_secs(60);
const SAMPLES: u32 = 12;
/// How soon to go on when there is more to read.
const SOON: Duration = Duration::from_millis(20);
/// What happens is counted soon, while it is at hand, but not more often than this.
const COUNT_EVERY: Duration = Duration::from_millis(20);
/// What a storm brings is saved before the next sample, for the outbox keeps what is not: after so many appends of this
/// process, but not sooner than this after the last look.
const STORM: u64 = 16;
const STORM_PAUSE: Duration = Duration::from_millis(500);
/// Names of fields that a log line tells of.
const NAMES_TOLD: usize = 8;

/// What the watch does the same way in every term.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// How often a sample is taken.
    pub every: Duration,
    /// When a summary is told, and to whom.
    pub digest: Option<DigestConfig>,
    /// Hooks that are told again and again what fires.
    pub reminded: Vec<String>,
}

/// The watch loop of one term.
pub struct Watch {
    ledger: Arc<dyn AlertLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    options: WatchOptions,
    alerts: watch::Receiver<Arc<[AlertRule]>>,
    /// Of these is told what they do with what an alert is about.
    rules: watch::Receiver<Arc<Rules>>,
    /// The watch as the ledger has it, and its revision; none until it is loaded.
    kept: Option<(alert::Watch, u64)>,
    /// When the oldest entries were last looked at, and by which rules.
    aged: Option<(Millis, Arc<[AlertRule]>)>,
    reminded: Option<Millis>,
    /// Entries whose groups are learnt at once.
    learnt_at_once: usize,
    /// How often this process has appended to the deaths lane, and how often it had at the last look.
    changes: watch::Receiver<u64>,
    looked_at: u64,
    /// It has been said that something in the ledger cannot be read.
    told_unreadable: bool,
    /// Incidents that were passed over in the last tick.
    passed_over: usize,
}

/// What is to be told in one save.
#[derive(Debug, Default)]
struct News {
    transitions: Vec<Transition>,
    summary: Option<Summary>,
    reminders: Vec<Transition>,
}

impl Watch {
    /// Watches by the alert rules as they are at any time.
    pub fn new(
        ledger: Arc<dyn AlertLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        options: WatchOptions,
        alerts: watch::Receiver<Arc<[AlertRule]>>,
        rules: watch::Receiver<Arc<Rules>>,
    ) -> Watch {
        Watch {
            changes: ledger.outbox_changes(Lane::Deaths),
            ledger,
            lease,
            metrics,
            options,
            alerts,
            rules,
            kept: None,
            aged: None,
            reminded: None,
            learnt_at_once: batch::FIRST,
            looked_at: 0,
            told_unreadable: false,
            passed_over: 0,
        }
    }

    /// Looks at the line once; true if there is more to read.
    pub async fn look(&mut self) -> Result<bool, StoreError> {
        self.looked_at = *self.changes.borrow_and_update();
        // First of all, so that the gauges come whatever ails the watch.
        let survey = self.survey().await?;
        match self.watch(&survey).await {
            // What ails the ledger as a whole is for ingest to notice; if only the watch was changed, it is loaded anew.
            Err(StoreError::Moved) => Ok(false),
            looked => looked,
        }
    }

    /// Waits for the time of the next sample, or for a storm, and counts what happens meanwhile.
    async fn rest(&mut self, stop: &CancellationToken) -> Result<(), StoreError> {
        let (looked, every) = (monotonic(), self.options.every);
        loop {
            let left = every.saturating_sub(monotonic().duration_since(looked));
            let changes = &mut self.changes;
            let more = async {
                tokio::time::sleep(COUNT_EVERY).await;
                // Without a sender nothing is appended any more; then the time alone counts.
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(left) => return Ok(()),
                () = more => {}
            }
            let appends = self.changes.borrow().wrapping_sub(self.looked_at);
            if appends >= STORM && monotonic().duration_since(looked) >= STORM_PAUSE {
                return Ok(());
            }
            self.count_on().await?;
        }
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        let survey = self.ledger.survey(&self.lease).await?;
        let source = self.ledger.name();
        self.metrics.surveyed(source, &survey);
        if survey.unseen > 0 {
            tracing::warn!(
                source,
                entries = survey.unseen,
                "entries left the DLQ before they could be read; they are not announced"
            );
        }
        // Nobody's position in the ledger can be relied on any more.
        if survey.lost { Err(StoreError::Moved) } else { Ok(survey) }
    }

    /// Takes a sample and tells what the rules make of it; true if there is more to read. After an error nothing is kept,
    /// for nobody knows what the ledger has: only what was read besides may fail without that.
    async fn watch(&mut self, survey: &Survey) -> Result<bool, StoreError> {
        let now = self.ledger.clock().now();
        let alerts = Arc::clone(&self.alerts.borrow_and_update());
        let (mut watch, revision) = match self.kept.take() {
            Some(kept) => kept,
            None => self.load().await?,
        };
        let mut more = self.count(&mut watch, now, Some(survey.told.unwrap_or_default()), &alerts).await?;
        let learnt = match more {
            true => Ok(false),
            false => self.learn(&mut watch, survey, &alerts).await,
        };
        let (aged, looked) = self.look_at_the_oldest(now, survey, &alerts).await;
        let (tick, news) = self.judge(&mut watch, now, survey, &alerts, &aged);
        let events = self.events(&watch, now, &news).await;
        let revision = self.ledger.save_watch(&self.lease, revision, &tick.fields, &events).await?;
        self.told(&news, &tick);
        let firing = watch.firing(&alerts).into_iter();
        self.metrics.firing(
            self.ledger.name(),
            firing.map(|(rule, incidents)| (rule.name.as_str(), rule.severity.as_str(), incidents as u64)),
        );
        self.kept = Some((watch, revision));
        more |= learnt?;
        looked?;
        Ok(more)
    }

    async fn load(&mut self) -> Result<(alert::Watch, u64), StoreError> {
        let saved = self.ledger.load_watch().await?;
        let source = self.ledger.name();
        let (watch, unreadable) = alert::Watch::load(source, self.options.every, saved.fields);
        let watch = watch.of_ledger(&self.ledger.id());
        if !unreadable.is_empty() && !self.told_unreadable {
            let mut names = unreadable.clone();
            names.truncate(NAMES_TOLD);
            tracing::warn!(
                source,
                fields = unreadable.len(),
                names = names.join(", "),
                "what the ledger has of the line cannot all be read: a newer version, or something else, wrote it; the \
                 rest is used"
            );
            self.told_unreadable = true;
        }
        Ok((watch, saved.revision))
    }

    /// A tick, and everything that is to be told with it.
    fn judge(
        &mut self,
        watch: &mut alert::Watch,
        now: Millis,
        survey: &Survey,
        alerts: &[AlertRule],
        aged: &[Aged],
    ) -> (Tick, News) {
        let summary = self.options.digest.as_ref().and_then(|digest| watch.summary_due(&digest.at, now));
        let sample = Sample { entries: survey.entries, in_flight: survey.in_flight };
        let mut tick = watch.tick(now, sample, alerts, aged);
        let transitions = std::mem::take(&mut tick.transitions);
        let mut reminders = Vec::new();
        if !self.options.reminded.is_empty() && self.is_time(self.reminded, now) {
            self.reminded = Some(now);
            reminders = watch.reminders(now, alerts, aged, &self.options.reminded);
            // What is told for the first time in this very step needs no reminder.
            let is_news = |incident: &String| transitions.iter().any(|told| told.incident == *incident);
            reminders.retain(|again| !is_news(&again.incident));
        }
        (tick, News { transitions, summary, reminders })
    }

    /// Whether what was done then is to be done once more. A clock that has stepped back must not make it wait.
    fn is_time(&self, last: Option<Millis>, now: Millis) -> bool {
        let every = NOW_AND_THEN.min(self.options.every * SAMPLES);
        last.is_none_or(|at| !(0..millis(every)).contains(&(now.0 - at.0)))
    }
}

#[async_trait]
impl Step for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        if self.look().await? {
            return Ok(Next::After(SOON));
        }
        self.rest(stop).await?;
        Ok(Next::Again)
    }
}
