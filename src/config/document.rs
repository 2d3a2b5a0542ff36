//! A YAML document as a tree that knows where everything stands.
//!
//! Scalars stay texts: what type one is says the key that reads it, so that a password `12345` is a text. Variables are
//! expanded here, once, and their values are never looked at as YAML. Aliases share nodes instead of copying them.

use std::{collections::HashMap, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{
    env::{self, Env, Fault},
    problem::{Position, Problems},
};

/// How deep lists and mappings may stand in each other.
const MAX_DEPTH: usize = 32;
/// How many nodes a document may have with every alias written out. Bounds all later work on it.
const MAX_NODES: usize = 100_000;

/// One value.
#[derive(Debug)]
pub(super) struct Node {
    /// Where it begins.
    pub(super) at: Position,
    /// What it is.
    pub(super) value: Value,
    /// Nodes in it, itself included, aliases written out.
    size: usize,
}

impl Node {
    /// Whether nothing in it is broken.
    pub(super) fn is_whole(&self) -> bool {
        match &self.value {
            Value::Nothing | Value::Text(_) => true,
            Value::List(items) => items.iter().all(|item| item.is_whole()),
            Value::Map(entries) => entries.iter().all(|(_, node)| node.is_whole()),
            Value::Broken => false,
        }
    }
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Value {
    /// Written as nothing, `~` or `null`.
    Nothing,
    /// Any other scalar.
    Text(Text),
    /// A sequence.
    List(Vec<Rc<Node>>),
    /// A mapping; keys are unique.
    Map(Vec<(Key, Rc<Node>)>),
    /// Cannot be used; a problem says why.
    Broken,
}

/// A scalar's text.
#[derive(Debug)]
pub(super) struct Text {
    /// With variables expanded.
    pub(super) value: String,
    /// As it was written, if variables were expanded.
    pub(super) written: Option<String>,
}

/// A mapping's key; variables are not expanded in it.
#[derive(Debug)]
pub(super) struct Key {
    /// Where it stands.
    pub(super) at: Position,
    /// Its text.
    pub(super) text: String,
}

/// Reads a document. `None` if it is empty, or if it cannot be read and a problem says so.
///
/// With `only`, variables are needed under these keys of the root alone. A value elsewhere that lacks one is broken,
/// which is no problem unless an alias brings it back.
pub(super) fn parse(
    text: &str,
    env: &dyn Env,
    only: Option<&'static [&'static str]>,
    problems: &mut Problems,
) -> Option<Rc<Node>> {
    let mut builder =
        Builder { env, only, unneeded: Vec::new(), open: Vec::new(), anchors: HashMap::new(), root: None };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.event(event, position(&span), problems).ok()?,
            Err(error) => {
                let at = Position { line: error.marker().line(), column: error.marker().col() + 1 };
                let message = format!("this is not YAML: {}", error.info());
                // A star or an ampersand in front makes a value an alias or an anchor, whatever was meant.
                let is_alias = ["alias", "anchor"].iter().any(|word| error.info().contains(word));
                let help = match is_alias {
                    true => "put a value that begins with * or & in quotes, here or in the line above",
                    false => "check indentation, quotes and brackets here and in the line above",
                };
                problems.add(at, message, help);
                return None;
            }
        }
    }
    builder.root
}

fn position(span: &Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

/// Reading cannot go on; a problem says why.
struct GivenUp;

/// A list or mapping that is not closed yet.
struct Open {
    at: Position,
    anchor: usize,
    tagged: bool,
    items: Items,
    size: usize,
}

enum Items {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<(Key, Rc<Node>)>, next: NextInMap },
}

/// What comes next in a mapping.
enum NextInMap {
    Key,
    ValueOf(Key),
    /// The value of a key that is refused.
    Ignored,
}

struct Builder<'e> {
    env: &'e dyn Env,
    only: Option<&'static [&'static str]>,
    /// Faults in values that are not needed.
    unneeded: Vec<(Position, Fault)>,
    open: Vec<Open>,
    /// Finished nodes by the parser's number for their anchor, which begins at 1.
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, at: Position, problems: &mut Problems) -> Result<(), GivenUp> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                problems.add(at, "a second document begins here", "keep one document in the file");
                Err(GivenUp)
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Scalar(text, style, anchor, tag) => {
                if self.at_key() && tag.is_none() {
                    self.key(Key { at, text: text.into_owned() }, problems);
                    return Ok(());
                }
                let value = if refuse_tag(tag.is_some(), at, problems) {
                    Value::Broken
                } else {
                    self.scalar(&text, style, at, problems)
                };
                self.finished(Rc::new(Node { at, value, size: 1 }), anchor, problems)
            }
            Event::SequenceStart(anchor, tag) => self.begin(at, anchor, tag.is_some(), Items::List(vec![]), problems),
            Event::MappingStart(anchor, tag) => {
                let items = Items::Map { entries: Vec::new(), next: NextInMap::Key };
                self.begin(at, anchor, tag.is_some(), items, problems)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(problems),
            Event::Alias(anchor) => {
                if self.is_needed() {
                    for (at, fault) in self.unneeded.drain(..) {
                        note(fault, at, problems);
                    }
                }
                let node = self.anchors.get(&anchor).cloned().unwrap_or_else(|| {
                    problems.add(at, "this alias has no finished value to repeat", "write the value out");
                    Rc::new(Node { at, value: Value::Broken, size: 1 })
                });
                self.finished(node, 0, problems)
            }
        }
    }

    fn at_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { items: Items::Map { next: NextInMap::Key, .. }, .. }))
    }

    fn key(&mut self, key: Key, problems: &mut Problems) {
        if let Some(Open { items: Items::Map { entries, next }, .. }) = self.open.last_mut() {
            *next = match entries.iter().find(|(earlier, _)| earlier.text == key.text) {
                Some((earlier, _)) => {
                    let message = format!("the key {:?} is given twice, first in line {}", key.text, earlier.at.line);
                    problems.add(key.at, message, "keep one of them");
                    NextInMap::Ignored
                }
                None => NextInMap::ValueOf(key),
            };
        }
    }

    /// Whether what comes next stands in a part of the document that is asked for.
    fn is_needed(&self) -> bool {
        match self.open.first() {
            Some(Open { items: Items::Map { next: NextInMap::ValueOf(key), .. }, .. }) => {
                self.only.is_none_or(|only| only.contains(&&*key.text))
            }
            _ => true,
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: Position, problems: &mut Problems) -> Value {
        if style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            return Value::Nothing;
        }
        match env::expand(text, self.env) {
            Ok(value) => {
                let written = (value != text).then(|| text.to_owned());
                Value::Text(Text { value, written })
            }
            Err(faults) => {
                let needed = self.is_needed();
                for fault in faults {
                    if needed {
                        note(fault, at, problems);
                    } else {
                        self.unneeded.push((at, fault));
                    }
                }
                Value::Broken
            }
        }
    }

    fn begin(
        &mut self,
        at: Position,
        anchor: usize,
        tagged: bool,
        items: Items,
        problems: &mut Problems,
    ) -> Result<(), GivenUp> {
        refuse_tag(tagged, at, problems);
        if self.open.len() == MAX_DEPTH {
            problems.add(at, format!("more than {MAX_DEPTH} values stand in each other"), "nest less deeply");
            return Err(GivenUp);
        }
        self.open.push(Open { at, anchor, tagged, items, size: 1 });
        Ok(())
    }

    fn end(&mut self, problems: &mut Problems) -> Result<(), GivenUp> {
        let Some(Open { at, anchor, tagged, items, size }) = self.open.pop() else {
            return Ok(());
        };
        let value = match items {
            _ if tagged => Value::Broken,
            Items::List(items) => Value::List(items),
            Items::Map { entries, .. } => Value::Map(entries),
        };
        self.finished(Rc::new(Node { at, value, size }), anchor, problems)
    }

    /// Puts a finished node where it belongs.
    fn finished(&mut self, node: Rc<Node>, anchor: usize, problems: &mut Problems) -> Result<(), GivenUp> {
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        parent.size = parent.size.saturating_add(node.size);
        if parent.size > MAX_NODES {
            problems.add(
                node.at,
                format!("the file has more than {MAX_NODES} values with its aliases written out"),
                "repeat less with aliases",
            );
            return Err(GivenUp);
        }
        match &mut parent.items {
            Items::List(items) => items.push(node),
            Items::Map { entries, next } => {
                *next = match std::mem::replace(next, NextInMap::Key) {
                    NextInMap::Key => {
                        problems.add(node.at, "a key must be a plain text", "write the key itself here");
                        NextInMap::Ignored
                    }
                    NextInMap::ValueOf(key) => {
                        entries.push((key, node));
                        NextInMap::Key
                    }
                    NextInMap::Ignored => NextInMap::Key,
                };
            }
        }
        Ok(())
    }
}

fn note(fault: Fault, at: Position, problems: &mut Problems) {
    match fault {
        Fault::Unset(name) => problems.add(
            at,
            format!("the variable {name} is not set"),
            "set it in Sexton's environment, or write $${ where no variable is meant",
        ),
        Fault::Malformed => problems.add(
            at,
            "a ${ here is not followed by a variable's name and }",
            "write ${NAME} for a variable, or $${ where none is meant",
        ),
    }
}

fn refuse_tag(tagged: bool, at: Position, problems: &mut Problems) -> bool {
    if tagged {
        problems.add(at, "YAML tags (!name) are not supported", "remove the tag, or quote the text");
    }
    tagged
}
