//! A repeated failure is logged once and then counted.

use std::time::{Duration, Instant};

use crate::{clock::monotonic, ledger::StoreError};

/// A trouble that lasts is logged again after this long, with its count.
const REMIND_EVERY: Duration = Duration::from_secs(300);

/// What has gone wrong in a row in one place.
#[derive(Debug)]
pub struct Trouble {
    source: String,
    place: &'static str,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    code: &'static str,
    since: Instant,
    logged: Instant,
    times: u64,
}

impl Trouble {
    /// For one loop of one source.
    pub fn new(source: &str, place: &'static str) -> Trouble {
        Trouble { source: source.to_owned(), place, current: None }
    }

    /// It failed again. Logged if it is new, of another kind than before, or a reminder is due.
    pub fn failed(&mut self, error: &StoreError) {
        let now = monotonic();
        if let Some(current) = &mut self.current
            && current.code == error.code()
        {
            current.times += 1;
            if now.duration_since(current.logged) >= REMIND_EVERY {
                current.logged = now;
                tracing::warn!(source = self.source, place = self.place, code = error.code(), times = current.times,
                    seconds = now.duration_since(current.since).as_secs(), %error, "still failing");
            }
            return;
        }
        let (since, times) = self.current.as_ref().map_or((now, 1), |before| (before.since, before.times + 1));
        self.current = Some(Current { code: error.code(), since, logged: now, times });
        tracing::warn!(source = self.source, place = self.place, code = error.code(), %error, "failing; trying again");
    }

    /// It worked. Logged if it had failed before.
    pub fn over(&mut self) {
        if let Some(was) = self.current.take() {
            tracing::info!(
                source = self.source,
                place = self.place,
                times = was.times,
                seconds = monotonic().duration_since(was.since).as_secs(),
                "works again"
            );
        }
    }

    /// Whether it is failing now.
    pub fn is_on(&self) -> bool {
        self.current.is_some()
    }
}
