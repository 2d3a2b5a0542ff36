//! A window of outcomes: so many in a row, of which half must not fail.

use serde::{Deserialize, Serialize};

/// Outcomes in a window at most, whatever is stored.
const LARGEST: u32 = 1_000_000;

/// What became of the last few retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Window {
    /// Outcomes it takes before it begins anew.
    size: u32,
    /// Recoveries in it.
    good: u32,
    /// Failures in it.
    bad: u32,
}

impl Window {
    /// A new one for so many outcomes, at least one.
    pub(super) fn of(size: u32) -> Window {
        Window { size: size.clamp(1, LARGEST), good: 0, bad: 0 }
    }

    /// The same with its numbers in range, whatever was stored.
    pub(super) fn clamped(self) -> Window {
        self.resized(self.size)
    }

    /// The same for so many outcomes.
    pub(super) fn resized(self, size: u32) -> Window {
        let size = size.clamp(1, LARGEST);
        Window { size, good: self.good.min(size), bad: self.bad.min(size) }
    }

    /// One more recovery.
    pub(super) fn add_good(&mut self) {
        self.good = self.good.saturating_add(1);
    }

    /// One more failure.
    pub(super) fn add_bad(&mut self) {
        self.bad = self.bad.saturating_add(1);
    }

    /// Lets it take no more than this, at least one.
    pub(super) fn shrink(&mut self, size: u32) {
        self.size = self.size.min(size.max(1));
    }

    /// At least half of it failed, however the rest will end.
    pub(super) fn is_lost(&self) -> bool {
        self.bad >= self.size.div_ceil(2)
    }

    /// It has taken what it takes.
    pub(super) fn is_full(&self) -> bool {
        self.good.saturating_add(self.bad) >= self.size
    }
}
