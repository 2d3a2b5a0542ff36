//! Why an entry was or was not retried, and when it will be: the facts are gathered here, and [`crate::retry::explain()`]
//! says what they mean.

mod account;
mod gather;
mod log;

pub use account::{Account, AccountLine, Seen};

use self::{
    gather::{Around, Entry},
    log::{Extent, Log},
};
use super::{
    Error, Filter, Result,
    walk::{Order, PIECE, Progress, Tell, Walk},
};
use crate::{ledger::TriageLedger, letter::Millis, rule::Rules};

/// An entry that was looked at, in the DLQ or not, whatever the rules.
pub struct Looked<'a> {
    ledger: &'a dyn TriageLedger,
    entry: Entry,
}

impl<'a> Looked<'a> {
    /// Looks at an entry of a source, wherever it may be by now.
    pub async fn at(ledger: &'a dyn TriageLedger, entry_id: &str) -> Result<Looked<'a>> {
        let entry = Entry::look(ledger, entry_id).await.map_err(Error::of(ledger))?;
        Ok(Looked { ledger, entry })
    }

    /// Looks at the entry of a job that says most: the one in flight, else its newest one in a DLQ, else the last one
    /// that the audit log tells of. None if no source knows of the job.
    pub async fn at_job(sources: &[&'a dyn TriageLedger], job_id: &str, tell: Tell<'_>) -> Result<Option<Looked<'a>>> {
        if job_id.is_empty() {
            return Ok(None);
        }
        for &ledger in sources {
            let flights = ledger.flights().await.map_err(Error::of(ledger))?;
            if let Some(flight) = flights.iter().find(|flight| flight.dead.job_id.as_deref() == Some(job_id)) {
                return Looked::at(ledger, &flight.dead.entry_id).await.map(Some);
            }
        }
        for &ledger in sources {
            if let Some(entry) = newest_of_job(ledger, job_id, tell).await? {
                return Looked::at(ledger, &entry).await.map(Some);
            }
        }
        for &ledger in sources {
            let log = Log::search(ledger, "", job_id, Extent::Newest).await.map_err(Error::of(ledger))?;
            if let Some(line) = log.lines.first() {
                return Looked::at(ledger, &line.entry_id).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The source's name.
    pub fn source(&self) -> &str {
        self.ledger.name()
    }

    /// Whether anything is known of it at all.
    pub fn is_known(&self) -> bool {
        self.entry.is_known()
    }

    /// Whether it is in the DLQ. Only then the rules matter.
    pub fn is_in_dlq(&self) -> bool {
        self.entry.letter.is_some()
    }

    /// Explains it by these rules.
    pub async fn explain(&self, rules: &Rules) -> Result<Account> {
        let ledger = self.ledger;
        let around = match &self.entry.letter {
            Some(letter) => Some(Around::look(ledger, &self.entry, letter, rules).await.map_err(Error::of(ledger))?),
            None => None,
        };
        Ok(Account::of(ledger.name(), rules, &self.entry, around.as_ref()))
    }
}

/// A job's newest entry in a DLQ.
async fn newest_of_job(ledger: &dyn TriageLedger, job_id: &str, tell: Tell<'_>) -> Result<Option<String>> {
    let entries = ledger.overview().await.map_err(Error::of(ledger))?.entries;
    let everything = Filter::default();
    let mut walk = Walk::new(ledger, &everything, Millis(0), Order::NewestFirst).of_job(job_id);
    while let Some(letters) = walk.next(PIECE).await.map_err(Error::of(ledger))? {
        if let Some(letter) = letters.into_iter().next() {
            return Ok(Some(letter.entry_id));
        }
        tell(Progress { source: ledger.name(), looked_at: walk.looked_at(), entries });
    }
    Ok(None)
}
