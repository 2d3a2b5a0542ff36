//! Sorts what Redis and its client say went wrong by what is to be done about it.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use rustls::{AlertDescription, CertificateError};

use crate::ledger::StoreError;

/// What the refusal of another database than 0 begins with.
pub(super) const DATABASE: &str = "it refuses database";
/// Codes that may come wrapped in the text of an `ERR` line when a script met them.
const WRAPPED: [&str; 9] =
    ["OOM", "READONLY", "MISCONF", "NOPERM", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY"];

/// The error for our caller, and whether the connection is still good.
pub(super) fn sort_error(error: &RedisError) -> (StoreError, bool) {
    let code = code_of(error);
    let said = match error.detail() {
        Some(detail) => format!("{} {detail}", code.unwrap_or_else(|| error.category())),
        None => error.to_string(),
    };
    match code {
        Some("OOM" | "MISCONF" | "NOREPLICAS") => return (StoreError::NoWrites(said), true),
        // The server has become a replica: the new primary is found by connecting anew.
        Some("READONLY") => return (StoreError::NoWrites(said), false),
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => return (StoreError::Denied(said), false),
        // The slot is elsewhere: the right node is found by connecting anew.
        Some("MOVED") => return (StoreError::Unavailable(said), false),
        // Half of the slot is elsewhere, and nothing was done: it is waited for until all of it is.
        Some("ASK" | "TRYAGAIN") => {
            return (StoreError::Unavailable(format!("the slot moves to another node: {said}")), false);
        }
        Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "UNBLOCKED") => {
            return (StoreError::Unavailable(said), false);
        }
        _ => {}
    }
    match error.kind() {
        // The client keeps no code here: the server has said WRONGPASS.
        ErrorKind::AuthenticationFailed => {
            (StoreError::Denied("wrong user name or password (WRONGPASS)".to_owned()), false)
        }
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => (StoreError::Unavailable(said), false),
        // "max number of clients reached" comes as a plain ERR, and the server closes the connection after it.
        ErrorKind::Server(ServerErrorKind::ResponseError) if said.contains("max number of clients") => {
            (StoreError::Unavailable(said), false)
        }
        _ if error.is_unrecoverable_error() => (StoreError::Unavailable(said), false),
        _ => (StoreError::Unexpected(said), true),
    }
}

/// What is wrong with TLS, if that is what is wrong.
pub(super) fn of_tls(error: &RedisError) -> Option<String> {
    // The client keeps its cause in an `Arc`, and that is what it shows.
    let cause = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let io = cause.downcast_ref::<io::Error>()?;
    let why = match io.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(wrong) => of_certificate(wrong),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => "it wants a client certificate (tls: cert, key)".to_owned(),
            AlertDescription::HandshakeFailure => {
                "it refuses the handshake; it may want a client certificate (tls: cert, key)".to_owned()
            }
            alert => format!("it does not take our client certificate ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => "it speaks no TLS; write redis instead of rediss in the URL".to_owned(),
        other => format!("TLS: {other}"),
    };
    Some(why)
}

fn of_certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by no authority that we trust (tls: ca)".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // `DnsName("redis.internal")`, `IpAddress(10.0.0.1)`.
            let bare = |name: &String| {
                let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
                inner.trim_matches('"').to_owned()
            };
            let names = presented.iter().map(bare).collect::<Vec<_>>().join(", ");
            let names = if names.is_empty() { "no name" } else { &names };
            format!("its certificate is for {names}, and not for {} (tls: server_name)", expected.to_str())
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet".to_owned()
        }
        other => format!("its certificate cannot be trusted: {other}"),
    }
}

fn code_of(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    if code != "ERR" {
        return Some(code);
    }
    let detail = error.detail().unwrap_or_default();
    WRAPPED
        .into_iter()
        .find(|wrapped| detail.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == *wrapped))
        .or(Some(code))
}
