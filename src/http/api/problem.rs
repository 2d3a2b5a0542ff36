//! What a request is answered that cannot be served: problem documents (RFC 9457), which say what to do.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    ledger::StoreError,
    triage::{Error, FilterError},
};

/// Their media type.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// What the type of a problem begins with.
const TYPE: &str = "urn:sexton:problem:";
/// When to ask again while a store is in trouble, or this port busy.
const ASK_AGAIN: u32 = 5;
const ASK_AGAIN_SOON: u32 = 1;

/// A problem document (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "type": "urn:sexton:problem:invalid-request", "title": "Invalid request", "status": 400,
    "detail": "the filter cannot be used; see errors", "instance": "/api/v1/dead-letters:retry",
    "errors": [{"detail": "there is no reason \"dead\"", "pointer": "/filter/reason"}]
}))]
pub(super) struct Problem {
    /// What kind of problem it is.
    #[serde(rename = "type")]
    kind: String,
    /// The same in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong here, and what to do about it.
    detail: String,
    /// The path that was asked for.
    instance: String,
    /// What is wrong, one by one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<Wrong>,
    /// Why a retry was refused, by its name in metrics and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'static str>,
    #[serde(skip)]
    headers: Vec<(header::HeaderName, String)>,
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Wrong {
    /// What, and what to do about it.
    pub(super) detail: String,
    /// Where in the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pointer: Option<String>,
    /// In which parameter of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameter: Option<String>,
}

impl Wrong {
    /// In the body.
    pub(super) fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Wrong {
        Wrong { detail: detail.into(), pointer: Some(pointer.into()), parameter: None }
    }

    /// In the query.
    pub(super) fn in_query(parameter: impl Into<String>, detail: impl Into<String>) -> Wrong {
        Wrong { detail: detail.into(), pointer: None, parameter: Some(parameter.into()) }
    }
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("{TYPE}{kind}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            instance: String::new(),
            errors: Vec::new(),
            refusal: None,
            headers: Vec::new(),
        }
    }

    fn with(mut self, name: header::HeaderName, value: impl ToString) -> Problem {
        self.headers.push((name, value.to_string()));
        self
    }

    /// 400.
    pub(super) fn invalid(errors: Vec<Wrong>) -> Problem {
        let detail = match &*errors {
            [only] => match only.parameter.as_ref().or(only.pointer.as_ref()) {
                Some(place) if !place.is_empty() => format!("{place}: {}", only.detail),
                _ => only.detail.clone(),
            },
            several => format!("{} things are wrong; see errors", several.len()),
        };
        Problem { errors, ..Problem::new(StatusCode::BAD_REQUEST, "invalid-request", "Invalid request", detail) }
    }

    /// 401: a token is needed, or the one given is not known.
    pub(super) fn unauthorized(given: bool) -> Problem {
        let (detail, challenge) = match given {
            true => ("this token is not known here", "Bearer realm=\"sexton\", error=\"invalid_token\""),
            false => ("send a token: Authorization: Bearer TOKEN", "Bearer realm=\"sexton\""),
        };
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized", detail)
            .with(header::WWW_AUTHENTICATE, challenge)
    }

    /// 403: no token is configured, so nothing can be changed.
    pub(super) fn read_only() -> Problem {
        let detail = "this API only reads: no token is configured; set http.token_file or http.tokens";
        Problem::new(StatusCode::FORBIDDEN, "read-only", "Read only", detail)
    }

    /// 404.
    pub(super) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// 405. Which methods there are is in `Allow`.
    pub(super) fn method(method: &str) -> Problem {
        let detail = format!("{method} cannot be used here; the header Allow says what can");
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
    }

    /// 408.
    pub(super) fn slow_body() -> Problem {
        let detail = "the body did not arrive in time; send it at once";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", "Request timeout", detail)
    }

    /// 409: it was not done, for this reason.
    pub(super) fn refused(refusal: &'static str, detail: impl Into<String>) -> Problem {
        let refused = Problem::new(StatusCode::CONFLICT, "refused", "Refused", detail);
        Problem { refusal: Some(refusal), ..refused }
    }

    /// 413.
    pub(super) fn too_large(most: usize) -> Problem {
        let detail = format!("the body is larger than {most} bytes; a filter needs far less");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
    }

    /// 415.
    pub(super) fn media_type() -> Problem {
        let detail = "send JSON, with Content-Type: application/json";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unsupported media type", detail)
    }

    /// 429.
    pub(super) fn busy() -> Problem {
        let detail = "too many requests at the same time; ask again, one after the other";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "Too many requests", detail)
            .with(header::RETRY_AFTER, ASK_AGAIN_SOON)
    }

    /// 500.
    fn internal(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", detail)
    }

    /// 503: it took too long.
    pub(super) fn took_too_long() -> Problem {
        let detail = "this took too long: the store is slow, or there is much to look at; narrow it down, with \
                      newer_than for instance";
        Problem::unavailable("timeout", "Timeout", detail)
    }

    fn unavailable(kind: &str, title: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, kind, title, detail).with(header::RETRY_AFTER, ASK_AGAIN)
    }

    /// 503, or 500 where nobody foresaw it.
    pub(super) fn store(source: &str, error: &StoreError) -> Problem {
        let detail = format!("source {source}: {error}");
        match error {
            StoreError::Unavailable(_) | StoreError::NoWrites(_) | StoreError::Denied(_) => {
                Problem::unavailable("store", "Store in trouble", detail)
            }
            StoreError::Fenced | StoreError::Moved => Problem::unavailable("contended", "Contended", detail),
            StoreError::Unexpected(_) => Problem::internal(detail),
        }
    }

    /// The same with more to say.
    pub(super) fn and(mut self, more: &str) -> Problem {
        self.detail.push_str("; ");
        self.detail.push_str(more);
        self
    }

    /// As it is sent, for a request of this path.
    pub(super) fn render(mut self, path: &str) -> Response {
        path.clone_into(&mut self.instance);
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response();
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl IntoResponse for Problem {
    /// Without a body yet: whoever knows the request renders it.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        match error {
            Error::Store { of, error } => Problem::store(&of, &error),
            Error::Cursor(text, why) => Problem::invalid(vec![Wrong::in_query("after", format!("{text:?} {why}"))]),
            Error::Contended(_) => Problem::unavailable("contended", "Contended", error.to_string()),
        }
    }
}

/// A filter in the body is wrong.
pub(super) fn of_filter(error: &FilterError) -> Wrong {
    Wrong::at(format!("/filter/{}", error.field), error.problem.clone())
}
