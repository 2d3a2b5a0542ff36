//! Hook configurations and events to deliver.

use std::time::Duration;

use sexton::{
    config::{Format, HookConfig, Rate, Secret, SecretSource},
    event::{Alert, AlertGroup, Event, EventData, Include, JobDead, rfc3339},
    letter::Millis,
    rule::Matcher,
};

/// A `standard` hook named `oncall` that wants everything, one by one.
pub(crate) fn hook(url: &str) -> HookConfig {
    HookConfig {
        name: "oncall".to_owned(),
        url: SecretSource::Inline(Secret::new(url)),
        format: Format::Standard,
        secrets: Vec::new(),
        routing_key: None,
        events: vec!["*".to_owned()],
        matcher: Matcher::default(),
        headers: Vec::new(),
        rate: Rate::Unlimited,
        timeout: Duration::from_secs(5),
        give_up_after: Duration::from_secs(24 * 3600),
        include: Include::default(),
        redact: Vec::new(),
        fingerprint: "f1".to_owned(),
    }
}

/// The death of job `n`.
pub(crate) fn death(n: u64) -> Event {
    let dead = JobDead {
        source: "orders".to_owned(),
        entry_id: format!("{n}-0"),
        job_id: Some(format!("job-{n}")),
        task: Some("send_email".to_owned()),
        group: "7c1f0e9a2b44".to_owned(),
        history: "same".to_owned(),
        deaths: 1,
        ..JobDead::default()
    };
    Event { id: format!("evt-{n}"), at: Millis(1_795_972_370_488), data: EventData::JobDead(Box::new(dead)) }
}

/// An alert about a task, with an incident of its own, that there is something to see of since `since`.
fn alert(task: &str, since: Millis) -> Alert {
    let some = |text: &str| Some(text.to_owned());
    Alert {
        source: "orders".to_owned(),
        incident: format!("incident-of-{task}"),
        alert: "rising".to_owned(),
        severity: "critical".to_owned(),
        since: rfc3339(since),
        fired_at: rfc3339(since),
        labels: [("source", "orders"), ("task", task)].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        value: 34,
        level: 41,
        summary: format!("orders, task {task}: the line rises"),
        groups: vec![AlertGroup {
            group: "7c1f0e9a2b44".to_owned(),
            task: some(task),
            deaths: 34,
            ..AlertGroup::default()
        }],
        ..Alert::default()
    }
}

/// That an alert about this task fires.
pub(crate) fn firing(task: &str, since: Millis) -> Event {
    Event { data: EventData::AlertFiring(Box::new(alert(task, since))), ..death(0) }
}

/// That it still does.
pub(crate) fn still_firing(task: &str, since: Millis) -> Event {
    Event { data: EventData::AlertFiring(Box::new(Alert { repeated: true, ..alert(task, since) })), ..death(0) }
}

/// That it is over.
pub(crate) fn resolved(task: &str, since: Millis, at: Millis) -> Event {
    let over = Alert { resolved_at: rfc3339(at), groups: Vec::new(), ..alert(task, since) };
    Event { data: EventData::AlertResolved(Box::new(over)), ..death(0) }
}
