//! `sexton run`: the sidecar, until a signal.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    exit::{Exit, Failure},
    logging::{self, parse_level},
    source::SourceArgs,
};
use crate::{config::Config, sidecar};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton run
  sexton run -c /etc/sexton/sexton.yaml --log-level debug
  sexton run --smallage redis://localhost:6379 --namespace lrs

Stops in order on SIGTERM, SIGINT or SIGHUP, and at once on a second one. A change of
the configuration needs a restart; rules files are read again when they change. A store
that cannot be reached does not end it: it waits and goes on by itself.";

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
pub(super) async fn run(mut config: Config, args: &RunArgs, color: bool) -> Result<(), Failure> {
    let _lines = logging::init(&config.log, args.log_level.as_deref(), color)?;
    config.announce_existing |= args.announce_existing;
    if let Some(listen) = args.listen {
        config.http.listen = listen.to_string();
    }
    let stop = CancellationToken::new();
    // Both are caught before anything is started: a signal that comes early still stops in order.
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    for kind in signals {
        let mut signals = signal(kind).map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")))?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.is_cancelled() {
                    tracing::warn!("told to stop again: stopping at once");
                    std::process::exit(Exit::Failed as i32);
                }
                tracing::info!("told to stop: finishing what is in flight");
                stop.cancel();
            }
        });
    }
    sidecar::run(config, sidecar::Options::default(), stop).await.map_err(|error| Failure::Failed(format!("{error:#}")))
}
