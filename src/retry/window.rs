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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_it_loses_and_all_of_it_fills_a_window() {
        for (size, good, bad, lost, full) in [
            (0, 0, 0, false, false),
            (1, 0, 0, false, false),
            (1, 0, 1, true, true),
            (1, 1, 0, false, true),
            (2, 0, 1, true, false),
            (3, 0, 1, false, false),
            (3, 2, 1, false, true),
            (3, 0, 2, true, false),
            (10, 5, 4, false, false),
            (10, 0, 5, true, false),
            (10, 6, 4, false, true),
        ] {
            let mut window = Window::of(size);
            (0..good).for_each(|_| window.add_good());
            (0..bad).for_each(|_| window.add_bad());
            assert_eq!((window.is_lost(), window.is_full()), (lost, full), "{window:?}");
        }
    }

    #[test]
    fn stored_numbers_are_brought_into_range() {
        let rubbish = Window { size: u32::MAX, good: u32::MAX, bad: u32::MAX };
        let mut window = rubbish.clamped();
        assert_eq!(window, Window { size: LARGEST, good: LARGEST, bad: LARGEST });
        window.shrink(0);
        assert_eq!(window.size, 1);
        assert_eq!(Window::default().clamped(), Window::of(1));
        assert_eq!(rubbish.resized(30), Window { size: 30, good: 30, bad: 30 });
    }
}
