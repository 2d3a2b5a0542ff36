//! The query of a request: known parameters only, each checked, everything that is wrong told at once.

use std::time::Duration;

use axum::{
    extract::FromRequestParts,
    http::{Uri, request::Parts},
};
use url::form_urlencoded;
use utoipa::{IntoParams, ToSchema, openapi::path::Parameter};

use super::problem::{Problem, Wrong};
use crate::{config::nearest_or_all, triage::FilterSpec};

/// Parameters of a query at most.
const MOST: usize = 200;
/// What one value may have, in bytes.
const LONGEST: usize = 4_096;

/// The parameters of a query, as they are read.
pub(super) struct Params {
    given: Vec<(String, String)>,
    wrong: Vec<Wrong>,
}

/// A query that can be read from parameters; its documentation names them.
pub(super) trait FromParams: Sized {
    /// Their names.
    fn names() -> Vec<String>;
    /// Reads them.
    fn read(params: &mut Params) -> Self;
}

/// A query that was read.
pub(super) struct Query<T>(pub(super) T);

/// A query without any parameters.
pub(super) struct Nothing;

impl<T: FromParams, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, Problem> {
        read(&parts.uri).map(Query)
    }
}

fn read<T: FromParams>(uri: &Uri) -> Result<T, Problem> {
    let names = T::names();
    let mut params = Params { given: Vec::new(), wrong: Vec::new() };
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if params.given.len() == MOST {
            params.wrong(&name, format!("there are more than {MOST} parameters"));
            break;
        }
        if names.iter().any(|known| *known == name) {
            if value.len() > LONGEST {
                params.wrong(&name, format!("it is longer than {LONGEST} bytes"));
            }
            params.given.push((name.into_owned(), value.into_owned()));
        } else {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let help = match &*known {
                [] => "none is known here".to_owned(),
                _ => nearest_or_all(&name, &known, "parameters"),
            };
            params.wrong(&name, format!("there is no such parameter; {help}"));
        }
    }
    let read = T::read(&mut params);
    if params.wrong.is_empty() { Ok(read) } else { Err(Problem::invalid(params.wrong)) }
}

impl Params {
    /// Notes that a parameter is wrong.
    pub(super) fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        self.wrong.push(Wrong::in_query(name, detail));
    }

    /// All values of a parameter that may be given many times.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.given.iter().filter(|(given, _)| given == name).map(|(_, value)| value.clone()).collect()
    }

    /// The value of a parameter that may be given once.
    pub(super) fn one(&mut self, name: &str) -> Option<String> {
        let mut values = self.all(name);
        if values.len() > 1 {
            self.wrong(name, "it is given more than once");
        }
        values.pop()
    }

    /// A number in a range, both ends included.
    pub(super) fn number(&mut self, name: &str, min: usize, max: usize, default: usize) -> usize {
        let Some(text) = self.one(name) else { return default };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) && text.bytes().all(|byte| byte.is_ascii_digit()) => number,
            _ => {
                self.wrong(name, format!("expected a whole number from {min} to {max}"));
                default
            }
        }
    }

    /// A duration.
    fn duration(&mut self, name: &str) -> Option<Duration> {
        let text = self.one(name)?;
        let duration = parse_duration(&text);
        if duration.is_none() {
            self.wrong(name, "expected a duration; write it like 90s, 24h or 7d");
        }
        duration
    }
}

/// A duration with its unit, also where it is 0.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|_| text.ends_with(|last: char| last.is_ascii_alphabetic()))
}

/// The names that a documented query has.
pub(super) fn names_of<T: IntoParams>() -> Vec<String> {
    T::into_params(|| None).into_iter().map(|Parameter { name, .. }| name).collect()
}

impl FromParams for Nothing {
    fn names() -> Vec<String> {
        Vec::new()
    }

    fn read(_: &mut Params) -> Nothing {
        Nothing
    }
}

impl<A: FromParams, B: FromParams> FromParams for (A, B) {
    fn names() -> Vec<String> {
        A::names().into_iter().chain(B::names()).collect()
    }

    fn read(params: &mut Params) -> (A, B) {
        (A::read(params), B::read(params))
    }
}

/// Which entries are meant; every given condition must hold, and of a parameter that is given many times any may.
#[derive(Clone, Debug, Default, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it documents what FilterQuery reads")]
pub(super) struct FilterParams {
    /// Globs on the source's name.
    source: Vec<String>,
    /// Globs on the queue's name.
    queue: Vec<String>,
    /// Globs on the task's name.
    #[param(example = json!(["send_*"]))]
    task: Vec<String>,
    /// Why it was buried, as the framework names it.
    reason: Vec<String>,
    /// Groups, 12 hexadecimal digits each.
    group: Vec<String>,
    /// Regular expression on `Type: message`.
    error: Option<String>,
    /// Died longer ago than this, such as `24h`.
    older_than: Option<String>,
    /// Died within this time, such as `7d`.
    newer_than: Option<String>,
}

/// The filter of a query.
pub(super) struct FilterQuery(pub(super) FilterSpec);

impl FromParams for FilterQuery {
    fn names() -> Vec<String> {
        names_of::<FilterParams>()
    }

    fn read(params: &mut Params) -> FilterQuery {
        let spec = FilterSpec {
            source: params.all("source"),
            queue: params.all("queue"),
            task: params.all("task"),
            reason: params.all("reason"),
            group: params.all("group"),
            error: params.one("error"),
            older_than: params.duration("older_than"),
            newer_than: params.duration("newer_than"),
        };
        if let Err(error) = spec.compile() {
            params.wrong(error.field, error.problem);
        }
        FilterQuery(spec)
    }
}

/// One page of a listing.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Items at most.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub(super) limit: Option<usize>,
    /// List on from here: the `next_cursor` of an earlier page.
    pub(super) after: Option<String>,
}

impl PageQuery {
    /// Items at most, without a limit given.
    const DEFAULT: usize = 50;
    /// And whatever was given.
    pub(super) const MOST: usize = 1_000;

    /// Items at most.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(PageQuery::DEFAULT)
    }
}

impl FromParams for PageQuery {
    fn names() -> Vec<String> {
        names_of::<PageQuery>()
    }

    fn read(params: &mut Params) -> PageQuery {
        let limit = params.number("limit", 1, PageQuery::MOST, PageQuery::DEFAULT);
        // A first page goes on from nowhere.
        PageQuery { limit: Some(limit), after: params.one("after").filter(|after| !after.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(query: &str) -> Vec<(String, String)> {
        let uri: Uri = format!("/api/v1/dead-letters?{query}").parse().unwrap();
        let Err(problem) = read::<(FilterQuery, PageQuery)>(&uri) else { return Vec::new() };
        let problem = serde_json::to_value(&problem).unwrap();
        let errors = problem["errors"].as_array().unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        errors.iter().map(|error| (text(&error["parameter"]), text(&error["detail"]))).collect()
    }

    #[test]
    fn a_query_is_read_whole_or_everything_wrong_with_it_is_told() {
        assert_eq!(wrong("task=a*&task=b&limit=1000&older_than=1h&error=x%2B&after="), []);
        for (query, expected) in [
            ("tsak=a", ("tsak", "there is no such parameter; did you mean \"task\"?")),
            ("limit=0", ("limit", "expected a whole number from 1 to 1000")),
            ("limit=%2B5", ("limit", "expected a whole number from 1 to 1000")),
            ("limit=5&limit=5", ("limit", "it is given more than once")),
            ("older_than=0", ("older_than", "expected a duration; write it like 90s, 24h or 7d")),
            ("older_than=old", ("older_than", "expected a duration; write it like 90s, 24h or 7d")),
            ("group=abc", ("group", "\"abc\" is no group; a group is 12 hexadecimal digits")),
        ] {
            let expected = (expected.0.to_owned(), expected.1.to_owned());
            assert_eq!(wrong(query), [expected], "{query}");
        }
        let names: Vec<String> = wrong("x=1&limit=x&error=(").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x", "error", "limit"]);
        assert_eq!(wrong(&"task=a&".repeat(201)).len(), 1);
    }
}
