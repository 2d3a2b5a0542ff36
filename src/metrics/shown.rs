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
/// 1 for who leads a source.
const LEADER: &str = "sexton_leader";
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

    /// Takes away what only leaders show, of sources that this process does not lead at this moment. A process that stood
    /// still wakes up in the middle of an answer, before it has found out that somebody else leads; and a lease may be lost
    /// while the values are gathered one after the other.
    pub(super) fn of_leaders(&self, families: &mut Vec<MetricFamily>) {
        let now = monotonic();
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lapsed: HashSet<String> =
            leases.iter().filter(|(_, until)| **until <= now).map(|(source, _)| source.clone()).collect();
        drop(leases);
        let leader = families.iter().filter(|family| family.name() == LEADER).flat_map(MetricFamily::get_metric);
        let not_leading = leader.filter(|metric| metric.get_gauge().get_value() < 1.0);
        lapsed.extend(not_leading.map(|metric| source_of(metric).to_owned()));
        if lapsed.is_empty() {
            return;
        }
        let is_lapsed = |metric: &Metric| lapsed.contains(source_of(metric));
        for family in families.iter_mut() {
            if LEADERS_ALONE.contains(&family.name()) {
                family.mut_metric().retain(|metric| !is_lapsed(metric));
            } else if family.name() == LEADER {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{
        ledger::Survey,
        metrics::{DeliveryOutcome, Metrics, REFERENCE},
    };

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|there| there == line)
    }

    #[test]
    fn a_line_begins_at_0_for_each_who_scrapes_and_people_see_what_is() {
        let metrics = Metrics::new(&["orders"], &["oncall"]);
        let line =
            |count: u64| format!("sexton_hook_deliveries_total{{hook=\"oncall\",outcome=\"delivered\"}} {count}");
        let requests = |count: u64| format!("sexton_hook_delivery_duration_seconds_count{{hook=\"oncall\"}} {count}");
        metrics.delivery("oncall", DeliveryOutcome::Delivered, 0.1);
        for scraper in [address(1), address(2)] {
            let text = metrics.scrape(scraper);
            assert!(has(&text, &line(0)) && has(&text, &requests(0)), "{text}");
            let text = metrics.scrape(scraper);
            assert!(has(&text, &line(1)) && has(&text, &requests(1)), "{text}");
        }
        assert!(has(&metrics.render(), &line(1)));
    }

    #[test]
    fn to_one_who_comes_late_nothing_is_new() {
        let began = monotonic().checked_sub(BEGINNING * 2).expect("the machine has run for some minutes");
        let shown = Shown { began, ..Shown::default() };
        let metrics = Metrics::new(&[], &["oncall"]);
        metrics.delivery("oncall", DeliveryOutcome::Delivered, 0.1);
        let mut families = metrics.gathered();
        shown.show_beginnings(address(1), &mut families);
        assert_eq!(families, metrics.gathered());
    }

    #[test]
    fn few_scrapers_are_remembered() {
        let (shown, metrics) = (Shown::default(), Metrics::new(&[], &["oncall"]));
        for last in 0..100 {
            shown.show_beginnings(address(last), &mut metrics.gathered());
        }
        assert_eq!(shown.scrapers.lock().unwrap().len(), SCRAPERS);
    }

    #[test]
    fn whose_lease_has_run_out_shows_nothing_of_a_leader() {
        let metrics = Metrics::new(&["orders", "mails"], &["oncall"]);
        let soon = monotonic() + Duration::from_secs(60);
        for source in ["orders", "mails"] {
            metrics.leads_until(source, soon);
            metrics.leads(source, true, &["oncall"]);
            metrics.surveyed(source, &Survey { entries: 7, ..Survey::default() });
            metrics.backlog(source, "oncall", 3);
        }
        metrics.leads_until("orders", monotonic());
        let text = metrics.render();
        assert!(has(&text, "sexton_leader{source=\"orders\"} 0") && has(&text, "sexton_leader{source=\"mails\"} 1"));
        for gauge in ["sexton_dlq_entries", "sexton_dlq_level", "sexton_hook_backlog"] {
            let of = |source: &str| text.lines().any(|line| line.starts_with(gauge) && line.contains(source));
            assert!(!of("orders") && of("mails"), "{gauge}: {text}");
        }
        // It was renewed after all.
        metrics.leads_until("orders", soon);
        assert!(has(&metrics.render(), "sexton_leader{source=\"orders\"} 1"));
    }

    #[test]
    fn what_is_said_to_be_of_leaders_alone_is_so() {
        let said = REFERENCE.iter().filter(|(_, _, help)| help.contains("(leader only)")).map(|(name, ..)| *name);
        let (mut said, mut are): (Vec<&str>, _) = (said.collect(), LEADERS_ALONE.to_vec());
        said.sort_unstable();
        are.sort_unstable();
        assert_eq!(said, are);
    }
}
