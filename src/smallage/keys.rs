//! The names of keys: smallage's, and Sexton's own beside them.
//!
//! All carry the hash tag `{namespace}`, so that one namespace is one slot of a Cluster. One function per key; no other
//! place puts a key together.

use crate::event::Lane;

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

    /// The lease: a string, `<epoch>:<holder>`.
    pub fn lease(&self) -> String {
        format!("{}sexton:lease", self.prefix)
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
        for (key, expected) in [
            (keys.dlq(), "{lrs}:dlq"),
            (keys.lease(), "{lrs}:sexton:lease"),
            (keys.state(), "{lrs}:sexton:state"),
            (keys.outbox(Lane::Deaths), "{lrs}:sexton:outbox:deaths"),
            (keys.outbox(Lane::Alerts), "{lrs}:sexton:outbox:alerts"),
            (keys.hook("oncall", Lane::Deaths), "{lrs}:sexton:hook:oncall:deaths"),
            (keys.job("d40ec568"), "{lrs}:sexton:job:d40ec568"),
        ] {
            assert_eq!(key, expected);
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
