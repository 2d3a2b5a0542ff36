//! Values that stand in the configuration or in a file of their own: secrets, and URLs that carry them.
//!
//! A file is read here only to find out now what would go wrong later; what is kept is its path.

use std::path::PathBuf;

use super::{
    Secret, SecretSource,
    document::Value,
    field::{Field, Section},
    file::{LARGEST_PEM, read_file},
    problem::Problems,
};

/// What reading a configuration needs everywhere.
pub(super) struct Reading {
    /// The folder that relative paths begin in.
    pub(super) folder: PathBuf,
    /// What was found so far.
    pub(super) problems: Problems,
}

/// A value, where it was given and what it is now.
pub(super) struct Origin<'n> {
    pub(super) field: Field<'n>,
    pub(super) source: SecretSource,
    pub(super) now: Secret,
}

/// The value of `key`, or of the file that `file_key` names.
pub(super) fn one<'n>(
    section: &Section<'n>,
    key: &'static str,
    file_key: &'static str,
    reading: &mut Reading,
) -> Option<Origin<'n>> {
    match pick(section, key, file_key, reading)? {
        Given::Inline(field) => inline(field, reading),
        Given::File(field) => file(field, reading),
    }
}

/// Like `one`, for keys that take a list as well.
pub(super) fn several<'n>(
    section: &Section<'n>,
    key: &'static str,
    file_key: &'static str,
    reading: &mut Reading,
) -> Vec<Origin<'n>> {
    match pick(section, key, file_key, reading) {
        None => Vec::new(),
        Some(Given::Inline(field)) => {
            let fields = field.one_or_more(&mut reading.problems);
            fields.into_iter().filter_map(|field| inline(field, reading)).collect()
        }
        Some(Given::File(field)) => {
            let fields = field.one_or_more(&mut reading.problems);
            fields.into_iter().filter_map(|field| file(field, reading)).collect()
        }
    }
}

/// The path of a file that can be read.
pub(super) fn readable(field: Field<'_>, reading: &mut Reading) -> Option<PathBuf> {
    let path = reading.folder.join(field.text(&mut reading.problems)?);
    match read_file(&path, LARGEST_PEM) {
        Ok(_) => Some(path),
        Err(reason) => {
            unreadable(field, &reason, reading);
            None
        }
    }
}

enum Given<'n> {
    Inline(Field<'n>),
    File(Field<'n>),
}

fn pick<'n>(
    section: &Section<'n>,
    key: &'static str,
    file_key: &'static str,
    reading: &mut Reading,
) -> Option<Given<'n>> {
    match (section.get(key), section.get(file_key)) {
        (Some(_), Some(file)) => {
            reading.problems.add(file.key_at, format!("both {key:?} and {file_key:?} are given"), "keep one of them");
            None
        }
        (Some(field), None) => Some(Given::Inline(field)),
        (None, Some(field)) => Some(Given::File(field)),
        (None, None) => None,
    }
}

fn inline<'n>(field: Field<'n>, reading: &mut Reading) -> Option<Origin<'n>> {
    let now = Secret::new(field.text(&mut reading.problems)?);
    Some(Origin { field, source: SecretSource::Inline(now.clone()), now })
}

fn file<'n>(field: Field<'n>, reading: &mut Reading) -> Option<Origin<'n>> {
    let path = reading.folder.join(field.text(&mut reading.problems)?);
    let source = SecretSource::File(path);
    match source.read() {
        Ok(now) if now.reveal().is_empty() => {
            let message = format!("the file of {:?} is empty", field.key);
            reading.problems.add(field.at(), message, "put the value into it");
            None
        }
        Ok(now) => Some(Origin { field, source, now }),
        Err(error) => {
            unreadable(field, &error.reason, reading);
            None
        }
    }
}

fn unreadable(field: Field<'_>, reason: &std::io::Error, reading: &mut Reading) {
    let message = format!("cannot read {} for {:?}: {reason}", shown_path(field), field.key);
    let folder = match reading.folder.to_str() {
        Some("") | None => "the working directory".to_owned(),
        Some(folder) => folder.to_owned(),
    };
    reading.problems.add(field.at(), message, format!("check path and permissions; relative paths begin in {folder}"));
}

/// The path as it was written, unless it looks like the secret itself, put where its file belongs.
fn shown_path(field: Field<'_>) -> String {
    match &field.node.value {
        Value::Text(text) if !text.value.contains("://") && !text.value.starts_with("whsec_") => {
            format!("{:?}", text.written.as_ref().unwrap_or(&text.value))
        }
        _ => "the file".to_owned(),
    }
}
