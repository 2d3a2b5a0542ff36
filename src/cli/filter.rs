//! The filters of `ls` and of whatever else walks a DLQ, as flags.

use std::time::Duration;

use clap::Args;
use globset::Glob;
use regex::Regex;

use super::exit::Failure;
use crate::{
    letter::{Group, Reason},
    triage::{Filter, FilterError, FilterSpec},
};

/// Which entries are meant; all conditions must hold.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub(super) struct FilterArgs {
    /// Glob on the source's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    pub(super) source: Vec<Glob>,

    /// Glob on the queue's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    queue: Vec<Glob>,

    /// Glob on the task's name; may be repeated, any may match
    #[arg(long, value_name = "GLOB")]
    task: Vec<Glob>,

    /// Why it was buried, as the framework names it; may be repeated
    #[arg(long, value_name = "REASON", value_parser = Reason::NAMES)]
    reason: Vec<String>,

    /// Group, 12 hexadecimal digits; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    group: Vec<String>,

    /// Regular expression on "Type: message" of the error
    #[arg(long, value_name = "REGEX")]
    error: Option<Regex>,

    /// Died longer ago than this, such as 90s, 24h, 7d
    #[arg(long, value_name = "AGE")]
    pub(super) older_than: Option<humantime::Duration>,

    /// Died within this time, such as 90s, 24h, 7d
    #[arg(long, value_name = "AGE")]
    newer_than: Option<humantime::Duration>,
}

impl FilterArgs {
    /// As triage has it.
    pub(super) fn spec(&self) -> FilterSpec {
        let globs = |globs: &[Glob]| globs.iter().map(|glob| glob.glob().to_owned()).collect();
        let age = |age: Option<humantime::Duration>| age.map(Duration::from);
        FilterSpec {
            source: globs(&self.source),
            queue: globs(&self.queue),
            task: globs(&self.task),
            reason: self.reason.clone(),
            group: self.group.clone(),
            error: self.error.as_ref().map(|error| error.as_str().to_owned()),
            older_than: age(self.older_than),
            newer_than: age(self.newer_than),
        }
    }

    /// Ready for use.
    pub(super) fn compile(&self) -> Result<Filter, Failure> {
        let option =
            |FilterError { field, problem }| Failure::Usage(format!("--{}: {problem}", field.replace('_', "-")));
        self.spec().compile().map_err(option)
    }
}

fn parse_group(text: &str) -> Result<String, String> {
    let group = text.to_ascii_lowercase();
    if Group::is_one(&group) {
        return Ok(group);
    }
    Err(format!("a group is {} hexadecimal digits, as `sexton ls` shows it", Group::DIGITS))
}
