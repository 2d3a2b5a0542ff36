//! Times in a sentence.

use std::time::Duration;

use crate::{event::rfc3339, letter::Millis};

/// A time and how far it is away: `2026-11-29T17:12:50.488Z (in 4 minutes)`.
pub(super) fn moment(now: Millis, at: Millis) -> String {
    match rfc3339(at) {
        Some(time) => format!("{time} ({})", distance(now, at)),
        None => "a time that no calendar holds".to_owned(),
    }
}

/// `in 4 minutes`, `4 minutes ago`, `now`.
fn distance(now: Millis, at: Millis) -> String {
    let apart = at.0.saturating_sub(now.0);
    let rough = rough(apart.unsigned_abs().div_ceil(1_000));
    match apart {
        -999..=0 => "now".to_owned(),
        1.. => format!("in {rough}"),
        _ => format!("{rough} ago"),
    }
}

/// So many seconds, in the largest unit of which there are at least two.
fn rough(seconds: u64) -> String {
    match seconds {
        0..120 => counted(seconds, "second", "seconds"),
        120..7_200 => counted(seconds / 60, "minute", "minutes"),
        7_200..172_800 => counted(seconds / 3_600, "hour", "hours"),
        _ => counted(seconds / 86_400, "day", "days"),
    }
}

/// A duration as the rules write it: `10m`, `1h 30m`.
pub(super) fn written(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
        .to_string()
}

/// `1 retry`, `2 retries`.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_with_their_distance() {
        let now = Millis(1_795_972_370_488);
        for (apart, expected) in [
            (0, "2026-11-29T17:12:50.488Z (now)"),
            (-999, "2026-11-29T17:12:49.489Z (now)"),
            (1, "2026-11-29T17:12:50.489Z (in 1 second)"),
            (-1_000, "2026-11-29T17:12:49.488Z (1 second ago)"),
            (119_000, "2026-11-29T17:14:49.488Z (in 119 seconds)"),
            (120_000, "2026-11-29T17:14:50.488Z (in 2 minutes)"),
            (7_199_000, "2026-11-29T19:12:49.488Z (in 119 minutes)"),
            (-7_200_000, "2026-11-29T15:12:50.488Z (2 hours ago)"),
            (172_800_000, "2026-12-01T17:12:50.488Z (in 2 days)"),
            (i64::MAX, "a time that no calendar holds"),
        ] {
            assert_eq!(moment(now, Millis(now.0.saturating_add(apart))), expected, "{apart}");
        }
    }

    #[test]
    fn durations_and_counts_are_written_as_people_do() {
        assert_eq!(written(Duration::from_secs(600)), "10m");
        assert_eq!(written(Duration::from_micros(5_400_000_001)), "1h 30m");
        assert_eq!(counted(1, "retry", "retries"), "1 retry");
        assert_eq!(counted(0, "retry", "retries"), "0 retries");
    }
}
