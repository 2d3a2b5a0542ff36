//! Finds what `unless` names in vain: rules that are not there, and rules that leave it to each other.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use crate::config::problem::{Position, Problems, nearest_or_all};

/// An alert rule, and whom it leaves it to.
pub(super) struct Leaves {
    pub(super) rule: String,
    /// The number of its file.
    pub(super) file: usize,
    /// Names of rules, and where they stand.
    pub(super) unless: Vec<(String, Position)>,
}

/// Notes every name that no rule has. `names` are those of all rules.
pub(super) fn check_names(rules: &[Leaves], names: &[&str], files: &mut [Problems]) {
    for rule in rules {
        for (name, at) in rule.unless.iter().filter(|(name, _)| !names.contains(&name.as_str())) {
            let message = format!("\"unless\" names {name:?}, but there is no such alert rule");
            files[rule.file].add(*at, message, nearest_or_all(name, names, "alert rules"));
        }
    }
}

/// Notes every circle once, where the first of its rules enters it.
pub(super) fn check_circles(rules: &[Leaves], files: &mut [Problems]) {
    let numbers: HashMap<&str, usize> = rules.iter().enumerate().map(|(n, rule)| (rule.rule.as_str(), n)).collect();
    let mut told = vec![false; rules.len()];
    for first in 0..rules.len() {
        let Some(circle) = circle(rules, &numbers, first).filter(|_| !told[first]) else { continue };
        circle.iter().for_each(|&n| told[n] = true);
        let names: Vec<&str> = circle.iter().chain([&first]).map(|&n| rules[n].rule.as_str()).collect();
        let Some((_, at)) = rules[first].unless.iter().find(|(name, _)| name == names[1]) else { continue };
        let message = format!("\"unless\" goes round in a circle: {}", names.join(", "));
        files[rules[first].file].add(*at, message, "remove one of them, so that one of the rules tells in any case");
    }
}

/// The shortest way from this rule back to itself, without its end.
fn circle(rules: &[Leaves], numbers: &HashMap<&str, usize>, first: usize) -> Option<Vec<usize>> {
    let mut came_from: HashMap<usize, usize> = HashMap::new();
    let mut next = VecDeque::from([first]);
    while let Some(at) = next.pop_front() {
        for to in rules[at].unless.iter().filter_map(|(name, _)| numbers.get(name.as_str()).copied()) {
            if to == first {
                let mut way = vec![at];
                while let Some(before) = way.last().and_then(|n| came_from.get(n)) {
                    way.push(*before);
                }
                way.reverse();
                return Some(way);
            }
            if let Entry::Vacant(place) = came_from.entry(to) {
                place.insert(at);
                next.push_back(to);
            }
        }
    }
    None
}
