//! What `dlq.purged` carries.

use serde::{Deserialize, Serialize};

/// The `data` of `dlq.purged`: entries were removed because of their age or their number. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purge {
    /// The source's name.
    pub source: String,
    /// Why: `retention` (the standing policy) or `purge` (a person asked for it).
    pub why: String,
    /// Who, as in the audit log: `retention`, `anna@host`, `token:deploy`.
    pub by: String,
    /// The note given with it, or what the policy says.
    pub note: Option<String>,
    /// How many entries went.
    pub count: u64,
    /// No entry that went had died before this.
    pub oldest_died_at: Option<String>,
    /// None had died after this.
    pub newest_died_at: Option<String>,
}

impl Purge {
    /// One sentence for people.
    pub fn summary(&self) -> String {
        let entries = if self.count == 1 { "entry was" } else { "entries were" };
        let note = self.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("{} {entries} removed from the DLQ of {} by {}{note}", self.count, self.source, self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_one_sentence() {
        let mut purge = Purge { source: "orders".into(), by: "retention".into(), count: 1, ..Purge::default() };
        assert_eq!(purge.summary(), "1 entry was removed from the DLQ of orders by retention");
        purge = Purge { by: "anna@host".into(), note: Some("old".into()), count: 2, ..purge };
        assert_eq!(purge.summary(), "2 entries were removed from the DLQ of orders by anna@host (old)");
    }
}
