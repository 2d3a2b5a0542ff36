//! Triage: what a person does with dead letters. One set of operations, for the command line and for HTTP.
//!
//! It reads and changes the ledger through its contract, in bounded pieces; it prints nothing and knows no request. What
//! it returns is what `-o json` prints.

mod act;
mod alerts;
mod attempts;
mod audit;
mod bulk;
mod cursor;
mod error;
mod errors;
mod explain;
#[cfg(test)]
pub(crate) mod fake;
mod filter;
mod groups;
mod hooks;
pub mod lanes;
mod listing;
mod operations;
mod payload;
mod purge;
mod show;
#[cfg(test)]
mod tests;
mod walk;

pub use act::{Doing, End, Outcome, TOGETHER};
pub use alerts::{
    AlertFound, AlertItem, AlertsShown, LineItem, LinePoint, Measure, Standing, State as AlertState, line_of,
};
pub use attempts::{Detail, FailedAttempt, lives_of};
pub use audit::{AuditAsk, AuditItem, audit};
pub use bulk::{Bulk, Died, Pace, count};
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use errors::{Death, DeathSeen, Deaths, deaths_of_entry, deaths_of_job};
pub use explain::{Account, AccountLine, Looked, Seen};
pub use filter::{Filter, FilterError, FilterSpec};
pub use groups::{GroupItem, GroupState, Groups, Other, Times, groups};
pub use hooks::{HookShown, LanesShown, hooks, lanes_of, origin_of, rate_of};
pub use listing::{Ask, Listed, Listing, Page, list};
pub use operations::{OperationShown, Request, begin, cancel, operation, operations};
pub use payload::{Form, decode};
pub use purge::announce_purge;
pub use show::{Bytes, Exact, Shown, show};
pub use walk::{Order, PIECE, Progress, Tell, Walk};
