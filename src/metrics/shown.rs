//! What a scrape is shown of what is counted: lines of counters begin at 0, and who has lost a lease without knowing it yet
//! shows nothing of a leader.
//!
//! Prometheus takes the first sample of a line for its beginning, so what had been counted by then is missing in every
//! `rate` and `increase`. Most lines cannot be known before the first event: who dies, of which task and why. So a line
//! that is new to whoever scrapes is shown at 0 once, and as it is from then on.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};

use crate::clock::monotonic;

/// To one who scrapes for the first time, everything is new so long after the beginning; later everything is known, for
/// it may be the same Prometheus under another address.
const BEGINNING: Duration = Duration::from_secs(120);
/// Addresses that are known at most; the one that was there least recently makes room.
const SCRAPERS: usize = 16;
/// Shown by leaders alone, with a label `source`. It is part of what these metrics mean.
pub(super) const LEADERS_ALONE: [&str; 9] = [
    "sexton_dlq_entries",
    "sexton_dlq_level",
    "sexton_dlq_oldest_timestamp_seconds",
    "sexton_ingest_lag_entries",
    "sexton_retries_in_flight",
    "sexton_retry_due_entries",
    "sexton_groups_held",
    "sexton_alert_firing",
    "sexton_hook_backlog",
];

/// What has been shown to whom, and who may show what.
#[derive(Debug)]
pub(super) struct Shown {
    began: Instant,
    scrapers: Mutex<HashMap<IpAddr, Scraper>>,
    /// Until when the lease of a source is ours, as far as we know.
    leases: Mutex<HashMap<String, Instant>>,
}

#[derive(Debug)]
struct Scraper {
    last: Instant,
    known: HashSet<String>,
}

impl Default for Shown {
    fn default() -> Shown {
        Shown { began: monotonic(), scrapers: Mutex::default(), leases: Mutex::default() }
    }
}

impl Shown {
    /// The lease of a source is ours until then, unless it is renewed; or, without a time, nobody has said until when.
    pub(super) fn lease_until(&self, source: &str, until: Option<Instant>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        match until {
            Some(until) => drop(leases.insert(source.to_owned(), until)),
            None => drop(leases.remove(source)),
        }
    }

    /// Takes away what only leaders show, of sources whose lease has run out. A process that stood still wakes up in the
    /// middle of an answer: before it has found out that somebody else leads.
    pub(super) fn without_lapsed(&self, families: &mut Vec<MetricFamily>) {
        let now = monotonic();
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let lapsed: HashSet<&str> =
            leases.iter().filter(|(_, until)| **until <= now).map(|(source, _)| source.as_str()).collect();
        if lapsed.is_empty() {
            return;
        }
        let is_lapsed = |metric: &Metric| lapsed.contains(source_of(metric));
        for family in families.iter_mut() {
            if LEADERS_ALONE.contains(&family.name()) {
                family.mut_metric().retain(|metric| !is_lapsed(metric));
            } else if family.name() == "sexton_leader" {
                for metric in family.mut_metric().iter_mut().filter(|metric| is_lapsed(metric)) {
                    metric.set_gauge(Gauge::default());
                }
            }
        }
        families.retain(|family| !family.get_metric().is_empty());
    }

    /// Shows at 0 what is new to this scraper.
    pub(super) fn show_beginnings(&self, scraper: IpAddr, families: &mut [MetricFamily]) {
        let now = monotonic();
        let mut scrapers = self.scrapers.lock().unwrap_or_else(PoisonError::into_inner);
        let all_is_known = !scrapers.contains_key(&scraper) && now.duration_since(self.began) > BEGINNING;
        if scrapers.len() >= SCRAPERS && !scrapers.contains_key(&scraper) {
            let oldest = scrapers.iter().min_by_key(|(_, known)| known.last).map(|(address, _)| *address);
            oldest.map(|oldest| scrapers.remove(&oldest));
        }
        let scraper = scrapers.entry(scraper).or_insert_with(|| Scraper { last: now, known: HashSet::new() });
        scraper.last = now;
        for family in families {
            let kind = family.get_field_type();
            if !matches!(kind, MetricType::COUNTER | MetricType::HISTOGRAM) {
                continue;
            }
            let name = family.name().to_owned();
            for metric in family.mut_metric() {
                let is_new = scraper.known.insert(line(&name, metric));
                if is_new && !all_is_known {
                    at_zero(metric, kind);
                }
            }
        }
    }
}

fn source_of(metric: &Metric) -> &str {
    metric.get_label().iter().find(|label| label.name() == "source").map_or("", |label| label.value())
}

/// What tells a line from any other.
fn line(name: &str, metric: &Metric) -> String {
    let labels = metric.get_label().iter().flat_map(|label| ["\0", label.value()]);
    std::iter::once(name).chain(labels).collect()
}

fn at_zero(metric: &mut Metric, kind: MetricType) {
    if kind == MetricType::COUNTER {
        return metric.set_counter(Counter::default());
    }
    let mut empty = Histogram::default();
    let bucket = |bucket: &Bucket| {
        let mut empty = Bucket::default();
        empty.set_upper_bound(bucket.upper_bound());
        empty
    };
    empty.set_bucket(metric.get_histogram().get_bucket().iter().map(bucket).collect());
    metric.set_histogram(empty);
}
