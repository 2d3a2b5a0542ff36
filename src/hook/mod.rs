//! Hooks: turns an event into a signed HTTP request of the hook's form, and the answer into an outcome.
//!
//! The only owner of `reqwest`. It keeps no state between requests and decides nothing about further tries: that is
//! `delivery`'s.

mod answer;
mod client;
mod flaw;
mod format;
mod outcome;
mod probe;
mod redact;
mod select;
mod sign;

pub use client::{Client, ClientError, Sent};
pub use flaw::Flaw;
pub use format::{Body, body, newest_alone, reminded_every, spacing};
pub use outcome::{of_status, retry_after};
pub use probe::{Unreached, reach};
pub use redact::{Leaving, SAMPLE_CHARS};
pub use select::Selection;
