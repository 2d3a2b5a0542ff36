//! How many retries are in flight, by rule, pool and group.

use std::collections::HashMap;

use crate::ledger::{Flight, Place, Pool};

/// Retries in flight, counted. One that has been seen failing still counts for its rule: it is there, and will run
/// again. It no longer counts for its pool and its group, which have already learnt from it and do not wait for its
/// end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::JobDead,
        ledger::{Rounds, Whereabouts},
        letter::Millis,
    };

    #[test]
    fn what_fails_counts_for_its_rule_alone() {
        let flight = |rule: &str, group: &str, canary, failing| Flight {
            place: Place { pool: Pool::of(rule, "t"), group: group.to_owned() },
            dead: JobDead::default(),
            stream: String::new(),
            dedup: None,
            sent_at: Millis(0),
            confirm_by: Millis(0),
            rounds: Rounds { canary, ..Rounds::default() },
            at: Whereabouts::Queue(String::new()),
            seen_at: Millis(0),
            failing,
        };
        let flights = [
            flight("r", "a", true, false),
            flight("r", "a", false, false),
            flight("r", "b", true, true),
            flight("s", "a", true, false),
        ];
        let aloft = Aloft::of(&flights);
        for (rule, flights, canaries, of_a, of_b) in [("r", 3, 1, 2, 0), ("s", 1, 1, 1, 0), ("t", 0, 0, 0, 0)] {
            let pool = Pool::of(rule, "t");
            let of = |group: &str| aloft.of_group(&Place { pool: pool.clone(), group: group.to_owned() });
            assert_eq!((aloft.of_rule(rule), aloft.canaries(&pool)), (flights, canaries), "{rule}");
            assert_eq!((of("a"), of("b")), (of_a, of_b), "{rule}");
        }
    }
}
