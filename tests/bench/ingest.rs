//! A backlog is ingested and committed, against a loop that only reads it.

use std::{sync::Arc, time::Duration};

use redis::{Value, aio::MultiplexedConnection};
use sexton::{
    clock::monotonic,
    config::{OutboxConfig, Secret, SecretSource, SmallageConfig, SourceConfig, SourceKind},
    event::{Include, Lane},
    ledger::{AttachOptions, Cursor, TryLease},
    loops::{self, Ingest, IngestOptions, Step, Trim, Trouble, Watch, WatchOptions},
    metrics::Metrics,
    rule::{Action, Matcher, RetryRule, Rules},
    smallage,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Figure,
    support::{
        graveyard::{bury_many, dlq},
        redis::{Options, Redis},
    },
};

const ENTRIES: u64 = 200_000;
const NS: &str = "lrs";
const ROUNDS: usize = 3;

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let ids = bury_many(&mut con, NS, 0..ENTRIES).await;
    let last = Cursor(ids.last().expect("there are entries").clone());
    let mut bare = Vec::new();
    let mut existing = Vec::new();
    let mut announced = Vec::new();
    let mut planned = Vec::new();
    let (no_rules, rules) = (Arc::new(Rules::default()), Arc::new(retry_everything()));
    // The machine's mood changes: the rounds take turns, and the best of each counts.
    for _ in 0..ROUNDS {
        bare.push(bare_loop(&mut con).await);
        existing.push(ingest(&redis, &mut con, &last, false, &no_rules).await);
        announced.push(ingest(&redis, &mut con, &last, true, &no_rules).await);
        planned.push(ingest(&redis, &mut con, &last, false, &rules).await);
    }
    let best = |rounds: Vec<Duration>| {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let entries = ENTRIES as f64;
        entries / rounds.into_iter().min().expect("there were rounds").as_secs_f64()
    };
    let (bare, existing, announced, planned) = (best(bare), best(existing), best(announced), best(planned));
    let figure = |what: &str, rate: f64| Figure {
        what: what.to_owned(),
        measured: format!("{rate:.0}/s"),
        bare: format!("{bare:.0}/s"),
        result: format!("{:.2} ×", rate / bare),
        wanted: "≥ 0.5 ×",
        reached: rate / bare >= 0.5,
    };
    vec![
        figure("ingest of a backlog of 200,000, first visit (no rules, one digest)", existing),
        figure("ingest of a backlog of 200,000, each announced on the outbox", announced),
        figure("ingest of a backlog of 200,000, first visit, each in the due index by a rule", planned),
    ]
}

/// One rule that retries whatever died.
fn retry_everything() -> Rules {
    let rule = RetryRule { name: "all".to_owned(), matcher: Matcher::default(), action: Action::Retry(Box::default()) };
    Rules { retry: vec![rule], fingerprint: "bench".to_owned() }
}

async fn bare_loop(con: &mut MultiplexedConnection) -> Duration {
    let began = monotonic();
    let mut after = "-".to_owned();
    let mut read = 0;
    loop {
        let page: Value = redis::cmd("XRANGE")
            .arg(dlq(NS))
            .arg(&after)
            .arg("+")
            .arg("COUNT")
            .arg(1_000)
            .query_async(con)
            .await
            .expect("the DLQ can be read");
        let Value::Array(entries) = page else { panic!("XRANGE gives an array") };
        read += entries.len() as u64;
        let Some(Value::Array(entry)) = entries.last() else { break };
        let Value::BulkString(id) = &entry[0] else { panic!("an id is a text") };
        after = format!("({}", String::from_utf8_lossy(id));
    }
    assert_eq!(read, ENTRIES);
    began.elapsed()
}

async fn ingest(
    redis: &Redis,
    con: &mut MultiplexedConnection,
    last: &Cursor,
    announce_existing: bool,
    rules: &Arc<Rules>,
) -> Duration {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:sexton:*").query_async(con).await.expect("KEYS works");
    for chunk in keys.chunks(1_000) {
        let () = redis::cmd("DEL").arg(chunk).query_async(con).await.expect("DEL works");
    }
    let url = SecretSource::Inline(Secret::new(redis.url()));
    let config =
        SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None };
    let source = SourceConfig { name: "bench".to_owned(), kind: SourceKind::Smallage(config) };
    let ledger = smallage::open(&source).expect("the namespace is good");
    let TryLease::Acquired(lease) =
        ledger.try_lease("bench", Duration::from_secs(600), 0).await.expect("Redis is there")
    else {
        panic!("nobody else wants the lease")
    };
    let metrics = Arc::new(Metrics::new(&["bench"], &[]));
    let stop = CancellationToken::new();

    let began = monotonic();
    let options = AttachOptions { announce_existing, ..AttachOptions::default() };
    let attached = ledger.attach(&lease, options).await.expect("the lease is ours");
    let outbox = OutboxConfig { cap: 50_000, keep: Duration::from_secs(86_400) };
    let in_force = watch::Sender::new(Arc::clone(rules));
    let ingest = Ingest::new(
        ledger.clone(),
        lease.clone(),
        Arc::clone(&metrics),
        IngestOptions { include: Include::default(), outbox_cap: outbox.cap },
        in_force.subscribe(),
        attached,
    );
    // Trim waits for what the watch has not counted, as in a leader.
    let every = Duration::from_secs(5);
    let watch = Watch::new(
        ledger.clone(),
        lease.clone(),
        metrics,
        WatchOptions { every, digest: None, reminded: Vec::new() },
        watch::Sender::new(Arc::from(Vec::new())).subscribe(),
        in_force.subscribe(),
    );
    let trim = Trim::new(ledger.clone(), lease, Lane::Deaths, Vec::new(), outbox, every);
    let run = |step: Box<dyn Step>| {
        let stop = stop.clone();
        tokio::spawn(async move { loops::run(step, &Trouble::new("bench", "bench"), stop).await })
    };
    let (ingesting, watching, trimming) = (run(Box::new(ingest)), run(Box::new(watch)), run(Box::new(trim)));
    let state = format!("{{{NS}}}:sexton:state");
    loop {
        let cursor: Option<String> =
            redis::cmd("HGET").arg(&state).arg("cursor").query_async(con).await.expect("HGET works");
        if cursor.as_ref() == Some(&last.0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed();
    stop.cancel();
    ingesting.await.expect("ingest does not panic");
    watching.await.expect("the watch does not panic");
    trimming.await.expect("trim does not panic");
    took
}
