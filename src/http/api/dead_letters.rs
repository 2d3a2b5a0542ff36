//! Single dead letters: listed, shown, explained, retried, removed.

use std::{sync::Arc, time::Duration};

use axum::{
    Json as Answer,
    extract::{FromRequestParts, Path, State},
    http::request::Parts,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::{
    Api,
    body::{Json, checked_note},
    guard::Bearer,
    problem::{Problem, Wrong},
    query::{FilterQuery, FromParams, Nothing, PageQuery, Params, Query, names_of},
    token::Caller,
};
use crate::{
    clock::monotonic,
    event::JobDead,
    ledger::{Act, By, SourceLedger},
    triage::{self, Account, Ask, Cursor, Deaths, Doing, Exact, Listing, Looked, Outcome, Page},
};

/// How long a listing looks for entries. What it has found by then it gives, with where to go on.
const LOOKS_FOR: Duration = Duration::from_secs(5);
/// What the texts of a page weigh at most, about.
const HEAVIEST_PAGE: usize = 4 << 20;

/// The entry that a path names.
pub(super) struct Entry {
    ledger: Arc<dyn SourceLedger>,
    id: String,
}

impl FromRequestParts<Arc<Api>> for Entry {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Entry, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, api).await;
        let Path((source, id)) = path.map_err(|_| Problem::not_found("this path is no text"))?;
        let ledger = Arc::clone(api.source(&source)?);
        if !ledger.is_entry_id(&id) {
            let detail = format!("{id:?} is no entry; entries are named as /api/v1/dead-letters lists them");
            return Err(Problem::not_found(detail));
        }
        Ok(Entry { ledger, id })
    }
}

impl Entry {
    fn gone(&self) -> Problem {
        let detail = format!("entry {} is not in the DLQ of {}", self.id, self.ledger.name());
        Problem::not_found(detail).and("its /explain tells what became of it")
    }
}

/// List dead letters
///
/// Newest first, one source after the other. A request looks for some seconds at most: there may be fewer items than
/// asked for, even none, and still a `next_cursor`. Pages neither skip nor repeat while entries come and go.
#[utoipa::path(get, operation_id = "listDeadLetters", path = "/dead-letters", tag = "dead letters", params(super::query::FilterParams, PageQuery),
    responses((status = 200, description = "A page of dead letters", body = Page<JobDead>)))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Query((FilterQuery(spec), page)): Query<(FilterQuery, PageQuery)>,
) -> Result<Answer<Page<JobDead>>, Problem> {
    let sources = api.sources_of(&spec)?;
    let filter = spec.compile().map_err(|error| Problem::invalid(vec![Wrong::in_query(error.field, error.problem)]))?;
    let after = page.after.as_deref().map(|after| Cursor::parse(after, &sources)).transpose()?;
    let rules = api.rules();
    let ask = Ask { limit: page.limit() as u64, after, offset: 0 };
    let mut listing = Listing::new(&sources, &filter, &rules, ask);
    let (began, mut weight, mut items) = (monotonic(), 0, Vec::new());
    while let Some(piece) = listing.next().await? {
        for listed in piece {
            weight += weight_of(&listed.job);
            items.push(listed.job);
        }
        if weight > HEAVIEST_PAGE || began.elapsed() > LOOKS_FOR {
            break;
        }
    }
    Ok(Answer(Page { items, next_cursor: listing.resume() }))
}

fn weight_of(job: &JobDead) -> usize {
    let texts = [&job.task, &job.queue, &job.reason, &job.error.kind, &job.error.message, &job.traceparent];
    texts.into_iter().flatten().map(String::len).sum::<usize>() + 512
}

/// Show one dead letter
///
/// Everything about it. Its payload, and its record as stored, are shown only to who has a token.
#[utoipa::path(get, operation_id = "getDeadLetter", path = "/dead-letters/{source}/{entry}", tag = "dead letters", params(EntryPath),
    security((), ("bearer" = [])),
    responses((status = 200, description = "The dead letter", body = Exact<'static>)))]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    entry: Entry,
    caller: Caller,
    _: Query<Nothing>,
) -> Result<Response, Problem> {
    let _place = api.large().await;
    let shown = triage::show(&*entry.ledger, &entry.id).await?.ok_or_else(|| entry.gone())?;
    let with_payload = caller.may_see_payloads();
    // A payload of megabytes takes its time to be laid out, in which everything else goes on.
    let laid_out = spawn_blocking(move || Answer(shown.exact(with_payload)).into_response()).await;
    // It only does not come back where the process is about to end.
    laid_out.map_err(|_| Problem::took_too_long())
}

/// List every failed attempt
///
/// Of the job of this dead letter, over all its deaths that are in the DLQ.
#[utoipa::path(get, operation_id = "getErrors", path = "/dead-letters/{source}/{entry}/errors", tag = "dead letters", params(EntryPath),
    responses((status = 200, description = "The deaths of the job, oldest first", body = Deaths)))]
pub(super) async fn errors(
    State(api): State<Arc<Api>>,
    entry: Entry,
    _: Query<Nothing>,
) -> Result<Answer<Deaths>, Problem> {
    let _search = api.search()?;
    let deaths = triage::deaths_of_entry(&*entry.ledger, &entry.id, &mut |_| {}).await?;
    deaths.map(Answer).ok_or_else(|| entry.gone())
}

/// Explain why it was or was not retried
///
/// And what happens next. Also of an entry that has left the DLQ, as far as the audit log reaches.
#[utoipa::path(get, operation_id = "explain", path = "/dead-letters/{source}/{entry}/explain", tag = "dead letters", params(EntryPath),
    responses((status = 200, description = "One sentence, and the facts behind it", body = Account)))]
pub(super) async fn explain(
    State(api): State<Arc<Api>>,
    entry: Entry,
    _: Query<Nothing>,
) -> Result<Answer<Account>, Problem> {
    let looked = Looked::at(&*entry.ledger, &entry.id).await?;
    if !looked.is_known() {
        let detail = format!("nothing is known of entry {} in {}; was it copied in full?", entry.id, looked.source());
        return Err(Problem::not_found(detail));
    }
    Ok(Answer(looked.explain(&api.rules()).await?))
}

/// What a retry may be given.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"note": "smtp is back"}))]
pub(super) struct RetryBody {
    /// Why, for the audit log.
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    note: String,
}

/// Retry one dead letter
///
/// Whatever its age, and whatever its rules say; its job gets a fresh allowance.
#[utoipa::path(post, operation_id = "retryDeadLetter", path = "/dead-letters/{source}/{entry}/retry", tag = "dead letters", params(EntryPath),
    security(("bearer" = [])),
    request_body(content = RetryBody, description = "May be left out"),
    responses(
        (status = 200, description = "Its job is back on its queue", body = Outcome),
        (status = 409, description = "It cannot be retried: `refusal` says why", body = Problem,
            content_type = "application/problem+json")))]
pub(super) async fn retry(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    entry: Entry,
    _: Query<Nothing>,
    Json(body): Json<RetryBody>,
) -> Result<Answer<Outcome>, Problem> {
    checked_note(&body.note).map_err(|wrong| Problem::invalid(vec![Wrong::at("/note", wrong)]))?;
    act(&api, &entry, Act::Retry, bearer.by(body.note)).await
}

/// What a removal may be given.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct NoteQuery {
    /// Why, for the audit log.
    #[param(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    note: Option<String>,
}

impl FromParams for NoteQuery {
    fn names() -> Vec<String> {
        names_of::<NoteQuery>()
    }

    fn read(params: &mut Params) -> NoteQuery {
        let note = params.one("note");
        if let Err(wrong) = checked_note(note.as_deref().unwrap_or_default()) {
            params.wrong("note", wrong);
        }
        NoteQuery { note }
    }
}

/// Remove one dead letter
///
/// For good: its job is lost.
#[utoipa::path(delete, operation_id = "deleteDeadLetter", path = "/dead-letters/{source}/{entry}", tag = "dead letters", params(EntryPath, NoteQuery),
    security(("bearer" = [])),
    responses((status = 200, description = "It is no longer in the DLQ", body = Outcome)))]
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    bearer: Bearer,
    entry: Entry,
    Query(query): Query<NoteQuery>,
) -> Result<Answer<Outcome>, Problem> {
    act(&api, &entry, Act::Delete, bearer.by(query.note.unwrap_or_default())).await
}

async fn act(api: &Api, entry: &Entry, act: Act, by: By) -> Result<Answer<Outcome>, Problem> {
    let rules = api.rules();
    let doing = Doing { act, by, dry_run: false, rules: &rules };
    let outcome = doing.to(&*entry.ledger, std::slice::from_ref(&entry.id)).await;
    let outcome = outcome.map_err(|error| Problem::store(entry.ledger.name(), &error))?.pop();
    let outcome = outcome.ok_or_else(|| entry.gone())?;
    match outcome.refusal {
        None => Ok(Answer(outcome)),
        Some("entry_gone") => Err(entry.gone()),
        Some(why) => {
            let detail = format!("entry {} was not retried: {why}", entry.id);
            Err(Problem::refused(why, detail).and("its /explain tells more"))
        }
    }
}

/// Where an entry is.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it documents what Entry reads")]
pub(super) struct EntryPath {
    /// The source's name.
    #[param(example = "orders")]
    source: String,
    /// The entry's id, as it is listed.
    #[param(example = "1795972370488-0")]
    entry: String,
}
