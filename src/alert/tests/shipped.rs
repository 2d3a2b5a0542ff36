//! The rules that Sexton comes with, as its own reader has them from `rules/`.

use std::collections::BTreeMap;

use super::*;
use crate::config::read_text;

/// They.
pub(super) fn shipped() -> Vec<AlertRule> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/rules");
    let text = format!("sources: [{{ name: orders, smallage: {{ url: 'redis://x' }} }}]\nrules: ['{folder}']\n");
    // They name no variable.
    let none: BTreeMap<String, String> = BTreeMap::new();
    read_text("sexton.yaml", &text, &none).unwrap_or_else(|problems| panic!("{problems}")).alerts
}

#[test]
fn an_outage_and_a_leak_page_and_the_rest_informs() {
    let rules = shipped();
    let pages = |pages| -> Vec<&str> {
        rules.iter().filter(|rule| rule.severity.pages() == pages).map(|rule| rule.name.as_str()).collect()
    };
    assert_eq!(pages(true), ["rising-fast", "rising-slowly"]);
    assert_eq!(pages(false), ["burst", "untriaged", "new-kind"]);
}

#[test]
fn they_fit_to_samples_as_far_apart_as_a_minute() {
    for rule in shipped() {
        for every in [5, 60] {
            assert_eq!(rule.misfits(Duration::from_secs(every)), [], "{} {every}", rule.name);
        }
    }
}
