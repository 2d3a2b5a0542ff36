//! Where a listing goes on.

use super::{Error, Result};
use crate::ledger::TriageLedger;

/// `source/entry`, after that entry, or `source/`, at that source's beginning. Opaque to users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the source among those listed.
    pub(super) source: usize,
    /// Only what comes after this entry (or line of the audit log) in the order of the listing.
    pub(super) after: Option<String>,
}

impl Cursor {
    /// Reads what an earlier listing of these sources ended with.
    pub fn parse(text: &str, sources: &[&dyn TriageLedger]) -> Result<Cursor> {
        let bad = |why: String| Error::Cursor(text.to_owned(), why);
        let no_cursor = || bad("is not a cursor of an earlier listing".to_owned());
        let (name, after) = text.split_once('/').ok_or_else(no_cursor)?;
        let source = sources.iter().position(|ledger| ledger.name() == name).ok_or_else(|| match sources {
            [only] => bad(format!("is not of the only source being listed, which is called {}", only.name())),
            _ => bad("is of a source that is not being listed".to_owned()),
        })?;
        if !after.is_empty() && !sources[source].is_entry_id(after) {
            return Err(no_cursor());
        }
        Ok(Cursor { source, after: (!after.is_empty()).then(|| after.to_owned()) })
    }

    /// After this entry of this source.
    pub(super) fn after(source: &str, entry: &str) -> String {
        format!("{source}/{entry}")
    }

    /// At the beginning of this source.
    pub(super) fn at(source: &str) -> String {
        format!("{source}/")
    }
}
