//! When a rule may act: a cron expression in a time zone.
//!
//! The clocks of the zone count, whatever they do: an hour that they skip is not there, one that they repeat is there
//! twice.

mod cron;
#[cfg(test)]
mod tests;
mod zone;

pub use self::cron::CronError;
use self::cron::Times;
pub use self::zone::Zone;
use crate::letter::Millis;

/// Minutes of an hour in which something may be scheduled.
const MOST_AN_HOUR: u32 = 12;

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

    /// What is wrong if it is open for less than a tenth of each hour that it names: hardly anybody means that, but
    /// `0 8-19 * * *` is easily written.
    pub fn hardly_open(&self) -> Option<CronError> {
        let seconds = self.times.seconds_an_hour();
        let open = match (seconds / 60, seconds % 60) {
            _ if seconds >= 360 => return None,
            (1, 0) => "1 minute".to_owned(),
            (minutes, 0) => format!("{minutes} minutes"),
            (0, 1) => "1 second".to_owned(),
            _ => format!("{seconds} seconds"),
        };
        let hours = self.hours();
        Some(CronError {
            why: format!("is open for {open} an hour"),
            help: format!("write * {hours} for the whole hours, or name at least 6 minutes: 0-5 {hours}"),
        })
    }

    /// What is wrong if it names more than a few minutes of each hour, for something that happens in each of them: a star
    /// where a 0 is meant is easily written.
    pub fn names_too_many(&self) -> Option<CronError> {
        let minutes = self.times.minutes_an_hour();
        (minutes > MOST_AN_HOUR).then(|| CronError {
            why: format!("names {minutes} minutes an hour"),
            help: format!("write 0 {} for once an hour, or name at most {MOST_AN_HOUR} minutes", self.hours()),
        })
    }

    /// All fields but seconds and minutes.
    fn hours(&self) -> String {
        let fields: Vec<&str> = self.written.split_whitespace().collect();
        fields[fields.len() - 4..].join(" ")
    }

    /// Whether the rule may act at this moment; from 1970 to 2100.
    pub fn is_open(&self, at: Millis) -> bool {
        self.zone.local(at.0.div_euclid(1000)).is_some_and(|clock| self.times.include(clock))
    }

    /// The beginning of the next second after this moment in which it is open, from 1970 on; none after 2100.
    pub fn opens_after(&self, at: Millis) -> Option<Millis> {
        let mut from = (at.0.div_euclid(1000) + 1).max(0);
        loop {
            // The next time named, if only the clocks ran on until then. If they are set before, look again from there.
            let clock = self.times.next(self.zone.local(from)?)?;
            let opens = clock.and_utc().timestamp() - self.zone.offset(from)?;
            match self.zone.set_between(from, opens) {
                Some(set) => from = set,
                None => return Some(Millis(opens * 1000)),
            }
        }
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
