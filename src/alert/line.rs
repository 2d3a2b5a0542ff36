//! The line as a picture in one row of text.

use std::time::Duration;

use super::samples::Samples;
use crate::{clock::millis, letter::Millis};

/// A line to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The highest level in each part of the time, the oldest first; none where nobody took samples.
    pub levels: Vec<Option<u64>>,
}

impl Line {
    /// The lowest and the highest level, if any is known.
    pub fn range(&self) -> Option<(u64, u64)> {
        let known = || self.levels.iter().flatten().copied();
        Some((known().min()?, known().max()?))
    }
}

impl std::fmt::Display for Line {
    /// One bar for each part, from the lowest level to the highest, and a blank where nobody took samples.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let (lowest, highest) = self.range().unwrap_or_default();
        let span = u128::from(highest - lowest).max(1);
        let bar = |level: u64| {
            let height = u128::from(level - lowest) * (BARS.len() as u128 - 1);
            usize::try_from(height.div_ceil(span)).map_or(BARS[0], |n| BARS[n.min(BARS.len() - 1)])
        };
        self.levels.iter().try_for_each(|level| std::fmt::Write::write_char(f, level.map_or(' ', bar)))
    }
}

impl Samples {
    /// The line of the time `over` before `now`, in so many parts.
    pub fn line(&self, now: Millis, over: Duration, parts: u32) -> Line {
        let (over, parts) = (millis(over).max(1), i64::from(parts.max(1)));
        let from = now.0 - over;
        let mut levels = vec![None; usize::try_from(parts).unwrap_or(1)];
        for level in self.closed_since(from).filter_map(|cell| cell.level) {
            // The last moment belongs to the last part.
            let part = ((level.at - from).max(0).saturating_mul(parts) / over).min(parts - 1);
            let highest = &mut levels[usize::try_from(part).unwrap_or(0)];
            *highest = (*highest).max(Some(level.entries));
        }
        Line { levels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_drawn_from_its_lowest_to_its_highest_with_gaps() {
        for (levels, expected) in [
            (vec![], ""),
            (vec![None, None], "  "),
            (vec![Some(5), Some(5)], "▁▁"),
            (vec![Some(0), Some(1)], "▁█"),
            (vec![Some(100), None, Some(101), Some(107)], "▁ ▂█"),
            (vec![Some(0), Some(u64::MAX)], "▁█"),
            ((0..8).map(Some).collect(), "▁▂▃▄▅▆▇█"),
        ] {
            assert_eq!(Line { levels: levels.clone() }.to_string(), expected, "{levels:?}");
        }
    }
}
