//! What there is to look at besides single dead letters: sources, groups, the audit log.

use std::sync::Arc;

use axum::{Json as Answer, extract::State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    Api,
    problem::Problem,
    query::{FilterQuery, FromParams, Nothing, PageQuery, Params, Query, names_of, parse_duration},
};
use crate::{
    clock::millis,
    event::rfc3339,
    ledger::TriageLedger,
    letter::Millis,
    triage::{self, AuditAsk, AuditItem, Cursor, FilterSpec, Groups, HookShown, Page},
};

/// Groups that are listed where no limit is given.
const GROUPS: usize = 100;

/// A source as it stands. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct SourceItem {
    /// Its name.
    name: String,
    /// The DLQ's name in its store.
    dlq: String,
    /// Why the rest is not known: its store's trouble.
    trouble: Option<String>,
    /// Who leads it, if anybody does.
    leader: Option<String>,
    /// The replica that answers leads it.
    leads: bool,
    /// Entries in the DLQ.
    entries: Option<u64>,
    /// When the oldest was buried.
    oldest_died_at: Option<String>,
    /// When the newest was buried.
    newest_died_at: Option<String>,
    /// Entries ever added to the DLQ.
    added: Option<u64>,
    /// Entries that Sexton has not read yet; none if it has never led here.
    unread: Option<u64>,
    /// Deaths that Sexton has counted.
    deaths: Option<u64>,
}

impl SourceItem {
    async fn of(ledger: &dyn TriageLedger, holder: &str) -> SourceItem {
        let looked = ledger.overview().await;
        let trouble = looked.as_ref().err().map(ToString::to_string);
        let overview = looked.ok();
        let leader = overview.as_ref().and_then(|overview| overview.leader.as_ref());
        SourceItem {
            name: ledger.name().to_owned(),
            dlq: ledger.dlq(),
            trouble,
            leader: leader.map(|lease| lease.holder.clone()),
            leads: leader.is_some_and(|lease| lease.holder == format!("{holder}/{}", ledger.name())),
            entries: overview.as_ref().map(|overview| overview.entries),
            oldest_died_at: overview.as_ref().and_then(|overview| rfc3339(overview.oldest?)),
            newest_died_at: overview.as_ref().and_then(|overview| rfc3339(overview.newest?)),
            added: overview.as_ref().map(|overview| overview.added),
            unread: overview.as_ref().and_then(|overview| overview.lag),
            deaths: overview.as_ref().map(|overview| overview.deaths),
        }
    }
}

/// List the sources
///
/// The watched DLQs. One whose store is in trouble says so in `trouble`.
#[utoipa::path(get, operation_id = "listSources", path = "/sources", tag = "sources",
    responses((status = 200, description = "The sources, in the order of the configuration", body = Page<SourceItem>)))]
pub(super) async fn sources(State(api): State<Arc<Api>>, _: Query<Nothing>) -> Answer<Page<SourceItem>> {
    let mut items = Vec::new();
    for ledger in api.sources() {
        items.push(SourceItem::of(ledger, &api.holder).await);
    }
    Answer(Page { items, next_cursor: None })
}

/// List the hooks
///
/// And how each stands in every source. Of an address nothing is shown but scheme and host.
#[utoipa::path(get, operation_id = "listHooks", path = "/hooks", tag = "hooks",
    responses((status = 200, description = "The hooks, in the order of the configuration", body = Page<HookShown>)))]
pub(super) async fn hooks(State(api): State<Arc<Api>>, _: Query<Nothing>) -> Result<Answer<Page<HookShown>>, Problem> {
    let items = triage::hooks(&api.config.hooks, &api.sources()).await?;
    Ok(Answer(Page { items, next_cursor: None }))
}

/// How many groups.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupsQuery {
    /// Groups at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

impl FromParams for GroupsQuery {
    fn names() -> Vec<String> {
        names_of::<GroupsQuery>()
    }

    fn read(params: &mut Params) -> GroupsQuery {
        GroupsQuery { limit: Some(params.number("limit", 1, PageQuery::MOST, GROUPS)) }
    }
}

/// Count dead letters by group
///
/// The largest groups, with a sample and what the retry loop does with each. It looks through every entry that the filter
/// may pass; on a DLQ of millions narrow it down, with `newer_than` for instance.
#[utoipa::path(get, operation_id = "listGroups", path = "/groups", tag = "groups", params(super::query::FilterParams, GroupsQuery),
    responses((status = 200, description = "The groups, the largest first", body = Groups)))]
pub(super) async fn groups(
    State(api): State<Arc<Api>>,
    Query((FilterQuery(spec), query)): Query<(FilterQuery, GroupsQuery)>,
) -> Result<Answer<Groups>, Problem> {
    let _search = api.search()?;
    let (sources, filter) = (api.sources_of(&spec)?, super::compiled(&spec)?);
    let limit = query.limit.unwrap_or(GROUPS);
    Ok(Answer(triage::groups(&sources, &filter, &api.rules(), limit, &mut |_| {}).await?))
}

/// Which lines of the audit log.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it documents what AuditQuery reads")]
pub(super) struct AuditParams {
    /// Globs on the source's name.
    source: Vec<String>,
    /// Written within this time, such as `2h`, or since a moment in RFC 3339.
    #[param(example = "2h")]
    since: Option<String>,
    /// About this entry.
    entry: Option<String>,
    /// About this job.
    job: Option<String>,
}

/// The same, read.
pub(super) struct AuditQuery {
    source: Vec<String>,
    written: Option<Written>,
    entry: Option<String>,
    job: Option<String>,
}

/// Since when.
#[derive(Clone, Copy, Debug)]
enum Written {
    Within(std::time::Duration),
    Since(Millis),
}

impl Written {
    fn parse(text: &str) -> Option<Written> {
        if let Some(within) = parse_duration(text) {
            return Some(Written::Within(within));
        }
        let at = humantime::parse_rfc3339_weak(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Written::Since(Millis(millis(at))))
    }

    fn since(self, now: Millis) -> Millis {
        match self {
            Written::Within(within) => Millis(now.0.saturating_sub(millis(within))),
            Written::Since(at) => at,
        }
    }
}

impl FromParams for AuditQuery {
    fn names() -> Vec<String> {
        names_of::<AuditParams>()
    }

    fn read(params: &mut Params) -> AuditQuery {
        let since = params.one("since");
        let written = since.as_deref().and_then(Written::parse);
        if since.is_some() && written.is_none() {
            params.wrong("since", "expected a duration such as 2h, or a moment such as 2026-11-29T17:12:50Z");
        }
        let source = params.all("source");
        if let Err(error) = (FilterSpec { source: source.clone(), ..FilterSpec::default() }).compile() {
            params.wrong(error.field, error.problem);
        }
        AuditQuery { source, written, entry: params.one("entry"), job: params.one("job") }
    }
}

/// Read the audit log
///
/// Who, or which rule, did what; the newest line first, one source after the other.
#[utoipa::path(get, operation_id = "listAudit", path = "/audit", tag = "audit", params(AuditParams, PageQuery),
    responses((status = 200, description = "A page of the log", body = Page<AuditItem>)))]
pub(super) async fn audit(
    State(api): State<Arc<Api>>,
    Query((query, page)): Query<(AuditQuery, PageQuery)>,
) -> Result<Answer<Page<AuditItem>>, Problem> {
    let sources = api.sources_of(&FilterSpec { source: query.source, ..FilterSpec::default() })?;
    let after = page.after.as_deref().map(|after| Cursor::parse(after, &sources)).transpose()?;
    let now = sources.first().map_or(Millis(0), |ledger| ledger.clock().now());
    let ask = AuditAsk {
        since: query.written.map(|written| written.since(now)),
        entry: query.entry,
        job: query.job,
        limit: page.limit(),
        after,
    };
    Ok(Answer(triage::audit(&sources, &ask).await?))
}
