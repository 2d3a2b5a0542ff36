//! Everything Sexton counts, and the text Prometheus scrapes.

mod alerts;
mod dead;
mod labels;
mod retries;
mod shown;

use std::{collections::HashMap, net::IpAddr, time::Instant};

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    proto::MetricFamily,
};

pub use self::dead::ToShow;
use self::{alerts::Alerts, dead::Dead, labels::Labels, retries::Retries, shown::Shown};
use crate::{
    ledger::{OutboxId, Refusal, Survey, Verdict, Waiting},
    letter::{Millis, Reason},
    version::{VERSION, revision},
};

/// What became of a request to a hook, as a metric label from a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver took it.
    Delivered,
    /// It failed and will be tried again.
    Retried,
    /// It failed for too long, or what was to be sent is no longer there.
    GivenUp,
    /// The receiver said no for good, or the hook is switched off.
    Rejected,
}

impl DeliveryOutcome {
    /// All of them.
    pub const ALL: [DeliveryOutcome; 4] =
        [DeliveryOutcome::Delivered, DeliveryOutcome::Retried, DeliveryOutcome::GivenUp, DeliveryOutcome::Rejected];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryOutcome::Delivered => "delivered",
            DeliveryOutcome::Retried => "retried",
            DeliveryOutcome::GivenUp => "given_up",
            DeliveryOutcome::Rejected => "rejected",
        }
    }
}

/// Why entries were removed for their age or number, as a metric label and in `dlq.purged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// The standing policy.
    Retention,
    /// A person asked for it, over HTTP.
    Purge,
}

impl Purged {
    /// All of them.
    pub const ALL: [Purged; 2] = [Purged::Retention, Purged::Purge];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Purged::Retention => "retention",
            Purged::Purge => "purge",
        }
    }
}

/// What tells counted deaths apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadKind<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// The task's name.
    pub task: &'a str,
    /// Why the jobs were buried.
    pub reason: &'a Reason,
    /// They died after a retry by Sexton.
    pub again: bool,
}

/// The process's metrics. Counters are this process's own and start at 0; gauges about a DLQ exist only while this
/// replica leads its source.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    dead: Dead,
    entries: IntGaugeVec,
    level: IntGaugeVec,
    oldest: IntGaugeVec,
    added: IntCounterVec,
    lag: IntGaugeVec,
    unseen: IntCounterVec,
    losses: IntCounterVec,
    purged: IntCounterVec,
    deliveries: IntCounterVec,
    delivery_seconds: HistogramVec,
    backlog: IntGaugeVec,
    leader: IntGaugeVec,
    up: IntGaugeVec,
    retries: Retries,
    alerts: Alerts,
    rules_reload_success: IntGaugeVec,
    rules_reload_timestamp: IntGaugeVec,
    labels: Labels,
    shown: Shown,
}

/// One metric as the documentation lists it: name, labels, meaning.
pub const REFERENCE: &[(&str, &[&str], &str)] = &[
    (
        "sexton_jobs_dead_total",
        &["source", "queue", "task", "reason", "death"],
        "Deaths announced; `death` is `first`, or `again` after a retry by Sexton. Over all replicas the sum is what died: \
         what a leader has not shown before it ended is counted by the next one",
    ),
    ("sexton_dlq_entries", &["source"], "Entries in the DLQ (leader only)"),
    ("sexton_dlq_level", &["source"], "Entries in the DLQ plus retries without a verdict yet (leader only)"),
    (
        "sexton_dlq_oldest_timestamp_seconds",
        &["source"],
        "When the oldest entry was buried; absent while the DLQ is empty (leader only)",
    ),
    (
        "sexton_dlq_added_total",
        &["source"],
        "Entries added to the DLQ, as the store counts them; what came while nobody led is counted by the next leader",
    ),
    ("sexton_ingest_lag_entries", &["source"], "Entries added but not read yet (leader only)"),
    ("sexton_unseen_entries_total", &["source"], "Entries that left the DLQ before Sexton could read them"),
    (
        "sexton_store_losses_total",
        &["source"],
        "Times this process found that the store had lost what it had confirmed: after a failover, a restore, or a \
         FLUSHALL",
    ),
    (
        "sexton_dlq_purged_total",
        &["source", "why"],
        "Entries this process removed for their age or number; `why` is `retention`, or `purge` where a person asked for \
         it over HTTP",
    ),
    retries::REFERENCE[0],
    retries::REFERENCE[1],
    retries::REFERENCE[2],
    retries::REFERENCE[3],
    retries::REFERENCE[4],
    retries::REFERENCE[5],
    retries::REFERENCE[6],
    alerts::REFERENCE,
    (
        "sexton_hook_deliveries_total",
        &["hook", "outcome"],
        "Requests to hooks by outcome: `delivered`, `retried`, `given_up` or `rejected`",
    ),
    ("sexton_hook_delivery_duration_seconds", &["hook"], "How long requests to hooks took"),
    ("sexton_hook_backlog", &["source", "hook"], "Events a hook has not been told of yet (leader only)"),
    (
        "sexton_leader",
        &["source"],
        "1 if this replica leads the source, else 0; the sum over all replicas is 1, and 0 while nobody leads",
    ),
    ("sexton_up", &["source"], "1 if the last operation on the source's store worked, else 0"),
    (
        "sexton_rules_reload_success",
        &[],
        "1 if the rules files as they are now could be read, 0 if they are broken and earlier rules stay in force",
    ),
    (
        "sexton_rules_reload_timestamp_seconds",
        &[],
        "When rules files were last read without a problem, by this process's own clock",
    ),
    ("sexton_build_info", &["version", "revision"], "Always 1"),
];

fn opts(name: &str) -> (Opts, &'static [&'static str]) {
    let (_, labels, help) =
        REFERENCE.iter().find(|(listed, ..)| *listed == name).expect("every metric stands in REFERENCE");
    (Opts::new(name, *help), labels)
}

impl Metrics {
    /// All metrics, with the known label sets at 0.
    pub fn new(sources: &[&str], hooks: &[&str]) -> Metrics {
        let registry = Registry::new();
        let counter = |name: &str| {
            let (opts, labels) = opts(name);
            let counter = IntCounterVec::new(opts, labels).expect("REFERENCE holds valid names");
            registry.register(Box::new(counter.clone())).expect("each metric is registered once");
            counter
        };
        let gauge = |name: &str| {
            let (opts, labels) = opts(name);
            let gauge = IntGaugeVec::new(opts, labels).expect("REFERENCE holds valid names");
            registry.register(Box::new(gauge.clone())).expect("each metric is registered once");
            gauge
        };
        let (duration, labels) = opts("sexton_hook_delivery_duration_seconds");
        let duration = HistogramOpts { common_opts: duration, buckets: vec![0.005, 0.025, 0.1, 0.5, 2.0, 10.0] };
        let delivery_seconds = HistogramVec::new(duration, labels).expect("REFERENCE holds valid names");
        registry.register(Box::new(delivery_seconds.clone())).expect("each metric is registered once");
        gauge("sexton_build_info").with_label_values(&[VERSION, revision().unwrap_or("unknown")]).set(1);
        let metrics = Metrics {
            dead: Dead::new(counter(dead::NAME)),
            entries: gauge("sexton_dlq_entries"),
            level: gauge("sexton_dlq_level"),
            oldest: gauge("sexton_dlq_oldest_timestamp_seconds"),
            added: counter("sexton_dlq_added_total"),
            lag: gauge("sexton_ingest_lag_entries"),
            unseen: counter("sexton_unseen_entries_total"),
            losses: counter("sexton_store_losses_total"),
            purged: counter("sexton_dlq_purged_total"),
            deliveries: counter("sexton_hook_deliveries_total"),
            backlog: gauge("sexton_hook_backlog"),
            leader: gauge("sexton_leader"),
            up: gauge("sexton_up"),
            retries: Retries {
                sent: counter("sexton_retries_total"),
                outcomes: counter("sexton_retry_outcomes_total"),
                refused: counter("sexton_retry_refusals_total"),
                in_flight: gauge("sexton_retries_in_flight"),
                due: gauge("sexton_retry_due_entries"),
                held: gauge("sexton_groups_held"),
                exhausted: counter("sexton_entries_exhausted_total"),
            },
            alerts: Alerts::new(gauge("sexton_alert_firing")),
            rules_reload_success: gauge("sexton_rules_reload_success"),
            rules_reload_timestamp: gauge("sexton_rules_reload_timestamp_seconds"),
            labels: Labels::default(),
            shown: Shown::default(),
            delivery_seconds,
            registry,
        };
        for source in sources {
            metrics.added.with_label_values(&[source]);
            metrics.unseen.with_label_values(&[source]);
            metrics.losses.with_label_values(&[source]);
            for why in Purged::ALL {
                metrics.purged.with_label_values(&[source, why.as_str()]);
            }
            metrics.retries.begin_by_hand(source);
            metrics.leader.with_label_values(&[source]).set(0);
            metrics.up.with_label_values(&[source]).set(0);
        }
        for hook in hooks {
            metrics.delivery_seconds.with_label_values(&[hook]);
            for outcome in DeliveryOutcome::ALL {
                metrics.deliveries.with_label_values(&[hook, outcome.as_str()]);
            }
        }
        metrics
    }

    /// Jobs landed in the DLQ, and the ledger has them: so many of each kind, the last one told of at this place in the
    /// outbox.
    pub fn jobs_dead(&self, source: &str, deaths: &HashMap<DeadKind<'_>, u64>, until: Option<OutboxId>) {
        let mut counts = dead::Counts::new();
        for (death, count) in deaths {
            let (queue, task) = self.labels.of(source, death.queue, death.task);
            let again = if death.again { "again" } else { "first" };
            *counts.entry([queue, task, death.reason.label().to_owned(), again.to_owned()]).or_default() += count;
        }
        self.dead.count(source, counts, until);
    }

    /// This process leads a source and has counted its deaths up to this place; up to `shown` others have shown them to
    /// Prometheus.
    pub fn counts_from(&self, source: &str, until: OutboxId, shown: Option<OutboxId>) {
        self.dead.begin(source, until, shown);
    }

    /// What more Prometheus may be shown of a source's deaths once the ledger has been told of it.
    pub fn to_show(&self, source: &str) -> Option<ToShow> {
        self.dead.to_show(source)
    }

    /// The ledger has been told of it.
    pub fn may_show(&self, source: &str, what: ToShow) {
        self.dead.may_show(source, what);
    }

    /// What the leader's survey found.
    pub fn surveyed(&self, source: &str, survey: &Survey) {
        self.entries.with_label_values(&[source]).set(gauge_value(survey.entries));
        self.level.with_label_values(&[source]).set(gauge_value(survey.entries.saturating_add(survey.in_flight)));
        self.lag.with_label_values(&[source]).set(gauge_value(survey.lag));
        self.added.with_label_values(&[source]).inc_by(survey.added);
        self.unseen.with_label_values(&[source]).inc_by(survey.unseen);
        match survey.oldest {
            Some(oldest) => self.oldest.with_label_values(&[source]).set(oldest.0.div_euclid(1000)),
            None => drop(self.oldest.remove_label_values(&[source])),
        }
    }

    /// The store has lost what it had confirmed.
    pub fn store_lost(&self, source: &str) {
        self.losses.with_label_values(&[source]).inc();
    }

    /// Entries were removed for their age or number.
    pub fn purged(&self, source: &str, why: Purged, entries: u64) {
        self.purged.with_label_values(&[source, why.as_str()]).inc_by(entries);
    }

    /// These rules are in force for a source: what is counted about them begins at 0.
    pub fn rules(&self, source: &str, rules: &[&str]) {
        for rule in rules {
            self.retries.begin(source, rule);
        }
    }

    /// A job of this task is back on its queue.
    pub fn retried(&self, source: &str, rule: &str, queue: &str, task: &str) {
        let (_, task) = self.labels.of(source, queue, task);
        self.retries.sent.with_label_values(&[source, rule, &task]).inc();
    }

    /// What became of a retry.
    pub fn outcome(&self, source: &str, rule: &str, verdict: Verdict) {
        self.retries.outcomes.with_label_values(&[source, rule, verdict.as_str()]).inc();
    }

    /// Entries that were due and were not retried.
    pub fn refused(&self, source: &str, rule: &str, refusal: Refusal, count: u64) {
        self.retries.refused(source, rule, refusal, count);
    }

    /// A job of this rule has spent its allowance.
    pub fn exhausted(&self, source: &str, rule: &str) {
        self.retries.exhausted.with_label_values(&[source, rule]).inc();
    }

    /// Retries of a rule without a final verdict.
    pub fn in_flight(&self, source: &str, rule: &str, flights: u64) {
        self.retries.in_flight.with_label_values(&[source, rule]).set(gauge_value(flights));
    }

    /// The due index in numbers; rules that hold no group stand at 0.
    pub fn waiting(&self, source: &str, rules: &[&str], waiting: &Waiting) {
        self.retries.due.with_label_values(&[source]).set(gauge_value(waiting.entries));
        for rule in rules {
            let held = waiting.held.iter().find(|(name, _)| name == rule).map_or(0, |(_, held)| *held);
            self.retries.held.with_label_values(&[source, rule]).set(gauge_value(held));
        }
    }

    /// The alert rules that concern a source, by name and severity, with the number of their incidents that fire; what
    /// was shown of other rules goes.
    pub fn firing<'a>(&self, source: &str, firing: impl Iterator<Item = (&'a str, &'static str, u64)>) {
        self.alerts.show(source, firing);
    }

    /// The gauges about these rules go: with the lease, or because the rules are no longer in force.
    pub fn no_more_rules(&self, source: &str, rules: &[&str]) {
        self.retries.lead_no_more(source, rules);
    }

    /// One request to a hook, and how long it took.
    pub fn delivery(&self, hook: &str, outcome: DeliveryOutcome, seconds: f64) {
        self.delivery_seconds.with_label_values(&[hook]).observe(seconds);
        self.not_sent(hook, outcome, 1);
    }

    /// Events settled without a request: given up, or rejected because the hook is switched off.
    pub fn not_sent(&self, hook: &str, outcome: DeliveryOutcome, events: u64) {
        self.deliveries.with_label_values(&[hook, outcome.as_str()]).inc_by(events);
    }

    /// Events a hook has not been told of yet, both lanes together.
    pub fn backlog(&self, source: &str, hook: &str, events: u64) {
        self.backlog.with_label_values(&[source, hook]).set(gauge_value(events));
    }

    /// Whether the last operation on the source's store worked.
    pub fn up(&self, source: &str, up: bool) {
        self.up.with_label_values(&[source]).set(i64::from(up));
    }

    /// Rules files were read without a problem.
    pub fn rules_read(&self, at: Millis) {
        self.rules_reload_success.with_label_values::<&str>(&[]).set(1);
        self.rules_reload_timestamp.with_label_values::<&str>(&[]).set(at.0.div_euclid(1000));
    }

    /// Rules files are broken; rules from before stay in force.
    pub fn rules_refused(&self) {
        self.rules_reload_success.with_label_values::<&str>(&[]).set(0);
    }

    /// This replica has begun to lead the source, or ceased to; with the lease go all gauges about its DLQ.
    pub fn leads(&self, source: &str, leads: bool, hooks: &[&str]) {
        self.leader.with_label_values(&[source]).set(i64::from(leads));
        if leads {
            return;
        }
        self.shown.lease_until(source, None);
        self.dead.end(source);
        self.retries.lead_no_more_by_hand(source);
        for gauge in [&self.entries, &self.level, &self.oldest, &self.lag] {
            // An error only says that the gauge was not there.
            let _ = gauge.remove_label_values(&[source]);
        }
        self.alerts.show(source, std::iter::empty());
        for hook in hooks {
            let _ = self.backlog.remove_label_values(&[source, hook]);
        }
    }

    /// The lease of a source is ours until then, by the monotonic clock, unless it is renewed. What a leader shows goes at
    /// that moment, whatever the process is busy with.
    pub fn leads_until(&self, source: &str, until: Instant) {
        self.shown.lease_until(source, Some(until));
    }

    /// The exposition, text format 0.0.4, for whoever asks: a person, a test.
    pub fn render(&self) -> String {
        written(&self.gathered())
    }

    /// The exposition for a Prometheus at this address: the same, but a line of a counter that is new to it is shown at 0
    /// once, so that `rate` sees its first events.
    pub fn scrape(&self, scraper: IpAddr) -> String {
        let mut families = self.gathered();
        if let Some(family) = families.iter_mut().find(|family| family.name() == dead::NAME) {
            self.dead.show(family);
        }
        families.retain(|family| !family.get_metric().is_empty());
        self.shown.show_beginnings(scraper, &mut families);
        written(&families)
    }

    fn gathered(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        self.shown.of_leaders(&mut families);
        families
    }
}

fn written(families: &[MetricFamily]) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(families, &mut text).expect("writing to memory does not fail");
    String::from_utf8(text).expect("the exposition is UTF-8")
}

fn gauge_value(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
