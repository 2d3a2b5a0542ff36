//! Why a Redis cannot be reached, in the words of the one who must mend it.

use std::io;

use redis::{ErrorKind, RedisError};

use crate::{
    config::SmallageConfig,
    ledger::{Aspect, Finding, StoreError},
    smallage::{connection::Knock, trouble::sort_error},
    tls::{Flaw, io_kind},
};

/// What keeps us out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// The host's name means nothing to us.
    Name,
    /// Nobody listens there.
    Refused,
    /// There is no such socket.
    NoSocket,
    /// We may not use the socket.
    Forbidden,
    /// Nothing comes back.
    Silent,
    /// It hangs up at once.
    HangsUp,
    /// TLS with it fails.
    Tls(Flaw),
    /// User or password are wrong.
    Password,
    /// It wants a password, and we have none.
    NoPassword,
    /// We may not do what a connection begins with.
    NoRights,
    /// It has too many clients.
    Full,
    /// It is reading its data.
    Loading,
    /// Something else.
    Other,
}

/// What keeps us out, and what to do about it.
pub(super) async fn unreachable(config: &SmallageConfig, knock: &Knock) -> Finding {
    let place = place(config);
    let at = place.as_ref().map_or_else(|| "the store".to_owned(), |(host, port)| format!("{host}:{port}"));
    let error = match knock {
        Knock::Unready(error) => {
            return Finding::unusable(Aspect::Reach, error.to_string(), "mend the file, or the path to it");
        }
        Knock::Failed(error) => error,
    };
    let mut why = why(error);
    // The library gives what the resolver said as any other trouble of the network, so the resolver is asked again.
    if why == Why::Other
        && let Some((host, port)) = &place
        && tokio::net::lookup_host((host.as_str(), *port)).await.is_err()
    {
        why = Why::Name;
    }
    let said = match sort_error(error).0 {
        StoreError::Unavailable(said)
        | StoreError::NoWrites(said)
        | StoreError::Denied(said)
        | StoreError::Unexpected(said) => said,
        other => other.to_string(),
    };
    tell(&why, &at, &said, &user(config))
}

/// The connection was lost in the middle.
pub(super) fn lost(error: &StoreError) -> Finding {
    Finding::unusable(
        Aspect::Reach,
        format!("it broke off in the middle: {error}"),
        "try again; if it comes again, look at the server's log",
    )
}

/// The user that we are there.
pub(super) fn user(config: &SmallageConfig) -> String {
    if let Some(user) = &config.username {
        return user.clone();
    }
    let url = config.url.read().ok().and_then(|url| url::Url::parse(url.reveal()).ok());
    let named = url.and_then(|url| match url.username() {
        "" => url.query_pairs().find(|(name, _)| name == "user").map(|(_, user)| user.into_owned()),
        user => Some(user.to_owned()),
    });
    named.filter(|user| !user.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// Host and port, where there is one of each.
fn place(config: &SmallageConfig) -> Option<(String, u16)> {
    const USUAL_PORT: u16 = 6379;
    let url = config.url.read().ok()?;
    let url = url::Url::parse(url.reveal()).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    Some((host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(USUAL_PORT)))
}

fn why(error: &RedisError) -> Why {
    match error.code() {
        Some("WRONGPASS") => return Why::Password,
        Some("NOAUTH") => return Why::NoPassword,
        Some("NOPERM") => return Why::NoRights,
        Some("LOADING") => return Why::Loading,
        _ => {}
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return Why::Password;
    }
    // It says so in plain words, without a code.
    if error.detail().is_some_and(|detail| detail.contains("max number of clients")) {
        return Why::Full;
    }
    if let Some(flaw) = Flaw::of(error) {
        return Why::Tls(flaw);
    }
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionRefused) => Why::Refused,
        Some(io::ErrorKind::NotFound) => Why::NoSocket,
        Some(io::ErrorKind::PermissionDenied) => Why::Forbidden,
        Some(io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            Why::Silent
        }
        _ if error.is_timeout() => Why::Silent,
        _ if error.is_connection_dropped() => Why::HangsUp,
        _ => Why::Other,
    }
}

/// In words.
fn tell(why: &Why, at: &str, said: &str, user: &str) -> Finding {
    let (what, help) = match why {
        Why::Name => (
            "no address is known for its host".to_owned(),
            "mend the host's name in `url`, or the DNS of where Sexton runs (in another namespace: \
             HOST.NAMESPACE.svc)"
                .to_owned(),
        ),
        Why::Refused => (
            "the connection is refused: nothing listens there".to_owned(),
            "start Redis, or mend the port in `url`".to_owned(),
        ),
        Why::NoSocket => ("there is no such socket".to_owned(), "start Redis, or mend the path in `url`".to_owned()),
        Why::Forbidden => (
            "this user of the system may not use the socket".to_owned(),
            "give the socket wider rights (unixsocketperm)".to_owned(),
        ),
        Why::Silent => (
            "nothing comes back".to_owned(),
            "look whether a firewall or a NetworkPolicy drops the connection, and whether Redis hangs".to_owned(),
        ),
        Why::HangsUp => (
            "it closes new connections at once".to_owned(),
            "it may have reached its limit (maxclients), speak TLS (rediss://), or be no Redis".to_owned(),
        ),
        Why::Tls(flaw) => {
            let help = match flaw {
                Flaw::Expired => "renew it",
                Flaw::NotYet => "look at this machine's clock, or wait",
                Flaw::Issuer => "name the authority's file: tls: { ca: FILE }",
                Flaw::Name => "connect by a name that it is for, or have it made anew",
                Flaw::Certificate(_) => "have it made anew",
                Flaw::NoTls => "write redis:// in `url`, or name the port that speaks TLS",
                Flaw::Handshake(_) => "look whether it wants a client's certificate: tls: { cert: FILE, key: FILE }",
            };
            (flaw.said(), help.to_owned())
        }
        Why::Password => (
            format!("the user {user} or the password is wrong (WRONGPASS)"),
            "mend `username` and `password` of the source, or the user on Redis".to_owned(),
        ),
        Why::NoPassword => (
            "it wants a password (NOAUTH)".to_owned(),
            "give the source `username` and `password`, or `password_file`".to_owned(),
        ),
        Why::NoRights => (
            format!("the user {user} may not do what a connection begins with: {said}"),
            format!("if `url` ends with a database number: ACL SETUSER {user} +select"),
        ),
        Why::Full => (
            "it has reached its limit of clients (maxclients)".to_owned(),
            "raise maxclients, or find who opens so many connections (CLIENT LIST)".to_owned(),
        ),
        Why::Loading => (
            "it is still reading its data from disk (LOADING)".to_owned(),
            "wait until it has read all, and check again".to_owned(),
        ),
        Why::Other => (said.to_owned(), "look at the server's log, and at `url`".to_owned()),
    };
    Finding::unusable(Aspect::Reach, format!("{at} cannot be used: {what}"), help)
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;
    use crate::config::{Secret, SecretSource};

    fn config(url: &str) -> SmallageConfig {
        let url = SecretSource::Inline(Secret::new(url));
        SmallageConfig { url, namespace: "lrs".to_owned(), username: None, password: None, tls: None }
    }

    #[test]
    fn user_and_place_are_read_from_the_url_and_nothing_else_is() {
        for (url, expected, at) in [
            ("redis://h", "default", Some(("h", 6379))),
            ("redis://:hush@h:6380/2", "default", Some(("h", 6380))),
            ("redis://sexton:hush@[::1]:1", "sexton", Some(("::1", 1))),
            ("unix:///run/redis.sock?user=sexton&pass=hush", "sexton", None),
            ("unix:///run/redis.sock", "default", None),
        ] {
            let config = config(url);
            let place = place(&config);
            assert_eq!(user(&config), expected, "{url}");
            assert_eq!(place.as_ref().map(|(host, port)| (host.as_str(), *port)), at, "{url}");
        }
        let named = SmallageConfig { username: Some("anna".to_owned()), ..config("redis://sexton@h") };
        assert_eq!(user(&named), "anna");
    }

    #[test]
    fn an_error_of_the_library_has_its_reason() {
        let tls = |error: rustls::Error| RedisError::from(io::Error::other(error));
        let certificate = rustls::Error::InvalidCertificate;
        let io = |kind: io::ErrorKind| RedisError::from(io::Error::from(kind));
        let said = |code: &str| redis::make_extension_error(code.to_owned(), Some("it says".to_owned()));
        for (error, expected) in [
            (io(io::ErrorKind::ConnectionRefused), Why::Refused),
            (io(io::ErrorKind::NotFound), Why::NoSocket),
            (io(io::ErrorKind::PermissionDenied), Why::Forbidden),
            (io(io::ErrorKind::TimedOut), Why::Silent),
            (io(io::ErrorKind::UnexpectedEof), Why::HangsUp),
            (io(io::ErrorKind::ConnectionReset), Why::HangsUp),
            (tls(certificate(rustls::CertificateError::Expired)), Why::Tls(Flaw::Expired)),
            (tls(certificate(rustls::CertificateError::UnknownIssuer)), Why::Tls(Flaw::Issuer)),
            (tls(certificate(rustls::CertificateError::NotValidForName)), Why::Tls(Flaw::Name)),
            (
                RedisError::from(rustls::Error::HandshakeNotComplete),
                Why::Tls(Flaw::Handshake("handshake not complete".to_owned())),
            ),
            (RedisError::from((ErrorKind::AuthenticationFailed, "x")), Why::Password),
            (said("WRONGPASS"), Why::Password),
            (said("NOAUTH"), Why::NoPassword),
            (said("NOPERM"), Why::NoRights),
            (said("LOADING"), Why::Loading),
            (said("ODD"), Why::Other),
            (
                RedisError::from((
                    ErrorKind::Server(ServerErrorKind::ResponseError),
                    "x",
                    "max number of clients reached".to_owned(),
                )),
                Why::Full,
            ),
        ] {
            assert_eq!(why(&error), expected, "{error}");
            let finding = tell(&expected, "h:1", "it says", "sexton");
            assert!(finding.unusable && finding.help.is_some() && finding.message.starts_with("h:1 cannot be used: "));
        }
    }
}
