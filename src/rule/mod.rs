//! Which dead letters a rule or a hook means, and what a retry rule does with them.
//!
//! Pure. A matcher is the `match:` of hooks, retry rules and alerts alike.

mod cover;
mod globs;
mod matcher;
mod retry;
mod says;
mod window;

pub use globs::Globs;
pub use matcher::{Matcher, Subject};
pub use retry::{Action, Decision, Never, Pace, RetryRule, Rules, Terms};
pub use says::Changes;
pub(crate) use says::Says;
pub use window::{CronError, Window, Zone};
