//! Cron expressions, read as `crontab` reads them: a set of values for each field.

use std::fmt::Write as _;

use chrono::{Datelike as _, NaiveDate, NaiveDateTime, Timelike as _};

/// What is wrong with an expression, and what to do. Both may show parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    /// What is wrong, as the end of a sentence about the expression.
    pub why: String,
    /// What to do.
    pub help: String,
}

fn wrong(why: impl Into<String>, help: impl Into<String>) -> CronError {
    CronError { why: why.into(), help: help.into() }
}

/// The times that an expression names. Each set has a bit for each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// Both the day of the month and the day of the week are restricted: then either is enough.
    either: bool,
}

/// One field.
struct Form {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names for its values, beginning with `min`.
    names: &'static [&'static str],
}

const SECOND: Form = Form { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Form = Form { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Form = Form { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Form = Form { name: "day of the month", min: 1, max: 31, names: &[] };
const MONTH: Form = Form {
    name: "month",
    min: 1,
    max: 12,
    names: &["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
};
const WEEKDAY: Form =
    Form { name: "day of the week", min: 0, max: 6, names: &["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"] };
/// Sunday as the end of a week.
const LATE_SUNDAY: u32 = 7;

impl Times {
    /// Reads five fields (every second of the minutes named) or six (seconds first).
    pub(super) fn parse(written: &str) -> Result<Times, CronError> {
        let fields: Vec<&str> = written.split_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("*", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => {
                let fields = if fields.len() == 1 { "1 field".to_owned() } else { format!("{} fields", fields.len()) };
                return Err(wrong(
                    format!("has {fields} instead of 5 or 6"),
                    "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri",
                ));
            }
        };
        // As in crontab(5): a field that begins with a star does not restrict.
        let restricted = |field: &str| !field.starts_with(['*', '?']);
        let times = Times {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY.read(day)?,
            months: MONTH.read(month)?,
            weekdays: WEEKDAY.read(weekday)?,
            either: restricted(day) && restricted(weekday),
        };
        if !times.ever() {
            return Err(wrong("names no day that any year has", "give a day that the month has"));
        }
        Ok(times)
    }

    /// Whether there is such a day in any year.
    fn ever(&self) -> bool {
        const LEAP_YEAR: i32 = 2000;
        // A day of the week comes every week; two conditions at once are only met where the first day of the month
        // meets one of them (`*/2`), and sooner or later that falls on every day of the week.
        self.either
            || (1..=12).filter(|month| self.months & (1 << month) != 0).any(|month| {
                (1..=31)
                    .any(|day| self.days & (1 << day) != 0 && NaiveDate::from_ymd_opt(LEAP_YEAR, month, day).is_some())
            })
    }

    fn day(&self, date: NaiveDate) -> bool {
        let (day, weekday) =
            (self.days & (1 << date.day()) != 0, self.weekdays & (1 << date.weekday().num_days_from_sunday()) != 0);
        self.months & (1 << date.month()) != 0 && if self.either { day || weekday } else { day && weekday }
    }

    /// How many seconds of the clock must pass at least before a time that is named: 0 at one.
    pub(super) fn wait(&self, clock: NaiveDateTime) -> u32 {
        let (hour, minute, second) = (clock.hour(), clock.minute(), clock.second());
        if !self.day(clock.date()) {
            24 * 3600 - clock.num_seconds_from_midnight()
        } else if self.hours & (1 << hour) == 0 {
            3600 - (minute * 60 + second)
        } else if self.minutes & (1 << minute) == 0 {
            60 - second
        } else {
            u32::from(self.seconds & (1 << second) == 0)
        }
    }

    /// A text that is the same for expressions that say the same, and for them alone.
    pub(super) fn says(&self) -> String {
        let sets = [self.seconds, self.minutes, self.hours, self.days, self.months, self.weekdays];
        let mut text = String::new();
        for set in sets {
            // Writing to a text does not fail.
            let _ = write!(text, "{set:x} ");
        }
        text + if self.either { "either" } else { "both" }
    }
}

impl Form {
    /// Reads a field: items between commas.
    fn read(&self, field: &str) -> Result<u64, CronError> {
        if field == "?" && (self.name == DAY.name || self.is_weekday()) {
            return Ok(self.set(self.min, self.max, 1));
        }
        field.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// Reads `*`, a value, or a range, the first and the last perhaps with a step.
    fn item(&self, item: &str) -> Result<u64, CronError> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(self.step(item, step)?)),
        };
        if range == "*" {
            return Ok(self.set(self.min, self.max, step.unwrap_or(1)));
        }
        let Some((first, last)) = range.split_once('-') else {
            let value = self.value(item, range)?;
            return match step {
                None => Ok(self.set(value, value, 1)),
                Some(step) => Err(wrong(
                    format!("has {item:?} for the {}, which has a step, but is no range", self.name),
                    format!("write {}/{step}", self.range(value, self.max)),
                )),
            };
        };
        let first = self.value(item, first)?;
        let last = self.last(item, first, last)?;
        if first > last {
            let help = match first {
                LATE_SUNDAY if self.is_weekday() => format!("write {}", self.range(0, last)),
                _ => format!("write {},{}", self.range(first, self.max), self.range(self.min, last)),
            };
            return Err(wrong(format!("has {item:?} for the {}, which runs backwards", self.name), help));
        }
        Ok(self.set(first, last, step.unwrap_or(1)))
    }

    fn step(&self, item: &str, step: &str) -> Result<u32, CronError> {
        let count = self.max - self.min + 1;
        step.parse().ok().filter(|step| (1..=count).contains(step)).ok_or_else(|| {
            wrong(
                format!("has {item:?} for the {}, whose step cannot be used", self.name),
                format!("behind / write a whole number from 1 to {count}"),
            )
        })
    }

    /// The end of a range: Sunday ends a week that it does not begin.
    fn last(&self, item: &str, first: u32, text: &str) -> Result<u32, CronError> {
        let is_sunday = self.is_weekday() && text.eq_ignore_ascii_case(WEEKDAY.names[0]);
        if is_sunday && first > 0 { Ok(LATE_SUNDAY) } else { self.value(item, text) }
    }

    fn value(&self, item: &str, text: &str) -> Result<u32, CronError> {
        let named = self.names.iter().zip(self.min..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        let last = if self.is_weekday() { LATE_SUNDAY } else { self.max };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = || text.parse().ok().filter(|number| digits && (self.min..=last).contains(number));
        named.map(|(_, value)| value).or_else(number).ok_or_else(|| {
            let names = match self.names {
                [first, .., last] => format!(" or {first} to {last}"),
                _ => String::new(),
            };
            wrong(
                format!("has {item:?} for the {}, which cannot be read", self.name),
                format!("write {} to {last}{names}, a list (a,b), a range (a-b), * or a step (*/n)", self.min),
            )
        })
    }

    fn is_weekday(&self) -> bool {
        self.name == WEEKDAY.name
    }

    fn range(&self, first: u32, last: u32) -> String {
        let [from, to] = [first, last].map(|value| self.shown(value));
        if first == last { from } else { format!("{from}-{to}") }
    }

    fn shown(&self, value: u32) -> String {
        match usize::try_from(value - self.min).ok().and_then(|index| self.names.get(index)) {
            Some(name) => (*name).to_owned(),
            None => value.to_string(),
        }
    }

    fn set(&self, first: u32, last: u32, step: u32) -> u64 {
        let mut set = 0;
        let mut value = first;
        while value <= last {
            let late_sunday = self.is_weekday() && value == LATE_SUNDAY;
            set |= 1 << if late_sunday { 0 } else { value };
            value += step;
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: u64) -> Vec<u32> {
        (0..64).filter(|value| set & (1 << value) != 0).collect()
    }

    #[test]
    fn fields_are_read_as_crontab_reads_them() {
        let to = |first: u32, last: u32| (first..=last).collect::<Vec<_>>();
        for (form, field, values) in [
            (&MINUTE, "*", to(0, 59)),
            (&MINUTE, "0", vec![0]),
            (&MINUTE, "059", vec![59]),
            (&MINUTE, "5,1,5", vec![1, 5]),
            (&MINUTE, "*/20", vec![0, 20, 40]),
            (&MINUTE, "*/60", vec![0]),
            (&MINUTE, "10-30/10,31", vec![10, 20, 30, 31]),
            (&HOUR, "8-19", to(8, 19)),
            (&HOUR, "22-23,0-5", vec![0, 1, 2, 3, 4, 5, 22, 23]),
            (&DAY, "*", to(1, 31)),
            (&DAY, "?", to(1, 31)),
            (&DAY, "*/10", vec![1, 11, 21, 31]),
            (&MONTH, "*", to(1, 12)),
            (&MONTH, "jan,MAR-May", vec![1, 3, 4, 5]),
            (&MONTH, "Nov-12", vec![11, 12]),
            (&WEEKDAY, "*", to(0, 6)),
            (&WEEKDAY, "?", to(0, 6)),
            (&WEEKDAY, "0", vec![0]),
            (&WEEKDAY, "7", vec![0]),
            (&WEEKDAY, "Sun", vec![0]),
            (&WEEKDAY, "1-5", to(1, 5)),
            (&WEEKDAY, "Mon-Fri", to(1, 5)),
            (&WEEKDAY, "5-7", vec![0, 5, 6]),
            (&WEEKDAY, "sat-sun", vec![0, 6]),
            (&WEEKDAY, "Mon-Sun", to(0, 6)),
            (&WEEKDAY, "Sun-Sun", vec![0]),
            (&WEEKDAY, "0-7", to(0, 6)),
            (&WEEKDAY, "*/2", vec![0, 2, 4, 6]),
            (&WEEKDAY, "1-7/2", vec![0, 1, 3, 5]),
        ] {
            assert_eq!(form.read(field).map(members), Ok(values), "{} {field}", form.name);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_to_write() {
        let numbers = "a list (a,b), a range (a-b), * or a step (*/n)";
        for (written, why, help) in [
            (
                "",
                "has 0 fields instead of 5 or 6",
                "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri".to_owned(),
            ),
            (
                "@daily",
                "has 1 field instead of 5 or 6",
                "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri".to_owned(),
            ),
            (
                "* * * * * * 2026",
                "has 7 fields instead of 5 or 6",
                "write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri".to_owned(),
            ),
            ("60 * * * *", r#"has "60" for the minute, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            ("-1 * * * *", r#"has "-1" for the minute, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            ("+1 * * * *", r#"has "+1" for the minute, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            ("1, * * * *", r#"has "" for the minute, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            ("? * * * *", r#"has "?" for the minute, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            (
                "99999999999 * * * *",
                r#"has "99999999999" for the minute, which cannot be read"#,
                format!("write 0 to 59, {numbers}"),
            ),
            ("60 * * * * *", r#"has "60" for the second, which cannot be read"#, format!("write 0 to 59, {numbers}")),
            ("* 24 * * *", r#"has "24" for the hour, which cannot be read"#, format!("write 0 to 23, {numbers}")),
            ("* 22-6 * * *", r#"has "22-6" for the hour, which runs backwards"#, "write 22-23,0-6".to_owned()),
            ("* 22-0 * * *", r#"has "22-0" for the hour, which runs backwards"#, "write 22-23,0".to_owned()),
            (
                "* * 0 * *",
                r#"has "0" for the day of the month, which cannot be read"#,
                format!("write 1 to 31, {numbers}"),
            ),
            (
                "* * L * *",
                r#"has "L" for the day of the month, which cannot be read"#,
                format!("write 1 to 31, {numbers}"),
            ),
            (
                "* * 15W * *",
                r#"has "15W" for the day of the month, which cannot be read"#,
                format!("write 1 to 31, {numbers}"),
            ),
            (
                "* * * 13 *",
                r#"has "13" for the month, which cannot be read"#,
                format!("write 1 to 12 or Jan to Dec, {numbers}"),
            ),
            (
                "* * * January *",
                r#"has "January" for the month, which cannot be read"#,
                format!("write 1 to 12 or Jan to Dec, {numbers}"),
            ),
            (
                "* * * * 8",
                r#"has "8" for the day of the week, which cannot be read"#,
                format!("write 0 to 7 or Sun to Sat, {numbers}"),
            ),
            (
                "* * * * Mon#2",
                r#"has "Mon#2" for the day of the week, which cannot be read"#,
                format!("write 0 to 7 or Sun to Sat, {numbers}"),
            ),
            (
                "* * * * Mo-Fr",
                r#"has "Mo-Fr" for the day of the week, which cannot be read"#,
                format!("write 0 to 7 or Sun to Sat, {numbers}"),
            ),
            (
                "* * * * Fri-Mon",
                r#"has "Fri-Mon" for the day of the week, which runs backwards"#,
                "write Fri-Sat,Sun-Mon".to_owned(),
            ),
            (
                "* * * * 5-0",
                r#"has "5-0" for the day of the week, which runs backwards"#,
                "write Fri-Sat,Sun".to_owned(),
            ),
            ("* * * * 7-2", r#"has "7-2" for the day of the week, which runs backwards"#, "write Sun-Tue".to_owned()),
            (
                "5/15 * * * *",
                r#"has "5/15" for the minute, which has a step, but is no range"#,
                "write 5-59/15".to_owned(),
            ),
            (
                "*/0 * * * *",
                r#"has "*/0" for the minute, whose step cannot be used"#,
                "behind / write a whole number from 1 to 60".to_owned(),
            ),
            (
                "*/90 * * * *",
                r#"has "*/90" for the minute, whose step cannot be used"#,
                "behind / write a whole number from 1 to 60".to_owned(),
            ),
            ("* * 30 2 *", "names no day that any year has", "give a day that the month has".to_owned()),
            ("* * 31 4,6,9,11 *", "names no day that any year has", "give a day that the month has".to_owned()),
            ("* * 30,31 Feb */2", "names no day that any year has", "give a day that the month has".to_owned()),
        ] {
            let help = CronError { why: why.to_owned(), help };
            assert_eq!(Times::parse(written), Err(help), "{written}");
        }
    }

    #[test]
    fn a_day_of_the_month_and_one_of_the_week_are_either_enough() {
        let date = |day| NaiveDate::from_ymd_opt(2026, 3, day).unwrap();
        let days = |written: &str| {
            let times = Times::parse(written).unwrap();
            (1..=31).filter(|&day| times.day(date(day))).collect::<Vec<_>>()
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
}
