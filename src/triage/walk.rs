//! The walk through one source's DLQ, piece by piece: the store sifts what it can, the filter decides.

use super::Filter;
use crate::{
    ledger::{self, Scan, Sieve, TriageLedger},
    letter::{DeadLetter, Millis},
};

/// Letters that one piece lets through at most. Bounds the memory for a DLQ of any size.
pub const PIECE: usize = 500;
/// An entry's id is of the moment when it was added, which is that of its death or somewhat later; much later only
/// where the store's clock has stepped back in between.
const ADDED_LATER_MS: i64 = 3_600_000;
/// The other way round nothing but a clock can make a difference.
const ADDED_EARLIER_MS: i64 = 60_000;

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The source being looked through.
    pub source: &'a str,
    /// Entries looked at in it.
    pub looked_at: u64,
    /// Entries in it when that began.
    pub entries: u64,
}

/// Who is told how far long work has come, after every piece.
pub type Tell<'a> = &'a mut (dyn FnMut(Progress<'_>) + Send);

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As people look: the last death first.
    NewestFirst,
    /// As work is done: who has waited longest comes first.
    OldestFirst,
}

/// A walk through one source's DLQ. Entries that come and go meanwhile make it neither skip nor repeat others.
pub struct Walk<'a> {
    ledger: &'a dyn TriageLedger,
    filter: &'a Filter,
    now: Millis,
    scan: Scan,
    ended: bool,
    looked_at: u64,
}

impl<'a> Walk<'a> {
    /// From one end on. Ages count from `now`.
    pub fn new(ledger: &'a dyn TriageLedger, filter: &'a Filter, now: Millis, order: Order) -> Walk<'a> {
        let shifted = |at: Option<Millis>, by: i64| at.map(|at| Millis(at.0.saturating_add(by)));
        let scan = Scan {
            from: None,
            oldest_first: order == Order::OldestFirst,
            since: shifted(filter.since(now), -ADDED_EARLIER_MS),
            until: shifted(filter.until(now), ADDED_LATER_MS),
            sieve: filter.sieve(),
            without_payload: true,
            max: PIECE,
        };
        Walk { ledger, filter, now, scan, ended: false, looked_at: 0 }
    }

    /// The same from after this entry on, in the order of the walk.
    pub fn after(mut self, entry: Option<String>) -> Walk<'a> {
        self.scan.from = entry;
        self
    }

    /// The same, but no entry that was added later than this.
    pub fn added_until(mut self, until: Millis) -> Walk<'a> {
        self.scan.until = Some(self.scan.until.map_or(until, |limit| limit.min(until)));
        self
    }

    /// The same, but only entries that were added later than this.
    pub(super) fn added_after(mut self, at: Millis) -> Walk<'a> {
        self.scan.since = Some(Millis(at.0.saturating_add(1)));
        self.scan.until = None;
        self
    }

    /// The same, but only entries of this job.
    pub fn of_job(mut self, job_id: &str) -> Walk<'a> {
        self.scan.sieve = Sieve { job_id: Some(job_id.to_owned()), ..self.scan.sieve };
        self
    }

    /// True once there is nothing more to look at.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Entries looked at so far.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Where the walk has come to: on from here nothing has been looked at.
    pub(super) fn at(&self) -> Option<&str> {
        self.scan.from.as_deref()
    }

    /// The letters of the next piece that pass the filter, `max` at most and perhaps none; `None` at the end.
    pub async fn next(&mut self, max: usize) -> ledger::Result<Option<Vec<DeadLetter>>> {
        if self.ended {
            return Ok(None);
        }
        self.scan.max = max.clamp(1, PIECE);
        let mut piece = self.ledger.scan(&self.scan).await?;
        self.looked_at += piece.looked_at;
        self.ended = piece.next.is_none();
        if piece.next.is_some() {
            self.scan.from = piece.next;
        }
        let job = self.scan.sieve.job_id.as_deref();
        piece.letters.retain(|letter| {
            job.is_none_or(|job| letter.job_id == job) && self.filter.passes(self.ledger.name(), letter, self.now)
        });
        Ok(Some(piece.letters))
    }
}
