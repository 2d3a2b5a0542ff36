//! When a rule may act: a cron expression in a time zone.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use cron::Schedule;

use crate::letter::Millis;

/// A window in time: open in every minute (five fields) or second (six fields) that the expression names.
#[derive(Clone, Debug)]
pub struct Window {
    written: String,
    schedule: Schedule,
    zone: Tz,
}

impl Window {
    /// Reads a cron expression of five or six fields; an error says what is wrong with it.
    pub fn parse(written: &str, zone: Tz) -> Result<Window, String> {
        let text = match written.split_whitespace().count() {
            5 => format!("* {written}"),
            6 => written.to_owned(),
            _ => return Err("it does not have 5 or 6 fields".to_owned()),
        };
        let schedule = Schedule::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Window { written: written.to_owned(), schedule, zone })
    }

    /// Whether the rule may act at this moment.
    pub fn is_open(&self, at: Millis) -> bool {
        self.local(at).is_some_and(|local| self.schedule.includes(local))
    }

    /// The next moment after this one at which it is open; none if it never is again.
    pub fn opens_after(&self, at: Millis) -> Option<Millis> {
        let next = self.schedule.after(&self.local(at)?).next()?;
        Some(Millis(next.timestamp_millis()))
    }

    fn local(&self, at: Millis) -> Option<DateTime<Tz>> {
        // Whole seconds: the expression knows nothing smaller.
        DateTime::<Utc>::from_timestamp(at.0.div_euclid(1000), 0).map(|utc| utc.with_timezone(&self.zone))
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.written, self.zone)
    }
}
