//! A Slack incoming webhook's message, to be read on a phone at three in the morning: what died, why, and where to
//! look. What became of it is one line.
//!
//! Everything that comes from a record is escaped, so it can neither mention anybody nor build a link, and what would
//! hide a text or turn its direction is written out.

use serde_json::{Value, json};

use super::{Body, in_words, jobs, listed};
use crate::{
    event::{Counts, Digest, ErrorText, Event, EventData, GroupCount, HookTest, JobDead, JobRetry},
    letter::{Reason, written_out},
};

/// Slack's limit for the text of a section, less some room for what stands around a text.
const SECTION: usize = 2_900;
/// Of a notification's line, and of an error in a list.
const LINE: usize = 300;
/// What the line about groups that are not listed takes at most.
const OTHERS: usize = 200;
/// Of a name.
const NAME: usize = 100;
/// Sub-exceptions that a line about an exception group names.
const SUBS_NAMED: usize = 3;
/// A tab in a code block.
const TAB: &str = "    ";

pub(super) fn body(event: &Event) -> Body {
    let (text, blocks) = match &event.data {
        EventData::JobDead(dead) => job_dead(dead),
        EventData::JobRetried(retry) => job_retried(retry),
        EventData::JobRecovered(retry) => job_recovered(retry),
        EventData::JobExhausted(dead) => job_exhausted(dead),
        EventData::Digest(digest) => many(digest),
        EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => {
            let line = text(&alert.summary, LINE);
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
    let died = if dead.deaths == 1 { "1 time".to_owned() } else { format!("{} times", dead.deaths) };
    let retries = if dead.retries == 1 { "1 retry".to_owned() } else { format!("{} retries", dead.retries) };
    let rule = dead.rule.as_deref().map_or(String::new(), |rule| format!(" by rule {}", text(rule, NAME)));
    let why = format!("died {died}, {retries}{rule}; it waits for a person");
    let mut blocks = vec![section(&format!("*{task}* is exhausted in *{source}*: {why}"))];
    blocks.extend(account(dead));
    blocks.push(facts(dead, &[]));
    (format!("{task} is exhausted in {source}: {why}"), blocks)
}

/// What is known of the death: the error, and what the hook wants to see besides.
fn account(dead: &JobDead) -> Vec<Value> {
    let mut blocks = vec![section(&code(&error_line_raw(&dead.error), SECTION))];
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

fn many(digest: &Digest) -> (String, Vec<Value>) {
    let source = text(&digest.source, NAME);
    let all = &digest.counts;
    let head = match digest.why.as_str() {
        "existing" => format!("{} dead {} were already in {source}", all.deaths, jobs(all.deaths)),
        "overflow" => format!("{} in {source} while this hook did not answer", in_words(all, false)),
        _ => format!("{} in {source}", in_words(all, true)),
    };
    let mut blocks = vec![section(&format!("*{head}*"))];
    let about = if digest.groups_estimated { "about " } else { "" };
    let (mut lines, mut shown) = (String::new(), Vec::new());
    for group in &digest.groups {
        let line = group_line(group, about);
        if lines.len() + line.len() > SECTION - OTHERS {
            break;
        }
        lines.push_str(&line);
        shown.push(group.counts);
    }
    let others = all.without(shown.into_iter().sum());
    if !lines.is_empty() && others.events() > 0 {
        lines.push_str(&format!("and {about}{} in other groups", others_in_words(&others)));
    }
    if !lines.is_empty() {
        blocks.push(section(&lines));
    }
    let times: Vec<_> = [("first", &digest.from), ("last", &digest.until)]
        .into_iter()
        .filter_map(|(which, at)| at.as_deref().map(|at| format!("{which} {}", text(at, NAME))))
        .chain(digest.samples.iter().map(|sample| format!("e.g. entry {}", text(&sample.entry_id, NAME))))
        .collect();
    if !times.is_empty() {
        blocks.push(context(&times.join("  ·  ")));
    }
    (head, blocks)
}

/// How many died of what, and what became of them.
fn group_line(group: &GroupCount, about: &str) -> String {
    let (task, error) = (name(group.task.as_deref(), "no task"), error_line(&group.error, LINE));
    let Counts { deaths, retried, recovered, exhausted } = group.counts;
    let died = if deaths > 0 { format!("{about}{deaths} × ") } else { String::new() };
    let mut rest = vec![format!("group {}", text(&group.group, NAME))];
    for (number, what) in [(retried, "retried"), (recovered, "ran through"), (exhausted, "exhausted")] {
        if number > 0 {
            rest.push(format!("{about}{number} {what}"));
        }
    }
    format!("• {died}*{task}*: {error} ({})\n", rest.join(", "))
}

/// `40 more deaths and 3 more retries`.
fn others_in_words(counts: &Counts) -> String {
    let parts = [
        (counts.deaths, "death", "deaths"),
        (counts.retried, "retry", "retries"),
        (counts.recovered, "recovery", "recoveries"),
        (counts.exhausted, "exhausted job", "exhausted jobs"),
    ];
    let part =
        |(number, one, many)| (number > 0).then(|| format!("{number} more {}", if number == 1 { one } else { many }));
    listed(parts.into_iter().filter_map(part).collect())
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

fn section(mrkdwn: &str) -> Value {
    json!({"type": "section", "text": {"type": "mrkdwn", "text": mrkdwn, "verbatim": true}})
}

fn context(mrkdwn: &str) -> Value {
    json!({"type": "context", "elements": [{"type": "mrkdwn", "text": mrkdwn, "verbatim": true}]})
}

fn name(value: Option<&str>, otherwise: &str) -> String {
    text(value.filter(|value| !value.is_empty()).unwrap_or(otherwise), NAME)
}

fn error_line_raw(error: &ErrorText) -> String {
    match (error.kind.as_deref(), error.message.as_deref()) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => "no error recorded".to_owned(),
    }
}

/// An error in one line: the first of its message. An exception group's says only how many there are, so what they
/// were, which stands below it, follows.
fn error_line(error: &ErrorText, most: usize) -> String {
    let raw = error_line_raw(error);
    let is_group = error.kind.as_deref().is_some_and(|kind| kind.ends_with("ExceptionGroup"));
    let lines: Vec<_> = raw.lines().take(if is_group { 1 + SUBS_NAMED } else { 1 }).collect();
    text(&lines.join(" · "), most)
}

/// A block that keeps its lines.
fn code(raw: &str, most: usize) -> String {
    // What would close the block early is shown with other marks.
    format!("```{}```", escaped(&raw.replace("```", "'''"), most, true))
}

/// A text in a line of mrkdwn, at most `most` bytes long with its escapes.
fn text(raw: &str, most: usize) -> String {
    escaped(raw, most, false)
}

/// A text for mrkdwn, with its line breaks and tabs if it is a `block`; at most `most` bytes long with the escapes, none
/// of them cut in two.
fn escaped(raw: &str, most: usize, block: bool) -> String {
    let mut escaped = String::with_capacity(raw.len().min(most));
    for c in raw.chars() {
        let (mut buffer, written);
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '\n' if block => "\n",
            '\t' if block => TAB,
            c => match written_out(c) {
                Some(text) => {
                    written = text;
                    written.as_str()
                }
                None => {
                    buffer = [0; 4];
                    c.encode_utf8(&mut buffer)
                }
            },
        };
        if escaped.len() + piece.len() + '…'.len_utf8() > most {
            escaped.push('…');
            break;
        }
        escaped.push_str(piece);
    }
    escaped
}

fn last_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth_back(chars.saturating_sub(1)).map_or(text, |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::samples, *};

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
    fn a_digest_lists_its_groups() {
        let value = samples::parsed(&body(&samples::digest()));
        assert_eq!(value["text"], "940 more jobs died in orders");
        let group = block_text(&value["blocks"][1]);
        assert_eq!(
            group,
            "• 900 × *send_email*: ConnectionError: smtp.example.test:25 timed out after 10.0s (group 7c1f0e9a2b44)\n\
             and 40 more deaths in other groups"
        );
    }

    #[test]
    fn a_digest_says_what_became_of_its_groups() {
        let counts = |numbers: [u64; 4]| {
            let [deaths, retried, recovered, exhausted] = numbers;
            Counts { deaths, retried, recovered, exhausted }
        };
        let error = "*send_email*: ConnectionError: smtp.example.test:25 timed out after 10.0s (group 7c1f0e9a2b44";
        for (all, of_group, why, head, lines) in [
            (
                [940, 12, 3, 1],
                [900, 12, 3, 1],
                "rate",
                "940 more jobs died, 12 were retried, 3 ran through and 1 is exhausted in orders",
                format!("• 900 × {error}, 12 retried, 3 ran through, 1 exhausted)\nand 40 more deaths in other groups"),
            ),
            (
                [0, 12, 1, 1],
                [0, 10, 0, 0],
                "rate",
                "12 more jobs were retried, 1 ran through and 1 is exhausted in orders",
                format!(
                    "• {error}, 10 retried)\nand 2 more retries, 1 more recovery and 1 more exhausted job in other groups"
                ),
            ),
            (
                [0, 0, 1, 0],
                [0, 0, 1, 0],
                "overflow",
                "1 job ran through in orders while this hook did not answer",
                format!("• {error}, 1 ran through)\n"),
            ),
        ] {
            let digest = Digest { why: why.to_owned(), ..samples::digest_of(counts(all), counts(of_group)) };
            let value = samples::parsed(&body(&samples::event(EventData::Digest(Box::new(digest)))));
            assert_eq!(value["text"], head);
            assert_eq!(block_text(&value["blocks"][0]), format!("*{head}*"));
            assert_eq!(block_text(&value["blocks"][1]), lines);
        }
    }

    fn message(event: &Event) -> (String, Vec<String>) {
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
    fn an_exception_group_says_what_was_in_it_and_any_other_error_its_first_line() {
        let message = "two of them (2 sub-exceptions)\nKeyError: 'a'\nValueError: 1";
        for (kind, expected) in [
            ("ExceptionGroup", "two of them (2 sub-exceptions) · KeyError: 'a' · ValueError: 1"),
            ("app.BaseExceptionGroup", "two of them (2 sub-exceptions) · KeyError: 'a' · ValueError: 1"),
            ("ValueError", "two of them (2 sub-exceptions)"),
        ] {
            let error = ErrorText { kind: Some(kind.to_owned()), message: Some(message.to_owned()) };
            assert_eq!(error_line(&error, LINE), format!("{kind}: {expected}"));
        }
    }

    #[test]
    fn what_would_hide_or_turn_a_text_is_written_out() {
        for (raw, line, block) in [
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("a\u{200b}\u{2028}b", "a\\u{200b}\\u{2028}b", "a\\u{200b}\\u{2028}b"),
            ("a\0\x1b[2J\u{85}", "a\\x00\\x1b[2J\\x85", "a\\x00\\x1b[2J\\x85"),
            ("a\n\tb\r", "a\\n\\tb\\r", "a\n    b\\r"),
            ("1 < 2 & ünï", "1 &lt; 2 &amp; ünï", "1 &lt; 2 &amp; ünï"),
        ] {
            assert_eq!(text(raw, LINE), line);
            assert_eq!(code(raw, LINE), format!("```{block}```"));
        }
        assert_eq!(text("ab\u{202e}", 9), "ab…", "no escape is cut in two");
    }

    #[test]
    fn ordinals_are_english() {
        for (number, expected) in
            [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")]
        {
            assert_eq!(nth(number), expected);
        }
    }

    fn block_text(block: &Value) -> String {
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
            let retry = || Box::new(JobRetry { dead: dead.clone(), retried_at: some(), recovered_at: some() });
            keeps_slacks_limits(&samples::event(EventData::JobRetried(retry())));
            keeps_slacks_limits(&samples::event(EventData::JobRecovered(retry())));
            keeps_slacks_limits(&samples::event(EventData::JobExhausted(Box::new(dead.clone()))));
            keeps_slacks_limits(&samples::event(EventData::JobDead(Box::new(dead))));
            keeps_slacks_limits(&samples::event(EventData::Digest(Box::new(digest))));
        }
    }
}
