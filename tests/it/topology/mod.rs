//! Redis as it is run: behind Sentinels, in a Cluster, behind TLS, on a socket, with rights and passwords that change.

mod cluster;
mod login;
mod rights;
mod scene;
mod sentinel;
mod tls;

use crate::support::process::{self, Process, Sexton, Stream};

/// Fails unless `sexton check --connect` finds nothing that would keep this one from running.
async fn check_connects(sexton: &Sexton) {
    let mut check = process::command();
    check.args(["check", "--connect", "-c"]).arg(sexton.config_file());
    let mut check = Process::start(&mut check);
    let exit = check.end().await;
    assert_eq!(exit.code(), Some(0), "{:?} {:?}", check.shown(Stream::Out), check.shown(Stream::Err));
}
