//! The line over time, and what is said of it.

use std::{sync::Arc, time::Duration};

use axum::{
    Json as Answer,
    extract::State,
    response::{IntoResponse as _, Response},
};
use utoipa::IntoParams;

use super::{
    Api,
    problem::Problem,
    query::{FromParams, Params, Query, names_of, parse_duration},
};
use crate::triage::{self, AlertsShown, FilterSpec, LineItem, Measure, Page, Standing};

/// How far back samples are kept.
const DAY: Duration = Duration::from_secs(86_400);
const SHORTEST: Duration = Duration::from_secs(60);
/// Points of a line where nobody says how many.
const POINTS: usize = 96;
const MOST_POINTS: usize = 1_000;

/// Which sources.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SourceQuery {
    /// Globs on the source's name.
    source: Vec<String>,
}

impl SourceQuery {
    pub(super) fn spec(self) -> FilterSpec {
        FilterSpec { source: self.source, ..FilterSpec::default() }
    }
}

impl FromParams for SourceQuery {
    fn names() -> Vec<String> {
        names_of::<SourceQuery>()
    }

    fn read(params: &mut Params) -> SourceQuery {
        let read = SourceQuery { source: params.all("source") };
        if let Err(error) = read.clone().spec().compile() {
            params.wrong(error.field, error.problem);
        }
        read
    }
}

/// Show how the alerts stand
///
/// What fires comes first, then what is pending, then the other rules, the one nearest to firing first, and last what was
/// resolved within a day; all as the last sample showed it.
#[utoipa::path(get, operation_id = "listAlerts", path = "/alerts", tag = "alerts", params(SourceQuery),
    responses((status = 200, description = "The alerts, and the lines that they are about", body = AlertsShown<'static>)))]
pub(super) async fn alerts(State(api): State<Arc<Api>>, Query(query): Query<SourceQuery>) -> Result<Response, Problem> {
    let (spec, rules) = (query.spec(), api.alert_rules());
    let measure = Measure { rules: &rules, sample_every: api.config.sample_every };
    let mut all = Vec::new();
    for ledger in api.whole_sources_of(&spec)? {
        let look = async {
            let overview = ledger.overview().await?;
            Standing::look(ledger, &overview, measure).await
        };
        all.push(look.await.map_err(|error| Problem::store(ledger.name(), &error))?);
    }
    Ok(Answer(AlertsShown::of(&all)).into_response())
}

/// Which part of the line.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it documents what LineQuery reads")]
pub(super) struct LineParams {
    /// Up to now from so long ago: 1m to 24h.
    #[param(default = "24h", example = "3h")]
    over: Option<String>,
    /// Points at most: parts of that time.
    #[param(minimum = 1, maximum = 1000, default = 96)]
    points: Option<usize>,
}

/// The same, read.
pub(super) struct LineQuery {
    over: Duration,
    points: usize,
}

impl FromParams for LineQuery {
    fn names() -> Vec<String> {
        names_of::<LineParams>()
    }

    fn read(params: &mut Params) -> LineQuery {
        let over = params.one("over");
        let read = over.as_deref().map_or(Some(DAY), parse_duration).filter(|over| (SHORTEST..=DAY).contains(over));
        if read.is_none() {
            params.wrong("over", "expected a duration from 1m to 24h");
        }
        LineQuery { over: read.unwrap_or(DAY), points: params.number("points", 1, MOST_POINTS, POINTS) }
    }
}

/// Show the line
///
/// The level over time: entries in the DLQ and retries without a verdict yet. Where no leader took samples there is none.
#[utoipa::path(get, operation_id = "listSamples", path = "/samples", tag = "alerts", params(SourceQuery, LineParams),
    responses((status = 200, description = "The line of each source", body = Page<LineItem>)))]
pub(super) async fn samples(
    State(api): State<Arc<Api>>,
    Query((query, line)): Query<(SourceQuery, LineQuery)>,
) -> Result<Answer<Page<LineItem>>, Problem> {
    let spec = query.spec();
    let (every, parts) = (api.config.sample_every, u32::try_from(line.points).unwrap_or(u32::MAX));
    let mut items = Vec::new();
    for ledger in api.whole_sources_of(&spec)? {
        items.push(triage::line_of(ledger, every, line.over, parts).await?);
    }
    Ok(Answer(Page { items, next_cursor: None }))
}
