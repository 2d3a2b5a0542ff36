//! The HTTP API under `/api/v1`: the operations of triage, for programs. What it answers is what the commands print with
//! `-o json`.
//!
//! Everybody may look; a token is needed to change something, or to see a payload.

mod body;
mod bulk;
mod dead_letters;
mod guard;
mod line;
mod look;
mod openapi;
mod problem;
mod query;
mod token;

use std::sync::Arc;

use axum::{Router, middleware};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

pub(super) use guard::{finish, nowhere, other_method};

use self::{
    guard::{LARGE_TOGETHER, SEARCHES_TOGETHER, TOGETHER},
    problem::{Problem, Wrong},
    token::Tokens,
};
use crate::{
    alert::AlertRule,
    config::Config,
    ledger::{SourceLedger, TriageLedger},
    rule::Rules,
    triage::{Filter, FilterSpec},
};

/// What the API works on.
pub struct Serving {
    /// The sources, in the order of the configuration.
    pub ledgers: Vec<Arc<dyn SourceLedger>>,
    /// The configuration: who may change something, and who is told.
    pub config: Arc<Config>,
    /// The rules in force.
    pub rules: watch::Receiver<Arc<Rules>>,
    /// The alert rules in force.
    pub alerts: watch::Receiver<Arc<[AlertRule]>>,
    /// Who this replica is in a lease, the source's name apart.
    pub holder: String,
    /// Ticks when an operation was asked for, so that a leader in this process begins at once.
    pub asked: watch::Sender<()>,
    /// The sources that this process leads now.
    pub terms: super::Terms,
}

/// The API of one process.
pub(super) struct Api {
    ledgers: Vec<Arc<dyn SourceLedger>>,
    config: Arc<Config>,
    tokens: Tokens,
    rules: watch::Receiver<Arc<Rules>>,
    alerts: watch::Receiver<Arc<[AlertRule]>>,
    holder: String,
    asked: watch::Sender<()>,
    /// For requests at the same time.
    places: Semaphore,
    /// For those that look through a whole DLQ.
    searches: Semaphore,
    /// For those that may be answered with megabytes.
    large: Semaphore,
    /// The port's own, for connections.
    connections: Arc<Semaphore>,
}

/// The routes, for a port with these places for connections.
pub(super) fn router(serving: Serving, connections: Arc<Semaphore>) -> Router {
    let api = Arc::new(Api {
        tokens: Tokens::new(&serving.config.http.tokens),
        config: serving.config,
        ledgers: serving.ledgers,
        rules: serving.rules,
        alerts: serving.alerts,
        holder: serving.holder,
        asked: serving.asked,
        places: Semaphore::new(TOGETHER),
        searches: Semaphore::new(SEARCHES_TOGETHER),
        large: Semaphore::new(LARGE_TOGETHER),
        connections,
    });
    let guard = middleware::from_fn_with_state(Arc::clone(&api), guard::guard);
    openapi::routes().route_layer(guard).with_state(api)
}

impl Api {
    fn sources(&self) -> Vec<&dyn TriageLedger> {
        self.ledgers.iter().map(|ledger| -> &dyn TriageLedger { ledger.as_ref() }).collect()
    }

    /// The source with this name.
    fn source(&self, name: &str) -> Result<&Arc<dyn SourceLedger>, Problem> {
        let found = self.ledgers.iter().find(|ledger| ledger.name() == name);
        found.ok_or_else(|| Problem::not_found(format!("there is no source {name:?}; {}", self.known())))
    }

    /// The sources that a filter is about; at least one.
    fn sources_of(&self, spec: &FilterSpec) -> Result<Vec<&dyn TriageLedger>, Problem> {
        let whole = self.whole_sources_of(spec)?;
        Ok(whole.into_iter().map(|ledger| -> &dyn TriageLedger { ledger }).collect())
    }

    /// The same, with what their leaders know.
    fn whole_sources_of(&self, spec: &FilterSpec) -> Result<Vec<&dyn SourceLedger>, Problem> {
        let filter = compiled(spec)?;
        let concerned = self.ledgers.iter().filter(|ledger| filter.concerns(ledger.name()));
        let sources: Vec<&dyn SourceLedger> = concerned.map(AsRef::as_ref).collect();
        match sources.is_empty() {
            true => Err(Problem::not_found(format!("no source is called that; {}", self.known()))),
            false => Ok(sources),
        }
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.ledgers.iter().map(|ledger| ledger.name()).collect();
        format!("there is {}", names.join(", "))
    }

    /// The rules as they are now.
    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    /// The alert rules as they are now.
    fn alert_rules(&self) -> Arc<[AlertRule]> {
        Arc::clone(&self.alerts.borrow())
    }

    /// A place for looking through a whole DLQ.
    fn search(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.searches.try_acquire().map_err(|_| Problem::busy())
    }

    /// A place for an answer that may be large, waited for in turn.
    async fn large(&self) -> Option<SemaphorePermit<'_>> {
        self.large.acquire().await.ok()
    }

    /// An operation was asked for.
    fn asked(&self) {
        self.asked.send_replace(());
    }
}

/// The filter of a query, ready for use.
fn compiled(spec: &FilterSpec) -> Result<Filter, Problem> {
    spec.compile().map_err(|error| Problem::invalid(vec![Wrong::in_query(error.field, error.problem)]))
}
