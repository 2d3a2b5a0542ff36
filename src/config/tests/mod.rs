//! Configurations as a whole; what the tests share, and what must hold for any text.

mod digest;
mod problems;
mod reference;
mod values;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

fn env() -> BTreeMap<String, String> {
    [("PASSWORD", "hun#ter: 2"), ("SECRET", SECRET), ("EMPTY", ""), ("FLAG", "true"), ("WORD", "hunter2")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn problems(text: &str) -> Vec<String> {
    match read_text("sexton.yaml", text, &env()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Checks that each text, put in its place, has exactly the one problem beside it; tells of all that have not.
fn check(place: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (text, expected) in cases {
        let expected = format!("sexton.yaml:{expected}");
        let found = problems(&place(text)).join("\n");
        if found != expected {
            wrong.push_str(&format!("{text}\n  expected {expected}\n  found    {found}\n\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn config(text: &str) -> Config {
    read_text("sexton.yaml", text, &env()).unwrap_or_else(|problems| panic!("{problems}\nin\n{text}"))
}

/// A configuration with one source, in its first line.
fn with_source(rest: &str) -> String {
    format!("sources: [{{ name: orders, smallage: {{ url: \"redis://db\" }} }}]\n{rest}")
}

/// A configuration with two hooks; the keys given are the second one's and begin in line 6.
fn with_hook(keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    with_source(&format!("hooks:\n  - {{ name: first, url: \"http://h\" }}\n  - name: a\n    url: http://h/in\n{keys}"))
}

/// The second hook of `with_hook`.
fn hook(keys: &str) -> HookConfig {
    config(&with_hook(keys)).hooks.pop().unwrap()
}

fn smallage(config: &Config, index: usize) -> &SmallageConfig {
    let SourceKind::Smallage(smallage) = &config.sources[index].kind;
    smallage
}

fn inline(text: &str) -> SecretSource {
    SecretSource::Inline(Secret::new(text))
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "(\\PC|\n|\t){0,80}") {
        let _ = read_text("x", &text, &env());
    }

    #[test]
    fn no_yaml_makes_reading_panic(text in "([a-c]|\\$\\{|[ \n\t:,&*!|>'\"{}?#%@~-]|\\[|\\]|sources: |hooks: |- |&a |\\*a ){0,60}") {
        let _ = read_text("x", &text, &env());
    }

    #[test]
    fn no_damage_to_the_reference_makes_reading_panic(at in 0..REFERENCE.len(), length in 0_usize..200, put in "\\PC{0,3}") {
        let mut text = REFERENCE.as_bytes().to_vec();
        let end = (at + length).min(text.len());
        text.splice(at..end, put.into_bytes());
        let _ = read_text("x", &String::from_utf8_lossy(&text), &env());
    }
}
