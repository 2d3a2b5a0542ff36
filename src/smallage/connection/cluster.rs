//! Finds the node of a Cluster that has the namespace's slot.
//!
//! All keys of a namespace have one hash tag, so one connection to one node is all that is ever needed: whoever asks
//! the wrong node is told the right one.

use std::{collections::VecDeque, time::Duration};

use redis::{RedisError, Value, aio::MultiplexedConnection, cmd};

use super::{
    ask,
    client::{Access, at},
};
use crate::{
    config::Host,
    ledger::{Result, StoreError},
    smallage::{reply, trouble::sort_error},
};

/// Nodes that are tried before the search is given up for now.
const MOST_TRIES: usize = 16;
/// A node that is not there within this is left for the next one.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nodes that are remembered; larger Clusters are found by these.
const MOST_KNOWN: usize = 64;

/// The nodes of a Cluster that are known, the best guess first.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Vec<Host>);

impl Nodes {
    /// From now on this one is asked first.
    pub(super) fn first(&mut self, node: Host) {
        self.0.retain(|known| *known != node);
        self.0.insert(0, node);
        self.0.truncate(MOST_KNOWN);
    }

    /// The one that is asked first.
    pub(super) fn best(&self) -> Option<&Host> {
        self.0.first()
    }

    fn know(&mut self, nodes: Vec<Host>) {
        for node in nodes {
            if self.0.len() < MOST_KNOWN && !self.0.contains(&node) {
                self.0.push(node);
            }
        }
    }
}

/// A connection to the node that has the slot of `key`.
pub(super) async fn connect(
    access: &Access,
    seeds: &[Host],
    key: &str,
    nodes: &mut Nodes,
    response_timeout: Duration,
) -> Result<MultiplexedConnection> {
    let mut candidates: VecDeque<Host> = nodes.0.iter().cloned().collect();
    let mut others = seeds.to_vec();
    fastrand::shuffle(&mut others);
    candidates.extend(others);
    let (mut tried, mut troubles) = (Vec::new(), Vec::new());
    while let Some(host) = candidates.pop_front() {
        if tried.contains(&host) {
            continue;
        }
        if tried.len() == MOST_TRIES {
            break;
        }
        tried.push(host.clone());
        let mut con = match access.open_at(&host, response_timeout, PATIENCE).await {
            Ok(con) => con,
            Err(trouble) => {
                troubles.push(trouble);
                continue;
            }
        };
        // Any read of a key does; whether it is there does not matter.
        match ask(&mut con, cmd("EXISTS").arg(key)).await {
            Ok(_) => {
                nodes.know(all_nodes(&mut con, &host).await);
                nodes.first(host);
                return Ok(con);
            }
            Err(error) => match moved(&error, &host) {
                Some(owner) => candidates.push_front(owner),
                None => troubles.push(at(&host, sort_error(&error).0)),
            },
        }
    }
    Err(explain(troubles))
}

/// The node that has what was asked for, if the answer is that; `asked` is the one that gave it.
pub(super) fn moved(error: &RedisError, asked: &Host) -> Option<Host> {
    if error.code() != Some("MOVED") {
        return None;
    }
    let node = Host::split(error.redirect_node()?.0)?;
    // Nodes that do not know their own name leave it out: it is the one that was asked by.
    Some(if node.name.is_empty() { Host { port: node.port, ..asked.clone() } } else { node })
}

/// Every node there is, if we may know: they are asked when those of the configuration are gone.
async fn all_nodes(con: &mut MultiplexedConnection, asked: &Host) -> Vec<Host> {
    let Ok(Value::Array(ranges)) = ask(con, cmd("CLUSTER").arg("SLOTS")).await else { return Vec::new() };
    let mut nodes = Vec::new();
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        // Where it begins, where it ends, and then the nodes, the master first.
        for node in parts.into_iter().skip(2) {
            let Value::Array(node) = node else { continue };
            let [name, Value::Int(port), ..] = node.as_slice() else { continue };
            let name = reply::text(name).filter(|name| !name.is_empty()).unwrap_or_else(|| asked.name.clone());
            let Ok(port) = u16::try_from(*port) else { continue };
            let node = Host { name, port };
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
    }
    nodes
}

/// Why no node has let us in: what a person can mend comes first.
fn explain(troubles: Vec<StoreError>) -> StoreError {
    if let Some(denied) = troubles.iter().find(|trouble| matches!(trouble, StoreError::Denied(_))) {
        return denied.clone();
    }
    let why: Vec<String> = troubles
        .into_iter()
        .map(|trouble| match trouble {
            StoreError::Unavailable(why) => why,
            other => other.to_string(),
        })
        .collect();
    StoreError::Unavailable(format!("no node of the Cluster serves this namespace: {}", why.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    #[test]
    fn a_redirection_names_a_node() {
        let asked = host("a", 1);
        for (line, expected) in [
            ("-MOVED 3999 127.0.0.1:6381\r\n", Some(host("127.0.0.1", 6381))),
            ("-MOVED 3999 redis-1.svc:6381\r\n", Some(host("redis-1.svc", 6381))),
            ("-MOVED 3999 ::1:6381\r\n", Some(host("::1", 6381))),
            ("-MOVED 3999 :6381\r\n", Some(host("a", 6381))),
            ("-MOVED 3999\r\n", None),
            ("-ASK 3999 127.0.0.1:6381\r\n", None),
            ("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", None),
        ] {
            let Ok(Value::ServerError(error)) = redis::parse_redis_value(line.as_bytes()) else {
                panic!("{line} is an error")
            };
            assert_eq!(moved(&error.into(), &asked), expected, "{line}");
        }
    }

    #[test]
    fn the_last_owner_is_asked_first_and_no_more_are_remembered_than_fit() {
        let mut nodes = Nodes::default();
        nodes.know((0..100).map(|port| host("a", port)).collect());
        nodes.first(host("a", 7));
        nodes.first(host("b", 1));
        nodes.know(vec![host("c", 1)]);
        assert_eq!(nodes.0[..3], [host("b", 1), host("a", 7), host("a", 0)]);
        assert_eq!(nodes.0.len(), MOST_KNOWN);
    }

    #[test]
    fn missing_rights_are_told_before_nodes_that_are_gone() {
        let gone = || StoreError::Unavailable("a:1: refused".to_owned());
        let denied = StoreError::Denied("b:1: NOPERM".to_owned());
        assert_eq!(explain(vec![gone(), denied.clone(), gone()]), denied);
        let both =
            "the store cannot be reached: no node of the Cluster serves this namespace: a:1: refused; a:1: refused";
        assert_eq!(explain(vec![gone(), gone()]).to_string(), both);
    }
}
