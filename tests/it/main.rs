//! Sexton against real stores and receivers: one binary, a private Redis for every test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod delivery;
mod outcomes;
mod support;
