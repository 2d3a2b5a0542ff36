//! Checks of URLs, so far as that can be done without connecting; those of a Redis are in `redis_url`.
//!
//! URLs carry passwords and tokens: what is wrong is told without showing them.

use url::Url;

/// What is wrong with a URL, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// What is wrong, as the end of a sentence about the URL.
    pub(super) why: String,
    /// What to do.
    pub(super) help: String,
}

pub(super) fn wrong(why: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong { why: why.into(), help: help.into() }
}

const HTTP_FORMS: &str = "write https://HOST/PATH";

/// Checks the URL of an HTTP endpoint.
pub(super) fn http(text: &str) -> Result<(), Wrong> {
    match scheme(text, HTTP_FORMS)? {
        "http" | "https" => match parse(text, HTTP_FORMS)?.host_str() {
            None | Some("") => Err(wrong("names no host", HTTP_FORMS)),
            Some(_) => Ok(()),
        },
        other => Err(wrong(format!("has the scheme {other} instead of http or https"), HTTP_FORMS)),
    }
}

pub(super) fn scheme<'t>(text: &'t str, forms: &str) -> Result<&'t str, Wrong> {
    match text.split_once("://") {
        Some((scheme, _))
            if (1..=20).contains(&scheme.len())
                && scheme.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '+' | '-' | '.')) =>
        {
            Ok(scheme)
        }
        _ => Err(wrong("has no scheme, or an odd one", forms)),
    }
}

pub(super) fn parse(text: &str, forms: &str) -> Result<Url, Wrong> {
    Url::parse(text).map_err(|error| {
        let reserved = "and write characters such as / # ? @ in a user or password as %2F %23 %3F %40";
        wrong(format!("cannot be read: {error}"), format!("{forms}, {reserved}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_urls() {
        for (text, expected) in [
            ("https://alerts.example.com/in?x=1", Ok(())),
            ("http://127.0.0.1:8080", Ok(())),
            ("ftp://host", Err("has the scheme ftp instead of http or https")),
            ("https://", Err("cannot be read: empty host")),
            ("https://host:port", Err("cannot be read: invalid port number")),
            ("alerts.example.com", Err("has no scheme, or an odd one")),
            ("hunter2 ://x", Err("has no scheme, or an odd one")),
        ] {
            assert_eq!(
                http(text).as_ref().map_err(|wrong| wrong.why.as_str()),
                expected.as_ref().map_err(|w| *w),
                "{text}"
            );
        }
    }
}
