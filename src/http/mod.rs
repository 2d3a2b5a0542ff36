//! The HTTP port: probes and metrics. The only owner of `axum`.

use std::sync::Arc;

use axum::{Router, extract::State, http::header, response::IntoResponse, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Serves until `stop` is cancelled.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: CancellationToken) {
    let routes = Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(metrics);
    let served = axum::serve(listener, routes).with_graceful_shutdown(async move { stop.cancelled().await }).await;
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP server has failed");
    }
}

/// The process turns, or this would not be answered.
async fn alive() -> &'static str {
    "ok\n"
}

/// Configured and serving. Not tied to a store or a hook: a sidecar's readiness is its pod's.
async fn ready() -> &'static str {
    "ok\n"
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}
