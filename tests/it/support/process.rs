//! A child process as an operator sees it: its lines, its signals, its exit status, its memory and time, its HTTP port.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use tempfile::TempDir;
use tokio::sync::watch;

use super::{
    SOON, eventually,
    faketime::{self, FakeClock},
    signal,
};

/// For one HTTP exchange.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
/// Ticks a second in `/proc/<pid>/stat`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where a line was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A running child; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<(Stream, String)>>>,
    printed: watch::Receiver<usize>,
}

impl Process {
    /// Starts it with its output captured.
    pub(crate) fn start(command: &mut Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (count, printed) = watch::channel(0);
        let count = Arc::new(count);
        capture(child.stdout.take().expect("it is piped"), Stream::Out, &lines, &count);
        capture(child.stderr.take().expect("it is piped"), Stream::Err, &lines, &count);
        Process { child, lines, printed }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything one stream has shown so far.
    pub(crate) fn shown(&self, stream: Stream) -> Vec<String> {
        let lines = self.lines.lock().expect("no reader panics");
        lines.iter().filter(|(from, _)| *from == stream).map(|(_, line)| line.clone()).collect()
    }

    /// Waits for the first line, of either stream, that `wanted` finds something in.
    pub(crate) async fn line<T>(&self, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> T {
        let mut printed = self.printed.clone();
        let mut seen = 0;
        let search = async {
            loop {
                // Marked as seen before looking, so that a line printed while looking is not slept over.
                printed.borrow_and_update();
                {
                    let lines = self.lines.lock().expect("no reader panics");
                    if let Some(found) = lines[seen..].iter().find_map(|(_, line)| wanted(line)) {
                        return Some(found);
                    }
                    seen = lines.len();
                }
                // Both streams at their end: no line will come any more.
                if printed.changed().await.is_err() && self.lines.lock().expect("no reader panics").len() == seen {
                    return None;
                }
            }
        };
        match tokio::time::timeout(SOON, search).await {
            Ok(Some(found)) => found,
            Ok(None) => panic!("it ended without the line: {what}\n{}", self.transcript()),
            Err(_) => panic!("no such line within {SOON:?}: {what}\n{}", self.transcript()),
        }
    }

    /// Waits for a line that contains this text.
    pub(crate) async fn says(&self, text: &str) {
        self.line(text, |line| line.contains(text).then_some(())).await;
    }

    fn transcript(&self) -> String {
        let lines = self.lines.lock().expect("no reader panics");
        lines.iter().map(|(stream, line)| format!("{stream:?}| {line}\n")).collect()
    }

    /// Asks it to stop (SIGTERM).
    pub(crate) fn terminate(&self) {
        signal(self.pid(), "TERM");
    }

    /// Interrupts it (SIGINT), as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        signal(self.pid(), "INT");
    }

    /// Freezes it (SIGSTOP).
    pub(crate) fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn thaw(&self) {
        signal(self.pid(), "CONT");
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
        faketime::forget(self.pid());
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        self.end_within(SOON).await
    }

    /// Waits until it has ended by itself, at most this long.
    pub(crate) async fn end_within(&mut self, within: Duration) -> ExitStatus {
        let child = Mutex::new(&mut self.child);
        eventually("the process ends", within, || async {
            child.lock().expect("only one asks").try_wait().expect("a child can be asked")
        })
        .await
    }

    /// Resident memory now, in bytes (Linux).
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it is running, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has resident memory");
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number of kB");
        kilobytes * 1024
    }

    /// Processor time used so far (Linux).
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it is running, on Linux");
        // The second field is the name in brackets, which may hold anything; the 14th and 15th are the times.
        let (_, after_name) = stat.rsplit_once(')').expect("the name stands in brackets");
        let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().expect("a number"));
        Duration::from_secs_f64(ticks.map(f64::from).sum::<f64>() / TICKS_PER_SECOND)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        faketime::forget(self.pid());
        if std::thread::panicking() {
            // Shown by the test harness with the failed test.
            #[allow(clippy::print_stderr, reason = "this is what a person needs to see why a test failed")]
            {
                eprintln!("what the process {} printed:\n{}", self.pid(), self.transcript());
            }
        }
    }
}

/// Reads a stream to its end on a thread of its own: a full pipe would stop the child.
fn capture(
    stream: impl Read + Send + 'static,
    name: Stream,
    lines: &Arc<Mutex<Vec<(Stream, String)>>>,
    count: &Arc<watch::Sender<usize>>,
) {
    let (lines, count) = (Arc::clone(lines), Arc::clone(count));
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            lines.lock().expect("no other reader panics").push((name, line));
            count.send_modify(|count| *count += 1);
        }
    });
}

/// The `sexton` command itself, with a configuration file in a folder of its own.
#[derive(Debug)]
pub(crate) struct Sexton {
    /// The process.
    pub(crate) process: Process,
    folder: TempDir,
}

impl Sexton {
    /// `sexton run -c <file>` with this configuration. Let it listen on port 0 and ask [`Sexton::http`] for the port.
    pub(crate) fn run(config: &str) -> Sexton {
        Sexton::run_with(config, &[])
    }

    /// The same with more files beside the configuration, by name and text: `rules: [rules.yaml]` is one of them.
    pub(crate) fn run_with(config: &str, files: &[(&str, &str)]) -> Sexton {
        Sexton::start(config, files, 0)
    }

    /// The same on a pod whose clock is off by so many seconds.
    pub(crate) fn run_off_time(config: &str, files: &[(&str, &str)], seconds: i64) -> Sexton {
        Sexton::start(config, files, seconds)
    }

    fn start(config: &str, files: &[(&str, &str)], off_by_seconds: i64) -> Sexton {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().expect("a temporary folder can be made");
        for (name, text) in files.iter().chain(&[("sexton.yaml", config)]) {
            std::fs::write(folder.path().join(name), text).expect("the configuration can be written");
        }
        let mut command = command();
        command.arg("run").arg("-c").arg(folder.path().join("sexton.yaml"));
        if off_by_seconds != 0 {
            let mut clock = FakeClock::in_folder(folder.path());
            clock.step_ms(off_by_seconds * 1000);
            clock.shown_to(&mut command);
        }
        Sexton { process: Process::start(&mut command), folder }
    }

    /// The folder of its configuration.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its configuration file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder().join("sexton.yaml")
    }

    /// The address it serves HTTP on: the field `address` of the log line (JSON) that tells it.
    pub(crate) async fn http(&self) -> Http {
        let told = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let address = line.get("address").or_else(|| line.get("fields")?.get("address"))?;
            address.as_str()?.parse().ok()
        };
        Http(self.process.line("a log line with `address`", told).await)
    }
}

/// The `sexton` command, without arguments yet.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sexton"))
}

/// An HTTP port on the loopback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http(pub(crate) SocketAddr);

impl Http {
    /// `GET path`: status and body, or nothing if there is no whole answer.
    pub(crate) async fn get(self, path: &str) -> Option<(u16, String)> {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.0);
        let exchange = move || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&self.0, HTTP_TIMEOUT)?;
            stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
            stream.set_write_timeout(Some(HTTP_TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = tokio::task::spawn_blocking(exchange).await.expect("the exchange does not panic").ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// Waits until `path` answers with this status; returns the body.
    pub(crate) async fn answers(self, path: &str, status: u16) -> String {
        eventually(&format!("{path} answers {status}"), SOON, || async move {
            self.get(path).await.filter(|(got, _)| *got == status).map(|(_, body)| body)
        })
        .await
    }

    /// A metric as it is now; nothing if it cannot be scraped or is not there.
    pub(crate) async fn metric(self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (_, text) = self.get("/metrics").await.filter(|(status, _)| *status == 200)?;
        metric(&text, name, labels)
    }

    /// Waits until a metric has this value.
    pub(crate) async fn metric_is(self, name: &str, labels: &[(&str, &str)], value: f64) {
        eventually(&format!("{name}{labels:?} is {value}"), SOON, || async move {
            self.metric(name, labels).await.filter(|got| (got - value).abs() < 1e-9)
        })
        .await;
    }
}

/// The sum of all series of this name in an exposition that carry these labels, maybe among others; nothing if none do.
pub(crate) fn metric(exposition: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut sum = None;
    for line in exposition.lines() {
        let Some(rest) = line.strip_prefix(name) else { continue };
        let Some((series, value)) = rest.rsplit_once(' ') else { continue };
        // Anything else here is another metric whose name only begins like this one.
        if !(series.is_empty() || series.starts_with('{')) {
            continue;
        }
        let carries = |(label, value): &(&str, &str)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            series.contains(&format!("{{{label}=\"{value}\"")) || series.contains(&format!(",{label}=\"{value}\""))
        };
        if labels.iter().all(carries) {
            *sum.get_or_insert(0.0) += value.parse::<f64>().expect("a sample is a number");
        }
    }
    sum
}
