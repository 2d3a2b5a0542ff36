//! How two versions of the alert rules differ in what they say, however they are written.

use super::{AlertRule, Burst, Kind, NewGroup, Rising, Waiting};
use crate::rule::{Changes, Says};

impl AlertRule {
    /// How these rules differ from those `before`. Each is judged by itself, so their order says nothing.
    pub fn changes(before: &[AlertRule], after: &[AlertRule]) -> Changes {
        fn digests(rules: &[AlertRule]) -> Vec<(&str, [u8; 32])> {
            rules.iter().map(|rule| (&*rule.name, rule.says())).collect()
        }
        Changes { reordered: false, ..Changes::between(&digests(before), &digests(after)) }
    }

    /// A digest of everything the rule says.
    fn says(&self) -> [u8; 32] {
        // Named one by one, so that a new field cannot be forgotten here.
        let AlertRule { name, kind, by, matcher, severity, for_, keep_firing_for, repeat, hooks, unless } = self;
        let mut says = Says::default();
        says.text(name);
        match kind {
            Kind::Rising(Rising { over, buckets, at_least, growth }) => {
                says.text("rising");
                says.number(over.as_nanos());
                for number in [u64::from(*buckets), u64::from(*at_least), *growth] {
                    says.number(number.into());
                }
            }
            Kind::Burst(Burst { over, deaths }) => {
                says.text("burst");
                says.number(over.as_nanos());
                says.number(u128::from(*deaths));
            }
            Kind::Waiting(Waiting { entries, older_than }) => {
                says.text("waiting");
                says.number(u128::from(*entries));
                says.number(older_than.as_nanos());
            }
            Kind::NewGroup(NewGroup { quiet_for }) => {
                says.text("new_group");
                says.number(quiet_for.as_nanos());
            }
        }
        says.list(Some(&by.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>()));
        says.matcher(matcher);
        says.text(severity.as_str());
        for duration in [for_, keep_firing_for, repeat] {
            says.number(duration.as_nanos());
        }
        says.list(hooks.as_deref());
        says.list(Some(unless));
        says.digest()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        alert::{Key, Severity},
        rule::Matcher,
    };

    fn rule() -> AlertRule {
        AlertRule::new("r", Kind::Rising(Rising::default()))
    }

    fn changes(added: &[&str], changed: &[&str], removed: &[&str]) -> Changes {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Changes { added: names(added), changed: names(changed), removed: names(removed), reordered: false }
    }

    #[test]
    fn whatever_a_rule_says_is_a_change() {
        let (short, names) = (Duration::from_secs(1), || vec!["a".to_owned()]);
        let of = |kind| AlertRule { kind, ..rule() };
        let rising = |change: &dyn Fn(&mut Rising)| {
            let mut rising = Rising::default();
            change(&mut rising);
            of(Kind::Rising(rising))
        };
        let matcher = Matcher { history: Some("same".to_owned()), ..Matcher::default() };
        let rules = [
            rule(),
            rising(&|rising| rising.over = short),
            rising(&|rising| rising.buckets = 7),
            rising(&|rising| rising.at_least = 7),
            rising(&|rising| rising.growth = 7),
            of(Kind::Burst(Burst::default())),
            of(Kind::Burst(Burst { over: short, ..Burst::default() })),
            of(Kind::Burst(Burst { deaths: 7, ..Burst::default() })),
            of(Kind::Waiting(Waiting::default())),
            of(Kind::Waiting(Waiting { entries: 7, ..Waiting::default() })),
            of(Kind::Waiting(Waiting { older_than: short, ..Waiting::default() })),
            of(Kind::NewGroup(NewGroup::default())),
            of(Kind::NewGroup(NewGroup { quiet_for: short })),
            AlertRule { by: vec![Key::Task], ..rule() },
            AlertRule { by: vec![Key::Task, Key::Queue], ..rule() },
            AlertRule { matcher, ..rule() },
            AlertRule { severity: Severity::Critical, ..rule() },
            AlertRule { for_: short, ..rule() },
            AlertRule { keep_firing_for: short, ..rule() },
            AlertRule { repeat: short, ..rule() },
            AlertRule { hooks: Some(names()), ..rule() },
            AlertRule { unless: names(), ..rule() },
        ];
        for (n, one) in rules.iter().enumerate() {
            for (m, other) in rules.iter().enumerate() {
                let expected = if n == m { changes(&[], &[], &[]) } else { changes(&[], &["r"], &[]) };
                let found = AlertRule::changes(std::slice::from_ref(one), std::slice::from_ref(other));
                assert_eq!(found, expected, "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn neither_the_order_of_rules_nor_that_of_lists_is_a_change() {
        let named = |name: &str| AlertRule { name: name.to_owned(), ..rule() };
        let by = |by: &[Key]| AlertRule { by: by.to_vec(), ..rule() };
        let (a, b, c) = (named("a"), named("b"), named("c"));
        assert!(AlertRule::changes(&[a.clone(), b.clone()], &[b.clone(), a.clone()]).is_empty());
        assert!(AlertRule::changes(&[by(&[Key::Task, Key::Queue])], &[by(&[Key::Queue, Key::Task])]).is_empty());
        assert_eq!(AlertRule::changes(&[a, b.clone()], &[c, b]), changes(&["c"], &[], &["a"]));
    }
}
