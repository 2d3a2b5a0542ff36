//! Why a Redis cannot be reached, in the words of the one who must mend it.

use std::{io, time::Duration};

use tokio::net::{TcpStream, UnixStream, lookup_host};

use crate::{
    config::{RedisUrl, SmallageConfig, Via},
    ledger::{Aspect, Finding, StoreError},
    smallage::{
        Keys, RIGHTS_ON_SENTINELS,
        connection::SENTINEL,
        rights::{self, Area},
        trouble::DATABASE,
    },
};

/// How long one address is tried; the whole connection has failed already.
const PATIENCE: Duration = Duration::from_secs(2);

/// How far one gets with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// It has no address.
    NoAddress,
    /// Nobody listens there.
    Refused,
    /// Nothing comes back.
    Silent,
    /// Somebody listens there: the trouble is further on.
    Listens,
}

/// What to do, by what the message says: the first that fits. The words are our own, but for the last ones.
const REMEDIES: [(&str, &str); 18] = [
    (
        "signed by no authority that we trust",
        "give the certificate of the authority that has signed the server's: tls: { ca: FILE }",
    ),
    (
        "(tls: server_name)",
        "give a name that its certificate is for, in `url` or as tls: { server_name: NAME }; or give the server a \
         certificate for this one",
    ),
    ("certificate has expired", "renew the server's certificate"),
    ("certificate is not valid yet", "set this machine's clock, or renew the server's certificate"),
    (
        "does not take our client certificate",
        "give one that an authority of the server's has signed (its tls-ca-cert-file): tls: { cert: FILE, key: FILE }",
    ),
    ("wants a client certificate", "give one that the server's authority has signed: tls: { cert: FILE, key: FILE }"),
    ("the handshake; it may want a client certificate", "give one: tls: { cert: FILE, key: FILE }"),
    ("closes new connections at once; it may not", "see in Redis's own log which of these it is"),
    (
        "closes new connections at once; it may want a client certificate",
        "if its own log tells of a certificate, give one: tls: { cert: FILE, key: FILE }",
    ),
    ("want TLS (rediss)", "write rediss instead of redis in `url` if it wants TLS; else raise maxclients on Redis"),
    ("no TLS", "write redis instead of rediss in `url`, or have the server speak TLS there (tls-port)"),
    (
        "the Sentinels know no master",
        "name one that they know at the end of `url`: …/MASTER; or have them watch it: SENTINEL MONITOR",
    ),
    (" is no Sentinel", "name Sentinels in `url` (their port is 26379 by default), or write redis:// for this server"),
    ("no Sentinel answers", "start the Sentinels, or mend their hosts and ports in `url`"),
    ("no node of the Cluster", "start its nodes, or mend hosts and ports in `url`; CLUSTER INFO says what is missing"),
    ("max number of clients", "raise maxclients on Redis, or find who keeps so many connections: CLIENT LIST"),
    (
        DATABASE,
        "name another database in `url`: a server has as many as its `databases` says, counted from 0; a Cluster has \
         only 0, and a Sentinel none",
    ),
    ("timed out", "look whether it hangs, and whether a firewall or a NetworkPolicy drops what is sent"),
];

/// What keeps us out, and what to do about it. `error` is what a whole try to connect came to.
pub(super) async fn unreachable(config: &SmallageConfig, keys: &Keys, error: &StoreError) -> Finding {
    // What the network itself has to say is said better by the network.
    if let StoreError::Unavailable(_) = error
        && let Some(found) = by_network(config).await
    {
        return found;
    }
    let message = error.to_string();
    if let StoreError::Denied(why) = error {
        return denied(config, keys, why, message);
    }
    let help = match error {
        StoreError::NoWrites(_) => "let it take writes again; its log says more",
        _ => remedy(&message).unwrap_or("look at Redis's own log, and whether `url` and `tls` are right"),
    };
    Finding::unusable(Aspect::Reach, message, help)
}

fn remedy(message: &str) -> Option<&'static str> {
    REMEDIES.into_iter().find(|(words, _)| message.contains(words)).map(|(_, help)| help)
}

/// What the host or the socket of the URL says for itself, unless somebody listens there.
async fn by_network(config: &SmallageConfig) -> Option<Finding> {
    let found = |message: String, help: &str| Some(Finding::unusable(Aspect::Reach, message, help));
    if let Some(path) = socket(config) {
        let error = tokio::time::timeout(PATIENCE, UnixStream::connect(&path)).await.ok()?.err()?;
        return match error.kind() {
            io::ErrorKind::NotFound => found(
                format!("there is no socket {path}"),
                "start Redis with that as its `unixsocket`, or mend the path in `url`; a container must have it mounted",
            ),
            io::ErrorKind::ConnectionRefused => found(
                format!("nothing listens at the socket {path}"),
                "start Redis with that as its `unixsocket`, or mend the path in `url`",
            ),
            io::ErrorKind::PermissionDenied => found(
                format!("the socket {path} may not be used"),
                "let the user that Sexton runs as write to it (`unixsocketperm`), and enter its folder",
            ),
            _ => None,
        };
    }
    let (host, port) = place(config)?;
    let at = format!("{host}:{port}");
    match network(&host, port).await {
        Network::NoAddress => found(
            format!("no address is known for its host, {host}"),
            "mend the host's name in `url`, or the DNS of where Sexton runs (a service of another namespace is \
             SERVICE.NAMESPACE)",
        ),
        Network::Refused => found(
            format!("the connection to {at} is refused: nothing listens there"),
            "start Redis, or mend host and port in `url`",
        ),
        Network::Silent => found(
            format!("nothing comes back from {at}"),
            "look whether a firewall or a NetworkPolicy drops the connection",
        ),
        Network::Listens => None,
    }
}

/// Whose rights or secrets are to be mended.
fn denied(config: &SmallageConfig, keys: &Keys, why: &str, message: String) -> Finding {
    let may_not = why.contains("NOPERM");
    if why.starts_with(SENTINEL) {
        let named = config.sentinel.as_ref().and_then(|sentinel| sentinel.username.as_deref());
        let user = named.unwrap_or("default");
        if may_not {
            let words = rights::words(RIGHTS_ON_SENTINELS);
            let missing = words.split(' ').map(str::to_owned).collect();
            let help = format!("on each Sentinel: ACL SETUSER {user} {words}");
            return Finding { missing, ..Finding::unusable(Aspect::Rights, message, help) };
        }
        let help = format!(
            "mend sentinel: {{ username: …, password: … }} of smallage, or the user on each Sentinel: ACL GETUSER {user}"
        );
        return Finding::unusable(Aspect::Reach, message, help);
    }
    let user = user(config);
    if may_not {
        // Connecting needs no other key than one of the ledger.
        let word = command_of(why).map_or_else(|| Area::Ledger.word(keys), |command| format!("+{command}"));
        let help = format!("ACL SETUSER {user} {word}");
        let message = format!("{message}; other rights are looked at once it has this one");
        return Finding { missing: vec![word], ..Finding::unusable(Aspect::Rights, message, help) };
    }
    if let Some(help) = remedy(&message) {
        return Finding::unusable(Aspect::Reach, message, help);
    }
    let help =
        format!("mend `username` and `password` of the source, or its files, or the user on Redis: ACL GETUSER {user}");
    Finding::unusable(Aspect::Reach, message, help)
}

/// The command that the server has refused to run, as every version writes it: `… to run the 'role' command`.
fn command_of(why: &str) -> Option<&str> {
    Some(why.split_once("to run the '")?.1.split_once('\'')?.0)
}

/// The connection was lost in the middle.
pub(super) fn lost(error: &StoreError) -> Finding {
    Finding::unusable(
        Aspect::Reach,
        format!("it broke off in the middle: {error}"),
        "check again; if it comes again, look at Redis's own log",
    )
}

/// The user that we are there.
pub(super) fn user(config: &SmallageConfig) -> String {
    if let Some(user) = &config.username {
        return user.clone();
    }
    let url = leads_to(config).and_then(|url| url::Url::parse(&url.first).ok());
    let named = url.and_then(|url| match url.username() {
        "" => url.query_pairs().find(|(name, _)| name == "user").map(|(_, user)| user.into_owned()),
        user => Some(user.to_owned()),
    });
    named.filter(|user| !user.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// The URL as it is now, if it can be read.
pub(super) fn leads_to(config: &SmallageConfig) -> Option<RedisUrl> {
    RedisUrl::read(config.url.read().ok()?.reveal()).ok()
}

/// Host and port, where there is one of each: of several hosts each says for itself why it cannot be reached.
fn place(config: &SmallageConfig) -> Option<(String, u16)> {
    const USUAL_PORT: u16 = 6379;
    let url = leads_to(config).filter(|url| url.via == Via::Itself)?;
    let url = url::Url::parse(&url.first).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    Some((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(USUAL_PORT)))
}

/// The path of the socket that the URL names, if it names one.
fn socket(config: &SmallageConfig) -> Option<String> {
    let url = url::Url::parse(&leads_to(config)?.first).ok()?;
    url.scheme().ends_with("unix").then(|| url.path().to_owned())
}

async fn network(host: &str, port: u16) -> Network {
    let Ok(mut addresses) = lookup_host((host, port)).await else { return Network::NoAddress };
    let Some(first) = addresses.next() else { return Network::NoAddress };
    let mut worst = Network::Silent;
    for address in std::iter::once(first).chain(addresses) {
        match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Network::Listens,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => worst = Network::Refused,
            Ok(Err(_)) | Err(_) => {}
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{Secret, SecretSource};

    fn config(url: &str) -> SmallageConfig {
        let url = SecretSource::Inline(Secret::new(url));
        SmallageConfig { url, namespace: "lrs".to_owned(), username: None, password: None, tls: None, sentinel: None }
    }

    #[test]
    fn user_and_place_are_read_from_the_url_and_nothing_else_is() {
        for (url, expected, at) in [
            ("redis://h", "default", Some(("h", 6379))),
            ("redis://:hush@h:6380/2", "default", Some(("h", 6380))),
            ("redis://sexton:hush@[::1]:1", "sexton", Some(("::1", 1))),
            ("unix:///run/redis.sock?user=sexton&pass=hush", "sexton", None),
            ("unix:///run/redis.sock", "default", None),
            ("redis+sentinel://sexton:hush@h,i/mymaster", "sexton", None),
            ("redis+cluster://h,i", "default", None),
        ] {
            let config = config(url);
            let place = place(&config);
            assert_eq!(user(&config), expected, "{url}");
            assert_eq!(place.as_ref().map(|(host, port)| (host.as_str(), *port)), at, "{url}");
        }
        let named = SmallageConfig { username: Some("anna".to_owned()), ..config("redis://sexton@h") };
        assert_eq!(user(&named), "anna");
    }

    #[tokio::test]
    async fn the_network_says_how_far_one_gets() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(network("127.0.0.1", port).await, Network::Listens);
        drop(listener);
        assert_eq!(network("127.0.0.1", port).await, Network::Refused);
        assert_eq!(network("redis.invalid", 6379).await, Network::NoAddress);
        let keys = Keys::new("lrs").unwrap();
        let gone = StoreError::Unavailable("it says".to_owned());
        let finding = unreachable(&config(&format!("redis://:hush@127.0.0.1:{port}")), &keys, &gone).await;
        assert!(finding.unusable && finding.message.contains("is refused"), "{finding:?}");
        let denied = StoreError::Denied("WRONGPASS".to_owned());
        let finding = unreachable(&config(&format!("redis://sexton:hush@127.0.0.1:{port}")), &keys, &denied).await;
        assert_eq!(finding.message, "the store refuses us: WRONGPASS");
        assert!(finding.help.is_some_and(|help| help.ends_with("ACL GETUSER sexton")));
    }
}
