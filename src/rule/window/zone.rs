//! Time zones by name. The only place that speaks of the zone database.

use chrono::{DateTime, NaiveDateTime, Offset as _, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

const DAY_SECONDS: u32 = 24 * 3600;

/// A time zone of the zone database, such as `Europe/Berlin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(Tz);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Zone = Zone(Tz::UTC);

    /// The zone with this name, spelt as in the database.
    pub fn named(name: &str) -> Option<Zone> {
        name.parse().ok().map(Zone)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Every name there is.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TZ_VARIANTS.iter().map(|zone| zone.name())
    }

    /// Seconds that its clocks are ahead of UTC at this second since 1970; none beyond the calendar.
    pub(super) fn offset(self, second: i64) -> Option<i64> {
        let utc = DateTime::from_timestamp(second, 0)?.naive_utc();
        Some(i64::from(self.0.offset_from_utc_datetime(&utc).fix().local_minus_utc()))
    }

    /// What its clocks show at this second since 1970; none beyond the calendar.
    pub(super) fn local(self, second: i64) -> Option<NaiveDateTime> {
        Some(DateTime::from_timestamp(second.checked_add(self.offset(second)?)?, 0)?.naive_utc())
    }

    /// The first second after one and up to another at which its clocks are set; none if they just run on. No zone sets
    /// its clocks back to what they were within a day.
    pub(super) fn set_between(self, from: i64, to: i64) -> Option<i64> {
        let before = self.offset(from);
        let is_set = |second: &i64| self.offset(*second) != before;
        let mut set = (from..to).step_by(DAY_SECONDS as usize).skip(1).chain([to]).find(is_set)?;
        let mut runs_on = from.max(set - i64::from(DAY_SECONDS));
        while set - runs_on > 1 {
            let middle = runs_on.midpoint(set);
            *(if is_set(&middle) { &mut set } else { &mut runs_on }) = middle;
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_go_by_their_names() {
        for zone in ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Etc/GMT-3", "CET"] {
            assert_eq!(Zone::named(zone).map(Zone::name), Some(zone));
            assert!(Zone::names().any(|name| name == zone), "{zone}");
        }
        for nowhere in ["", "Berlin", "europe/berlin", "Europe/Berlin ", "+02:00", "PST"] {
            assert_eq!(Zone::named(nowhere), None, "{nowhere}");
        }
        assert_eq!(Zone::names().filter_map(Zone::named).count(), Zone::names().count());
    }

    #[test]
    fn offsets_follow_the_zone_and_end_with_the_calendar() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        // 2026-03-29 01:00 UTC: clocks go from 02:00 to 03:00.
        assert_eq!(berlin.offset(1_774_746_000 - 1), Some(3600));
        assert_eq!(berlin.offset(1_774_746_000), Some(7200));
        assert_eq!(berlin.local(1_774_746_000).unwrap().to_string(), "2026-03-29 03:00:00");
        for beyond in [i64::MIN, i64::MAX, 1 << 60] {
            assert_eq!((berlin.offset(beyond), berlin.local(beyond)), (None, None));
        }
    }
}
