//! Sexton against real stores and receivers: one binary, a private Redis for every test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod architecture;
mod cli;
mod crashes;
mod delivery;
mod demo;
mod faults;
mod fixtures;
mod flight_ledger;
mod ledger;
mod model;
mod outcomes;
mod plan_ledger;
mod port;
mod readme;
mod replicas;
mod retry_ledger;
mod rubbish;
mod rules;
mod storm;
mod support;
mod worker;
