//! The demonstration's receiver: takes webhooks on the loopback, verifies the signature, and passes them on.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use standardwebhooks::Webhook;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Events on their way to the story.
const WAITING: usize = 1_024;

/// One event that came in.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Its body; `null` if it is no JSON.
    pub(super) body: serde_json::Value,
    /// What is wrong with its signature, if anything.
    pub(super) complaint: Option<String>,
    /// It was here before under the same `webhook-id`: at least once means now and then twice.
    pub(super) again: bool,
}

/// A running receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What came in, in order.
    pub(super) arrivals: mpsc::Receiver<Arrival>,
    /// Ends when it is told to stop.
    pub(super) task: JoinHandle<std::io::Result<()>>,
}

struct Desk {
    webhook: Webhook,
    seen: Mutex<HashSet<String>>,
    arrivals: mpsc::Sender<Arrival>,
}

impl Receiver {
    /// Listens on a free port of the loopback. `secret` as in the hook's configuration.
    pub(super) async fn start(secret: &str, stop: CancellationToken) -> anyhow::Result<Receiver> {
        let webhook = Webhook::new(secret).context("the demonstration's secret is valid")?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on the loopback")?;
        let address = listener.local_addr().context("cannot listen on the loopback")?;
        let (sender, arrivals) = mpsc::channel(WAITING);
        let desk = Arc::new(Desk { webhook, seen: Mutex::default(), arrivals: sender });
        let router = Router::new().route("/", post(take)).with_state(desk);
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
        Ok(Receiver { address, arrivals, task: tokio::spawn(serving.into_future()) })
    }
}

/// Answers 204, or 401 where the signature is wrong, as any receiver ought to.
async fn take(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let complaint = desk.webhook.verify(&body, &headers).err().map(|error| error.to_string());
    let status = if complaint.is_none() { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED };
    let id = headers.get("webhook-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let known = id.is_some_and(|id| !desk.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id));
    let body = serde_json::from_slice(&body).unwrap_or_default();
    // Nobody listens any more once the story is over.
    let _ = desk.arrivals.send(Arrival { body, complaint, again: known }).await;
    status
}
