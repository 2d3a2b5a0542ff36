//! smallage: a DLQ that is a Redis stream, and the ledger beside it.
//!
//! All that is particular to smallage and to Redis is in this folder: the names of keys, how a record is read, and the
//! scripts. The framework's own keys are only ever read here.

mod connection;
mod ingest;
mod keys;
mod lease;
mod look;
mod outbox;
pub mod record;
#[cfg(test)]
mod records;
mod reply;
mod store;
mod trouble;

pub use keys::{Keys, NamespaceError};
pub use store::{Smallage, open};
