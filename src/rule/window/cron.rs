//! Cron expressions, read as `crontab` reads them. Only this file speaks of the library that reads them: that counts the
//! days of the week from 1, wants both day fields to hold at once, and lets a field run into the next.

use chrono::{DateTime, NaiveDateTime, TimeDelta};
use cron::{Schedule, TimeUnitSpec};

/// What is wrong with an expression, and what to do. Both may show parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    /// What is wrong, as the end of a sentence about the expression.
    pub why: String,
    /// What to do.
    pub help: String,
}

/// The fields in their order, with the values they can have.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23 (a night is 22-23,0-6)"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12 or Jan to Dec"),
    ("day of the week", "0 to 7 or Sun to Sat"),
];
/// The first and the last number of each; 7 is Sunday a second time.
const BOUNDS: [(u32, u32); FIELDS.len()] = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
const HOUR: usize = 2;
const DAY: usize = 3;
const WEEKDAY: usize = 5;
const ANY: [&str; FIELDS.len()] = ["*"; FIELDS.len()];

/// The times of a clock that an expression names, from 1970 to 2100: those of one schedule, or of two if both the day of
/// the month and the day of the week are restricted, since then either is enough.
#[derive(Clone, Debug)]
pub(super) struct Times(Vec<Schedule>);

impl Times {
    /// Reads five fields (every second of the minutes named) or six (seconds first).
    pub(super) fn parse(written: &str) -> Result<Times, CronError> {
        let mut fields: Vec<&str> = written.split_whitespace().collect();
        let count = fields.len();
        if count + 1 == FIELDS.len() {
            fields.insert(0, "*");
        }
        if fields.len() != FIELDS.len() {
            return Err(CronError {
                why: format!("has {count} field{} instead of 5 or 6", if count == 1 { "" } else { "s" }),
                help: "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri".to_owned(),
            });
        }
        let cannot = |place: usize| {
            let (wrong, help) = match forwards(place, fields[place]) {
                Some(meant) => ("runs backwards", format!("write {meant}")),
                None => {
                    let forms = "*, a list (a,b), a range (a-b, a < b) or a step (*/n, a-b/n)";
                    ("cannot be read", format!("write {}, {forms}", FIELDS[place].1))
                }
            };
            CronError { why: format!("has {:?} for the {}, which {wrong}", fields[place], FIELDS[place].0), help }
        };
        let known = fields.iter().enumerate().map(|(place, field)| read(place, field).ok_or_else(|| cannot(place)));
        let known: Vec<String> = known.collect::<Result<_, _>>()?;
        // As in crontab(5): a field that begins with a star does not restrict.
        let either = [DAY, WEEKDAY].iter().all(|&place| !fields[place].starts_with(['*', '?']));
        let schedules = match either {
            true => vec![schedule(&known, WEEKDAY, "*"), schedule(&known, DAY, "*")],
            false => vec![schedule(&known, WEEKDAY, &known[WEEKDAY])],
        };
        let times = schedules.into_iter().collect::<Option<_>>().map(Times);
        times.filter(|times| times.next(DateTime::UNIX_EPOCH.naive_utc()).is_some()).ok_or_else(|| CronError {
            why: "names no day that any year has".to_owned(),
            help: "give a day that the month has".to_owned(),
        })
    }

    /// Whether the time that the clock shows is named.
    pub(super) fn include(&self, clock: NaiveDateTime) -> bool {
        self.0.iter().any(|schedule| schedule.includes(clock.and_utc()))
    }

    /// How many seconds of every hour are named in which any is.
    pub(super) fn seconds_an_hour(&self) -> u32 {
        // Schedules of one expression differ in their days alone.
        self.0.first().map_or(0, |schedule| schedule.minutes().count() * schedule.seconds().count())
    }

    /// How many minutes of every hour are named in which any is.
    pub(super) fn minutes_an_hour(&self) -> u32 {
        self.0.first().map_or(0, |schedule| schedule.minutes().count())
    }

    /// The first time named that is not before this one; none after 2100.
    pub(super) fn next(&self, clock: NaiveDateTime) -> Option<NaiveDateTime> {
        let before = clock.checked_sub_signed(TimeDelta::seconds(1))?.and_utc();
        self.0.iter().filter_map(|schedule| schedule.after(&before).next()).min().map(|next| next.naive_utc())
    }

    /// A text that is the same for expressions that say the same, and for them alone.
    pub(super) fn says(&self) -> String {
        fn set(field: &impl TimeUnitSpec) -> Vec<u32> {
            field.iter().collect()
        }
        let sets = self.0.iter().map(|times| {
            let days = [set(times.days_of_month()), set(times.months()), set(times.days_of_week())];
            (set(times.seconds()), set(times.minutes()), set(times.hours()), days)
        });
        format!("{:?}", sets.collect::<Vec<_>>())
    }
}

/// The field as the library wants it; none if it cannot be read by itself.
fn read(place: usize, field: &str) -> Option<String> {
    // A step behind one value means different things to different crontabs.
    let is_vague = |item: &str| item.contains('/') && !item.contains(['*', '?', '-']);
    match place {
        _ if field.split(',').any(is_vague) => None,
        WEEKDAY => weekdays(field),
        _ => schedule(&ANY, place, field).map(|_| field.to_owned()),
    }
}

/// What is meant by a field with ranges that run backwards (`22-5`), if nothing else is wrong with it.
fn forwards(place: usize, field: &str) -> Option<String> {
    let (first, last) = BOUNDS[place];
    let range = |from: u32, to: u32| if from == to { from.to_string() } else { format!("{from}-{to}") };
    let item = |item: &str| {
        let (from, to) = item.split_once('-')?;
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (first <= to && to < from && from <= last).then(|| format!("{},{}", range(from, last), range(first, to)))
    };
    let meant: Vec<String> = field.split(',').map(|part| item(part).unwrap_or_else(|| part.to_owned())).collect();
    let meant = meant.join(",");
    (meant != field && read(place, &meant).is_some()).then_some(meant)
}

/// The days of the week by the numbers of the library. Those of crontab are read as hours: there are more than enough.
fn weekdays(field: &str) -> Option<String> {
    let mut hours = field.to_ascii_lowercase().replace("-sun", "- 7 ").replace(['*', '?'], " 0-6 ");
    for (number, day) in ["sun", "mon", "tue", "wed", "thu", "fri", "sat"].iter().enumerate() {
        // Between spaces, so that nothing else becomes part of the number.
        hours = hours.replace(day, &format!(" {number} "));
    }
    let days = schedule(&ANY, HOUR, &hours)?;
    let days = days.hours().iter().map(|day| (day <= 7).then(|| (day % 7 + 1).to_string()));
    Some(days.collect::<Option<Vec<_>>>()?.join(","))
}

/// The schedule of these fields, but for one that is to be another.
fn schedule(fields: &[impl AsRef<str>], place: usize, field: &str) -> Option<Schedule> {
    let mut fields: Vec<&str> = fields.iter().map(AsRef::as_ref).collect();
    fields[place] = field;
    // With any year, or the library would take a field in two parts for two fields.
    format!("{} *", fields.join(" ")).parse().ok()
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;
    use proptest::prelude::*;

    use super::*;

    const SECOND: usize = 0;
    const MINUTE: usize = 1;
    const MONTH: usize = 4;

    /// What the field names, Sunday as 0.
    fn named(place: usize, field: &str) -> Result<Vec<u32>, CronError> {
        let mut fields = ANY;
        fields[place] = field;
        let times = Times::parse(&fields.join(" "))?;
        let [schedule] = &times.0[..] else { panic!("one restricts: {field}") };
        Ok(match place {
            SECOND => schedule.seconds().iter().collect(),
            MINUTE => schedule.minutes().iter().collect(),
            HOUR => schedule.hours().iter().collect(),
            DAY => schedule.days_of_month().iter().collect(),
            MONTH => schedule.months().iter().collect(),
            _ => schedule.days_of_week().iter().map(|day| day - 1).collect(),
        })
    }

    #[test]
    fn fields_are_read_as_crontab_reads_them() {
        let to = |first: u32, last: u32| (first..=last).collect::<Vec<_>>();
        for (place, field, values) in [
            (SECOND, "*/30", vec![0, 30]),
            (MINUTE, "*", to(0, 59)),
            (MINUTE, "0", vec![0]),
            (MINUTE, "059", vec![59]),
            (MINUTE, "5,1,5", vec![1, 5]),
            (MINUTE, "*/20", vec![0, 20, 40]),
            (MINUTE, "*/59", vec![0, 59]),
            (MINUTE, "10-30/10,31", vec![10, 20, 30, 31]),
            (HOUR, "8-19", to(8, 19)),
            (HOUR, "22-23,0-5", vec![0, 1, 2, 3, 4, 5, 22, 23]),
            (DAY, "*", to(1, 31)),
            (DAY, "?", to(1, 31)),
            (DAY, "*/10", vec![1, 11, 21, 31]),
            (MONTH, "*", to(1, 12)),
            (MONTH, "jan,MAR-May", vec![1, 3, 4, 5]),
            (MONTH, "nov-DEC", vec![11, 12]),
            (WEEKDAY, "*", to(0, 6)),
            (WEEKDAY, "?", to(0, 6)),
            (WEEKDAY, "0", vec![0]),
            (WEEKDAY, "7", vec![0]),
            (WEEKDAY, "Sun", vec![0]),
            (WEEKDAY, "6", vec![6]),
            (WEEKDAY, "1-5", to(1, 5)),
            (WEEKDAY, "Mon-Fri", to(1, 5)),
            (WEEKDAY, "1-Fri", to(1, 5)),
            (WEEKDAY, "5-7", vec![0, 5, 6]),
            (WEEKDAY, "sat-sun", vec![0, 6]),
            (WEEKDAY, "Mon-Sun", to(0, 6)),
            (WEEKDAY, "SUN,tUe-wED", vec![0, 2, 3]),
            (WEEKDAY, "0-7", to(0, 6)),
            (WEEKDAY, "*/2", vec![0, 2, 4, 6]),
            (WEEKDAY, "1-7/2", vec![0, 1, 3, 5]),
            (WEEKDAY, "Sun-Sat/3", vec![0, 3, 6]),
        ] {
            assert_eq!(named(place, field), Ok(values), "{} {field}", FIELDS[place].0);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_to_write() {
        for (place, field) in [
            (SECOND, "60"),
            (MINUTE, "60"),
            (MINUTE, "-1"),
            (MINUTE, "+1"),
            (MINUTE, "1,"),
            (MINUTE, ",1"),
            (MINUTE, "1-"),
            (MINUTE, "*/"),
            (MINUTE, "/2"),
            (MINUTE, "1,,2"),
            (MINUTE, "?"),
            (MINUTE, "99999999999"),
            (MINUTE, "*/0"),
            (MINUTE, "*/90"),
            (MINUTE, "5/15"),
            (MINUTE, "1-2-3"),
            (HOUR, "24"),
            (HOUR, "22-24,3"),
            (DAY, "0"),
            (DAY, "31,32"),
            (DAY, "L"),
            (DAY, "15W"),
            (MONTH, "13"),
            (MONTH, "Janvier"),
            (WEEKDAY, "8"),
            (WEEKDAY, "0-8"),
            (WEEKDAY, "Mon#2"),
            (WEEKDAY, "5L"),
            (WEEKDAY, "Mo-Fr"),
            (WEEKDAY, "Tuesday,3"),
            (WEEKDAY, "Sunmon"),
            (WEEKDAY, "0mon"),
            (WEEKDAY, "Fri-Mon"),
            (WEEKDAY, "Mon/2"),
            // What the library would take for the end of one field and the beginning of the next.
            (MINUTE, "*5"),
            (MINUTE, "**"),
            (MINUTE, "5*,"),
            (HOUR, "8Mon"),
            (MONTH, "1*"),
            (WEEKDAY, "0*"),
            (WEEKDAY, "1,*/2*"),
        ] {
            let error = named(place, field).unwrap_err();
            let (name, values) = FIELDS[place];
            assert_eq!(error.why, format!("has {field:?} for the {name}, which cannot be read"));
            assert!(error.help.starts_with(&format!("write {values}, ")), "{field}: {}", error.help);
        }
        for (place, field, meant) in [
            (HOUR, "22-6", "22-23,0-6"),
            (HOUR, "23-0", "23,0"),
            (HOUR, "12,22-5", "12,22-23,0-5"),
            (MINUTE, "50-10", "50-59,0-10"),
            (DAY, "28-3", "28-31,1-3"),
            (MONTH, "11-1", "11-12,1"),
            (WEEKDAY, "5-0", "5-6,0"),
        ] {
            let why = format!("has {field:?} for the {}, which runs backwards", FIELDS[place].0);
            assert_eq!(named(place, field), Err(CronError { why, help: format!("write {meant}") }));
            assert!(named(place, meant).is_ok(), "{meant}");
        }
        // A part that is wrong otherwise as well.
        assert!(named(HOUR, "22-5,24").unwrap_err().help.starts_with("write 0 to 23"));
        let shape = "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri";
        let date = "give a day that the month has";
        for (written, why, help) in [
            ("", "has 0 fields instead of 5 or 6", shape),
            ("@daily", "has 1 field instead of 5 or 6", shape),
            ("* * * * * * 2026", "has 7 fields instead of 5 or 6", shape),
            ("* * 30 2 *", "names no day that any year has", date),
            ("* * 31 4,6,9,11 *", "names no day that any year has", date),
            ("* * 30,31 Feb */2", "names no day that any year has", date),
        ] {
            let error = CronError { why: why.to_owned(), help: help.to_owned() };
            assert_eq!(Times::parse(written).map(|times| times.says()), Err(error), "{written}");
        }
        // Six fields for the eye, five for the library.
        for written in ["* 8, 9 * * *", "* 8 ,9 * * *", "* 8- 9 * * *", "* 8 /2 * * *", "* * * * Mon- Fri"] {
            assert!(Times::parse(written).unwrap_err().why.ends_with(", which cannot be read"), "{written}");
        }
    }

    #[test]
    fn a_day_of_the_month_and_one_of_the_week_are_either_enough() {
        let days = |written: &str| {
            let times = Times::parse(written).unwrap();
            let noon = |day| NaiveDate::from_ymd_opt(2026, 3, day).unwrap().and_hms_opt(12, 0, 0).unwrap();
            (1..=31).filter(|&day| times.include(noon(day))).collect::<Vec<_>>()
        };
        // The first of March 2026 is a Sunday.
        assert_eq!(days("* * 13 * *"), [13]);
        assert_eq!(days("* * * * 5"), [6, 13, 20, 27]);
        assert_eq!(days("* * 1 * Fri"), [1, 6, 13, 20, 27]);
        assert!(days("* * 30 2 Fri").is_empty(), "only in February");
        assert_eq!(days("* * ? * 7"), [1, 8, 15, 22, 29]);
        // What begins with a star does not restrict: both must hold.
        assert_eq!(days("* * */7 * Sun"), [1, 8, 15, 22, 29]);
        assert_eq!(days("* * 1-14 * */6"), [1, 7, 8, 14]);
    }

    #[test]
    fn expressions_that_say_the_same_are_the_same() {
        let says = |written: &str| Times::parse(written).unwrap().says();
        let base = says("* 8-10 * * Mon-Fri");
        for same in
            ["*  8,9,10 *\t* 1-5", "0-59 10,8-9 ? 1-12 1,2,3,4,5", "* * 8-10 * * Mon-Fri", "*/1 8-10 */1 * mon-fri"]
        {
            assert_eq!(says(same), base, "{same}");
        }
        for other in ["0 * 8-10 * * Mon-Fri", "* 8-11 * * Mon-Fri", "* 8-10 1-31 * Mon-Fri", "* 8-10 * * *"] {
            assert_ne!(says(other), base, "{other}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_it_is_read_or_refused(written in "([0-9*?,/LW#@-]|mon|Sun|Jan| |\t|ß){0,24}") {
            if let Ok(times) = Times::parse(&written) {
                prop_assert!([5, 6].contains(&written.split_whitespace().count()));
                prop_assert!(times.next(DateTime::UNIX_EPOCH.naive_utc()).is_some_and(|next| times.include(next)));
            }
        }
    }
}
