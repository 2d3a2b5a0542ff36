//! How the retry loop decides: what it learns from its retries, and whom it raises next.
//!
//! Pure: no clock, no IO; time and dice are arguments. The rules make a plan for every dead letter ([`fate()`]). A look at the flights becomes verdicts ([`conclude`]), these
//! teach pools and groups ([`learn`]), and what is known says who goes next ([`choose()`]), never faster than the rule
//! allows ([`Bucket`]). [`explain()`] says of one entry why it was or was not retried.

mod aloft;
mod bucket;
mod choose;
mod explain;
mod learnt;
mod lessons;
mod plan;
mod pool;
#[cfg(test)]
mod tests;
mod verdict;
mod window;

pub use aloft::Aloft;
pub use bucket::Bucket;
pub use choose::{Choice, GroupLook, Look, choose};
pub use explain::{Explanation, Facts, GroupFacts, Here, State, explain, explain_group};
pub use learnt::{Evidence, Hold, Learnt};
pub use lessons::{Change, Learning, Outcome, learn};
pub use plan::{Fate, fate, place};
pub use pool::PoolLearnt;
pub use verdict::{Step, Teaching, conclude};
