//! The loops of a leader: each one small type with one `step`, run by one shared runner.
//!
//! Loops do not know each other; they meet in the ledger.

mod batch;
mod deliver;
mod ingest;
mod judge;
mod operate;
mod renew;
mod retain;
mod retry;
mod runner;
mod trim;
mod trouble;
mod watch;

pub use deliver::{Deliver, DeliverTo, prepare_lanes};
pub use ingest::{Ingest, IngestOptions};
pub use judge::Judge;
pub use operate::Operate;
pub use renew::Renew;
pub use retain::Retain;
pub use retry::Retry;
pub use runner::{Ended, Next, Step, run};
pub use trim::Trim;
pub use trouble::Trouble;
pub use watch::{Watch, WatchOptions};
