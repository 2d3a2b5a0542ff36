//! Times as events show them.

use chrono::{DateTime, SecondsFormat};

use crate::letter::Millis;

/// RFC 3339 in UTC with milliseconds (`2026-11-29T17:12:50.488Z`); `None` for a time no calendar holds.
pub fn rfc3339(at: Millis) -> Option<String> {
    let time = DateTime::from_timestamp_millis(at.0)?;
    (0..=9999).contains(&chrono::Datelike::year(&time)).then(|| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds_or_nothing() {
        for (millis, expected) in [
            (1_795_972_370_488, Some("2026-11-29T17:12:50.488Z")),
            (0, Some("1970-01-01T00:00:00.000Z")),
            (253_402_300_799_999, Some("9999-12-31T23:59:59.999Z")),
            (253_402_300_800_000, None),
            (i64::MAX, None),
            (i64::MIN, None),
        ] {
            assert_eq!(rfc3339(Millis(millis)).as_deref(), expected, "{millis}");
        }
    }
}
