//! Reading typed values out of a document: sections with known keys, and the value of one key.
//!
//! Nothing here stops at a problem: it is noted, and the value counts as not given.

use std::{rc::Rc, time::Duration};

use super::{
    document::{Key, Node, Text, Value},
    problem::{Position, Problems, nearest_or_all},
    shape::Shape,
    value,
};
use crate::clock::written;

/// A mapping whose keys are checked.
#[derive(Clone, Copy)]
pub(super) struct Section<'n> {
    /// Where it begins.
    pub(super) at: Position,
    entries: &'n [(Key, Rc<Node>)],
    shape: &'static Shape,
}

/// The value of a key, or one item of it where the key takes a list.
#[derive(Clone, Copy)]
pub(super) struct Field<'n> {
    /// The key.
    pub(super) key: &'n str,
    /// Where the key stands.
    pub(super) key_at: Position,
    /// The value.
    pub(super) node: &'n Node,
}

impl<'n> Section<'n> {
    /// The value of a key.
    pub(super) fn get(&self, key: &'static str) -> Option<Field<'n>> {
        debug_assert!(self.shape.keys.contains(&key), "{key} is missing in the table of keys");
        let (key, node) = self.entries.iter().find(|(entry, _)| entry.text == key)?;
        Some(Field { key: &key.text, key_at: key.at, node })
    }

    /// The value of a key that must be given.
    pub(super) fn need(&self, key: &'static str, help: &str, problems: &mut Problems) -> Option<Field<'n>> {
        let field = self.get(key);
        if field.is_none() {
            problems.add(self.at, format!("\"{key}\" is missing {}", self.shape.place), help);
        }
        field
    }
}

impl<'n> Field<'n> {
    /// The document itself; `what` it is, for problems.
    pub(super) fn root(what: &'n str, node: &'n Node) -> Field<'n> {
        Field { key: what, key_at: node.at, node }
    }

    /// Where the value begins.
    pub(super) fn at(&self) -> Position {
        self.node.at
    }

    /// Notes that the value is not what is expected.
    pub(super) fn wrong(&self, expected: &str, help: &str, problems: &mut Problems) {
        if !matches!(self.node.value, Value::Broken) {
            let message = format!("expected {expected} for {:?}, found {}", self.key, self.shown());
            problems.add(self.at(), message, help);
        }
    }

    /// The value as a problem may show it.
    pub(super) fn shown(&self) -> String {
        match &self.node.value {
            Value::Broken | Value::Nothing => "nothing".to_owned(),
            Value::Text(text) => value::shown(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// Like `wrong`, where even a wrong value may be a secret.
    fn wrong_kind(&self, expected: &str, help: &str, problems: &mut Problems) {
        if let Value::Text(_) = &self.node.value {
            problems.add(self.at(), format!("expected {expected} for {:?}, found a text", self.key), help);
        } else {
            self.wrong(expected, help, problems);
        }
    }

    /// A mapping with the keys of this shape.
    pub(super) fn section(&self, shape: &'static Shape, problems: &mut Problems) -> Option<Section<'n>> {
        let entries = self.entries(&format!("use these keys: {}", shape.keys.join(", ")), problems)?;
        for (key, _) in entries {
            let name = key.text.as_str();
            if !shape.keys.contains(&name) {
                let help = match name {
                    "<<" => "merge keys are not supported: write the keys out".to_owned(),
                    _ => nearest_or_all(name, shape.keys, "keys"),
                };
                problems.add(key.at, format!("unknown key {} {}", value::quoted(name), shape.place), help);
            }
        }
        Some(Section { at: self.at(), entries, shape })
    }

    /// A mapping with any keys.
    pub(super) fn entries(&self, help: &str, problems: &mut Problems) -> Option<&'n [(Key, Rc<Node>)]> {
        match &self.node.value {
            Value::Map(entries) => Some(entries),
            _ => {
                self.wrong_kind("a mapping", help, problems);
                None
            }
        }
    }

    /// A list, each item as a value of the same key.
    pub(super) fn list(&self, problems: &mut Problems) -> Option<Vec<Field<'n>>> {
        match &self.node.value {
            Value::List(items) => Some(self.items(items)),
            _ => {
                self.wrong_kind("a list", "write each item behind a dash, or [] for none", problems);
                None
            }
        }
    }

    /// One value or a list of some.
    pub(super) fn one_or_more(&self, problems: &mut Problems) -> Vec<Field<'n>> {
        match &self.node.value {
            Value::List(items) if items.is_empty() => {
                self.empty_list(problems);
                Vec::new()
            }
            Value::List(items) => self.items(items),
            _ => vec![*self],
        }
    }

    /// Notes that an empty list makes no sense here.
    pub(super) fn empty_list(&self, problems: &mut Problems) {
        problems.add(self.at(), format!("the list {:?} is empty", self.key), "name at least one, or remove the key");
    }

    fn items(&self, items: &'n [Rc<Node>]) -> Vec<Field<'n>> {
        items.iter().map(|node| Field { node, ..*self }).collect()
    }

    /// A text that is not empty.
    pub(super) fn text(&self, problems: &mut Problems) -> Option<&'n str> {
        let text = self.any_text(problems)?;
        if text.is_empty() {
            problems.add(self.at(), format!("{:?} is empty", self.key), "give it a value, or remove the key");
            return None;
        }
        Some(text)
    }

    /// A text, perhaps an empty one. Numbers and the like are taken as they are written.
    pub(super) fn any_text(&self, problems: &mut Problems) -> Option<&'n str> {
        match &self.node.value {
            Value::Text(Text { value, .. }) => Some(value),
            _ => {
                self.wrong("a text", "write it as one text, in quotes if in doubt", problems);
                None
            }
        }
    }

    /// A text that `read` understands.
    pub(super) fn parsed<T>(
        &self,
        expected: &str,
        help: &str,
        problems: &mut Problems,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = match &self.node.value {
            Value::Text(text) => read(&text.value),
            _ => None,
        };
        if parsed.is_none() {
            self.wrong(expected, help, problems);
        }
        parsed
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, problems: &mut Problems) -> Option<bool> {
        self.parsed("true or false", "write true or false", problems, |text| match text {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        })
    }

    /// A whole number in a range, both ends included.
    pub(super) fn number(&self, min: u64, max: u64, problems: &mut Problems) -> Option<u64> {
        let expected = format!("a whole number from {min} to {max}");
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Of digits alone none can be read that are too many.
        let number = self.parsed(&expected, "write digits only", problems, |text| {
            digits(text).then(|| text.parse().unwrap_or(u64::MAX))
        })?;
        let (wrong, help) = match number {
            _ if number < min => ("small", format!("give at least {min}")),
            _ if number > max => ("large", format!("give at most {max}")),
            _ => return Some(number),
        };
        problems.add(self.at(), format!("{:?} is too {wrong}: {}", self.key, self.shown()), help);
        None
    }

    /// A number, perhaps with decimals, in a range, both ends included.
    pub(super) fn decimal(&self, min: u32, max: u32, problems: &mut Problems) -> Option<f64> {
        let expected = format!("a number from {min} to {max}");
        self.parsed(&expected, "write it like 2 or 1.5", problems, |text| {
            // Neither signs nor exponents, and no `inf`.
            let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            text.parse().ok().filter(|number| plain && (f64::from(min)..=f64::from(max)).contains(number))
        })
    }

    /// A duration in a range, both ends included.
    pub(super) fn duration(&self, min: Duration, max: Duration, problems: &mut Problems) -> Option<Duration> {
        let help = "write it like 500ms, 10s, 5m, 24h or 7d";
        let duration = self.parsed("a duration", help, problems, |text| humantime::parse_duration(text).ok())?;
        if duration < min || duration > max {
            let wrong = if duration < min { "short" } else { "long" };
            let message = format!("{:?} is too {wrong}: {}", self.key, self.shown());
            let mut help = format!("give {} to {}", written(min), written(max));
            if matches!(&self.node.value, Value::Text(text) if text.value.contains('M')) {
                help.push_str("; M is months, m is minutes");
            }
            problems.add(self.at(), message, help);
            return None;
        }
        Some(duration)
    }

    /// One of some words. `kind` is what they are, in the plural.
    pub(super) fn choice<T: Copy>(&self, kind: &str, words: &[(&str, T)], problems: &mut Problems) -> Option<T> {
        let Value::Text(text) = &self.node.value else {
            self.any_text(problems);
            return None;
        };
        let chosen = words.iter().find(|(word, _)| *word == text.value).map(|(_, value)| *value);
        if chosen.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("unknown value {} for {:?}", value::shown(text), self.key);
            problems.add(self.at(), message, nearest_or_all(&text.value, &known, kind));
        }
        chosen
    }
}
