//! The URL of a Redis: one server, Sentinels that know where the master is, or nodes of a Cluster.
//!
//! URLs carry passwords: what is wrong is told without showing them, and [`RedisUrl::origin`] is what may be shown.

use std::fmt;

use url::Url;

use super::url::{Wrong, parse, scheme, wrong};

const FORMS: &str = "write redis://HOST:6379, unix:///PATH, redis+sentinel://HOST,HOST/MASTER or redis+cluster://HOST,HOST; with TLS \
     rediss instead of redis";
const ONE_FORM: &str = "write redis://HOST:6379, rediss://HOST:6379 or unix:///PATH";
const SENTINEL_FORM: &str = "write redis+sentinel://HOST:26379,HOST:26379/MASTER";
const CLUSTER_FORM: &str = "write redis+cluster://HOST:6379,HOST:6379";
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// Name or address; an IPv6 address without brackets.
    pub name: String,
    /// TCP port.
    pub port: u16,
}

impl Host {
    /// Reads `HOST:PORT`, where everything behind the last colon is the port.
    pub fn split(text: &str) -> Option<Host> {
        let (name, port) = text.rsplit_once(':')?;
        Some(Host { name: name.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// How the server is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// It is the one that the URL names.
    Itself,
    /// Sentinels are asked for the address of a master.
    Sentinels {
        /// At least one.
        sentinels: Vec<Host>,
        /// The name they know the master by.
        master: String,
    },
    /// Nodes of a Cluster are asked for the one that has the namespace's slot.
    Cluster {
        /// At least one.
        seeds: Vec<Host>,
    },
}

/// A URL that makes sense.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// How the server is found.
    pub via: Via,
    /// Whether it asks for TLS.
    pub tls: bool,
    /// An ordinary URL (`redis://`, `rediss://` or `unix://`) to the first host, with user, password, database and
    /// options. For Sentinels these are the master's. It may hold a secret.
    pub first: String,
    database: String,
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

impl RedisUrl {
    /// Reads one; an error says what is wrong and what to do.
    pub fn read(text: &str) -> Result<RedisUrl, String> {
        of(text).map_err(|wrong| format!("{}; {}", wrong.why, wrong.help))
    }

    /// What may be shown of it: no user, no password, no options.
    pub fn origin(&self) -> String {
        let s = if self.tls { "s" } else { "" };
        let path = if self.database == "0" { String::new() } else { format!("/{}", self.database) };
        let list = |hosts: &[Host]| hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
        match &self.via {
            Via::Sentinels { sentinels, master } => {
                format!("redis{s}+sentinel://{}/{master}{path}", list(sentinels))
            }
            Via::Cluster { seeds } => format!("redis{s}+cluster://{}", list(seeds)),
            Via::Itself => match Url::parse(&self.first) {
                Ok(url) if is_socket(url.scheme()) => {
                    let database = path.replace('/', "?db=");
                    format!("{}://{}{database}", url.scheme(), url.path())
                }
                Ok(url) => {
                    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                    format!("redis{s}://{}{port}{path}", url.host_str().unwrap_or_default())
                }
                Err(_) => "redis:".to_owned(),
            },
        }
    }

    /// The number of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether both lead to the same data, so far as that can be seen from the URLs alone.
    pub(super) fn leads_where(&self, other: &RedisUrl) -> bool {
        let meet = |a: &[Host], b: &[Host]| a.iter().any(|host| b.contains(host));
        self.database == other.database
            && match (&self.via, &other.via) {
                (Via::Itself, Via::Itself) => self.own_place() == other.own_place(),
                (
                    Via::Sentinels { sentinels, master },
                    Via::Sentinels { sentinels: other_sentinels, master: other_master },
                ) => master == other_master && meet(sentinels, other_sentinels),
                (Via::Cluster { seeds }, Via::Cluster { seeds: other_seeds }) => meet(seeds, other_seeds),
                _ => false,
            }
    }

    /// The server or the socket that an ordinary URL names.
    fn own_place(&self) -> Option<(String, u16)> {
        let url = Url::parse(&self.first).ok()?;
        if is_socket(url.scheme()) {
            return Some((url.path().to_owned(), 0));
        }
        Some((url.host_str()?.to_ascii_lowercase(), url.port().unwrap_or(REDIS_PORT)))
    }
}

fn is_socket(scheme: &str) -> bool {
    matches!(scheme, "unix" | "redis+unix")
}

/// Reads one.
pub(super) fn of(text: &str) -> Result<RedisUrl, Wrong> {
    match scheme(text, FORMS)? {
        "redis" | "rediss" => server(text),
        "unix" | "redis+unix" => socket(text),
        listed @ ("redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster") => {
            let listed = Listed::read(text, listed)?;
            if listed.scheme.ends_with("sentinel") { listed.sentinels() } else { listed.cluster() }
        }
        other => Err(wrong(format!("has the unknown scheme {other}"), FORMS)),
    }
}

fn server(text: &str) -> Result<RedisUrl, Wrong> {
    let url = parse(text, ONE_FORM)?;
    match url.host_str() {
        None | Some("") => return Err(wrong("names no host", ONE_FORM)),
        Some(hosts) if hosts.contains(',') => {
            return Err(wrong("names several hosts", format!("{SENTINEL_FORM}, or {CLUSTER_FORM}")));
        }
        Some(host) => reachable(host)?,
    }
    parameters(url.query_pairs(), &["protocol"])?;
    let database = database(url.path().trim_matches('/'), "redis://HOST:6379/0")?;
    fragment(url.fragment())?;
    Ok(RedisUrl { via: Via::Itself, tls: url.scheme() == "rediss", first: text.to_owned(), database })
}

fn socket(text: &str) -> Result<RedisUrl, Wrong> {
    let url = parse(text, ONE_FORM)?;
    let local = url.host_str().is_none_or(|host| host.is_empty() || host == "localhost");
    if !local || url.path().len() < 2 {
        return Err(wrong("names no absolute path", "write three slashes: unix:///run/redis.sock"));
    }
    parameters(url.query_pairs(), &["protocol", "db", "user", "pass"])?;
    let given = url.query_pairs().find(|(name, _)| name == "db").map(|(_, number)| number.into_owned());
    let database = database(&given.unwrap_or_default(), "unix:///PATH?db=0")?;
    Ok(RedisUrl { via: Via::Itself, tls: false, first: text.to_owned(), database })
}

fn reachable(host: &str) -> Result<(), Wrong> {
    match host {
        "0.0.0.0" | "[::]" => Err(wrong("names an address that nothing can connect to", "name the host itself")),
        _ => Ok(()),
    }
}

/// The number of a database, `0` where none is given.
fn database(text: &str, example: &str) -> Result<String, Wrong> {
    match text.parse::<u32>() {
        _ if text.is_empty() => Ok("0".to_owned()),
        Ok(number) => Ok(number.to_string()),
        Err(_) => {
            Err(wrong("has a path that is no database number", format!("give the number in its place: {example}")))
        }
    }
}

/// The parameters behind a `?`: the client passes over those that it does not know. Their values are not shown.
fn parameters(given: url::form_urlencoded::Parse<'_>, known: &[&str]) -> Result<(), Wrong> {
    for (name, _) in given {
        if !known.contains(&name.as_ref()) {
            let hint = if name == "db" { "; a database stands in the path: …/3" } else { "" };
            let help = format!("remove it: there is {}{hint}; write ? in a password as %3F", known.join(", "));
            return Err(wrong("has a parameter (?…) that there is not", help));
        }
    }
    Ok(())
}

fn fragment(fragment: Option<&str>) -> Result<(), Wrong> {
    match fragment {
        None | Some("insecure") => Ok(()),
        Some(_) => Err(wrong("has a fragment (#…) other than #insecure", "write # in a password as %23")),
    }
}

/// The parts of a URL with a list of hosts, which is no URL to any library.
struct Listed<'t> {
    scheme: &'t str,
    /// User and password with their `@`, as they are written.
    login: &'t str,
    hosts: &'t str,
    path: &'t str,
    /// What follows the path, as it is written.
    options: &'t str,
}

impl<'t> Listed<'t> {
    fn read(text: &'t str, scheme: &'t str) -> Result<Listed<'t>, Wrong> {
        let rest = &text[scheme.len() + "://".len()..];
        let (before, options) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (query, anchor) = options.split_once('#').map_or((options, None), |(query, anchor)| (query, Some(anchor)));
        fragment(anchor)?;
        parameters(url::form_urlencoded::parse(query.trim_start_matches('?').as_bytes()), &["protocol"])?;
        Ok(Listed { scheme, login, hosts, path: path.trim_matches('/'), options })
    }

    fn tls(&self) -> bool {
        self.scheme.starts_with("rediss")
    }

    fn hosts(&self, default_port: u16, form: &str) -> Result<Vec<Host>, Wrong> {
        let mut hosts = Vec::new();
        for text in self.hosts.split(',') {
            if text.is_empty() || text.starts_with(':') {
                let why = if self.hosts.is_empty() { "names no host" } else { "names a host that is empty" };
                return Err(wrong(why, form));
            }
            let url = parse(&format!("redis://{text}"), form)?;
            let name = url.host_str().unwrap_or_default();
            reachable(name)?;
            let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
            let host = Host { name, port: url.port().unwrap_or(default_port) };
            if hosts.contains(&host) {
                return Err(wrong(format!("names {host} twice"), "name each host once"));
            }
            hosts.push(host);
        }
        Ok(hosts)
    }

    /// The ordinary URL to one host.
    fn first(&self, host: &Host, database: &str) -> Result<String, Wrong> {
        let scheme = if self.tls() { "rediss" } else { "redis" };
        let first = format!("{scheme}://{}{host}/{database}{}", self.login, self.options);
        parse(&first, FORMS).map(|_| first)
    }

    fn sentinels(&self) -> Result<RedisUrl, Wrong> {
        let sentinels = self.hosts(SENTINEL_PORT, SENTINEL_FORM)?;
        let (master, number) = self.path.split_once('/').unwrap_or((self.path, ""));
        if master.is_empty() {
            return Err(wrong("names no master", "end it with the name that the Sentinels know it by: …/mymaster"));
        }
        if !master.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
            return Err(wrong("names a master that no Sentinel can have", "use A-Z, a-z, 0-9, . - and _"));
        }
        let database = database(number, "…/mymaster/0")?;
        let first = self.first(&sentinels[0], &database)?;
        let via = Via::Sentinels { sentinels, master: master.to_owned() };
        Ok(RedisUrl { via, tls: self.tls(), first, database })
    }

    fn cluster(&self) -> Result<RedisUrl, Wrong> {
        let seeds = self.hosts(REDIS_PORT, CLUSTER_FORM)?;
        match self.path {
            "" | "0" => {}
            number if number.parse::<u32>().is_ok() => {
                return Err(wrong(
                    "names a database, and a Cluster has but one",
                    format!("remove /{number} at its end"),
                ));
            }
            _ => return Err(wrong("has a path, and a Cluster has none", CLUSTER_FORM)),
        }
        let first = self.first(&seeds[0], "0")?;
        Ok(RedisUrl { via: Via::Cluster { seeds }, tls: self.tls(), first, database: "0".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_leads_to() {
        for (text, expected) in [
            ("redis://localhost", "redis://localhost"),
            ("redis://user:p%23w@host:6380/3", "redis://host:6380/3"),
            ("redis://host/0", "redis://host"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("rediss://host:6379", "rediss://host:6379"),
            ("rediss://host:6379/#insecure", "rediss://host:6379"),
            ("redis://host?protocol=resp3", "redis://host"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("redis+unix:///run/redis.sock?db=1&pass=x", "redis+unix:///run/redis.sock?db=1"),
            ("redis+sentinel://a,b:1,[::1]/mymaster", "redis+sentinel://a:26379,b:1,[::1]:26379/mymaster"),
            ("rediss+sentinel://u:p,@w@A/my.master_1/3?protocol=resp3", "rediss+sentinel://a:26379/my.master_1/3"),
            ("redis+cluster://u:p@a,b:7000", "redis+cluster://a:6379,b:7000"),
            ("rediss+cluster://a/0/", "rediss+cluster://a:6379"),
        ] {
            assert_eq!(of(text).map(|url| url.origin()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url() {
        for (text, expected) in [
            ("localhost:6379", "has no scheme, or an odd one"),
            ("redis:/localhost", "has no scheme, or an odd one"),
            ("redis://", "names no host"),
            ("redis:///0", "names no host"),
            ("redis://0.0.0.0", "names an address that nothing can connect to"),
            ("redis://host:99999", "cannot be read: invalid port number"),
            ("redis://host/db", "has a path that is no database number"),
            ("redis://host/0#x", "has a fragment (#…) other than #insecure"),
            ("redis://host?x=1", "has a parameter (?…) that there is not"),
            ("redis://host?db=1", "has a parameter (?…) that there is not"),
            ("redis+sentinel://a/m?timeout=1#insecure", "has a parameter (?…) that there is not"),
            ("unix:///x?db=1&path=y", "has a parameter (?…) that there is not"),
            ("redis://a,b", "names several hosts"),
            ("unix://run/redis.sock", "names no absolute path"),
            ("unix:///", "names no absolute path"),
            ("unix:///x?db=y", "has a path that is no database number"),
            ("http://host", "has the unknown scheme http"),
            ("redis+sentinel://a,b", "names no master"),
            ("redis+sentinel://a,b/", "names no master"),
            ("redis+sentinel:///mymaster", "names no host"),
            ("redis+sentinel://a,,b/mymaster", "names a host that is empty"),
            ("redis+sentinel://a,:26379/mymaster", "names a host that is empty"),
            ("redis+sentinel://a,a:26379/mymaster", "names a:26379 twice"),
            ("redis+sentinel://a,b:port/mymaster", "cannot be read: invalid port number"),
            ("redis+sentinel://a,0.0.0.0/mymaster", "names an address that nothing can connect to"),
            ("redis+sentinel://a/my master", "names a master that no Sentinel can have"),
            ("redis+sentinel://a/mymaster/x", "has a path that is no database number"),
            ("redis+sentinel://a/mymaster#x", "has a fragment (#…) other than #insecure"),
            ("redis+cluster://a,b/3", "names a database, and a Cluster has but one"),
            ("redis+cluster://a,b/mymaster", "has a path, and a Cluster has none"),
            ("redis+cluster://:6379", "names a host that is empty"),
        ] {
            assert_eq!(of(text).map_err(|wrong| wrong.why), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_first_of_several_hosts_keeps_user_password_and_database() {
        for (text, first) in [
            ("redis+sentinel://u:p%2Fw@a,b/m/3", "redis://u:p%2Fw@a:26379/3"),
            ("rediss+sentinel://:p@[::1]:1/m?protocol=resp3", "rediss://:p@[::1]:1/0?protocol=resp3"),
            ("rediss+cluster://a:7000,b#insecure", "rediss://a:7000/0#insecure"),
        ] {
            assert_eq!(of(text).unwrap().first, first);
        }
    }

    #[test]
    fn two_urls_to_the_same_data() {
        for (one, other, same) in [
            ("redis://a", "redis://u:p@A:6379/0", true),
            ("redis://a", "redis://a/1", false),
            ("redis://a", "redis://a:6380", false),
            ("unix:///x?pass=y", "redis+unix:///x", true),
            ("unix:///x?db=2", "unix:///x", false),
            ("redis+sentinel://a,b/m", "rediss+sentinel://c,b:26379/m", true),
            ("redis+sentinel://a,b/m", "redis+sentinel://a,b/n", false),
            ("redis+sentinel://a/m", "redis+sentinel://b/m", false),
            ("redis+cluster://a,b", "redis+cluster://b:6379,c", true),
            ("redis+cluster://a", "redis://a", false),
        ] {
            let (one, other) = (of(one).unwrap(), of(other).unwrap());
            assert_eq!((one.leads_where(&other), other.leads_where(&one)), (same, same), "{one:?} {other:?}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        for text in [
            "redis://user:hunter2@host",
            "unix:///run/redis.sock?user=u&pass=hunter2",
            "redis+sentinel://u:hunter2@a/m",
            "redis+cluster://u:hunter2@a?protocol=hunter2",
        ] {
            let url = of(text).unwrap();
            assert!(!format!("{url:?} {}", url.origin()).contains("hunter2"), "{text}");
        }
        for text in [
            "redis+sentinel://:hunter2@a",
            "redis://u:hunter2@",
            "redis+cluster://u:hunter2@a,b:x",
            "redis://a?hunter2=hunter2",
        ] {
            let Err(wrong) = of(text) else { panic!("{text} is wrong") };
            assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
        }
    }
}
