//! What the tests stand on.
#![allow(dead_code, clippy::unwrap_used, reason = "not every binary uses every part; a test that cannot go on panics")]

pub(crate) mod api;
pub(crate) mod audit;
pub(crate) mod certificates;
pub(crate) mod checked;
pub(crate) mod cluster;
pub(crate) mod faketime;
pub(crate) mod fleet;
pub(crate) mod graveyard;
pub(crate) mod hooks;
pub(crate) mod https;
pub(crate) mod lanes;
pub(crate) mod ledger;
pub(crate) mod lookout;
pub(crate) mod monitor;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod receiver;
pub(crate) mod redis;
pub(crate) mod rights;
pub(crate) mod sentinels;
pub(crate) mod stage;
pub(crate) mod workers;
pub(crate) mod yard;

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
    if name == "STOP" {
        // The signal is on its way when `kill` returns: a thread that runs on another core may go on for a moment.
        let deadline = monotonic() + SOON;
        while !is_stopped(pid) {
            assert!(monotonic() < deadline, "process {pid} does not stop");
            std::thread::yield_now();
        }
    }
}

/// Whether every thread of a process is stopped (Linux).
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is running, on Linux");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which stands in brackets and may hold anything.
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}
