//! What the tests stand on.
#![allow(dead_code, clippy::unwrap_used, reason = "not every binary uses every part; a test that cannot go on panics")]

pub(crate) mod graveyard;
pub(crate) mod hooks;
pub(crate) mod ledger;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod redis;

use std::{future::Future, time::Duration};

use sexton::clock::monotonic;

/// How long anything may take that ought to happen at once; far above what a busy machine needs.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Asks again and again until there is an answer; fails the test, naming what was awaited, when `within` is over.
pub(crate) async fn eventually<T, F>(what: &str, within: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = monotonic() + within;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(monotonic() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends a signal by name (`TERM`, `STOP`, `CONT`, …) to one process. The shell's own `kill` is everywhere.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot send {name} to process {pid}");
}
