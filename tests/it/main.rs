//! Sexton against real stores and receivers: one binary, a private Redis for every test.

mod fixtures;
mod ledger;
mod support;
mod worker;
