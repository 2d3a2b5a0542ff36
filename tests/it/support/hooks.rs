//! Hook configurations and events to deliver.

use std::time::Duration;

use sexton::{
    config::{Format, HookConfig, Rate, Secret, SecretSource},
    event::{Event, EventData, Include, JobDead},
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
