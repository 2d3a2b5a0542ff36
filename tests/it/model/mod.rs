//! The model test: random sequences of deaths, retries, crashes, changes of clock, rules and leader, each operation held
//! against a small reference model.
//!
//! The loops are the real ones on a real Redis, but they take their steps when they are told to, they can hang or die
//! while they wait for an answer, and the store's clock stands still in between. So a seed tells the same story every
//! time: `SEXTON_SEED=7 cargo test --test it invariants_hold`. `SEXTON_SEQUENCES=1000` makes it look further.

mod leader;
mod ops;
mod people;
mod picture;
mod reference;
mod rules;
mod world;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use fastrand::Rng;
use sexton::clock::monotonic;

use self::{
    ops::{Cut, End, Loop, Op, Work},
    world::World,
};
use crate::support::redis::{Options, Redis};

/// Sequences, unless `SEXTON_SEQUENCES` says otherwise.
const SEQUENCES: u64 = 60;
/// Operations of a sequence.
const LENGTH: usize = 100;
/// Rounds until everything must have come to rest.
const LAST_ROUNDS: usize = 16;
/// What lies between two of them: enough for every age, pause and claim to pass in a few.
const ROUND_MS: i64 = 7 * 3_600_000;
/// How long a shorter sequence is looked for that fails, too.
const SHORTEN_FOR: Duration = Duration::from_secs(40);

/// What happens in so many sequences.
const HAPPENS: [&str; 12] = [
    "retried",
    "retried with a dedup key",
    "twin_removed",
    "recovered",
    "failing",
    "re_died",
    "lost_sight",
    "exhausted",
    "what was there before is told",
    "a step hangs",
    "a leader dies in a step",
    "a stale leader is fenced",
];

/// How a sequence failed.
struct Failure {
    /// After so many operations; the last one is not among those of the sequence if it happened while coming to rest.
    after: usize,
    wrong: String,
}

#[expect(clippy::print_stdout, reason = "what has happened how often is shown when asked for")]
#[tokio::test]
async fn whatever_happens_the_invariants_hold() {
    let mut redis = Redis::with(Options { stepped_clock: true, ..Options::default() }).await;
    if let Some(seed) = variable("SEXTON_SEED") {
        holds(&mut redis, seed).await;
        return;
    }
    // The same sequences every time; others with SEXTON_FIRST_SEED.
    let first = variable("SEXTON_FIRST_SEED").unwrap_or(7);
    let sequences = variable("SEXTON_SEQUENCES").unwrap_or(SEQUENCES);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for n in 0..sequences {
        for (what, times) in holds(&mut redis, first.wrapping_add(n)).await {
            *seen.entry(what).or_default() += times;
        }
    }
    println!("{seen:?}");
    // Where nothing happens, everything holds.
    let missing: Vec<_> = HAPPENS.iter().filter(|what| !seen.contains_key(**what)).collect();
    assert!(sequences < SEQUENCES || missing.is_empty(), "beginning with the seed {first} never {missing:?}: {seen:?}");
}

#[expect(clippy::disallowed_methods, reason = "a test's own variables are none of the configuration")]
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

/// Plays the sequence of this seed; fails with it, and with a shorter one that fails alike, if there is one.
async fn holds(redis: &mut Redis, seed: u64) -> BTreeMap<String, u64> {
    let mut ops = ops::sequence(&mut Rng::with_seed(seed), LENGTH);
    let mut failure = match plays(redis, seed, &ops).await {
        Ok(seen) => return seen,
        Err(failure) => failure,
    };
    let found = failure.wrong.clone();
    ops.truncate(failure.after);
    let (began, mut at) = (monotonic(), ops.len());
    while at > 0 && began.elapsed() < SHORTEN_FOR {
        at -= 1;
        let mut shorter = ops.clone();
        shorter.remove(at);
        if let Err(other) = plays(redis, seed, &shorter).await {
            shorter.truncate(other.after);
            (ops, failure) = (shorter, other);
            at = at.min(ops.len());
        }
    }
    let mut told = String::new();
    for (n, op) in ops.iter().enumerate() {
        let _ = writeln!(told, "{:3}  {op:?}", n + 1);
    }
    panic!(
        "with SEXTON_SEED={seed} (cargo test --test it invariants_hold) this is wrong:\n  {found}\nA shorter sequence that fails:\n\
         {told}  {}",
        failure.wrong
    );
}

/// Plays a sequence, and then lets everything come to rest.
async fn plays(redis: &mut Redis, seed: u64, ops: &[Op]) -> Result<BTreeMap<String, u64>, Failure> {
    // The loops' own dice.
    fastrand::seed(seed);
    let mut world = World::new(redis).await;
    for (n, op) in ops.iter().enumerate() {
        world.does(op).await.map_err(|wrong| Failure { after: n + 1, wrong: format!("{op:?}: {wrong}") })?;
    }
    rests(&mut world).await.map_err(|wrong| Failure { after: ops.len(), wrong: format!("coming to rest, {wrong}") })?;
    Ok(world.seen)
}

/// Everything works again, and time passes: then everything comes to rest.
async fn rests(world: &mut World<'_>) -> Result<(), String> {
    let step = |which| Op::Step(which, Cut::No);
    for _ in 0..LAST_ROUNDS {
        for op in [Op::MakeQueues, step(Loop::Ingest), step(Loop::Ingest), step(Loop::Judge), step(Loop::Ingest)] {
            world.does(&op).await?;
        }
        for _ in 0..3 {
            for op in [step(Loop::Retry), Op::Clock(200), Op::Promote] {
                world.does(&op).await?;
            }
            while world.is_work_left() {
                world.does(&Op::Work(Work { pick: 0, end: End::Ok, dies: false })).await?;
            }
        }
        world.does(&step(Loop::Retry)).await?;
        if world.reference.is_at_rest(&world.picture) {
            return Ok(());
        }
        world.does(&Op::Clock(ROUND_MS)).await?;
    }
    Err(format!("it does not: {}", world.reference.unrest(&world.picture)))
}
