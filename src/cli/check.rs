//! `sexton check`: are the configuration and its rules sound, and what do they say.

use clap::Args;

use super::{
    exit::Failure,
    hooks::{origin_of, rate_of},
    io::Io,
    source::SourceArgs,
    text::line,
};
use crate::{
    config::{Config, HookConfig, SourceConfig, SourceKind, duration},
    rule::{Action, RetryRule},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton check
  sexton check -c sexton.yaml

Prints every problem at once with file and line, and ends with 78; or one line for
each source, hook and rule, and ends with 0. Connects to nothing.";

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
    for rule in &config.rules.retry {
        writeln!(io.out, "{}", line(&rule_line(rule)))?;
    }
    if config.rules.is_empty() {
        writeln!(io.out, "no rules: nothing is retried")?;
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

fn rule_line(rule: &RetryRule) -> String {
    match &rule.action {
        Action::Leave => format!("rule {}: leaves what it matches", rule.name),
        Action::Retry(terms) => {
            let times = if terms.max_retries == 1 { "once".to_owned() } else { format!("{} times", terms.max_retries) };
            let window = terms.window.as_ref().map(|window| format!(", in {window}")).unwrap_or_default();
            format!("rule {}: retries after {}, at most {times}{window}", rule.name, duration(terms.min_age))
        }
    }
}
