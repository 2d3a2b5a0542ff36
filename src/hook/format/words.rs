//! What events say in plain words, one line each: for forms whose texts are read by people.
//!
//! Slack's own marks and escapes are not made here.

use crate::{
    event::{Alert, AlertGroup, Counts, Digest, ErrorText, Event, EventData, JobDead},
    letter::written_out,
};

/// Characters of an error in a line.
const ERROR: usize = 300;
/// Sub-exceptions that a line about an exception group names.
const SUBS_NAMED: usize = 3;
/// Characters of a name in a line.
const NAME: usize = 100;
/// Characters of a sentence of the retry loop.
const SENTENCE: usize = 300;

/// The event in one line of at most `most` characters: what a person reads first, and perhaps alone.
pub(super) fn headline(event: &Event, most: usize) -> String {
    let source = event.data.source();
    let said = match &event.data {
        EventData::JobDead(dead) => format!("{} died in {source}: {}", task(dead), error(&dead.error)),
        EventData::JobExhausted(dead) => {
            let why = exhausted(dead);
            format!("{} is exhausted in {source}: {why}: {}", task(dead), error(&dead.error))
        }
        EventData::JobRetried(retry) => format!("{} was retried in {source}", task(&retry.dead)),
        EventData::JobRecovered(retry) => format!("{} ran through in {source} after a retry", task(&retry.dead)),
        EventData::Digest(digest) => self::digest(digest),
        EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => self::alert(alert),
        EventData::Purged(purge) => purge.summary(),
        EventData::HookTest(test) => format!("{} (hook {}, source {source})", test.summary, test.hook),
    };
    line(&said, most)
}

/// What an alert says. Its rule's name stands in front, as it does in the lists that people see.
pub(super) fn alert(alert: &Alert) -> String {
    format!("{}: {}", alert.alert, alert.summary)
}

/// What it says of one of its groups: `30 × send_email: TimeoutError: … (group 7c1f…, …). Retries under …`.
pub(super) fn alert_group(group: &AlertGroup) -> String {
    let task = name(group.task.as_deref(), "no task");
    let mut facts = vec![format!("group {}", line(&group.group, NAME))];
    if let Some(queue) = group.queue.as_deref() {
        facts.push(format!("queue {}", line(queue, NAME)));
    }
    for (what, at) in [("first", &group.first_died_at), ("last", &group.last_died_at)] {
        facts.extend(at.as_deref().map(|at| format!("{what} {}", line(at, NAME))));
    }
    let retrying = group.retrying.as_deref().map_or(String::new(), |said| format!(". {}", line(said, SENTENCE)));
    format!("{} × {task}: {} ({}){retrying}", group.deaths, error(&group.error), facts.join(", "))
}

/// What a digest stands for, and of a summary also what is there now.
pub(super) fn digest(digest: &Digest) -> String {
    let (all, source) = (&digest.counts, &digest.source);
    match digest.why.as_str() {
        "existing" => format!("{} dead {} were already in {source}", all.deaths, jobs(all.deaths)),
        "overflow" => format!("{} in {source} while this hook did not answer", in_words(all, false)),
        "schedule" => format!("summary of {source}: {}", summary(digest)),
        _ => format!("{} in {source}", in_words(all, true)),
    }
}

/// `12 jobs died and 5 were retried; 2 of the deaths were not the first; 7 wait now; rising fires`.
fn summary(digest: &Digest) -> String {
    let mut parts = vec![match digest.counts.events() {
        0 => "nothing died".to_owned(),
        _ => in_words(&digest.counts, false),
    }];
    if let Some(outlook) = &digest.outlook {
        if outlook.died_again > 0 {
            parts.push(format!("{} of the deaths {} not the first", outlook.died_again, was(outlook.died_again)));
        }
        if let Some(waiting) = outlook.waiting {
            parts.push(format!("{waiting} {} now", if waiting == 1 { "waits" } else { "wait" }));
        }
        if !outlook.firing.is_empty() {
            let verb = if outlook.firing.len() == 1 { "fires" } else { "fire" };
            parts.push(format!("{} {verb}", listed(outlook.firing.clone())));
        }
    }
    parts.join("; ")
}

/// How often a job that waits for a person has died.
pub(super) fn exhausted(dead: &JobDead) -> String {
    let died = if dead.deaths == 1 { "1 time".to_owned() } else { format!("{} times", dead.deaths) };
    let retries = if dead.retries == 1 { "1 retry".to_owned() } else { format!("{} retries", dead.retries) };
    let rule = dead.rule.as_deref().map_or(String::new(), |rule| format!(" by rule {}", line(rule, NAME)));
    format!("died {died}, {retries}{rule}; it waits for a person")
}

fn task(dead: &JobDead) -> String {
    name(dead.task.as_deref(), "a job without a task")
}

fn name(value: Option<&str>, otherwise: &str) -> String {
    line(value.filter(|value| !value.is_empty()).unwrap_or(otherwise), NAME)
}

/// An error in one line of bounded length.
pub(super) fn error(error: &ErrorText) -> String {
    line(&error_line(error), ERROR)
}

/// An error in one line: the first of its message. An exception group's says only how many there are, so what they
/// were, which stands below it, follows.
pub(super) fn error_line(error: &ErrorText) -> String {
    let whole = whole_error(error);
    let is_group = error.kind.as_deref().is_some_and(|kind| kind.ends_with("ExceptionGroup"));
    let lines: Vec<_> = whole.lines().take(if is_group { 1 + SUBS_NAMED } else { 1 }).collect();
    lines.join(" · ")
}

/// All of an error, with its line breaks.
pub(super) fn whole_error(error: &ErrorText) -> String {
    match error {
        ErrorText { kind: None, message: None } => "no error recorded".to_owned(),
        error => error.to_string(),
    }
}

/// What a digest stands for in words: `940 jobs died, 12 were retried and 3 are exhausted`. With `more` it goes on from
/// what was told singly: `940 more jobs died …`.
pub(super) fn in_words(counts: &Counts, more: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (number, one, many) in [
        (counts.deaths, "died", "died"),
        (counts.retried, "was retried", "were retried"),
        (counts.recovered, "ran through", "ran through"),
        (counts.exhausted, "is exhausted", "are exhausted"),
    ] {
        let verb = if number == 1 { one } else { many };
        if number > 0 && parts.is_empty() {
            parts.push(format!("{number} {}{} {verb}", if more { "more " } else { "" }, jobs(number)));
        } else if number > 0 {
            parts.push(format!("{number} {verb}"));
        }
    }
    listed(parts)
}

pub(super) fn jobs(number: u64) -> &'static str {
    if number == 1 { "job" } else { "jobs" }
}

/// `a`, `a and b`, `a, b and c`; of nothing, `nothing`.
pub(super) fn listed(mut parts: Vec<String>) -> String {
    let Some(last) = parts.pop() else { return "nothing".to_owned() };
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// A text on one line, `most` characters at most; what would hide it or turn its direction is written out.
pub(super) fn line(raw: &str, most: usize) -> String {
    let (mut line, mut left) = (String::new(), most);
    for c in raw.chars() {
        let written = written_out(c).unwrap_or_else(|| c.to_string());
        let length = written.chars().count();
        // There must be room for the mark of a cut.
        if length >= left {
            line.push('…');
            break;
        }
        left -= length;
        line.push_str(&written);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_said_as_people_say_them() {
        for (numbers, expected) in [
            ([940, 0, 0, 0], "940 jobs died"),
            ([1, 1, 1, 1], "1 job died, 1 was retried, 1 ran through and 1 is exhausted"),
            ([940, 12, 0, 3], "940 jobs died, 12 were retried and 3 are exhausted"),
            ([0, 0, 1, 0], "1 job ran through"),
            ([0, 2, 1, 0], "2 jobs were retried and 1 ran through"),
            ([0, 0, 0, 2], "2 jobs are exhausted"),
            ([0, 0, 0, 0], "nothing"),
        ] {
            let [deaths, retried, recovered, exhausted] = numbers;
            let counts = Counts { deaths, retried, recovered, exhausted };
            assert_eq!(in_words(&counts, false), expected);
        }
        let counts = Counts { retried: 2, exhausted: 1, ..Counts::default() };
        assert_eq!(in_words(&counts, true), "2 more jobs were retried and 1 is exhausted");
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
            assert_eq!(error_line(&error), format!("{kind}: {expected}"));
        }
    }

    #[test]
    fn a_line_is_bounded_and_cutting_it_again_changes_nothing() {
        for (raw, expected) in [
            ("short", "short"),
            ("exactly", "exact…"),
            ("much longer", "much …"),
            ("a\nb", "a\\nb"),
            ("ab\u{202e}cd", "ab…"),
            ("ünïcödé", "ünïcö…"),
            ("", ""),
        ] {
            assert_eq!(line(raw, 6), expected, "{raw:?}");
            assert_eq!(line(&line(raw, 6), 6), expected, "{raw:?}");
        }
    }
}
