//! `sexton demo`: all of it on a private Redis, in less than a minute, leaving nothing behind.
//!
//! Not part of the sidecar; besides `smallage` the only place that speaks to Redis, because it plays the worker.

pub mod job;
pub mod worker;
