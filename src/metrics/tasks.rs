//! Keeps a label bounded: the first names of a source keep their own label, the rest is `other`.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

/// Names with a label of their own, per source.
const KEPT: usize = 200;
/// Characters of a name that a label shows.
const LABEL_CHARS: usize = 100;

/// The names seen so far.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    seen: Mutex<HashMap<String, HashSet<String>>>,
}

impl KnownNames {
    /// The label for a name: itself, shortened, or `other` once too many are known.
    pub(super) fn label(&self, source: &str, name: &str) -> String {
        let label: String = name.chars().take(LABEL_CHARS).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains_key(source) {
            seen.insert(source.to_owned(), HashSet::new());
        }
        let names = seen.get_mut(source).expect("inserted above");
        if names.contains(&label) {
            return label;
        }
        if names.len() >= KEPT {
            return "other".to_owned();
        }
        names.insert(label.clone());
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_past_the_limit_share_one_label_per_source() {
        let names = KnownNames::default();
        for n in 0..KEPT {
            assert_eq!(names.label("a", &format!("task{n}")), format!("task{n}"));
        }
        assert_eq!(names.label("a", "one too many"), "other");
        assert_eq!(names.label("a", "task7"), "task7");
        assert_eq!(names.label("b", "one too many"), "one too many");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(KnownNames::default().label("a", &"é".repeat(5_000)), "é".repeat(LABEL_CHARS));
    }
}
