//! Which events a hook wants.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::{
    config::{DEFAULT_EVENTS, Format, HookConfig},
    event::{Alert, Event, EventData, EventType, OTHER},
    rule::{Globs, Matcher, Subject},
};

/// A hook's `format`, `events` and `match`, ready to be asked.
#[derive(Clone, Debug)]
pub struct Selection {
    hook: String,
    format: Format,
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
            format: hook.format,
            events: globs.build().unwrap_or_else(|_| GlobSet::empty()),
            matcher: hook.matcher.clone(),
        }
    }

    /// Whether the hook is to be told of this event: its form can say it, `events` names its kind, and `match` has
    /// nothing against it.
    ///
    /// What is about a job is matched by its dead letter, whatever has become of that since; an alert by its source and
    /// by those labels it has. A digest stands for letters of many kinds, so only its source is looked at. A test is
    /// always for the one hook it names. What is addressed to some hooks is for those of them that want its kind, and for
    /// nobody else: a rule chooses among the hooks, it does not overrule them.
    pub fn wants(&self, event: &Event) -> bool {
        if let EventData::HookTest(test) = &event.data {
            return test.hook == self.hook;
        }
        let is_meant = event.data.addressed_to().is_none_or(|hooks| hooks.contains(&self.hook));
        is_meant && self.subscribed(event.kind()) && self.concerns(&event.data)
    }

    /// Whether the hook wants events of this kind at all.
    pub fn subscribed(&self, kind: EventType) -> bool {
        self.format.takes(kind) && self.events.is_match(kind.as_str())
    }

    fn concerns(&self, data: &EventData) -> bool {
        match (data.job(), data.alert()) {
            (Some(dead), _) => self.matcher.matches(&Subject::from(dead)),
            (None, Some(alert)) => self.concerns_source(data.source()) && self.concerns_labels(alert),
            (None, None) => self.concerns_source(data.source()),
        }
    }

    fn concerns_source(&self, source: &str) -> bool {
        self.matcher.source.as_ref().is_none_or(|globs| globs.is_match(source))
    }

    /// An alert that is about one task is not for a hook of other tasks; one that does not tell tasks apart may be about
    /// the hook's own.
    fn concerns_labels(&self, alert: &Alert) -> bool {
        let label = |key| alert.labels.get(key).map(String::as_str).filter(|value| *value != OTHER);
        let glob = |globs: &Option<Globs>, key| {
            globs.as_ref().is_none_or(|globs| label(key).is_none_or(|value| globs.is_match(value)))
        };
        let listed = |list: &Option<Vec<String>>, key| {
            list.as_ref().is_none_or(|list| label(key).is_none_or(|value| list.iter().any(|listed| listed == value)))
        };
        glob(&self.matcher.queue, "queue")
            && glob(&self.matcher.task, "task")
            && listed(&self.matcher.reason, "reason")
            && listed(&self.matcher.group, "group")
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
            routing_key: None,
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

    fn alert(labels: &[(&str, &str)], hooks: Option<&[&str]>) -> Alert {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let hooks = hooks.map(|hooks| hooks.iter().map(ToString::to_string).collect());
        Alert { source: "orders".to_owned(), labels, hooks, ..Alert::default() }
    }

    fn firing(labels: &[(&str, &str)], hooks: Option<&[&str]>) -> Event {
        event(EventData::AlertFiring(Box::new(alert(labels, hooks))))
    }

    fn resolved(hooks: Option<&[&str]>) -> Event {
        event(EventData::AlertResolved(Box::new(alert(&[], hooks))))
    }

    #[test]
    fn what_is_addressed_to_some_hooks_is_for_those_of_them_that_want_it() {
        let summary = |hooks: Option<&[&str]>| {
            let hooks = hooks.map(|hooks| hooks.iter().map(ToString::to_string).collect());
            event(EventData::Digest(Box::new(Digest { why: "schedule".to_owned(), hooks, ..Digest::default() })))
        };
        let (ours, others) = (Some(&["chat", "oncall"][..]), Some(&["chat", "oncall2"][..]));
        for (events, wants) in [
            (&["*"][..], [true, true, true]),
            (&[], [true, true, true]),
            (&["alert.*"], [true, true, false]),
            (&["job.dead"], [false, false, false]),
            (&["dlq.*"], [false, false, true]),
            (&["alert.firing"], [true, false, false]),
        ] {
            let selection = selection(events, Matcher::default());
            let wanted =
                |hooks| [firing(&[], hooks), resolved(hooks), summary(hooks)].map(|event| selection.wants(&event));
            assert_eq!(wanted(None), wants, "{events:?}");
            assert_eq!(wanted(ours), wants, "{events:?}");
            assert_eq!(wanted(others), [false; 3], "{events:?}");
        }
    }

    #[test]
    fn a_match_looks_at_the_labels_that_an_alert_has() {
        let task = Matcher { task: globs(&["charge_*"]), ..Matcher::default() };
        let queue = Matcher { queue: globs(&["high"]), ..Matcher::default() };
        let reason = Matcher { reason: Some(vec!["max_attempts".to_owned()]), ..Matcher::default() };
        let group = Matcher { group: Some(vec!["7c1f0e9a2b44".to_owned()]), ..Matcher::default() };
        let error = Matcher { error: Some(Regex::new("refused").unwrap()), ..Matcher::default() };
        let source = Matcher { source: globs(&["billing"]), ..Matcher::default() };
        for (matcher, labels, wants) in [
            (&task, &[("task", "charge_card")][..], true),
            (&task, &[("task", "send_email")], false),
            // What is not told apart, or not counted apart, may be the hook's own.
            (&task, &[("queue", "low")], true),
            (&task, &[("task", "other")], true),
            (&queue, &[("queue", "high"), ("task", "send_email")], true),
            (&queue, &[("queue", "higher")], false),
            (&reason, &[("reason", "max_attempts")], true),
            (&reason, &[("reason", "malformed")], false),
            (&group, &[("group", "7c1f0e9a2b44")], true),
            (&group, &[("group", "000000000000")], false),
            (&error, &[("task", "charge_card")], true),
            (&source, &[], false),
        ] {
            let selection = selection(&["*"], matcher.clone());
            assert_eq!(selection.wants(&firing(labels, None)), wants, "{matcher:?} {labels:?}");
            assert_eq!(
                selection.wants(&firing(labels, Some(&["oncall"]))),
                wants,
                "also by name: {matcher:?} {labels:?}"
            );
        }
    }

    #[test]
    fn what_a_form_cannot_say_is_not_wanted_by_name_either() {
        let of = |format| Selection { format, ..selection(&["*"], Matcher::default()) };
        for (format, wants) in [
            (Format::Standard, [true, true, true, true, true]),
            (Format::PagerDuty, [true, false, false, true, true]),
            (Format::Alertmanager, [true, false, false, true, false]),
        ] {
            let [dead, retried, recovered, exhausted] = about_a_job();
            let all = [dead, retried, recovered, exhausted, digest("orders")];
            assert_eq!(all.map(|event| of(format).wants(&event)), wants, "{format:?}");
            assert!([firing(&[], None), resolved(None), test("oncall")].iter().all(|event| of(format).wants(event)));
            assert_eq!(of(format).subscribed(EventType::JobRetried), format == Format::Standard);
        }
        let hooks = Some(vec!["oncall".to_owned()]);
        let named = event(EventData::Digest(Box::new(Digest { hooks, ..Digest::default() })));
        assert!(!of(Format::Alertmanager).wants(&named) && of(Format::PagerDuty).wants(&named));
    }
}
