//! What can go wrong with a store, sorted by what the caller does about it.

/// An error of a store operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Not reachable or not ready: connection lost, time-out, loading, failing over, too many clients. Try again.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// The store answers but takes no writes now: out of memory, read-only, cannot persist. Try again.
    #[error("the store takes no writes: {0}")]
    NoWrites(String),
    /// Credentials or rights are missing; a person must act, and then it goes on by itself.
    #[error("the store refuses us: {0}")]
    Denied(String),
    /// The lease is no longer ours: stop acting.
    #[error("the lease is no longer ours")]
    Fenced,
    /// Somebody else changed what this write was based on: read it again.
    #[error("the ledger has moved on")]
    Moved,
    /// The store said something this build does not understand. Try again, and tell the developers.
    #[error("unexpected answer of the store: {0}")]
    Unexpected(String),
}

impl StoreError {
    /// A short name of the kind of error, for logs and for telling a new trouble from the same one.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Unavailable(_) => "unavailable",
            StoreError::NoWrites(_) => "no_writes",
            StoreError::Denied(_) => "denied",
            StoreError::Fenced => "fenced",
            StoreError::Moved => "moved",
            StoreError::Unexpected(_) => "unexpected",
        }
    }
}
