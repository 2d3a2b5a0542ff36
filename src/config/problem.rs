//! What is wrong with a configuration: every problem at once, each with its place and what to do about it.
//!
//! Problems are shown to people and logged, so no secret may get into one: a value that a variable gave is shown as
//! it was written, a URL never.

use std::{collections::HashSet, fmt};

/// A place in a file; both numbers count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named, or the flag.
    pub file: String,
    /// Where in it; none if it concerns the whole.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(position) = self.position {
            write!(f, ":{position}")?;
        }
        write!(f, ": {}; {}", self.message, self.help)
    }
}

/// Everything that is wrong with one configuration and its rules, file by file, each in its own order; prints one line
/// for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    found: Vec<Problem>,
    /// What was found in further files, already in order.
    further: Vec<Problem>,
}

impl Problems {
    /// None yet, in this file.
    pub(super) fn new(file: impl Into<String>) -> Problems {
        Problems { file: file.into(), found: Vec::new(), further: Vec::new() }
    }

    /// The file whose problems these are.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// How many there are by now.
    pub(super) fn count(&self) -> usize {
        self.found.len() + self.further.len()
    }

    /// Adds those of another file, behind all that are there.
    pub(super) fn append(&mut self, other: Problems) {
        let Err(other) = other.none_or::<()>(None) else { return };
        self.further.extend(other.found);
    }

    /// Notes a problem at a place.
    pub(super) fn add(&mut self, at: Position, message: impl Into<String>, help: impl Into<String>) {
        self.push(Some(at), message.into(), help.into());
    }

    /// Notes a problem of the file as a whole.
    pub(super) fn add_whole(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.push(None, message.into(), help.into());
    }

    fn push(&mut self, position: Option<Position>, message: String, help: String) {
        self.found.push(Problem { file: self.file.clone(), position, message, help });
    }

    /// `value`, if nothing was found wrong.
    pub(super) fn none_or<T>(mut self, value: Option<T>) -> Result<T, Problems> {
        // A value behind an alias is read wherever the alias stands, but wrong in one place only.
        let mut seen = HashSet::new();
        self.found.retain(|problem| seen.insert((problem.position, problem.message.clone())));
        self.found.sort_by_key(|problem| problem.position);
        self.found.append(&mut self.further);
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// The problems in the order of the files.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.found.iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.found.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Help for a word that is not one of the `known`: the nearest one, or all of them. `kind` is their plural.
pub fn nearest_or_all(word: &str, known: &[&str], kind: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("known {kind}: {}", known.join(", ")),
    }
}

/// The known word that may have been meant.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let distances = known.map(|known| (strsim::osa_distance(&lower, &known.to_lowercase()), known));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (word.chars().count() / 3).clamp(1, 3)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_names_the_nearest_word_and_anything_else_names_all() {
        let known = ["timeout", "rate", "url"];
        for (word, help) in [
            ("tineout", "did you mean \"timeout\"?"),
            ("Timeout", "did you mean \"timeout\"?"),
            ("time_out", "did you mean \"timeout\"?"),
            ("uri", "did you mean \"url\"?"),
            ("rtae", "did you mean \"rate\"?"),
            ("x", "known keys: timeout, rate, url"),
            ("", "known keys: timeout, rate, url"),
            ("deadline", "known keys: timeout, rate, url"),
        ] {
            assert_eq!(nearest_or_all(word, &known, "keys"), help, "{word:?}");
        }
    }
}
