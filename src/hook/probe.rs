//! Whether a receiver can be reached at all: its name, the connection, and TLS, in the very way in which events go, and
//! with nothing sent.

use std::{
    error::Error as _,
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tower_layer::Layer;
use tower_service::Service;
use url::Host;

use super::{
    client::{chain, http},
    flaw::{Flaw, io_kind},
};
use crate::config::HookConfig;

/// Why a receiver cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The URL cannot be read, or is none.
    Url(String),
    /// No address is known for this host.
    Name(String),
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    NoWay,
    /// Nothing comes back in time.
    Silent,
    /// It hangs up at once.
    HangsUp,
    /// TLS fails.
    Tls(Flaw),
    /// Something else, without the URL.
    Other(String),
}

/// Looks up the host of a hook's receiver, connects, and hangs up, all within `patience`. What is not asked of it: an
/// answer.
pub async fn reach(hook: &HookConfig, patience: Duration) -> Result<(), Unreached> {
    tokio::time::timeout(patience, connect(hook)).await.unwrap_or(Err(Unreached::Silent))
}

async fn connect(hook: &HookConfig) -> Result<(), Unreached> {
    let url = hook.url.read().map_err(|error| Unreached::Url(error.to_string()))?;
    let url: reqwest::Url = url.reveal().parse().map_err(|_| Unreached::Url("the hook's url is none".to_owned()))?;
    if let (Some(Host::Domain(host)), Some(port)) = (url.host(), url.port_or_known_default())
        && tokio::net::lookup_host((host, port)).await.is_err()
    {
        return Err(Unreached::Name(host.to_owned()));
    }
    let http =
        http(hook, |builder| builder.connector_layer(HangUp)).map_err(|error| Unreached::Other(error.to_string()))?;
    match http.head(url).send().await {
        // Nothing can have been sent, so nothing can have been answered.
        Ok(_) => Ok(()),
        Err(error) => sort(error),
    }
}

fn sort(error: reqwest::Error) -> Result<(), Unreached> {
    let error = error.without_url();
    let mut cause = error.source();
    while let Some(inner) = cause {
        if inner.is::<Connected>() {
            return Ok(());
        }
        cause = inner.source();
    }
    if let Some(flaw) = Flaw::of(&error) {
        return Err(Unreached::Tls(flaw));
    }
    Err(match io_kind(&error) {
        Some(io::ErrorKind::ConnectionRefused) => Unreached::Refused,
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => Unreached::NoWay,
        Some(io::ErrorKind::TimedOut) => Unreached::Silent,
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            Unreached::HangsUp
        }
        _ if error.is_timeout() => Unreached::Silent,
        _ => Unreached::Other(chain(&error)),
    })
}

/// Ends every connection once it stands, TLS included.
#[derive(Clone, Debug)]
struct HangUp;

impl<S> Layer<S> for HangUp {
    type Service = HangingUp<S>;

    fn layer(&self, inner: S) -> HangingUp<S> {
        HangingUp(inner)
    }
}

#[derive(Clone, Debug)]
struct HangingUp<S>(S);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<S, To> Service<To> for HangingUp<S>
where
    S: Service<To, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: To) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move {
            connecting.await?;
            Err(Connected.into())
        })
    }
}

/// That the connection stood is told as an error, so that no request follows.
#[derive(Debug)]
struct Connected;

impl fmt::Display for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connected, and that was all")
    }
}

impl std::error::Error for Connected {}
