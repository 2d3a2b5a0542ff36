//! The loops of a leader: each one small type with one `step`, run by one shared runner.
//!
//! Loops do not know each other; they meet in the ledger.

mod deliver;
mod runner;
mod trouble;

pub use deliver::{Deliver, DeliverTo, prepare_lanes};
pub use runner::{Ended, Next, Step, run};
pub use trouble::Trouble;
