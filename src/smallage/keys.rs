//! The names of keys: smallage's, and Sexton's own beside them.
//!
//! All carry the hash tag `{namespace}`, so that one namespace is one slot of a Cluster. One function per key; no other
//! place puts a key together.

use crate::{
    event::Lane,
    ledger::{Place, Pool},
};

/// Why a namespace cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// It has no characters.
    #[error("a namespace cannot be empty")]
    Empty,
    /// It holds a character that has a meaning in keys.
    #[error("a namespace cannot hold {0:?}")]
    Forbidden(char),
}

/// Shards of a queue that are looked through for a job.
const MOST_SHARDS: usize = 32;

/// The keys of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// `{namespace}:`, which every key begins with.
    prefix: String,
    /// `{namespace}:q:`, which every queue stream begins with.
    queues: String,
}

impl Keys {
    /// The keys of this namespace, by smallage's own rules for its name.
    pub fn new(namespace: &str) -> Result<Keys, NamespaceError> {
        if namespace.is_empty() {
            return Err(NamespaceError::Empty);
        }
        if let Some(forbidden) = namespace.chars().find(|c| matches!(c, '{' | '}' | ':')) {
            return Err(NamespaceError::Forbidden(forbidden));
        }
        let prefix = format!("{{{namespace}}}:");
        Ok(Keys { queues: format!("{prefix}q:"), prefix })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.prefix.trim_start_matches('{').trim_end_matches("}:")
    }

    /// smallage's DLQ, a stream.
    pub fn dlq(&self) -> String {
        format!("{}dlq", self.prefix)
    }

    /// The queue a stream of this namespace belongs to: `default` for `{lrs}:q:default:0`. `None` for a stream that is
    /// none of smallage's queues, which makes its entries foreign.
    pub fn queue_of<'a>(&self, stream: &'a str) -> Option<&'a str> {
        let name = stream.strip_prefix(&self.queues)?;
        // A shard that is no number belongs to a form of the name not known yet; the whole then tells most.
        Some(match name.rsplit_once(':') {
            Some((queue, shard)) if !shard.is_empty() && shard.bytes().all(|b| b.is_ascii_digit()) => queue,
            _ => name,
        })
    }

    /// What every queue stream of this namespace begins with.
    pub fn queues(&self) -> &str {
        &self.queues
    }

    /// smallage's clock: a sorted set of the names under which jobs are put off, by the time they are due.
    pub fn clock(&self) -> String {
        format!("{}sched", self.prefix)
    }

    /// The claim of a dedup key: a string, the id of the job that has run or runs under it.
    pub fn dedup(&self, key: &str) -> String {
        format!("{}dedup:{key}", self.prefix)
    }

    /// The streams that a job of this queue stream may be on, itself among them, if the number of the queue's shards has
    /// changed since.
    pub fn shards_beside(&self, stream: &str) -> Vec<String> {
        let Some((queue, shard)) = stream.rsplit_once(':').filter(|_| self.queue_of(stream).is_some()) else {
            return Vec::new();
        };
        if shard.parse::<usize>().is_err() {
            return Vec::new();
        }
        (0..MOST_SHARDS).map(|shard| format!("{queue}:{shard}")).collect()
    }

    /// Who leads among the framework's workers: a string that expires.
    pub fn framework_leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    /// What every key of the ledger begins with.
    pub fn ledger(&self) -> String {
        format!("{}sexton:", self.prefix)
    }

    /// The lease: a string, `<epoch>:<holder>`.
    pub fn lease(&self) -> String {
        format!("{}sexton:lease", self.prefix)
    }

    /// The word that the lease was given up, until somebody takes it: a stream of one entry, `<epoch>-1`.
    pub fn handover(&self) -> String {
        format!("{}sexton:handover", self.prefix)
    }

    /// Cursor, counters and epoch: a hash.
    pub fn state(&self) -> String {
        format!("{}sexton:state", self.prefix)
    }

    /// A lane of the outbox: a stream.
    pub fn outbox(&self, lane: Lane) -> String {
        format!("{}sexton:outbox:{}", self.prefix, lane.as_str())
    }

    /// What a hook has saved for a lane: a hash.
    pub fn hook(&self, name: &str, lane: Lane) -> String {
        format!("{}sexton:hook:{name}:{}", self.prefix, lane.as_str())
    }

    /// What is remembered of a job: a hash that expires.
    pub fn job(&self, job_id: &str) -> String {
        format!("{}sexton:job:{job_id}", self.prefix)
    }

    /// The due index's pools: a sorted set by the time of their next look.
    pub fn due(&self, generation: u64) -> String {
        format!("{}sexton:due:{generation}", self.prefix)
    }

    /// The groups of a pool: a sorted set by the time of their next look.
    pub fn due_pool(&self, generation: u64, pool: &Pool) -> String {
        format!("{}:{}", self.due(generation), pool.0)
    }

    /// The entries of a group: a sorted set by the time they become due.
    pub fn due_group(&self, generation: u64, place: &Place) -> String {
        format!("{}:{}", self.due_pool(generation, &place.pool), place.group)
    }

    /// What has been learnt of a pool, or of a group in it: a string that expires.
    pub fn learnt(&self, pool: &Pool, group: Option<&str>) -> String {
        match group {
            None => format!("{}sexton:learnt:pool:{}", self.prefix, pool.0),
            Some(group) => format!("{}sexton:learnt:group:{}:{group}", self.prefix, pool.0),
        }
    }

    /// Groups on hold: a sorted set by the time they are on hold until.
    pub fn held(&self) -> String {
        format!("{}sexton:held", self.prefix)
    }

    /// Retries without a final verdict: a hash by job id.
    pub fn flights(&self) -> String {
        format!("{}sexton:flights", self.prefix)
    }

    /// The job that was put back last under a dedup key, while it is in flight: a string that expires.
    pub fn raised(&self, dedup: &str) -> String {
        format!("{}sexton:raised:{dedup}", self.prefix)
    }

    /// A bulk operation: a hash that expires.
    pub fn operation(&self, id: &str) -> String {
        format!("{}sexton:operation:{id}", self.prefix)
    }

    /// The bulk operations: a sorted set by the time they were asked for.
    pub fn operations(&self) -> String {
        format!("{}sexton:operations", self.prefix)
    }

    /// What the watch over the line remembers: a hash.
    pub fn watch(&self) -> String {
        format!("{}sexton:watch", self.prefix)
    }

    /// The audit log: a stream.
    pub fn audit(&self) -> String {
        format!("{}sexton:audit", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_follow_smallages_rules() {
        for (namespace, expected) in [
            ("lrs", Ok("lrs")),
            ("a b.é-1", Ok("a b.é-1")),
            ("", Err(NamespaceError::Empty)),
            ("a:b", Err(NamespaceError::Forbidden(':'))),
            ("{a", Err(NamespaceError::Forbidden('{'))),
            ("a}", Err(NamespaceError::Forbidden('}'))),
        ] {
            let keys = Keys::new(namespace);
            assert_eq!(keys.as_ref().map(Keys::namespace), expected.as_ref().copied(), "{namespace:?}");
        }
    }

    #[test]
    fn every_key_has_the_hash_tag_and_a_fixed_name() {
        let keys = Keys::new("lrs").unwrap();
        let pool = Pool("flaky:0a1b2c3d4e5f".to_owned());
        let place = Place { pool: pool.clone(), group: "7c1f0e9a2b44".to_owned() };
        for (key, expected) in [
            (keys.dlq(), "{lrs}:dlq"),
            (keys.clock(), "{lrs}:sched"),
            (keys.dedup("order:7"), "{lrs}:dedup:order:7"),
            (keys.lease(), "{lrs}:sexton:lease"),
            (keys.handover(), "{lrs}:sexton:handover"),
            (keys.state(), "{lrs}:sexton:state"),
            (keys.outbox(Lane::Deaths), "{lrs}:sexton:outbox:deaths"),
            (keys.outbox(Lane::Alerts), "{lrs}:sexton:outbox:alerts"),
            (keys.hook("oncall", Lane::Deaths), "{lrs}:sexton:hook:oncall:deaths"),
            (keys.job("d40ec568"), "{lrs}:sexton:job:d40ec568"),
            (keys.due(3), "{lrs}:sexton:due:3"),
            (keys.due_pool(3, &pool), "{lrs}:sexton:due:3:flaky:0a1b2c3d4e5f"),
            (keys.due_group(3, &place), "{lrs}:sexton:due:3:flaky:0a1b2c3d4e5f:7c1f0e9a2b44"),
            (keys.learnt(&pool, None), "{lrs}:sexton:learnt:pool:flaky:0a1b2c3d4e5f"),
            (keys.learnt(&pool, Some("7c1f")), "{lrs}:sexton:learnt:group:flaky:0a1b2c3d4e5f:7c1f"),
            (keys.held(), "{lrs}:sexton:held"),
            (keys.flights(), "{lrs}:sexton:flights"),
            (keys.raised("order:7"), "{lrs}:sexton:raised:order:7"),
            (keys.operation("17"), "{lrs}:sexton:operation:17"),
            (keys.operations(), "{lrs}:sexton:operations"),
            (keys.watch(), "{lrs}:sexton:watch"),
            (keys.audit(), "{lrs}:sexton:audit"),
        ] {
            assert_eq!(key, expected);
        }
    }

    #[test]
    fn a_queue_has_shards_beside_a_stream() {
        let keys = Keys::new("lrs").unwrap();
        let beside = keys.shards_beside("{lrs}:q:high priority:3");
        assert_eq!(beside.len(), MOST_SHARDS);
        assert_eq!((beside[0].as_str(), beside[3].as_str()), ("{lrs}:q:high priority:0", "{lrs}:q:high priority:3"));
        for stream in ["{lrs}:q:default", "{lrs}:q:default:x", "{lrs}:dlq", "partner:events:1", ""] {
            assert!(keys.shards_beside(stream).is_empty(), "{stream}");
        }
    }

    #[test]
    fn the_queue_is_read_out_of_its_stream() {
        let keys = Keys::new("lrs").unwrap();
        for (stream, expected) in [
            ("{lrs}:q:default:0", Some("default")),
            ("{lrs}:q:high priority:12", Some("high priority")),
            ("{lrs}:q:default", Some("default")),
            ("{lrs}:q:default:", Some("default:")),
            ("{lrs}:q:default:x", Some("default:x")),
            ("{lrs}:q:", Some("")),
            ("{lrs}:dlq", None),
            ("{other}:q:default:0", None),
            ("lrs:q:default:0", None),
            ("partner:events", None),
            ("", None),
        ] {
            assert_eq!(keys.queue_of(stream), expected, "{stream:?}");
        }
    }
}
