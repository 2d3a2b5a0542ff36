//! The fingerprint that puts dead letters of one kind together.

/// Twelve lower-case hexadecimal digits; stable across releases and hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub String);
