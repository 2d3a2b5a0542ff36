//! The filters of `ls` and of whatever else walks a DLQ, and the walk itself: page by page, newest first.

use std::time::Duration;

use clap::Args;
use globset::Glob;
use regex::Regex;

use super::exit::Failure;
use crate::{
    clock::millis,
    event::{Include, JobDead},
    ledger::{self, Ledger},
    letter::{DeadLetter, Group, Millis, Reason},
    rule::{Globs, Matcher, Subject},
};

/// Entries read in one piece. Bounds the memory for a DLQ of any size.
const PAGE: usize = 200;

/// Which entries are meant; all conditions must hold.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub(super) struct FilterArgs {
    /// Glob on the source's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    pub(super) source: Vec<Glob>,

    /// Glob on the queue's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    pub(super) queue: Vec<Glob>,

    /// Glob on the task's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    pub(super) task: Vec<Glob>,

    /// Why it was buried, as the framework names it; may be repeated
    #[arg(long, value_name = "REASON", value_parser = Reason::NAMES)]
    pub(super) reason: Vec<String>,

    /// Group, 12 hexadecimal digits; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    pub(super) group: Vec<String>,

    /// Regular expression on "Type: message" of the error
    #[arg(long, value_name = "REGEX")]
    pub(super) error: Option<Regex>,

    /// Died longer ago than this, such as 90s, 24h, 7d
    #[arg(long, value_name = "AGE")]
    pub(super) older_than: Option<humantime::Duration>,

    /// Died within this time, such as 90s, 24h, 7d
    #[arg(long, value_name = "AGE")]
    pub(super) newer_than: Option<humantime::Duration>,
}

impl FilterArgs {
    /// Ready for use.
    pub(super) fn compile(&self) -> Result<Filter, Failure> {
        let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        Ok(Filter {
            matcher: Matcher {
                queue: globs("queue", &self.queue)?,
                task: globs("task", &self.task)?,
                reason: some(&self.reason),
                group: some(&self.group),
                error: self.error.clone(),
                ..Matcher::default()
            },
            older_than: self.older_than.map(Into::into),
            newer_than: self.newer_than.map(Into::into),
        })
    }
}

fn parse_group(text: &str) -> Result<String, String> {
    let group = text.to_ascii_lowercase();
    if Group::is_one(&group) {
        return Ok(group);
    }
    Err(format!("a group is {} hexadecimal digits, as `sexton ls` shows it", Group::DIGITS))
}

fn globs(option: &str, globs: &[Glob]) -> Result<Option<Globs>, Failure> {
    if globs.is_empty() {
        return Ok(None);
    }
    Globs::new(globs).map(Some).map_err(|error| Failure::Usage(format!("--{option}: {error}")))
}

/// A compiled filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    matcher: Matcher,
    older_than: Option<Duration>,
    newer_than: Option<Duration>,
}

impl Filter {
    /// True if it may pass some entries of a source and not others, so that finding them may take long.
    pub(super) fn is_selective(&self) -> bool {
        let Matcher { source, queue, task, reason, error, history, group } = &self.matcher;
        source.is_some()
            || queue.is_some()
            || task.is_some()
            || reason.is_some()
            || error.is_some()
            || history.is_some()
            || group.is_some()
            || self.older_than.is_some()
            || self.newer_than.is_some()
    }
}

/// A walk through one source's DLQ.
pub(super) struct Walk<'a> {
    ledger: &'a dyn Ledger,
    filter: &'a Filter,
    /// Deaths before this are too old.
    from: Option<Millis>,
    /// Deaths after this are too young.
    until: Option<Millis>,
    before: Option<String>,
    ended: bool,
    /// Entries looked at so far.
    pub(super) scanned: u64,
}

/// An entry that passed.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// When it was buried.
    pub(super) died_at: Millis,
    /// What is listed of it; `deaths` and `retries` are still to be filled in.
    pub(super) job: JobDead,
}

impl<'a> Walk<'a> {
    /// From before the entry `before`, or from the newest on. Ages count from `now`.
    pub(super) fn new(ledger: &'a dyn Ledger, filter: &'a Filter, now: Millis, before: Option<String>) -> Walk<'a> {
        let ago = |age: Duration| Millis(now.0.saturating_sub(millis(age)));
        Walk {
            ledger,
            filter,
            from: filter.newer_than.map(ago),
            until: filter.older_than.map(ago),
            before,
            ended: false,
            scanned: 0,
        }
    }

    /// True once there is nothing more to look at.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// The next page's letters whatever the filter, newest first; `None` at the end.
    pub(super) async fn letters(&mut self) -> ledger::Result<Option<Vec<DeadLetter>>> {
        if self.ended {
            return Ok(None);
        }
        let page = self.ledger.page(self.before.as_deref(), PAGE).await?;
        self.scanned += page.letters.len() as u64;
        // A page of nothing but too old entries ends the walk. Not the first such entry: a record's own idea of when
        // it died may be nonsense.
        let too_old = |letter: &DeadLetter| self.from.is_some_and(|from| letter.died_at < from);
        self.ended = page.next.is_none() || (page.letters.len() >= PAGE && page.letters.iter().all(too_old));
        self.before = page.next;
        Ok(Some(page.letters))
    }

    /// The letters of the next page that pass the filter, newest first, perhaps none; `None` at the end.
    pub(super) async fn passing(&mut self) -> ledger::Result<Option<Vec<DeadLetter>>> {
        let Some(mut letters) = self.letters().await? else { return Ok(None) };
        letters.retain(|letter| self.passes(letter));
        Ok(Some(letters))
    }

    /// The same, as they are listed.
    pub(super) async fn next(&mut self) -> ledger::Result<Option<Vec<Found>>> {
        let Some(letters) = self.passing().await? else { return Ok(None) };
        let found = |letter: &DeadLetter| Found {
            died_at: letter.died_at,
            job: JobDead::of(self.ledger.name(), letter, Include::default()),
        };
        Ok(Some(letters.iter().map(found).collect()))
    }

    fn passes(&self, letter: &DeadLetter) -> bool {
        let died_at = letter.died_at;
        let in_time = self.from.is_none_or(|from| died_at >= from) && self.until.is_none_or(|until| died_at <= until);
        in_time && self.filter.matcher.matches(&Subject::of(self.ledger.name(), letter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, letter, now};

    fn args(words: &[&str]) -> FilterArgs {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            filter: FilterArgs,
        }
        <Only as clap::Parser>::try_parse_from([&["x"], words].concat()).unwrap().filter
    }

    async fn passed(fake: &Fake, words: &[&str]) -> Vec<String> {
        let filter = args(words).compile().unwrap();
        let mut walk = Walk::new(fake, &filter, now(), None);
        let mut passed = Vec::new();
        while let Some(found) = walk.next().await.unwrap() {
            passed.extend(found.into_iter().map(|found| found.job.entry_id));
        }
        passed
    }

    #[tokio::test]
    async fn every_filter_keeps_what_it_names() {
        let fake = Fake::new(
            "orders",
            vec![
                DeadLetter { task: "send_email".into(), queue: "mail".into(), ..letter("1-0", 3_600) },
                DeadLetter { task: "send_sms".into(), queue: "sms".into(), ..letter("2-0", 600) },
                DeadLetter { task: "charge".into(), reason: Reason::Malformed, ..letter("3-0", 60) },
                DeadLetter { task: "x".into(), group: Group("aaaaaaaaaaaa".into()), ..letter("4-0", 0) },
            ],
        );
        for (words, expected) in [
            (&[][..], &["4-0", "3-0", "2-0", "1-0"][..]),
            (&["--task", "send_*"], &["2-0", "1-0"]),
            (&["--task", "send_e*", "--task", "charge"], &["3-0", "1-0"]),
            (&["--queue", "sms"], &["2-0"]),
            (&["--reason", "malformed"], &["3-0"]),
            (&["--group", "aaaaaaaaaaaa"], &["4-0"]),
            (&["--error", "^ConnectionError: .*4-0"], &["4-0"]),
            (&["--older-than", "10m"], &["2-0", "1-0"]),
            (&["--newer-than", "10m"], &["4-0", "3-0", "2-0"]),
            (&["--newer-than", "30m", "--older-than", "30s"], &["3-0", "2-0"]),
            (&["--task", "send_*", "--queue", "none"], &[]),
        ] {
            assert_eq!(passed(&fake, words).await, expected, "{words:?}");
        }
    }

    #[tokio::test]
    async fn a_long_queue_is_read_in_pieces_and_not_beyond_what_is_too_old() {
        let letters = (0..1_000).map(|n| letter(&format!("{n}-0"), 1_000 - n)).collect();
        let fake = Fake::new("orders", letters);
        let filter = args(&["--newer-than", "100s"]).compile().unwrap();
        let mut walk = Walk::new(&fake, &filter, now(), None);
        let mut passed = 0;
        while let Some(found) = walk.next().await.unwrap() {
            assert!(found.len() <= PAGE);
            passed += found.len();
        }
        assert_eq!(passed, 100, "ages 1 s to 100 s");
        assert_eq!(walk.scanned, 2 * PAGE as u64, "one page with matches, and one that is all too old");
    }
}
