//! Reads cron expressions and their time zones.

use super::{
    document::Value,
    field::Field,
    problem::{Problems, nearest},
};
use crate::rule::{CronError, Window, Zone};

/// The window that an expression names in this zone. `unlikely` says what is wrong with one that can be read, but that
/// hardly anybody means.
pub(super) fn window(
    field: Field<'_>,
    zone: Zone,
    unlikely: impl FnOnce(&Window) -> Option<CronError>,
    problems: &mut Problems,
) -> Option<Window> {
    let window = Window::parse(field.text(problems)?, zone);
    match window.and_then(|window| unlikely(&window).map_or(Ok(window), Err)) {
        Ok(window) => Some(window),
        Err(error) => {
            // The error shows parts of the text; those that a variable gave are not to be seen.
            let is_written = matches!(&field.node.value, Value::Text(text) if text.written.is_none());
            let (why, help) = match is_written {
                true => (error.why, error.help),
                false => (format!("cannot be used: {}", field.shown()), "give it in the form of crontab".to_owned()),
            };
            problems.add(field.at(), format!("{:?} {why}", field.key), help);
            None
        }
    }
}

/// The zone with this name; UTC without one.
pub(super) fn timezone(field: Option<Field<'_>>, problems: &mut Problems) -> Zone {
    field.and_then(|field| zone(field, problems)).unwrap_or(Zone::UTC)
}

fn zone(field: Field<'_>, problems: &mut Problems) -> Option<Zone> {
    let name = field.text(problems)?;
    let zone = Zone::named(name);
    if zone.is_none() {
        // `Berlin` is told of Europe/Berlin, as are `europe/berlin` and `Europe/Berln`.
        let city = |zone: &&str| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
        let help = match Zone::names().find(city).or_else(|| nearest(name, Zone::names())) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "write it as in the zone database: Europe/Berlin, America/New_York or UTC".to_owned(),
        };
        problems.add(field.at(), format!("unknown time zone {}", field.shown()), help);
    }
    zone
}
