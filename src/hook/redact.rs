//! What of an event leaves for one hook: only what it `include`s, with its `redact` patterns blanked out.
//!
//! Blanked out in: task, queue, reason, error type and message, traceback, the attempts' errors, the payload, a trace
//! context that is none, the summary of a test or an alert, the note of a purge, what an alert says of retries, and the values of its labels;
//! in everything about a job or an alert, and in the groups and samples of digests alike. Left as they are: source, entry
//! and job id, group, incident, times, numbers, the history's verdict, names of rules and hooks. Labels say which alert it
//! is: the same value is blanked out in the same way whenever it leaves, so what was opened is also closed. A payload
//! that is not text cannot be searched, so it stays behind where there is any pattern.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use regex::Regex;

use crate::{
    config::HookConfig,
    event::{Event, EventData, Include, JobDead},
};

/// What stands where something was blanked out.
const REDACTED: &str = "[redacted]";
/// Labels that are left as they are, as they are everywhere else.
const NAMING: [&str; 2] = ["source", "group"];
/// Characters of an error's message in a digest's samples and groups.
pub const SAMPLE_CHARS: usize = 300;
/// Characters of any other text there.
const SHORT_CHARS: usize = 100;

/// What may leave for one hook.
#[derive(Clone, Debug)]
pub struct Leaving {
    include: Include,
    patterns: Vec<Regex>,
}

impl Leaving {
    /// By the hook's `include` and `redact`.
    pub fn new(hook: &HookConfig) -> Leaving {
        Leaving { include: hook.include, patterns: hook.redact.clone() }
    }

    /// The event as it may leave.
    pub fn event(&self, event: &Event) -> Event {
        let mut event = event.clone();
        match &mut event.data {
            EventData::JobDead(dead) | EventData::JobExhausted(dead) => self.dead(dead),
            EventData::JobRetried(retry) | EventData::JobRecovered(retry) => self.dead(&mut retry.dead),
            EventData::Digest(digest) => {
                for sample in &mut digest.samples {
                    self.dead(sample);
                }
                for group in &mut digest.groups {
                    self.some(&mut group.task);
                    self.some(&mut group.error.kind);
                    self.some(&mut group.error.message);
                }
            }
            EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => {
                self.text(&mut alert.summary);
                for (_, value) in alert.labels.iter_mut().filter(|(key, _)| !NAMING.contains(&key.as_str())) {
                    self.text(value);
                }
                for group in &mut alert.groups {
                    for text in [
                        &mut group.task,
                        &mut group.queue,
                        &mut group.reason,
                        &mut group.error.kind,
                        &mut group.error.message,
                        &mut group.retrying,
                    ] {
                        self.some(text);
                    }
                }
            }
            EventData::Purged(purge) => self.some(&mut purge.note),
            EventData::HookTest(test) => self.text(&mut test.summary),
        }
        event
    }

    /// A dead letter as a digest may show it: blanked out first, then cut, so that no half of a number slips through. Its
    /// size is bounded, whatever the record holds.
    pub fn brief(&self, dead: &JobDead) -> JobDead {
        let mut brief = JobDead { traceback: None, attempt_errors: None, payload: None, ..dead.clone() };
        self.dead(&mut brief);
        cut(&mut brief.error.message, SAMPLE_CHARS);
        for text in [
            &mut brief.job_id,
            &mut brief.task,
            &mut brief.queue,
            &mut brief.reason,
            &mut brief.error.kind,
            &mut brief.traceparent,
        ] {
            cut(text, SHORT_CHARS);
        }
        brief
    }

    fn dead(&self, dead: &mut JobDead) {
        if !self.include.traceback {
            dead.traceback = None;
        }
        if !self.include.history {
            dead.attempt_errors = None;
        }
        if !self.include.payload {
            dead.payload = None;
        }
        if self.patterns.is_empty() {
            return;
        }
        if !dead.traceparent.as_deref().is_some_and(is_trace_context) {
            self.some(&mut dead.traceparent);
        }
        for text in [
            &mut dead.task,
            &mut dead.queue,
            &mut dead.reason,
            &mut dead.error.kind,
            &mut dead.error.message,
            &mut dead.traceback,
        ] {
            self.some(text);
        }
        for error in dead.attempt_errors.iter_mut().flatten() {
            self.text(error);
        }
        dead.payload = dead.payload.take().and_then(|payload| self.payload(&payload));
    }

    fn payload(&self, base64: &str) -> Option<String> {
        let mut text = String::from_utf8(STANDARD.decode(base64).ok()?).ok()?;
        self.text(&mut text);
        Some(STANDARD.encode(text))
    }

    fn some(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn text(&self, text: &mut String) {
        for pattern in &self.patterns {
            if let Cow::Owned(blanked) = pattern.replace_all(text, regex::NoExpand(REDACTED)) {
                *text = blanked;
            }
        }
    }
}

fn cut(text: &mut Option<String>, chars: usize) {
    if let Some(text) = text
        && let Some((at, _)) = text.char_indices().nth(chars)
    {
        text.truncate(at);
        text.push('…');
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, in which nothing can hide.
fn is_trace_context(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([2, 32, 16, 2]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Alert, AlertGroup, Counts, Digest, ErrorText, GroupCount, HookTest, JobRetry},
        letter::Millis,
    };

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn leaving(include: Include, patterns: &[&str]) -> Leaving {
        Leaving { include, patterns: patterns.iter().map(|pattern| Regex::new(pattern).unwrap()).collect() }
    }

    fn everything() -> Include {
        Include { traceback: true, history: true, payload: true }
    }

    fn dead(text: &str) -> JobDead {
        let some = || Some(text.to_owned());
        JobDead {
            source: text.to_owned(),
            entry_id: text.to_owned(),
            job_id: some(),
            task: some(),
            queue: some(),
            reason: some(),
            error: ErrorText { kind: some(), message: some() },
            history: text.to_owned(),
            group: text.to_owned(),
            rule: some(),
            enqueued_at: some(),
            died_at: some(),
            next_retry_at: some(),
            traceparent: some(),
            traceback: some(),
            attempt_errors: Some(vec![text.to_owned(), text.to_owned()]),
            payload: Some(STANDARD.encode(text)),
            ..JobDead::default()
        }
    }

    fn event(data: EventData) -> Event {
        Event { id: "e".to_owned(), at: Millis(0), data }
    }

    #[test]
    fn every_free_text_is_blanked_out_and_nothing_else() {
        let leaving = leaving(everything(), &["s3cret", "other"]);
        let EventData::JobDead(left) = leaving.event(&event(EventData::JobDead(Box::new(dead("a s3cret b"))))).data
        else {
            panic!("the kind has changed");
        };
        let blank = dead("a [redacted] b");
        let same = dead("a s3cret b");
        let expected = JobDead {
            source: same.source,
            entry_id: same.entry_id,
            job_id: same.job_id,
            history: same.history,
            group: same.group,
            rule: same.rule,
            enqueued_at: same.enqueued_at,
            died_at: same.died_at,
            next_retry_at: same.next_retry_at,
            ..blank
        };
        assert_eq!(*left, expected);
    }

    #[test]
    fn what_becomes_of_a_job_is_blanked_out_like_its_death() {
        let leaving = leaving(Include { history: true, ..Include::default() }, &["s3cret"]);
        let letter = || Box::new(dead("a s3cret b"));
        let EventData::JobDead(expected) = leaving.event(&event(EventData::JobDead(letter()))).data else {
            panic!("the kind has changed");
        };
        let time = || Some("2026-11-29T17:32:50.488Z".to_owned());
        let retry = || Box::new(JobRetry { dead: *letter(), retried_at: time(), recovered_at: time() });
        for data in
            [EventData::JobRetried(retry()), EventData::JobRecovered(retry()), EventData::JobExhausted(letter())]
        {
            let left = leaving.event(&event(data.clone()));
            assert_eq!((left.kind(), left.data.job()), (data.kind(), Some(&*expected)));
            if let EventData::JobRetried(retry) | EventData::JobRecovered(retry) = left.data {
                assert_eq!((retry.retried_at, retry.recovered_at), (time(), time()));
            }
        }
    }

    #[test]
    fn a_dollar_sign_is_not_expanded_and_a_trace_context_stays_whole() {
        let leaving = leaving(Include::default(), &["(?<n>[0-9]{4})"]);
        let mut it = dead("order 1234 of $n");
        it.traceparent = Some(TRACE.to_owned());
        let brief = leaving.brief(&it);
        assert_eq!(brief.task.as_deref(), Some("order [redacted] of $n"));
        assert_eq!(brief.traceparent.as_deref(), Some(TRACE));
    }

    #[test]
    fn digests_and_tests_are_blanked_out_too() {
        let leaving = leaving(everything(), &["s3cret"]);
        let error = ErrorText { kind: Some("s3cret".to_owned()), message: Some("s3cret".to_owned()) };
        let (counts, task) = (Counts { deaths: 1, ..Counts::default() }, Some("s3cret".to_owned()));
        let group = GroupCount { group: "g".to_owned(), counts, task, error };
        let digest = Digest { groups: vec![group], samples: vec![dead("s3cret")], ..Digest::default() };
        let EventData::Digest(left) = leaving.event(&event(EventData::Digest(Box::new(digest)))).data else {
            panic!("the kind has changed");
        };
        assert_eq!(left.groups[0].task.as_deref(), Some(REDACTED));
        assert_eq!(left.groups[0].error.kind.as_deref(), Some(REDACTED));
        assert_eq!(left.groups[0].error.message.as_deref(), Some(REDACTED));
        assert_eq!(left.samples[0].error.message.as_deref(), Some(REDACTED));
        let test = HookTest { summary: "a s3cret".to_owned(), ..HookTest::default() };
        let EventData::HookTest(left) = leaving.event(&event(EventData::HookTest(test))).data else {
            panic!("the kind has changed");
        };
        assert_eq!(left.summary, "a [redacted]");
    }

    #[test]
    fn what_is_not_included_stays_behind() {
        let with = |include| {
            let mut left = dead("x");
            leaving(include, &[]).dead(&mut left);
            (left.traceback.is_some(), left.attempt_errors.is_some(), left.payload.is_some())
        };
        assert_eq!(with(Include::default()), (false, false, false));
        assert_eq!(with(Include { traceback: true, ..Include::default() }), (true, false, false));
        assert_eq!(with(Include { history: true, ..Include::default() }), (false, true, false));
        assert_eq!(with(Include { payload: true, ..Include::default() }), (false, false, true));
    }

    #[test]
    fn a_payload_that_is_no_text_leaves_only_where_nothing_is_to_be_blanked_out() {
        let bytes = STANDARD.encode([0xff, 0xfe, 0x00]);
        for (patterns, expected) in [(&[][..], Some(bytes.clone())), (&["x"][..], None)] {
            let mut it = JobDead { payload: Some(bytes.clone()), ..JobDead::default() };
            leaving(everything(), patterns).dead(&mut it);
            assert_eq!(it.payload, expected);
        }
    }

    #[test]
    fn a_brief_is_small_whatever_the_record_holds_and_cut_after_blanking_out() {
        let mut huge = dead(&"é".repeat(500_000));
        huge.error.message = Some(format!("{}4111111111111111", "é".repeat(SAMPLE_CHARS - 4)));
        let brief = leaving(everything(), &[r"\d{16}"]).brief(&JobDead {
            source: "s".to_owned(),
            entry_id: "1-0".to_owned(),
            history: "same".to_owned(),
            group: "g".to_owned(),
            rule: None,
            ..huge
        });
        let message = brief.error.message.clone().unwrap();
        assert!(message.ends_with("é[red…"), "{message}");
        let texts = [brief.job_id, brief.task, brief.queue, brief.error.kind, brief.traceparent];
        assert!(texts.iter().flatten().all(|text| text.chars().count() <= SHORT_CHARS + 1));
        assert_eq!((brief.traceback, brief.attempt_errors, brief.payload), (None, None, None));
    }

    #[test]
    fn an_alert_is_blanked_out_and_firing_and_resolved_still_agree() {
        let leaving = leaving(everything(), &["s3cret"]);
        let some = || Some("a s3cret b".to_owned());
        let text = || "a s3cret b".to_owned();
        let group = AlertGroup {
            group: text(),
            task: some(),
            queue: some(),
            reason: some(),
            error: ErrorText { kind: some(), message: some() },
            deaths: 3,
            first_died_at: some(),
            last_died_at: some(),
            retrying: some(),
        };
        let labels = ["source", "task", "queue", "reason", "group"].map(|key| (key.to_owned(), text()));
        let alert = Alert {
            source: text(),
            incident: text(),
            alert: text(),
            severity: text(),
            labels: labels.into(),
            summary: text(),
            groups: vec![group.clone()],
            hooks: Some(vec![text()]),
            ..Alert::default()
        };
        let EventData::AlertFiring(left) = leaving.event(&event(EventData::AlertFiring(Box::new(alert.clone())))).data
        else {
            panic!("the kind has changed");
        };
        let blank = || Some("a [redacted] b".to_owned());
        let group = AlertGroup {
            task: blank(),
            queue: blank(),
            reason: blank(),
            error: ErrorText { kind: blank(), message: blank() },
            retrying: blank(),
            ..group
        };
        let labels = [("source", text()), ("group", text())]
            .into_iter()
            .chain(["task", "queue", "reason"].map(|key| (key, blank().unwrap())))
            .map(|(key, value)| (key.to_owned(), value));
        let expected =
            Alert { labels: labels.collect(), summary: blank().unwrap(), groups: vec![group], ..alert.clone() };
        assert_eq!(*left, expected);
        let over = Alert { resolved_at: some(), groups: Vec::new(), summary: "over".to_owned(), ..alert };
        let over = leaving.event(&event(EventData::AlertResolved(Box::new(over))));
        let over = over.data.alert().unwrap();
        assert_eq!((&over.labels, &over.incident, &over.alert), (&left.labels, &left.incident, &left.alert));
    }
}
