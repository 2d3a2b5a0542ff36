//! The HTTP port and the log under people who behave badly.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{
    SOON, eventually,
    graveyard::bury_many,
    ledger::every_death_announced_once,
    process::{self, Sexton},
    redis::{Options, Redis},
};

const NS: &str = "lrs";

fn config(redis: &Redis) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
         announce_existing: true\n",
        redis.url()
    )
}

#[tokio::test]
async fn clients_that_never_finish_a_request_do_not_keep_probes_out_for_long() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let sexton = Sexton::run(&config(&redis));
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    let held: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(http.0).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    http.answers("/livez", 200).await;
    let open = std::fs::read_dir(format!("/proc/{}/fd", sexton.process.pid())).unwrap().count();
    assert!(open < 120, "{open} descriptors");
    // Those that were let in are thrown out again.
    let mut first = &held[0];
    first.set_read_timeout(Some(SOON)).unwrap();
    let mut rest = Vec::new();
    assert!(first.read_to_end(&mut rest).is_ok(), "the connection is closed by the other side");
}

/// A process whose log goes where the test wants it; it does not outlive a test that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has mostly ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_or_that_nobody_reads_holds_up_nothing() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sexton.yaml");
    std::fs::write(&file, config(&redis)).unwrap();
    let mut buried = 0;
    for (what, unread) in [("a full disk", false), ("a pipe that nobody reads", true)] {
        let mut command: Command = process::command();
        command.args(["run", "--log-level", "trace", "-c"]).arg(&file).stdout(Stdio::null());
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        command.stderr(if unread { Stdio::piped() } else { full().into() });
        let mut child = Running(command.spawn().unwrap());
        for _ in 0..40 {
            bury_many(&mut con, NS, buried..buried + 50).await;
            buried += 50;
        }
        let all = usize::try_from(buried).unwrap();
        eventually(what, SOON, || {
            let mut con = con.clone();
            async move { (every_death_announced_once(&mut con, NS).await == Ok(all)).then_some(()) }
        })
        .await;
        crate::support::signal(child.0.id(), "TERM");
        let mut ended = None;
        eventually("it ends when told to", Duration::from_secs(10), || {
            ended = child.0.try_wait().unwrap();
            async move { ended }
        })
        .await;
        assert_eq!(ended.unwrap().code(), Some(0), "{what}");
    }
}
