//! Sexton against real stores and receivers: one binary, a private Redis for every test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod architecture;
mod cli;
mod closed_loop;
mod crashes;
mod delivery;
mod demo;
mod faults;
mod fixtures;
mod ledger;
mod outcomes;
mod port;
mod readme;
mod replicas;
mod retry_crashes;
mod retry_ledger;
mod rubbish;
mod storm;
mod support;
mod worker;
