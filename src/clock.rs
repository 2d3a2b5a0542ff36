//! The only place that asks a clock.
//!
//! Times that mean something (ages, due times, signatures) are the store's: [`StoreClock`] is set by every answer that
//! carries the store's time and runs on by the monotonic clock in between. The pod's wall clock is asked only before
//! the store has ever answered, and for dashboards.

#![expect(clippy::disallowed_methods, reason = "this is the place")]

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::letter::Millis;

/// The monotonic clock, for measuring how long something took. It is the one that timers go by.
pub fn monotonic() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The pod's own time: for telling people when something happened in this process, or how far the store's clock is from
/// it, and for nothing that decides.
pub fn wall_clock() -> Millis {
    Millis(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis))
}

/// The store's time, known in this process.
#[derive(Debug, Default)]
pub struct StoreClock {
    set: Mutex<Option<(Instant, i64)>>,
}

impl StoreClock {
    /// Takes over the time the store has just told.
    pub fn set(&self, store_now: Millis) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = Some((monotonic(), store_now.0));
    }

    /// The store's time now.
    pub fn now(&self) -> Millis {
        match *self.set.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, ms)) => Millis(ms.saturating_add(millis(monotonic().saturating_duration_since(at)))),
            None => wall_clock(),
        }
    }
}

/// A duration in whole milliseconds.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A duration as people write it, in the largest unit that leaves no rest.
pub fn written(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms == 0 {
        return "0s".to_owned();
    }
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= length && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_stores_time_is_taken_over_and_runs_on() {
        let clock = StoreClock::default();
        clock.set(Millis(1_000));
        let first = clock.now();
        assert!(first.0 >= 1_000 && first.0 < 60_000, "{first:?}");
        clock.set(Millis(5));
        assert!(clock.now().0 < 1_000, "a store whose clock stepped back is believed");
    }

    proptest! {
        #[test]
        fn durations_are_written_as_they_are_read(ms in 0_u64..10_000_000_000) {
            let length = Duration::from_millis(ms);
            prop_assert_eq!(humantime::parse_duration(&written(length)), Ok(length));
        }
    }
}
