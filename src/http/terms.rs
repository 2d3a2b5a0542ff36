//! Which sources this process leads now, for those who answer a scrape.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    ledger::{Lease, SourceLedger},
    metrics::Metrics,
};

/// How long a scrape waits for the ledgers; then it shows of deaths what it showed before.
const MARK_TIMEOUT: Duration = Duration::from_millis(500);

/// The terms under way, by source. All clones are the same.
#[derive(Clone, Default)]
pub struct Terms {
    terms: Arc<Mutex<BTreeMap<String, Term>>>,
    /// Held while the ledgers are told.
    telling: Arc<tokio::sync::Mutex<()>>,
}

type Term = (Arc<dyn SourceLedger>, Lease);

impl Terms {
    /// A term has begun.
    pub fn begin(&self, ledger: &Arc<dyn SourceLedger>, lease: &Lease) {
        self.terms().insert(ledger.name().to_owned(), (Arc::clone(ledger), lease.clone()));
    }

    /// The term of a source is over.
    pub fn end(&self, source: &str) {
        self.terms().remove(source);
    }

    fn terms(&self) -> MutexGuard<'_, BTreeMap<String, Term>> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the ledgers up to where Prometheus is about to be shown the deaths. First the ledger and then Prometheus: what
    /// was shown is never counted a second time by another leader.
    pub(super) async fn mark_shown(&self, metrics: &Arc<Metrics>) {
        // Somebody else scrapes at this moment: there is nothing more to tell.
        let Ok(telling) = Arc::clone(&self.telling).try_lock_owned() else { return };
        let terms: Vec<Term> = self.terms().values().cloned().collect();
        let metrics = Arc::clone(metrics);
        // On its own, for an answer that comes late counts, too.
        let told = tokio::spawn(async move {
            for (ledger, lease) in terms {
                let source = ledger.name();
                let Some(what) = metrics.to_show(source) else { continue };
                // A failure is the loops' to tell; the next scrape tries again.
                if ledger.mark_shown(&lease, what.until).await.is_ok() {
                    metrics.may_show(source, what);
                }
            }
            drop(telling);
        });
        // Who stops waiting shows less, and nothing wrong.
        let _ = tokio::time::timeout(MARK_TIMEOUT, told).await;
    }
}
