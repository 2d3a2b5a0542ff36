//! The configuration, checked: what the rest of Sexton works with.
//!
//! `read` turns files and flags into it, or into every problem at once. Nothing is opened or connected here but the
//! configuration's own files.

mod certificate;
mod digest;
mod document;
mod env;
mod field;
mod file;
mod hook;
mod http;
mod matching;
mod origin;
mod problem;
mod read;
mod redis_url;
mod rules;
mod schedule;
mod secret;
mod shape;
mod source;
#[cfg(test)]
mod tests;
mod url;
mod value;

pub use env::{Env, ProcessEnv};
pub use file::{LARGEST_PEM, read_file};
pub use hook::DEFAULT_EVENTS;
pub use http::{UNNAMED_TOKEN, token_problem};
pub use problem::{Position, Problem, Problems, nearest_or_all};
pub use read::{ForRules, read, read_for_other_rules, read_for_rules, read_sources, read_text, read_without_rules};
pub use redis_url::{Host, RedisUrl, Via};
pub use rules::{RuleBook, RulesSource, RulesText};
pub use secret::{Secret, SecretError, SecretSource};
pub use source::DEFAULT_NAMESPACE;
pub use value::log_filter;

use std::{path::PathBuf, time::Duration};

use regex::Regex;

use crate::{
    alert::AlertRule,
    event::{EventType, Include},
    rule::{Matcher, Rules, Window},
};

/// Every key with its default and its meaning: a configuration that can be read as it stands. A line that begins with a
/// single `#` is a setting that is not given; prose begins with `##`.
pub const REFERENCE: &str = include_str!("reference.yaml");

/// The same for rules files.
pub const RULES_REFERENCE: &str = include_str!("rules.yaml");

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The watched DLQs; at least one, names unique.
    pub sources: Vec<SourceConfig>,
    /// Where events go; names unique.
    pub hooks: Vec<HookConfig>,
    /// The HTTP port.
    pub http: HttpConfig,
    /// How long a lease lasts without being renewed.
    pub lease_ttl: Duration,
    /// How often the leader looks at the DLQ.
    pub sample_every: Duration,
    /// What the outbox keeps.
    pub outbox: OutboxConfig,
    /// What a DLQ keeps.
    pub retention: RetentionConfig,
    /// Announce what is already in a DLQ at first attach one by one.
    pub announce_existing: bool,
    /// Where the rules are.
    pub rules_source: RulesSource,
    /// The rules as they were when the configuration was read; none where it was read without them.
    pub rules: Rules,
    /// The alert rules, as `rules`.
    pub alerts: Vec<AlertRule>,
    /// The summary that people want at certain times.
    pub digest: Option<DigestConfig>,
    /// Logging.
    pub log: LogConfig,
}

/// A summary at certain times.
#[derive(Clone, Debug)]
pub struct DigestConfig {
    /// When, by its own time zone.
    pub at: Window,
    /// Names of the hooks that get it; none for every hook that takes digests.
    pub hooks: Option<Vec<String>>,
}

/// One watched DLQ.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Its name in events, metrics and commands.
    pub name: String,
    /// What kind of source it is.
    pub kind: SourceKind,
}

/// The kinds of source.
#[derive(Clone, Debug)]
pub enum SourceKind {
    /// smallage on Redis Streams.
    Smallage(SmallageConfig),
}

/// A smallage namespace.
#[derive(Clone, Debug)]
pub struct SmallageConfig {
    /// A [`RedisUrl`], perhaps with user and password.
    pub url: SecretSource,
    /// smallage's namespace.
    pub namespace: String,
    /// User, overriding the URL's.
    pub username: Option<String>,
    /// Password, overriding the URL's; a file is read anew for every connection.
    pub password: Option<SecretSource>,
    /// Certificates, where the URL asks for TLS.
    pub tls: Option<TlsConfig>,
    /// What the Sentinels want of who asks them, where the URL names some.
    pub sentinel: Option<SentinelConfig>,
}

/// How to log in to Sentinels; what is not given is not sent.
#[derive(Clone, Debug, Default)]
pub struct SentinelConfig {
    /// User.
    pub username: Option<String>,
    /// Password; a file is read anew for every connection.
    pub password: Option<SecretSource>,
}

/// What TLS needs beyond the URL: PEM files, and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Authority to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Client certificate; goes with `key`.
    pub cert: Option<PathBuf>,
    /// Client key; goes with `cert`.
    pub key: Option<PathBuf>,
    /// The name that certificates must bear instead of the host's own.
    pub server_name: Option<String>,
}

/// One hook: where events go, which, and how.
#[derive(Clone, Debug)]
pub struct HookConfig {
    /// Its name in logs, metrics and the ledger.
    pub name: String,
    /// Where to. Carries secrets; never logged whole.
    pub url: SecretSource,
    /// The body's form.
    pub format: Format,
    /// Signing secrets, newest first; all sign.
    pub secrets: Vec<SecretSource>,
    /// The integration that PagerDuty is to ring; given for that form and for no other.
    pub routing_key: Option<SecretSource>,
    /// Globs on event names, as written.
    pub events: Vec<String>,
    /// Which dead letters it is told of.
    pub matcher: Matcher,
    /// Additional request headers; names and values checked.
    pub headers: Vec<(String, Secret)>,
    /// How many single events in a period; the rest is folded.
    pub rate: Rate,
    /// For one request, from connect to the end of the response.
    pub timeout: Duration,
    /// After this an event is given up.
    pub give_up_after: Duration,
    /// What leaves beyond the usual.
    pub include: Include,
    /// What is blanked out in every text that leaves.
    pub redact: Vec<Regex>,
    /// Changes whenever the hook's configuration changes: a hook switched off by 410 comes back with a new one.
    pub fingerprint: String,
}

/// The forms a hook's body can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Standard Webhooks.
    Standard,
    /// CloudEvents 1.0, structured mode.
    CloudEvents,
    /// flexiq's own body and signature.
    Flexiq,
    /// A Slack incoming webhook.
    Slack,
    /// PagerDuty's Events API v2.
    PagerDuty,
    /// Alertmanager's API v2.
    Alertmanager,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] =
        [Format::Standard, Format::CloudEvents, Format::Flexiq, Format::Slack, Format::PagerDuty, Format::Alertmanager];

    /// Whether an event of this kind can be said in it; what cannot is not sent. An incident is opened and closed: that a
    /// job was retried, or ran through, or entries were removed, does neither.
    pub fn takes(self, event: EventType) -> bool {
        match self {
            Format::Standard | Format::CloudEvents | Format::Flexiq | Format::Slack => true,
            Format::PagerDuty => {
                !matches!(event, EventType::JobRetried | EventType::JobRecovered | EventType::DlqPurged)
            }
            // An alert there is about something that is wrong now; a digest is not.
            Format::Alertmanager => !matches!(
                event,
                EventType::JobRetried | EventType::JobRecovered | EventType::DlqDigest | EventType::DlqPurged
            ),
        }
    }

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Standard => "standard",
            Format::CloudEvents => "cloudevents",
            Format::Flexiq => "flexiq",
            Format::Slack => "slack",
            Format::PagerDuty => "pagerduty",
            Format::Alertmanager => "alertmanager",
        }
    }
}

/// How many single events a hook gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Every one.
    Unlimited,
    /// At most `events` in each window of `per`.
    Limited {
        /// Single events in a window; at least 1.
        events: u32,
        /// The window's length: a second, a minute or an hour.
        per: Duration,
    },
}

/// What the outbox keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxConfig {
    /// Events in a lane at most.
    pub cap: u64,
    /// How long delivered events are kept for `sexton hooks resend`.
    pub keep: Duration,
}

/// What a DLQ keeps; what is beyond is removed, but for what is due, in flight or not read yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionConfig {
    /// No entry that died longer ago than this.
    pub max_age: Option<Duration>,
    /// No more entries than this; the oldest go first.
    pub max_entries: Option<u64>,
}

/// The HTTP port.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Address and port.
    pub listen: String,
    /// Who may change something or see a payload; names unique. Without any nobody may.
    pub tokens: Vec<TokenConfig>,
}

/// One token of the HTTP API.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// Its name in the audit log.
    pub name: String,
    /// The token; a file is looked at for every request, so that it may change.
    pub secret: SecretSource,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The lines' form.
    pub format: LogFormat,
    /// A `tracing` filter: a level, or directives such as `info,sexton::hook=debug`.
    pub level: String,
}

/// The forms of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}
