//! A private Redis: one server per test, on a socket in a temporary folder, gone when the test is.
//!
//! It can be stopped, killed, frozen and started again on the same socket, port and data.

use std::{
    io::ErrorKind,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use sexton::clock::monotonic;
use tempfile::TempDir;

use super::{
    SOON,
    faketime::{self, FakeClock},
    signal,
};

/// Names the server goes by; the first one on the PATH is taken.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
/// Tries to find a TCP port that is still free when the server binds it.
const PORT_TRIES: u32 = 10;

/// What is unlike the default: no persistence, no password, no limits, the socket only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Write an append-only file, synced on every write.
    pub(crate) appendonly: bool,
    /// Snapshot points, such as `3600 1`; also makes a clean stop save.
    pub(crate) save: Option<&'static str>,
    /// The default user's password.
    pub(crate) requirepass: Option<&'static str>,
    /// Memory limit, such as `8mb`.
    pub(crate) maxmemory: Option<&'static str>,
    /// Connections at most.
    pub(crate) maxclients: Option<u32>,
    /// Listen on a TCP port of the loopback as well.
    pub(crate) tcp: bool,
    /// This one, where others must know it beforehand: see [`free_port`].
    pub(crate) port: Option<u16>,
    /// That port speaks TLS, and nothing else; the certificates are among `more`.
    pub(crate) tls: bool,
    /// A wall clock that [`Redis::step_clock`] can step.
    pub(crate) stepped_clock: bool,
    /// Any other arguments of `redis-server`.
    pub(crate) more: Vec<String>,
}

/// A port of the loopback that nobody listens on. Below those that the system gives out by itself, and another one
/// each time, so that it is still free a moment later.
pub(crate) fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU16::new(fastrand::u16(..)));
    loop {
        let port = 12_000 + next.fetch_add(1, Ordering::Relaxed) % 18_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running (or stopped, or frozen) Redis.
#[derive(Debug)]
pub(crate) struct Redis {
    folder: TempDir,
    options: Options,
    port: Option<u16>,
    clock: Option<FakeClock>,
    server: Option<Child>,
}

impl Redis {
    /// With everything at its default.
    pub(crate) async fn start() -> Redis {
        Redis::with(Options::default()).await
    }

    /// With these options.
    pub(crate) async fn with(options: Options) -> Redis {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().expect("a temporary folder can be made");
        let clock = options.stepped_clock.then(|| FakeClock::in_folder(folder.path()));
        let mut redis = Redis { folder, port: options.port, options, clock, server: None };
        redis.start_again().await;
        redis
    }

    /// Starts it on the same socket, port and data, and waits until it answers commands.
    pub(crate) async fn start_again(&mut self) {
        if !self.options.tcp || self.port.is_some() {
            self.launch();
            return self.ready().await.unwrap_or_else(|ended| panic!("{ended}"));
        }
        // Between choosing a port and binding it somebody else may take it: then choose again.
        for _ in 0..PORT_TRIES {
            let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
            self.port = Some(free.expect("the loopback has a free port").port());
            self.launch();
            match self.ready().await {
                Ok(()) => return,
                Err(ended) if ended.contains("Address already in use") => {}
                Err(ended) => panic!("{ended}"),
            }
        }
        panic!("no free port in {PORT_TRIES} tries");
    }

    /// Starts it and does not wait: it may still be loading.
    pub(crate) fn launch(&mut self) {
        assert!(self.server.is_none(), "it is running already");
        // The log tells of this start alone.
        let _ = std::fs::remove_file(self.log());
        let server = SERVERS.iter().find_map(|name| match self.command(name).spawn() {
            Ok(child) => Some(child),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("cannot start {name}: {error}"),
        });
        self.server =
            Some(server.expect("these tests need redis-server (7 or newer) on the PATH: `make test` gets it"));
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let options = &self.options;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let port = self.port.unwrap_or(0).to_string();
        if options.tls {
            command.args(["--port", "0", "--tls-port", &port, "--bind", "127.0.0.1"]);
        } else {
            command.args(["--port", &port, "--bind", "127.0.0.1"]);
        }
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(self.folder.path());
        command.arg("--logfile").arg(self.log()).args(["--daemonize", "no", "--save", options.save.unwrap_or("")]);
        command.args(["--appendonly", if options.appendonly { "yes" } else { "no" }, "--appendfsync", "always"]);
        if let Some(password) = options.requirepass {
            command.args(["--requirepass", password]);
        }
        if let Some(limit) = options.maxmemory {
            command.args(["--maxmemory", limit]);
        }
        if let Some(limit) = options.maxclients {
            command.args(["--maxclients", &limit.to_string()]);
        }
        command.args(&options.more);
        if let Some(clock) = &self.clock {
            clock.shown_to(&mut command);
        }
        command
    }

    /// Waits until it answers commands; an error with its log if it ended instead.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        let deadline = monotonic() + SOON;
        loop {
            let last = match self.ping().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let Some(server) = &mut self.server
                && let Ok(Some(status)) = server.try_wait()
            {
                self.server = None;
                return Err(format!("redis-server has ended ({status}):\n{}", self.log_text()));
            }
            if monotonic() >= deadline {
                return Err(format!("redis-server does not answer: {last}\n{}", self.log_text()));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn ping(&self) -> redis::RedisResult<()> {
        let mut con = self.try_connect().await?;
        redis::cmd("PING").exec_async(&mut con).await
    }

    /// Where Sexton reaches it: the port if there is one, else the socket; with the password it was started with.
    pub(crate) fn url(&self) -> String {
        match (self.port, self.options.requirepass) {
            (Some(port), Some(password)) => format!("redis://:{password}@127.0.0.1:{port}"),
            (Some(port), None) => format!("redis://127.0.0.1:{port}"),
            (None, Some(_)) | (None, None) => self.socket_url(),
        }
    }

    fn socket_url(&self) -> String {
        let password = self.options.requirepass.map(|password| format!("?pass={password}"));
        format!("unix://{}{}", self.socket().display(), password.unwrap_or_default())
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Its port, if it was asked to have one.
    pub(crate) fn port(&self) -> Option<u16> {
        self.port
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// A connection of the test's own.
    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        self.try_connect().await.expect("the private Redis takes a connection")
    }

    /// A connection, or why there is none.
    pub(crate) async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(SOON)).set_connection_timeout(Some(SOON));
        let client = Client::open(self.socket_url())?;
        client.get_multiplexed_async_connection_with_config(&patient).await
    }

    /// Its process id; it must be running.
    pub(crate) fn pid(&self) -> u32 {
        self.server.as_ref().expect("it is running").id()
    }

    /// Stops it in order (SIGTERM): it saves, if it was told to save at all.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        signal(self.pid(), "TERM");
        self.ended()
    }

    /// Kills it (SIGKILL): what it has not written is lost.
    pub(crate) fn kill(&mut self) {
        signal(self.pid(), "KILL");
        self.ended();
    }

    fn ended(&mut self) -> ExitStatus {
        let mut server = self.server.take().expect("it is running");
        let status = server.wait().expect("a child can be waited for");
        faketime::forget(server.id());
        status
    }

    /// Steps its clock, forwards or (negative) backwards: at once, also while it runs. Keys expire by this clock; a
    /// blocking read waits by the machine's.
    pub(crate) fn step_clock(&mut self, seconds: i64) {
        self.clock.as_mut().expect("it was started with `stepped_clock`").step_ms(seconds * 1000);
    }

    /// Stops its clock at this moment, in milliseconds since 1970: time passes only when it is set again. A blocking read
    /// then waits until there is something to read.
    pub(crate) fn stop_clock_at(&self, ms: i64) {
        self.clock.as_ref().expect("it was started with `stepped_clock`").stand_still_at(ms);
    }

    /// Makes it hang (SIGSTOP): connections stay open, nothing is answered.
    pub(crate) fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn thaw(&self) {
        signal(self.pid(), "CONT");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGKILL ends a frozen process, too. It may have ended by itself; then there is nothing to do.
            let _ = server.kill();
            let _ = server.wait();
            faketime::forget(server.id());
        }
    }
}
