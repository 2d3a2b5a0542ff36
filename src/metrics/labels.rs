//! Keeps labels bounded: the first tasks of a source, and the first pairs of queue and task, keep their own labels; the
//! rest is `other`.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

/// Tasks with a label of their own, per source.
const TASKS: usize = 200;
/// Pairs of queue and task with labels of their own, per source.
const PAIRS: usize = 400;
/// Characters of a name that a label shows.
const LABEL_CHARS: usize = 100;
/// The label of everything beyond.
const OTHER: &str = "other";

/// The labels given so far.
#[derive(Debug, Default)]
pub(super) struct Labels {
    sources: Mutex<HashMap<String, Given>>,
}

#[derive(Debug, Default)]
struct Given {
    tasks: HashSet<String>,
    pairs: HashSet<(String, String)>,
}

impl Labels {
    /// The labels of a queue and a task: their names, shortened, or `other`.
    pub(super) fn of(&self, source: &str, queue: &str, task: &str) -> (String, String) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let given = sources.entry(source.to_owned()).or_default();
        let task = shortened(task);
        let task = if given.tasks.contains(&task) || given.tasks.len() < TASKS { task } else { OTHER.to_owned() };
        let pair = (shortened(queue), task);
        if !given.pairs.contains(&pair) {
            if given.pairs.len() >= PAIRS {
                return (OTHER.to_owned(), OTHER.to_owned());
            }
            given.tasks.insert(pair.1.clone());
            given.pairs.insert(pair.clone());
        }
        pair
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(LABEL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(queue: &str, task: &str) -> (String, String) {
        (queue.to_owned(), task.to_owned())
    }

    #[test]
    fn tasks_past_the_limit_share_one_label_per_source() {
        let labels = Labels::default();
        for n in 0..TASKS {
            assert_eq!(labels.of("a", "q", &format!("task{n}")), pair("q", &format!("task{n}")));
        }
        assert_eq!(labels.of("a", "q", "one too many"), pair("q", "other"));
        assert_eq!(labels.of("a", "q", "task7"), pair("q", "task7"));
        assert_eq!(labels.of("b", "q", "one too many"), pair("q", "one too many"));
    }

    #[test]
    fn however_many_queues_there_are_the_pairs_stay_few() {
        let labels = Labels::default();
        let mut seen = HashSet::new();
        for n in 0..5_000 {
            seen.insert(labels.of("a", &format!("queue{}", n % 700), &format!("task{}", n % 900)));
        }
        assert!(seen.len() <= PAIRS + 1, "{}", seen.len());
        assert!(seen.contains(&pair("other", "other")));
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let labels = Labels::default();
        assert_eq!(labels.of("a", "q", &"é".repeat(5_000)), pair("q", &"é".repeat(LABEL_CHARS)));
    }
}
