//! What rules say, as a fingerprint: how two versions of them differ, however they are written.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::{Action, Globs, Matcher, RetryRule, Rules, Terms};
use crate::letter::hex;

/// How rules differ from those before: names of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Not there before.
    pub added: Vec<String>,
    /// Saying something else.
    pub changed: Vec<String>,
    /// No longer there.
    pub removed: Vec<String>,
    /// Those that were there before stand in another order.
    pub reordered: bool,
}

impl Changes {
    /// How rules differ from those before, each given by its name and a digest of what it says.
    pub(crate) fn between(before: &[(&str, [u8; 32])], after: &[(&str, [u8; 32])]) -> Changes {
        let names = |rules: &[(&str, [u8; 32])]| rules.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        let said: HashMap<&str, [u8; 32]> = before.iter().copied().collect();
        let says: HashMap<&str, [u8; 32]> = after.iter().copied().collect();
        let (kept, added): (Vec<_>, Vec<_>) = after.iter().partition(|(name, _)| said.contains_key(name));
        let (still, removed): (Vec<_>, Vec<_>) = before.iter().partition(|(name, _)| says.contains_key(name));
        let changed: Vec<_> = kept.iter().copied().filter(|(name, digest)| said[name] != *digest).collect();
        Changes {
            reordered: names(&kept) != names(&still),
            added: names(&added),
            changed: names(&changed),
            removed: names(&removed),
        }
    }

    /// Whether they say what they said before.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Rules {
    /// These retry rules, in this order, with their fingerprint.
    pub fn new(retry: Vec<RetryRule>) -> Rules {
        let mut fingerprint = String::new();
        if !retry.is_empty() {
            let mut hash = Sha256::new();
            retry.iter().for_each(|rule| hash.update(rule.says()));
            fingerprint = hex(&hash.finalize()[..8]);
        }
        Rules { retry, fingerprint }
    }

    /// How these rules differ from `before`.
    pub fn changes_from(&self, before: &Rules) -> Changes {
        fn digests(rules: &Rules) -> Vec<(&str, [u8; 32])> {
            rules.retry.iter().map(|rule| (&*rule.name, rule.says())).collect()
        }
        Changes::between(&digests(before), &digests(self))
    }
}

impl RetryRule {
    /// A digest of everything the rule says. Made of values, so layout, comments, and other ways to write the same do
    /// not count.
    fn says(&self) -> [u8; 32] {
        let mut says = Says::default();
        says.text(&self.name);
        says.matcher(&self.matcher);
        match &self.action {
            Action::Leave => says.text("leave"),
            Action::Retry(terms) => {
                says.text("retry");
                says.terms(terms);
            }
        }
        says.digest()
    }
}

/// What a rule says, value by value. Each is preceded by its length or number, so that no two rules say the same by
/// accident.
#[derive(Default)]
pub(crate) struct Says(Sha256);

impl Says {
    /// A digest of all that was said.
    pub(crate) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    pub(crate) fn number(&mut self, number: u128) {
        self.0.update(number.to_be_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u128);
        self.0.update(text);
    }

    /// Whether there is a value.
    fn given<T>(&mut self, value: Option<T>) -> Option<T> {
        self.0.update([u8::from(value.is_some())]);
        value
    }

    /// A list whose order says nothing.
    pub(crate) fn list(&mut self, list: Option<&[String]>) {
        let Some(list) = self.given(list) else { return };
        let mut sorted: Vec<&String> = list.iter().collect();
        sorted.sort();
        sorted.dedup();
        self.number(sorted.len() as u128);
        for item in sorted {
            self.text(item);
        }
    }

    pub(crate) fn matcher(&mut self, matcher: &Matcher) {
        // Named one by one, so that a new condition cannot be forgotten here.
        let Matcher { source, queue, task, reason, error, history, group } = matcher;
        for globs in [source, queue, task] {
            self.list(globs.as_ref().map(Globs::written));
        }
        self.list(reason.as_deref());
        if let Some(error) = self.given(error.as_ref()) {
            self.text(error.as_str());
        }
        if let Some(history) = self.given(history.as_ref()) {
            self.text(history);
        }
        self.list(group.as_deref());
    }

    fn terms(&mut self, terms: &Terms) {
        let Terms { min_age, max_retries, backoff, max_backoff, confirm_within, window, pace } = terms;
        for duration in [min_age, max_backoff, confirm_within] {
            self.number(duration.as_nanos());
        }
        self.number(u128::from(*max_retries));
        self.number(u128::from(backoff.to_bits()));
        if let Some(window) = self.given(window.as_ref()) {
            self.text(&window.says());
        }
        for limit in [pace.start, pace.max_in_flight, pace.per_second] {
            self.number(u128::from(limit));
        }
        self.number(u128::from(pace.max_queue_length));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use regex::Regex;

    use super::*;
    use crate::rule::{Window, Zone};

    fn globs(written: &[&str]) -> Option<Globs> {
        Some(Globs::new(&written.iter().map(|glob| globset::Glob::new(glob).unwrap()).collect::<Vec<_>>()).unwrap())
    }

    fn list(items: &[&str]) -> Option<Vec<String>> {
        Some(items.iter().map(|&item| item.to_owned()).collect())
    }

    fn window(written: &str, zone: &str) -> Option<Window> {
        Some(Window::parse(written, Zone::named(zone).unwrap()).unwrap())
    }

    fn leave(name: &str, matcher: Matcher) -> RetryRule {
        RetryRule { name: name.to_owned(), matcher, action: Action::Leave }
    }

    fn retry(terms: Terms) -> RetryRule {
        RetryRule { action: Action::Retry(Box::new(terms)), ..leave("r", Matcher::default()) }
    }

    #[test]
    fn whatever_a_rule_says_has_a_fingerprint_of_its_own() {
        let any = Matcher::default;
        let terms = Terms::default;
        let pace = terms().pace;
        let rules = [
            leave("r", any()),
            leave("s", any()),
            leave("r", Matcher { source: globs(&["a"]), ..any() }),
            leave("r", Matcher { queue: globs(&["a"]), ..any() }),
            leave("r", Matcher { task: globs(&["a"]), ..any() }),
            leave("r", Matcher { task: globs(&["a", "b"]), ..any() }),
            leave("r", Matcher { task: globs(&["ab"]), ..any() }),
            leave("r", Matcher { reason: list(&["a"]), ..any() }),
            leave("r", Matcher { group: list(&["a"]), ..any() }),
            leave("r", Matcher { error: Some(Regex::new("a").unwrap()), ..any() }),
            leave("r", Matcher { history: Some("a".to_owned()), ..any() }),
            retry(terms()),
            retry(Terms { min_age: Duration::from_secs(1), ..terms() }),
            retry(Terms { max_backoff: Duration::from_secs(1), ..terms() }),
            retry(Terms { confirm_within: Duration::from_secs(1), ..terms() }),
            retry(Terms { max_retries: 7, ..terms() }),
            retry(Terms { backoff: 2.5, ..terms() }),
            retry(Terms { window: window("* 8 * * *", "UTC"), ..terms() }),
            retry(Terms { window: window("* 8 * * *", "Europe/Berlin"), ..terms() }),
            retry(Terms { window: window("* 9 * * *", "UTC"), ..terms() }),
            retry(Terms { pace: super::super::Pace { start: 7, ..pace }, ..terms() }),
            retry(Terms { pace: super::super::Pace { max_in_flight: 7, ..pace }, ..terms() }),
            retry(Terms { pace: super::super::Pace { per_second: 7, ..pace }, ..terms() }),
            retry(Terms { pace: super::super::Pace { max_queue_length: 7, ..pace }, ..terms() }),
        ];
        let fingerprints = rules.map(|rule| Rules::new(vec![rule]).fingerprint);
        for (n, fingerprint) in fingerprints.iter().enumerate() {
            assert_eq!(fingerprint.len(), 16);
            assert_eq!(
                fingerprints.iter().position(|other| other == fingerprint),
                Some(n),
                "{n} is like an earlier one"
            );
        }
    }

    #[test]
    fn what_says_the_same_has_the_same_fingerprint_and_nothing_has_none() {
        let of = |rules: Vec<RetryRule>| Rules::new(rules).fingerprint;
        assert_eq!(of(vec![]), "");
        assert_eq!(
            of(vec![leave(
                "r",
                Matcher { task: globs(&["b", "a", "b"]), reason: list(&["y", "x"]), ..Matcher::default() }
            )]),
            of(vec![leave("r", Matcher { task: globs(&["a", "b"]), reason: list(&["x", "y"]), ..Matcher::default() })])
        );
        assert_eq!(
            of(vec![retry(Terms { window: window("* 8-9 * * 1-5", "UTC"), ..Terms::default() })]),
            of(vec![retry(Terms { window: window("* * 8,9 ? * Mon-Fri", "UTC"), ..Terms::default() })])
        );
        let (a, b) = (leave("a", Matcher::default()), leave("b", Matcher::default()));
        assert_ne!(of(vec![a.clone(), b.clone()]), of(vec![b, a]));
    }

    #[test]
    fn changes_are_told_by_name() {
        let rule = |name: &str| leave(name, Matcher::default());
        let rules = |rules: &[&str]| Rules::new(rules.iter().map(|name| rule(name)).collect());
        let changes = |added: &[&str], changed: &[&str], removed: &[&str], reordered| {
            let names = |names: &[&str]| list(names).unwrap();
            Changes { added: names(added), changed: names(changed), removed: names(removed), reordered }
        };
        let before = rules(&["a", "b", "c"]);
        assert_eq!(before.changes_from(&before), Changes::default());
        assert_eq!(rules(&["a", "x", "c"]).changes_from(&before), changes(&["x"], &[], &["b"], false));
        assert_eq!(rules(&["c", "a", "b"]).changes_from(&before), changes(&[], &[], &[], true));
        assert_eq!(rules(&[]).changes_from(&before), changes(&[], &[], &["a", "b", "c"], false));
        let mut after = rules(&["a", "b", "c"]);
        after.retry[1].matcher.history = Some("same".to_owned());
        assert_eq!(after.changes_from(&before), changes(&[], &["b"], &[], false));
    }
}
