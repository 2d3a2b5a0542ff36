//! Retention: removes what the DLQ is not to keep, by age and by number, oldest first and a little at a time.
//!
//! What a rule will retry, what is of a job in flight, and what has not been read yet stays: that is decided by the store
//! in the step that removes. A sweep passes over such entries and does not come back to them for a while, so a head full
//! of them neither hides what is behind it nor is read again in every round.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::{millis, monotonic, written},
    config::RetentionConfig,
    event::{EventData, Purge, rfc3339},
    ledger::{By, Lease, Overview, Place, Retain as RetainStep, Scan, StoreError, TriageLedger},
    letter::{DeadLetter, Millis},
    metrics::{Metrics, Purged},
    retry::place,
    rule::{Decision, Rules},
};

/// Entries of a piece at most.
const PIECE: u64 = 500;
/// What lies between two pieces: so many times as long as one takes, so that workers hardly notice.
const REST: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);
/// How often to look when there was nothing to remove.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How soon to look again whether the ledger works by the rules of this process.
const SOON: Duration = Duration::from_secs(1);
/// What stayed is looked at again after this long: it may have been retried, or exhausted, meanwhile.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// What is removed within this time is announced together: a DLQ that is always full loses something all the time.
const TELL_EVERY: Duration = Duration::from_secs(600);
/// Who it is, in the audit log and in events.
const WHO: &str = "retention";

/// The retention loop of one term.
pub struct Retain {
    ledger: Arc<dyn TriageLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    rules: watch::Receiver<Arc<Rules>>,
    policy: RetentionConfig,
    sweep: Sweep,
    gone: Gone,
    /// When what had gone was announced last.
    told: Option<Instant>,
}

/// A walk from the oldest entry on.
#[derive(Debug)]
struct Sweep {
    began: Instant,
    /// The rules that its entries were judged by.
    generation: u64,
    /// It has come to this entry.
    at: Option<String>,
    /// Entries before that which stayed.
    stayed: u64,
}

impl Sweep {
    fn new(generation: u64) -> Sweep {
        Sweep { began: monotonic(), generation, at: None, stayed: 0 }
    }
}

/// What was removed and has not been announced.
#[derive(Debug, Default)]
struct Gone {
    count: u64,
    /// When the first of it went.
    since: Option<Instant>,
    oldest: Option<Millis>,
    newest: Option<Millis>,
}

impl Gone {
    /// So many of these, oldest first, went.
    fn add(&mut self, count: u64, of: &[DeadLetter]) {
        self.count += count;
        self.since.get_or_insert_with(monotonic);
        let died = || of.iter().map(|letter| letter.died_at);
        self.oldest = self.oldest.into_iter().chain(died()).min();
        self.newest = self.newest.into_iter().chain(died()).max();
    }
}

impl Retain {
    /// Removes what is beyond this policy; none if it keeps everything.
    pub fn new(
        ledger: Arc<dyn TriageLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        rules: watch::Receiver<Arc<Rules>>,
        policy: RetentionConfig,
    ) -> Option<Retain> {
        let keeps_everything = policy == RetentionConfig::default();
        let (sweep, gone) = (Sweep::new(0), Gone::default());
        (!keeps_everything).then(|| Retain { ledger, lease, metrics, rules, policy, sweep, gone, told: None })
    }

    /// The policy in words.
    fn note(&self) -> String {
        let RetentionConfig { max_age, max_entries } = self.policy;
        let age = max_age.map(|age| format!("max_age {}", written(age)));
        let number = max_entries.map(|most| format!("max_entries {most}"));
        age.into_iter().chain(number).collect::<Vec<_>>().join(", ")
    }

    /// What to look at next: entries that are too old, or too many.
    fn wanted(&self, overview: &Overview, now: Millis) -> Option<Scan> {
        let scan = Scan { from: self.sweep.at.clone(), oldest_first: true, without_payload: true, ..Scan::default() };
        // What has not been read yet stays, too, but not for long, so a sweep must not pass over it.
        let unread = overview.lag.unwrap_or(overview.entries);
        let ahead = overview.entries.saturating_sub(unread).saturating_sub(self.sweep.stayed);
        // Counted from the newest on, with those that stay: what is among the newest so many never goes for the number.
        let beyond = self.policy.max_entries.map_or(0, |most| overview.entries.saturating_sub(most));
        let too_many = beyond.saturating_sub(self.sweep.stayed);
        let at_most = |entries: u64| usize::try_from(entries.min(PIECE)).unwrap_or(usize::MAX);
        match (ahead, too_many, self.policy.max_age) {
            (0, ..) | (_, 0, None) => None,
            (_, 0, Some(age)) => {
                Some(Scan { until: Some(Millis(now.0.saturating_sub(millis(age)))), max: at_most(ahead), ..scan })
            }
            (_, too_many, _) => Some(Scan { max: at_most(ahead.min(too_many)), ..scan }),
        }
    }

    /// Looks at one piece, and removes of it what may go; false if there was nothing to look at.
    async fn piece(&mut self, rules: &Rules) -> Result<bool, StoreError> {
        let overview = self.ledger.overview().await?;
        let Some(scan) = self.wanted(&overview, self.ledger.clock().now()) else { return Ok(false) };
        let letters = self.ledger.scan(&scan).await?.letters;
        let Some(last) = letters.last() else { return Ok(false) };
        let entries = letters.iter().map(|letter| (letter.entry_id.clone(), waits_at(rules, &*self.ledger, letter)));
        let step = RetainStep { entries: entries.collect(), generation: self.sweep.generation };
        let by = By { who: WHO.to_owned(), note: self.note(), operation: String::new() };
        let removed = self.ledger.retain(&self.lease, &by, step).await?;
        self.sweep.at = Some(last.entry_id.clone());
        self.sweep.stayed += (letters.len() as u64).saturating_sub(removed);
        if removed > 0 {
            self.gone.add(removed, &letters);
            self.metrics.purged(self.ledger.name(), Purged::Retention, removed);
        }
        Ok(true)
    }

    /// Announces what has gone.
    async fn tell(&mut self) -> Result<(), StoreError> {
        let Gone { count, oldest, newest, .. } = self.gone;
        if count == 0 {
            return Ok(());
        }
        let event = EventData::Purged(Purge {
            source: self.ledger.name().to_owned(),
            why: Purged::Retention.as_str().to_owned(),
            by: WHO.to_owned(),
            note: Some(self.note()),
            count,
            oldest_died_at: oldest.and_then(rfc3339),
            newest_died_at: newest.and_then(rfc3339),
        });
        self.ledger.announce(Some(&self.lease), &event).await?;
        tracing::info!(source = self.ledger.name(), entries = count, policy = self.note(), "removed by retention");
        self.gone = Gone::default();
        self.told = Some(monotonic());
        Ok(())
    }
}

/// Where the rules in force want an entry to wait for its retry.
fn waits_at(rules: &Rules, ledger: &dyn TriageLedger, letter: &DeadLetter) -> Option<Place> {
    match rules.decide(ledger.name(), letter) {
        Decision::Retry(rule, _) => Some(place(rule, letter)),
        Decision::Never(_) | Decision::NoRule | Decision::Leave(_) => None,
    }
}

#[async_trait]
impl Step for Retain {
    fn name(&self) -> &'static str {
        "retain"
    }

    async fn step(&mut self, _stop: &CancellationToken) -> Result<Next, StoreError> {
        let rules = Arc::clone(&self.rules.borrow());
        let judging = self.ledger.judging().await?;
        if judging.fingerprint != rules.fingerprint {
            return Ok(Next::After(SOON));
        }
        let began = monotonic();
        let is_old = began.duration_since(self.sweep.began) >= SWEEP_EVERY;
        if self.sweep.generation != judging.generation || self.sweep.stayed == 0 || is_old {
            self.sweep = Sweep::new(judging.generation);
        }
        let went_on = match self.piece(&rules).await {
            Ok(went_on) => went_on,
            // Of a generation that is gone meanwhile: the next step sees which one is in force.
            Err(StoreError::Moved) => return Ok(Next::After(SOON)),
            Err(error) => return Err(error),
        };
        let is_long_ago = |at: Instant| at.elapsed() >= TELL_EVERY;
        if !went_on && self.told.is_none_or(is_long_ago) || self.gone.since.is_some_and(is_long_ago) {
            self.tell().await?;
        }
        let rest = (began.elapsed() * REST).clamp(SHORTEST_REST, LONGEST_REST);
        Ok(Next::After(if went_on { rest } else { LOOK_EVERY }))
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        self.tell().await
    }
}
