//! What `INFO` says, in the terms of what matters here. Pure.

use std::collections::HashMap;

/// An answer of `INFO`.
#[derive(Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    /// Reads it; lines that say nothing are passed over.
    pub(super) fn of(text: &str) -> Info {
        let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(':'));
        Info(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
    }

    /// A field, if it is there and says something.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    fn says(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// The server's name and its version.
    pub(super) fn product(&self) -> (&'static str, &str) {
        let version = |name| self.get(name).unwrap_or("of an unknown version");
        match self.get("valkey_version") {
            Some(version) => ("Valkey", version),
            None => ("Redis", version("redis_version")),
        }
    }

    /// The major version of Redis that it is, or says to be compatible with.
    pub(super) fn major(&self) -> Option<u32> {
        self.get("redis_version")?.split('.').next()?.parse().ok()
    }

    pub(super) fn is_replica(&self) -> bool {
        self.says("role", "slave")
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.says("redis_mode", "sentinel")
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.says("cluster_enabled", "1")
    }

    pub(super) fn is_loading(&self) -> bool {
        self.says("loading", "1") || self.says("async_loading", "1")
    }

    pub(super) fn has_aof(&self) -> bool {
        self.says("aof_enabled", "1")
    }

    /// Where a replica's primary is.
    pub(super) fn primary(&self) -> Option<String> {
        Some(format!("{}:{}", self.get("master_host")?, self.get("master_port")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_stands_in_its_answer() {
        for (text, product, major, replica) in [
            ("# Server\r\nredis_version:7.0.15\r\nrole:master\r\n", ("Redis", "7.0.15"), Some(7), false),
            ("redis_version:6.2.14\nrole:slave\n", ("Redis", "6.2.14"), Some(6), true),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\nrole:master",
                ("Valkey", "8.1.0"),
                Some(7),
                false,
            ),
            ("", ("Redis", "of an unknown version"), None, false),
            ("redis_version:\r\nnonsense\r\n:\r\n", ("Redis", "of an unknown version"), None, false),
        ] {
            let info = Info::of(text);
            assert_eq!((info.product(), info.major(), info.is_replica()), (product, major, replica), "{text:?}");
        }
        let info = Info::of("maxmemory:1048576\r\naof_enabled:1\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n");
        assert_eq!((info.number("maxmemory"), info.number("used_memory")), (Some(1_048_576), None));
        assert_eq!((info.has_aof(), info.primary().as_deref()), (true, Some("10.0.0.1:6379")));
    }
}
