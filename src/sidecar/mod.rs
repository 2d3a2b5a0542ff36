//! The sidecar: everything wired together, from a checked configuration to a clean stop.

mod rules;
mod source;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::rules::RulesWatch;
use crate::{
    clock::monotonic,
    config::{Config, SourceConfig},
    http::{self, Serving, Terms},
    metrics::Metrics,
    smallage,
    version::{VERSION, revision},
};

/// How long coming to rest may take in all, from being told to: less than the five seconds that a pod may have left for
/// it, with some to spare for a log that nobody reads. What the sources need at most is less. Answers under way on the
/// HTTP port have all of it.
const STOP_WITHIN: Duration = Duration::from_millis(3_700);

/// What a caller may want besides the configuration.
#[derive(Debug, Default)]
pub struct Options {
    /// Is told the address that the HTTP port is bound to.
    pub announce: Option<oneshot::Sender<SocketAddr>>,
}

/// Runs until `stop` is cancelled and everything has come to rest. An error means that Sexton could not start, or that
/// a part of it died; trouble with a store or a hook never is one.
pub async fn run(config: Config, options: Options, stop: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&config.http.listen)
        .await
        .with_context(|| format!("cannot listen on {} (http.listen, or --listen)", config.http.listen))?;
    let address = listener.local_addr().context("the listening socket has no address")?;
    if let Some(announce) = options.announce {
        // Nobody waiting for it is no trouble.
        let _ = announce.send(address);
    }
    let metrics = Arc::new(Metrics::new(
        &config.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
        &config.hooks.iter().map(|hook| hook.name.as_str()).collect::<Vec<_>>(),
    ));
    tracing::info!(
        version = VERSION,
        revision = revision(),
        %address,
        sources = config.sources.len(),
        hooks = config.hooks.len(),
        rules = config.rules.retry.len(),
        alerts = config.alerts.len(),
        "sexton is up"
    );

    if config.hooks.is_empty() {
        tracing::warn!("no hooks are configured: deaths are counted, but nobody is told");
    }

    let config = Arc::new(config);
    let holder = holder();
    let open = |source: &SourceConfig| smallage::open(source).with_context(|| format!("source {}", source.name));
    let ledgers = config.sources.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let rules = RulesWatch::new(&config, Arc::clone(&metrics));
    let asked = watch::Sender::new(());
    let terms = Terms::default();
    let serving = Serving {
        ledgers: ledgers.clone(),
        config: Arc::clone(&config),
        rules: rules.subscribe(),
        alerts: rules.subscribe_to_alerts(),
        holder: holder.clone(),
        asked: asked.clone(),
        terms: terms.clone(),
    };

    // The port closes last, so that probes and scrapes are answered while the rest comes to rest.
    let close_port = CancellationToken::new();
    let mut port = tokio::spawn(http::serve(listener, Arc::clone(&metrics), serving, close_port.clone()));

    let mut parts = JoinSet::new();
    let told =
        source::Told { rules: rules.subscribe(), alerts: rules.subscribe_to_alerts(), asked: asked.subscribe(), terms };
    for ledger in ledgers {
        let watch =
            source::Watch::new(ledger, Arc::clone(&config), told.clone(), Arc::clone(&metrics), &holder, stop.clone());
        parts.spawn(watch.run());
    }
    let until = stop.clone();
    parts.spawn(async move {
        rules.run(until).await;
        Ok(())
    });
    let (mut outcome, mut port_open, mut told_at) = (Ok(()), true, None);
    loop {
        tokio::select! {
            () = stop.cancelled(), if told_at.is_none() => told_at = Some(monotonic()),
            ended = parts.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let ended = ended.context("a source's watch, or that of the rules, died").and_then(|ended| ended);
                    if outcome.is_ok() && (ended.is_err() || !stop.is_cancelled()) {
                        outcome = ended.and_then(|()| bail!("a watch ended before it was told to"));
                        // One part gone means the whole goes, so that whoever supervises us starts it anew.
                        stop.cancel();
                    }
                }
            },
            ended = &mut port, if port_open => {
                port_open = false;
                if outcome.is_ok() {
                    outcome = ended.context("the HTTP server died").and_then(|()| bail!("the HTTP server ended early"));
                }
                stop.cancel();
            }
        }
    }
    close_port.cancel();
    if port_open {
        // A client that holds its connection open must not hold up the end.
        let left = STOP_WITHIN.saturating_sub(told_at.map_or(Duration::ZERO, |at| at.elapsed()));
        let _ = tokio::time::timeout(left, &mut port).await;
        port.abort();
    }
    tracing::info!("sexton has stopped");
    outcome
}

/// Who we are in a lease: host, process, and a random part, because a container's process is always number 1.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect();
    format!("{}/{}/{:08x}", if host.is_empty() { "sexton" } else { &host }, std::process::id(), fastrand::u32(..))
}
