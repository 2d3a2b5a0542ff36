//! Finds rules that no letter ever comes to.

use crate::{
    config::problem::{Position, Problems},
    rule::RetryRule,
};

/// A rule, and where it was read.
pub(super) struct Read {
    pub(super) rule: RetryRule,
    /// The number of its file.
    pub(super) file: usize,
    pub(super) at: Position,
    /// Whether nothing is wrong with it. Of a rule with problems it is not known whom it concerns.
    pub(super) sound: bool,
}

/// Notes every rule that an earlier one leaves nothing to. `files` are the problems of each file.
pub(super) fn check(rules: &[Read], files: &mut [Problems]) {
    for (number, late) in rules.iter().enumerate().filter(|(_, rule)| rule.sound) {
        let takes_all = |early: &&Read| early.sound && early.rule.matcher.covers(&late.rule.matcher);
        let Some(early) = rules[..number].iter().find(takes_all) else { continue };
        let place = if early.file == late.file { String::new() } else { format!(" of {}", files[early.file].file()) };
        let message = format!(
            "the rule {:?} can never match: {:?} in line {}{place} takes all that it could",
            late.rule.name, early.rule.name, early.at.line
        );
        files[late.file].add(late.at, message, "put the narrower rule first, or remove one of them");
    }
}
