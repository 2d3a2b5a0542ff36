//! A hook's two delivery lanes between a ledger in a private Redis and whatever receives.

use std::{sync::Arc, time::Duration};

use sexton::{
    config::HookConfig,
    delivery::LaneState,
    event::{Event, Lane},
    hook::Client,
    ledger::{AttachOptions, Lease, Ledger, OutboxId, TryLease},
    loops::{Deliver, DeliverTo, Ended, Trouble, prepare_lanes, run},
    metrics::Metrics,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    SOON, eventually,
    redis::{Options, Redis},
    yard::{self, NS},
};

/// How long the lease of [`Store`] lasts.
pub(crate) const TTL: Duration = Duration::from_secs(3_600);

/// A private Redis, and a ledger in it that leads.
pub(crate) struct Store {
    pub(crate) redis: Redis,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) lease: Lease,
}

impl Store {
    pub(crate) async fn start() -> Store {
        Store::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Store {
        let redis = Redis::with(options).await;
        let ledger = yard::open(&redis);
        let TryLease::Acquired(lease) = ledger.try_lease("test", TTL, 0).await.unwrap() else { panic!("it is free") };
        ledger.attach(&lease, AttachOptions::default()).await.unwrap();
        Store { redis, ledger, lease }
    }

    /// Appends events to the outbox, and has this process notice; their places.
    pub(crate) async fn post(&self, events: impl IntoIterator<Item = Event>) -> Vec<OutboxId> {
        let mut events: Vec<_> = events.into_iter().collect();
        let last = events.pop().expect("something is posted");
        let mut ids = Vec::new();
        if !events.is_empty() {
            let mut many = redis::pipe();
            for event in &events {
                many.add_command(append(event, "*"));
            }
            let given: Vec<String> = many.query_async(&mut self.redis.connect().await).await.unwrap();
            ids.extend(given.iter().map(|id| id.parse::<OutboxId>().unwrap()));
        }
        ids.push(self.ledger.append(&last.data).await.unwrap());
        ids
    }

    pub(crate) async fn saved(&self, lane: Lane) -> LaneState {
        LaneState::from_json(&self.ledger.load_lane("oncall", lane).await.unwrap().unwrap().state).unwrap()
    }

    /// How often Redis has run this command, in scripts or by itself.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let mut con = self.redis.connect().await;
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut con).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    }
}

/// Appends an event at this place of the outbox.
pub(crate) fn append(event: &Event, place: &str) -> redis::Cmd {
    let key = format!("{{{NS}}}:sexton:outbox:{}", event.kind().lane().as_str());
    let data = serde_json::to_string(&event.data).unwrap();
    redis::cmd("XADD").arg(key).arg(place).arg("type").arg(event.kind().as_str()).arg("data").arg(data).to_owned()
}

/// Both lanes of a hook, running.
pub(crate) struct Running {
    stop: CancellationToken,
    pub(crate) loops: Vec<JoinHandle<Ended>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trouble: Trouble,
}

impl Running {
    pub(crate) async fn start(store: &Store, config: &HookConfig) -> Running {
        Running::with_cap(store, config, 50_000).await
    }

    pub(crate) async fn with_cap(store: &Store, config: &HookConfig, outbox_cap: u64) -> Running {
        prepare_lanes(&*store.ledger, &store.lease, &config.name).await.unwrap();
        let metrics = Arc::new(Metrics::new(&["orders"], &[&config.name]));
        metrics.leads("orders", true, &[]);
        let to = DeliverTo {
            ledger: Arc::clone(&store.ledger),
            lease: store.lease.clone(),
            hook: config,
            client: Client::new(config).unwrap(),
            metrics: Arc::clone(&metrics),
            outbox_cap,
            grace: SOON,
        };
        let (stop, trouble) = (CancellationToken::new(), Trouble::new("orders", "test"));
        let lanes = Deliver::lanes(&to).map(|lane| {
            let (stop, trouble) = (stop.clone(), trouble.at("deliver"));
            tokio::spawn(async move { run(Box::new(lane), &trouble, stop).await })
        });
        Running { stop, loops: lanes.into(), metrics, trouble }
    }

    /// A clean stop.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for one in self.loops {
            assert_eq!(tokio::time::timeout(SOON, one).await.unwrap().unwrap(), Ended::Stopped);
        }
    }

    /// As a SIGKILL would.
    pub(crate) async fn kill(self) {
        for one in self.loops {
            one.abort();
            let _ = one.await;
        }
    }

    pub(crate) fn metric(&self, line: &str) -> Option<u64> {
        let text = self.metrics.render();
        text.lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok())
    }

    pub(crate) fn deliveries(&self, outcome: &str) -> u64 {
        let line = format!("sexton_hook_deliveries_total{{hook=\"oncall\",outcome=\"{outcome}\"}}");
        self.metric(&line).unwrap()
    }

    pub(crate) fn backlog(&self) -> Option<u64> {
        self.metric("sexton_hook_backlog{hook=\"oncall\",source=\"orders\"}")
    }

    /// Waits until the condition holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Running) -> bool) {
        eventually(what, SOON, async || condition(self).then_some(())).await;
    }
}
