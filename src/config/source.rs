//! Reads `sources:`.

use std::path::PathBuf;

use super::{
    RedisUrl, SentinelConfig, SmallageConfig, SourceConfig, SourceKind, TlsConfig, Via, certificate,
    field::{Field, Section},
    file::{LARGEST_PEM, read_file},
    origin::{self, Reading},
    problem::{Position, Problems},
    redis_url, shape, value,
};

/// The namespace where none is given: smallage's own default.
pub const DEFAULT_NAMESPACE: &str = "lrs";

/// Names that are taken, and where.
pub(super) struct Names {
    /// `source`, `hook`, `token`, `rule` or `alert rule`.
    what: &'static str,
    taken: Vec<Taken>,
}

struct Taken {
    name: String,
    file: String,
    at: Position,
}

impl Names {
    pub(super) fn new(what: &'static str) -> Names {
        Names { what, taken: Vec::new() }
    }

    /// Takes a name that is not given in any section.
    pub(super) fn reserve(&mut self, name: &str, at: Position, problems: &Problems) {
        self.taken.push(Taken { name: name.to_owned(), file: problems.file().to_owned(), at });
    }

    /// Those that are taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = &str> {
        self.taken.iter().map(|taken| taken.name.as_str())
    }

    /// Reads `name`, which must be of the right form and not taken yet.
    pub(super) fn take(&mut self, section: &Section<'_>, problems: &mut Problems) -> Option<String> {
        let what = self.what;
        let field = section.need("name", &format!("give the {what} a name"), problems)?;
        let help = "use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit";
        let name = field.parsed("a name", help, problems, |text| value::is_name(text).then(|| text.to_owned()))?;
        if let Some(taken) = self.taken.iter().find(|taken| taken.name == name) {
            let place = if taken.file == problems.file() { String::new() } else { format!(" of {}", taken.file) };
            let message = format!("the name {name:?} is taken by the {what} in line {}{place}", taken.at.line);
            problems.add(field.at(), message, "give every one a name of its own");
            return None;
        }
        self.taken.push(Taken { name: name.clone(), file: problems.file().to_owned(), at: field.at() });
        Some(name)
    }
}

/// A DLQ that is watched already.
struct Watched {
    url: RedisUrl,
    namespace: String,
    at: Position,
}

/// The sources; none if any of them cannot be read.
pub(super) fn sources(field: Field<'_>, reading: &mut Reading) -> Option<Vec<SourceConfig>> {
    let items = field.list(&mut reading.problems)?;
    if items.is_empty() {
        reading.problems.add(field.at(), "there are no sources", "name at least one DLQ to watch");
        return None;
    }
    let mut names = Names::new("source");
    let mut watched = Vec::new();
    let sources: Vec<Option<SourceConfig>> =
        items.into_iter().map(|item| source(item, &mut names, &mut watched, reading)).collect();
    sources.into_iter().collect()
}

fn source(
    field: Field<'_>,
    names: &mut Names,
    watched: &mut Vec<Watched>,
    reading: &mut Reading,
) -> Option<SourceConfig> {
    let section = field.section(&shape::SOURCE, &mut reading.problems)?;
    let name = names.take(&section, &mut reading.problems);
    let help = "say which one it is: smallage: { url: …, namespace: … }";
    let smallage = section
        .need("smallage", help, &mut reading.problems)
        .and_then(|field| field.section(&shape::SMALLAGE, &mut reading.problems))
        .and_then(|section| smallage(&section, watched, reading));
    Some(SourceConfig { name: name?, kind: SourceKind::Smallage(smallage?) })
}

fn smallage(section: &Section<'_>, watched: &mut Vec<Watched>, reading: &mut Reading) -> Option<SmallageConfig> {
    if section.get("url").is_none() && section.get("url_file").is_none() {
        let help = "give \"url\" or \"url_file\"";
        reading.problems.add(section.at, "\"url\" is missing in smallage", help);
    }
    let url = origin::one(section, "url", "url_file", reading);
    let leads_to = url.as_ref().and_then(|url| match redis_url::of(url.now.reveal()) {
        Ok(leads_to) => Some(leads_to),
        Err(wrong) => {
            reading.problems.add(url.field.at(), format!("this URL {}", wrong.why), wrong.help);
            None
        }
    });
    let namespace = match section.get("namespace") {
        None => Some(DEFAULT_NAMESPACE.to_owned()),
        Some(field) => {
            field.parsed("a namespace", "use smallage's own, without { } and :", &mut reading.problems, |text| {
                value::is_namespace(text).then(|| text.to_owned())
            })
        }
    };
    let username = section.get("username").and_then(|field| field.text(&mut reading.problems));
    let password = origin::one(section, "password", "password_file", reading);
    let tls = section.get("tls").and_then(|field| tls(field, leads_to.as_ref(), reading));
    let sentinel = section.get("sentinel").and_then(|field| sentinel(field, leads_to.as_ref(), reading));
    let (url, namespace) = (url?, namespace?);
    if let Some(url) = leads_to {
        once(Watched { url, namespace: namespace.clone(), at: section.at }, watched, reading);
    }
    Some(SmallageConfig {
        url: url.source,
        namespace,
        username: username.map(str::to_owned),
        password: password.map(|password| password.source),
        tls,
        sentinel,
    })
}

/// Two sources on one DLQ would share one ledger and wait for each other's lease for ever.
fn once(this: Watched, watched: &mut Vec<Watched>, reading: &mut Reading) {
    let same = |other: &&Watched| other.namespace == this.namespace && other.url.leads_where(&this.url);
    if let Some(other) = watched.iter().find(same) {
        let message = format!("this DLQ is watched already by the source in line {}", other.at.line);
        reading.problems.add(this.at, message, "keep one of the two, or give another namespace");
        return;
    }
    watched.push(this);
}

/// `url` is none where it cannot be read.
fn tls(field: Field<'_>, url: Option<&RedisUrl>, reading: &mut Reading) -> Option<TlsConfig> {
    let section = field.section(&shape::TLS, &mut reading.problems)?;
    if url.is_some_and(|url| !url.tls) {
        let help = "write rediss instead of redis in the URL";
        reading.problems.add(field.key_at, "\"tls\" is given, but the URL asks for none", help);
    }
    let (cert, key) = (section.get("cert"), section.get("key"));
    if let (Some(alone), None) | (None, Some(alone)) = (cert, key) {
        let message = format!("{:?} is given alone", alone.key);
        reading.problems.add(alone.key_at, message, "a client certificate needs both \"cert\" and \"key\"");
    }
    let mut path = |field: Option<Field<'_>>| field.and_then(|field| origin::readable(field, reading));
    let (ca_path, cert_path, key_path) = (path(section.get("ca")), path(cert), path(key));
    let (ca, cert, key) = (section.get("ca").zip(ca_path), cert.zip(cert_path), key.zip(key_path));
    files(&ca, &cert, &key, reading);
    let path = |file: Option<(Field<'_>, PathBuf)>| file.map(|(_, path)| path);
    let (ca, cert, key) = (path(ca), path(cert), path(key));
    let server_name = section.get("server_name").and_then(|field| {
        let help = "give the name, or the address, that stands in the certificate, without a port";
        field.parsed("a host", help, &mut reading.problems, |text| value::is_host(text).then(|| text.to_owned()))
    });
    Some(TlsConfig { ca, cert, key, server_name })
}

/// A file for TLS that can be read, and where it was given.
type PemFile<'n> = Option<(Field<'n>, PathBuf)>;

/// What files for TLS hold is looked at here, for no server can say it better.
fn files(ca: &PemFile<'_>, cert: &PemFile<'_>, key: &PemFile<'_>, reading: &mut Reading) {
    let mut wrong = |field: &Field<'_>, why: &str| {
        let help =
            "give PEM files: an authority's certificate as \"ca\", a client's as \"cert\", and its key as \"key\"";
        reading.problems.add(field.at(), format!("the file of {:?} {why}", field.key), help);
    };
    let read = |path: &PathBuf| read_file(path, LARGEST_PEM).unwrap_or_default();
    if let Some((field, path)) = ca
        && let Err(why) = certificate::authorities(&read(path))
    {
        wrong(field, why);
    }
    if let (Some((cert, cert_path)), Some((key, key_path))) = (cert, key) {
        match certificate::pair(&read(cert_path), &read(key_path)) {
            Ok(()) => {}
            Err(certificate::Wrong::Cert(why)) => wrong(cert, why),
            Err(certificate::Wrong::Key(why)) => wrong(key, why),
        }
    }
}

/// `url` is none where it cannot be read.
fn sentinel(field: Field<'_>, url: Option<&RedisUrl>, reading: &mut Reading) -> Option<SentinelConfig> {
    let section = field.section(&shape::SENTINEL, &mut reading.problems)?;
    if url.is_some_and(|url| !matches!(url.via, Via::Sentinels { .. })) {
        let help = "write redis+sentinel:// in the URL; user and password of the Redis stand beside \"url\"";
        reading.problems.add(field.key_at, "\"sentinel\" is given, but the URL names no Sentinels", help);
    }
    let username = section.get("username").and_then(|field| field.text(&mut reading.problems)).map(str::to_owned);
    let password = origin::one(&section, "password", "password_file", reading).map(|password| password.source);
    Some(SentinelConfig { username, password })
}

/// A source's name for a namespace: itself, or the nearest text that can be a name (`Team.Orders` gives `team-orders`).
fn name_from(namespace: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let name: String = namespace.chars().map(fits).collect();
    let name: String = name.trim_start_matches(['-', '_']).chars().take(value::LONGEST_NAME).collect();
    if value::is_name(&name) { name } else { "smallage".to_owned() }
}

/// The source of `sexton run --smallage URL --namespace NS`: all problems name the flags.
pub(super) fn of_flags(url: &str, namespace: &str) -> Result<SourceConfig, Problems> {
    let mut problems = Problems::new("command line");
    if let Err(wrong) = redis_url::of(url) {
        problems.add_whole(format!("the URL of --smallage {}", wrong.why), wrong.help);
    }
    if !value::is_namespace(namespace) {
        let message = format!("{} is no namespace of smallage", value::quoted(namespace));
        problems.add_whole(message, "give smallage's own with --namespace, without { } and :");
    }
    problems.none_or(Some(SourceConfig {
        name: name_from(namespace),
        kind: SourceKind::Smallage(SmallageConfig {
            url: super::SecretSource::Inline(super::Secret::new(url)),
            namespace: namespace.to_owned(),
            username: None,
            password: None,
            tls: None,
            sentinel: None,
        }),
    }))
}
