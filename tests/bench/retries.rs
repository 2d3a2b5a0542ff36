//! Dead letters are put back on their queue through the ledger, against a loop in Lua that checks and remembers nothing.

use std::{sync::Arc, time::Duration};

use redis::{Script, aio::MultiplexedConnection};
use sexton::{
    clock::{millis, monotonic},
    config::{Secret, SecretSource, SmallageConfig},
    event::{EventData, Include, JobDead, JobRetry, rfc3339},
    ledger::{
        AttachOptions, Commit, Death, Lease, Place, Plan, PlanEnd, Pool, Retried, Retry, RetryLedger, Rounds, TryLease,
    },
    letter::{DeadLetter, Millis},
    smallage::Smallage,
};

use super::{
    Figure,
    support::{
        graveyard::{bury_all, dlq, letter_at},
        redis::{Options, Redis},
        workers::now,
    },
};

const NS: &str = "lrs";
const QUEUE: &str = "{lrs}:q:default:0";
const ENTRIES: usize = 20_000;
/// Dead letters in one call, of either loop.
const BATCH: usize = 100;
/// Due entries asked for at once.
const LOOK: usize = 1_000;
const ROUNDS: usize = 3;
const RULE: &str = "flaky";
/// Of the rule; the letters are older.
const MIN_AGE: Duration = Duration::from_secs(600);

/// For each id: the entry's fields go to the queue, the entry goes. Nothing is checked, nothing is written down.
const BARE: &str = "
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  redis.call('XADD', KEYS[2], '*', unpack(entry[2]))
  redis.call('XDEL', KEYS[1], id)
end
return #ARGV";

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    // The machine's mood changes: the rounds take turns, and the best of each counts.
    for _ in 0..ROUNDS {
        let ids = bury_anew(&mut con).await;
        bare.push(bare_loop(&mut con, &ids).await);
        assert_eq!(left_and_queued(&mut con).await, (0, ENTRIES), "the bare loop");
        bury_anew(&mut con).await;
        ours.push(through_the_ledger(&redis).await);
        assert_eq!(left_and_queued(&mut con).await, (0, ENTRIES), "through the ledger");
    }
    let best = |rounds: Vec<Duration>| {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let entries = ENTRIES as f64;
        entries / rounds.into_iter().min().expect("there were rounds").as_secs_f64()
    };
    let (bare, ours) = (best(bare), best(ours));
    vec![Figure {
        what: "retries of 20,000 entries of one group, in batches of 100, with all checks and records".to_owned(),
        measured: format!("{ours:.0}/s"),
        bare: format!("{bare:.0}/s"),
        result: format!("{:.2} ×", ours / bare),
        wanted: "≥ 0.5 ×",
        reached: ours / bare >= 0.5,
    }]
}

/// An empty store, a queue with its workers' group, and a DLQ of one group that died an hour ago; gives the ids.
async fn bury_anew(con: &mut MultiplexedConnection) -> Vec<String> {
    let () = redis::cmd("FLUSHALL").query_async(con).await.expect("FLUSHALL works");
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(QUEUE).arg("workers").arg("0").arg("MKSTREAM");
    let () = create.query_async(con).await.expect("the queue can be made");
    let died_at = u64::try_from(now(con).await).expect("after 1970") - 3_600_000;
    // Every fifth letter is of the same task and error.
    bury_all(con, NS, (0..ENTRIES as u64).map(|n| letter_at(NS, n * 5, died_at))).await
}

async fn left_and_queued(con: &mut MultiplexedConnection) -> (usize, usize) {
    let mut pipe = redis::pipe();
    pipe.cmd("XLEN").arg(dlq(NS)).cmd("XLEN").arg(QUEUE);
    pipe.query_async(con).await.expect("XLEN works")
}

async fn bare_loop(con: &mut MultiplexedConnection, ids: &[String]) -> Duration {
    let script = Script::new(BARE);
    let began = monotonic();
    for batch in ids.chunks(BATCH) {
        let mut call = script.key(dlq(NS));
        call.key(QUEUE);
        for id in batch {
            call.arg(id);
        }
        let moved: usize = call.invoke_async(con).await.expect("the script works");
        assert_eq!(moved, batch.len());
    }
    began.elapsed()
}

/// As the retry loop does it: what is due is asked for, then read with what is known of the jobs, then put back.
async fn through_the_ledger(redis: &Redis) -> Duration {
    let url = SecretSource::Inline(Secret::new(redis.url()));
    let config =
        SmallageConfig { url, namespace: NS.to_owned(), username: None, password: None, tls: None, sentinel: None };
    let ledger: Arc<dyn RetryLedger> = Arc::new(Smallage::new("bench", config).expect("the namespace is good"));
    let (lease, generation, place) = index(&*ledger).await;
    let began = monotonic();
    let mut retried = 0;
    loop {
        let due = ledger.due_entries(generation, &place.pool, &[(place.group.clone(), LOOK)]).await;
        let due = due.expect("the due index can be read").concat();
        if due.is_empty() {
            break;
        }
        for batch in due.chunks(BATCH) {
            let standing = ledger.standing(batch).await.expect("the entries can be read");
            let retries = standing.into_iter().map(|standing| {
                let standing = standing.expect("nobody else takes them away");
                retry(&place, &standing.letter, standing.job.deaths, standing.job.retries)
            });
            let answers = ledger.retry(&lease, generation, retries.collect()).await.expect("the lease is ours");
            assert!(answers.iter().all(|answer| matches!(answer, Retried::Sent(_))), "{:?}", answers.first());
            retried += answers.len();
        }
    }
    let took = began.elapsed();
    assert_eq!(retried, ENTRIES);
    took
}

/// Reads the whole DLQ into the due index.
async fn index(ledger: &dyn RetryLedger) -> (Lease, u64, Place) {
    let TryLease::Acquired(lease) =
        ledger.try_lease("bench", Duration::from_secs(600), 0).await.expect("Redis is there")
    else {
        panic!("nobody else wants the lease")
    };
    let options = AttachOptions { announce_existing: true, ..AttachOptions::default() };
    let mut cursor = ledger.attach(&lease, options).await.expect("the lease is ours").cursor;
    let generation = ledger.adopt_rules(&lease, &cursor, "f1").await.expect("the lease is ours");
    let mut place = None;
    loop {
        let batch = ledger.read(&cursor, LOOK, None).await.expect("the DLQ can be read");
        if batch.letters.is_empty() {
            break;
        }
        let deaths = batch.letters.iter().map(|letter| {
            let there = Place { pool: Pool::of(RULE, &letter.task), group: letter.group.0.clone() };
            assert_eq!(place.get_or_insert_with(|| there.clone()), &there, "they are of one group");
            let due = Millis(letter.died_at.0 + millis(MIN_AGE));
            Death {
                entry_id: letter.entry_id.clone(),
                job_id: letter.job_id.clone(),
                at: letter.died_at,
                event: None,
                plan: Some(Plan::Wait { place: there, due, retries: 0 }),
            }
        });
        let deaths = deaths.collect();
        let commit = Commit { from: cursor, to: batch.cursor.clone(), deaths, existing: None, generation };
        let PlanEnd::Stands(_) = ledger.commit(&lease, commit).await.expect("the lease is ours") else {
            panic!("nothing was retried before")
        };
        cursor = batch.cursor;
    }
    (lease, generation, place.expect("there are entries"))
}

fn retry(place: &Place, letter: &DeadLetter, deaths: u32, retries: u32) -> Retry {
    let dead = JobDead { deaths, retries: retries + 1, ..JobDead::of("bench", letter, Include::default()) };
    let told = JobRetry { dead: dead.clone(), retried_at: rfc3339(letter.died_at), recovered_at: None };
    Retry {
        place: place.clone(),
        dead,
        stream: letter.origin.clone(),
        dedup: letter.dedup.clone(),
        retries,
        max_retries: 3,
        not_before: Millis(letter.died_at.0 + millis(MIN_AGE)),
        max_queue_length: 1_000_000,
        confirm_within: Duration::from_secs(15 * 60),
        rounds: Rounds::default(),
        event: EventData::JobRetried(Box::new(told)).to_json(),
    }
}
