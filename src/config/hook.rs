//! Reads `hooks:`.

use std::time::Duration;

use base64::Engine as _;
use globset::Glob;
use sha2::{Digest as _, Sha256};

use super::{
    Format, HookConfig, Rate, Secret, SecretSource,
    document::{Node, Value},
    field::{Field, Section},
    matching,
    origin::{self, Origin, Reading},
    problem::{Problems, nearest_or_all},
    shape,
    source::Names,
    url, value,
};
use crate::{
    event::{EventType, Include},
    letter::{Reason, hex},
    rule::Matcher,
};

/// Every event there is, later versions' included.
pub(super) const EVENTS: [&str; 9] = [
    "job.dead",
    "job.retried",
    "job.recovered",
    "job.exhausted",
    "dlq.digest",
    "dlq.purged",
    "alert.firing",
    "alert.resolved",
    "hook.test",
];
/// What a hook gets that does not say, as globs: the rest is sent on request.
pub const DEFAULT_EVENTS: [&str; 4] = ["job.dead", "job.exhausted", "alert.*", "dlq.*"];
/// Where PagerDuty takes events, outside its EU region.
const PAGERDUTY_URL: &str = "https://events.pagerduty.com/v2/enqueue";
const DEFAULT_RATE: Rate = Rate::Limited { events: 60, per: Duration::from_secs(60) };
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_TIMEOUT: Duration = Duration::from_secs(2 * 60);
const MAX_GIVE_UP_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Headers that Sexton or the HTTP client sets itself.
const RESERVED_HEADERS: [&str; 7] =
    ["content-type", "content-length", "host", "connection", "transfer-encoding", "x-flexiq-signature", "user-agent"];
/// Bytes of a Standard Webhooks secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The hooks; none if any of them cannot be read. `sources` are the names of all sources, where these are known.
pub(super) fn hooks(field: Field<'_>, sources: Option<&[String]>, reading: &mut Reading) -> Option<Vec<HookConfig>> {
    let items = field.list(&mut reading.problems)?;
    let mut names = Names::new("hook");
    let hooks: Vec<Option<HookConfig>> =
        items.into_iter().map(|item| hook(item, &mut names, sources, reading)).collect();
    hooks.into_iter().collect()
}

/// A hook, as far as the rest of the configuration may name it.
#[derive(Clone, Debug)]
pub(super) struct KnownHook {
    pub(super) name: String,
    pub(super) format: Format,
    /// Globs on event names.
    pub(super) events: Vec<String>,
}

impl KnownHook {
    /// What there is to know of this one.
    pub(super) fn of(hook: &HookConfig) -> KnownHook {
        KnownHook { name: hook.name.clone(), format: hook.format, events: hook.events.clone() }
    }

    /// Whether it wants events of this kind, and its format can say them.
    pub(super) fn takes(&self, kind: EventType) -> bool {
        let wants = |glob: &String| Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(kind.as_str()));
        self.format.takes(kind) && self.events.iter().any(wants)
    }
}

/// The names of hooks that are to be told of something with events of this kind. `hooks` are all there are, where these
/// are known.
pub(super) fn named(
    field: Field<'_>,
    hooks: Option<&[KnownHook]>,
    kind: EventType,
    problems: &mut Problems,
) -> Vec<String> {
    let mut names = Vec::new();
    for field in field.one_or_more(problems) {
        let Some(name) = field.text(problems) else { continue };
        match hooks.map(|hooks| (hooks.iter().find(|hook| hook.name == name), hooks)) {
            Some((None, [])) => {
                let help = "define it under \"hooks\" in the configuration";
                problems.add(field.at(), format!("there is no hook {}", field.shown()), help);
            }
            Some((None, hooks)) => {
                let known: Vec<&str> = hooks.iter().map(|hook| hook.name.as_str()).collect();
                let message = format!("there is no hook {}", field.shown());
                problems.add(field.at(), message, nearest_or_all(name, &known, "hooks"));
            }
            Some((Some(hook), _)) if !hook.takes(kind) => {
                let message = format!("the hook {} takes no {}", field.shown(), kind.as_str());
                let help = if hook.format.takes(kind) {
                    "add that to the hook's events, or remove the hook here".to_owned()
                } else {
                    format!("the format {} has no such events: name another hook", hook.format.as_str())
                };
                problems.add(field.at(), message, help);
            }
            Some((Some(_), _)) | None => {}
        }
        names.push(name.to_owned());
    }
    names
}

fn hook(field: Field<'_>, names: &mut Names, sources: Option<&[String]>, reading: &mut Reading) -> Option<HookConfig> {
    let section = field.section(&shape::HOOK, &mut reading.problems)?;
    let name = names.take(&section, &mut reading.problems);
    let format = match section.get("format") {
        None => Some(Format::Standard),
        Some(field) => {
            let known = Format::ALL.map(|format| (format.as_str(), format));
            field.choice("formats", &known, &mut reading.problems)
        }
    };
    let url = hook_url(&section, format, reading);
    let secrets = secrets(&section, format, reading);
    let routing_key = routing_key(&section, format, reading);
    let problems = &mut reading.problems;
    let (timeout, give_up_after) = times(&section, problems);
    let matcher = section.get("match").and_then(|field| matching::matcher(field, sources, &Reason::NAMES, problems));
    Some(HookConfig {
        name: name?,
        url: url?,
        format: format?,
        secrets,
        routing_key,
        events: events(&section, format, problems),
        matcher: matcher.unwrap_or_else(Matcher::default),
        headers: section.get("headers").map(|field| headers(field, problems)).unwrap_or_default(),
        rate: section.get("rate").and_then(|field| rate(field, format, problems)).unwrap_or(DEFAULT_RATE),
        timeout,
        give_up_after,
        include: section.get("include").map(|field| include(field, problems)).unwrap_or_default(),
        redact: section.get("redact").map(|field| redact(field, problems)).unwrap_or_default(),
        fingerprint: fingerprint(field.node),
    })
}

fn hook_url(section: &Section<'_>, format: Option<Format>, reading: &mut Reading) -> Option<SecretSource> {
    if section.get("url").is_none() && section.get("url_file").is_none() {
        if format == Some(Format::PagerDuty) {
            return Some(SecretSource::Inline(Secret::new(PAGERDUTY_URL)));
        }
        reading.problems.add(section.at, "\"url\" is missing in a hook", "give \"url\" or \"url_file\"");
    }
    let url = origin::one(section, "url", "url_file", reading)?;
    if let Err(wrong) = url::http(url.now.reveal()) {
        reading.problems.add(url.field.at(), format!("this URL {}", wrong.why), wrong.help);
    }
    Some(url.source)
}

fn secrets(section: &Section<'_>, format: Option<Format>, reading: &mut Reading) -> Vec<SecretSource> {
    let given = section.get("secret").or(section.get("secret_file"));
    let instead = match format {
        Some(Format::Slack) => Some("a Slack webhook's URL is its secret"),
        Some(Format::PagerDuty) => Some("what PagerDuty asks for is \"routing_key\""),
        Some(Format::Alertmanager) => Some("what Alertmanager asks for is given with \"headers\""),
        Some(Format::Standard | Format::CloudEvents | Format::Flexiq) | None => None,
    };
    if let (Some(format), Some(instead), Some(field)) = (format, instead, given) {
        let message = format!("{:?} is given, but nothing signs in the format {}", field.key, format.as_str());
        reading.problems.add(field.key_at, message, format!("remove it: {instead}"));
        return Vec::new();
    }
    let origins = origin::several(section, "secret", "secret_file", reading);
    if matches!(format, Some(Format::Standard | Format::CloudEvents)) {
        for origin in &origins {
            check_secret(origin, &mut reading.problems);
        }
    }
    origins.into_iter().map(|origin| origin.source).collect()
}

/// The routing key, which PagerDuty needs and nobody else has a use for.
fn routing_key(section: &Section<'_>, format: Option<Format>, reading: &mut Reading) -> Option<SecretSource> {
    let given = section.get("routing_key").or(section.get("routing_key_file"));
    match (format?, given) {
        (Format::PagerDuty, None) => {
            let help = "give \"routing_key\" or \"routing_key_file\": the key of an Events API v2 integration";
            reading.problems.add(section.at, "\"routing_key\" is missing in a hook of the format pagerduty", help);
            None
        }
        (Format::PagerDuty, Some(_)) => {
            let key = origin::one(section, "routing_key", "routing_key_file", reading)?;
            if !key.now.reveal().chars().all(|c| c.is_ascii_graphic()) {
                let message = format!("the routing key of {:?} holds a character that no such key has", key.field.key);
                reading.problems.add(key.field.at(), message, "copy it from the integration, without spaces around it");
            }
            Some(key.source)
        }
        (_, None) => None,
        (format, Some(field)) => {
            let message = format!("{:?} is given, but the format {} has none", field.key, format.as_str());
            reading.problems.add(field.key_at, message, "remove it, or give format: pagerduty");
            None
        }
    }
}

fn check_secret(origin: &Origin<'_>, problems: &mut Problems) {
    let text = origin.now.reveal();
    let key = text.strip_prefix("whsec_").unwrap_or(text);
    let why = match base64::engine::general_purpose::STANDARD.decode(key) {
        Err(_) => "is not base64".to_owned(),
        Ok(bytes) if !SECRET_BYTES.contains(&bytes.len()) => {
            let (min, max) = (SECRET_BYTES.start(), SECRET_BYTES.end());
            format!("has {} bytes instead of {min} to {max}", bytes.len())
        }
        Ok(_) => return,
    };
    let message = format!("the signing secret of {:?} {why}", origin.field.key);
    problems.add(origin.field.at(), message, "make one with: openssl rand -base64 32");
}

fn events(section: &Section<'_>, format: Option<Format>, problems: &mut Problems) -> Vec<String> {
    let Some(field) = section.get("events") else {
        return DEFAULT_EVENTS.map(str::to_owned).to_vec();
    };
    let (mut events, mut never_sent) = (Vec::new(), true);
    for field in field.one_or_more(problems) {
        let Some(glob) = matching::glob(field, problems) else { continue };
        let matcher = glob.compile_matcher();
        if !EVENTS.iter().any(|event| matcher.is_match(event)) {
            let message = format!("{} matches no event", field.shown());
            problems.add(field.at(), message, nearest_or_all(glob.glob(), &EVENTS, "events"));
            never_sent = false;
        }
        never_sent &= !sent_in(format).any(|event| matcher.is_match(event));
        events.push(glob.glob().to_owned());
    }
    // Names of later versions may stand beside those of this one; alone they make a hook that never rings.
    if !events.is_empty() && never_sent {
        let sent: Vec<&str> = sent_in(format).collect();
        let by = match format {
            Some(format) if sent.len() < EventType::ALL.len() => format!("in the format {}", format.as_str()),
            _ => "by this version".to_owned(),
        };
        let message = format!("none of these events is sent {by}");
        problems.add(field.at(), message, format!("it sends {}", sent.join(", ")));
    }
    events
}

/// The names of the events that are sent in this form.
fn sent_in(format: Option<Format>) -> impl Iterator<Item = &'static str> {
    let taken = move |event: &EventType| format.is_none_or(|format| format.takes(*event));
    EventType::ALL.into_iter().filter(taken).map(EventType::as_str)
}

fn times(section: &Section<'_>, problems: &mut Problems) -> (Duration, Duration) {
    let timeout = section
        .get("timeout")
        .and_then(|field| field.duration(MIN_TIMEOUT, MAX_TIMEOUT, problems))
        .unwrap_or(DEFAULT_TIMEOUT);
    let give_up_after = section
        .get("give_up_after")
        .and_then(|field| field.duration(timeout, MAX_GIVE_UP_AFTER, problems))
        .unwrap_or(DEFAULT_GIVE_UP_AFTER);
    (timeout, give_up_after)
}

fn headers(field: Field<'_>, problems: &mut Problems) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for (key, node) in field.entries("write each as Name: value", problems).unwrap_or_default() {
        let name = key.text.as_str();
        let lower = name.to_ascii_lowercase();
        if !value::is_header_name(name) {
            let message = format!("{} cannot be the name of a header", value::quoted(name));
            problems.add(key.at, message, "use letters, digits and -");
        } else if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("webhook-") {
            problems.add(key.at, format!("the header {name:?} is set by Sexton itself"), "remove it");
        } else if headers.iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
            problems.add(key.at, format!("the header {name:?} is given twice"), "keep one of them");
        }
        let field = Field { key: &key.text, key_at: key.at, node };
        let Some(text) = field.any_text(problems) else { continue };
        if !value::is_header_value(text) {
            let message = format!("the value of the header {name:?} holds a character that no header can");
            problems.add(field.at(), message, "use printable ASCII on one line");
        }
        headers.push((name.to_owned(), Secret::new(text)));
    }
    headers
}

fn rate(field: Field<'_>, format: Option<Format>, problems: &mut Problems) -> Option<Rate> {
    let rate = field.parsed("a rate", "write it like 10/s, 60/m, 1000/h or unlimited", problems, value::rate)?;
    let too_fast = match rate {
        Rate::Unlimited => true,
        Rate::Limited { events, per } => u64::from(events) > per.as_secs(),
    };
    if too_fast && format == Some(Format::Slack) {
        let message = format!("{} is more than a Slack webhook takes, which is one message a second", field.shown());
        problems.add(field.at(), message, "give rate: 60/m or less");
    }
    Some(rate)
}

fn include(field: Field<'_>, problems: &mut Problems) -> Include {
    let parts = [
        ("traceback", Include { traceback: true, ..Include::default() }),
        ("history", Include { history: true, ..Include::default() }),
        ("payload", Include { payload: true, ..Include::default() }),
    ];
    let items = field.list(problems).unwrap_or_default();
    items.into_iter().filter_map(|item| item.choice("parts", &parts, problems)).fold(Include::default(), Include::or)
}

fn redact(field: Field<'_>, problems: &mut Problems) -> Vec<regex::Regex> {
    let mut patterns = Vec::new();
    for item in field.list(problems).unwrap_or_default() {
        let Some(regex) = matching::regex(item, problems) else { continue };
        if regex.is_match("") {
            let help = "an expression for what must not leave, such as '\\b\\d{13,16}\\b'";
            problems.add(item.at(), "\"redact\" holds a regular expression that matches an empty text", help);
        }
        patterns.push(regex);
    }
    patterns
}

/// The same for the same values, however they are laid out and in whatever order the keys stand. Secrets count, but
/// cannot be read from it.
fn fingerprint(hook: &Node) -> String {
    let mut hash = Sha256::new();
    feed(hook, &mut hash);
    hex(&hash.finalize()[..8])
}

/// Every part is preceded by its kind and length, so that no two trees feed the same bytes.
fn feed(node: &Node, hash: &mut Sha256) {
    let mut head = |kind: u8, length: usize| {
        hash.update([kind]);
        hash.update(u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
    };
    match &node.value {
        Value::Nothing | Value::Broken => head(b'n', 0),
        Value::Text(text) => {
            head(b't', text.value.len());
            hash.update(&text.value);
        }
        Value::List(items) => {
            head(b'l', items.len());
            for item in items {
                feed(item, hash);
            }
        }
        Value::Map(entries) => {
            head(b'm', entries.len());
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
            for (key, node) in sorted {
                hash.update(u64::try_from(key.text.len()).unwrap_or(u64::MAX).to_be_bytes());
                hash.update(&key.text);
                feed(node, hash);
            }
        }
    }
}
