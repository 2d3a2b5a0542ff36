//! A Slack incoming webhook's message, to be read on a phone at three in the morning: what died, why, and where to
//! look. What became of it is one line.
//!
//! Everything that comes from a record is escaped, so it can neither mention anybody nor build a link, and what would
//! hide a text or turn its direction is written out.

mod alert;
mod digest;
mod mrkdwn;

use serde_json::{Value, json};

use self::mrkdwn::{LINE, NAME, SECTION, code, context, error_line, last_chars, name, section, text};
use super::{Body, words};
use crate::{
    event::{Event, EventData, HookTest, JobDead, JobRetry},
    letter::Reason,
};

pub(super) fn body(event: &Event) -> Body {
    let (text, blocks) = match &event.data {
        EventData::JobDead(dead) => job_dead(dead),
        EventData::JobRetried(retry) => job_retried(retry),
        EventData::JobRecovered(retry) => job_recovered(retry),
        EventData::JobExhausted(dead) => job_exhausted(dead),
        EventData::Digest(digest) => digest::digest(digest),
        EventData::AlertFiring(alert) => alert::firing(alert),
        EventData::AlertResolved(alert) => alert::resolved(alert),
        EventData::Purged(purge) => {
            let line = text(&purge.summary(), LINE);
            (line.clone(), vec![section(&line)])
        }
        EventData::HookTest(HookTest { source, hook, summary }) => {
            let line = format!("{} (hook {}, source {})", text(summary, LINE), text(hook, NAME), text(source, NAME));
            (line.clone(), vec![section(&line)])
        }
    };
    super::json("application/json", &json!({"text": text, "blocks": blocks}))
}

fn job_dead(dead: &JobDead) -> (String, Vec<Value>) {
    let task = name(dead.task.as_deref(), "a job without a task");
    let source = text(&dead.source, NAME);
    let error = error_line(&dead.error, LINE);
    let notification = format!("{task} died in {source}: {error}");

    let again = if dead.deaths > 1 { format!(" (its {} death)", nth(dead.deaths)) } else { String::new() };
    let head = format!("*{task}* died in *{source}*{}{again}: {}", after(dead), reason(dead));
    let mut blocks = vec![section(&head)];
    blocks.extend(account(dead));
    let rule = dead.rule.as_deref();
    blocks.push(facts(dead, &[("rule", rule), ("next retry", dead.next_retry_at.as_deref())]));
    (notification, blocks)
}

fn job_retried(retry: &JobRetry) -> (String, Vec<Value>) {
    let dead = &retry.dead;
    let (task, source) = (name(dead.task.as_deref(), "a job without a task"), text(&dead.source, NAME));
    let nth = (dead.retries > 0).then(|| format!("{} retry", nth(dead.retries)));
    let rule = dead.rule.as_deref().map(|rule| format!("rule {}", text(rule, NAME)));
    let how: Vec<String> = nth.into_iter().chain(rule).collect();
    let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
    let head = format!("*{task}* was retried in *{source}*{how} after {}", error_line(&dead.error, LINE));
    let facts = facts(dead, &[("retried", retry.retried_at.as_deref())]);
    (format!("{task} was retried in {source}{how}"), vec![section(&head), facts])
}

fn job_recovered(retry: &JobRetry) -> (String, Vec<Value>) {
    let dead = &retry.dead;
    let (task, source) = (name(dead.task.as_deref(), "a job without a task"), text(&dead.source, NAME));
    let which = if dead.retries > 0 { format!("its {} retry", nth(dead.retries)) } else { "a retry".to_owned() };
    let rule = dead.rule.as_deref().map_or(String::new(), |rule| format!(" (rule {})", text(rule, NAME)));
    let head = format!("*{task}* ran through in *{source}* after {which}{rule}");
    let times = [("retried", retry.retried_at.as_deref()), ("ran through", retry.recovered_at.as_deref())];
    let notification = format!("{task} ran through in {source} after {which}");
    (notification, vec![section(&head), facts(dead, &times)])
}

fn job_exhausted(dead: &JobDead) -> (String, Vec<Value>) {
    let (task, source) = (name(dead.task.as_deref(), "a job without a task"), text(&dead.source, NAME));
    let why = text(&words::exhausted(dead), LINE);
    let mut blocks = vec![section(&format!("*{task}* is exhausted in *{source}*: {why}"))];
    blocks.extend(account(dead));
    blocks.push(facts(dead, &[]));
    (format!("{task} is exhausted in {source}: {why}"), blocks)
}

/// What is known of the death: the error, and what the hook wants to see besides.
fn account(dead: &JobDead) -> Vec<Value> {
    let mut blocks = vec![section(&code(&words::whole_error(&dead.error), SECTION))];
    if let Some(traceback) = dead.traceback.as_deref().filter(|text| !text.trim().is_empty()) {
        // The end of a traceback says most.
        blocks.push(section(&code(last_chars(traceback.trim_end(), 2_000), SECTION)));
    }
    if let Some(errors) = dead.attempt_errors.as_deref().filter(|errors| !errors.is_empty()) {
        blocks.push(section(&code(&errors.join("\n"), SECTION)));
    }
    if let Some(payload) = &dead.payload {
        blocks.push(section(&code(&format!("payload (base64): {payload}"), SECTION)));
    }
    blocks
}

/// Where to look, and when what happened; `more` facts at the end, as far as they are known.
fn facts(dead: &JobDead, more: &[(&str, Option<&str>)]) -> Value {
    let mut facts = vec![
        format!("queue {}", name(dead.queue.as_deref(), "unknown")),
        format!("job {}", name(dead.job_id.as_deref(), "unknown")),
        format!("entry {}", text(&dead.entry_id, NAME)),
        format!("group {}", text(&dead.group, NAME)),
        format!("history {}", text(&dead.history, NAME)),
    ];
    let known = std::iter::once(("died", dead.died_at.as_deref())).chain(more.iter().copied());
    facts.extend(known.filter_map(|(what, value)| Some(format!("{what} {}", text(value?, NAME)))));
    context(&facts.join("  ·  "))
}

/// What the job had been through, where that led to its death.
fn after(dead: &JobDead) -> String {
    let (number, one, many) = match dead.reason.as_deref().map(Reason::parse) {
        Some(Reason::UnknownTask | Reason::Malformed) => return String::new(),
        Some(Reason::MaxDeliveries) => (dead.deliveries, "delivery", "deliveries"),
        _ => (dead.attempts, "attempt", "attempts"),
    };
    match number {
        0 => String::new(),
        1 => format!(" after 1 {one}"),
        _ => format!(" after {number} {many}"),
    }
}

fn reason(dead: &JobDead) -> String {
    match dead.reason.as_deref().map(Reason::parse) {
        Some(Reason::UnknownTask) => "no worker knows it".to_owned(),
        Some(Reason::Malformed) => "its record cannot be read".to_owned(),
        _ => name(dead.reason.as_deref(), "unknown reason"),
    }
}

fn nth(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::samples, *};
    use crate::{
        event::{Alert, AlertGroup, Counts, Digest, ErrorText, GroupCount, Outlook},
        letter::written_out,
    };

    #[test]
    fn a_death_says_what_died_why_and_where_to_look() {
        let value = samples::parsed(&body(&samples::job_dead()));
        let error = "ConnectionError: smtp.example.test:25 timed out after 10.0s";
        assert_eq!(value["text"], format!("send_email died in orders: {error}"));
        let texts: Vec<_> = value["blocks"].as_array().unwrap().iter().map(block_text).collect();
        assert_eq!(texts[0], "*send_email* died in *orders* after 3 attempts: max_attempts");
        assert_eq!(texts[1], format!("```{error}```"));
        assert_eq!(
            texts[2],
            "queue default  ·  job d40ec568  ·  entry 1795972370488-0  ·  group 7c1f0e9a2b44  ·  history same  ·  \
             died 2026-11-29T17:12:50.488Z"
        );
    }

    #[test]
    fn a_purge_is_one_line_that_mentions_nobody() {
        let value = samples::parsed(&body(&samples::purged()));
        let line = "900000 entries were removed from the DLQ of orders by anna@host (&lt;!channel&gt; old)";
        assert_eq!((value["text"].as_str(), block_text(&value["blocks"][0]).as_str()), (Some(line), line));
    }

    pub(super) fn message(event: &Event) -> (String, Vec<String>) {
        let value = samples::parsed(&body(event));
        let blocks = value["blocks"].as_array().unwrap().iter().map(block_text).collect();
        (value["text"].as_str().unwrap().to_owned(), blocks)
    }

    const FACTS: &str = "queue default  ·  job d40ec568  ·  entry 1795972370488-0  ·  group 7c1f0e9a2b44  ·  history same  ·  \
                         died 2026-11-29T17:12:50.488Z";

    #[test]
    fn a_retry_and_how_it_went_are_one_line() {
        let (notification, blocks) = message(&samples::retried());
        assert_eq!(notification, "send_email was retried in orders (2nd retry, rule dependency-flaky)");
        let error = "ConnectionError: smtp.example.test:25 timed out after 10.0s";
        assert_eq!(
            blocks,
            [
                format!("*send_email* was retried in *orders* (2nd retry, rule dependency-flaky) after {error}"),
                format!("{FACTS}  ·  retried 2026-11-29T17:32:51.000Z"),
            ]
        );
        let (notification, blocks) = message(&samples::recovered());
        assert_eq!(notification, "send_email ran through in orders after its 2nd retry");
        assert_eq!(
            blocks,
            [
                "*send_email* ran through in *orders* after its 2nd retry (rule dependency-flaky)".to_owned(),
                format!("{FACTS}  ·  retried 2026-11-29T17:32:51.000Z  ·  ran through 2026-11-29T17:32:52.000Z"),
            ]
        );
        // What is not known is not made up.
        let retry = || Box::new(JobRetry { dead: samples::dead(), ..JobRetry::default() });
        let (notification, _) = message(&samples::event(EventData::JobRetried(retry())));
        assert_eq!(notification, "send_email was retried in orders");
        let (notification, _) = message(&samples::event(EventData::JobRecovered(retry())));
        assert_eq!(notification, "send_email ran through in orders after a retry");
    }

    #[test]
    fn what_waits_for_a_person_says_so_and_why() {
        let (notification, blocks) = message(&samples::exhausted());
        let why = "died 4 times, 3 retries by rule dependency-flaky; it waits for a person";
        assert_eq!(notification, format!("send_email is exhausted in orders: {why}"));
        assert_eq!(
            blocks,
            [
                format!("*send_email* is exhausted in *orders*: {why}"),
                "```ConnectionError: smtp.example.test:25 timed out after 10.0s```".to_owned(),
                FACTS.to_owned(),
            ]
        );
        let once = JobDead { retries: 1, ..samples::dead() };
        let (notification, _) = message(&samples::event(EventData::JobExhausted(Box::new(once))));
        assert_eq!(notification, "send_email is exhausted in orders: died 1 time, 1 retry; it waits for a person");
    }

    #[test]
    fn a_death_that_will_be_retried_says_by_which_rule_and_when() {
        let some = |text: &str| Some(text.to_owned());
        let dead = JobDead { rule: some("flaky"), next_retry_at: some("2026-11-29T17:22:50.488Z"), ..samples::dead() };
        let (_, blocks) = message(&samples::event(EventData::JobDead(Box::new(dead))));
        assert_eq!(blocks[2], format!("{FACTS}  ·  rule flaky  ·  next retry 2026-11-29T17:22:50.488Z"));
    }

    fn headline(dead: JobDead) -> String {
        let value = samples::parsed(&body(&samples::event(EventData::JobDead(Box::new(dead)))));
        block_text(&value["blocks"][0])
    }

    #[test]
    fn a_death_says_what_led_to_it() {
        for (reason, expected) in [
            (Some("max_attempts"), "*send_email* died in *orders* after 3 attempts: max_attempts"),
            (Some("max_deliveries"), "*send_email* died in *orders* after 1 delivery: max_deliveries"),
            (Some("unknown_task"), "*send_email* died in *orders*: no worker knows it"),
            (Some("malformed"), "*send_email* died in *orders*: its record cannot be read"),
            (Some("shed"), "*send_email* died in *orders* after 3 attempts: shed"),
            (None, "*send_email* died in *orders* after 3 attempts: unknown reason"),
        ] {
            assert_eq!(headline(JobDead { reason: reason.map(str::to_owned), ..samples::dead() }), expected);
        }
        let dead = JobDead { reason: Some("max_deliveries".to_owned()), attempts: 0, deliveries: 4, ..samples::dead() };
        assert_eq!(headline(dead), "*send_email* died in *orders* after 4 deliveries: max_deliveries");
        let again = JobDead { attempts: 0, deaths: 2, ..samples::dead() };
        assert_eq!(headline(again), "*send_email* died in *orders* (its 2nd death): max_attempts");
    }

    #[test]
    fn ordinals_are_english() {
        for (number, expected) in
            [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")]
        {
            assert_eq!(nth(number), expected);
        }
    }

    pub(super) fn block_text(block: &Value) -> String {
        let text = block["text"]["text"].as_str().or_else(|| block["elements"][0]["text"].as_str());
        text.unwrap().to_owned()
    }

    fn keeps_slacks_limits(event: &Event) {
        let value = samples::parsed(&body(event));
        let blocks = value["blocks"].as_array().unwrap();
        assert!(!blocks.is_empty() && blocks.len() <= 50);
        let mut texts: Vec<_> = blocks.iter().map(block_text).collect();
        texts.push(value["text"].as_str().unwrap().to_owned());
        for text in texts {
            assert!(!text.is_empty() && text.chars().count() <= 3_000, "{} characters", text.chars().count());
            assert!(!text.contains(['<', '>']), "{text}");
            assert!(!text.chars().any(|c| c != '\n' && written_out(c).is_some()), "{text:?}");
            let entities = ["&amp;", "&lt;", "&gt;"];
            let whole =
                text.match_indices('&').all(|(at, _)| entities.iter().any(|entity| text[at..].starts_with(entity)));
            assert!(whole, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_in_a_record_can_mention_anybody_or_break_slacks_limits(
            text in "(<!channel>|<@U1>|&|```|\\PC|\\p{C}|\n){0,30}", times in prop_oneof![Just(1_usize), Just(300)],
        ) {
            let text = text.repeat(times);
            let some = || Some(text.clone());
            let error = ErrorText { kind: some(), message: some() };
            let dead = JobDead {
                source: text.clone(), entry_id: text.clone(), job_id: some(), task: some(), queue: some(), reason: some(),
                error: error.clone(), history: text.clone(), group: text.clone(), died_at: some(), rule: some(), traceback: some(),
                attempt_errors: Some(vec![text.clone(); 10]), payload: some(), ..JobDead::default()
            };
            let (most, all) = (u64::MAX / 20, |n| Counts { deaths: n, retried: n, recovered: n, exhausted: n });
            let group = GroupCount { group: text.clone(), counts: all(most), task: some(), error };
            let digest = Digest {
                source: text.clone(), counts: all(u64::MAX), groups: vec![group; 10], samples: vec![dead.clone(); 3],
                groups_estimated: true, ..Digest::default()
            };
            let outlook = Outlook {
                waiting: Some(most), sparkline: text.clone(), lowest: Some(0), highest: Some(most),
                firing: vec![text.clone(); 10], ..Outlook::default()
            };
            let summary = Digest { why: "schedule".to_owned(), outlook: Some(outlook), ..digest.clone() };
            let group = AlertGroup {
                group: text.clone(), task: some(), queue: some(), reason: some(), error: dead.error.clone(), deaths: most,
                first_died_at: some(), last_died_at: some(), retrying: some(),
            };
            let alert = Alert {
                source: text.clone(), incident: text.clone(), alert: text.clone(), severity: text.clone(), since: some(),
                labels: [(text.clone(), text.clone())].into(), summary: text.clone(), groups: vec![group; 20], ..Alert::default()
            };
            keeps_slacks_limits(&samples::event(EventData::Digest(Box::new(summary))));
            keeps_slacks_limits(&samples::event(EventData::AlertFiring(Box::new(alert.clone()))));
            keeps_slacks_limits(&samples::event(EventData::AlertResolved(Box::new(alert))));
            let retry = || Box::new(JobRetry { dead: dead.clone(), retried_at: some(), recovered_at: some() });
            keeps_slacks_limits(&samples::event(EventData::JobRetried(retry())));
            keeps_slacks_limits(&samples::event(EventData::JobRecovered(retry())));
            keeps_slacks_limits(&samples::event(EventData::JobExhausted(Box::new(dead.clone()))));
            keeps_slacks_limits(&samples::event(EventData::JobDead(Box::new(dead))));
            keeps_slacks_limits(&samples::event(EventData::Digest(Box::new(digest))));
        }
    }
}
