//! What the tests stand on.

pub(crate) mod hooks;
pub(crate) mod memory;
pub(crate) mod receiver;
