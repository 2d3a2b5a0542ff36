//! The retry loop: looks what became of the retries under way, learns from it, and puts back on their queue whom it may.
//!
//! Nothing of it is remembered here: what is due, what is in flight and what has been learnt is in the ledger, and read
//! from there in every round. So a new leader goes on where the old one stopped.

mod follow;
mod send;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Next, Step};
use crate::{
    clock::{millis, monotonic},
    ledger::{Lease, Pool, RetryLedger, StoreError, Whereabouts},
    letter::Millis,
    metrics::Metrics,
    retry::{Aloft, Bucket},
    rule::{Action, Rules, Terms},
};

/// How often retries under way are looked after.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// How long to wait at most when nothing is under way: an entry may have become due that was not in the index before.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often to look for flights when there are no rules.
const IDLE: Duration = Duration::from_secs(5);
/// How often the gauges are set anew that cost a read.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// The retry loop of one term.
pub struct Retry {
    ledger: Arc<dyn RetryLedger>,
    lease: Lease,
    metrics: Arc<Metrics>,
    rules: watch::Receiver<Arc<Rules>>,
    /// The rules of the last round.
    known: Arc<Rules>,
    /// What `per_second` still allows, by rule. A new leader begins with empty ones.
    buckets: HashMap<String, Bucket>,
    began: Instant,
    counted: Option<Instant>,
    /// When it was last said of a queue stream that it does not exist.
    told_gone: HashMap<String, Instant>,
    /// When each flight was last seen where it is; the ledger has that moment only as of its last change.
    seen: HashMap<String, Sighting>,
}

/// A flight was seen at a place, at a moment.
#[derive(Clone, Debug)]
struct Sighting {
    at: Whereabouts,
    seen_at: Millis,
}

impl Retry {
    /// Retries by the rules as they are at any time.
    pub fn new(
        ledger: Arc<dyn RetryLedger>,
        lease: Lease,
        metrics: Arc<Metrics>,
        rules: watch::Receiver<Arc<Rules>>,
    ) -> Retry {
        Retry {
            ledger,
            lease,
            metrics,
            rules,
            known: Arc::default(),
            buckets: HashMap::new(),
            began: monotonic(),
            counted: None,
            told_gone: HashMap::new(),
            seen: HashMap::new(),
        }
    }

    /// Takes over rules that have changed.
    fn take_rules(&mut self) {
        let rules = Arc::clone(&self.rules.borrow_and_update());
        if Arc::ptr_eq(&rules, &self.known) {
            return;
        }
        let gone: Vec<&str> = names(&self.known).into_iter().filter(|name| rules.named(name).is_none()).collect();
        self.metrics.no_more_rules(self.ledger.name(), &gone);
        self.buckets.retain(|name, _| rules.named(name).is_some());
        self.counted = None;
        self.known = rules;
    }

    async fn gauges(&mut self, aloft: &Aloft) -> Result<(), StoreError> {
        let source = self.ledger.name();
        for rule in names(&self.known).into_iter().chain([Pool::BY_HAND]) {
            self.metrics.in_flight(source, rule, u64::from(aloft.of_rule(rule)));
        }
        let now = monotonic();
        if self.counted.is_none_or(|counted| now.duration_since(counted) >= COUNT_EVERY) {
            let waiting = self.ledger.waiting().await?;
            self.metrics.waiting(source, &names(&self.known), &waiting);
            self.counted = Some(now);
        }
        Ok(())
    }

    /// The rule's terms; those of a rule that is gone are the default ones, for what is still under way by it.
    fn terms(rules: &Rules, rule: &str) -> Terms {
        match rules.named(rule).map(|rule| &rule.action) {
            Some(Action::Retry(terms)) => (**terms).clone(),
            Some(Action::Leave) | None => Terms::default(),
        }
    }

    /// Milliseconds of this term, by a clock that only runs forward.
    fn term_ms(&self) -> u64 {
        millis(monotonic().duration_since(self.began)).unsigned_abs()
    }

    fn now(&self) -> Millis {
        self.ledger.clock().now()
    }
}

/// The rules that retry anything.
fn names(rules: &Rules) -> Vec<&str> {
    let retrying = rules.retry.iter().filter(|rule| matches!(rule.action, Action::Retry(_)));
    retrying.map(|rule| rule.name.as_str()).collect()
}

#[async_trait]
impl Step for Retry {
    fn name(&self) -> &'static str {
        "retry"
    }

    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
        self.take_rules();
        let flights = self.follow().await?;
        let mut aloft = Aloft::of(&flights);
        let rules = Arc::clone(&self.known);
        let next_due = self.send(&rules, &mut aloft).await?;
        self.gauges(&aloft).await?;
        let wait = if !aloft.is_empty() {
            WATCH_EVERY
        } else if rules.is_empty() {
            IDLE
        } else {
            let until_due = next_due.map_or(LOOK_EVERY, |due| {
                Duration::from_millis(u64::try_from(due.0.saturating_sub(self.now().0)).unwrap_or(0))
            });
            until_due.clamp(WATCH_EVERY, LOOK_EVERY)
        };
        tokio::select! {
            () = stop.cancelled() => {}
            // Without a sender nothing changes any more; then the time alone counts.
            Ok(()) = self.rules.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
        Ok(Next::Again)
    }
}
