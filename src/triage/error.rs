//! What can go wrong with triage, sorted by who can mend it.

use crate::ledger::{Ledger, StoreError};

/// What triage over several sources returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why triage did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A source's store gave an error.
    #[error("{of}: {error}")]
    Store {
        /// The source's name.
        of: String,
        /// What the store said.
        error: StoreError,
    },
    /// A cursor that cannot be gone on from: the text, and what is wrong with it.
    #[error("{0:?} {1}")]
    Cursor(String, String),
    /// Somebody else kept changing the same thing.
    #[error("{0} was changed by others many times in a row; try again")]
    Contended(String),
}

impl Error {
    /// For `map_err`: a store's error with the source it is about.
    pub(super) fn of<L: Ledger + ?Sized>(ledger: &L) -> impl FnOnce(StoreError) -> Error {
        let of = ledger.name().to_owned();
        move |error| Error::Store { of, error }
    }
}
