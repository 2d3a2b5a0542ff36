//! Reads one retry rule.

use std::time::Duration;

use crate::{
    clock::written,
    config::{
        document::Value,
        field::{Field, Section},
        matching,
        problem::Problems,
        schedule, shape,
        source::Names,
    },
    letter::Reason,
    rule::{Action, Matcher, Pace, RetryRule, Terms, Window},
};

const SHORTEST: Duration = Duration::from_millis(100);
/// Much less than what is remembered of a job lasts, so that its allowance cannot be forgotten while it waits.
const LONGEST_AGE: Duration = Duration::from_secs(14 * 24 * 3600);
const LONGEST_CONFIRMATION: Duration = Duration::from_secs(24 * 3600);
const MOST_RETRIES: u64 = 1_000;
const STEEPEST_BACKOFF: u32 = 100;
const MOST_IN_FLIGHT: u64 = 10_000;
const MOST_PER_SECOND: u64 = 10_000;
const LONGEST_QUEUE: u64 = 1_000_000_000;
/// Reasons that are never retried, whatever a rule says.
const NEVER: [&str; 2] = ["malformed", "shed"];
/// What only a rule that retries can say.
const TERMS: [&str; 8] =
    ["min_age", "max_retries", "backoff", "max_backoff", "confirm_within", "window", "timezone", "pace"];

/// The rule, if it can be read; there may be problems with it all the same.
pub(super) fn rule(
    field: Field<'_>,
    names: &mut Names,
    sources: Option<&[String]>,
    problems: &mut Problems,
) -> Option<RetryRule> {
    let section = field.section(&shape::RETRY_RULE, problems)?;
    let name = names.take(&section, problems);
    let actions = [("retry", true), ("leave", false)];
    let retries = section.get("action").and_then(|field| field.choice("actions", &actions, problems)).unwrap_or(true);
    let offered: Vec<&str> = Reason::NAMES.into_iter().filter(|reason| !retries || !NEVER.contains(reason)).collect();
    let matcher = match section.get("match") {
        None => Some(Matcher::default()),
        Some(field) => matching::matcher(field, sources, &offered, problems),
    };
    let action = if retries {
        refuse_never(&section, problems);
        Action::Retry(Box::new(terms(&section, problems)))
    } else {
        for field in TERMS.into_iter().filter_map(|key| section.get(key)) {
            let message = format!("{:?} is given, but the rule leaves what it matches", field.key);
            problems.add(field.key_at, message, "remove it, or remove action: leave");
        }
        Action::Leave
    };
    Some(RetryRule { name: name?, matcher: matcher?, action })
}

/// A rule cannot say that it retries what is never retried.
fn refuse_never(section: &Section<'_>, problems: &mut Problems) {
    let Some(Value::Map(conditions)) = section.get("match").map(|field| &field.node.value) else { return };
    let Some((key, node)) = conditions.iter().find(|(key, _)| key.text == "reason") else { return };
    let reason = Field { key: &key.text, key_at: key.at, node };
    let listed = match &node.value {
        Value::List(items) => items.iter().map(|node| Field { node, ..reason }).collect(),
        _ => vec![reason],
    };
    for field in listed {
        if matches!(&field.node.value, Value::Text(text) if NEVER.contains(&text.value.as_str())) {
            let message = format!("the reason {} is never retried", field.shown());
            problems.add(field.at(), message, "remove it, or write action: leave");
        }
    }
}

fn terms(section: &Section<'_>, problems: &mut Problems) -> Terms {
    let mut terms = Terms::default();
    let duration = |key: &'static str, max, problems: &mut Problems| {
        let field = section.get(key)?;
        Some((field, field.duration(SHORTEST, max, problems)?))
    };
    let min_age = duration("min_age", LONGEST_AGE, problems);
    if let Some((_, age)) = min_age {
        terms.min_age = age;
        terms.max_backoff = terms.max_backoff.max(age);
    }
    // With one that is given but wrong nothing can be compared.
    let is_known = min_age.is_some() || section.get("min_age").is_none();
    if let Some((field, age)) = duration("max_backoff", LONGEST_AGE, problems) {
        terms.max_backoff = age;
        if is_known && age < terms.min_age {
            let min_age = written(terms.min_age);
            let message = format!("{:?} is {}, less than \"min_age\": {min_age}", field.key, written(age));
            problems.add(field.at(), message, "no retry comes before min_age: raise the one, or lower the other");
        }
    }
    if let Some((_, within)) = duration("confirm_within", LONGEST_CONFIRMATION, problems) {
        terms.confirm_within = within;
    }
    if let Some(retries) = section.get("max_retries").and_then(|field| count(field, MOST_RETRIES, problems)) {
        terms.max_retries = retries;
    }
    if let Some(factor) = section.get("backoff").and_then(|field| field.decimal(1, STEEPEST_BACKOFF, problems)) {
        terms.backoff = factor;
    }
    terms.window = window(section, problems);
    if let Some(section) = section.get("pace").and_then(|field| field.section(&shape::PACE, problems)) {
        pace(&section, &mut terms.pace, problems);
    }
    terms
}

fn pace(section: &Section<'_>, pace: &mut Pace, problems: &mut Problems) {
    let mut is_known = true;
    let limits = [
        ("max_in_flight", MOST_IN_FLIGHT, &mut pace.max_in_flight),
        ("per_second", MOST_PER_SECOND, &mut pace.per_second),
    ];
    for (key, max, limit) in limits {
        let Some(field) = section.get(key) else { continue };
        match count(field, max, problems) {
            Some(number) => *limit = number,
            None => is_known &= key != "max_in_flight",
        }
    }
    if let Some(field) = section.get("start")
        && let Some(start) = count(field, MOST_IN_FLIGHT, problems)
    {
        pace.start = start;
        if is_known && start > pace.max_in_flight {
            let message = format!("\"start\" is {start}, more than \"max_in_flight\": {}", pace.max_in_flight);
            problems.add(field.at(), message, "lower the one, or raise the other");
        }
    }
    if let Some(length) = section.get("max_queue_length").and_then(|field| count(field, LONGEST_QUEUE, problems)) {
        pace.max_queue_length = length;
    }
}

/// A whole number, at least 1.
fn count<T: TryFrom<u64>>(field: Field<'_>, max: u64, problems: &mut Problems) -> Option<T> {
    if matches!(&field.node.value, Value::Text(text) if text.value.parse() == Ok(0_u64)) {
        let message = format!("{:?} is 0, so the rule would retry nothing", field.key);
        problems.add(field.at(), message, "give at least 1; a rule that is to retry nothing has action: leave");
        return None;
    }
    field.number(1, max, problems).and_then(|number| T::try_from(number).ok())
}

fn window(section: &Section<'_>, problems: &mut Problems) -> Option<Window> {
    let (window, zone) = (section.get("window"), section.get("timezone"));
    if let (None, Some(field)) = (window, zone) {
        problems.add(field.key_at, "\"timezone\" is given, but no \"window\"", "give the window, or remove it");
    }
    let zone = schedule::timezone(zone, problems);
    schedule::window(window?, zone, Window::hardly_open, problems)
}
