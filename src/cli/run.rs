//! `sexton run`: the sidecar, until a signal.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    exit::{Exit, Failure},
    logging::{self, parse_level},
    source::SourceArgs,
};
use crate::{clock::monotonic, config::Env, sidecar};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton run
  sexton run -c /etc/sexton/sexton.yaml --log-level debug
  sexton run --smallage redis://localhost:6379 --namespace lrs

Stops in order on SIGTERM, SIGINT or SIGHUP, within five seconds whatever hangs, and at
once on a second one. A change of the configuration needs a restart; rules files are
read again when they change. A store that cannot be reached does not end it: it waits
and goes on by itself.";

/// A signal that follows another within this is no second one: whoever signals a process and its group signals twice.
const SAME_SIGNAL: Duration = Duration::from_millis(250);

/// Arguments of `sexton run`.
#[derive(Args, Clone, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Overrides log.level of the configuration: a level, or directives such as info,sexton::hook=debug
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    log_level: Option<String>,

    /// Overrides http.listen of the configuration: IP address and port for /metrics, /livez and /readyz
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,

    /// Announce what is already in a DLQ at the first visit one by one, instead of in one dlq.digest
    #[arg(long)]
    announce_existing: bool,
}

/// Runs the sidecar.
pub(super) async fn run(args: &RunArgs, env: &dyn Env, color: bool) -> Result<(), Failure> {
    // Before anything else, so that a signal that comes early still stops in order: the kernel drops one that process
    // number 1, as which a container runs this, does not catch.
    let stop = stop_on_signals()?;
    let mut config = args.source.config(env)?;
    let _lines = logging::init(&config.log, args.log_level.as_deref(), color)?;
    config.announce_existing |= args.announce_existing;
    if let Some(listen) = args.listen {
        config.http.listen = listen.to_string();
    }
    sidecar::run(config, sidecar::Options::default(), stop).await.map_err(|error| Failure::Failed(format!("{error:#}")))
}

/// What is cancelled by the first signal that means to stop. A second one ends the process.
fn stop_on_signals() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let first: Arc<OnceLock<Instant>> = Arc::default();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")))?;
        let (stop, first) = (stop.clone(), Arc::clone(&first));
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let now = monotonic();
                if now.duration_since(*first.get_or_init(|| now)) > SAME_SIGNAL {
                    tracing::warn!("told to stop again: stopping at once");
                    std::process::exit(Exit::Failed as i32);
                }
                if !stop.is_cancelled() {
                    tracing::info!("told to stop: finishing what is in flight");
                    stop.cancel();
                }
            }
        });
    }
    Ok(stop)
}
