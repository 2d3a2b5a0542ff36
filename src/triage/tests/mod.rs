//! Triage against a ledger in memory.

mod acts;
mod bulk;
mod groups;
mod listing;
mod operations;

use std::{collections::BTreeMap, time::Duration};

use super::{
    fake::{Fake, letter, now},
    *,
};
use crate::{
    ledger::{Act, By, JobCounts, Judging, Refusal, TriageLedger},
    letter::{DeadLetter, Group, Millis, Reason},
    rule::{Action, Globs, Matcher, RetryRule, Rules, Terms},
};

/// Rules that retry what sends, and leave what parses.
fn rules() -> Rules {
    let task = |glob: &str| Matcher {
        task: Some(Globs::new(&[globset::Glob::new(glob).unwrap()]).unwrap()),
        ..Matcher::default()
    };
    let terms = Terms { confirm_within: Duration::from_secs(77), ..Terms::default() };
    let rule = |name: &str, glob, action| RetryRule { name: name.to_owned(), matcher: task(glob), action };
    Rules::new(vec![rule("flaky", "send_*", Action::Retry(Box::new(terms))), rule("bugs", "parse_*", Action::Leave)])
}

/// Letters `1-0` to `<count>-0`, one a second, the last one a second old.
fn letters(count: i64) -> Vec<DeadLetter> {
    (1..=count).map(|n| letter(&format!("{n}-0"), count + 1 - n)).collect()
}

fn filter(json: &str) -> Filter {
    serde_json::from_str::<FilterSpec>(json).unwrap().compile().unwrap()
}

fn anna() -> By {
    By { who: "anna@host".to_owned(), note: "smtp is back".to_owned(), operation: String::new() }
}

fn doing(act: Act, rules: &Rules) -> Doing<'_> {
    Doing { act, by: anna(), dry_run: false, rules }
}

/// Nobody is told.
fn silent() -> impl FnMut(Progress<'_>) + Send {
    |_| {}
}
