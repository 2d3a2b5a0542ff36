//! Sexton against real stores and receivers: one binary, a private Redis for every test.

mod demo;
mod faults;
mod fixtures;
mod ledger;
mod replicas;
mod support;
mod worker;
