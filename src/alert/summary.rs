//! The scheduled summary, for people who like one: what died, what was raised, what waits.

use std::time::Duration;

use super::{GroupDeaths, KEPT, cause::CauseId, line::Line, samples::Samples};
use crate::{
    clock::millis,
    event::{Counts, Digest, GroupCount, Outlook, rfc3339, text},
    letter::Millis,
    rule::Window,
};

/// A summary that could not be sent in time is still sent this much later, and not at all after that.
const LATE: Duration = Duration::from_secs(3600);
/// Groups that a summary lists.
const TOP_GROUPS: usize = 10;
/// Parts of the line.
const PARTS: u32 = 48;

/// What happened since the last summary, a day at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// From when on.
    pub from: Millis,
    /// Until when.
    pub until: Millis,
    /// Jobs that died for the first time.
    pub died: u64,
    /// Jobs that died once more.
    pub died_again: u64,
    /// Retries.
    pub retried: u64,
    /// Jobs that ran through after a retry, or were removed.
    pub left: u64,
    /// Dead letters that wait, retries in flight included; none if no sample was ever taken.
    pub waiting: Option<u64>,
    /// The groups that died most, the largest first, with all their deaths.
    pub groups: Vec<GroupDeaths>,
    /// Deaths in groups that are not listed.
    pub other: u64,
    /// Some deaths were not counted by group: there were too many groups.
    pub folded: bool,
    /// The line since.
    pub line: Line,
}

/// The moment at which a summary is due: the latest in (`last`, `now`] that the schedule names, each named minute once.
/// None too if that was more than an hour ago.
pub(super) fn due(schedule: &Window, last: Millis, now: Millis) -> Option<Millis> {
    const MINUTE: i64 = 60_000;
    let mut from = last.0.max(now.0 - millis(LATE));
    let mut due = None;
    // A minute is open in each of its seconds: on from its end.
    while let Some(next) = schedule.opens_after(Millis((from.div_euclid(MINUTE) + 1) * MINUTE - 1)) {
        if next > now {
            break;
        }
        due = Some(next);
        from = next.0;
    }
    due
}

impl Samples {
    /// What happened from `from` until `now`.
    pub fn summary(&self, from: Millis, now: Millis) -> Summary {
        let from = Millis(from.0.clamp(now.0 - millis(KEPT), now.0));
        let mut by_cause: std::collections::BTreeMap<CauseId, (u64, i64)> = Default::default();
        let (mut died, mut died_again, mut retried, mut left, mut folded) = (0, 0, 0, 0, false);
        for cell in self.since(from.0) {
            retried += u64::from(cell.retried);
            for count in &cell.counts {
                died += u64::from(count.first);
                died_again += u64::from(count.again);
                left += u64::from(count.left);
                if count.deaths() > 0 {
                    let at = cell.end(now);
                    by_cause.entry(count.cause).or_insert((0, at)).0 += count.deaths();
                    folded |= self.causes.depth(count.cause) > 0;
                }
            }
        }
        let named = |(id, (deaths, last)): (CauseId, (u64, i64))| {
            let cause = self.causes.get(id).filter(|cause| cause.depth() == 0)?.clone();
            Some(GroupDeaths { cause, deaths, last: Some(Millis(last)) })
        };
        let mut groups: Vec<GroupDeaths> = by_cause.into_iter().filter_map(named).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.deaths));
        groups.truncate(TOP_GROUPS);
        let listed: u64 = groups.iter().map(|group| group.deaths).sum();
        let over = Duration::from_millis(u64::try_from(now.0 - from.0).unwrap_or(0));
        Summary {
            from,
            until: now,
            died,
            died_again,
            retried,
            left,
            waiting: self.level(),
            groups,
            other: (died + died_again).saturating_sub(listed),
            folded,
            line: self.line(now, over, PARTS),
        }
    }
}

impl Summary {
    /// What hooks are told: `firing` are the names of the alert rules that fire now, `hooks` those that are told.
    pub fn digest(&self, source: &str, firing: Vec<String>, hooks: Option<Vec<String>>) -> Digest {
        let count = |deaths| Counts { deaths, ..Counts::default() };
        let group = |group: &GroupDeaths| GroupCount {
            group: group.cause.group.clone(),
            counts: count(group.deaths),
            task: text(&group.cause.task),
            error: group.cause.error.clone(),
        };
        let (lowest, highest) = self.line.range().unzip();
        Digest {
            source: source.to_owned(),
            why: "schedule".to_owned(),
            counts: Counts { retried: self.retried, recovered: self.left, ..count(self.died + self.died_again) },
            from: rfc3339(self.from),
            until: rfc3339(self.until),
            groups: self.groups.iter().map(group).collect(),
            other_count: self.other,
            groups_estimated: self.folded,
            samples: Vec::new(),
            outlook: Some(Outlook {
                died_again: self.died_again,
                waiting: self.waiting,
                sparkline: self.line.to_string(),
                lowest,
                highest,
                firing,
            }),
            hooks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_due_once_for_each_minute_named_and_not_much_later() {
        const MINUTE: i64 = 60_000;
        // Monday, 16 November 2026, 08:00 UTC, which is nine in Berlin.
        let nine = 1_794_816_000_000;
        let berlin = crate::rule::Zone::named("Europe/Berlin").expect("the database has it");
        let schedule = Window::parse("0 9 * * Mon-Fri", berlin).expect("five fields");
        for (last, now, expected) in [
            (nine - MINUTE, nine - 1, None),
            (nine - MINUTE, nine, Some(nine)),
            (nine - MINUTE, nine + 59 * MINUTE, Some(nine)),
            (nine - MINUTE, nine + 61 * MINUTE, None),
            (nine, nine + 1_000, None),
            (nine, nine + MINUTE, None),
            (nine, nine + 24 * 60 * MINUTE, Some(nine + 24 * 60 * MINUTE)),
            // Saturday.
            (nine + 4 * 24 * 60 * MINUTE, nine + 5 * 24 * 60 * MINUTE, None),
        ] {
            assert_eq!(due(&schedule, Millis(last), Millis(now)), expected.map(Millis), "{last} {now}");
        }
        let often = Window::parse("* * * * *", berlin).expect("five fields");
        assert_eq!(due(&often, Millis(nine), Millis(nine + 5 * MINUTE + 7)), Some(Millis(nine + 5 * MINUTE)));
        assert_eq!(due(&often, Millis(0), Millis(nine + 7)), Some(Millis(nine)));
    }
}
