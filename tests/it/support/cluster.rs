//! A Cluster of three masters and three replicas, all private, on free ports of the loopback.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{Value, aio::MultiplexedConnection};

use super::{
    eventually,
    redis::{Options, Redis, free_port},
};

/// Slots of a Cluster.
const SLOTS: u16 = 16_384;
/// What a change of the Cluster may take, on a busy machine.
const CHANGE: Duration = Duration::from_secs(60);

/// The Cluster. Nodes 0 to 2 are masters at the start, 3 to 5 their replicas.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// All nodes.
    pub(crate) nodes: Vec<Redis>,
    ids: Vec<String>,
    /// The node that has the namespace's slot, as the test has seen it last: its port.
    owner: Arc<Mutex<u16>>,
    slot: u16,
}

async fn ask(con: &mut MultiplexedConnection, words: &[&str]) -> redis::RedisResult<Value> {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(con).await
}

async fn text(con: &mut MultiplexedConnection, words: &[&str]) -> String {
    redis::from_redis_value(ask(con, words).await.expect("a node answers")).expect("a text")
}

impl Cluster {
    /// Six nodes of these options, for the slot of this key.
    pub(crate) async fn start(options: &Options, key: &str) -> Cluster {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let mut options = Options { tcp: true, port: Some(free_port()), ..options.clone() };
            let bus = free_port().to_string();
            let more = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                &bus,
                "--repl-diskless-sync-delay",
                "0",
            ];
            options.more.extend(more.map(str::to_owned));
            nodes.push((Redis::with(options).await, bus));
        }
        let mut ids = Vec::new();
        let mut first = nodes[0].0.connect().await;
        for (n, (node, bus)) in nodes.iter().enumerate() {
            let mut con = node.connect().await;
            ids.push(text(&mut con, &["CLUSTER", "MYID"]).await);
            let own_epoch = (n + 1).to_string();
            let _: String = text(&mut con, &["CLUSTER", "SET-CONFIG-EPOCH", &own_epoch]).await;
            if n < 3 {
                let (from, until) = (SLOTS / 3 * n as u16, if n == 2 { SLOTS } else { SLOTS / 3 * (n as u16 + 1) } - 1);
                let words = ["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &until.to_string()];
                let _: String = text(&mut con, &words).await;
            }
            if n > 0 {
                let port = node.port().expect("it has one").to_string();
                let _: String = text(&mut first, &["CLUSTER", "MEET", "127.0.0.1", &port, bus]).await;
            }
        }
        let nodes: Vec<Redis> = nodes.into_iter().map(|(node, _)| node).collect();
        let slot: u16 = text(&mut first, &["CLUSTER", "KEYSLOT", key]).await.parse().expect("a slot");
        let owner = nodes[usize::from(slot / (SLOTS / 3)).min(2)].port().expect("it has one");
        let cluster = Cluster { nodes, ids, owner: Arc::new(Mutex::new(owner)), slot };
        for node in &cluster.nodes {
            let mut con = node.connect().await;
            eventually("a node knows all others", CHANGE, || {
                let mut con = con.clone();
                async move { (text(&mut con, &["CLUSTER", "NODES"]).await.lines().count() == 6).then_some(()) }
            })
            .await;
            let _: Value = ask(&mut con, &["PING"]).await.expect("it answers");
        }
        for n in 3..6 {
            let mut con = cluster.nodes[n].connect().await;
            // Refused until it knows that the other one is a master.
            eventually("a node is made a replica", CHANGE, || {
                let mut con = con.clone();
                let master = cluster.ids[n - 3].clone();
                async move { ask(&mut con, &["CLUSTER", "REPLICATE", &master]).await.ok() }
            })
            .await;
            super::sentinels::in_sync(&mut con).await;
        }
        for n in 0..6 {
            cluster.is_whole(n).await;
        }
        cluster
    }

    /// Waits until this node knows of three masters with a replica each, and serves.
    async fn is_whole(&self, n: usize) {
        let con = self.nodes[n].connect().await;
        eventually("the Cluster is whole", CHANGE, || {
            let mut con = con.clone();
            async move {
                let info = text(&mut con, &["CLUSTER", "INFO"]).await;
                let nodes = text(&mut con, &["CLUSTER", "NODES"]).await;
                let replicas = nodes.lines().filter(|line| line.contains("slave")).count();
                (info.contains("cluster_state:ok") && replicas == 3).then_some(())
            }
        })
        .await;
    }

    /// The URL's list of hosts: these nodes.
    pub(crate) fn hosts(&self, nodes: &[usize]) -> String {
        let hosts: Vec<String> =
            nodes.iter().map(|n| format!("127.0.0.1:{}", self.nodes[*n].port().expect("it has one"))).collect();
        hosts.join(",")
    }

    /// Where workers find the namespace: as the test has seen it last.
    pub(crate) fn whereabouts(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let owner = Arc::clone(&self.owner);
        Arc::new(move || format!("redis://127.0.0.1:{}", owner.lock().expect("nobody panics")))
    }

    /// The number of the node that has the namespace's slot.
    pub(crate) fn owner(&self) -> usize {
        let port = *self.owner.lock().expect("nobody panics");
        self.nodes.iter().position(|node| node.port() == Some(port)).expect("it is one of ours")
    }

    /// Waits until all other nodes, the dead ones apart, know that this slot has another owner than before.
    pub(crate) async fn failed_over(&self) {
        let before = *self.owner.lock().expect("nobody panics");
        let now = eventually("the slot has another owner", CHANGE, || async {
            let mut owners = Vec::new();
            for node in &self.nodes {
                let Ok(mut con) = node.try_connect().await else { continue };
                owners.push(self.owner_by(&mut con).await?);
            }
            let owner = *owners.first()?;
            (owner != before && owners.iter().all(|other| *other == owner)).then_some(owner)
        })
        .await;
        *self.owner.lock().expect("nobody panics") = now;
    }

    async fn owner_by(&self, con: &mut MultiplexedConnection) -> Option<u16> {
        type Range = (u16, u16, (String, u16, String, Vec<Value>));
        let slots: Vec<Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(con).await.ok()?;
        slots.into_iter().find_map(|range| {
            let Value::Array(mut parts) = range else { return None };
            parts.truncate(3);
            let (from, until, (_, port, ..)): Range = redis::from_redis_value(Value::Array(parts)).ok()?;
            (from..=until).contains(&self.slot).then_some(port)
        })
    }

    /// Begins to move the slot to this node: from now on keys are where they happen to be.
    pub(crate) async fn begin_move(&self, to: usize) {
        let slot = self.slot.to_string();
        let mut target = self.nodes[to].connect().await;
        let from = &self.ids[self.owner()];
        let _: Value = ask(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", from]).await.expect("it imports");
        let mut source = self.nodes[self.owner()].connect().await;
        let to = &self.ids[to];
        let _: Value = ask(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", to]).await.expect("it migrates");
    }

    /// Moves one key.
    pub(crate) async fn move_key(&self, to: usize, key: &str) {
        let mut source = self.nodes[self.owner()].connect().await;
        let port = self.nodes[to].port().expect("it has one").to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "20000"];
        let moved = text(&mut source, &words).await;
        assert_eq!(moved, "OK", "{key} was there to be moved");
    }

    /// Keys of the slot at this node.
    pub(crate) async fn keys_at(&self, node: usize) -> u64 {
        let mut con = self.nodes[node].connect().await;
        let answer = ask(&mut con, &["CLUSTER", "COUNTKEYSINSLOT", &self.slot.to_string()]).await;
        redis::from_redis_value(answer.expect("a node answers")).expect("a number")
    }

    /// Moves at most so many keys of the slot; true if there are more.
    pub(crate) async fn move_keys(&self, to: usize, count: usize) -> bool {
        let mut source = self.nodes[self.owner()].connect().await;
        let (slot, most) = (self.slot.to_string(), count.to_string());
        let answer = ask(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot, &most]).await.expect("it has keys");
        let keys: Vec<String> = redis::from_redis_value(answer).expect("names");
        if keys.is_empty() {
            return false;
        }
        let port = self.nodes[to].port().expect("it has one").to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "20000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        let _: Value = ask(&mut source, &words).await.expect("keys can be moved");
        true
    }

    /// Ends the move: the slot is this node's.
    pub(crate) async fn end_move(&self, to: usize) {
        let slot = self.slot.to_string();
        for n in [to, self.owner()] {
            let mut con = self.nodes[n].connect().await;
            let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]];
            let _: Value = ask(&mut con, &words).await.expect("the slot is given away");
        }
        *self.owner.lock().expect("nobody panics") = self.nodes[to].port().expect("it has one");
    }
}
