//! When a rule may act: a cron expression in a time zone.
//!
//! The clocks of the zone count, whatever they do: an hour that they skip is not there, one that they repeat is there
//! twice.

mod cron;
#[cfg(test)]
mod tests;
mod zone;

pub use cron::CronError;
pub use zone::Zone;

use self::cron::Times;
use crate::letter::Millis;

/// How far ahead an opening is looked for. What is rarest of all, the 29th of February on a certain day of the week, can
/// be 40 years away.
const LOOK_AHEAD_SECONDS: i64 = 41 * 366 * 24 * 3600;

/// A window in time: open in every minute (five fields) or second (six fields) that the expression names.
#[derive(Clone, Debug)]
pub struct Window {
    written: String,
    times: Times,
    zone: Zone,
}

impl Window {
    /// Reads a cron expression of five or six fields, as crontab has them. One that can never be open is an error.
    pub fn parse(written: &str, zone: Zone) -> Result<Window, CronError> {
        Ok(Window { written: written.to_owned(), times: Times::parse(written)?, zone })
    }

    /// Whether the rule may act at this moment.
    pub fn is_open(&self, at: Millis) -> bool {
        self.zone.local(at.0.div_euclid(1000)).is_some_and(|clock| self.times.wait(clock) == 0)
    }

    /// The beginning of the next second after this moment in which it is open; none only at the end of all calendars.
    pub fn opens_after(&self, at: Millis) -> Option<Millis> {
        let mut second = at.0.div_euclid(1000) + 1;
        let end = second.saturating_add(LOOK_AHEAD_SECONDS);
        while second <= end {
            match self.times.wait(self.zone.local(second)?) {
                0 => return second.checked_mul(1000).map(Millis),
                wait => second = self.run(second, i64::from(wait))?,
            }
        }
        None
    }

    /// Lets the clock run on for so many seconds, a day at most, or up to where it is set to another time: behind that
    /// it must be read anew.
    fn run(&self, from: i64, seconds: i64) -> Option<i64> {
        let (before, mut until) = (self.zone.offset(from)?, from.checked_add(seconds)?);
        if self.zone.offset(until)? == before {
            return Some(until);
        }
        let mut still = from;
        while until - still > 1 {
            let middle = still.midpoint(until);
            *(if self.zone.offset(middle)? == before { &mut still } else { &mut until }) = middle;
        }
        Some(until)
    }

    /// A text that is the same for windows that are open at the same times for the same reason, and for them alone.
    pub(super) fn says(&self) -> String {
        format!("{} {}", self.times.says(), self.zone.name())
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.written, self.zone.name())
    }
}
