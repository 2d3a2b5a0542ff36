//! Sexton stands beside job workers, watches their dead-letter queue, and tells who must know.
//!
//! The modules in the order of the story: a [`letter`] arrives, a [`rule`] says whom it concerns, an [`event`] is made
//! of it, the [`ledger`] commits it, [`delivery`] plans who is told when, a [`hook`] tells them. [`smallage`] is the one
//! kind of source so far. `ARCHITECTURE.md` has the picture and the invariants.

pub mod alert;
pub mod cli;
pub mod clock;
pub mod config;
pub mod delivery;
pub mod demo;
pub mod event;
pub mod hook;
pub mod http;
pub mod ledger;
pub mod letter;
pub mod loops;
pub mod metrics;
pub mod retry;
pub mod rule;
pub mod sidecar;
pub mod smallage;
pub mod triage;
pub mod version;
