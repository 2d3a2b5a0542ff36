//! Time in this process while a sequence is played: it stands still, so that nothing depends on how fast a machine is.

use std::{sync::mpsc, time::Duration};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::support::SOON;

/// While this is there, timers and whatever else goes by the clock of this process see no time pass.
pub(super) struct Standstill {
    goes_on: mpsc::Sender<()>,
    hangs: JoinHandle<()>,
}

impl Standstill {
    pub(super) fn begin() -> Standstill {
        tokio::time::pause();
        let (goes_on, heard) = mpsc::channel();
        // Where everybody waits, a clock that stands still jumps to the next timer; not while a blocking task is under way.
        let hangs = spawn_blocking(move || while heard.recv_timeout(SOON).is_ok() {});
        Standstill { goes_on, hangs }
    }

    /// Does this; nothing comes of what hangs by the machine's clock.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        // Nobody hears it after something has hung; then the test is over.
        let _ = self.goes_on.send(());
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = &mut self.hangs => None,
        }
    }

    /// A moment passes all the same.
    pub(super) async fn a_moment_passes() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}
