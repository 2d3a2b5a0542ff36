//! One HTTP request to a hook, from event to outcome.
//!
//! Proxy variables are not obeyed and redirects not followed: where events go is said in the configuration alone.

use std::{error::Error as _, time::Duration};

use reqwest::{
    Method, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};

use super::{
    format::{self, Body},
    of_status,
    redact::Leaving,
    retry_after, sign,
};
use crate::{
    clock::monotonic,
    config::{Format, HookConfig, Secret, SecretError, SecretSource},
    delivery::{CONCURRENCY, Outcome},
    event::Event,
    letter::Millis,
};

/// Connections kept open to a receiver while nothing is sent.
const IDLE_CONNECTIONS: usize = CONCURRENCY;
/// How long a connection is kept open for.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often a quiet connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes of a response that are read.
const READ_AT_MOST: usize = 4_096;
/// How long a response is waited for once its status is known. Nothing depends on what it says.
const BODY_PATIENCE: Duration = Duration::from_secs(1);
/// Characters of a refusing response that an error shows.
const SHOWN: usize = 200;

/// A client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ClientError(String);

/// Sends events to one hook. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: SecretSource,
    format: Format,
    secrets: Vec<SecretSource>,
    headers: HeaderMap,
    timeout: Duration,
    leaving: Leaving,
}

/// What one request came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// What it means.
    pub outcome: Outcome,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What went wrong, without the URL or any secret.
    pub error: Option<String>,
    /// How long it took, from before the connection to the status.
    pub seconds: f64,
}

/// A request that could not be made.
enum Unsent {
    /// It may be possible later: a secret's file may be mended, a connection come about.
    Later(String),
    /// It never will be.
    Never(String),
}

impl From<SecretError> for Unsent {
    fn from(error: SecretError) -> Unsent {
        Unsent::Later(error.to_string())
    }
}

impl From<sign::SignError> for Unsent {
    fn from(error: sign::SignError) -> Unsent {
        Unsent::Later(error.to_string())
    }
}

impl Client {
    /// For a checked hook. Opens no connection.
    pub fn new(hook: &HookConfig) -> Result<Client, ClientError> {
        // An error only says that a provider is there already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("sexton/", env!("CARGO_PKG_VERSION")))
                .timeout(hook.timeout)
                .connect_timeout(hook.timeout)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .no_proxy()
                .http1_only()
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
                .pool_idle_timeout(IDLE_FOR)
                .tcp_keepalive(KEEPALIVE)
                .tcp_nodelay(true)
        };
        let http = builder().build().or_else(|error| {
            // A container without certificates is no reason not to reach a plain http:// receiver.
            tracing::warn!(hook = hook.name, error = chain(&error), "no trusted certificates; https will not work");
            builder().tls_certs_only([]).build()
        });
        let http = http.map_err(|error| ClientError(chain(&error)))?;
        Ok(Client {
            http,
            url: hook.url.clone(),
            format: hook.format,
            secrets: hook.secrets.clone(),
            headers: headers(&hook.headers)?,
            timeout: hook.timeout,
            leaving: Leaving::new(hook),
        })
    }

    /// What of an event this hook may see.
    pub fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    /// The receiver's host and port, for logs: nothing else of the URL is anybody's business. `None` while it cannot be
    /// read.
    pub fn endpoint(&self) -> Option<String> {
        let url = self.address().ok()?;
        Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
    }

    fn address(&self) -> Result<Url, Unsent> {
        self.url.read()?.reveal().parse().map_err(|_| Unsent::Later("the hook's url is none".to_owned()))
    }

    /// Makes one request. `now` is the store's time; it is signed. Never longer than the hook's timeout.
    pub async fn send(&self, event: &Event, now: Millis) -> Sent {
        let started = monotonic();
        let sent = |outcome, status, error| Sent {
            outcome,
            status,
            error,
            seconds: monotonic().duration_since(started).as_secs_f64(),
        };
        let (request, url) = match self.request(event, now) {
            Ok(request) => request,
            Err(Unsent::Later(error)) => return sent(Outcome::Retry { after: None }, None, Some(error)),
            Err(Unsent::Never(error)) => return sent(Outcome::Rejected, None, Some(error)),
        };
        let response = match self.http.execute(request).await {
            Ok(response) => response,
            Err(error) => return sent(Outcome::Retry { after: None }, None, Some(transport(error))),
        };
        let status = response.status();
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let outcome = of_status(status.as_u16(), after.and_then(|value| retry_after(value, now)));
        let mut sent = sent(outcome, Some(status.as_u16()), None);
        let left = self.timeout.saturating_sub(monotonic().duration_since(started));
        let said = read(response, left.min(BODY_PATIENCE)).await;
        if outcome != Outcome::Delivered {
            sent.error = Some(refusal(status.as_u16(), status.canonical_reason(), &said, &url));
        }
        sent
    }

    fn request(&self, event: &Event, now: Millis) -> Result<(reqwest::Request, Url), Unsent> {
        let url = self.address()?;
        let Body { bytes, content_type } = format::body(self.format, &self.leaving.event(event));
        let seconds = now.0.div_euclid(1_000);
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let mut set = |name: &'static str, value: &str| match HeaderValue::from_str(value) {
            Ok(value) => {
                headers.insert(HeaderName::from_static(name), value);
                Ok(())
            }
            Err(_) => Err(Unsent::Never(format!("the event's {name} cannot be a header"))),
        };
        // The id and the time go with every form: a receiver that knows them can tell a repetition.
        set("webhook-id", &event.id)?;
        set("webhook-timestamp", &seconds.to_string())?;
        match self.format {
            Format::Standard | Format::CloudEvents => {
                let secrets = self.secrets.iter().map(SecretSource::read).collect::<Result<Vec<Secret>, _>>()?;
                if !secrets.is_empty() {
                    set("webhook-signature", &sign::standard(&secrets, &event.id, seconds, &bytes)?)?;
                }
            }
            Format::Flexiq => {
                if let Some(newest) = self.secrets.first() {
                    set("x-flexiq-signature", &sign::flexiq(&newest.read()?, &bytes)?)?;
                }
            }
            Format::Slack => {}
        }
        let request = self.http.request(Method::POST, url.clone()).headers(headers).body(bytes).build();
        request.map(|request| (request, url)).map_err(|error| Unsent::Later(transport(error)))
    }
}

fn headers(configured: &[(String, Secret)]) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let bad = || ClientError(format!("the header {name:?} is none"));
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
    }
    Ok(headers)
}

/// The first bytes of a response, as far as they come in time. An error or a lack of time ends it early, no more.
async fn read(mut response: Response, patience: Duration) -> Vec<u8> {
    let mut said = Vec::new();
    // Whoever reads nothing at all closes the connection; a short body read to its end keeps it for the next request.
    let _ = tokio::time::timeout(patience, async {
        while said.len() < READ_AT_MOST {
            match response.chunk().await {
                Ok(Some(chunk)) => said.extend_from_slice(&chunk[..chunk.len().min(READ_AT_MOST - said.len())]),
                Ok(None) | Err(_) => break,
            }
        }
    })
    .await;
    said
}

/// A refusal in one line: the status, and what the receiver says to it, unless it repeats the URL.
fn refusal(status: u16, reason: Option<&str>, said: &[u8], url: &Url) -> String {
    let mut text = String::from_utf8_lossy(said).into_owned();
    let query = url.query().unwrap_or_default();
    for part in [url.as_str(), url.path(), query, url.password().unwrap_or_default()] {
        if part.len() > 1 {
            text = text.replace(part, "***");
        }
    }
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let head = reason.map_or_else(|| status.to_string(), |reason| format!("{status} {reason}"));
    if line.is_empty() { head } else { format!("{head}: {line}") }
}

/// An error of the transport with its causes, without the URL.
fn transport(error: reqwest::Error) -> String {
    chain(&error.without_url())
}

fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_the_receivers_words_but_never_the_url() {
        let url: Url = "https://u:pa55word@hooks.example.test/services/T0/B0/secret?token=abc".parse().unwrap();
        for (said, expected) in [
            ("", "404 Not Found"),
            ("no_service", "404 Not Found: no_service"),
            ("a\r\n\tb\u{1b}[31m", "404 Not Found: a b[31m"),
            (
                "The URL /services/T0/B0/secret was not found, token=abc, pa55word",
                "404 Not Found: The URL *** was not found, ***, ***",
            ),
        ] {
            assert_eq!(refusal(404, Some("Not Found"), said.as_bytes(), &url), expected);
        }
        assert_eq!(refusal(599, None, "é".repeat(900).as_bytes(), &url), format!("599: {}", "é".repeat(SHOWN)));
    }
}
