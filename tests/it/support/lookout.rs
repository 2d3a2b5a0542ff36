//! A watch over the line on a private Redis, tick by tick: the test moves the store's clock, and says when somebody looks.

use std::{sync::Arc, time::Duration};

use super::{
    graveyard::{Fields, bury_all, letter_at},
    redis::{Options, Redis},
    workers::now,
    yard::{NS, Yard, waits},
};
use redis::AsyncCommands as _;
use sexton::{
    alert::{AlertRule, Burst, Kind, Rising},
    event::{Alert, EventData, Lane},
    ledger::{OutboxId, Posted, StoreError},
    letter::Millis,
    loops::{Watch, WatchOptions},
    metrics::Metrics,
    rule::Rules,
};

/// Where the watch is kept.
pub(crate) const WATCH: &str = "{lrs}:sexton:watch";
/// Seconds from tick to tick.
pub(crate) const EVERY: i64 = 5;

/// The graveyard, and who looks at it.
pub(crate) struct Lookout {
    /// The DLQ, and its ledger.
    pub(crate) yard: Yard,
    /// The alert rules in force.
    pub(crate) alerts: tokio::sync::watch::Sender<Arc<[AlertRule]>>,
    /// The retry rules in force.
    pub(crate) rules: tokio::sync::watch::Sender<Arc<Rules>>,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    watch: Watch,
    options: WatchOptions,
    seen: OutboxId,
    next: u64,
}

impl Lookout {
    /// A leader that watches by these rules, with nothing dead yet.
    pub(crate) async fn by(alerts: Vec<AlertRule>) -> Lookout {
        let every = Duration::from_secs(EVERY.unsigned_abs());
        Lookout::with(alerts, WatchOptions { every, digest: None, reminded: Vec::new() }).await
    }

    /// The same with more to do.
    pub(crate) async fn with(alerts: Vec<AlertRule>, options: WatchOptions) -> Lookout {
        let yard = Yard::on(Redis::with(Options { stepped_clock: true, ..Options::default() }).await).await;
        let a_week = Duration::from_secs(7 * 86_400);
        yard.ledger.renew(&yard.lease, a_week).await.expect("the lease is ours");
        let alerts = tokio::sync::watch::Sender::new(alerts.into());
        let rules = tokio::sync::watch::Sender::new(Arc::default());
        let metrics = Arc::new(Metrics::new(&["orders"], &[]));
        metrics.leads("orders", true, &[]);
        let watch = Lookout::watch(&yard, &metrics, &options, &alerts, &rules);
        Lookout { yard, alerts, rules, metrics, watch, options, seen: OutboxId::default(), next: 0 }
    }

    fn watch(
        yard: &Yard,
        metrics: &Arc<Metrics>,
        options: &WatchOptions,
        alerts: &tokio::sync::watch::Sender<Arc<[AlertRule]>>,
        rules: &tokio::sync::watch::Sender<Arc<Rules>>,
    ) -> Watch {
        let (ledger, lease) = (yard.ledger.clone(), yard.lease.clone());
        Watch::new(ledger, lease, Arc::clone(metrics), options.clone(), alerts.subscribe(), rules.subscribe())
    }

    /// The leader is gone, and another one goes on.
    pub(crate) fn new_leader(&mut self) {
        self.watch = Lookout::watch(&self.yard, &self.metrics, &self.options, &self.alerts, &self.rules);
    }

    /// Puts other alert rules in force.
    pub(crate) fn reload(&self, alerts: Vec<AlertRule>) {
        self.alerts.send_replace(alerts.into());
    }

    /// Letters of this task that die now, another job each.
    pub(crate) async fn letters(&mut self, task: Task, count: u64) -> Vec<Fields> {
        let died_at = u64::try_from(now(&mut self.yard.con).await).expect("after 1970");
        let numbers = self.next..self.next + count;
        self.next += count;
        numbers.map(|n| letter_at(NS, n * 5 + task as u64, died_at)).collect()
    }

    /// So many jobs of this task die, and ingest tells of them.
    pub(crate) async fn die(&mut self, task: Task, count: u64) {
        let letters = self.letters(task, count).await;
        bury_all(&mut self.yard.con, NS, letters.into_iter()).await;
        for _ in 0..count.div_ceil(1_000) {
            self.yard.ingest(&waits).await;
        }
    }

    /// One job of this task dies; its entry.
    pub(crate) async fn bury_one(&mut self, task: Task) -> String {
        let letter = self.letters(task, 1).await.remove(0);
        self.yard.bury(&letter).await
    }

    /// First deaths that the ledger says were counted.
    pub(crate) async fn deaths_counted(&mut self) -> u64 {
        let fields = self.fields(|_| true).await;
        let (watch, _) = sexton::alert::Watch::load("orders", self.options.every, fields);
        let now = self.yard.ledger.clock().now();
        watch.samples().summary(Millis(0), now).died
    }

    /// One look; whether there is more to read.
    pub(crate) async fn glance(&mut self) -> Result<bool, StoreError> {
        self.watch.look().await
    }

    /// As many looks as it takes.
    pub(crate) async fn look(&mut self) {
        while self.glance().await.expect("Redis is there") {}
    }

    /// The time passes, and nobody looks.
    pub(crate) fn passes(&mut self, seconds: i64) {
        self.yard.redis.step_clock(seconds);
    }

    /// For so many ticks, so many jobs die and somebody looks.
    pub(crate) async fn ticks(&mut self, ticks: u32, task: Task, die: u64) {
        for _ in 0..ticks {
            self.passes(EVERY);
            if die > 0 {
                self.die(task, die).await;
            }
            self.look().await;
        }
    }

    /// What has been told since the last time.
    pub(crate) async fn told(&mut self) -> Vec<EventData> {
        let page = self.yard.ledger.outbox(Lane::Alerts, self.seen, 1_000).await.expect("Redis is there");
        self.seen = page.last.unwrap_or(self.seen);
        page.events.into_iter().map(|Posted { event, .. }| event.data).collect()
    }

    /// The same in short, of alerts alone: name and what happened.
    pub(crate) async fn pages(&mut self) -> Vec<String> {
        self.told().await.iter().map(short).collect()
    }

    /// The only alert that has been told.
    pub(crate) async fn page(&mut self) -> Alert {
        let mut told = self.told().await;
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0).alert().cloned().expect("it is an alert")
    }

    /// Fields of the watch that fulfil this.
    pub(crate) async fn fields(&mut self, of: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let fields: Vec<(String, String)> = self.yard.con.hgetall(WATCH).await.expect("it is a hash");
        fields.into_iter().filter(|(name, _)| of(name)).collect()
    }
}

/// An event in short.
pub(crate) fn short(data: &EventData) -> String {
    match data {
        EventData::AlertFiring(alert) if alert.repeated => format!("{} again", alert.alert),
        EventData::AlertFiring(alert) => format!("{} fires", alert.alert),
        EventData::AlertResolved(alert) if alert.repeated => format!("{} is over, again", alert.alert),
        EventData::AlertResolved(alert) => format!("{} is over", alert.alert),
        other => other.kind().as_str().to_owned(),
    }
}

/// The tasks of the letters, by their place among the failures of a graveyard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// `send_email`, a `ConnectionError`.
    Email = 0,
    /// `charge_card`, a `TimeoutError`.
    Charge = 1,
}

/// A line that rises by eight in a minute, over half a minute after it stopped.
pub(crate) fn rising() -> AlertRule {
    let kind = Rising { over: Duration::from_secs(60), buckets: 6, at_least: 4, growth: 8 };
    AlertRule { keep_firing_for: Duration::from_secs(30), ..AlertRule::new("rising", Kind::Rising(kind)) }
}

/// So many deaths within half a minute.
pub(crate) fn burst(deaths: u64) -> AlertRule {
    let kind = Burst { over: Duration::from_secs(30), deaths };
    AlertRule { keep_firing_for: Duration::from_secs(30), ..AlertRule::new("burst", Kind::Burst(kind)) }
}
