//! Whether one matcher takes everything that another one matches: then a rule behind it never gets a letter.

use regex::Regex;
use regex_syntax::hir::literal::Extractor;

use super::{Globs, Matcher};

impl Matcher {
    /// True only if this matches whatever `other` matches. Not found out for every pair: each condition is compared
    /// with its counterpart alone.
    pub fn covers(&self, other: &Matcher) -> bool {
        let globs = |wide: &Option<Globs>, narrow: &Option<Globs>| {
            wide.as_ref().is_none_or(|wide| narrow.as_ref().is_some_and(|narrow| wide.covers(narrow)))
        };
        let listed = |wide: &Option<Vec<String>>, narrow: &Option<Vec<String>>| {
            let all_in = |wide: &Vec<String>, narrow: &Vec<String>| narrow.iter().all(|name| wide.contains(name));
            wide.as_ref().is_none_or(|wide| narrow.as_ref().is_some_and(|narrow| all_in(wide, narrow)))
        };
        globs(&self.source, &other.source)
            && globs(&self.queue, &other.queue)
            && globs(&self.task, &other.task)
            && listed(&self.reason, &other.reason)
            && listed(&self.group, &other.group)
            && self.history.as_ref().is_none_or(|history| other.history.as_ref() == Some(history))
            && self.error.as_ref().is_none_or(|wide| error_covers(wide, other.error.as_ref()))
    }
}

/// Whether every text in which `narrow` finds something is one in which `wide` does.
fn error_covers(wide: &Regex, narrow: Option<&Regex>) -> bool {
    if narrow.is_some_and(|narrow| narrow.as_str() == wide.as_str()) {
        return true;
    }
    // Without assertions such as ^ and \b, what is found in a text is found in every text around it.
    let finds_anywhere = |regex: &Regex| {
        regex_syntax::parse(regex.as_str()).is_ok_and(|parsed| parsed.properties().look_set().is_empty())
    };
    if !finds_anywhere(wide) {
        return false;
    }
    match narrow {
        None => wide.is_match(""),
        // Every find of `narrow` begins with one of these, if they can be listed.
        Some(narrow) => regex_syntax::parse(narrow.as_str()).is_ok_and(|parsed| {
            let beginnings = Extractor::new().extract(&parsed);
            beginnings.literals().is_some_and(|literals| {
                literals
                    .iter()
                    .all(|literal| std::str::from_utf8(literal.as_bytes()).is_ok_and(|text| wide.is_match(text)))
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn globs(written: &[&str]) -> Option<Globs> {
        let globs: Vec<_> = written.iter().map(|glob| globset::Glob::new(glob).unwrap()).collect();
        Some(Globs::new(&globs).unwrap())
    }

    fn list(items: &[&str]) -> Option<Vec<String>> {
        Some(items.iter().map(|&item| item.to_owned()).collect())
    }

    fn regex(pattern: &str) -> Option<Regex> {
        Some(Regex::new(pattern).unwrap())
    }

    #[test]
    fn a_matcher_covers_another_if_each_condition_does() {
        let any = Matcher::default;
        let same = || Matcher { history: Some("same".to_owned()), ..any() };
        for (name, wide, narrow, covers) in [
            ("nothing asked", any(), same(), true),
            ("nothing asked of either", any(), any(), true),
            ("more asked than of the other", same(), any(), false),
            ("the same asked", same(), same(), true),
            ("another history", same(), Matcher { history: Some("mixed".to_owned()), ..any() }, false),
            ("source", Matcher { source: globs(&["o*"]), ..any() }, Matcher { source: globs(&["or"]), ..any() }, true),
            ("queue", Matcher { queue: globs(&["a"]), ..any() }, Matcher { queue: globs(&["a", "b"]), ..any() }, false),
            (
                "all but one",
                Matcher { task: globs(&["a*"]), queue: globs(&["x"]), ..any() },
                Matcher { task: globs(&["ab"]), ..any() },
                false,
            ),
            (
                "some of the reasons",
                Matcher { reason: list(&["max_attempts", "unknown_task"]), ..any() },
                Matcher { reason: list(&["unknown_task"]), history: Some("same".to_owned()), ..any() },
                true,
            ),
            (
                "more reasons",
                Matcher { reason: list(&["unknown_task"]), ..any() },
                Matcher { reason: list(&["max_attempts", "unknown_task"]), ..any() },
                false,
            ),
            ("groups", Matcher { group: list(&["a"]), ..any() }, Matcher { group: list(&["a"]), ..any() }, true),
            ("a group and all", Matcher { group: list(&["a"]), ..any() }, any(), false),
            ("error and none", Matcher { error: regex("a"), ..any() }, any(), false),
            ("any error and none", Matcher { error: regex(".*"), ..any() }, any(), true),
        ] {
            assert_eq!(wide.covers(&narrow), covers, "{name}");
        }
    }

    #[test]
    fn expressions_cover_others_where_that_can_be_told() {
        for (wide, narrow, covers) in [
            ("^a$", "^a$", true),
            ("", "anything", true),
            ("timed? ?out|reset", "timeout", true),
            ("timed? ?out|reset", "timed out|connection reset by", true),
            ("timed? ?out|reset", "timed out|refused", false),
            ("(?i)reset", "Connection (Reset|reset)", true),
            ("reset", "(?i)reset", false),
            ("out$", "timeout", false),
            ("out", "timeout$", true),
            (r"\b503\b", "503", false),
            ("a", "[a-z]", false),
            ("a", "a+b*", true),
            ("a", ".a", false),
        ] {
            let covered = error_covers(&Regex::new(wide).unwrap(), regex(narrow).as_ref());
            assert_eq!(covered, covers, "{wide} covers {narrow}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn what_is_said_to_be_covered_is(
            wide in r"(\(\?i\))?([abB]|a\?|\(a\|b\)|\[ab\]|\.|\^|\$){0,3}",
            narrow in r"(\(\?i\))?([abB]|a\?|\(a\|b\)|\[ab\]|\.|\^|\$){0,3}",
            text in "[abBé]{0,5}",
        ) {
            let (wide, narrow) = (Regex::new(&wide).unwrap(), Regex::new(&narrow).unwrap());
            let covered = error_covers(&wide, Some(&narrow)) && narrow.is_match(&text);
            prop_assert!(!covered || wide.is_match(&text));
        }
    }
}
