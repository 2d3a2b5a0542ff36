//! A Slack incoming webhook's message, to be read on a phone at three in the morning: what died, why, and where to
//! look.
//!
//! Everything that comes from a record is escaped, so it can neither mention anybody nor build a link.

use serde_json::{Value, json};

use super::Body;
use crate::event::{Digest, ErrorText, Event, EventData, HookTest, JobDead};

/// Slack's limit for the text of a section, less some room for what stands around a text.
const SECTION: usize = 2_900;
/// Of a notification's line, and of an error in a list.
const LINE: usize = 300;
/// Of a name.
const NAME: usize = 100;

pub(super) fn body(event: &Event) -> Body {
    let (text, blocks) = match &event.data {
        EventData::JobDead(dead) => job_dead(dead),
        EventData::Digest(digest) => many(digest),
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

    let tries = if dead.attempts == 1 { "1 attempt" } else { &format!("{} attempts", dead.attempts) };
    let again = if dead.deaths > 1 { format!(" (its {} death)", nth(dead.deaths)) } else { String::new() };
    let reason = name(dead.reason.as_deref(), "unknown reason");
    let mut blocks = vec![
        section(&format!("*{task}* died in *{source}* after {tries}{again}: {reason}")),
        section(&code(&error_line_raw(&dead.error), SECTION)),
    ];
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
    let mut facts = vec![
        format!("queue {}", name(dead.queue.as_deref(), "unknown")),
        format!("job {}", name(dead.job_id.as_deref(), "unknown")),
        format!("entry {}", text(&dead.entry_id, NAME)),
        format!("group {}", text(&dead.group, NAME)),
        format!("history {}", text(&dead.history, NAME)),
    ];
    facts.extend(dead.died_at.as_deref().map(|at| format!("died {}", text(at, NAME))));
    facts.extend(dead.next_retry_at.as_deref().map(|at| format!("next retry {}", text(at, NAME))));
    blocks.push(context(&facts.join("  ·  ")));
    (notification, blocks)
}

fn many(digest: &Digest) -> (String, Vec<Value>) {
    let source = text(&digest.source, NAME);
    let jobs = if digest.count == 1 { "job" } else { "jobs" };
    let head = match digest.why.as_str() {
        "existing" => format!("{} dead {jobs} were already in {source}", digest.count),
        "overflow" => format!("{} {jobs} died in {source} while this hook did not answer", digest.count),
        _ => format!("{} more {jobs} died in {source}", digest.count),
    };
    let mut blocks = vec![section(&format!("*{head}*"))];
    let mut lines = String::new();
    for group in &digest.groups {
        let about = if digest.groups_estimated { "about " } else { "" };
        let task = name(group.task.as_deref(), "no task");
        let line = format!("• {about}{} × *{task}*: {}\n", group.count, error_line(&group.error, LINE));
        if lines.len() + line.len() > SECTION {
            break;
        }
        lines.push_str(&line);
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

fn error_line(error: &ErrorText, most: usize) -> String {
    text(error_line_raw(error).lines().next().unwrap_or_default(), most)
}

fn code(raw: &str, most: usize) -> String {
    // What would close the block early is shown with other marks.
    format!("```{}```", text(&raw.replace("```", "'''"), most))
}

/// A text for mrkdwn: escaped, and at most `most` bytes long with the escapes, none of them cut in two.
fn text(raw: &str, most: usize) -> String {
    let mut escaped = String::with_capacity(raw.len().min(most));
    for c in raw.chars() {
        let mut buffer = [0; 4];
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '\u{0}' => "\u{fffd}",
            other => other.encode_utf8(&mut buffer),
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
        assert!(group.starts_with("• 900 × *send_email*: ConnectionError: smtp"), "{group}");
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
            text in "(<!channel>|<@U1>|&|```|\\PC|\n){0,30}", times in prop_oneof![Just(1_usize), Just(300)],
        ) {
            let text = text.repeat(times);
            let some = || Some(text.clone());
            let error = ErrorText { kind: some(), message: some() };
            let dead = JobDead {
                source: text.clone(), entry_id: text.clone(), job_id: some(), task: some(), queue: some(), reason: some(),
                error: error.clone(), history: text.clone(), group: text.clone(), died_at: some(), traceback: some(),
                attempt_errors: Some(vec![text.clone(); 10]), payload: some(), ..JobDead::default()
            };
            let group = crate::event::GroupCount { group: text.clone(), count: 1, task: some(), error };
            let digest = Digest {
                source: text.clone(), count: 3, groups: vec![group; 10], samples: vec![dead.clone(); 3], ..Digest::default()
            };
            keeps_slacks_limits(&samples::event(EventData::JobDead(Box::new(dead))));
            keeps_slacks_limits(&samples::event(EventData::Digest(Box::new(digest))));
        }
    }
}
