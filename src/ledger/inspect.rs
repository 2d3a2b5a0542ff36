//! What can be wrong with a source's store before anything runs on it: `sexton check --connect`.

use async_trait::async_trait;
use serde::Serialize;

/// How bad what was found is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and may not go on to do so, or is not what was meant.
    Warning,
    /// It does not work, or will not.
    Error,
}

/// What of a store was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aspect {
    /// Whether it answers at all.
    Reach,
    /// What it is, and whether this build can work with it.
    Version,
    /// What we may do there.
    Rights,
    /// Whether it takes writes now.
    Writes,
    /// Whether it has room, and what it does without.
    Memory,
    /// What a restart of it would forget.
    Persistence,
    /// The framework's DLQ, and whether it is the one that is meant.
    Dlq,
    /// What Sexton has kept there.
    Ledger,
    /// What time it is there.
    Clock,
}

impl Aspect {
    /// Its name in what `-o json` prints.
    pub fn as_str(self) -> &'static str {
        match self {
            Aspect::Reach => "reach",
            Aspect::Version => "version",
            Aspect::Rights => "rights",
            Aspect::Writes => "writes",
            Aspect::Memory => "memory",
            Aspect::Persistence => "persistence",
            Aspect::Dlq => "dlq",
            Aspect::Ledger => "ledger",
            Aspect::Clock => "clock",
        }
    }
}

/// One thing that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub aspect: Aspect,
    /// How bad it is.
    pub level: Level,
    /// The store cannot be used as it is.
    pub unusable: bool,
    /// What is so, without a secret.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The names of what is missing, such as rights.
    pub missing: Vec<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn ok(aspect: Aspect, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { aspect, level: Level::Ok, unusable: false, message, help: None, missing: Vec::new() }
    }

    /// Something that works, and may not go on to do so.
    pub fn warning(aspect: Aspect, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, help: Some(help.into()), ..Finding::ok(aspect, message) }
    }

    /// Something that is wrong, with which the store could still be used.
    pub fn error(aspect: Aspect, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { level: Level::Error, ..Finding::warning(aspect, message, help) }
    }

    /// Something with which the store cannot be used.
    pub fn unusable(aspect: Aspect, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { unusable: true, ..Finding::error(aspect, message, help) }
    }
}

/// A store that can be looked at before anything runs on it.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Finds out what is wrong with the store and what is right, and writes nothing to it. Each finding is told at once,
    /// so that whoever loses patience keeps what was found.
    async fn inspect(&self, tell: &mut (dyn FnMut(Finding) + Send));
}
