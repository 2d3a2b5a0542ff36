//! How far long work has come, on the terminal that errors go to.

use std::{
    fmt,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::io::Screen;
use crate::{clock::monotonic, triage};

/// Nothing is shown of work that is done sooner.
const SHOWN_AFTER: Duration = Duration::from_millis(250);
/// Redrawn so often a second at most.
const A_SECOND: u8 = 5;

/// A search: how many entries of how many were looked at.
const SEARCH: &str = "{prefix}: scanned {human_pos} of {human_len}, {rate}, {eta} left";
/// Work: with a bar, and what came of it.
const WORK: &str = "{prefix}: {wide_bar} {human_pos} of {human_len}, {rate}, {eta} left{msg}";

/// A line on the terminal about how far long work has come.
pub(super) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// Nothing is shown yet, but may be.
    waits: bool,
}

impl Progress {
    /// Of a search. Nothing is ever shown where there is no terminal.
    pub(super) fn of_search(screen: Screen) -> Progress {
        Progress::new(screen, SEARCH)
    }

    /// Of work.
    pub(super) fn of_work(screen: Screen) -> Progress {
        Progress::new(screen, WORK)
    }

    fn new(screen: Screen, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        // The templates above are the only ones.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, to: &mut dyn fmt::Write| {
                // A terminal that cannot be written to is no reason to stop.
                let _ = write!(to, "{:.0}/s", state.per_sec());
            };
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ ").with_key("rate", rate));
        }
        Progress { bar, begun: monotonic(), waits: screen.progress }
    }

    /// So much of so much, in this source.
    pub(super) fn show(&mut self, source: &str, done: u64, of: u64) {
        if self.waits && self.begun.elapsed() >= SHOWN_AFTER {
            self.waits = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(A_SECOND));
        }
        if self.bar.prefix() != source {
            self.bar.reset();
            self.bar.set_prefix(source.to_owned());
        }
        // Entries may come while they are counted.
        self.bar.set_length(of.max(done));
        self.bar.set_position(done);
    }

    /// What is said behind it.
    pub(super) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// To be told by triage.
    pub(super) fn told(&mut self) -> impl FnMut(triage::Progress<'_>) + Send {
        |progress| self.show(progress.source, progress.looked_at, progress.entries)
    }

    /// Does something with the line out of the way.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Takes the line away for good.
    pub(super) fn clear(self) {
        self.bar.finish_and_clear();
    }
}
