//! What a scrape is shown of what is counted: lines of counters begin at 0, and who has lost a lease without knowing it yet
//! shows nothing of a leader.
//!
//! Prometheus takes the first sample of a line for its beginning, so what had been counted by then is missing in every
//! `rate` and `increase`. Most lines cannot be known before the first event: who dies, of which task and why. So a young
//! line is shown to each who scrapes at 0 once, and as it is from then on. An old one never is: who has not seen it may be
//! the same Prometheus under another address, which would count everything anew.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};

use crate::clock::monotonic;

/// A line is young for so long after the first scrape that shows it: every Prometheus that scrapes once a minute or more
/// often has seen it by then.
const YOUNG: Duration = Duration::from_secs(65);
/// Addresses that are known at most; the one that was there least recently makes room.
const SCRAPERS: usize = 64;
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
    scrapes: Mutex<Scrapes>,
    /// Until when the lease of a source is ours, as far as we know.
    leases: Mutex<HashMap<String, Instant>>,
}

#[derive(Debug, Default)]
struct Scrapes {
    /// When each line was first shown to anybody; none if it was old by then.
    born: HashMap<String, Option<Instant>>,
    scrapers: HashMap<IpAddr, Scraper>,
}

#[derive(Debug)]
struct Scraper {
    last: Instant,
    /// The young lines that it has seen.
    known: HashSet<String>,
}

impl Scrapes {
    fn scraper(&mut self, address: IpAddr, now: Instant) -> &mut Scraper {
        if self.scrapers.len() >= SCRAPERS && !self.scrapers.contains_key(&address) {
            let oldest = self.scrapers.iter().min_by_key(|(_, known)| known.last).map(|(address, _)| *address);
            oldest.map(|oldest| self.scrapers.remove(&oldest));
        }
        self.scrapers.entry(address).or_insert_with(|| Scraper { last: now, known: HashSet::new() })
    }
}

impl Default for Shown {
    fn default() -> Shown {
        Shown { began: monotonic(), scrapes: Mutex::default(), leases: Mutex::default() }
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

    /// Shows at 0 what is young and new to this scraper.
    pub(super) fn show_beginnings(&self, scraper: IpAddr, families: &mut [MetricFamily]) {
        let now = monotonic();
        let mut scrapes = self.scrapes.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever comes first so late may have been there before, and is shown what is.
        let is_late = scrapes.born.is_empty() && now.duration_since(self.began) > YOUNG;
        let mut known = std::mem::take(&mut scrapes.scraper(scraper, now).known);
        let mut young = HashSet::new();
        for family in families {
            let kind = family.get_field_type();
            if !matches!(kind, MetricType::COUNTER | MetricType::HISTOGRAM) {
                continue;
            }
            let name = family.name().to_owned();
            for metric in family.mut_metric() {
                let line = line(&name, metric);
                let born = *scrapes.born.entry(line.clone()).or_insert_with(|| (!is_late).then_some(now));
                if born.is_none_or(|born| now.duration_since(born) > YOUNG) {
                    continue;
                }
                if !known.remove(&line) {
                    at_zero(metric, kind);
                }
                young.insert(line);
            }
        }
        *scrapes.scraper(scraper, now) = Scraper { last: now, known: young };
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
        let began = monotonic().checked_sub(YOUNG * 2).expect("the machine has run for some minutes");
        let shown = Shown { began, ..Shown::default() };
        let metrics = Metrics::new(&[], &["oncall"]);
        metrics.delivery("oncall", DeliveryOutcome::Delivered, 0.1);
        let mut families = metrics.gathered();
        shown.show_beginnings(address(1), &mut families);
        assert_eq!(families, metrics.gathered());
    }

    #[test]
    fn an_old_line_is_never_shown_at_0_whoever_asks() {
        let (shown, metrics) = (Shown::default(), Metrics::new(&[], &["oncall", "pager"]));
        metrics.delivery("oncall", DeliveryOutcome::Delivered, 0.1);
        shown.show_beginnings(address(1), &mut metrics.gathered());
        let long_ago = monotonic().checked_sub(YOUNG * 2).expect("the machine has run for some minutes");
        shown.scrapes.lock().unwrap().born.values_mut().for_each(|born| *born = Some(long_ago));
        for last in [2, 1] {
            let mut families = metrics.gathered();
            shown.show_beginnings(address(last), &mut families);
            assert_eq!(families, metrics.gathered(), "{last}");
        }
    }

    #[test]
    fn few_scrapers_are_remembered() {
        let (shown, metrics) = (Shown::default(), Metrics::new(&[], &["oncall"]));
        for last in 0..200 {
            shown.show_beginnings(address(last), &mut metrics.gathered());
        }
        assert_eq!(shown.scrapes.lock().unwrap().scrapers.len(), SCRAPERS);
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
