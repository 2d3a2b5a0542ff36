//! Where log lines go: stderr, as the configuration says.

use std::io::{self, IsTerminal as _};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt};

use super::exit::Failure;
use crate::config::{LogConfig, LogFormat, log_filter};

/// What the reading commands log with `-v`.
const VERBOSE: &str = "debug";

/// Lines that wait to be written, at most.
const WAITING_LINES: usize = 4_096;

/// For the sidecar. `level` overrides the configuration's. What is logged is written while the guard lives.
///
/// A log that nobody reads, or that cannot be written, must not hold up or end the sidecar: lines go through a thread of
/// their own, and those that find no room are dropped.
pub(super) fn init(config: &LogConfig, level: Option<&str>, color: bool) -> Result<WorkerGuard, Failure> {
    let directives = level.unwrap_or(&config.level);
    let filter = EnvFilter::try_new(directives)
        .map_err(|error| Failure::Config(format!("the log level {directives:?} cannot be read: {error}")))?;
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).finish(io::stderr());
    let lines = fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    // Logging that is set up already, as in a test that runs a command, stays as it is.
    let _ = match config.format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => lines.with_ansi(color && io::stderr().is_terminal()).try_init(),
    };
    Ok(guard)
}

/// For a reading command that was asked to tell what it does.
pub(super) fn init_verbose(color: bool) {
    let lines = fmt().with_env_filter(EnvFilter::new(VERBOSE)).with_writer(io::stderr).log_internal_errors(false);
    let _ = lines.with_ansi(color && io::stderr().is_terminal()).try_init();
}

/// Checks a `--log-level` while the command line is read, as `log.level` of a configuration is checked.
pub(super) fn parse_level(text: &str) -> Result<String, String> {
    log_filter(text).map(|()| text.to_owned())
}
