//! What a script is called with: its text or digest, its keys, its arguments.

use std::collections::HashMap;

use redis::Cmd;

/// A Lua script and the digest that Redis knows it by.
#[derive(Debug)]
pub(in crate::smallage) struct Script {
    pub(super) text: &'static str,
    pub(super) digest: String,
}

impl Script {
    /// For a script's text.
    pub(in crate::smallage) fn new(text: &'static str) -> Script {
        Script { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(super) fn call(&self, command: &'static str, body: &str, keys: &[&str], args: &[Arg<'_>]) -> Cmd {
        let bytes = keys.iter().map(|key| key.len()).chain(args.iter().map(Arg::len)).sum::<usize>();
        let mut cmd = Cmd::with_capacity(3 + keys.len() + args.len(), bytes + body.len() + 32);
        cmd.arg(command).arg(body).arg(keys.len());
        for key in keys {
            cmd.arg(*key);
        }
        for arg in args {
            match arg {
                Arg::Text(text) => cmd.arg(*text),
                Arg::Int(number) => cmd.arg(*number),
            };
        }
        cmd
    }
}

/// The keys of a script's call, each once. Arguments name them by their numbers, from 1 as Lua counts.
#[derive(Debug, Default)]
pub(in crate::smallage) struct KeyList {
    keys: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl KeyList {
    /// With the keys that have a fixed number.
    pub(in crate::smallage) fn new(fixed: Vec<String>) -> KeyList {
        KeyList { keys: fixed, numbers: HashMap::new() }
    }

    /// The number of this key; it is added if it is not there yet.
    pub(in crate::smallage) fn number(&mut self, key: String) -> Arg<'static> {
        if let Some(number) = self.numbers.get(&key) {
            return Arg::Int(*number);
        }
        self.keys.push(key.clone());
        let number = i64::try_from(self.keys.len()).unwrap_or(i64::MAX);
        self.numbers.insert(key, number);
        Arg::Int(number)
    }

    /// Adds a key whose number follows from its place, whether it is there already or not.
    pub(in crate::smallage) fn push(&mut self, key: String) {
        self.keys.push(key);
    }

    /// All of them, in order.
    pub(in crate::smallage) fn as_strs(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }
}

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub(in crate::smallage) enum Arg<'a> {
    /// A text.
    Text(&'a str),
    /// A whole number.
    Int(i64),
}

impl Arg<'_> {
    /// A number that is never negative.
    pub(in crate::smallage) fn count(number: u64) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// A place in a list, or how many there are in one.
    pub(in crate::smallage) fn place(number: usize) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn len(&self) -> usize {
        match self {
            Arg::Text(text) => text.len(),
            Arg::Int(_) => 20,
        }
    }
}
