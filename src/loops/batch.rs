//! How many entries to read at a time: a DLQ full of huge ones must not fill memory.

/// Entries while nothing is known of their size.
pub(super) const FIRST: usize = 1;
/// What a batch should weigh at most.
const BYTES: usize = 2 * 1024 * 1024;

/// Twice as many as last time while they are small, at most `most`, and never more than weigh 2 MiB if all were as heavy
/// as the heaviest one of the last batch.
pub(super) fn next_size(last: usize, heaviest: usize, most: usize) -> usize {
    let fits = BYTES / heaviest.max(1);
    fits.min(last.saturating_mul(2)).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_entries_are_small_and_shrinks_when_they_are_not() {
        for (last, heaviest, expected) in [
            (1, 1_000, 2),
            (300, 1_000, 500),
            (500, 0, 500),
            (500, BYTES / 10, 10),
            (500, 100 * BYTES, 1),
            (2, BYTES, 1),
        ] {
            assert_eq!(next_size(last, heaviest, 500), expected, "{last} {heaviest}");
        }
    }
}
