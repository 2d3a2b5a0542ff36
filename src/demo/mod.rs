//! `sexton demo`: all of it on a private Redis, in less than a minute, leaving nothing behind.
//!
//! A worker that speaks smallage's protocol runs jobs, a dependency breaks, Sexton itself announces the deaths to a
//! receiver that verifies them. Not part of the sidecar; besides `smallage` the only place that speaks to Redis, because
//! it plays the worker.

pub mod job;
mod page;
mod receiver;
mod server;
mod story;
pub mod worker;

pub use page::Colours;

use std::{
    collections::{BTreeSet, HashMap},
    io::Write,
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use self::{
    job::{Dependencies, Policy},
    page::{Look, Page},
    receiver::Receiver,
    server::Server,
    story::{Story, Told},
    worker::Worker,
};
use crate::{config, sidecar};

/// The namespace the demonstration works in.
const NAMESPACE: &str = "demo";
/// Its one queue.
const QUEUE: &str = "default";
/// The name of its one source.
const SOURCE: &str = "orders";
/// The hook's rate: what exceeds it is folded.
const SINGLES_PER_SECOND: u32 = 5;
/// A real worker waits a second and more between attempts; a demonstration has less time.
const POLICY: Policy =
    Policy { max_attempts: 3, initial_backoff: Duration::from_millis(300), max_backoff: Duration::from_secs(5) };

/// What is a rising line where an hour lasts some seconds.
const RULES: &str = "\
alerts:
  - name: rising
    rising: { over: 6s, buckets: 6, at_least: 4, growth: 6 }
    severity: critical
    keep_firing_for: 3s
";

/// Runs the demonstration and tells it on `out`. Ends by itself; on SIGINT, SIGTERM, SIGHUP or an error it puts
/// everything away first. An error where something did not work, the counts at the end included.
pub async fn run(out: impl Write, colours: Colours) -> anyhow::Result<()> {
    let page = Page::new(out, colours);
    // From here on a signal does not end the process; what has been started is put away by what is below.
    let interrupted = interrupted()?;
    let server = Server::start().await?;
    let stop = CancellationToken::new();
    let ended = tokio::select! {
        ended = play(page, &server, &stop) => ended,
        name = interrupted => Err(anyhow::anyhow!("interrupted by {name}; everything is put away")),
    };
    stop.cancel();
    drop(server);
    ended
}

/// Sets the stage, plays, and clears up in order.
async fn play(mut page: Page<impl Write>, server: &Server, stop: &CancellationToken) -> anyhow::Result<()> {
    let client = redis::Client::open(server.url()).context("the private Redis has no valid address")?;
    let con = client.get_multiplexed_async_connection().await.context("the private Redis takes no connection")?;
    let secret = secret();
    let receiver = Receiver::start(&secret, stop.child_token()).await?;
    let dependencies = Dependencies::default();
    let worker = Worker::new(client, NAMESPACE, QUEUE, POLICY, dependencies.clone());
    let tally = worker.tally();
    let worker_stop = stop.child_token();
    let mut working = tokio::spawn(worker.run(worker_stop.clone()));

    let (announce, announced) = oneshot::channel();
    let options = sidecar::Options { announce: Some(announce) };
    let sexton_stop = stop.child_token();
    let rules = server.folder().join("rules.yaml");
    std::fs::write(&rules, RULES).with_context(|| format!("cannot write {}", rules.display()))?;
    let text = configuration(&server.url(), receiver.address, &rules);
    let env = HashMap::from([("ONCALL_SECRET".to_owned(), secret)]);
    let config = config::read_text("sexton.yaml", &text, &env).context("the demonstration's configuration is wrong")?;
    let mut watching = tokio::spawn(sidecar::run(config, options, sexton_stop.clone()));

    let Receiver { arrivals, task: receiving, .. } = receiver;
    let tale = async {
        let Ok(sexton) = announced.await else {
            // It has ended without listening; why, the other arm below says.
            return std::future::pending().await;
        };
        page.line(Look::Act, "A private Redis, a smallage worker, a receiver, and Sexton with this configuration:")?;
        page.block(Look::Faint, &text)?;
        page.line(Look::Act, "and these rules. In earnest one looks at minutes and hours: see rules/50-alerts.yaml")?;
        page.block(Look::Faint, RULES)?;
        let mut story = Story {
            page,
            con,
            dependencies,
            worker: tally,
            arrivals,
            sexton,
            told: Told::default(),
            firing: BTreeSet::new(),
        };
        story.tell().await
    };
    tokio::select! {
        told = tale => told?,
        ended = &mut watching => {
            ended.context("Sexton panicked")?.context("Sexton has ended")?;
            anyhow::bail!("Sexton has ended before it was told to");
        }
        ended = &mut working => {
            ended.context("the worker panicked")?.context("the worker has ended")?;
            anyhow::bail!("the worker has ended before it was told to");
        }
    }
    // First who writes, then who tells, then who is told.
    worker_stop.cancel();
    working.await.context("the worker panicked")?.context("the worker did not stop in order")?;
    sexton_stop.cancel();
    watching.await.context("Sexton panicked")?.context("Sexton did not stop in order")?;
    stop.cancel();
    receiving.await.context("the receiver panicked")?.context("the receiver did not stop in order")
}

/// The configuration, as a file has it. The secret is where it belongs: in a variable.
fn configuration(redis: &str, receiver: SocketAddr, rules: &Path) -> String {
    let rules = rules.display();
    format!(
        r#"sources:
  - name: {SOURCE}
    smallage: {{ url: "{redis}", namespace: {NAMESPACE} }}
hooks:
  - name: oncall
    url: http://{receiver}/
    secret: ${{ONCALL_SECRET}}
    rate: {SINGLES_PER_SECOND}/s
rules: ["{rules}"]
sample_every: 1s
http: {{ listen: "127.0.0.1:0" }}
"#
    )
}

/// A fresh signing secret.
fn secret() -> String {
    use base64::Engine as _;
    let key: Vec<u8> = (0..32).map(|_| fastrand::u8(..)).collect();
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(key))
}

/// Resolves with a signal's name when a person or the system wants the demonstration to end.
fn interrupted() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal).into_iter();
    let mut next = || signals.next().expect("three were asked for").context("cannot listen for signals");
    let (mut interrupt, mut terminate, mut hangup) = (next()?, next()?, next()?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hangup.recv() => "SIGHUP",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules.yaml");
        std::fs::write(&rules, RULES).unwrap();
        let receiver = SocketAddr::from(([127, 0, 0, 1], 4711));
        let text = configuration("unix:///tmp/sexton-demo-0/redis.sock", receiver, &rules);
        let env = HashMap::from([("ONCALL_SECRET".to_owned(), secret())]);
        let config = config::read_text("sexton.yaml", &text, &env).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!((config.sources.len(), config.hooks.len(), config.alerts.len()), (1, 1, 1));
    }
}
