//! Which dead letters a rule or a hook means, and what a retry rule does with them.
//!
//! Pure. A matcher is the `match:` of hooks, retry rules and alerts alike.

mod matcher;
mod retry;
mod window;

pub use matcher::{Matcher, Subject};
pub use retry::{Action, Decision, Never, Pace, RetryRule, Rules, Terms};
pub use window::Window;
