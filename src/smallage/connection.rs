//! Connections to Redis: one for commands, one for the blocking read, both made anew when they break.
//!
//! However many callers want a connection, there is one try at a time, and the pauses between failed tries grow.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline, TlsCertificates,
    Value,
    aio::{ConnectionLike as _, MultiplexedConnection},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::sync::Mutex;

use super::trouble::sort_error;
use crate::{
    clock::monotonic,
    config::{SecretSource, SmallageConfig},
    ledger::{Result, StoreError},
};

/// A TCP or TLS connection must stand within this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A command that does not block must be answered within this.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failed try to connect; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between tries to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A peer that is silent for this long is asked whether it is still there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// Data that a peer does not acknowledge for this long means that it has vanished.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection to Redis that comes back by itself.
#[derive(Debug)]
pub(super) struct Connection {
    config: Arc<SmallageConfig>,
    response_timeout: Duration,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    open: Option<MultiplexedConnection>,
    opened_at: Option<Instant>,
    /// Counts connections, so that only the failure of the current one closes it.
    generation: u64,
    failed: Option<Failed>,
}

impl Slot {
    /// Waits before the next connection: longer after every failure in a row.
    fn pause_after(&mut self, error: &StoreError) {
        let pause = self.failed.as_ref().map_or(FIRST_PAUSE, |failed| (failed.pause * 2).min(LONGEST_PAUSE));
        let next_try = monotonic() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.failed = Some(Failed { error: error.clone(), next_try, pause });
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("generation", &self.generation).finish_non_exhaustive()
    }
}

struct Failed {
    error: StoreError,
    next_try: Instant,
    pause: Duration,
}

impl Connection {
    /// A connection for commands that are answered at once.
    pub(super) fn for_commands(config: Arc<SmallageConfig>) -> Connection {
        Connection { config, response_timeout: RESPONSE_TIMEOUT, slot: Mutex::default() }
    }

    /// A connection for reads that block up to `block`.
    pub(super) fn for_blocking(config: Arc<SmallageConfig>, block: Duration) -> Connection {
        Connection { config, response_timeout: block * 2 + RESPONSE_TIMEOUT, slot: Mutex::default() }
    }

    /// Runs one command.
    pub(super) async fn run(&self, command: &Cmd) -> Result<Value> {
        let (mut connection, generation) = self.open().await?;
        self.taken(generation, ask(&mut connection, command).await).await
    }

    /// Runs several commands in one go, without a transaction; one answer for each.
    pub(super) async fn run_all(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        let (mut connection, generation) = self.open().await?;
        self.taken(generation, commands.query_async(&mut connection).await).await
    }

    /// Runs several reads of the ledger's own keys in one go. A key of another type was not written by us: it reads as
    /// nothing ([`Value::Nil`]).
    pub(super) async fn read_all(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (mut connection, generation) = self.open().await?;
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        let known = |answer| match answer {
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(Value::Nil),
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        };
        self.taken(generation, answers.and_then(|answers| answers.into_iter().map(known).collect())).await
    }

    /// Runs several commands in one go; one answer for each, errors of the server ([`Value::ServerError`]) among them.
    pub(super) async fn answers_of(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        let (mut connection, generation) = self.open().await?;
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        self.taken(generation, answers).await
    }

    /// Connects and hangs up, with no regard to earlier tries.
    pub(super) async fn knock(&self) -> Result<()> {
        self.connect().await.map(drop)
    }

    /// Runs a script by its digest, and by its text where the server does not know it (a restart, SCRIPT FLUSH).
    pub(super) async fn run_script(&self, script: &Script, keys: &[&str], args: &[Arg<'_>]) -> Result<Value> {
        self.run_by(["EVALSHA", "EVAL"], script, keys, args).await
    }

    /// Runs a script that only reads, so that the right to read its keys is enough.
    pub(super) async fn run_reading_script(&self, script: &Script, keys: &[&str], args: &[Arg<'_>]) -> Result<Value> {
        self.run_by(["EVALSHA_RO", "EVAL_RO"], script, keys, args).await
    }

    async fn run_by(
        &self,
        [by_digest, by_text]: [&'static str; 2],
        script: &Script,
        keys: &[&str],
        args: &[Arg<'_>],
    ) -> Result<Value> {
        let (mut connection, generation) = self.open().await?;
        let answer = ask(&mut connection, &script.call(by_digest, &script.digest, keys, args)).await;
        let answer = match answer {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                ask(&mut connection, &script.call(by_text, script.text, keys, args)).await
            }
            answer => answer,
        };
        self.taken(generation, answer).await
    }

    /// Forgets the connection: its state is not known any more (a blocking read was abandoned).
    pub(super) async fn close(&self) {
        self.slot.lock().await.open = None;
    }

    async fn open(&self) -> Result<(MultiplexedConnection, u64)> {
        let mut slot = self.slot.lock().await;
        if let Some(open) = &slot.open {
            return Ok((open.clone(), slot.generation));
        }
        if let Some(failed) = &slot.failed
            && monotonic() < failed.next_try
        {
            return Err(failed.error.clone());
        }
        match self.connect().await {
            Ok(connection) => {
                slot.open = Some(connection.clone());
                slot.opened_at = Some(monotonic());
                slot.generation += 1;
                Ok((connection, slot.generation))
            }
            Err(error) => {
                slot.pause_after(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = client(&self.config)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.response_timeout));
        let place = client.get_connection_info().addr().to_string();
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| {
            if error.is_connection_dropped() && !error.is_connection_refusal() {
                // The server's last words are lost when it closes before we have written ours.
                return StoreError::Unavailable(format!(
                    "{place} closes new connections at once; it may have reached its limit (maxclients)"
                ));
            }
            match sort_error(&error).0 {
                StoreError::Unavailable(why) => StoreError::Unavailable(format!("{place}: {why}")),
                StoreError::Denied(why) => StoreError::Denied(format!("{place}: {why}")),
                other => other,
            }
        })
    }

    /// An answer for our caller. An error after which the connection is no good closes it, if it is still the current
    /// one.
    async fn taken<T>(&self, generation: u64, answer: redis::RedisResult<T>) -> Result<T> {
        let error = match answer {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let (sorted, keep) = sort_error(&error);
        if !keep {
            let mut slot = self.slot.lock().await;
            if slot.generation == generation && slot.open.take().is_some() {
                let lived = slot.opened_at.map_or(Duration::ZERO, |at| monotonic().duration_since(at));
                if lived >= LONGEST_PAUSE {
                    slot.failed = None;
                } else {
                    // A server that lets us connect and then refuses every command is not to be hammered either.
                    slot.pause_after(&sorted);
                }
            }
        }
        Err(sorted)
    }
}

/// One command and its answer. Nothing we ask for has errors inside its answer, so only the whole is looked at.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> redis::RedisResult<Value> {
    match connection.req_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// A client for the configuration as it is now: secrets in files are read anew.
fn client(config: &SmallageConfig) -> Result<Client> {
    let denied = |error: &dyn std::fmt::Display| StoreError::Denied(error.to_string());
    let secret = |source: &SecretSource| source.read().map_err(|error| denied(&error));
    let url = secret(&config.url)?;
    // The library's errors about a URL may quote it, and it may hold a password.
    let info: ConnectionInfo = url
        .reveal()
        .into_connection_info()
        .map_err(|error| denied(&format!("the Redis URL is not valid ({})", error.category())))?;
    let mut settings = info.redis_settings().clone().set_lib_name("sexton", env!("CARGO_PKG_VERSION"));
    if let Some(username) = &config.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &config.password {
        settings = settings.set_password(secret(password)?.reveal());
    }
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(
            TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_AFTER / 3).with_retries(3),
        )
        .set_user_timeout(USER_TIMEOUT);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    let Some(tls) = &config.tls else {
        return Client::open(info).map_err(|error| sort_error(&error).0);
    };
    let pem = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| denied(&format!("cannot read {}: {error}", path.display())))
    };
    let client_tls = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: pem(cert)?, client_key: pem(key)? }),
        _ => None,
    };
    let root_cert = tls.ca.as_deref().map(pem).transpose()?;
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert }).map_err(|error| sort_error(&error).0)
}

/// A Lua script and the digest that Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    /// For a script's text.
    pub(super) fn new(text: &'static str) -> Script {
        Script { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }

    fn call(&self, command: &'static str, body: &str, keys: &[&str], args: &[Arg<'_>]) -> Cmd {
        let bytes = keys.iter().map(|key| key.len()).chain(args.iter().map(Arg::len)).sum::<usize>();
        let mut cmd = Cmd::with_capacity(3 + keys.len() + args.len(), bytes + body.len() + 32);
        cmd.arg(command).arg(body).arg(keys.len());
        for key in keys {
            cmd.arg(*key);
        }
        for arg in args {
            match arg {
                Arg::Text(text) => cmd.arg(*text),
                Arg::Int(number) => cmd.arg(*number),
            };
        }
        cmd
    }
}

/// The keys of a script's call, each once. Arguments name them by their numbers, from 1 as Lua counts.
#[derive(Debug, Default)]
pub(super) struct KeyList {
    keys: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl KeyList {
    /// With the keys that have a fixed number.
    pub(super) fn new(fixed: Vec<String>) -> KeyList {
        KeyList { keys: fixed, numbers: HashMap::new() }
    }

    /// The number of this key; it is added if it is not there yet.
    pub(super) fn number(&mut self, key: String) -> Arg<'static> {
        if let Some(number) = self.numbers.get(&key) {
            return Arg::Int(*number);
        }
        self.keys.push(key.clone());
        let number = i64::try_from(self.keys.len()).unwrap_or(i64::MAX);
        self.numbers.insert(key, number);
        Arg::Int(number)
    }

    /// Adds a key whose number follows from its place, whether it is there already or not.
    pub(super) fn push(&mut self, key: String) {
        self.keys.push(key);
    }

    /// All of them, in order.
    pub(super) fn as_strs(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }
}

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg<'a> {
    /// A text.
    Text(&'a str),
    /// A whole number.
    Int(i64),
}

impl Arg<'_> {
    /// A number that is never negative.
    pub(super) fn count(number: u64) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// A place in a list, or how many there are in one.
    pub(super) fn place(number: usize) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn len(&self) -> usize {
        match self {
            Arg::Text(text) => text.len(),
            Arg::Int(_) => 20,
        }
    }
}
