//! How long to wait before another try.

use std::time::Duration;

/// The base of the first pause; each further one doubles it.
const FIRST: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(300);

/// The pause after the `failures`-th failure (from 1): between half of the base and all of it, as `chance` (0 to 1)
/// says; so the first is 1 to 2 s, and none is longer than 5 min.
pub fn pause(failures: u32, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let base = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    base.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_one_second_to_five_minutes_and_are_jittered() {
        for (failures, chance, seconds) in [
            (0, 0.0, 1),
            (1, 0.0, 1),
            (1, 1.0, 2),
            (2, 0.0, 2),
            (3, 0.0, 4),
            (8, 0.0, 128),
            (9, 0.0, 150),
            (9, 1.0, 300),
            (u32::MAX, 1.0, 300),
            (1, 7.0, 2),
        ] {
            assert_eq!(pause(failures, chance).as_secs(), seconds, "{failures} {chance}");
        }
    }
}
