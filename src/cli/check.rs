//! `sexton check`: are the configuration and its rules sound, and what do they say.

use clap::Args;

use super::{exit::Failure, io::Io, source::SourceArgs, text::line};
use crate::{
    alert::{AlertRule, Kind},
    clock::written,
    config::{Config, DigestConfig, HookConfig, SourceConfig, SourceKind},
    rule::{Action, RetryRule},
    triage::{origin_of, rate_of},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton check
  sexton check -c sexton.yaml

Prints every problem at once with file and line, and ends with 78; or one line for
each source, hook, rule and alert, and ends with 0. Connects to nothing.";

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
    for alert in &config.alerts {
        writeln!(io.out, "{}", line(&alert_line(alert)))?;
    }
    if config.alerts.is_empty() {
        writeln!(io.out, "no alerts: a rising line is seen by nobody")?;
    }
    if let Some(digest) = &config.digest {
        writeln!(io.out, "{}", line(&digest_line(digest)))?;
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
            format!("rule {}: retries after {}, at most {times}{window}", rule.name, written(terms.min_age))
        }
    }
}

fn alert_line(alert: &AlertRule) -> String {
    let some = |count: u64, one: &str, many: &str| if count == 1 { one.to_owned() } else { format!("{count} {many}") };
    let when = match &alert.kind {
        Kind::Rising(rising) => {
            let (over, growth) = (written(rising.over), rising.growth);
            format!("the line rises by {growth} within {over}, in {} of {} steps", rising.at_least, rising.buckets)
        }
        Kind::Burst(burst) => {
            format!("{} within {}", some(burst.deaths, "a job dies", "jobs die"), written(burst.over))
        }
        Kind::Waiting(waiting) => {
            let entries = some(waiting.entries, "an entry waits", "entries wait");
            format!("{entries} for more than {}", written(waiting.older_than))
        }
        Kind::NewGroup(new) => format!("a group dies that has not died for {}", written(new.quiet_for)),
    };
    let mut told = format!("alert {}: {} when {when}", alert.name, alert.severity.as_str());
    if !alert.by.is_empty() {
        let by: Vec<&str> = alert.by.iter().map(|key| key.as_str()).collect();
        told.push_str(&format!(", by {}", by.join(" and ")));
    }
    if !alert.for_.is_zero() {
        told.push_str(&format!(", for {}", written(alert.for_)));
    }
    if !alert.unless.is_empty() {
        told.push_str(&format!(", unless {}", alert.unless.join(" or ")));
    }
    told + &to(alert.hooks.as_deref())
}

fn digest_line(digest: &DigestConfig) -> String {
    format!("digest: at {}{}", digest.at, to(digest.hooks.as_deref()))
}

/// Which hooks are told, where not all are.
fn to(hooks: Option<&[String]>) -> String {
    hooks.map(|hooks| format!(", to {}", hooks.join(", "))).unwrap_or_default()
}
