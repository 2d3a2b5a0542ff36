//! Reads a whole configuration: from a file, from a text, or from flags.
//!
//! Section by section, each in a function of its own; problems are gathered along the way.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Config, HttpConfig, LogConfig, LogFormat, OutboxConfig, RetentionConfig, RuleBook, RulesSource, SourceConfig,
    digest,
    document::{self, Node, Value},
    env::Env,
    field::{Field, Section},
    hook::{self, KnownHook},
    http,
    origin::Reading,
    problem::{Position, Problems},
    rules::Known,
    shape, source, value,
};
use crate::rule::Rules;

/// Bytes of a configuration at most.
const LARGEST_FILE: u64 = 1024 * 1024;
/// What the whole file is called in problems.
const WHOLE: &str = "the configuration";
/// Entries of a DLQ that a limit can be set at.
const MOST_ENTRIES: u64 = 1_000_000_000;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

impl Config {
    /// The configuration of `sexton run --smallage URL --namespace NS`: one source, named as its namespace, no hooks,
    /// and a default for everything else. Nothing is expanded in the URL.
    pub fn for_smallage(url: &str, namespace: &str) -> Result<Config, Problems> {
        source::of_flags(url, namespace).map(|source| Config::with_defaults(vec![source]))
    }

    fn with_defaults(sources: Vec<SourceConfig>) -> Config {
        Config {
            sources,
            hooks: Vec::new(),
            http: HttpConfig { listen: "0.0.0.0:9640".to_owned(), tokens: Vec::new() },
            lease_ttl: Duration::from_secs(10),
            sample_every: SAMPLE_EVERY,
            outbox: OutboxConfig { cap: 50_000, keep: DAY },
            retention: RetentionConfig::default(),
            announce_existing: false,
            rules_source: RulesSource::default(),
            rules: Rules::default(),
            alerts: Vec::new(),
            digest: None,
            log: LogConfig { format: LogFormat::Json, level: "info".to_owned() },
        }
    }
}

/// Whether to read the rules files, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Everything,
    AllButRules,
}

/// Reads the configuration in a file, and the rules files that it names. Relative paths in it begin in its folder.
pub fn read(path: &Path, env: &dyn Env) -> Result<Config, Problems> {
    read_part(path, |folder, name, text| read_in(folder, name, text, env, Part::Everything))
}

/// As [`read`], but does not look at rules files: for who has no use for rules, and must not fail where they are broken.
pub fn read_without_rules(path: &Path, env: &dyn Env) -> Result<Config, Problems> {
    read_part(path, |folder, name, text| read_in(folder, name, text, env, Part::AllButRules))
}

/// Reads nothing but the sources of the configuration in a file: for who only looks at a DLQ, and need not have the
/// secrets of hooks.
pub fn read_sources(path: &Path, env: &dyn Env) -> Result<Vec<SourceConfig>, Problems> {
    read_part(path, |folder, name, text| part_in(folder, name, text, env, &["sources"], sources))
}

/// What is read for who needs no hooks to say what the rules do.
#[derive(Clone, Debug)]
pub struct ForRules {
    /// The watched DLQs.
    pub sources: Vec<SourceConfig>,
    /// Where the rules are; they are not looked at yet.
    pub rules: RulesSource,
    /// How often the leader takes a sample.
    pub sample_every: Duration,
}

impl ForRules {
    /// With these files and folders as the rules, as a command line names them.
    pub fn by_flags<'p>(sources: Vec<SourceConfig>, rules: impl IntoIterator<Item = &'p Path>) -> ForRules {
        let known = Known { sources: Some(names(&sources)), ..Known::default() };
        ForRules { sources, rules: RulesSource::of_flags(rules, known), sample_every: SAMPLE_EVERY }
    }
}

/// As [`read_sources`], with where the rules are, and how often a sample is taken.
pub fn read_for_rules(path: &Path, env: &dyn Env) -> Result<ForRules, Problems> {
    for_rules(path, env, &["sources", "sample_every", "rules"], rules_source)
}

/// The same, but with these files and folders as the rules, as a command line names them. What the configuration says of
/// rules is not looked at.
pub fn read_for_other_rules<'p>(
    path: &Path,
    rules: impl IntoIterator<Item = &'p Path>,
    env: &dyn Env,
) -> Result<ForRules, Problems> {
    for_rules(path, env, &["sources", "sample_every"], |_, known, _| RulesSource::of_flags(rules, known))
}

fn for_rules(
    path: &Path,
    env: &dyn Env,
    keys: &'static [&'static str],
    rules: impl FnOnce(&Section<'_>, Known, &mut Reading) -> RulesSource,
) -> Result<ForRules, Problems> {
    let part = |section: &Section<'_>, reading: &mut Reading| {
        let sources = sources(section, reading);
        let sample_every = sample_every(section, &mut reading.problems);
        let known = Known { sources: sources.as_deref().map(names), hooks: None, sample_every };
        let rules = rules(section, known, reading);
        Some(ForRules { sources: sources?, rules, sample_every: sample_every? })
    };
    read_part(path, |folder, name, text| part_in(folder, name, text, env, keys, part))
}

fn read_part<T>(path: &Path, part: impl FnOnce(PathBuf, &str, &str) -> Result<T, Problems>) -> Result<T, Problems> {
    let name = path.display().to_string();
    let mut problems = Problems::new(name.clone());
    let bytes = match read_file(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let help = "name the file with -c, or start without one: --smallage URL";
            problems.add_whole(format!("cannot read the configuration: {error}"), help);
            return problems.none_or(None);
        }
    };
    match utf8(&bytes, &mut problems) {
        Some(text) => part(folder(path), &name, text),
        None => problems.none_or(None),
    }
}

/// The text of a file, or a problem that says where it is none.
pub(super) fn utf8<'b>(bytes: &'b [u8], problems: &mut Problems) -> Option<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            let at = Position {
                line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
                column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
            };
            problems.add(at, "this is not UTF-8", "save the file as UTF-8");
            None
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("it is larger than {LARGEST_FILE} bytes")));
    }
    Ok(bytes)
}

/// Reads the configuration in a text, as if it were in a file with this name.
pub fn read_text(name: &str, text: &str, env: &dyn Env) -> Result<Config, Problems> {
    read_in(folder(Path::new(name)), name, text, env, Part::Everything)
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

fn read_in(folder: PathBuf, name: &str, text: &str, env: &dyn Env, part: Part) -> Result<Config, Problems> {
    let mut reading = Reading { folder, problems: Problems::new(name) };
    let root = document::parse(text, env, None, &mut reading.problems);
    let mut config = something(root.as_deref(), &mut reading).and_then(|root| config(root, &mut reading));
    if let (Some(config), Part::Everything) = (&mut config, part) {
        let source = &config.rules_source;
        let RuleBook { rules, alerts } = source.read_into(&source.look(), env, &mut reading.problems);
        (config.rules, config.alerts) = (rules, alerts);
    }
    reading.problems.none_or(config)
}

/// Reads what stands under these keys, and what `part` makes of it.
fn part_in<T>(
    folder: PathBuf,
    name: &str,
    text: &str,
    env: &dyn Env,
    keys: &'static [&'static str],
    part: impl FnOnce(&Section<'_>, &mut Reading) -> Option<T>,
) -> Result<T, Problems> {
    let mut reading = Reading { folder, problems: Problems::new(name) };
    let root = document::parse(text, env, Some(keys), &mut reading.problems);
    let section = something(root.as_deref(), &mut reading)
        .and_then(|root| Field::root(WHOLE, root).section(&shape::ROOT, &mut reading.problems));
    let part = section.and_then(|section| part(&section, &mut reading));
    reading.problems.none_or(part)
}

/// The document, if there is anything in it.
fn something<'n>(root: Option<&'n Node>, reading: &mut Reading) -> Option<&'n Node> {
    match root {
        None | Some(Node { value: Value::Nothing, .. }) => {
            // Also after a problem that ended the reading: then that one stands for itself.
            if reading.problems.iter().next().is_none() {
                let help = "name at least one DLQ to watch under \"sources\"";
                reading.problems.add_whole("the configuration is empty", help);
            }
            None
        }
        root => root,
    }
}

fn sources(section: &Section<'_>, reading: &mut Reading) -> Option<Vec<SourceConfig>> {
    let field = section.need("sources", "name at least one DLQ to watch", &mut reading.problems)?;
    source::sources(field, reading)
}

/// Where the rules are; nowhere, if the configuration does not say.
fn rules_source(section: &Section<'_>, known: Known, reading: &mut Reading) -> RulesSource {
    section.get("rules").map(|field| RulesSource::of(field, known, reading)).unwrap_or_default()
}

fn names(sources: &[SourceConfig]) -> Vec<String> {
    sources.iter().map(|source| source.name.clone()).collect()
}

/// How often a sample is taken; none if that cannot be read.
fn sample_every(section: &Section<'_>, problems: &mut Problems) -> Option<Duration> {
    let (min, max) = (Duration::from_millis(100), Duration::from_secs(5 * 60));
    section.get("sample_every").map_or(Some(SAMPLE_EVERY), |field| field.duration(min, max, problems))
}

fn config(root: &Node, reading: &mut Reading) -> Option<Config> {
    let section = Field::root(WHOLE, root).section(&shape::ROOT, &mut reading.problems)?;
    let sources = sources(&section, reading);
    let names = sources.as_deref().map(names);
    let hooks = section.get("hooks").map_or(Some(Vec::new()), |field| hook::hooks(field, names.as_deref(), reading));
    let known_hooks = hooks.as_ref().map(|hooks| hooks.iter().map(KnownHook::of).collect::<Vec<_>>());
    let sample_every = sample_every(&section, &mut reading.problems);
    let digest =
        section.get("digest").and_then(|field| digest::digest(field, known_hooks.as_deref(), &mut reading.problems));
    let known = Known { sources: names, hooks: known_hooks, sample_every };
    let rules_source = rules_source(&section, known, reading);

    let mut config = Config {
        hooks: hooks.unwrap_or_default(),
        sample_every: sample_every.unwrap_or(SAMPLE_EVERY),
        rules_source,
        digest,
        ..Config::with_defaults(sources.unwrap_or_default())
    };
    if let Some(section) = section.get("http").and_then(|field| field.section(&shape::HTTP, &mut reading.problems)) {
        http::http(&section, &mut config.http, reading);
    }
    let problems = &mut reading.problems;
    if let Some(flag) = section.get("announce_existing").and_then(|field| field.flag(problems)) {
        config.announce_existing = flag;
    }
    if let Some(section) = section.get("lease").and_then(|field| field.section(&shape::LEASE, problems)) {
        lease(&section, &mut config, problems);
    }
    if let Some(section) = section.get("outbox").and_then(|field| field.section(&shape::OUTBOX, problems)) {
        outbox(&section, &mut config.outbox, problems);
    }
    if let Some(section) = section.get("log").and_then(|field| field.section(&shape::LOG, problems)) {
        log(&section, &mut config.log, problems);
    }
    if let Some(section) = section.get("retention").and_then(|field| field.section(&shape::RETENTION, problems)) {
        retention(&section, &mut config.retention, problems);
    }
    Some(config)
}

fn lease(section: &Section<'_>, config: &mut Config, problems: &mut Problems) {
    let (min, max) = (Duration::from_millis(500), Duration::from_secs(5 * 60));
    if let Some(ttl) = section.get("ttl").and_then(|field| field.duration(min, max, problems)) {
        config.lease_ttl = ttl;
    }
}

fn outbox(section: &Section<'_>, outbox: &mut OutboxConfig, problems: &mut Problems) {
    if let Some(cap) = section.get("cap").and_then(|field| field.number(100, 10_000_000, problems)) {
        outbox.cap = cap;
    }
    if let Some(keep) = section.get("keep").and_then(|field| field.duration(Duration::ZERO, 30 * DAY, problems)) {
        outbox.keep = keep;
    }
}

fn retention(section: &Section<'_>, retention: &mut RetentionConfig, problems: &mut Problems) {
    let (min, max) = (Duration::from_secs(60), 3650 * DAY);
    retention.max_age = section.get("max_age").and_then(|field| field.duration(min, max, problems));
    retention.max_entries = section.get("max_entries").and_then(|field| field.number(1, MOST_ENTRIES, problems));
}

fn log(section: &Section<'_>, log: &mut LogConfig, problems: &mut Problems) {
    let formats = [("json", LogFormat::Json), ("text", LogFormat::Text)];
    if let Some(format) = section.get("format").and_then(|field| field.choice("formats", &formats, problems)) {
        log.format = format;
    }
    let Some(field) = section.get("level") else { return };
    let Some(level) = field.text(problems) else { return };
    match value::log_filter(level) {
        Ok(()) => level.clone_into(&mut log.level),
        Err(help) => field.wrong("a log level", &help, problems),
    }
}
