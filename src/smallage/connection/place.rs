//! Where the Redis is now, and what has been learnt of that: shared by all connections of a source.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::{RedisError, aio::MultiplexedConnection};

use super::{
    client::{self, Access},
    cluster::{self, Nodes},
    sentinel,
};
use crate::{
    clock::monotonic,
    config::{Host, RedisUrl, SmallageConfig, Via},
    ledger::{Result, StoreError},
};

/// How often the Sentinels are asked whether the master is still the one we know, while it answers us. A master that was
/// cut off from them does not know that there is a new one.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The master must be there within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the Redis of one source is.
#[derive(Debug)]
pub(in crate::smallage) struct Place {
    config: Arc<SmallageConfig>,
    /// A key that every user may read.
    key: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The master, as the Sentinels told last, and when they were asked last.
    master: Option<Host>,
    asked: Option<Instant>,
    nodes: Nodes,
}

impl Place {
    /// Nothing is known yet. `key` is any that a user with the least rights may read.
    pub(in crate::smallage) fn new(config: Arc<SmallageConfig>, key: String) -> Place {
        Place { config, key, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to it, and says to whom: nothing where the URL's own host is the only one there can be.
    pub(super) async fn connect(&self, response_timeout: Duration) -> Result<(MultiplexedConnection, Option<Host>)> {
        let url = client::url(&self.config)?;
        let access = Access::to_redis(&self.config, &url)?;
        match &url.via {
            Via::Itself => Ok((access.open(response_timeout).await?, None)),
            Via::Sentinels { sentinels, master } => {
                let master = self.ask_sentinels(&url, sentinels, master).await?;
                let mut con = access.open_at(&master, response_timeout, PATIENCE).await?;
                sentinel::is_master(&mut con, &master).await?;
                Ok((con, Some(master)))
            }
            Via::Cluster { seeds } => {
                let mut nodes = self.known().nodes.clone();
                let con = cluster::connect(&access, seeds, &self.key, &mut nodes, response_timeout).await?;
                let owner = nodes.best().cloned();
                self.known().nodes = nodes;
                Ok((con, owner))
            }
        }
    }

    /// What each of the Sentinels knows; nothing where there are none.
    pub(super) async fn sentinels_told(&self) -> Result<Option<sentinel::SentinelsTold>> {
        let url = client::url(&self.config)?;
        let Via::Sentinels { sentinels, master } = &url.via else { return Ok(None) };
        let access = Access::to_sentinels(&self.config, &url)?;
        sentinel::ask_each(&access, sentinels, master).await.map(Some)
    }

    async fn ask_sentinels(&self, url: &RedisUrl, sentinels: &[Host], name: &str) -> Result<Host> {
        let access = Access::to_sentinels(&self.config, url)?;
        let master = sentinel::find_master(&access, sentinels, name).await?;
        let mut known = self.known();
        known.asked = Some(monotonic());
        if known.master.as_ref() != Some(&master) {
            tracing::info!(namespace = self.config.namespace, master = %master, "the Sentinels name the master");
        }
        known.master = Some(master.clone());
        Ok(master)
    }

    /// Whether a connection to `at` is one to the right server, so far as is known. What is known is brought up to date
    /// meanwhile, now and then.
    pub(super) fn is_still(self: &Arc<Self>, at: Option<&Host>) -> bool {
        let Some(at) = at else { return true };
        let mut known = self.known();
        // In a Cluster every node tells by itself that it is the wrong one.
        let (Some(master), Some(asked)) = (&known.master, known.asked) else { return true };
        let still = master == at;
        if monotonic().duration_since(asked) >= ASK_AGAIN {
            known.asked = Some(monotonic());
            let this = Arc::clone(self);
            tokio::spawn(async move {
                // If they do not tell now, they are asked again; the master itself answers meanwhile.
                let Ok(url) = client::url(&this.config) else { return };
                if let Via::Sentinels { sentinels, master } = &url.via {
                    let _ = this.ask_sentinels(&url, sentinels, master).await;
                }
            });
        }
        still
    }

    /// Learns from what a server that we are connected to has said. Gives what is to be told of it where that is more
    /// than it said.
    pub(super) fn hear(&self, error: &RedisError, at: Option<&Host>) -> Option<StoreError> {
        if error.code() != Some("MOVED") {
            return None;
        }
        let Some(at) = at else {
            let why =
                "this is one node of a Cluster, and another one has the namespace; write redis+cluster:// in the URL";
            return Some(StoreError::Unavailable(why.to_owned()));
        };
        if let Some(owner) = cluster::moved(error, at) {
            self.known().nodes.first(owner);
        }
        None
    }
}
