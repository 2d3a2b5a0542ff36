//! Text for people: record text made harmless, times, ages and counts.
//!
//! Whatever comes from a record or a store goes through [`line()`] or [`block`] before it is shown: a payload must not be
//! able to move the cursor, hide text, or turn its direction.

use std::borrow::Cow;

use crate::{
    event::rfc3339,
    letter::{Millis, is_harmful, written_out},
};

/// How the lines of a block are set off.
const INDENT: &str = "  ";
/// A tab in a block.
const TAB: &str = "    ";

/// Appends `text` with everything harmful written out. The one way of record text to a person.
fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        match written_out(c) {
            Some(written) => into.push_str(&written),
            None => into.push(c),
        }
    }
}

/// Record text as one harmless line.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    escape(&mut safe, text);
    Cow::Owned(safe)
}

/// As [`line()`], with `…` after `max` characters of the original.
pub(super) fn cut_line(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        None => line(text),
        Some((end, _)) => Cow::Owned(format!("{}…", line(&text[..end]))),
    }
}

/// Record text of several lines: its line breaks stay, everything else is made harmless, each line is indented and
/// ends with a line break.
pub(super) fn block(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 64);
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        safe.push_str(INDENT);
        for (n, part) in line.split('\t').enumerate() {
            if n > 0 {
                safe.push_str(TAB);
            }
            escape(&mut safe, part);
        }
        safe.push('\n');
    }
    safe
}

/// How long ago something was, in its largest useful unit; never negative (`0s` for a time to come).
pub(super) fn age(now: Millis, then: Millis) -> String {
    let seconds = now.0.saturating_sub(then.0).max(0) / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time with its age: `2026-11-29T17:12:50.488Z (12m ago)`.
pub(super) fn when(now: Millis, then: Millis) -> String {
    match rfc3339(then) {
        Some(time) if then <= now => format!("{time} ({} ago)", age(now, then)),
        Some(time) => format!("{time} (in the future)"),
        None => format!("{} ms since 1970, which no calendar holds", then.0),
    }
}

/// How far away a time is: `in 8m`, or `now` once it has come.
pub(super) fn until(now: Millis, then: Millis) -> String {
    // Up to a whole second, so that what is still to come is not `in 0s`.
    let rest = Millis(then.0.saturating_add(999));
    if then <= now { "now".to_owned() } else { format!("in {}", age(rest, now)) }
}

/// A time that may be still to come: `2026-11-29T17:12:50.488Z (in 8m)`, or as [`when`] has it.
pub(super) fn when_or_until(now: Millis, then: Millis) -> String {
    match rfc3339(then) {
        Some(time) if then > now => format!("{time} ({})", until(now, then)),
        _ => when(now, then),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 entry`, `2,000 entries`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        for (text, expected) in [
            ("plain text, ünïcode 日本 🙂", "plain text, ünïcode 日本 🙂"),
            ("", ""),
            ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
            ("a\rb\nc\td", "a\\rb\\nc\\td"),
            ("\0\x08\x7f", "\\x00\\x08\\x7f"),
            ("\u{9b}31m\u{85}", "\\x9b31m\\x85"),
            ("\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}", "\\u{202a}\\u{202b}\\u{202c}\\u{202d}\\u{202e}"),
            ("\u{2066}\u{2067}\u{2068}\u{2069}", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}"),
            ("\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}", "\\u{200b}\\u{200c}\\u{200d}\\u{2060}\\u{feff}"),
            ("\u{200e}\u{200f}\u{61c}", "\\u{200e}\\u{200f}\\u{61c}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            ("\u{ad}\u{e0041}", "\\xad\\u{e0041}"),
            (r"C:\temp", r"C:\temp"),
        ] {
            assert_eq!(line(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_block_keeps_its_lines_and_nothing_else() {
        for (text, expected) in [
            ("", "  \n"),
            ("one", "  one\n"),
            ("one\ntwo\n", "  one\n  two\n"),
            ("\tone\r\n\x1b[1mtwo", "      one\\r\n  \\x1b[1mtwo\n"),
            ("a\n\nb", "  a\n  \n  b\n"),
        ] {
            assert_eq!(block(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        for (text, max, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "abc…"), ("ääää", 2, "ää…"), ("\x1b\x1b\x1b", 1, "\\x1b…"), ("a", 0, "…")]
        {
            assert_eq!(cut_line(text, max), expected, "{text:?}");
        }
    }

    #[test]
    fn ages_are_short_and_never_negative() {
        for (now, then, expected) in [
            (10_000, 10_000, "0s"),
            (10_000, 10_999, "0s"),
            (119_999, 0, "119s"),
            (120_000, 0, "2m"),
            (7_199_999, 0, "119m"),
            (7_200_000, 0, "2h"),
            (172_799_999, 0, "47h"),
            (172_800_000, 0, "2d"),
            (i64::MAX, i64::MIN, "106751991167d"),
            (i64::MIN, i64::MAX, "0s"),
        ] {
            assert_eq!(age(Millis(now), Millis(then)), expected, "{now} {then}");
        }
        assert_eq!(when(Millis(61_000), Millis(0)), "1970-01-01T00:00:00.000Z (61s ago)");
        assert_eq!(when(Millis(0), Millis(1)), "1970-01-01T00:00:00.001Z (in the future)");
        assert_eq!(when(Millis(0), Millis(i64::MAX)), "9223372036854775807 ms since 1970, which no calendar holds");
    }

    #[test]
    fn what_is_still_to_come_is_never_now() {
        for (then, expected) in [
            (10_000, "now"),
            (9_000, "now"),
            (10_001, "in 1s"),
            (11_000, "in 1s"),
            (130_000, "in 2m"),
            (i64::MAX, "in 106751991167d"),
        ] {
            assert_eq!(until(Millis(10_000), Millis(then)), expected, "{then}");
        }
        assert_eq!(when_or_until(Millis(0), Millis(61_000)), "1970-01-01T00:01:01.000Z (in 61s)");
        assert_eq!(when_or_until(Millis(61_000), Millis(0)), "1970-01-01T00:00:00.000Z (61s ago)");
        assert!(when_or_until(Millis(0), Millis(i64::MAX)).ends_with("which no calendar holds"));
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        for (number, expected) in
            [(0, "0"), (12, "12"), (999, "999"), (1_000, "1,000"), (65_536, "65,536"), (1_234_567, "1,234,567")]
        {
            assert_eq!(count(number), expected);
        }
        assert_eq!(counted(1, "entry", "entries"), "1 entry");
        assert_eq!(counted(2_000, "entry", "entries"), "2,000 entries");
    }

    proptest! {
        #[test]
        fn no_text_whatever_gets_through_harmful(text in any::<String>()) {
            prop_assert!(!line(&text).chars().any(is_harmful));
            prop_assert!(!block(&text).chars().any(|c| c != '\n' && is_harmful(c)));
        }
    }
}
