//! Which groups have died before, and when last: longer than the line is kept, and of many more groups.
//!
//! Kept in the ledger in 256 small texts, so that a death writes little; bounded, the longest quiet ones go first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use super::{Fields, rule::QUIET_AT_MOST};
use crate::{clock::millis, letter::Millis};

/// Groups known at most in each of the 256 texts.
const GROUPS: usize = 24;
/// A later death of a known group is saved once it is this much later (ms), or a sixteenth of the shortest `quiet_for`:
/// by so much may a new leader take a group for quiet too early.
const GRAIN: i64 = 3_600_000;

/// A group's last death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    group: u64,
    /// In memory.
    last: i64,
    /// In the ledger.
    saved: i64,
}

/// The groups that have died in the last 30 days, some 6,000 at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    buckets: BTreeMap<u8, Vec<Seen>>,
    dirty: BTreeSet<u8>,
}

impl Known {
    /// Takes a field of the ledger; false if it is none of these.
    pub(super) fn load(&mut self, name: &str, text: &str) -> bool {
        let Some(bucket) = name.strip_prefix('g').and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return false;
        };
        let groups = text.split(',').filter_map(|one| {
            let (group, last) = one.split_once(':')?;
            let last = last.parse::<u32>().map(i64::from).ok()? * 1000;
            Some(Seen { group: u64::from_str_radix(group, 16).ok()?, last, saved: last })
        });
        self.buckets.insert(bucket, groups.take(GROUPS).collect());
        true
    }

    /// Notes that a group died at `at`; gives when it had died before, if that is known. `quiet_for` is the shortest time
    /// that any rule asks for.
    pub(super) fn see(&mut self, group: &str, at: Millis, quiet_for: Option<Duration>) -> Option<Millis> {
        let number = u64::from_str_radix(group, 16).unwrap_or_else(|_| {
            Sha256::digest(group).iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
        });
        // The last digits of a fingerprint are as good as random.
        let bucket = (number & 0xff) as u8;
        let groups = self.buckets.entry(bucket).or_default();
        if let Some(seen) = groups.iter_mut().find(|seen| seen.group == number) {
            let before = seen.last;
            seen.last = before.max(at.0);
            let grain = quiet_for.map_or(GRAIN, |quiet_for| GRAIN.min(millis(quiet_for) / 16));
            if seen.last - seen.saved >= grain.max(1_000) {
                seen.saved = whole_seconds(seen.last);
                self.dirty.insert(bucket);
            }
            return Some(Millis(before));
        }
        groups.retain(|seen| at.0 - seen.last <= millis(QUIET_AT_MOST));
        if groups.len() >= GROUPS
            && let Some(quietest) = (0..groups.len()).min_by_key(|&n| groups[n].last)
        {
            groups.swap_remove(quietest);
        }
        groups.push(Seen { group: number, last: at.0, saved: whole_seconds(at.0) });
        self.dirty.insert(bucket);
        None
    }

    /// What has changed since the last call.
    pub(super) fn save(&mut self, fields: &mut Fields) {
        for bucket in std::mem::take(&mut self.dirty) {
            let Some(groups) = self.buckets.get(&bucket) else { continue };
            let one = |seen: &Seen| format!("{:x}:{}", seen.group, seen.saved / 1000);
            fields.set(format!("g{bucket:02x}"), groups.iter().map(one).collect::<Vec<_>>().join(","));
        }
    }
}

fn whole_seconds(ms: i64) -> i64 {
    ms - ms.rem_euclid(1000)
}
