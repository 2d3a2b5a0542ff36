//! Windows through whatever clocks do.

use chrono::DateTime;
use proptest::prelude::*;

use super::*;

fn at(utc: &str) -> Millis {
    Millis(DateTime::parse_from_rfc3339(utc).unwrap_or_else(|error| panic!("{utc}: {error}")).timestamp_millis())
}

fn window(written: &str, zone: &str) -> Window {
    Window::parse(written, Zone::named(zone).unwrap()).unwrap()
}

fn shown(at: Option<Millis>) -> String {
    at.map_or("never".to_owned(), |at| crate::event::rfc3339(at).unwrap())
}

#[test]
fn a_window_is_open_by_the_clocks_of_its_zone() {
    for (written, zone, moment, open) in [
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-27T18:59:59.999Z", true),
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-27T19:00:00Z", false),
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-27T07:00:00Z", true),
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-27T06:59:59.999Z", false),
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-28T12:00:00Z", false),
        ("* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-07-24T06:00:00Z", true),
        ("* 8-19 * * 1-5", "UTC", "2026-11-30T08:00:00Z", true),
        ("* * * * 0", "UTC", "2026-11-29T00:00:00Z", true),
        ("* * * * 7", "UTC", "2026-11-29T23:59:59Z", true),
        ("* * * * 1", "UTC", "2026-11-29T12:00:00Z", false),
        // It is Monday in Auckland already, and still Sunday in Honolulu.
        ("* * * * Mon", "Pacific/Auckland", "2026-11-29T12:00:00Z", true),
        ("* * * * Mon", "Pacific/Honolulu", "2026-11-30T09:59:00Z", false),
        // Zones of half and quarter hours.
        ("0-29 18 * * *", "Asia/Kolkata", "2026-11-29T12:30:00Z", true),
        ("0-29 18 * * *", "Asia/Kolkata", "2026-11-29T13:00:00Z", false),
        ("45 17 * * *", "Asia/Kathmandu", "2026-11-29T12:00:30Z", true),
        // Six fields: seconds first.
        ("10-19 * * * * *", "UTC", "2026-11-29T12:00:19.999Z", true),
        ("10-19 * * * * *", "UTC", "2026-11-29T12:00:20Z", false),
        // The first and the last that are known.
        ("* * * * *", "UTC", "1969-12-31T23:59:59.999Z", false),
        ("* * * * *", "UTC", "1970-01-01T00:00:00Z", true),
        ("* * * * *", "UTC", "2100-12-31T23:59:59.999Z", true),
        ("* * * * *", "UTC", "2101-01-01T00:00:00Z", false),
    ] {
        assert_eq!(window(written, zone).is_open(at(moment)), open, "{written} {zone} {moment}");
    }
}

#[test]
fn openings_are_found_through_every_change_of_the_clocks() {
    for (what, written, zone, after, opens) in [
        ("the same minute", "* * * * *", "UTC", "2026-01-01T00:00:00.500Z", "2026-01-01T00:00:01.000Z"),
        ("the end of a year", "* 8 1 1 *", "UTC", "2026-01-01T09:00:00Z", "2027-01-01T08:00:00.000Z"),
        ("the next leap day", "* * 29 2 *", "UTC", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00.000Z"),
        ("no leap day in 2100", "* * 29 2 *", "UTC", "2096-03-01T00:00:00Z", "never"),
        ("a rare leap day", "* * 29 2 */6", "UTC", "2076-03-01T00:00:00Z", "2088-02-29T00:00:00.000Z"),
        ("the first of all", "* * * * *", "UTC", "1492-10-12T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("none after 2100", "* * * * *", "UTC", "2100-12-31T23:59:59Z", "never"),
        ("over a weekend", "* 8-19 * * Mon-Fri", "Europe/Berlin", "2026-11-27T19:00:00Z", "2026-11-30T07:00:00.000Z"),
        // Berlin, 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC.
        ("before the gap", "* 3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00.000Z"),
        ("in the gap", "30 2 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-30T00:30:00.000Z"),
        ("begins in the gap", "30-59 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00.000Z"),
        ("the day after", "0 0 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T22:00:00.000Z"),
        ("that day alone", "* 2 29 3 *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2027-03-29T00:00:00.000Z"),
        ("the day of the gap", "* * * * Sun", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-28T23:00:00.000Z"),
        // Berlin, 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC, so 02:30 comes at 00:30 and at 01:30 UTC.
        ("the first time", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00.000Z"),
        ("once more", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:31:00Z", "2026-10-25T01:30:00.000Z"),
        ("no third time", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:31:00Z", "2026-10-26T01:30:00.000Z"),
        ("that day once more", "30 2 25 10 *", "Europe/Berlin", "2026-10-25T00:31:00Z", "2026-10-25T01:30:00.000Z"),
        ("after both", "0 3 * * *", "Europe/Berlin", "2026-10-25T00:15:00Z", "2026-10-25T02:00:00.000Z"),
        ("open all along", "* 2 * * *", "Europe/Berlin", "2026-10-25T00:59:59.999Z", "2026-10-25T01:00:00.000Z"),
        // New York, 8 March 2026 at 07:00 UTC, and 1 November 2026 at 06:00 UTC.
        ("the gap", "15 2 * * *", "America/New_York", "2026-03-08T06:00:00Z", "2026-03-09T06:15:00.000Z"),
        ("behind the gap", "0 3 * * *", "America/New_York", "2026-03-08T06:59:59Z", "2026-03-08T07:00:00.000Z"),
        ("the overlap", "15 1 * * *", "America/New_York", "2026-11-01T05:16:00Z", "2026-11-01T06:15:00.000Z"),
        ("behind it", "15 1 * * *", "America/New_York", "2026-11-01T06:16:00Z", "2026-11-02T06:15:00.000Z"),
        // Lord Howe goes back by half an hour: 02:00 becomes 01:30 on 5 April 2026 at 15:00 UTC the day before.
        ("half an hour back", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:46:00Z", "2026-04-04T15:15:00.000Z"),
        // Beirut goes back at midnight, so the last hour of the day comes twice (24 October 2026).
        ("yesterday again", "0 23 * * *", "Asia/Beirut", "2026-10-24T20:01:00Z", "2026-10-24T21:00:00.000Z"),
        ("midnight comes late", "0 0 25 10 *", "Asia/Beirut", "2026-10-24T12:00:00Z", "2026-10-24T22:00:00.000Z"),
        // Cairo goes forward at midnight: that day begins at 01:00 (24 April 2026).
        ("no midnight", "* * 24 4 *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00.000Z"),
        ("no first hour", "* 0 24 4 *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2027-04-23T22:00:00.000Z"),
        // Samoa left out the whole 30 December 2011.
        ("a day that never was", "* * 30 12 *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2012-12-29T10:00:00.000Z"),
        ("no summer time", "0 2 * * *", "Asia/Tokyo", "2026-03-28T17:01:00Z", "2026-03-29T17:00:00.000Z"),
    ] {
        assert_eq!(
            shown(window(written, zone).opens_after(at(after))),
            opens,
            "{what}: {written} {zone} after {after}"
        );
    }
}

#[test]
fn a_schedule_names_few_minutes_of_an_hour() {
    for (written, minutes) in [
        ("0 9 * * *", None),
        ("*/5 9 * * *", None),
        ("* 0 9 * * *", None),
        ("*/4 * * * *", Some("15")),
        ("* 9 * * *", Some("60")),
        ("0 * 9 * * *", Some("60")),
    ] {
        let why = window(written, "UTC").names_too_many().map(|error| error.why);
        assert_eq!(why, minutes.map(|minutes| format!("names {minutes} minutes an hour")), "{written}");
    }
}

#[test]
fn looking_for_an_opening_always_ends() {
    let rarest = window("* * 29 2 */6", "UTC");
    for moment in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
        // Beyond the calendar there is nothing to be found; what matters is that it comes back.
        assert!(rarest.opens_after(Millis(moment)).is_none_or(|opens| opens.0 > moment));
        assert!(!rarest.is_open(Millis(moment)), "{moment}");
    }
    // A day with two conditions that rarely meet, far from where the search begins.
    assert_eq!(
        shown(window("* * 29 2 */6", "Europe/Berlin").opens_after(at("2048-03-01T00:00:00Z"))),
        "2060-02-28T23:00:00.000Z"
    );
}

#[test]
fn a_window_is_shown_as_it_was_written() {
    assert_eq!(window("* 8-19 * * Mon-Fri", "Europe/Berlin").to_string(), "* 8-19 * * Mon-Fri (Europe/Berlin)");
}

/// Moments within a day of changes of the clocks, and elsewhere.
fn moments() -> impl Strategy<Value = i64> {
    let changes = ["2026-03-08T07:00:00Z", "2026-03-29T01:00:00Z", "2026-04-04T15:00:00Z", "2026-10-24T21:00:00Z"];
    let near = prop::sample::select(changes.map(|change| at(change).0).to_vec());
    let apart = -24 * 3_600_000_i64..24 * 3_600_000;
    prop_oneof![(near, apart).prop_map(|(near, apart)| near + apart), 0..4_000_000_000_000_i64]
}

proptest! {
    #[test]
    fn nothing_is_open_before_the_opening_that_is_found(
        minute in prop::sample::select(vec!["*", "0", "30", "*/20", "45-59"]),
        hour in prop::sample::select(vec!["*", "0", "1", "2", "1-3", "23,0"]),
        day in prop::sample::select(vec!["*", "1", "8", "29", "1-8/7"]),
        weekday in prop::sample::select(vec!["*", "Sun", "1-5", "*/2"]),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"]),
        moment in moments(),
    ) {
        let window = window(&format!("{minute} {hour} {day} * {weekday}"), zone);
        let opens = window.opens_after(Millis(moment)).unwrap();
        prop_assert!(opens.0 > moment && window.is_open(opens));
        // Every minute in between for two days, which no opening of a minute can fit between.
        let before = (moment / 60_000 + 1..).map(|minute| minute * 60_000);
        for minute in before.take(2 * 1_440).take_while(|minute| *minute < opens.0) {
            prop_assert!(!window.is_open(Millis(minute)), "{}", shown(Some(Millis(minute))));
        }
    }
}
