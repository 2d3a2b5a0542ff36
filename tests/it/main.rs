//! Sexton against real stores and receivers: one binary, a private Redis for every test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod architecture;
mod cli;
mod closed_loop;
mod crashes;
mod declared_keys;
mod delivery;
mod demo;
mod explain;
mod faults;
mod fixtures;
mod flight_ledger;
mod ledger;
mod ledger_model;
mod model;
mod outcomes;
mod plan_ledger;
mod port;
mod readme;
mod replicas;
mod retry_crashes;
mod retry_ledger;
mod retry_loop;
mod rubbish;
mod rules;
mod storm;
mod support;
mod triage;
mod triage_operations;
mod triage_remove;
mod triage_retry;
mod triage_scan;
mod watch;
mod watch_ledger;
mod worker;
