//! Checks of URLs, so far as that can be done without connecting.
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

fn wrong(why: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong { why: why.into(), help: help.into() }
}

const REDIS_FORMS: &str = "write redis://HOST:6379, rediss://HOST:6379 or unix:///PATH";
const HTTP_FORMS: &str = "write https://HOST/PATH";

/// Checks the URL of a Redis; gives whether it asks for TLS.
pub(super) fn redis(text: &str) -> Result<bool, Wrong> {
    let scheme = scheme(text, REDIS_FORMS)?;
    match scheme {
        "redis" | "rediss" => {
            let url = parse(text, REDIS_FORMS)?;
            match url.host_str() {
                None | Some("") => return Err(wrong("names no host", REDIS_FORMS)),
                Some("0.0.0.0" | "[::]") => {
                    return Err(wrong("names an address that nothing can connect to", "name the host itself"));
                }
                Some(_) => {}
            }
            let database = url.path().trim_matches('/');
            if !database.is_empty() && database.parse::<u32>().is_err() {
                return Err(wrong(
                    "has a path that is no database number",
                    "end it with the number: redis://HOST:6379/0",
                ));
            }
            if !matches!(url.fragment(), None | Some("insecure")) {
                return Err(wrong("has a fragment (#…) other than #insecure", "write # in a password as %23"));
            }
            Ok(scheme == "rediss")
        }
        "unix" | "redis+unix" => {
            let url = parse(text, REDIS_FORMS)?;
            let local = url.host_str().is_none_or(|host| host.is_empty() || host == "localhost");
            if !local || url.path().len() < 2 {
                return Err(wrong("names no absolute path", "write three slashes: unix:///run/redis.sock"));
            }
            Ok(false)
        }
        later if later.ends_with("+sentinel") || later.ends_with("+cluster") => Err(wrong(
            format!("has the scheme {later}, which is not available in this version"),
            "name one Redis: redis://HOST:6379",
        )),
        other => Err(wrong(format!("has the unknown scheme {other}"), REDIS_FORMS)),
    }
}

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

fn scheme<'t>(text: &'t str, forms: &str) -> Result<&'t str, Wrong> {
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

fn parse(text: &str, forms: &str) -> Result<Url, Wrong> {
    Url::parse(text).map_err(|error| {
        let reserved = "and write characters such as / # ? @ in a user or password as %2F %23 %3F %40";
        wrong(format!("cannot be read: {error}"), format!("{forms}, {reserved}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_urls() {
        for (text, expected) in [
            ("redis://localhost", Ok(false)),
            ("redis://user:p%23w@host:6380/3", Ok(false)),
            ("redis://[::1]:6379", Ok(false)),
            ("rediss://host:6379", Ok(true)),
            ("rediss://host:6379/#insecure", Ok(true)),
            ("redis://host?protocol=resp3", Ok(false)),
            ("unix:///run/redis.sock", Ok(false)),
            ("redis+unix:///run/redis.sock?db=1", Ok(false)),
            ("localhost:6379", Err("has no scheme, or an odd one")),
            ("redis:/localhost", Err("has no scheme, or an odd one")),
            ("redis://", Err("names no host")),
            ("redis:///0", Err("names no host")),
            ("redis://0.0.0.0", Err("names an address that nothing can connect to")),
            ("redis://host:99999", Err("cannot be read: invalid port number")),
            ("redis://host/db", Err("has a path that is no database number")),
            ("redis://host/0#x", Err("has a fragment (#…) other than #insecure")),
            ("unix://run/redis.sock", Err("names no absolute path")),
            ("unix:///", Err("names no absolute path")),
            ("http://host", Err("has the unknown scheme http")),
            ("redis+sentinel://host", Err("has the scheme redis+sentinel, which is not available in this version")),
            ("redis+cluster://host", Err("has the scheme redis+cluster, which is not available in this version")),
        ] {
            assert_eq!(
                redis(text).as_ref().map_err(|wrong| wrong.why.as_str()),
                expected.as_ref().map_err(|w| *w),
                "{text}"
            );
        }
    }

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
