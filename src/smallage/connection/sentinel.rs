//! Asks Sentinels where the master is.
//!
//! All are asked at once: one that was cut off from the others tells of the master of before, so what counts is the
//! newest that any of them knows.

use std::{collections::BTreeSet, time::Duration};

use redis::{Value, aio::MultiplexedConnection, cmd};
use tokio::{task::JoinSet, time::timeout};

use super::{
    ask,
    client::{Access, at},
};
use crate::{
    config::Host,
    ledger::{Result, StoreError},
    smallage::{reply, trouble::sort_error},
};

/// A Sentinel must have answered within this.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the others get once one has answered.
const GRACE: Duration = Duration::from_millis(300);

/// What a refusal by Sentinels begins with, unlike one by the Redis.
pub(in crate::smallage) const SENTINEL: &str = "Sentinel";

/// What one Sentinel knows of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    master: Host,
    /// Rises with every failover.
    epoch: u64,
}

/// What can keep a Sentinel from telling.
enum Silent {
    /// It knows no master of that name, but these.
    Unknown(Vec<String>),
    /// It cannot be asked.
    Trouble(StoreError),
}

/// What the Sentinels of a URL know of its master, each for itself.
#[derive(Debug)]
pub(in crate::smallage) struct SentinelsTold {
    /// The master's name.
    pub(in crate::smallage) name: String,
    /// Where it is, by what counts of all that they know.
    pub(in crate::smallage) master: Host,
    /// In the order of the URL.
    pub(in crate::smallage) each: Vec<(Host, Knows)>,
}

/// What one Sentinel knows.
#[derive(Debug)]
pub(in crate::smallage) enum Knows {
    /// Where the master is.
    Master(Host),
    /// No master of that name, but these.
    Others(Vec<String>),
    /// It cannot be asked.
    Nothing(StoreError),
}

/// Asks every one of them, and waits for all.
pub(super) async fn ask_each(access: &Access, sentinels: &[Host], name: &str) -> Result<SentinelsTold> {
    let (mut told, mut each) = (Vec::new(), Vec::new());
    let ask = |sentinel: &Host| {
        let (access, sentinel, name) = (access.clone(), sentinel.clone(), name.to_owned());
        tokio::spawn(async move { ask_in_time(&access, &sentinel, &name).await })
    };
    let asked: Vec<_> = sentinels.iter().map(ask).collect();
    for (sentinel, answer) in sentinels.iter().zip(asked) {
        let broken = |error: tokio::task::JoinError| Err(Silent::Trouble(StoreError::Unexpected(error.to_string())));
        let knows = match answer.await.unwrap_or_else(broken) {
            Ok(answer) => {
                told.push(answer.clone());
                Knows::Master(answer.master)
            }
            Err(Silent::Unknown(others)) => Knows::Others(others),
            Err(Silent::Trouble(trouble)) => Knows::Nothing(trouble),
        };
        each.push((sentinel.clone(), knows));
    }
    let gone = || StoreError::Unavailable("no Sentinel names the master any more".to_owned());
    Ok(SentinelsTold { name: name.to_owned(), master: newest(told).ok_or_else(gone)?, each })
}

async fn ask_in_time(access: &Access, sentinel: &Host, name: &str) -> std::result::Result<Told, Silent> {
    let late = || Silent::Trouble(StoreError::Unavailable(format!("{sentinel}: no answer in {PATIENCE:?}")));
    timeout(PATIENCE, ask_one(access, sentinel, name)).await.unwrap_or_else(|_| Err(late()))
}

/// Where the master of this name is, by what the Sentinels know now.
pub(super) async fn find_master(access: &Access, sentinels: &[Host], name: &str) -> Result<Host> {
    let mut asked = JoinSet::new();
    for sentinel in sentinels {
        let (access, sentinel, name) = (access.clone(), sentinel.clone(), name.to_owned());
        asked.spawn(async move { ask_in_time(&access, &sentinel, &name).await });
    }
    let (mut told, mut silent) = (Vec::new(), Vec::new());
    let mut left = PATIENCE * 2;
    while let Ok(Some(answer)) = timeout(left, asked.join_next()).await {
        match answer {
            Ok(Ok(answer)) => {
                told.push(answer);
                left = GRACE;
            }
            Ok(Err(trouble)) => silent.push(trouble),
            // It was aborted, or has panicked: as good as no answer.
            Err(_) => {}
        }
    }
    newest(told).ok_or_else(|| explain(silent, name))
}

/// The master that those tell of who know of the newest failover; if they differ, the one that most of them name.
fn newest(told: Vec<Told>) -> Option<Host> {
    let epoch = told.iter().map(|told| told.epoch).max()?;
    let named: Vec<Host> = told.into_iter().filter(|told| told.epoch == epoch).map(|told| told.master).collect();
    let votes = |host: &Host| named.iter().filter(|other| *other == host).count();
    named.iter().max_by_key(|host| votes(host)).cloned()
}

/// Why none has told: what a person can mend comes first.
fn explain(silent: Vec<Silent>, name: &str) -> StoreError {
    let (mut masters, mut unknown, mut unreachable) = (BTreeSet::new(), false, Vec::new());
    for silent in silent {
        match silent {
            Silent::Unknown(others) => {
                unknown = true;
                masters.extend(others);
            }
            Silent::Trouble(StoreError::Denied(why)) => {
                return StoreError::Denied(format!("{SENTINEL} {why}; see `sentinel` in smallage's configuration"));
            }
            Silent::Trouble(trouble) => unreachable.push(match trouble {
                StoreError::Unavailable(why) => why,
                other => other.to_string(),
            }),
        }
    }
    if unknown {
        let known = masters.into_iter().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return StoreError::Unavailable(format!("the Sentinels know no master {name}; they know {known}"));
    }
    StoreError::Unavailable(format!("no Sentinel answers: {}", unreachable.join("; ")))
}

async fn ask_one(access: &Access, sentinel: &Host, name: &str) -> std::result::Result<Told, Silent> {
    let trouble = |error: StoreError| Silent::Trouble(error);
    let mut con = access.open_at(sentinel, PATIENCE, PATIENCE).await.map_err(trouble)?;
    let told = |error: &redis::RedisError| match error.code() {
        // The code of an unknown command, and of much else: nothing else can be wrong with these.
        Some("ERR") => {
            let why = format!("{sentinel} is no Sentinel: {}", error.detail().unwrap_or_default());
            Silent::Trouble(StoreError::Unavailable(why))
        }
        _ => Silent::Trouble(at(sentinel, sort_error(error).0)),
    };
    // While a failover is under way only this tells of the new master; and only the other of the failover's number.
    let address = ask(&mut con, cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name)).await;
    let Some(master) = host(&address.map_err(|error| told(&error))?) else {
        return Err(Silent::Unknown(masters(&mut con).await));
    };
    let fields = ask(&mut con, cmd("SENTINEL").arg("MASTER").arg(name)).await.map_err(|error| told(&error))?;
    Ok(Told { master, epoch: epoch(fields) })
}

/// `[name, port]`; nothing where it is no address.
fn host(answer: &Value) -> Option<Host> {
    let Value::Array(parts) = answer else { return None };
    let [name, port] = parts.as_slice() else { return None };
    Some(Host { name: reply::text(name)?, port: reply::text(port)?.parse().ok()? })
}

/// The field `config-epoch`; 0 where there is none.
fn epoch(fields: Value) -> u64 {
    pairs(fields)
        .into_iter()
        .find(|(name, _)| name == "config-epoch")
        .map_or(0, |(_, epoch)| epoch.parse().unwrap_or(0))
}

/// The masters it does know, by name; none if it may not be asked that.
async fn masters(con: &mut MultiplexedConnection) -> Vec<String> {
    let Ok(Value::Array(masters)) = ask(con, cmd("SENTINEL").arg("MASTERS")).await else { return Vec::new() };
    let name = |master| pairs(master).into_iter().find(|(name, _)| name == "name").map(|(_, value)| value);
    masters.into_iter().filter_map(name).collect()
}

/// Names and values, whatever form the protocol gives them.
fn pairs(value: Value) -> Vec<(String, String)> {
    let text = |value: &Value| reply::text(value).unwrap_or_default();
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

/// Fails unless this is a master: a Sentinel may be behind, and a master that was put down serves stale reads.
pub(super) async fn is_master(con: &mut MultiplexedConnection, host: &Host) -> Result<()> {
    let role = ask(con, &cmd("ROLE")).await.map_err(|error| at(host, sort_error(&error).0))?;
    let role = match role {
        Value::Array(parts) => parts.first().and_then(reply::text).unwrap_or_default(),
        _ => String::new(),
    };
    if role == "master" {
        return Ok(());
    }
    let why = format!("{host}: the Sentinels name it as the master, and it says that it is a {role}: a failover");
    Err(StoreError::Unavailable(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, epoch: u64) -> Told {
        Told { master: Host { name: name.to_owned(), port: 6379 }, epoch }
    }

    #[test]
    fn the_newest_failover_counts_and_then_the_majority() {
        for (all, expected) in [
            (vec![], None),
            (vec![told("a", 3)], Some("a")),
            (vec![told("old", 3), told("old", 3), told("new", 4)], Some("new")),
            (vec![told("a", 3), told("b", 3), told("a", 3)], Some("a")),
            (vec![told("b", 3), told("a", 3), told("a", 3), told("old", 1)], Some("a")),
        ] {
            assert_eq!(newest(all.clone()).map(|host| host.name).as_deref(), expected, "{all:?}");
        }
    }

    #[test]
    fn what_a_person_can_mend_is_told_first() {
        let gone = || Silent::Trouble(StoreError::Unavailable("a:1: refused".to_owned()));
        let locked = || Silent::Trouble(StoreError::Denied("b:1: NOAUTH".to_owned()));
        let unknown = |names: &[&str]| Silent::Unknown(names.iter().map(|name| (*name).to_owned()).collect());
        for (silent, expected) in [
            (vec![gone(), gone()], "the store cannot be reached: no Sentinel answers: a:1: refused; a:1: refused"),
            (
                vec![gone(), locked()],
                "the store refuses us: Sentinel b:1: NOAUTH; see `sentinel` in smallage's configuration",
            ),
            (
                vec![gone(), unknown(&["y", "x"]), unknown(&["x"])],
                "the store cannot be reached: the Sentinels know no master m; they know x, y",
            ),
            (vec![unknown(&[])], "the store cannot be reached: the Sentinels know no master m; they know none"),
        ] {
            assert_eq!(explain(silent, "m").to_string(), expected);
        }
    }
}
