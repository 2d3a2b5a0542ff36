//! A master with two replicas, and three Sentinels that watch it: all private, on free ports of the loopback.

use std::{
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{Client, aio::MultiplexedConnection};
use tempfile::TempDir;

use super::{
    SOON, eventually,
    redis::{Options, Redis, free_port},
};

/// The name the Sentinels know the master by.
pub(crate) const MASTER: &str = "mymaster";
/// Names the server goes by.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
/// What one role change may take, on a busy machine.
pub(crate) const FAILOVER: Duration = Duration::from_secs(60);

/// One Sentinel; killed when dropped.
#[derive(Debug)]
pub(crate) struct Sentinel {
    /// Its port, and the one where it speaks TLS.
    pub(crate) port: u16,
    tls_port: u16,
    server: Child,
    _folder: TempDir,
}

impl Sentinel {
    /// Starts one that watches the master at this port, and speaks TLS, too, where `tls` says so; `more` are further lines of its configuration.
    pub(crate) fn start(master: u16, tls: bool, more: &str) -> Sentinel {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().expect("a temporary folder can be made");
        let (port, tls_port) = (free_port(), if tls { free_port() } else { 0 });
        let config = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\ntls-port {tls_port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/sentinel.log\n\
             sentinel monitor {MASTER} 127.0.0.1 {master} 2\nsentinel down-after-milliseconds {MASTER} 2000\n\
             sentinel failover-timeout {MASTER} 6000\nsentinel parallel-syncs {MASTER} 2\n{more}",
            folder = folder.path().display(),
        );
        std::fs::write(&config, text).expect("the configuration can be written");
        let start = |name: &&str| {
            let mut command = Command::new(name);
            command.arg(&config).arg("--sentinel");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        };
        let server = SERVERS.iter().find_map(start).expect("there is a redis-server on the PATH");
        Sentinel { port, tls_port, server, _folder: folder }
    }

    /// A connection of the test's own, as this user; nothing while there is none.
    pub(crate) async fn connect(&self, login: &str) -> Option<MultiplexedConnection> {
        let client = Client::open(format!("redis://{login}127.0.0.1:{}", self.port)).expect("the URL is good");
        client.get_multiplexed_async_connection().await.ok()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All of them. The first server is the master at the start.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Master and replicas.
    pub(crate) servers: Vec<Redis>,
    /// Who watches them.
    pub(crate) sentinels: Vec<Sentinel>,
    /// The port of the master, as the Sentinels told last.
    master: Arc<Mutex<u16>>,
    /// `USER:PASSWORD@` of the Sentinels' administrator.
    login: String,
}

impl Watched {
    /// Three servers of these options, and three Sentinels with these further lines.
    pub(crate) async fn start(options: &Options, sentinel_lines: &str, login: &str) -> Watched {
        let ports = [free_port(), free_port(), free_port()];
        let mut servers = Vec::new();
        for port in ports {
            let mut options = Options { tcp: true, port: Some(port), ..options.clone() };
            options.more.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
            if port != ports[0] {
                options.more.extend(["--replicaof".to_owned(), format!("127.0.0.1 {}", ports[0])]);
            }
            servers.push(Redis::with(options).await);
        }
        for replica in &servers[1..] {
            let mut con = replica.connect().await;
            in_sync(&mut con).await;
        }
        let sentinels = ports.map(|_| Sentinel::start(ports[0], options.tls, sentinel_lines)).into();
        let watched = Watched { servers, sentinels, master: Arc::new(Mutex::new(ports[0])), login: login.to_owned() };
        for sentinel in &watched.sentinels {
            eventually("a Sentinel knows all others", FAILOVER, || async {
                let mut con = sentinel.connect(&watched.login).await?;
                let known = fields(&mut con).await?;
                let count = |name: &str| known.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
                (count("num-slaves") == Some("2") && count("num-other-sentinels") == Some("2")).then_some(())
            })
            .await;
        }
        watched
    }

    /// The URL's list of hosts.
    pub(crate) fn hosts(&self) -> String {
        let port = |sentinel: &Sentinel| if sentinel.tls_port > 0 { sentinel.tls_port } else { sentinel.port };
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", port(sentinel))).collect();
        hosts.join(",")
    }

    /// Where workers find the master: as the test has seen it last.
    pub(crate) fn whereabouts(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let master = Arc::clone(&self.master);
        Arc::new(move || format!("redis://127.0.0.1:{}", master.lock().expect("nobody panics")))
    }

    /// The server that is the master, as the test has seen it last.
    pub(crate) fn master(&mut self) -> &mut Redis {
        let port = *self.master.lock().expect("nobody panics");
        self.servers.iter_mut().find(|server| server.port() == Some(port)).expect("it is one of ours")
    }

    /// Waits until most Sentinels name another master than before, and it says so itself.
    pub(crate) async fn failed_over(&self) {
        let before = *self.master.lock().expect("nobody panics");
        let now = eventually("there is another master", FAILOVER, || async {
            let mut named = Vec::new();
            for sentinel in &self.sentinels {
                let Some(mut con) = sentinel.connect(&self.login).await else { continue };
                let mut ask = redis::cmd("SENTINEL");
                ask.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER);
                let (_, port): (String, String) = ask.query_async(&mut con).await.ok()?;
                named.push(port.parse::<u16>().ok()?);
            }
            let port = *named.first()?;
            if port == before || named.iter().filter(|other| **other == port).count() < 2 {
                return None;
            }
            let server = self.servers.iter().find(|server| server.port() == Some(port))?;
            let role: redis::Value =
                redis::cmd("ROLE").query_async(&mut server.try_connect().await.ok()?).await.ok()?;
            let redis::Value::Array(role) = role else { return None };
            (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(port)
        })
        .await;
        *self.master.lock().expect("nobody panics") = now;
    }
}

/// What a Sentinel knows of the master.
async fn fields(con: &mut MultiplexedConnection) -> Option<Vec<(String, String)>> {
    let flat: Vec<String> = redis::cmd("SENTINEL").arg("MASTER").arg(MASTER).query_async(con).await.ok()?;
    Some(flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// Waits until a replica has all that its master has.
pub(crate) async fn in_sync(con: &mut MultiplexedConnection) {
    eventually("a replica is in sync", SOON, || {
        let mut con = con.clone();
        async move {
            let info: String = redis::cmd("INFO").arg("replication").query_async(&mut con).await.ok()?;
            info.contains("master_link_status:up").then_some(())
        }
    })
    .await;
}
