//! What stands in the rules files at one moment.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{OsStr, OsString},
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{Listed, RulesSource};
use crate::config::problem::Position;

/// Bytes of all rules files together, at most: what a ConfigMap may hold.
const MOST_BYTES: usize = 1024 * 1024;
const CHECK_PATH: &str = "check path and permissions; relative paths begin in the folder of the configuration";
const CHECK_FLAG: &str = "check path and permissions; relative paths begin in the working directory";
const NO_GLOBS: &str = "globs are not expanded: name the folder, and every *.yaml and *.yml in it is read";
const ONCE: &str = "each file is read once: remove one of the two";
/// Files in one folder at most.
const MOST_FILES: usize = 256;

/// The content of all rules files at one look, and what could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesText(Vec<Part>);

/// One file, or what stands in the way of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A file.
    File {
        /// Its path, as problems name it.
        name: String,
        /// All that stands in it.
        bytes: Vec<u8>,
    },
    /// A file in a folder that cannot be read.
    UnusableFile {
        /// Its path.
        name: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        help: String,
    },
    /// A file or folder that the configuration names and that cannot be used.
    Unusable {
        /// Where the configuration names it; none if the command line does.
        at: Option<Position>,
        /// What is wrong.
        message: String,
        /// What to do about it.
        help: String,
    },
}

impl RulesText {
    /// Of these files: names and contents.
    #[cfg(test)]
    pub(super) fn of(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> RulesText {
        RulesText(files.into_iter().map(|(name, bytes)| Part::File { name, bytes }).collect())
    }

    /// A digest of it: the same for two looks that saw the same.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut feed = |bytes: &[u8]| {
            // Preceded by its length, so that no two looks feed the same bytes.
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        for part in &self.0 {
            match part {
                Part::File { name, bytes } => {
                    feed(name.as_bytes());
                    feed(bytes);
                }
                Part::UnusableFile { name, message, .. } => {
                    feed(name.as_bytes());
                    feed(message.as_bytes());
                    feed(b"");
                }
                Part::Unusable { message, .. } => {
                    feed(message.as_bytes());
                    feed(b"");
                    feed(b"");
                }
            }
        }
        hash.finalize().into()
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }
}

impl RulesSource {
    /// Looks at all files. Blocks, but not for long: there are few of them, and they are small.
    pub fn look(&self) -> RulesText {
        let mut look = Look { parts: Vec::new(), room: MOST_BYTES, seen: HashMap::new() };
        for listed in &self.listed {
            look.at(listed);
        }
        RulesText(look.parts)
    }
}

struct Look {
    parts: Vec<Part>,
    /// Bytes that may still be read.
    room: usize,
    /// Every file and folder so far, links followed, and what the configuration calls it or its folder.
    seen: HashMap<PathBuf, String>,
}

impl Look {
    fn at(&mut self, listed: &Listed) {
        let Listed { path, shown, at } = listed;
        let check_path = match at {
            _ if shown.contains('*') => NO_GLOBS,
            Some(_) => CHECK_PATH,
            None => CHECK_FLAG,
        };
        if let Some(before) = self.seen_before(path, shown) {
            let message = format!("{shown} of \"rules\" is read already, through {before}");
            self.parts.push(Part::Unusable { at: *at, message, help: ONCE.to_owned() });
            return;
        }
        // What follows a symlink counts, as a ConfigMap's files are symlinks.
        let found = fs::metadata(path).and_then(|what| if what.is_dir() { names(path).map(Some) } else { Ok(None) });
        let trouble = match found {
            Err(error) => Some((format!("cannot read {shown} for \"rules\": {error}"), check_path)),
            Ok(Some(names)) if names.is_empty() => {
                let help = "put one into it, with retry: [] where there are no rules";
                Some((format!("the folder {shown} of \"rules\" holds no file *.yaml or *.yml"), help))
            }
            Ok(Some(names)) if names.len() > MOST_FILES => {
                let message = format!("the folder {shown} of \"rules\" holds more than {MOST_FILES} files");
                Some((message, "put several rules into one file"))
            }
            Ok(Some(names)) => {
                for name in names {
                    self.file_in_folder(&path.join(name), listed);
                }
                None
            }
            Ok(None) => match self.content(path) {
                Ok(bytes) => {
                    self.parts.push(Part::File { name: path.display().to_string(), bytes });
                    None
                }
                Err(error) => Some((format!("cannot read {shown} for \"rules\": {error}"), check_path)),
            },
        };
        if let Some((message, help)) = trouble {
            self.parts.push(Part::Unusable { at: *at, message, help: help.to_owned() });
        }
    }

    fn file_in_folder(&mut self, path: &Path, folder: &Listed) {
        let name = path.display().to_string();
        if let Some(before) = self.seen_before(path, &folder.shown) {
            let message =
                format!("{name} in the folder {} of \"rules\" is read already, through {before}", folder.shown);
            self.parts.push(Part::Unusable { at: folder.at, message, help: ONCE.to_owned() });
            return;
        }
        let part = match self.content(path) {
            Ok(bytes) => Part::File { name, bytes },
            Err(error) => Part::UnusableFile {
                name,
                message: format!("cannot read this rules file: {error}"),
                help: "mend it, or remove it from the folder".to_owned(),
            },
        };
        self.parts.push(part);
    }

    /// Through what this was looked at before. What is not there never was, and is told of by who reads it.
    fn seen_before(&mut self, path: &Path, shown: &str) -> Option<String> {
        match self.seen.entry(fs::canonicalize(path).ok()?) {
            Entry::Occupied(seen) => Some(seen.get().clone()),
            Entry::Vacant(place) => {
                place.insert(shown.to_owned());
                None
            }
        }
    }

    fn content(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        // Opening a pipe, say, would wait for somebody to write to it.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(self.room as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > self.room {
            return Err(io::Error::other(format!("all rules files together are larger than {MOST_BYTES} bytes")));
        }
        self.room -= bytes.len();
        Ok(bytes)
    }
}

/// The rules files of a folder, by name. Hidden ones do not count: a ConfigMap keeps its versions under such names.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if is_rules_file(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn is_rules_file(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") && (name.ends_with(b".yaml") || name.ends_with(b".yml"))
}
