//! Why an entry was or was not retried, and when it will be, in one sentence.
//!
//! Pure: the facts are gathered by whoever asks. What is said here follows the same rules as [`super::choose()`] and
//! the store's checks, and names what stands in the way longest; it decides nothing.

mod facts;
mod gone;
mod group;
mod here;
mod moment;
#[cfg(test)]
mod tests;

pub use facts::{Facts, Here, State};
pub use group::{GroupFacts, explain_group};

use crate::letter::Millis;

/// What is to be said of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its state, from a closed list.
    pub state: State,
    /// One sentence: why, and when. It may hold names from the record, which whoever shows it makes harmless.
    pub sentence: String,
    /// The rule that decides about it, or that retried it.
    pub rule: Option<String>,
    /// When it is retried, if nothing else comes in between; none if it is not, or nobody can tell yet. It may lie in
    /// the past: then it only waits for its turn.
    pub next_at: Option<Millis>,
}

/// Explains an entry.
pub fn explain(facts: &Facts<'_>) -> Explanation {
    match &facts.here {
        Some(here) => here::explain(facts, here),
        None => gone::explain(facts),
    }
}
