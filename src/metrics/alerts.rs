//! Which alerts fire.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use prometheus::IntGaugeVec;

use super::gauge_value;

/// The metric as the documentation lists it: name, labels, meaning.
pub(super) const REFERENCE: (&str, &[&str], &str) = (
    "sexton_alert_firing",
    &["source", "alert", "severity"],
    "Incidents of an alert rule that fire; 0 for each rule of which none does (leader only)",
);

/// Metrics about alerts.
#[derive(Debug)]
pub(super) struct Alerts {
    firing: IntGaugeVec,
    /// What is shown of each source: rule and severity.
    shown: Mutex<BTreeMap<String, BTreeSet<(String, &'static str)>>>,
}

impl Alerts {
    pub(super) fn new(firing: IntGaugeVec) -> Alerts {
        Alerts { firing, shown: Mutex::default() }
    }

    /// Shows these rules of a source, by name and severity with the number of incidents, and no others.
    pub(super) fn show<'a>(&self, source: &str, firing: impl Iterator<Item = (&'a str, &'static str, u64)>) {
        let mut now = BTreeSet::new();
        for (alert, severity, incidents) in firing {
            self.firing.with_label_values(&[source, alert, severity]).set(gauge_value(incidents));
            now.insert((alert.to_owned(), severity));
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.insert(source.to_owned(), now.clone()).unwrap_or_default();
        for (alert, severity) in before.difference(&now) {
            // An error only says that the gauge was not there.
            let _ = self.firing.remove_label_values(&[source, alert, severity]);
        }
    }
}
