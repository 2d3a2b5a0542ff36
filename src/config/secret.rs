//! Values that must never be shown, and where they come from.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use super::file::read_file;

/// Bytes of a secret's file at most; whatever is larger is no secret.
const LARGEST_FILE: u64 = 64 * 1024;

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Keep it out of logs and errors.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a secret is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In the configuration, variables already expanded.
    Inline(Secret),
    /// In a file, read whenever it is needed, so that it may rotate; white space around it does not count.
    File(PathBuf),
}

/// A secret's file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the secret file {}: {reason}", path.display())]
pub struct SecretError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub reason: io::Error,
}

impl SecretSource {
    /// The secret as it is now.
    pub fn read(&self) -> Result<Secret, SecretError> {
        match self {
            SecretSource::Inline(secret) => Ok(secret.clone()),
            SecretSource::File(path) => match text_of(path) {
                Ok(text) => Ok(Secret::new(text.trim())),
                Err(reason) => Err(SecretError { path: path.clone(), reason }),
            },
        }
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let bytes = read_file(path, LARGEST_FILE)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}
