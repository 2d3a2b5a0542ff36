//! How the retry loop decides: what it learns from its retries, and whom it raises next.
//!
//! Pure: no clock, no IO; time and dice are arguments.

mod plan;

pub use plan::{Fate, fate, place};
