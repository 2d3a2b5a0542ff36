//! Why a Redis cannot be reached, in the words of the one who must mend it.

use std::{io, time::Duration};

use tokio::net::{TcpStream, lookup_host};

use crate::{
    config::{RedisUrl, SmallageConfig, Via},
    ledger::{Aspect, Finding, StoreError},
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

/// What keeps us out, and what to do about it. `error` is what a whole try to connect came to.
pub(super) async fn unreachable(config: &SmallageConfig, error: &StoreError) -> Finding {
    let unusable = |message: String, help: String| Finding::unusable(Aspect::Reach, message, help);
    // What the network itself has to say is said better by the network.
    if let (StoreError::Unavailable(_), Some((host, port))) = (error, place(config)) {
        let at = format!("{host}:{port}");
        match network(&host, port).await {
            Network::NoAddress => {
                return unusable(
                    format!("no address is known for its host, {host}"),
                    "mend the host's name in `url`, or the DNS of where Sexton runs (a service of another namespace is \
                     SERVICE.NAMESPACE)"
                        .to_owned(),
                );
            }
            Network::Refused => {
                return unusable(
                    format!("the connection to {at} is refused: nothing listens there"),
                    "start Redis, or mend host and port in `url`".to_owned(),
                );
            }
            Network::Silent => {
                return unusable(
                    format!("nothing comes back from {at}"),
                    "look whether a firewall or a NetworkPolicy drops the connection".to_owned(),
                );
            }
            Network::Listens => {}
        }
    }
    let user = user(config);
    let help = match error {
        StoreError::Denied(_) => format!(
            "mend `username` and `password` of the source, or its files, or the user on Redis: ACL GETUSER {user}"
        ),
        StoreError::NoWrites(_) => "let it take writes again; its log says more".to_owned(),
        _ => "look at Redis's own log, and whether `url` and `tls` are right".to_owned(),
    };
    unusable(error.to_string(), help)
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

fn leads_to(config: &SmallageConfig) -> Option<RedisUrl> {
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
        let gone = StoreError::Unavailable("it says".to_owned());
        let finding = unreachable(&config(&format!("redis://:hush@127.0.0.1:{port}")), &gone).await;
        assert!(finding.unusable && finding.message.contains("is refused"), "{finding:?}");
        let denied = StoreError::Denied("WRONGPASS".to_owned());
        let finding = unreachable(&config(&format!("redis://sexton:hush@127.0.0.1:{port}")), &denied).await;
        assert_eq!(finding.message, "the store refuses us: WRONGPASS");
        assert!(finding.help.is_some_and(|help| help.ends_with("ACL GETUSER sexton")));
    }
}
