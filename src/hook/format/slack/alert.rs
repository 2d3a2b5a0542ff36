//! An alert in Slack: how bad, what, since when, which groups, what is done about it, and the incident's id.

use serde_json::Value;

use super::mrkdwn::{LINE, NAME, SECTION, context, error_line, name, section, text};
use crate::event::{Alert, AlertGroup};

/// Of the alert's own sentence.
const SENTENCE: usize = 1_000;
/// Labels that are shown: as many as a rule can tell apart.
const MOST_LABELS: usize = 5;

pub(super) fn firing(alert: &Alert) -> (String, Vec<Value>) {
    let severity = &alert.severity;
    let (state, does) =
        if alert.repeated { (format!("still {severity}"), "still fires") } else { (severity.clone(), "fires") };
    told(&state, &state.to_ascii_uppercase(), does, alert)
}

pub(super) fn resolved(alert: &Alert) -> (String, Vec<Value>) {
    told("resolved", "Resolved", "is over", alert)
}

/// `state` stands in front, where a phone shows it, and `large` in the message; `does` is what the rule does.
fn told(state: &str, large: &str, does: &str, alert: &Alert) -> (String, Vec<Value>) {
    let (rule, source) = (text(&alert.alert, NAME), text(&alert.source, NAME));
    let head = format!("*{}*: *{rule}* {does} in *{source}*\n{}", text(large, NAME), text(&alert.summary, SENTENCE));
    let mut blocks = vec![section(&head)];
    let mut lines = String::new();
    for group in &alert.groups {
        let line = group_line(group);
        if lines.len() + line.len() > SECTION {
            break;
        }
        lines.push_str(&line);
    }
    if !lines.is_empty() {
        blocks.push(section(&lines));
    }
    let times = [("since", &alert.since), ("fired", &alert.fired_at), ("resolved", &alert.resolved_at)];
    let times = times.into_iter().filter_map(|(what, at)| Some(format!("{what} {}", text(at.as_deref()?, NAME))));
    let labels = alert.labels.iter().filter(|(key, _)| *key != "source").take(MOST_LABELS);
    let labels = labels.map(|(key, value)| format!("{} {}", text(key, NAME), text(value, NAME)));
    let numbers = [format!("value {}", alert.value), format!("{} dead letters", alert.level)];
    let incident = format!("incident {}", text(&alert.incident, NAME));
    let facts: Vec<_> = times.chain(labels).chain(numbers).chain([incident]).collect();
    blocks.push(context(&facts.join("  ·  ")));
    (format!("{}: {rule}: {}", text(state, NAME), text(&alert.summary, LINE)), blocks)
}

fn group_line(group: &AlertGroup) -> String {
    let mut facts = vec![format!("group {}", text(&group.group, NAME))];
    let known = [("queue", &group.queue), ("first", &group.first_died_at), ("last", &group.last_died_at)];
    facts.extend(
        known.into_iter().filter_map(|(what, value)| Some(format!("{what} {}", text(value.as_deref()?, NAME)))),
    );
    let retrying = group.retrying.as_deref().map_or(String::new(), |said| format!("\n    ↳ {}", text(said, LINE)));
    let (task, error) = (name(group.task.as_deref(), "no task"), error_line(&group.error, LINE));
    format!("• {} × *{task}*: {error} ({}){retrying}\n", group.deaths, facts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{super::samples, tests::message};
    use crate::event::EventData;

    #[test]
    fn an_alert_says_how_bad_what_since_when_and_what_is_done() {
        let (notification, blocks) = message(&samples::firing());
        let summary = "orders, task send_email: the line rises, by 34 in 12m and in 10 of 12 steps, to 41 dead letters; \
                       mostly send_email (ConnectionError: smtp.example.test:25 timed out after 10.0s)";
        assert_eq!(notification, format!("critical: rising: {summary}"));
        let group = format!(
            "• 34 × *send_email*: ConnectionError: smtp.example.test:25 timed out after 10.0s (group 7c1f0e9a2b44, queue \
             default, first 2026-11-29T17:02:00.000Z, last 2026-11-29T17:12:00.000Z)\n    ↳ {}\n",
            samples::RETRYING
        );
        let facts = "task send_email  ·  value 34  ·  41 dead letters  ·  incident 9f86d081884c7d65";
        let since = "since 2026-11-29T17:02:00.000Z  ·  fired 2026-11-29T17:12:50.488Z";
        assert_eq!(
            blocks,
            [format!("*CRITICAL*: *rising* fires in *orders*\n{summary}"), group, format!("{since}  ·  {facts}"),]
        );
        let mut again = samples::firing();
        if let EventData::AlertFiring(alert) = &mut again.data {
            alert.repeated = true;
        }
        let (notification, blocks) = message(&again);
        assert_eq!(notification, format!("still critical: rising: {summary}"));
        assert!(blocks[0].starts_with("*STILL CRITICAL*: *rising* still fires in *orders*\n"), "{}", blocks[0]);

        let (notification, blocks) = message(&samples::resolved());
        let summary = "orders, task send_email: rising is over after 20m; 57 jobs died since it began, 12 dead letters are \
                       left";
        assert_eq!(notification, format!("resolved: rising: {summary}"));
        assert_eq!(blocks[0], format!("*Resolved*: *rising* is over in *orders*\n{summary}"));
        assert!(blocks[1].starts_with(&format!("{since}  ·  resolved 2026-11-29T17:32:50.488Z  ·  ")), "{}", blocks[1]);
        assert!(blocks[1].ends_with("incident 9f86d081884c7d65"));
    }
}
