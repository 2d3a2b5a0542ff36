//! The HTTP port: probes, metrics and the API. The only owner of `axum` and `hyper`.

mod api;
mod terms;

pub use api::Serving;
pub use terms::Terms;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, header},
    middleware,
    response::IntoResponse,
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::metrics::Metrics;

/// Connections at the same time. Further ones wait; what is in flight must leave descriptors for Redis and the hooks.
const CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request, and how long a connection may stay quiet.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may last. Nothing here takes half as long to answer; only a client that does not read does.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);
/// The pause after a connection could not be accepted, as when descriptors are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What Prometheus, its agents and the others that scrape as it does send with every scrape.
const SCRAPES: &str = "x-prometheus-scrape-timeout-seconds";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
struct Client(IpAddr);

/// What a scrape needs.
#[derive(Clone)]
struct Scraped {
    metrics: Arc<Metrics>,
    terms: Terms,
}

/// Serves until `stop` is cancelled and the answers under way have been given.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, serving: Serving, stop: CancellationToken) {
    let (places, connections) = (Arc::new(Semaphore::new(CONNECTIONS)), TaskTracker::new());
    let routes = Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Scraped { metrics, terms: serving.terms.clone() })
        .merge(api::router(serving, Arc::clone(&places)))
        .method_not_allowed_fallback(api::other_method)
        .fallback(api::nowhere)
        .layer(middleware::from_fn(api::finish));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let routes = routes.clone().layer(Extension(Client(client.ip())));
                let connection = connection(stream, routes, stop.clone());
                connections.spawn(async move {
                    // A connection that breaks or takes too long is its client's affair.
                    let _ = tokio::time::timeout(LONGEST_CONNECTION, connection).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn connection(stream: TcpStream, routes: Router, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The process turns, or this would not be answered.
async fn alive() -> &'static str {
    "ok\n"
}

/// Configured and serving. Not tied to a store or a hook: a sidecar's readiness is its pod's.
async fn ready() -> &'static str {
    "ok\n"
}

/// Prometheus, and what scrapes like it, is told by its header from everybody else.
async fn scrape(
    State(Scraped { metrics, terms }): State<Scraped>,
    Extension(Client(address)): Extension<Client>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let text = if headers.contains_key(SCRAPES) {
        terms.mark_shown(&metrics).await;
        metrics.scrape(address)
    } else {
        metrics.render()
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
