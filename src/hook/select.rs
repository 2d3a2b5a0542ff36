//! Which events a hook wants.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::{
    config::{DEFAULT_EVENTS, HookConfig},
    event::{Event, EventData, EventType, JobDead},
    rule::{Matcher, Subject},
};

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
            EventData::JobDead(dead) | EventData::JobExhausted(dead) => self.wants_job(event.kind(), dead),
            EventData::JobRetried(retry) | EventData::JobRecovered(retry) => self.wants_job(event.kind(), &retry.dead),
            EventData::Digest(digest) => {
                let source = self.matcher.source.as_ref();
                self.subscribed(EventType::DlqDigest) && source.is_none_or(|globs| globs.is_match(&digest.source))
            }
        }
    }

    fn wants_job(&self, kind: EventType, dead: &JobDead) -> bool {
        self.subscribed(kind) && self.matcher.matches(&Subject::from(dead))
    }

    fn subscribed(&self, kind: EventType) -> bool {
        self.events.is_match(kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use regex::Regex;

    use super::*;
    use crate::{
        config::{Format, Rate, Secret, SecretSource},
        event::{Digest, ErrorText, HookTest, Include, JobDead},
        letter::Millis,
        rule::Globs,
    };

    fn selection(events: &[&str], matcher: Matcher) -> Selection {
        Selection::new(&HookConfig {
            name: "oncall".to_owned(),
            url: SecretSource::Inline(Secret::new("http://127.0.0.1/")),
            format: Format::Standard,
            secrets: Vec::new(),
            events: events.iter().map(ToString::to_string).collect(),
            matcher,
            headers: Vec::new(),
            rate: Rate::Unlimited,
            timeout: Duration::from_secs(1),
            give_up_after: Duration::from_secs(1),
            include: Include::default(),
            redact: Vec::new(),
            fingerprint: String::new(),
        })
    }

    fn globs(globs: &[&str]) -> Option<Globs> {
        let globs: Vec<Glob> = globs.iter().map(|glob| Glob::new(glob).unwrap()).collect();
        Some(Globs::new(&globs).unwrap())
    }

    fn event(data: EventData) -> Event {
        Event { id: "e".to_owned(), at: Millis(0), data }
    }

    fn death() -> Event {
        event(EventData::JobDead(Box::new(JobDead {
            source: "orders".to_owned(),
            task: Some("charge_card".to_owned()),
            queue: Some("default".to_owned()),
            error: ErrorText { kind: Some("TimeoutError".to_owned()), message: Some("after 30s".to_owned()) },
            ..JobDead::default()
        })))
    }

    fn digest(source: &str) -> Event {
        event(EventData::Digest(Box::new(Digest { source: source.to_owned(), ..Digest::default() })))
    }

    fn test(hook: &str) -> Event {
        event(EventData::HookTest(HookTest { hook: hook.to_owned(), ..HookTest::default() }))
    }

    #[test]
    fn events_are_chosen_by_globs_and_a_test_always_reaches_its_hook() {
        for (events, wants) in [
            (&[][..], [true, true]),
            (&["job.dead"], [true, false]),
            (&["job.*", "alert.*"], [true, false]),
            (&["dlq.*"], [false, true]),
            (&["*"], [true, true]),
            (&["alert.*"], [false, false]),
            (&["[", "job.dead"], [true, false]),
        ] {
            let selection = selection(events, Matcher::default());
            assert_eq!([death(), digest("orders")].map(|event| selection.wants(&event)), wants, "{events:?}");
            assert_eq!([test("oncall"), test("other")].map(|event| selection.wants(&event)), [true, false]);
        }
    }

    #[test]
    fn a_match_chooses_deaths_by_everything_and_digests_by_source_alone() {
        let error = |pattern| Some(Regex::new(pattern).unwrap());
        for (matcher, wants) in [
            (Matcher { task: globs(&["charge_*"]), ..Matcher::default() }, [true, true]),
            (Matcher { task: globs(&["send_*"]), ..Matcher::default() }, [false, true]),
            (Matcher { error: error("^TimeoutError: after"), ..Matcher::default() }, [true, true]),
            (Matcher { error: error("refused"), ..Matcher::default() }, [false, true]),
            (Matcher { source: globs(&["o*"]), ..Matcher::default() }, [true, true]),
            (Matcher { source: globs(&["billing"]), ..Matcher::default() }, [false, false]),
        ] {
            let selection = selection(&["*"], matcher.clone());
            assert_eq!([death(), digest("orders")].map(|event| selection.wants(&event)), wants, "{matcher:?}");
        }
    }
}
