//! Bulk operations: asked for, looked at, cancelled. The leader of each source works them off.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{FromRequestParts, Path, State},
    http::{HeaderName, StatusCode, header, request::Parts},
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    Api,
    body::{Json, checked_note, object},
    guard::Bearer,
    problem::{Problem, Wrong, of_filter},
    query::{FromParams, Nothing, PageQuery, Params, Query, names_of},
};
use crate::{
    ledger::Act,
    triage::{self, FilterSpec, OperationShown, Page, Request},
};

/// Entries a second at most, where a pace is given.
const FASTEST: u32 = 100_000;

/// What is to be done, and to which entries.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({
    "filter": {"task": ["send_*"], "error": "(?i)timed? ?out"}, "per_second": 20, "note": "smtp is back"
}))]
pub(super) struct BulkBody {
    /// Which entries: those that were there when the operation was asked for.
    #[serde(deserialize_with = "object")]
    filter: FilterSpec,
    /// All entries are meant; needed where the filter names nothing but sources.
    all: bool,
    /// Count only: nothing is changed, and `matched` tells how many it would be.
    dry_run: bool,
    /// At most so many entries a second; as fast as goes without it.
    #[schema(minimum = 1, maximum = 100_000)]
    per_second: Option<u32>,
    /// Why, for the audit log.
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    note: String,
}

impl BulkBody {
    fn wrong(&self, act: Act) -> Vec<Wrong> {
        let mut wrong: Vec<Wrong> = self.filter.compile().err().iter().map(of_filter).collect();
        if self.filter.is_empty() && !self.all && act != Act::Purge {
            wrong.push(Wrong::at("/filter", "it passes every entry: narrow it down, or give all: true"));
        }
        if act == Act::Purge && self.filter.older_than.is_none() {
            wrong.push(Wrong::at("/filter/older_than", "a purge is by age: give one, such as 7d"));
        }
        if self.per_second.is_some_and(|per_second| !(1..=FASTEST).contains(&per_second)) {
            wrong.push(Wrong::at("/per_second", format!("give 1 to {FASTEST}, or leave it out")));
        }
        wrong.extend(checked_note(&self.note).err().map(|detail| Wrong::at("/note", detail)));
        wrong
    }
}

/// The answer to what was asked for: one operation for each source.
type Begun = (StatusCode, [(HeaderName, String); 1], Answer<Page<OperationShown>>);

async fn begin(api: &Api, bearer: Bearer, act: Act, body: BulkBody) -> Result<Begun, Problem> {
    let wrong = body.wrong(act);
    if !wrong.is_empty() {
        return Err(Problem::invalid(wrong));
    }
    let sources = api.sources_of(&body.filter)?;
    let by = bearer.by(body.note);
    let mut items: Vec<OperationShown> = Vec::new();
    for ledger in sources {
        let request = Request {
            act,
            filter: body.filter.clone(),
            by: by.clone(),
            dry_run: body.dry_run,
            per_second: body.per_second,
        };
        match triage::begin(ledger, request, fastrand::u32(..)).await {
            Ok(begun) => items.push(begun),
            Err(error) if items.is_empty() => return Err(error.into()),
            Err(error) => {
                let ids: Vec<&str> = items.iter().map(|begun| begun.id.as_str()).collect();
                return Err(Problem::from(error).and(&format!("begun already: {}", ids.join(", "))));
            }
        }
    }
    api.asked();
    let location = match &*items {
        [only] => format!("/api/v1/operations/{}", only.id),
        _ => "/api/v1/operations".to_owned(),
    };
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Answer(Page { items, next_cursor: None })))
}

/// Retry many dead letters
///
/// Those that the filter passes, whatever their age, in every source that it names.
#[utoipa::path(post, operation_id = "retryDeadLetters", path = "/dead-letters:retry", tag = "operations", security(("bearer" = [])),
    request_body = BulkBody,
    responses((status = 202, description = "An operation for each source", body = Page<OperationShown>,
        headers(("Location" = String, description = "Where to look how far it has come")))))]
pub(super) async fn retry(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    _: Query<Nothing>,
    Json(body): Json<BulkBody>,
) -> Result<Begun, Problem> {
    begin(&api, bearer, Act::Retry, body).await
}

/// Remove many dead letters
///
/// Those that the filter passes, for good, with a line in the audit log each.
#[utoipa::path(post, operation_id = "deleteDeadLetters", path = "/dead-letters:delete", tag = "operations", security(("bearer" = [])),
    request_body = BulkBody,
    responses((status = 202, description = "An operation for each source", body = Page<OperationShown>,
        headers(("Location" = String, description = "Where to look how far it has come")))))]
pub(super) async fn delete(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    _: Query<Nothing>,
    Json(body): Json<BulkBody>,
) -> Result<Begun, Problem> {
    begin(&api, bearer, Act::Delete, body).await
}

/// Remove old dead letters
///
/// Those that are older than `filter.older_than`, which must be given, for good. The audit log gets a line for each
/// piece, and `dlq.purged` tells of the whole.
#[utoipa::path(post, operation_id = "purgeDeadLetters", path = "/dead-letters:purge", tag = "operations", security(("bearer" = [])),
    request_body = BulkBody,
    responses((status = 202, description = "An operation for each source", body = Page<OperationShown>,
        headers(("Location" = String, description = "Where to look how far it has come")))))]
pub(super) async fn purge(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    _: Query<Nothing>,
    Json(body): Json<BulkBody>,
) -> Result<Begun, Problem> {
    begin(&api, bearer, Act::Purge, body).await
}

/// How many operations.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LimitQuery {
    /// Items at most.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

impl LimitQuery {
    /// Items at most.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(50)
    }
}

impl FromParams for LimitQuery {
    fn names() -> Vec<String> {
        names_of::<LimitQuery>()
    }

    fn read(params: &mut Params) -> LimitQuery {
        LimitQuery { limit: Some(params.number("limit", 1, PageQuery::MOST, 50)) }
    }
}

/// List operations
///
/// Of the last days, the newest first.
#[utoipa::path(get, operation_id = "listOperations", path = "/operations", tag = "operations", params(LimitQuery),
    responses((status = 200, description = "The operations", body = Page<OperationShown>)))]
pub(super) async fn operations(
    State(api): State<Arc<Api>>,
    Query(query): Query<LimitQuery>,
) -> Result<Answer<Page<OperationShown>>, Problem> {
    let items = triage::operations(&api.sources(), query.limit()).await?;
    Ok(Answer(Page { items, next_cursor: None }))
}

/// The operation that a path names.
pub(super) struct Id(String);

impl FromRequestParts<Arc<Api>> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Id, Problem> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        let Path(id) = path.map_err(|_| Problem::not_found("this path is no text"))?;
        // What else is no id must not become part of a key.
        match !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            true => Ok(Id(id)),
            false => Err(no_operation(&id)),
        }
    }
}

fn no_operation(id: &str) -> Problem {
    Problem::not_found(format!("there is no operation {id:?}; they are kept for some days"))
}

/// Look how far an operation has come
#[utoipa::path(get, operation_id = "getOperation", path = "/operations/{id}", tag = "operations", params(OperationPath),
    responses((status = 200, description = "The operation", body = OperationShown)))]
pub(super) async fn operation(
    State(api): State<Arc<Api>>,
    Id(id): Id,
    _: Query<Nothing>,
) -> Result<Answer<OperationShown>, Problem> {
    let mut trouble = None;
    for ledger in api.sources() {
        match triage::operation(ledger, &id).await {
            Ok(Some(found)) => return Ok(Answer(found)),
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
    }
    Err(trouble.map_or_else(|| no_operation(&id), Problem::from))
}

/// Cancel an operation
///
/// It stops after the piece under way; what was done stays done. One that has ended stays as it ended.
#[utoipa::path(post, operation_id = "cancelOperation", path = "/operations/{id}/cancel", tag = "operations", params(OperationPath),
    security(("bearer" = [])),
    responses((status = 200, description = "The operation as it is now", body = OperationShown)))]
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    Id(id): Id,
    _: Query<Nothing>,
) -> Result<Answer<OperationShown>, Problem> {
    let (by, mut trouble) = (bearer.by(String::new()), None);
    for ledger in api.sources() {
        match triage::cancel(ledger, &id, &by).await {
            Ok(Some(cancelled)) => return Ok(Answer(cancelled)),
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
    }
    Err(trouble.map_or_else(|| no_operation(&id), Problem::from))
}

/// Which operation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it documents what Id reads")]
pub(super) struct OperationPath {
    /// Its id.
    id: String,
}
