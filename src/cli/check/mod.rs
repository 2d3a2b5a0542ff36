//! `sexton check`: are the configuration and its rules sound, and what do they say.

mod connect;
mod finding;
mod hooks;

use std::sync::Arc;

use clap::Args;

use self::{
    connect::{Send, connect},
    finding::{About, Finding, Findings, UNDERSTOOD},
};
use super::{
    exit::Failure,
    io::{Form, Io},
    source::SourceArgs,
};
use crate::{
    alert::{AlertRule, Kind},
    clock::written,
    config::{Config, DigestConfig, HookConfig, SourceConfig, SourceKind},
    event::EventType,
    hook::Selection,
    ledger::{Level, SourceLedger},
    rule::{Action, RetryRule},
    triage::{origin_of, rate_of},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  sexton check
  sexton check -c sexton.yaml
  sexton check --connect
  sexton check --connect --no-send -o json

Prints every problem at once with file and line, and ends with 78; or one line for
each source, hook, rule and alert, and ends with 0. Connects to nothing.

With --connect it then tries everything from where it runs, and tells all that is
wrong: of each Redis whether it answers, its version, the rights that are missing,
what it evicts, whether it keeps what it is given, its clock; of each hook its DNS,
its TLS, and its answer. It writes nothing to any Redis. Every receiver gets one
hook.test event, as from `sexton hooks test`; in PagerDuty that opens an incident and
closes it at once. With --no-send receivers are only connected to.

It takes half a minute at most. Exit codes: 0 nothing is wrong (there may be
warnings), 69 a store cannot be used, 1 anything else is wrong, 78 the configuration.";

/// Arguments of `sexton check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Try everything from here: stores, rights on them, receivers. Each receiver gets a test event
    #[arg(long, help_heading = "Before the rollout")]
    pub(super) connect: bool,

    /// Only connect to receivers, and send them nothing
    #[arg(long, requires = "connect", help_heading = "Before the rollout")]
    no_send: bool,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Form::Table, help_heading = "Output")]
    output: Form,
}

/// Says what was understood, and with `--connect` what was found. `ledgers` are the sources, in order.
pub(super) async fn check(
    config: &Config,
    ledgers: &[Arc<dyn SourceLedger>],
    args: &CheckArgs,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let mut findings = Findings::new(args.output);
    for finding in understood(config).into_iter().chain(unheard(config)) {
        findings.add(finding, io)?;
    }
    if args.connect {
        let send = if args.no_send { Send::Nothing } else { Send::Tests };
        connect(config, ledgers, send, &mut findings, io).await?;
    }
    findings.end(io)
}

/// One finding for each thing that is configured, and for what is not and may have been forgotten.
fn understood(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |about, name: Option<&str>, said: String| found.push(Finding::ok(about, name, UNDERSTOOD, said));
    for source in &config.sources {
        add(About::Source, Some(&source.name), source_line(source));
    }
    for hook in &config.hooks {
        add(About::Hook, Some(&hook.name), hook_line(hook));
    }
    if config.hooks.is_empty() {
        add(About::Configuration, None, "no hooks: deaths are counted, and nobody is told".to_owned());
    }
    for rule in &config.rules.retry {
        add(About::Rule, Some(&rule.name), rule_line(rule));
    }
    if config.rules.is_empty() {
        add(About::Configuration, None, "no rules: nothing is retried".to_owned());
    }
    for alert in &config.alerts {
        add(About::Alert, Some(&alert.name), alert_line(alert));
    }
    if config.alerts.is_empty() {
        add(About::Configuration, None, "no alerts: a rising line is seen by nobody".to_owned());
    }
    if let Some(digest) = &config.digest {
        add(About::Digest, None, digest_line(digest));
    }
    found
}

/// Alert rules that nobody would hear of. One that names hooks names such as take alerts.
fn unheard(config: &Config) -> Option<Finding> {
    let heard = |hook: &HookConfig| Selection::new(hook).subscribed(EventType::AlertFiring);
    if config.alerts.is_empty() || config.hooks.iter().any(heard) {
        return None;
    }
    let message = "there are alert rules, and no hook takes alerts: they only show in metrics and in `sexton alerts`";
    let help = format!("have a hook take them: events: [\"{}\", …]", "alert.*");
    Some(Finding::ok(About::Configuration, None, "alerts", message).at(Level::Warning, help))
}

fn source_line(source: &SourceConfig) -> String {
    match &source.kind {
        SourceKind::Smallage(smallage) => {
            format!("smallage namespace {} at {}", smallage.namespace, origin_of(&smallage.url))
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
        "{} to {}, {}, {}, {signed}",
        hook.format.as_str(),
        origin_of(&hook.url),
        hook.events.join(", "),
        rate_of(hook.rate)
    )
}

fn rule_line(rule: &RetryRule) -> String {
    match &rule.action {
        Action::Leave => "leaves what it matches".to_owned(),
        Action::Retry(terms) => {
            let times = if terms.max_retries == 1 { "once".to_owned() } else { format!("{} times", terms.max_retries) };
            let window = terms.window.as_ref().map(|window| format!(", in {window}")).unwrap_or_default();
            format!("retries after {}, at most {times}{window}", written(terms.min_age))
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
    let mut told = format!("{} when {when}", alert.severity.as_str());
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
    format!("at {}{}", digest.at, to(digest.hooks.as_deref()))
}

/// Which hooks are told, where not all are.
fn to(hooks: Option<&[String]>) -> String {
    hooks.map(|hooks| format!(", to {}", hooks.join(", "))).unwrap_or_default()
}
