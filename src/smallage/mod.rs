//! smallage on Redis Streams: its keys and its records, and Sexton's own keys beside them.
//!
//! Everything that is smallage stays in this folder.

mod keys;
pub mod record;
#[cfg(test)]
mod records;

pub use keys::{Keys, NamespaceError};
