//! A person looks through a large DLQ and purges most of it, while others want something of the same Redis.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use globset::Glob;
use redis::aio::MultiplexedConnection;
use sexton::{
    clock::monotonic,
    config::{Secret, SecretSource, SmallageConfig},
    ledger::{By, Removal, Scan, Sieve, TriageLedger as _},
    rule::Globs,
    smallage::Smallage,
};

use super::{
    Figure, quantile,
    support::{
        graveyard::{bury_many, dlq},
        redis::{Options, Redis},
    },
};

const NS: &str = "lrs";
const ENTRIES: u64 = 1_000_000;
const PURGED: u64 = 900_000;
/// How long nobody looks, for comparison.
const QUIET: Duration = Duration::from_secs(5);
/// How long Redis may do nothing else, in microseconds.
const WANTED_US: f64 = 10_000.0;

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    for from in (0..ENTRIES).step_by(10_000) {
        bury_many(&mut con, NS, from..from + 10_000).await;
    }
    let url = SecretSource::Inline(Secret::new(redis.url()));
    let config =
        SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None };
    let ledger = Smallage::new("bench", config).expect("the namespace is good");
    let quiet = Waits::of(redis.connect().await);
    tokio::time::sleep(QUIET).await;
    let quiet = quiet.end().await;
    let none = Globs::new(&[Glob::new("nobody_*").expect("a glob")]).expect("globs");
    let sieve = Sieve { task: Some(none), ..Sieve::default() };
    let mut figures = Vec::new();
    for (what, sieve) in [("of which none passes", sieve), ("all of which pass", Sieve::default())] {
        let waits = Waits::of(redis.connect().await);
        let began = monotonic();
        let mut scan = Scan { sieve, max: 1_000, without_payload: true, ..Scan::default() };
        let mut looked_at = 0;
        loop {
            let piece = ledger.scan(&scan).await.expect("Redis is there");
            looked_at += piece.looked_at;
            let Some(next) = piece.next else { break };
            scan.from = Some(next);
        }
        let took = began.elapsed();
        assert_eq!(looked_at, ENTRIES);
        figures.push(figure(
            &format!("a look through 1,000,000 entries, {what}"),
            ENTRIES,
            took,
            &waits.end().await,
            &quiet,
        ));
    }
    let waits = Waits::of(redis.connect().await);
    let by = By { who: "bench".to_owned(), ..By::default() };
    let began = monotonic();
    let mut purged = 0;
    let mut scan = Scan { max: 1_000, oldest_first: true, without_payload: true, ..Scan::default() };
    while purged < PURGED {
        let piece = ledger.scan(&scan).await.expect("Redis is there");
        let ids: Vec<String> = piece.letters.into_iter().map(|letter| letter.entry_id).collect();
        let removed = ledger.remove(&by, Removal::Purged, &ids).await.expect("Redis is there");
        purged += removed.into_iter().filter(|removed| *removed).count() as u64;
        scan.from = piece.next;
    }
    figures.push(figure("a purge of 900,000 of them", PURGED, began.elapsed(), &waits.end().await, &quiet));
    let left: u64 = redis::cmd("XLEN").arg(dlq(NS)).query_async(&mut con).await.expect("XLEN works");
    assert_eq!(left, ENTRIES - purged);
    figures
}

fn figure(what: &str, entries: u64, took: Duration, waits: &[Duration], quiet: &[Duration]) -> Figure {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = entries as f64 / took.as_secs_f64();
    let (half, most, bare) = (quantile(waits, 0.5), quantile(waits, 0.99), quantile(quiet, 0.99));
    Figure {
        what: format!("{what}: how long another client waits"),
        measured: format!("{rate:.0}/s; p50 {:.1} ms, p99 {:.1} ms", half / 1_000.0, most / 1_000.0),
        bare: format!("p99 {:.1} ms when nobody looks", bare / 1_000.0),
        result: format!("+{:.1} ms", (most - bare).max(0.0) / 1_000.0),
        wanted: "≤ +10 ms",
        reached: most - bare <= WANTED_US,
    }
}

/// How long a client waits that asks for next to nothing, again and again.
struct Waits {
    waits: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    asking: tokio::task::JoinHandle<()>,
}

impl Waits {
    fn of(mut con: MultiplexedConnection) -> Waits {
        let (waits, stop) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicBool>::default());
        let (kept, told) = (Arc::clone(&waits), Arc::clone(&stop));
        let asking = tokio::spawn(async move {
            while !told.load(Ordering::Relaxed) {
                let began = monotonic();
                let () = redis::cmd("PING").exec_async(&mut con).await.expect("PING works");
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Waits { waits, stop, asking }
    }

    /// The waits, the shortest first.
    async fn end(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.asking.await.expect("it does not panic");
        let mut waits = std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner));
        waits.sort_unstable();
        waits
    }
}
