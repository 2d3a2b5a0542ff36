//! What a rule says at one moment, and how far it is from firing.

use super::{
    Labels,
    rule::{AlertRule, Kind},
};
use crate::letter::Millis;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Nobody can say: no leader took samples when it mattered. Nothing begins by it and nothing ends.
    Unknown,
}

/// What is counted, in words.
pub(super) const BUCKETS_RISING: &str = "buckets rising";
pub(super) const STEADY_GROWTH: &str = "steady growth";
pub(super) const DEATHS: &str = "deaths";
pub(super) const ENTRIES: &str = "entries";

/// A condition that must be met, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What is counted, in words: `buckets rising` and `steady growth`, `deaths`, or `entries`.
    pub what: &'static str,
    /// How much there is; a line may also have fallen.
    pub have: i64,
    /// How much there must be.
    pub need: i64,
}

/// What a rule says of one set of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it is about.
    pub labels: Labels,
    /// Whether the rule's condition holds.
    pub holds: Holds,
    /// The one number to show: growth, deaths or entries.
    pub value: i64,
    /// Since when, as far as the samples tell: when the line began to rise, or the first of the deaths.
    pub since: Millis,
    /// What must be met, all of it.
    pub needs: Vec<Need>,
    /// For a rising line: whether it rises in one of the last two buckets.
    pub still_rising: Option<bool>,
    /// The rule is quiet because this one has told of the same thing.
    pub told_by: Option<String>,
}

impl Reading {
    /// How far it is from firing, from 0 to 1: the condition that is furthest from being met.
    pub fn progress(&self) -> f64 {
        let part = |need: &Need| {
            let (have, need) = (need.have.max(0) as f64, need.need.max(1) as f64);
            (have / need).min(1.0)
        };
        self.needs.iter().map(part).fold(1.0, f64::min)
    }
}

/// What a rule says at one moment.
#[derive(Clone, Debug)]
pub struct Judgement<'r> {
    /// The rule.
    pub rule: &'r AlertRule,
    /// By labels, the largest value first; what is not listed does not hold. None if the rule was not judged this time.
    pub readings: Option<Vec<Reading>>,
}

impl AlertRule {
    /// What must be met where nothing has been seen at all; empty for a rule that counts nothing.
    pub fn needs(&self) -> Vec<Need> {
        let need = |what, need: u64| Need { what, have: 0, need: i64::try_from(need).unwrap_or(i64::MAX) };
        match &self.kind {
            Kind::Rising(rising) => {
                vec![need(BUCKETS_RISING, rising.at_least.into()), need(STEADY_GROWTH, rising.growth)]
            }
            Kind::Burst(burst) => vec![need(DEATHS, burst.deaths)],
            Kind::Waiting(waiting) => vec![need(ENTRIES, waiting.entries)],
            Kind::NewGroup(_) => Vec::new(),
        }
    }
}
