//! How many retries are in flight, by rule, pool and group.

use std::collections::HashMap;

use crate::ledger::{Flight, Place, Pool};

/// Retries in flight, counted. One that has been seen failing still counts for its rule: it is there, and will run
/// again. It no longer counts for its pool and its group, which have already learnt from it and do not wait for its end.
#[derive(Clone, Debug, Default)]
pub struct Aloft {
    rules: HashMap<String, u32>,
    canaries: HashMap<Pool, u32>,
    groups: HashMap<Place, u32>,
}

impl Aloft {
    /// Counts these.
    pub fn of<'a>(flights: impl IntoIterator<Item = &'a Flight>) -> Aloft {
        let mut aloft = Aloft::default();
        for flight in flights {
            aloft.add(flight);
        }
        aloft
    }

    /// Counts one more.
    pub fn add(&mut self, flight: &Flight) {
        let place = &flight.place;
        count(self.rules.entry(place.pool.rule().to_owned()).or_default());
        if flight.failing {
            return;
        }
        count(self.groups.entry(place.clone()).or_default());
        if flight.rounds.canary {
            count(self.canaries.entry(place.pool.clone()).or_default());
        }
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All flights of a rule.
    pub fn of_rule(&self, rule: &str) -> u32 {
        self.rules.get(rule).copied().unwrap_or_default()
    }

    /// Canaries of a pool without an outcome.
    pub fn canaries(&self, pool: &Pool) -> u32 {
        self.canaries.get(pool).copied().unwrap_or_default()
    }

    /// Flights of a group without an outcome.
    pub fn of_group(&self, place: &Place) -> u32 {
        self.groups.get(place).copied().unwrap_or_default()
    }
}

fn count(number: &mut u32) {
    *number = number.saturating_add(1);
}
