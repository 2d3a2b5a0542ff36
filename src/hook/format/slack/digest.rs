//! A digest in Slack: one line, the groups, and where to begin looking. A summary has its line as a sparkline.

use serde_json::Value;

use super::{
    super::words::{self, listed},
    mrkdwn::{LINE, NAME, SECTION, code, context, error_line, name, section, text},
};
use crate::event::{Counts, Digest, GroupCount, Outlook};

/// What the line about groups that are not listed takes at most.
const OTHERS: usize = 200;

pub(super) fn digest(digest: &Digest) -> (String, Vec<Value>) {
    let all = &digest.counts;
    let head = text(&words::digest(digest), LINE);
    let mut blocks = vec![section(&format!("*{head}*"))];
    blocks.extend(digest.outlook.as_ref().and_then(line));
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

/// The line over the time of a summary, with the range it moved in.
fn line(outlook: &Outlook) -> Option<Value> {
    if outlook.sparkline.trim().is_empty() {
        return None;
    }
    let range = match (outlook.lowest, outlook.highest) {
        (Some(lowest), Some(highest)) => format!("\n{lowest} to {highest} dead letters"),
        _ => String::new(),
    };
    Some(section(&format!("{}{range}", code(&outlook.sparkline, LINE))))
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

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::{
        super::tests::{block_text, message},
        *,
    };
    use crate::event::EventData;

    #[test]
    fn a_digest_lists_its_groups() {
        let value = samples::parsed(&super::super::body(&samples::digest()));
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
            let value = samples::parsed(&super::super::body(&samples::event(EventData::Digest(Box::new(digest)))));
            assert_eq!(value["text"], head);
            assert_eq!(block_text(&value["blocks"][0]), format!("*{head}*"));
            assert_eq!(block_text(&value["blocks"][1]), lines);
        }
    }

    #[test]
    fn a_summary_says_what_happened_what_waits_and_how_the_line_went() {
        let (notification, blocks) = message(&samples::summary());
        let head = "summary of orders: 12 jobs died, 5 were retried and 3 ran through; 2 of the deaths were not the first; \
                    9 wait now; rising fires";
        assert_eq!(notification, head);
        assert_eq!(blocks[0], format!("*{head}*"));
        assert_eq!(blocks[1], "```▁▁▂▅█ ▃▂```\n0 to 41 dead letters");
        assert!(blocks[2].starts_with("• 12 × *send_email*: ConnectionError: "), "{}", blocks[2]);
        // A quiet night is worth a line, too.
        let mut quiet = samples::summary();
        if let EventData::Digest(digest) = &mut quiet.data {
            let outlook = Outlook { waiting: Some(1), ..Outlook::default() };
            **digest =
                Digest { counts: Counts::default(), groups: Vec::new(), outlook: Some(outlook), ..(**digest).clone() };
        }
        let (notification, blocks) = message(&quiet);
        assert_eq!(notification, "summary of orders: nothing died; 1 waits now");
        assert_eq!(blocks.len(), 2, "{blocks:?}");
    }
}
