//! A child process that sees another wall clock than the machine's, which can be stepped while it runs (libfaketime).
//!
//! Its monotonic clock is the machine's: a step moves dates, not time-outs, as when an administrator sets the clock.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

/// What the child's wall clock shows, kept in a file that the child reads again whenever it asks for the time: the
/// machine's time and an offset, or one moment at which it stands still.
#[derive(Debug)]
pub(crate) struct FakeClock {
    file: PathBuf,
    offset_ms: i64,
}

impl FakeClock {
    /// A clock in this folder that shows the machine's time.
    pub(crate) fn in_folder(folder: &Path) -> FakeClock {
        let clock = FakeClock { file: folder.join("clock"), offset_ms: 0 };
        clock.run_on();
        clock
    }

    /// Steps it forwards, or backwards if negative.
    pub(crate) fn step_ms(&mut self, by: i64) {
        self.offset_ms += by;
        self.run_on();
    }

    /// Stops it at this moment, in milliseconds since 1970, until it is set again. Whoever waits by it waits for ever.
    pub(crate) fn stand_still_at(&self, ms: i64) {
        let at = chrono::DateTime::from_timestamp_millis(ms).expect("a time that a calendar holds");
        // Half a millisecond more, because the child reads the fraction as a number that is never exact.
        self.write(&format!("{}5\n", at.format("%Y-%m-%d %H:%M:%S%.3f")));
    }

    fn run_on(&self) {
        let (sign, offset) = (if self.offset_ms < 0 { '-' } else { '+' }, self.offset_ms.unsigned_abs());
        self.write(&format!("{sign}{}.{:03}\n", offset / 1000, offset % 1000));
    }

    /// Renamed into place: the child never reads half of it.
    fn write(&self, shown: &str) {
        let new = self.file.with_extension("new");
        let written = std::fs::write(&new, shown).and_then(|()| std::fs::rename(&new, &self.file));
        written.expect("the clock's folder can be written to");
    }

    /// Makes a command see this clock.
    pub(crate) fn shown_to(&self, command: &mut Command) {
        // The C library's own malloc in front of any other: jemalloc asks for the time before libfaketime can tell it.
        command.env("LD_PRELOAD", format!("{}:libc.so.6", library()));
        command.env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        // A moment is written as a date, which is read as one of this zone.
        command.env("TZ", "UTC");
    }
}

/// Where libfaketime is: the command that comes with it knows.
fn library() -> String {
    let told = match Command::new("faketime").args(["-m", "-f", "+0", "env"]).output() {
        Ok(told) => String::from_utf8_lossy(&told.stdout).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("these tests need faketime on the PATH: `make test` gets it")
        }
        Err(error) => panic!("cannot run faketime: {error}"),
    };
    let preloaded = told.lines().find_map(|line| line.strip_prefix("LD_PRELOAD="));
    preloaded.unwrap_or_else(|| panic!("faketime preloads nothing:\n{told}")).to_owned()
}

/// Removes what libfaketime leaves in shared memory when a process is killed.
pub(crate) fn forget(pid: u32) {
    for left in [format!("/dev/shm/faketime_shm_{pid}"), format!("/dev/shm/sem.faketime_sem_{pid}")] {
        // A process that ended in order has removed it, and any other never had it.
        let _ = std::fs::remove_file(left);
    }
}
