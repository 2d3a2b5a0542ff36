//! Small values of their own form: names, rates, durations, log levels, and how a value is shown in a problem.
//!
//! Pure functions of texts.

use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::{Rate, document::Text, problem::nearest_or_all};

/// What a log level can be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Characters of a wrong value that are shown.
const SHOWN: usize = 40;

/// A wrong value as a problem may show it: short, on one line, and never a secret.
pub(super) fn shown(text: &Text) -> String {
    quoted(text.written.as_deref().unwrap_or(&text.value))
}

/// A text in quotes, cut where it is long; URLs are not shown, for they carry passwords and tokens.
pub(super) fn quoted(text: &str) -> String {
    if text.contains("://") {
        return "a URL".to_owned();
    }
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Characters of a source's, hook's or rule's name at most.
pub(super) const LONGEST_NAME: usize = 63;

/// Whether a source, a hook or a rule may have this name: it becomes part of keys and a metric label.
pub(super) fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
}

/// Whether a certificate can bear this name or address.
pub(super) fn is_host(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || !text.starts_with('[') && url::Host::parse(text).is_ok()
}

/// Whether smallage can have this namespace.
pub(super) fn is_namespace(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| matches!(c, '{' | '}' | ':') || c.is_control())
}

/// Reads `unlimited`, or a number of events in a second, a minute or an hour: `60/m`.
pub(super) fn rate(text: &str) -> Option<Rate> {
    if text == "unlimited" {
        return Some(Rate::Unlimited);
    }
    let (events, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    let events = events.trim().parse().ok().filter(|events| *events > 0)?;
    Some(Rate::Limited { events, per: Duration::from_secs(seconds) })
}

/// Checks a log filter; an error says what to write instead. The filter's own reader takes any unknown word for a module that logs everything, so a slip in
/// a level would open the floodgates; here a word alone must be a level.
pub fn log_filter(text: &str) -> Result<(), String> {
    for directive in text.split(',').map(str::trim) {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim();
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(nearest_or_all(level, &LEVELS, "levels"));
        }
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(()),
        Err(_) => Err("write a level, or directives such as info,sexton::hook=debug".to_owned()),
    }
}

/// Why a regular expression cannot be used, on one line.
pub(super) fn regex(pattern: &str) -> Result<regex::Regex, String> {
    if let Err(error) = regex_syntax::parse(pattern) {
        return Err(match error {
            regex_syntax::Error::Parse(error) => at_character(error.span(), error.kind()),
            regex_syntax::Error::Translate(error) => at_character(error.span(), error.kind()),
            _ => "it cannot be read".to_owned(),
        });
    }
    regex::Regex::new(pattern).map_err(|_| "it is too large".to_owned())
}

/// Whether this is an expression between slashes, perhaps with flags behind: `/time/i`. No slash stands in it bare.
pub(super) fn is_between_slashes(pattern: &str) -> bool {
    let Some((inner, flags)) = pattern.strip_prefix('/').and_then(|rest| rest.rsplit_once('/')) else { return false };
    let is_closed = !inner.ends_with('\\') && !inner.replace("\\/", "").contains('/');
    !inner.is_empty() && is_closed && flags.chars().all(|flag| "dgimsuvy".contains(flag))
}

fn at_character(span: &regex_syntax::ast::Span, kind: &dyn std::fmt::Display) -> String {
    if span.start.line > 1 {
        return format!("{kind} at its line {}, character {}", span.start.line, span.start.column);
    }
    format!("{kind} at its character {}", span.start.column)
}

/// Whether this can be the name of a request header.
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// Whether this can be the value of a request header.
pub(super) fn is_header_value(value: &str) -> bool {
    value.chars().all(|c| matches!(c, ' '..='~' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_keys_and_labels() {
        for (name, fits) in [
            ("orders", true),
            ("1", true),
            ("a-b_c9", true),
            ("", false),
            ("-a", false),
            ("_a", false),
            ("Orders", false),
            ("a.b", false),
            ("a b", false),
            ("a:b", false),
            ("ä", false),
        ] {
            assert_eq!(is_name(name), fits, "{name:?}");
        }
        assert!(is_name(&"a".repeat(63)) && !is_name(&"a".repeat(64)));
    }

    #[test]
    fn rates_are_a_number_a_slash_and_a_unit() {
        let limited = |events, seconds| Some(Rate::Limited { events, per: Duration::from_secs(seconds) });
        for (text, expected) in [
            ("60/m", limited(60, 60)),
            ("10 / s", limited(10, 1)),
            ("1000/h", limited(1000, 3600)),
            ("unlimited", Some(Rate::Unlimited)),
            ("0/m", None),
            ("-1/m", None),
            ("60", None),
            ("60/d", None),
            ("60/min", None),
            ("/m", None),
            ("5000000000/s", None),
            ("Unlimited", None),
        ] {
            assert_eq!(rate(text), expected, "{text:?}");
        }
    }

    #[test]
    fn log_filters_are_levels_and_directives() {
        for (text, good) in [
            ("info", true),
            ("WARN", true),
            ("info,sexton::hook=debug", true),
            ("info, redis=off", false),
            ("inof", false),
            ("sexton", false),
            ("sexton=verbose", false),
            ("info,", false),
            ("", false),
            ("a=b=info", false),
        ] {
            assert_eq!(log_filter(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn a_wrong_regular_expression_says_where_and_why() {
        for (pattern, problem) in [
            ("(timeout", "unclosed group at its character 1"),
            ("a{2,1}", "invalid repetition count range, the start must be <= the end at its character 2"),
            ("a\n(", "unclosed group at its line 2, character 1"),
            (r"(\w{1000}){1000}", "it is too large"),
        ] {
            assert_eq!(regex(pattern).unwrap_err(), problem, "{pattern}");
        }
        assert!(regex(r"(?i)timed? ?out|\b(429|50[234])\b").is_ok());
    }

    #[test]
    fn expressions_between_slashes_are_told_from_paths() {
        for (pattern, between) in [
            ("/timeout/i", true),
            ("/timed? ?out/", true),
            (r"/^https?:\/\/x/gi", true),
            ("/", false),
            ("//", false),
            ("/api/v1/", false),
            ("/orders/failed", false),
            (r"/a\/", false),
            ("[/]timeout[/]", false),
            ("(?i)/timeout/", false),
            ("a/b/", false),
        ] {
            assert_eq!(is_between_slashes(pattern), between, "{pattern}");
        }
    }

    #[test]
    fn wrong_values_are_shown_short_and_urls_not_at_all() {
        assert_eq!(quoted("fast"), "\"fast\"");
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"ü".repeat(41)), format!("\"{}\"…", "ü".repeat(40)));
        assert_eq!(quoted("redis://:hunter2@db"), "a URL");
        let text = Text { value: "hunter2".into(), written: Some("${PASSWORD}".into()) };
        assert_eq!(shown(&text), "\"${PASSWORD}\"");
    }
}
