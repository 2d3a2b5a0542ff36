//! Environment variables: where they come from, and how `${NAME}` in a value is replaced.
//!
//! Nothing else in the program asks the environment for a variable of the configuration.

use std::collections::{BTreeMap, HashMap};

/// Where `${NAME}` finds its value.
pub trait Env {
    /// The variable's value; none if it is not set, or is not UTF-8.
    fn var(&self, name: &str) -> Option<String>;
}

/// The variables of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Env for HashMap<String, String> {
    fn var(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

impl Env for BTreeMap<String, String> {
    fn var(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

/// Why a value cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This variable is not set.
    Unset(String),
    /// A `${` is not followed by a name and `}`.
    Malformed,
}

/// Replaces every `${NAME}` by the variable's value, which is not looked at again, and `$$` by `$`. A `$` before
/// anything else stays, so that most regular expressions need no care.
pub(super) fn expand(text: &str, env: &dyn Env) -> Result<String, Vec<Fault>> {
    let mut expanded = String::with_capacity(text.len());
    let mut faults = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            match after.split_once('}') {
                Some((name, after)) if is_name(name) => {
                    match env.var(name) {
                        Some(value) => expanded.push_str(&value),
                        None => faults.push(Fault::Unset(name.to_owned())),
                    }
                    rest = after;
                }
                _ => {
                    faults.push(Fault::Malformed);
                    rest = after;
                }
            }
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    if faults.is_empty() { Ok(expanded) } else { Err(faults) }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env() -> BTreeMap<String, String> {
        BTreeMap::from([("A".into(), "one".into()), ("_B2".into(), "${A}$$".into()), ("EMPTY".into(), String::new())])
    }

    #[test]
    fn variables_are_replaced_once_and_dollars_can_be_written() {
        for (text, expanded) in [
            ("", ""),
            ("plain", "plain"),
            ("${A}", "one"),
            ("x${A}y${A}z", "xoneyonez"),
            ("${_B2}", "${A}$$"),
            ("${EMPTY}", ""),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$$$${A}", "$${A}"),
            ("$$${A}", "$one"),
            (r"^a+$", r"^a+$"),
            ("(a|b$)$", "(a|b$)$"),
            ("$A", "$A"),
            ("ü${A}ü", "üoneü"),
        ] {
            assert_eq!(expand(text, &env()).as_deref(), Ok(expanded), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_expanded_is_told_in_full() {
        let unset = |name: &str| Fault::Unset(name.to_owned());
        for (text, faults) in [
            ("${NO}", vec![unset("NO")]),
            ("${NO} ${A} ${NEITHER}", vec![unset("NO"), unset("NEITHER")]),
            ("${", vec![Fault::Malformed]),
            ("${A", vec![Fault::Malformed]),
            ("${}", vec![Fault::Malformed]),
            ("${A:-x}", vec![Fault::Malformed]),
            ("${1A}", vec![Fault::Malformed]),
            ("${A-${NO}", vec![Fault::Malformed, unset("NO")]),
        ] {
            assert_eq!(expand(text, &env()), Err(faults), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_with_its_dollars_doubled(text in "\\PC*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), &env()), Ok(text));
        }
    }
}
