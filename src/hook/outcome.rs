//! What an answer means: the one table of outcomes, and `Retry-After`.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};

use crate::{
    delivery::{LONGEST_WAIT, Outcome},
    letter::Millis,
};

/// The outcome of an HTTP status. What is no answer at all (no connection, a time-out before the status, something
/// that is not HTTP) is tried again, as a 503 is.
pub fn of_status(status: u16, after: Option<Duration>) -> Outcome {
    match status {
        200..=299 => Outcome::Delivered,
        // Time-out, too early, too many requests: the request is right, the moment is not.
        408 | 425 | 429 | 500..=599 => Outcome::Retry { after },
        410 => Outcome::SwitchedOff,
        // Redirects are not followed: whoever moved the receiver must change the hook.
        300..=499 => Outcome::Rejected,
        // Nothing HTTP knows; perhaps a proxy in a bad moment.
        _ => Outcome::Retry { after },
    }
}

/// Reads `Retry-After`: seconds, or a date in one of HTTP's three forms, which counts from `now`. Bounded by
/// [`LONGEST_WAIT`]; `None` if it says nothing readable.
pub fn retry_after(value: &str, now: Millis) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are as good as the bound.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(LONGEST_WAIT));
    }
    let wait = http_date(value)?.timestamp_millis().saturating_sub(now.0);
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)).min(LONGEST_WAIT))
}

fn http_date(value: &str) -> Option<DateTime<Utc>> {
    if let Ok(date) = DateTime::parse_from_rfc2822(value) {
        return Some(date.to_utc());
    }
    ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(value, form).ok())
        .map(|date| date.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_outcomes() {
        let retry = Outcome::Retry { after: None };
        for (statuses, outcome) in [
            (200..=299, Outcome::Delivered),
            (300..=399, Outcome::Rejected),
            (400..=407, Outcome::Rejected),
            (408..=408, retry),
            (409..=409, Outcome::Rejected),
            (410..=410, Outcome::SwitchedOff),
            (411..=424, Outcome::Rejected),
            (425..=425, retry),
            (426..=428, Outcome::Rejected),
            (429..=429, retry),
            (430..=499, Outcome::Rejected),
            (500..=599, retry),
            (600..=999, retry),
            (100..=199, retry),
        ] {
            for status in statuses {
                assert_eq!(of_status(status, None), outcome, "{status}");
            }
        }
        let after = Some(Duration::from_secs(3));
        assert_eq!(of_status(429, after), Outcome::Retry { after });
        assert_eq!(of_status(503, after), Outcome::Retry { after });
    }

    #[test]
    fn retry_after_is_read_in_every_form_and_bounded() {
        let now = Millis(784_111_770_000); // Sun, 06 Nov 1994 08:49:30 GMT
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("86400", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7)),
            ("Sun Nov  6 08:49:37 1994", Some(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Fri, 06 Nov 2093 08:49:37 GMT", Some(3600)),
            ("", None),
            ("soon", None),
            ("-5", None),
            ("1.5", None),
        ] {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }
}
