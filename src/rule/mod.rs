//! Which dead letters a rule or a hook means.
//!
//! Pure. A matcher is the `match:` of hooks, retry rules and alerts alike.

mod matcher;

pub use matcher::{Matcher, Subject};
