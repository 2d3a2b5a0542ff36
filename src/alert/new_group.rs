//! `new_group`: the first death of a group that has not died for long.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    AlertRule, Cause, Labels,
    reading::{Holds, Reading},
    rule::NewGroup,
};
use crate::{clock::millis, letter::Millis};

/// A group counts as new for this long after it was seen.
pub(super) const NEW_FOR: Duration = Duration::from_secs(10 * 60);
/// New groups remembered at most. Where more come than that, a message cannot be normalised, and none of them is news.
const REMEMBERED: usize = 32;

/// A group that had not died for a while when it was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fresh {
    /// When it was seen.
    pub at: Millis,
    /// When it had died before, if that is known.
    pub before: Option<Millis>,
    /// What it is.
    pub cause: Cause,
}

/// The groups that are new just now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Newcomers {
    fresh: Vec<Fresh>,
}

impl Newcomers {
    /// Remembers one.
    pub(super) fn add(&mut self, fresh: Fresh) {
        if self.fresh.len() < REMEMBERED {
            self.fresh.push(fresh);
        }
    }

    /// Forgets what is new no longer.
    pub(super) fn forget(&mut self, now: Millis) {
        self.fresh.retain(|fresh| now.0.saturating_sub(fresh.at.0) < millis(NEW_FOR));
    }

    /// What the rule says now.
    pub(super) fn judge(&self, rule: &AlertRule, new: &NewGroup, source: &str) -> Vec<Reading> {
        let mut groups: BTreeMap<Labels, (i64, Millis)> = BTreeMap::new();
        for (labels, fresh) in self.meant(rule, new, source) {
            let (count, since) = groups.entry(labels).or_insert((0, fresh.at));
            *count += 1;
            *since = (*since).min(fresh.at);
        }
        let reading = |(labels, (count, since))| Reading {
            labels,
            holds: Holds::Yes,
            value: count,
            since,
            needs: Vec::new(),
            still_rising: None,
            told_by: None,
        };
        groups.into_iter().map(reading).collect()
    }

    /// The new groups that the rule means, with what an incident about them would be about.
    pub(super) fn meant<'a>(
        &'a self,
        rule: &'a AlertRule,
        new: &'a NewGroup,
        source: &'a str,
    ) -> impl Iterator<Item = (Labels, &'a Fresh)> {
        self.fresh.iter().filter_map(move |fresh| {
            let quiet = fresh.before.is_none_or(|before| fresh.at.0.saturating_sub(before.0) >= millis(new.quiet_for));
            Some((quiet.then(|| fresh.cause.labels(rule, source))??, fresh))
        })
    }
}
