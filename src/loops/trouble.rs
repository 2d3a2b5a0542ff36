//! Trouble with a source's store: logged once, then counted, then logged as over.
//!
//! A store in trouble fails every loop of its source at once, so they share one account of it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{clock::monotonic, ledger::StoreError};

/// A trouble that lasts is logged again after this long, with its count.
const REMIND_EVERY: Duration = Duration::from_secs(300);
/// Different errors that one trouble logs; further ones are only counted.
const TOLD_AT_MOST: usize = 8;

/// What has gone wrong with a source's store since it last worked, as one place in the program sees it.
#[derive(Debug)]
pub struct Trouble {
    source: Arc<str>,
    place: &'static str,
    shared: Arc<Mutex<Option<Current>>>,
}

#[derive(Debug)]
struct Current {
    since: Instant,
    logged: Instant,
    times: u64,
    /// Where it failed and has not worked since.
    places: BTreeSet<&'static str>,
    /// What has been logged of it.
    told: Vec<String>,
}

impl Trouble {
    /// For the first place of a source.
    pub fn new(source: &str, place: &'static str) -> Trouble {
        Trouble { source: source.into(), place, shared: Arc::default() }
    }

    /// The same account, seen from another place.
    pub fn at(&self, place: &'static str) -> Trouble {
        Trouble { source: Arc::clone(&self.source), place, shared: Arc::clone(&self.shared) }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It failed here. Logged if it says something new, or a reminder is due.
    pub fn failed(&self, error: &StoreError) {
        let now = monotonic();
        let mut current = self.current();
        let current = current.get_or_insert_with(|| Current {
            since: now,
            logged: now,
            times: 0,
            places: BTreeSet::new(),
            told: Vec::new(),
        });
        current.times += 1;
        current.places.insert(self.place);
        let text = error.to_string();
        if !current.told.contains(&text) && current.told.len() < TOLD_AT_MOST {
            current.told.push(text);
            current.logged = now;
            tracing::warn!(source = &*self.source, place = self.place, code = error.code(), %error, "failing; trying again");
        } else if now.duration_since(current.logged) >= REMIND_EVERY {
            current.logged = now;
            tracing::warn!(source = &*self.source, place = self.place, code = error.code(), times = current.times,
                seconds = now.duration_since(current.since).as_secs(), %error, "still failing");
        }
    }

    /// It worked here. Logged once it works wherever it had failed.
    pub fn over(&self) {
        let mut current = self.current();
        if let Some(was) = current.as_mut() {
            was.places.remove(self.place);
            if was.places.is_empty() {
                let seconds = monotonic().duration_since(was.since).as_secs();
                tracing::info!(source = &*self.source, times = was.times, seconds, "works again");
                *current = None;
            }
        }
    }

    /// Whether it is failing anywhere.
    pub fn is_on(&self) -> bool {
        self.current().is_some()
    }
}

impl Drop for Trouble {
    /// A place that is no more cannot be where it still fails; whether it works again is for the others to see.
    fn drop(&mut self) {
        if let Some(current) = self.current().as_mut() {
            current.places.remove(self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_over_when_it_works_wherever_it_had_failed() {
        let ingest = Trouble::new("orders", "ingest");
        let survey = ingest.at("survey");
        let down = StoreError::Unavailable("refused".to_owned());
        ingest.failed(&down);
        survey.failed(&down);
        ingest.over();
        assert!(ingest.is_on());
        survey.over();
        assert!(!ingest.is_on());
    }

    #[test]
    fn a_place_that_is_gone_does_not_keep_a_trouble_alive() {
        let standby = Trouble::new("orders", "standby");
        let ingest = standby.at("ingest");
        ingest.failed(&StoreError::Unavailable("refused".to_owned()));
        drop(ingest);
        assert!(standby.is_on(), "nobody has seen it work yet");
        standby.over();
        assert!(!standby.is_on());
    }
}
