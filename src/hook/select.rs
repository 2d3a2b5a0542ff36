//! Which events a hook wants.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::{
    config::HookConfig,
    event::{Event, EventData, EventType, JobDead},
    rule::{Matcher, Subject},
};

/// What a hook gets that does not say: the rest is sent on request.
const DEFAULT_EVENTS: [&str; 4] = ["job.dead", "job.exhausted", "alert.*", "dlq.*"];

/// A hook's `events` and `match`, ready to be asked.
#[derive(Clone, Debug)]
pub struct Selection {
    hook: String,
    events: GlobSet,
    matcher: Matcher,
}

impl Selection {
    /// For a checked hook; a glob that is none matches nothing.
    pub fn new(hook: &HookConfig) -> Selection {
        let mut globs = GlobSetBuilder::new();
        let written: Vec<&str> = hook.events.iter().map(String::as_str).collect();
        let events = if written.is_empty() { DEFAULT_EVENTS.to_vec() } else { written };
        for glob in events.into_iter().filter_map(|event| Glob::new(event).ok()) {
            globs.add(glob);
        }
        Selection {
            hook: hook.name.clone(),
            events: globs.build().unwrap_or_else(|_| GlobSet::empty()),
            matcher: hook.matcher.clone(),
        }
    }

    /// Whether the hook is to be told of this event. A digest stands for deaths of many kinds, so only its source
    /// is looked at; a test is always for the one hook it names.
    pub fn wants(&self, event: &Event) -> bool {
        match &event.data {
            EventData::HookTest(test) => test.hook == self.hook,
            EventData::JobDead(dead) => self.subscribed(EventType::JobDead) && self.matcher.matches(&subject(dead)),
            EventData::Digest(digest) => {
                let source = self.matcher.source.as_ref();
                self.subscribed(EventType::DlqDigest) && source.is_none_or(|globs| globs.is_match(&digest.source))
            }
        }
    }

    fn subscribed(&self, kind: EventType) -> bool {
        self.events.is_match(kind.as_str())
    }
}

fn subject(dead: &JobDead) -> Subject<'_> {
    Subject {
        source: &dead.source,
        queue: dead.queue.as_deref().unwrap_or_default(),
        task: dead.task.as_deref().unwrap_or_default(),
        reason: dead.reason.as_deref().unwrap_or_default(),
        error_type: dead.error.kind.as_deref().unwrap_or_default(),
        error_message: dead.error.message.as_deref().unwrap_or_default(),
        history: &dead.history,
        group: &dead.group,
    }
}
