//! Which events a hook wants.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::{
    config::{DEFAULT_EVENTS, HookConfig},
    event::{Event, EventData, EventType},
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

    /// Whether the hook is to be told of this event. What is about a job is matched by its dead letter, whatever has
    /// become of that since. A digest stands for letters of many kinds, so only its source is looked at; a test is always
    /// for the one hook it names.
    pub fn wants(&self, event: &Event) -> bool {
        match (&event.data, event.data.job()) {
            (EventData::HookTest(test), _) => test.hook == self.hook,
            (_, Some(dead)) => self.subscribed(event.kind()) && self.matcher.matches(&Subject::from(dead)),
            (data, None) => {
                let source = self.matcher.source.as_ref();
                self.subscribed(event.kind()) && source.is_none_or(|globs| globs.is_match(data.source()))
            }
        }
    }

    /// Whether the hook wants events of this kind at all.
    pub fn subscribed(&self, kind: EventType) -> bool {
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
        event::{Digest, ErrorText, HookTest, Include, JobDead, JobRetry},
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

    /// Every event about the job of [`death`], in the order of the documentation.
    fn about_a_job() -> [Event; 4] {
        let EventData::JobDead(dead) = death().data else { panic!("it is a death") };
        let retry = || Box::new(JobRetry { dead: (*dead).clone(), ..JobRetry::default() });
        [
            death(),
            event(EventData::JobRetried(retry())),
            event(EventData::JobRecovered(retry())),
            event(EventData::JobExhausted(dead.clone())),
        ]
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
    fn what_becomes_of_a_job_is_chosen_by_name_and_by_what_died() {
        for (events, wants) in [
            (&["job.*"][..], [true, true, true, true]),
            (&[], [true, false, false, true]),
            (&["job.retried"], [false, true, false, false]),
            (&["job.recovered", "job.exhausted"], [false, false, true, true]),
            (&["dlq.*", "alert.*"], [false, false, false, false]),
        ] {
            let all = selection(events, Matcher::default());
            assert_eq!(about_a_job().map(|event| all.wants(&event)), wants, "{events:?}");
            let others = selection(events, Matcher { task: globs(&["send_*"]), ..Matcher::default() });
            assert_eq!(about_a_job().map(|event| others.wants(&event)), [false; 4], "{events:?}");
            let these = selection(events, Matcher { task: globs(&["charge_*"]), ..Matcher::default() });
            assert_eq!(about_a_job().map(|event| these.wants(&event)), wants, "{events:?}");
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
