//! smallage: a DLQ that is a Redis stream, and the ledger beside it.
//!
//! All that is particular to smallage and to Redis is in this folder: the names of keys, how a record is read, and the
//! scripts. Of the framework's own keys only these are ever written: the DLQ (an entry goes, because it is retried or
//! removed), and by a retry the target queue (one comes) and a job's own claim of its dedup key (it is freed).

mod alerts;
mod audit;
mod commit;
mod connection;
mod due;
mod flights;
mod ingest;
mod inspect;
mod judge;
mod keys;
mod lease;
mod look;
mod operations;
mod outbox;
mod plans;
mod prospects;
mod raising;
pub mod record;
#[cfg(test)]
mod records;
mod remove;
mod reply;
mod retry;
mod rights;
mod scan;
mod sieve;
mod store;
mod tail;
mod triage;
mod trouble;

pub use keys::{Keys, NamespaceError};
pub use rights::{
    Area, Beyond, RIGHTS, RIGHTS_BEYOND, RIGHTS_ON_SENTINELS, Right, least_rights, rights_beyond, rights_on_sentinels,
};
pub use store::{Smallage, open};
