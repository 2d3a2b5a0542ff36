//! Triage: what a person does with dead letters. One set of operations, for the command line and for HTTP.
//!
//! It reads and changes the ledger through its contract, in bounded pieces; it prints nothing and knows no request.

mod filter;

pub use filter::{Filter, FilterError, FilterSpec};
