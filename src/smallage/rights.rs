//! What Sexton may do on Redis, and no more: the one list of commands and keys that the README shows, that
//! `sexton check --connect` tries, and that the tests hold against what is really sent.

use super::Keys;
use crate::config::{RedisUrl, Via};

/// Keys that belong together, for which rights are given by one pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// The DLQ.
    Dlq,
    /// The queues' streams.
    Queues,
    /// The claims of dedup keys.
    Dedup,
    /// The framework's clock.
    Clock,
    /// The ledger.
    Ledger,
}

impl Area {
    /// All of them.
    pub const ALL: [Area; 5] = [Area::Dlq, Area::Queues, Area::Dedup, Area::Clock, Area::Ledger];

    /// The area that a key of this namespace is in, if any.
    pub fn of(keys: &Keys, key: &str) -> Option<Area> {
        Area::ALL.into_iter().find(|area| {
            let pattern = area.pattern(keys);
            pattern.strip_suffix('*').map_or(pattern == key, |prefix| key.starts_with(prefix))
        })
    }

    /// Its keys, as a pattern of Redis's.
    pub fn pattern(self, keys: &Keys) -> String {
        match self {
            Area::Dlq => keys.dlq(),
            Area::Queues => format!("{}*", keys.queues()),
            Area::Dedup => keys.dedup("*"),
            Area::Clock => keys.clock(),
            Area::Ledger => format!("{}*", keys.ledger()),
        }
    }

    /// The right to it, as a word of `ACL SETUSER`.
    pub fn word(self, keys: &Keys) -> String {
        let pattern = self.pattern(keys);
        if self == Area::Clock { format!("%R~{pattern}") } else { format!("~{pattern}") }
    }

    /// What it is needed for.
    pub(super) fn purpose(self) -> &'static str {
        match self {
            Area::Dlq => "dead letters are read there, and go when they are retried or removed",
            Area::Queues => "jobs are put back there",
            Area::Dedup => "a retried job's own claim is freed there",
            Area::Clock => "what became of a retried job is looked up there",
            Area::Ledger => "all that Sexton remembers is there",
        }
    }
}

/// One command and the keys it is used with.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Its name, as `ACL SETUSER` wants it behind a `+`.
    pub command: &'static str,
    /// Where it is used; nowhere for one without keys.
    pub areas: &'static [Area],
    /// What for.
    pub(super) purpose: &'static str,
}

const fn right(command: &'static str, areas: &'static [Area], purpose: &'static str) -> Right {
    Right { command, areas, purpose }
}

const LEDGER: &[Area] = &[Area::Ledger];
const DLQ: &[Area] = &[Area::Dlq];
const LOOKED_AT: &[Area] = &[Area::Ledger, Area::Clock];

/// All that is needed.
pub const RIGHTS: &[Right] = &[
    right("evalsha", &[Area::Dlq, Area::Queues, Area::Dedup, Area::Ledger], "everything is written by scripts"),
    right("eval", &[Area::Dlq, Area::Queues, Area::Dedup, Area::Ledger], "a script that Redis does not know yet"),
    right("evalsha_ro", &Area::ALL, "scripts that only read"),
    right("eval_ro", &Area::ALL, "a reading script that Redis does not know yet"),
    right("time", &[], "Redis is the clock"),
    right("exists", &[Area::Dlq, Area::Queues, Area::Ledger], "whether a queue is there"),
    right("get", &[Area::Dedup, Area::Ledger], "the lease"),
    right("mget", LEDGER, "what retries have taught"),
    right("set", LEDGER, "the lease"),
    right("del", &[Area::Dedup, Area::Ledger], "the lease, and a retried job's claim"),
    right("unlink", LEDGER, "the due index of rules that are no more"),
    right("pexpire", LEDGER, "the lease, and that what is kept of a job expires"),
    right("pttl", LEDGER, "the lease"),
    right("hget", LEDGER, "the state"),
    right("hset", LEDGER, "the state"),
    right("hdel", LEDGER, "the state"),
    right("hmget", LEDGER, "the state, and what is known of jobs"),
    right("hgetall", LEDGER, "the watch over the line, and bulk operations"),
    right("hincrby", LEDGER, "deaths are counted"),
    right("hlen", LEDGER, "retries in flight"),
    right("hvals", LEDGER, "retries in flight"),
    right("xadd", &[Area::Queues, Area::Ledger], "events, the audit log, and jobs that are put back"),
    right("xlen", &[Area::Dlq, Area::Queues, Area::Ledger], "lengths"),
    right("xrange", &[Area::Dlq, Area::Queues, Area::Ledger], "dead letters, events, and retried jobs"),
    right("xrevrange", &[Area::Dlq, Area::Ledger], "dead letters, the newest first"),
    right("xtrim", LEDGER, "events that every hook is done with go"),
    right("xdel", DLQ, "dead letters that are retried or removed go"),
    right("xread", &[Area::Dlq, Area::Ledger], "a death, or that the lease is given up, is noticed at once"),
    right("xinfo|stream", &[Area::Dlq, Area::Ledger], "deaths that nobody saw are counted"),
    right("zadd", LEDGER, "the due index"),
    right("zrem", LEDGER, "the due index"),
    right("zremrangebyscore", LEDGER, "holds that are over"),
    right("zrange", LOOKED_AT, "the due index, and retried jobs"),
    right("zrangebyscore", LEDGER, "the due index"),
    right("zcount", LEDGER, "the due index"),
    right("zcard", LOOKED_AT, "the due index, and retried jobs"),
    right("zscore", LOOKED_AT, "the due index, and retried jobs"),
    right("zmscore", &[Area::Clock], "retried jobs"),
];

/// What a URL may ask for, beyond one server and its first database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// A server that Sentinels name.
    Sentinels,
    /// A Cluster.
    Cluster,
    /// Another database than 0.
    Database,
}

impl Beyond {
    fn of(self, url: &RedisUrl) -> bool {
        match self {
            Beyond::Sentinels => matches!(url.via, Via::Sentinels { .. }),
            Beyond::Cluster => matches!(url.via, Via::Cluster { .. }),
            Beyond::Database => url.database() != "0",
        }
    }
}

/// What is needed beyond that, by what the URL asks for.
pub const RIGHTS_BEYOND: &[(Beyond, Right)] = &[
    (Beyond::Sentinels, right("role", &[], "whether it is still the master")),
    (Beyond::Cluster, right("cluster|slots", &[], "which other nodes there are, so that those of the URL may go")),
    (Beyond::Database, right("select", &[], "a database other than 0")),
];

/// What is needed on the Sentinels themselves.
pub const RIGHTS_ON_SENTINELS: &[Right] = &[
    right("sentinel|get-master-addr-by-name", &[], "where the master is"),
    right("sentinel|master", &[], "which failover it came by"),
    right("sentinel|masters", &[], "which other masters there are, where the name is wrong"),
];

/// What is needed beyond that for this URL.
pub(super) fn beyond(url: &RedisUrl) -> impl Iterator<Item = &'static Right> {
    RIGHTS_BEYOND.iter().filter(|(beyond, _)| beyond.of(url)).map(|(_, right)| right)
}

/// The words of `ACL SETUSER` that grant these commands.
pub(super) fn words<'r>(rights: impl IntoIterator<Item = &'r Right>) -> String {
    rights.into_iter().map(|right| format!("+{}", right.command)).collect::<Vec<_>>().join(" ")
}

/// What adds to the user of [`least_rights`] what is needed beyond them, a line each.
pub fn rights_beyond() -> Vec<String> {
    RIGHTS_BEYOND.iter().map(|(_, right)| format!("ACL SETUSER sexton {}", words([right]))).collect()
}

/// What a user with the least rights is made by on a Sentinel, with a password to be filled in.
pub fn rights_on_sentinels() -> String {
    format!("ACL SETUSER sexton-asks on >PASSWORD resetkeys resetchannels -@all {}", words(RIGHTS_ON_SENTINELS))
}

/// What a user with the least rights is made by, with a password to be filled in.
pub fn least_rights(keys: &Keys) -> String {
    let areas: Vec<String> = Area::ALL.into_iter().map(|area| area.word(keys)).collect();
    format!("ACL SETUSER sexton on >PASSWORD resetkeys {} resetchannels -@all {}", areas.join(" "), words(RIGHTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_area_whose_pattern_it_matches() {
        let keys = Keys::new("lrs").unwrap();
        for (key, area) in [
            ("{lrs}:dlq", Some(Area::Dlq)),
            ("{lrs}:dlq2", None),
            ("{lrs}:q:default:0", Some(Area::Queues)),
            ("{lrs}:dedup:order:7", Some(Area::Dedup)),
            ("{lrs}:sched", Some(Area::Clock)),
            ("{lrs}:sched:job:7", None),
            ("{lrs}:sexton:lease", Some(Area::Ledger)),
            ("{other}:sexton:lease", None),
            ("{lrs}:leader", None),
        ] {
            assert_eq!(Area::of(&keys, key), area, "{key}");
        }
    }

    #[test]
    fn every_command_is_named_once_and_every_area_is_used() {
        for (n, right) in RIGHTS.iter().enumerate() {
            assert!(RIGHTS[..n].iter().all(|other| other.command != right.command), "{}", right.command);
        }
        for area in Area::ALL {
            assert!(RIGHTS.iter().any(|right| right.areas.contains(&area)), "{area:?}");
        }
    }
}
