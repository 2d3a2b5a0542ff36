//! What stands around every request of the API: how many at the same time, how long each, who asks; and how problems
//! and headers leave.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{
    Api,
    problem::{MEDIA_TYPE, Problem},
    token::Caller,
};
use crate::ledger::By;

/// Requests at the same time. Few, so that their answers fit into memory beside everything else.
pub(super) const TOGETHER: usize = 16;
/// Of these, requests that may look through a whole DLQ.
pub(super) const SEARCHES_TOGETHER: usize = 2;
/// Of these, requests that are answered with a whole entry, however large.
pub(super) const LARGE_TOGETHER: usize = 2;
/// How long a request may take, its answer's way to the client apart.
const LONGEST: Duration = Duration::from_secs(30);
/// Below so many free places for connections, a connection ends with its answer.
const PLACES_KEPT: usize = 24;

/// Lets a request through if there is room, for so long, and with who sent it.
pub(super) async fn guard(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let Ok(_place) = api.places.try_acquire() else { return Problem::busy().into_response() };
    let answer = async {
        match api.tokens.caller(request.headers()).await {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        }
    };
    let mut response =
        tokio::time::timeout(LONGEST, answer).await.unwrap_or_else(|_| Problem::took_too_long().into_response());
    // What is shown may be a secret, and is different a moment later.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if api.connections.available_permits() < PLACES_KEPT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Renders problems, and adds what every answer carries.
pub(in crate::http) async fn finish(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let is_head = request.method() == Method::HEAD;
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let mut rendered = problem.render(&path);
        for (name, value) in std::mem::take(response.headers_mut()) {
            // Of the headers that were there, those of the length are of the body that is replaced.
            if let Some(name) = name.filter(|name| name != header::CONTENT_LENGTH) {
                rendered.headers_mut().entry(name).or_insert(value);
            }
        }
        response = rendered;
    }
    if is_head {
        *response.body_mut() = axum::body::Body::empty();
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    debug_assert!(!response.status().is_client_error() || response.headers()[header::CONTENT_TYPE] == MEDIA_TYPE);
    response
}

/// There is nothing under this path.
pub(in crate::http) async fn nowhere() -> Response {
    Problem::not_found("there is nothing here; /api/v1/openapi.json tells what there is").into_response()
}

/// The path is right and the method is not. Which there are is added by the router.
pub(in crate::http) async fn other_method(request: Request) -> Response {
    match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        ref other => Problem::method(other.as_str()).into_response(),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Problem> {
        Ok(parts.extensions.get().cloned().unwrap_or(Caller::Anybody))
    }
}

/// Somebody who may change something.
pub(super) struct Bearer(String);

impl Bearer {
    /// As the audit log has it.
    pub(super) fn by(self, note: String) -> By {
        By { who: format!("token:{}", self.0), note, operation: String::new() }
    }
}

impl FromRequestParts<Arc<Api>> for Bearer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Bearer, Problem> {
        match Caller::from_request_parts(parts, api).await? {
            Caller::Bearer(name) => Ok(Bearer(name)),
            Caller::Anybody if api.tokens.is_empty() => Err(Problem::read_only()),
            Caller::Anybody => Err(Problem::unauthorized(false)),
        }
    }
}
