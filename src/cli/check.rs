//! `sexton check`: is the configuration sound, and what does it say.

use clap::Args;

use super::{
    exit::Failure,
    hooks::{origin_of, rate_of},
    io::Io,
    source::SourceArgs,
    text::line,
};
use crate::config::{Config, HookConfig, SourceConfig, SourceKind};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton check
  sexton check -c sexton.yaml

Prints every problem at once with file and line, and ends with 78; or one line for
each source and hook, and ends with 0. Connects to nothing.";

/// Arguments of `sexton check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
}

/// Says what was understood.
pub(super) fn check(config: &Config, io: &mut Io<'_>) -> Result<(), Failure> {
    for source in &config.sources {
        writeln!(io.out, "{}", line(&source_line(source)))?;
    }
    for hook in &config.hooks {
        writeln!(io.out, "{}", line(&hook_line(hook)))?;
    }
    if config.hooks.is_empty() {
        writeln!(io.out, "no hooks: deaths are counted, and nobody is told")?;
    }
    Ok(())
}

fn source_line(source: &SourceConfig) -> String {
    match &source.kind {
        SourceKind::Smallage(smallage) => {
            format!("source {}: smallage namespace {} at {}", source.name, smallage.namespace, origin_of(&smallage.url))
        }
    }
}

fn hook_line(hook: &HookConfig) -> String {
    let signed = match hook.secrets.len() {
        0 => "not signed".to_owned(),
        1 => "signed".to_owned(),
        secrets => format!("signed with {secrets} secrets"),
    };
    format!(
        "hook {}: {} to {}, {}, {}, {signed}",
        hook.name,
        hook.format.as_str(),
        origin_of(&hook.url),
        hook.events.join(", "),
        rate_of(hook.rate)
    )
}
