//! A real Alertmanager, private to each test: what it shows of the alerts it is sent, and whom it tells.

use std::{io::ErrorKind, process::Command, time::Duration};

use serde_json::{Value, json};
use sexton::{
    clock::millis,
    config::{Format, HookConfig, Rate},
    event::{Event, EventData, HookTest, rfc3339},
    hook::Client,
    letter::Millis,
};
use tempfile::TempDir;

use crate::support::{
    SOON, eventually,
    hooks::{death, firing, hook, resolved, still_firing},
    lanes::{Running, Store, append},
    process::{Http, Process},
    receiver::{Receiver, Request},
};

/// Names the program goes by; the first one on the PATH is taken.
const PROGRAMS: [&str; 2] = ["alertmanager", "prometheus-alertmanager"];
/// How long an alert fires after it was told.
const LASTS: Duration = Duration::from_secs(300);

/// A running Alertmanager; gone with its folder when dropped.
struct Alertmanager {
    process: Process,
    http: Http,
    /// Is told what fires and what is over.
    told: Receiver,
    _folder: TempDir,
}

impl Alertmanager {
    async fn start() -> Alertmanager {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
        let told = Receiver::start().await;
        let config = format!(
            "route: {{receiver: all, group_by: [alertname, task], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}\n\
             receivers: [{{name: all, webhook_configs: [{{url: \"{}\"}}]}}]\n",
            told.url()
        );
        let file = folder.path().join("alertmanager.yml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(program());
        command.arg("--config.file").arg(file).arg("--storage.path").arg(folder.path());
        command.args(["--web.listen-address=127.0.0.1:0", "--cluster.listen-address="]);
        let process = Process::start(&mut command);
        let address = |line: &str| {
            let (_, rest) = line.split_once("address=127.0.0.1:")?;
            let port: u16 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
            (port != 0).then(|| ([127, 0, 0, 1], port).into())
        };
        let http = Http(process.line("the address it listens on", address).await);
        http.answers("/-/ready", 200).await;
        Alertmanager { process, http, told, _folder: folder }
    }

    /// A hook to it whose URL says the host alone.
    fn hook(&self) -> HookConfig {
        HookConfig { format: Format::Alertmanager, ..hook(&format!("http://{}", self.http.0)) }
    }

    /// The alerts that fire, as its API shows them.
    async fn active(&self) -> Vec<Value> {
        let alerts = self.http.answers("/api/v2/alerts?active=true", 200).await;
        serde_json::from_str(&alerts).unwrap()
    }

    /// Waits until these many fire.
    async fn shows(&self, alerts: usize) -> Vec<Value> {
        eventually(&format!("{alerts} alerts fire"), SOON, async || {
            let active = self.active().await;
            (active.len() == alerts).then_some(active)
        })
        .await
    }
}

/// The program's name.
fn program() -> &'static str {
    let there = |name: &&str| match Command::new(name).arg("--version").output() {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("cannot start {name}: {error}"),
    };
    PROGRAMS.into_iter().find(there).expect("this test needs alertmanager on the PATH: `make test` gets it")
}

/// What Alertmanager has told of the alerts of a task, in order: `firing` or `resolved`.
fn statuses(requests: &[Request], task: &str) -> Vec<String> {
    let bodies = requests.iter().map(Request::json).filter(|body| body["groupLabels"]["task"] == task);
    bodies.map(|body| body["status"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_alert_fires_stays_one_and_is_over() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let running = Running::start(&store, &am.hook()).await;
    let since = Millis(store.ledger.clock().now().0 - 600_000);
    store.post([firing("send_email", since), firing("charge_card", since)]).await;
    let active = am.shows(2).await;
    let alert = active.iter().find(|alert| alert["labels"]["task"] == "send_email").unwrap();
    let labels = json!({"alertname": "rising", "source": "orders", "severity": "critical", "task": "send_email"});
    assert_eq!((&alert["labels"], &alert["status"]["state"]), (&labels, &json!("active")));
    assert_eq!(alert["annotations"]["incident"], "incident-of-send_email");
    let first = alert.clone();

    // Told again it is the same alert, and lasts longer.
    store.post([still_firing("send_email", since)]).await;
    running.until("told again", |running| running.deliveries("delivered") == 3).await;
    let active = am.shows(2).await;
    let again = active.iter().find(|alert| alert["labels"]["task"] == "send_email").unwrap();
    assert_eq!((&again["fingerprint"], &again["startsAt"]), (&first["fingerprint"], &first["startsAt"]));
    assert!(again["endsAt"].as_str() >= first["endsAt"].as_str(), "{again}");

    store.post([resolved("send_email", since, store.ledger.clock().now())]).await;
    let left = am.shows(1).await;
    assert_eq!(left[0]["labels"]["task"], "charge_card");
    let told = am.told.until(SOON, |told| statuses(told, "send_email").len() == 2).await;
    assert_eq!(statuses(&told, "send_email"), ["firing", "resolved"]);
    assert_eq!(statuses(&told, "charge_card"), ["firing"]);
    running.stop().await;
}

#[tokio::test]
async fn what_is_over_stays_over_though_its_beginning_comes_late() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let mut config = am.hook();
    config.timeout = Duration::from_millis(300);
    let running = Running::start(&store, &config).await;
    let since = store.ledger.clock().now();
    // It takes the connection and does not answer in time; what it got it will still read.
    am.process.freeze();
    store.post([firing("send_email", since), still_firing("send_email", since)]).await;
    running.until("the beginning fails", |running| running.deliveries("retried") >= 1).await;
    store.post([resolved("send_email", since, store.ledger.clock().now()), firing("charge_card", since)]).await;
    running.until("two incidents fail", |running| running.deliveries("retried") >= 2).await;
    am.process.thaw();
    running.until("all is delivered", |running| running.backlog() == Some(0)).await;
    let active = am.shows(1).await;
    assert_eq!(active[0]["labels"]["task"], "charge_card");
    running.stop().await;
}

#[tokio::test]
async fn an_alert_whose_sender_has_vanished_ends_by_itself() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let running = Running::start(&store, &am.hook()).await;
    let now = store.ledger.clock().now();
    // Told almost five minutes ago: four seconds are left of it.
    let told = now.0 - millis(LASTS) + 4_000;
    let event = firing("send_email", Millis(told));
    let () = append(&event, &format!("{told}-0")).query_async(&mut store.redis.connect().await).await.unwrap();
    am.shows(1).await;
    running.stop().await;
    am.shows(0).await;
    let told = am.told.until(SOON, |told| statuses(told, "send_email").len() == 2).await;
    assert_eq!(statuses(&told, "send_email"), ["firing", "resolved"]);
}

#[tokio::test]
async fn what_was_told_too_long_ago_is_not_sent_for_it_would_end_what_fires() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let running = Running::start(&store, &am.hook()).await;
    let now = store.ledger.clock().now();
    let long_ago = now.0 - 2 * millis(LASTS);
    let mut con = store.redis.connect().await;
    let () = append(&firing("charge_card", now), &format!("{long_ago}-0")).query_async(&mut con).await.unwrap();
    store.post([firing("send_email", now)]).await;
    am.shows(1).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!(running.deliveries("delivered"), 1);
    running.stop().await;
    let client = Client::new(&am.hook()).unwrap();
    client.send(&Event { at: Millis(long_ago), ..firing("send_email", now) }, now).await;
    am.shows(0).await;
}

#[tokio::test]
async fn a_storm_of_deaths_is_as_many_alerts_as_groups() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let mut config = am.hook();
    config.rate = Rate::Limited { events: 2, per: Duration::from_secs(1) };
    let running = Running::start(&store, &config).await;
    let now = store.ledger.clock().now();
    let dead = |n: u64| {
        let mut event = death(n);
        if let EventData::JobDead(dead) = &mut event.data {
            dead.group = format!("{:012x}", n % 3);
            dead.task = Some(format!("task_{}", n % 3));
            dead.died_at = rfc3339(now);
        }
        event
    };
    store.post((0..300).map(dead)).await;
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    let active = am.shows(3).await;
    assert!(active.iter().all(|alert| alert["labels"]["alertname"] == "JobDead"), "{active:?}");
    assert!(running.deliveries("delivered") <= 6, "{} requests", running.deliveries("delivered"));
    running.stop().await;
}

#[tokio::test]
async fn a_test_shows_and_a_digest_is_not_sent() {
    let (store, am) = (Store::start().await, Alertmanager::start().await);
    let running = Running::start(&store, &am.hook()).await;
    let test = HookTest { source: "orders".to_owned(), hook: "oncall".to_owned(), summary: "a test".to_owned() };
    let digest = Event { data: EventData::Digest(Box::default()), ..death(0) };
    store.post([digest]).await;
    store.post([Event { data: EventData::HookTest(test), ..death(0) }]).await;
    let active = am.shows(1).await;
    assert_eq!(
        (&active[0]["labels"]["alertname"], &active[0]["labels"]["hook"]),
        (&json!("SextonTest"), &json!("oncall"))
    );
    running.until("caught up", |running| running.backlog() == Some(0)).await;
    assert_eq!((running.deliveries("delivered"), running.deliveries("rejected")), (1, 0));
    running.stop().await;
}
