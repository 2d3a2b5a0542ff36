//! How alerts stand, as programs see it.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{AlertFound, Standing};
use crate::{
    alert::{Holds, Line},
    event::{AlertGroup, rfc3339},
};

/// How alerts stand, as `-o json` prints it and HTTP answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertsShown<'s> {
    /// What fires first, then what is pending, then the other rules, the nearest to firing first, and what is over.
    pub items: Vec<AlertItem<'s>>,
    /// There is never more.
    pub next_cursor: Option<String>,
    /// The lines that they are about.
    pub sources: Vec<SourceShown<'s>>,
}

/// A source's line.
#[derive(Debug, Serialize, ToSchema)]
pub struct SourceShown<'s> {
    /// The source's name.
    pub source: &'s str,
    /// When the last sample was taken; everything is as it was then.
    pub sampled_at: Option<String>,
    /// A sample ought to have been taken since.
    pub stale: bool,
    /// Somebody leads.
    pub led: bool,
    /// Dead letters, and retries in flight, at the last sample.
    pub level: Option<u64>,
    /// The line.
    pub line: LinesShown,
}

/// The line over two times.
#[derive(Debug, Serialize, ToSchema)]
pub struct LinesShown {
    /// The last hour.
    pub hour: LineShown,
    /// The last day.
    pub day: LineShown,
}

/// A line as a row of bars.
#[derive(Debug, Serialize, ToSchema)]
pub struct LineShown {
    /// One character a part, the oldest first; a blank where nobody looked.
    pub sparkline: String,
    /// The lowest level in it.
    pub lowest: Option<u64>,
    /// The highest.
    pub highest: Option<u64>,
}

impl LineShown {
    fn of(line: &Line) -> LineShown {
        let (lowest, highest) = line.range().unzip();
        LineShown { sparkline: line.to_string(), lowest, highest }
    }
}

impl<'s> AlertsShown<'s> {
    /// Of these sources.
    pub fn of(all: &'s [Standing<'_>]) -> AlertsShown<'s> {
        let source = |standing: &'s Standing<'_>| {
            let [hour, day] = &standing.lines;
            SourceShown {
                source: &standing.source,
                sampled_at: standing.sampled_at.and_then(rfc3339),
                stale: standing.stale,
                led: standing.led,
                level: standing.level,
                line: LinesShown { hour: LineShown::of(hour), day: LineShown::of(day) },
            }
        };
        AlertsShown {
            items: all.iter().flat_map(|standing| &standing.items).map(AlertItem::of).collect(),
            next_cursor: None,
            sources: all.iter().map(source).collect(),
        }
    }
}

/// One item: the fields of the event by their names, and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertItem<'s> {
    /// The source's name.
    pub source: &'s str,
    /// The incident; none of what is none.
    pub incident: Option<&'s str>,
    /// The alert rule's name.
    pub alert: &'s str,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: &'static str,
    /// `firing`, `pending`, `quiet` or `resolved`.
    pub state: &'static str,
    /// Since when there is something to see.
    pub since: Option<String>,
    /// When it fired.
    pub fired_at: Option<String>,
    /// When it fires if its condition goes on to hold.
    pub fires_at: Option<String>,
    /// When it is resolved if its condition goes on not to hold.
    pub resolves_at: Option<String>,
    /// When it was resolved.
    pub resolved_at: Option<String>,
    /// What it is about.
    pub labels: &'s BTreeMap<String, String>,
    /// The one number of its rule.
    pub value: Option<i64>,
    /// `yes`, `no`, or `unknown` where nobody looked when it mattered.
    pub holds: Option<&'static str>,
    /// What must be met for it to hold.
    pub needs: Vec<NeedShown>,
    /// From 0 to 1.
    pub progress: Option<f64>,
    /// The rule that has told of the same thing; this one waits for it.
    pub told_by: Option<&'s str>,
    /// Its rule is among those in force here.
    pub known_rule: bool,
    /// What a hook would be told.
    pub summary: Option<&'s str>,
    /// The groups that most of it is of.
    pub groups: &'s [AlertGroup],
    /// The hooks that are told; none for every hook that takes alerts.
    pub hooks: Option<&'s [String]>,
}

/// One thing that must be met.
#[derive(Debug, Serialize, ToSchema)]
pub struct NeedShown {
    /// What.
    pub what: &'static str,
    /// How much of it there is.
    pub have: i64,
    /// How much must be.
    pub need: i64,
}

impl<'s> AlertItem<'s> {
    /// Of what was found.
    pub fn of(found: &'s AlertFound<'_>) -> AlertItem<'s> {
        let holds = |holds| match holds {
            Holds::Yes => "yes",
            Holds::No => "no",
            Holds::Unknown => "unknown",
        };
        let need = |need: &crate::alert::Need| NeedShown { what: need.what, have: need.have, need: need.need };
        AlertItem {
            source: &found.source,
            incident: found.incident.as_deref(),
            alert: &found.alert,
            severity: found.severity.as_str(),
            state: found.state.as_str(),
            since: found.since.and_then(rfc3339),
            fired_at: found.fired_at.and_then(rfc3339),
            fires_at: found.fires_at.and_then(rfc3339),
            resolves_at: found.resolves_at.and_then(rfc3339),
            resolved_at: found.resolved_at.and_then(rfc3339),
            labels: &found.labels,
            value: found.reading.as_ref().map(|reading| reading.value),
            holds: found.holds().map(holds),
            needs: found.needs.iter().map(need).collect(),
            progress: found.progress,
            told_by: found.reading.as_ref().and_then(|reading| reading.told_by.as_deref()),
            known_rule: found.rule.is_some(),
            summary: found.summary.as_deref(),
            groups: &found.groups,
            hooks: found.hooks.as_deref(),
        }
    }
}
