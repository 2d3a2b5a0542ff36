//! Who asks: bearer tokens, compared in constant time, from files that may change.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::task::spawn_blocking;

use super::problem::Problem;
use crate::{
    clock::monotonic,
    config::{SecretSource, TokenConfig, token_problem},
};

/// How long what a file holds is taken for true.
const FRESH: Duration = Duration::from_secs(1);
/// How the header begins.
const SCHEME: &str = "bearer ";

/// Who a request is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Somebody without a token.
    Anybody,
    /// The bearer of the token with this name.
    Bearer(String),
}

impl Caller {
    /// Whether payloads may be shown.
    pub(super) fn may_see_payloads(&self) -> bool {
        matches!(self, Caller::Bearer(_))
    }
}

/// The tokens that are known.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    name: String,
    secret: SecretSource,
    seen: Mutex<Option<Seen>>,
}

/// What a token was when it was looked at last: only its digest is kept.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    /// None if there was none that can be used.
    digest: Option<[u8; 32]>,
}

impl Tokens {
    pub(super) fn new(tokens: &[TokenConfig]) -> Tokens {
        let token = |token: &TokenConfig| Token {
            name: token.name.clone(),
            secret: token.secret.clone(),
            seen: Mutex::new(None),
        };
        Tokens(tokens.iter().map(token).collect())
    }

    /// Whether nobody can have one.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who sends these headers. A token that is not known is refused, also where none is needed: else a slip in it would
    /// go unnoticed.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(Caller::Anybody) };
        let given = value
            .to_str()
            .ok()
            .filter(|value| value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)));
        let given = given.map(|value| value[SCHEME.len()..].trim()).ok_or_else(|| Problem::unauthorized(true))?;
        let given: [u8; 32] = Sha256::digest(given).into();
        let mut bearer = None;
        // All are compared, so that the time tells nothing about any of them.
        for token in &self.0 {
            let known = token.digest().await;
            if bool::from(known.unwrap_or_default().ct_eq(&given)) && known.is_some() {
                bearer = Some(token.name.clone());
            }
        }
        bearer.map(Caller::Bearer).ok_or_else(|| Problem::unauthorized(true))
    }
}

impl Token {
    async fn digest(&self) -> Option<[u8; 32]> {
        let last = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = last.filter(|seen| self.never_changes() || seen.at.elapsed() < FRESH) {
            return seen.digest;
        }
        let secret = self.secret.clone();
        // A file system that hangs must hold up nobody but who asks.
        let read = spawn_blocking(move || {
            let token = secret.read().map_err(|error| error.to_string())?;
            match token_problem(token.reveal()) {
                None => Ok(<[u8; 32]>::from(Sha256::digest(token.reveal()))),
                Some(wrong) => Err(format!("the token {wrong}")),
            }
        });
        let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
        let had_one = last.is_none_or(|seen| seen.digest.is_some());
        match &read {
            Err(problem) if had_one => {
                tracing::warn!(token = self.name, problem, "a token cannot be used until its file is mended");
            }
            Ok(_) if !had_one => tracing::info!(token = self.name, "the token can be used again"),
            Ok(_) | Err(_) => {}
        }
        let digest = read.ok();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen { at: monotonic(), digest });
        digest
    }

    fn never_changes(&self) -> bool {
        matches!(self.secret, SecretSource::Inline(_))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::config::Secret;

    fn tokens(tokens: &[(&str, &str)]) -> Tokens {
        let token = |(name, secret): &(&str, &str)| TokenConfig {
            name: (*name).to_owned(),
            secret: SecretSource::Inline(Secret::new(*secret)),
        };
        Tokens::new(&tokens.iter().map(token).collect::<Vec<_>>())
    }

    async fn who(tokens: &Tokens, header: Option<&str>) -> Option<Caller> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(header).unwrap());
        }
        tokens.caller(&headers).await.ok()
    }

    #[tokio::test]
    async fn who_has_a_token_is_known_by_its_name() {
        let two = tokens(&[("default", "0123456789abcdef"), ("ci", "another-0123456789")]);
        let bearer = |name: &str| Some(Caller::Bearer(name.to_owned()));
        for (header, expected) in [
            (None, Some(Caller::Anybody)),
            (Some("Bearer 0123456789abcdef"), bearer("default")),
            (Some("bearer  another-0123456789"), bearer("ci")),
            (Some("Bearer 0123456789abcdeF"), None),
            (Some("Bearer 0123456789abcde"), None),
            (Some("Bearer "), None),
            (Some("Bearer"), None),
            (Some("Basic 0123456789abcdef"), None),
            (Some("0123456789abcdef"), None),
        ] {
            assert_eq!(who(&two, header).await, expected, "{header:?}");
        }
        assert_eq!(who(&tokens(&[]), Some("Bearer 0123456789abcdef")).await, None);
        assert_eq!(who(&tokens(&[("short", "hunter2")]), Some("Bearer hunter2")).await, None, "too short to be used");
    }
}
