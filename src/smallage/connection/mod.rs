//! Connections to Redis: one for commands, one for the blocking read, both made anew when they break.
//!
//! However many callers want a connection, there is one try at a time, and the pauses between failed tries grow. Every
//! new connection is one to where the Redis is then: `place` knows, from Sentinels or a Cluster's nodes if need be.

mod client;
mod cluster;
mod place;
mod script;
mod sentinel;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{
    Cmd, Pipeline, RedisError, RedisResult, Value,
    aio::{ConnectionLike as _, MultiplexedConnection},
};
use tokio::sync::Mutex;

pub(super) use self::{
    place::Place,
    script::{Arg, KeyList, Script},
    sentinel::{Knows, SENTINEL, SentinelsTold},
};
use super::trouble::sort_error;
use crate::{
    clock::monotonic,
    config::Host,
    ledger::{Result, StoreError},
};

/// A command that does not block must be answered within this.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failed try to connect; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between tries to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One connection to Redis that comes back by itself.
#[derive(Debug)]
pub(super) struct Connection {
    place: Arc<Place>,
    response_timeout: Duration,
    slot: Mutex<Slot>,
    made: AtomicU64,
}

#[derive(Default)]
struct Slot {
    open: Option<MultiplexedConnection>,
    opened_at: Option<Instant>,
    /// To whom, where that can change.
    to: Option<Host>,
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
    pub(super) fn for_commands(place: Arc<Place>) -> Connection {
        Connection { place, response_timeout: RESPONSE_TIMEOUT, slot: Mutex::default(), made: AtomicU64::new(0) }
    }

    /// A connection for reads that block up to `block`.
    pub(super) fn for_blocking(place: Arc<Place>, block: Duration) -> Connection {
        Connection {
            place,
            response_timeout: block * 2 + RESPONSE_TIMEOUT,
            slot: Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    /// How many connections have been made so far: what is behind another one may be another server.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Runs one command.
    pub(super) async fn run(&self, command: &Cmd) -> Result<Value> {
        let (mut connection, generation) = self.open().await?;
        self.taken(generation, ask(&mut connection, command).await).await
    }

    /// Runs several commands in one go, without a transaction; one answer for each.
    pub(super) async fn run_all(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        self.run_each(commands, Err).await
    }

    /// Runs several reads of the ledger's own keys in one go. A key of another type was not written by us: it reads as
    /// nothing ([`Value::Nil`]).
    pub(super) async fn read_all(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        let foreign = |error: RedisError| if error.code() == Some("WRONGTYPE") { Ok(Value::Nil) } else { Err(error) };
        self.run_each(commands, foreign).await
    }

    /// `failed` says what becomes of an answer that is an error.
    async fn run_each(
        &self,
        commands: &Pipeline,
        failed: impl Fn(RedisError) -> RedisResult<Value>,
    ) -> Result<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (mut connection, generation) = self.open().await?;
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        let each = |answer| match answer {
            Value::ServerError(error) => failed(error.into()),
            value => Ok(value),
        };
        self.taken(generation, answers.and_then(|answers| answers.into_iter().map(each).collect())).await
    }

    /// Runs several commands in one go; one answer for each, errors of the server ([`Value::ServerError`]) among them.
    pub(super) async fn answers_of(&self, commands: &Pipeline) -> Result<Vec<Value>> {
        let (mut connection, generation) = self.open().await?;
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        self.taken(generation, answers).await
    }

    /// Connects and hangs up, with no regard to earlier tries.
    pub(super) async fn knock(&self) -> Result<()> {
        self.place.connect(self.response_timeout).await.map(drop)
    }

    /// What each of the Sentinels knows of the master; nothing where there are none.
    pub(super) async fn sentinels_told(&self) -> Result<Option<SentinelsTold>> {
        self.place.sentinels_told().await
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
        if let Some(open) = &slot.open
            && self.place.is_still(slot.to.as_ref())
        {
            return Ok((open.clone(), slot.generation));
        }
        slot.open = None;
        if let Some(failed) = &slot.failed
            && monotonic() < failed.next_try
        {
            return Err(failed.error.clone());
        }
        match self.place.connect(self.response_timeout).await {
            Ok((connection, to)) => {
                slot.open = Some(connection.clone());
                slot.to = to;
                slot.opened_at = Some(monotonic());
                slot.generation += 1;
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok((connection, slot.generation))
            }
            Err(error) => {
                slot.pause_after(&error);
                Err(error)
            }
        }
    }

    /// An answer for our caller. An error after which the connection is no good closes it, if it is still the current
    /// one.
    async fn taken<T>(&self, generation: u64, answer: RedisResult<T>) -> Result<T> {
        let error = match answer {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let (mut sorted, keep) = sort_error(&error);
        if !keep {
            let mut slot = self.slot.lock().await;
            if let Some(heard) = self.place.hear(&error, slot.to.as_ref()) {
                sorted = heard;
            }
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
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    match connection.req_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}
