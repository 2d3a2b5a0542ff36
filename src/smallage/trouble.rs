//! Sorts what Redis and its client say went wrong by what is to be done about it.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::ledger::StoreError;

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
        Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "TRYAGAIN" | "UNBLOCKED") => {
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
