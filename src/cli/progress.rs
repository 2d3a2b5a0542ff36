//! How far long work has come, as one line of a terminal that is written over.

use std::time::{Duration, Instant};

use super::{exit::Failure, io::Io, text::count};
use crate::clock::monotonic;

/// Progress is shown from here on, and this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// A line on the terminal about how far a long search has come.
pub(super) struct Progress {
    wanted: bool,
    last: Instant,
    shown: bool,
}

impl Progress {
    /// Nothing is shown yet, and nothing ever is if it is not `wanted`.
    pub(super) fn new(wanted: bool) -> Progress {
        Progress { wanted, last: monotonic(), shown: false }
    }

    /// Shows it, if it is time to.
    pub(super) fn show(&mut self, source: &str, scanned: u64, entries: u64, io: &mut Io<'_>) -> Result<(), Failure> {
        if self.wanted && io.screen.progress && self.last.elapsed() >= PROGRESS_EVERY {
            (self.last, self.shown) = (monotonic(), true);
            write!(io.err, "\r{source}: scanned {} of {}\x1b[K", count(scanned), count(entries))?;
            io.err.flush()?;
        }
        Ok(())
    }

    /// Takes the line away, so that something else can be written.
    pub(super) fn clear(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        if std::mem::take(&mut self.shown) {
            write!(io.err, "\r\x1b[K")?;
            io.err.flush()?;
        }
        Ok(())
    }
}
