//! The loops of a leader: each one small type with one `step`, run by one shared runner.
//!
//! Loops do not know each other; they meet in the ledger.

mod runner;
mod trouble;

pub use runner::{Ended, Next, Step, run};
pub use trouble::Trouble;
