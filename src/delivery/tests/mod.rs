//! The plan of a lane, step by step, and its properties over random histories.

mod cases;
mod incidents;
mod properties;

use std::time::Duration;

use super::{Due, Key, LaneState, Plan, Policy};
use crate::{
    config::Rate,
    event::{Alert, Counts, Digest, Event, EventData, JobDead, JobRetry},
    ledger::{OutboxId, Posted},
    letter::Millis,
};

fn policy(rate: Rate) -> Policy {
    Policy {
        source: "orders".to_owned(),
        hook: "on.call".to_owned(),
        rate,
        spacing: Duration::ZERO,
        newest_alone: false,
        give_up_after: Duration::from_secs(24 * 3600),
        fingerprint: "f1".to_owned(),
    }
}

fn per_minute(events: u32) -> Rate {
    Rate::Limited { events, per: Duration::from_secs(60) }
}

fn place(ms: u64) -> OutboxId {
    OutboxId { ms, seq: 0 }
}

fn death(ms: u64) -> Posted {
    let dead = JobDead { entry_id: format!("{ms}-0"), group: format!("g{}", ms % 7), ..JobDead::default() };
    let at = Millis(i64::try_from(ms).unwrap());
    Posted { id: place(ms), event: Event { id: format!("e{ms}"), at, data: EventData::JobDead(Box::new(dead)) } }
}

/// What may become of a job: its kinds of events, each counted by itself in a digest.
const KINDS: [Counts; 4] = [
    Counts { deaths: 1, retried: 0, recovered: 0, exhausted: 0 },
    Counts { deaths: 0, retried: 1, recovered: 0, exhausted: 0 },
    Counts { deaths: 0, retried: 0, recovered: 1, exhausted: 0 },
    Counts { deaths: 0, retried: 0, recovered: 0, exhausted: 1 },
];

/// As [`death`], of one of the [`KINDS`].
fn about_a_job(ms: u64, kind: usize) -> Posted {
    let posted = death(ms);
    let EventData::JobDead(dead) = posted.event.data else { panic!("it is a death") };
    let retry = || Box::new(JobRetry { dead: (*dead).clone(), ..JobRetry::default() });
    let data = match kind {
        0 => EventData::JobDead(dead),
        1 => EventData::JobRetried(retry()),
        2 => EventData::JobRecovered(retry()),
        3 => EventData::JobExhausted(dead),
        _ => panic!("there is no kind {kind}"),
    };
    Posted { event: Event { data, ..posted.event }, ..posted }
}

fn digest(ms: u64, count: u64) -> Posted {
    let counts = Counts { deaths: count, ..Counts::default() };
    let digest = Digest { source: "orders".to_owned(), why: "existing".to_owned(), counts, ..Digest::default() };
    Posted { event: Event { data: EventData::Digest(Box::new(digest)), ..death(ms).event }, id: place(ms) }
}

/// An alert of the `n`-th incident, which has its own labels: that it fires, or that it is over.
fn alert(ms: u64, n: usize, fires: bool) -> Posted {
    let alert = Box::new(Alert {
        source: "orders".to_owned(),
        incident: format!("{n:016x}"),
        alert: "rising".to_owned(),
        labels: [("task".to_owned(), format!("task {n}"))].into(),
        ..Alert::default()
    });
    let data = if fires { EventData::AlertFiring(alert) } else { EventData::AlertResolved(alert) };
    Posted { event: Event { data, ..death(ms).event }, id: place(ms) }
}

fn take(plan: &mut Plan, posted: &Posted, now: i64) -> super::Taken {
    plan.take(posted, true, Millis(now), JobDead::clone)
}

fn all_due(plan: &mut Plan, now: i64) -> Vec<Due> {
    std::iter::from_fn(|| plan.due(Millis(now))).collect()
}

fn keys(due: &[Due]) -> Vec<Key> {
    due.iter().map(|due| due.key).collect()
}

fn save(plan: &mut Plan) -> Option<String> {
    let (version, json) = plan.unsaved()?;
    plan.saved(version);
    Some(json)
}

fn loaded(json: &str, rate: Rate) -> Plan {
    Plan::new(policy(rate), LaneState::from_json(json).unwrap())
}
