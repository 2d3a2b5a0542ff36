//! One HTTP request to a hook, from event to outcome.
//!
//! Proxy variables are not obeyed and redirects not followed: where events go is said in the configuration alone.

use std::{
    error::Error as _,
    time::{Duration, Instant},
};

use reqwest::{
    Method, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};

use super::{
    answer::{Given, refusal},
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
    routing_key: Option<SecretSource>,
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
    /// What went wrong, without the URL, any secret, or anything of the event.
    pub error: Option<String>,
    /// How long it took, from before the connection to the status.
    pub seconds: f64,
}

impl Sent {
    fn since(started: Instant, outcome: Outcome, status: Option<u16>, error: Option<String>) -> Sent {
        Sent { outcome, status, error, seconds: monotonic().duration_since(started).as_secs_f64() }
    }

    fn unsent(unsent: Unsent, started: Instant) -> Sent {
        let (outcome, error) = match unsent {
            Unsent::Later(error) => (Outcome::Retry { after: None }, error),
            Unsent::Never(error) => (Outcome::Rejected, error),
        };
        Sent::since(started, outcome, None, Some(error))
    }
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
        let http = http(hook, |builder| builder)?;
        Ok(Client {
            http,
            url: hook.url.clone(),
            format: hook.format,
            secrets: hook.secrets.clone(),
            routing_key: hook.routing_key.clone(),
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

    /// True for an event that must not be sent at `now` any more: told that late, it would be wrong.
    pub fn has_lapsed(&self, event: &Event, now: Millis) -> bool {
        format::has_lapsed(self.format, event, now)
    }

    /// Makes one request, and for a test that would leave something open a second one that closes it. `now` is the
    /// store's time; it is signed. Neither takes longer than the hook's timeout.
    pub async fn send(&self, event: &Event, now: Millis) -> Sent {
        let started = monotonic();
        let event = self.leaving.event(event);
        let routing_key = match self.routing_key.as_ref().map(SecretSource::read).transpose() {
            Ok(key) => key,
            Err(error) => return Sent::unsent(error.into(), started),
        };
        let body = format::body(self.format, &event, routing_key.as_ref());
        let sent = self.post(&event.id, now, body).await;
        match format::closing(self.format, &event, routing_key.as_ref()) {
            Some(body) if sent.outcome == Outcome::Delivered => self.post(&event.id, now, body).await,
            _ => sent,
        }
    }

    async fn post(&self, id: &str, now: Millis, body: Body) -> Sent {
        let started = monotonic();
        let sent = |outcome, status, error| Sent::since(started, outcome, status, error);
        let (request, url) = match self.request(id, now, body) {
            Ok(request) => request,
            Err(unsent) => return Sent::unsent(unsent, started),
        };
        // Shares the body with the request: an answer is shown only if it repeats nothing of what was sent.
        let kept = request.try_clone();
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
            let refused = |said: &[u8], given| refusal(status.as_u16(), status.canonical_reason(), said, given);
            sent.error = Some(match &kept {
                Some(kept) => refused(&said, &self.given(&url, kept)),
                None => refused(&[], &Given::default()),
            });
        }
        sent
    }

    /// What was sent with this request, to the URL as it is configured.
    fn given<'a>(&self, url: &Url, request: &'a reqwest::Request) -> Given<'a> {
        let signing = self.secrets.iter().chain(&self.routing_key).filter_map(|secret| secret.read().ok());
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
        Given::new(url, request.headers(), signing.map(|secret| secret.reveal().to_owned()), body)
    }

    /// The request, and the URL as it is configured.
    fn request(&self, id: &str, now: Millis, body: Body) -> Result<(reqwest::Request, Url), Unsent> {
        let url = self.address()?;
        let Body { bytes, content_type } = body;
        let seconds = now.0.div_euclid(1_000);
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let mut set = |name: &'static str, value: &str| match HeaderValue::from_str(value) {
            Ok(mut value) => {
                value.set_sensitive(name.ends_with("signature"));
                headers.insert(HeaderName::from_static(name), value);
                Ok(())
            }
            Err(_) => Err(Unsent::Never(format!("the event's {name} cannot be a header"))),
        };
        // The id and the time go with every form: a receiver that knows them can tell a repetition.
        set("webhook-id", id)?;
        set("webhook-timestamp", &seconds.to_string())?;
        match self.format {
            Format::Standard | Format::CloudEvents => {
                let secrets = self.secrets.iter().map(SecretSource::read).collect::<Result<Vec<Secret>, _>>()?;
                if !secrets.is_empty() {
                    set("webhook-signature", &sign::standard(&secrets, id, seconds, &bytes)?)?;
                }
            }
            Format::Flexiq => {
                if let Some(newest) = self.secrets.first() {
                    set("x-flexiq-signature", &sign::flexiq(&newest.read()?, &bytes)?)?;
                }
            }
            Format::Slack | Format::PagerDuty | Format::Alertmanager => {}
        }
        let mut to = url.clone();
        if let (Some(path), "" | "/") = (format::path(self.format), url.path()) {
            to.set_path(path);
        }
        let request = self.http.request(Method::POST, to).headers(headers).body(bytes).build();
        request.map(|request| (request, url)).map_err(|error| Unsent::Later(transport(error)))
    }
}

/// What requests of a hook are sent with, after a last `change`.
pub(super) fn http(
    hook: &HookConfig,
    change: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, ClientError> {
    // An error only says that a provider is there already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        change(
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
                .tcp_nodelay(true),
        )
    };
    let http = builder().build().or_else(|error| {
        // A container without certificates is no reason not to reach a plain http:// receiver.
        tracing::warn!(hook = hook.name, error = chain(&error), "no trusted certificates; https will not work");
        builder().tls_certs_only([]).build()
    });
    http.map_err(|error| ClientError(chain(&error)))
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

/// An error of the transport with its causes, without the URL.
fn transport(error: reqwest::Error) -> String {
    chain(&error.without_url())
}

/// An error with its causes. It may hold the URL.
pub(super) fn chain(error: &reqwest::Error) -> String {
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
