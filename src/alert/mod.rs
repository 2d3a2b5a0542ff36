//! Alerts: the rising line pages, a handful does not.
//!
//! Pure: no clock, no IO; time is an argument, and always the store's. The leader of a source keeps a [`Watch`], which it
//! loads from the ledger when it begins to lead, and whenever anything has gone wrong since. Every `sample_every` it
//!
//! 1. reads the deaths lane of the outbox after [`Watch::cursor`] and gives each event to [`Watch::observe`], then says
//!    with [`Watch::counted_until`] how far it came;
//! 2. measures a [`Sample`], and for each rule with an [`AlertRule::aged`], now and then, the oldest entries ([`Aged`]);
//! 3. calls [`Watch::tick`] with the moment of the sample, and in one atomic step, if it still leads and nobody else has
//!    saved since, changes the [`Fields`] and appends one event for each [`Transition`] to the alerts lane.
//!
//! So a new leader sees the same line and the same incidents, and what has been told has been told once.

mod burst;
mod cause;
mod cell;
mod incident;
mod known;
mod line;
mod new_group;
mod pieces;
mod reading;
mod rule;
mod samples;
mod says;
mod summary;
mod transition;
mod trend;
mod waiting;
mod watch;

pub use cause::{Cause, OTHER};
pub use incident::{Change, Ended, Incident, Incidents, LIVE_PER_RULE, Past, State};
pub use line::Line;
pub use reading::{Holds, Judgement, Need, Reading};
pub use rule::{
    AlertRule, Burst, Key, Kind, Labels, Misfit, NewGroup, QUIET_AT_MOST, Rising, Severity, WAITING_AT_MOST, Waiting,
};
pub use samples::{Arrival, Sample, Samples};
pub use summary::Summary;
pub use transition::{GroupDeaths, Transition};
pub use waiting::{Aged, AgedQuery};
pub use watch::{CURSOR, Tick, Watch};

use std::time::Duration;

/// For how long samples and arrivals are kept.
pub const KEPT: Duration = Duration::from_secs(86_400);
/// Buckets that a `rising` rule may have at most: samples grow coarser with their age, but never coarser than a bucket.
pub const MAX_BUCKETS: u32 = 24;

/// What changes in the watch's hash in the ledger. Names and texts are ASCII, but for what texts of dead letters hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Fields that are new or have another text now.
    pub set: Vec<(String, String)>,
    /// Fields that go; perhaps they were never there.
    pub remove: Vec<String>,
}

impl Fields {
    fn set(&mut self, name: String, text: String) {
        self.set.push((name, text));
    }

    fn remove(&mut self, name: String) {
        self.remove.push(name);
    }
}

#[cfg(test)]
mod tests;
