//! How a command ends: the exit codes, and the one place that says which failure has which.

use std::{io, process::ExitCode};

use crate::{config::Problems, ledger::StoreError, triage};

/// The exit codes. Documented in `sexton --help`; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Done.
    Done = 0,
    /// What was asked for could not be done or found.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The source's store cannot be used now.
    Store = 69,
    /// The configuration is wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Not done or not found.
    #[error("{0}")]
    Failed(String),
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong; one problem a line.
    #[error("{0}")]
    Config(String),
    /// A source's store gave an error.
    #[error("{of}: {error}")]
    Store {
        /// The source's name.
        of: String,
        /// What the store said.
        error: StoreError,
    },
    /// A source's store cannot be used as it is.
    #[error("{0}")]
    Unusable(String),
    /// What is wrong was shown already, with the output.
    #[error("")]
    Shown {
        /// A source's store cannot be used as it is.
        unusable: bool,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Failure {
        Failure::Config(problems.to_string())
    }
}

impl From<triage::Error> for Failure {
    fn from(error: triage::Error) -> Failure {
        match error {
            triage::Error::Store { of, error } => Failure::Store { of, error },
            triage::Error::Cursor(..) => Failure::Usage(error.to_string()),
            triage::Error::Contended(_) => Failure::Failed(error.to_string()),
        }
    }
}

impl Failure {
    /// For `map_err`: a store's error with the source it is about.
    pub(super) fn store(of: &str) -> impl FnOnce(StoreError) -> Failure {
        move |error| Failure::Store { of: of.to_owned(), error }
    }

    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            // Whoever read the output has read enough, as `head` does.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Failure::Failed(_) | Failure::Output(_) | Failure::Shown { unusable: false } => Exit::Failed,
            Failure::Usage(_) => Exit::Usage,
            Failure::Config(_) => Exit::Config,
            Failure::Unusable(_) | Failure::Shown { unusable: true } => Exit::Store,
            Failure::Store { error, .. } => match error {
                StoreError::Unavailable(_) | StoreError::NoWrites(_) | StoreError::Denied(_) => Exit::Store,
                StoreError::Fenced | StoreError::Moved | StoreError::Unexpected(_) => Exit::Failed,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_exit_code() {
        let store = |error| Failure::Store { of: "orders".into(), error };
        for (failure, expected) in [
            (Failure::Failed("x".into()), 1),
            (Failure::Usage("x".into()), 2),
            (Failure::Config("x".into()), 78),
            (Failure::Unusable("x".into()), 69),
            (Failure::Shown { unusable: true }, 69),
            (Failure::Shown { unusable: false }, 1),
            (store(StoreError::Unavailable("x".into())), 69),
            (store(StoreError::NoWrites("x".into())), 69),
            (store(StoreError::Denied("x".into())), 69),
            (store(StoreError::Fenced), 1),
            (store(StoreError::Moved), 1),
            (store(StoreError::Unexpected("x".into())), 1),
            (Failure::Output(io::ErrorKind::BrokenPipe.into()), 0),
            (Failure::Output(io::ErrorKind::StorageFull.into()), 1),
        ] {
            assert_eq!(failure.exit() as u8, expected, "{failure:?}");
        }
    }
}
