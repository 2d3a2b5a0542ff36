//! `sexton demo` as a person runs it: the counts agree, it ends by itself, and it leaves nothing behind however it ends.

use std::{path::Path, time::Duration};

use crate::support::{
    SOON, eventually,
    process::{Process, Stream, command},
};

/// The command with all its temporary files in a folder of the test's own.
fn demo(folder: &Path) -> Process {
    Process::start(command().arg("demo").env("TMPDIR", folder).env_remove("RUST_BACKTRACE"))
}

fn left_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("the folder is there").count()
}

#[tokio::test]
async fn the_demonstration_ends_by_itself_with_counts_that_agree() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(folder.path());
    assert!(demo.end_within(Duration::from_secs(110)).await.success(), "it failed");
    demo.says("All agree, and every signature was good.").await;
    let lines = demo.shown(Stream::Out);
    let count = |what: &str| {
        let line = lines.iter().rfind(|line| line.trim_start().starts_with(what)).expect("the summary has it");
        let count = line.trim_start()[what.len()..].split_whitespace().next().expect("a count");
        count.replace(',', "").parse::<u64>().expect("a number")
    };
    let entries = count("entries in the DLQ");
    assert!(entries > 2_000, "the storm and what came before it");
    for what in ["deaths told to the receiver", "sexton_jobs_dead_total", "sexton_dlq_entries"] {
        assert_eq!(count(what), entries, "{what}");
    }
    for shown in ["\"type\": \"job.dead\"", "dlq.digest", "sexton_leader{source=\"orders\"} 1"] {
        assert!(lines.iter().any(|line| line.contains(shown)), "{shown}");
    }
    assert!(lines.iter().all(|line| !line.contains('\x1b')), "no colours where there is no terminal");
    assert_eq!(left_in(folder.path()), 0);
}

#[tokio::test]
async fn the_demonstration_leaves_nothing_behind_when_it_is_interrupted_or_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut interrupted = demo(folder.path());
    interrupted.says("Jobs run.").await;
    assert_eq!(left_in(folder.path()), 1, "its private Redis");
    interrupted.interrupt();
    assert!(!interrupted.end().await.success(), "half a demonstration is no success");
    assert_eq!(left_in(folder.path()), 0);

    let mut killed = demo(folder.path());
    killed.says("Jobs run.").await;
    killed.kill();
    eventually("its Redis goes with it", SOON, || async { (left_in(folder.path()) == 0).then_some(()) }).await;
}

#[tokio::test]
async fn the_demonstration_says_what_to_install_where_there_is_no_redis() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Process::start(command().arg("demo").env("PATH", folder.path()));
    demo.says("apt-get install redis-server").await;
    assert!(!demo.end().await.success());
}
