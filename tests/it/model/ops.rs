//! What can happen: the operations of a sequence, and how sequences are made up.
//!
//! An operation names things by number ("the seventh of what is there, round and round"), so that it means something in
//! every state, and a sequence stays one when operations are left out of it.

use fastrand::Rng;

use super::rules::{Grants, Rule, RuleSet};

/// The tasks there are.
pub(super) const TASKS: [&str; 3] = ["send_email", "charge_card", "parse_order"];
/// How attempts fail: type and message.
pub(super) const ERRORS: [(&str, &str); 2] = [("ConnectionError", "refused by the host"), ("ValueError", "no items")];
/// The queues' streams.
pub(super) const QUEUES: [&str; 2] = ["{lrs}:q:default:0", "{lrs}:q:slow:0"];
/// Dedup keys, so few that jobs get in each other's way.
pub(super) const DEDUP_KEYS: [&str; 3] = ["order-1", "order-2", "order-3"];

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    /// A new job is buried, of a life that nobody has seen.
    Bury(NewJob),
    /// A new job is put on its queue.
    Enqueue(NewJob),
    /// The worker that made this burial had died before it let go of the job, and another one makes it once more.
    BuryAgain(usize),
    /// A worker takes what is on a queue, also what another one has died of.
    Work(Work),
    /// The framework moves what is due from its clock to the queues.
    Promote,
    /// A loop of the leader takes a step; or ends the one that it was in.
    Step(Loop, Cut),
    /// A loop of a leader whose time is over, but who does not know, takes a step.
    StaleStep(usize, Loop),
    /// Another replica leads.
    Handover(Handover),
    /// The store's clock goes on, in milliseconds; or back, if negative.
    Clock(i64),
    /// It goes on to the moment at which some entry is old enough, plus so much.
    ClockToAge(usize, i64),
    /// The rules change.
    Rules(RuleSet),
    /// A person removes an entry.
    Remove(usize),
    /// A person puts an entry back on its queue by hand.
    PutBack(usize),
    /// Redis forgets the scripts.
    ScriptFlush,
    /// A queue's stream is deleted.
    DeleteQueue(usize),
    /// Workers start, and make the queues' streams.
    MakeQueues,
}

/// A job to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NewJob {
    pub(super) task: usize,
    pub(super) queue: usize,
    pub(super) error: usize,
    pub(super) kind: Kind,
}

/// What is special about a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Plain,
    /// It has one of the dedup keys.
    Dedup(usize),
    MaxDeliveries,
    UnknownTask,
    Malformed,
    /// It comes from a stream that is none of the framework's queues.
    Foreign,
    /// It has no id.
    Nameless,
}

/// What a worker does with an entry of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Which of what is there.
    pub(super) pick: usize,
    pub(super) end: End,
    /// It dies before it lets go of the entry, which will be handed out once more.
    pub(super) dies: bool,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Ok,
    /// It fails with this error.
    Fails(usize),
    /// The worker does not know the task, and hands it back.
    Unknown,
}

/// The loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Loop {
    Ingest,
    Judge,
    Retry,
}

impl Loop {
    pub(super) const ALL: [Loop; 3] = [Loop::Ingest, Loop::Judge, Loop::Retry];
}

/// Whether a step comes to its end. It is cut off while it waits for an answer, after as many waits as are named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    /// It does.
    No,
    /// It hangs there, until the loop takes its next step; everything else goes on.
    Hangs(usize),
    /// The process dies there, and another one leads.
    Dies(usize),
}

/// How leadership passes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Handover {
    /// The leader's process dies.
    Crash,
    /// Its lease runs out, and it does not notice.
    Lapse,
    /// It is told to stop, and gives the lease up.
    Stop,
}

/// A sequence of about so many operations, beginning with rules, or without any.
pub(super) fn sequence(random: &mut Rng, length: usize) -> Vec<Op> {
    let mut given = if random.u8(..6) == 0 { Vec::new() } else { rules(random) };
    // A few sequences begin with a DLQ that is full already.
    let before = if random.u8(..4) == 0 { random.usize(1..5) } else { 0 };
    let mut ops = vec![Op::Rules(given.clone())];
    ops.extend((0..before).map(|_| Op::Bury(job(random))));
    while ops.len() < length {
        match random.u8(..28) {
            0..6 => ops.extend(round(random)),
            6..9 => ops.extend(life(random)),
            9 => ops.extend(lapse(random)),
            10 => ops.extend(wobble(random)),
            11 | 12 => ops.extend(interrupted(random, &given)),
            13 => {
                given = other_rules(random, &given);
                ops.push(Op::Rules(given.clone()));
            }
            _ => ops.push(op(random)),
        }
    }
    ops
}

/// Rules after those: mostly the same on other terms.
fn other_rules(random: &mut Rng, before: &[Rule]) -> RuleSet {
    match random.u8(..6) {
        0 => Vec::new(),
        1 | 2 => rules(random),
        _ => {
            let again = |rule: &Rule| match random.u8(..4) {
                0 => Rule { grants: Some(grants(random)), ..rule.clone() },
                1 => rule.clone(),
                _ => {
                    let max_retries = random.u32(1..=3);
                    Rule { grants: rule.grants.map(|grants| Grants { max_retries, ..grants }), ..rule.clone() }
                }
            };
            before.iter().map(again).collect()
        }
    }
}

/// A step that hangs while something happens that it does not know of.
fn interrupted(random: &mut Rng, given: &[Rule]) -> Vec<Op> {
    let which = if random.u8(..3) == 0 { Loop::ALL[random.usize(..2)] } else { Loop::Retry };
    let mut ops = match which {
        Loop::Retry => {
            vec![Op::ClockToAge(random.usize(..1_000), 7_000), Op::Step(which, Cut::Hangs(random.usize(4..14)))]
        }
        Loop::Ingest | Loop::Judge => vec![Op::Step(which, Cut::Hangs(random.usize(1..5)))],
    };
    let ingest = || Op::Step(Loop::Ingest, Cut::No);
    match random.u8(..8) {
        0 => ops.extend([Op::Rules(other_rules(random, given)), ingest()]),
        1 => ops.push(Op::Clock(-[5_000, 20_000, 120_000][random.usize(..3)])),
        2 => ops.extend([Op::BuryAgain(random.usize(..1_000)), ingest()]),
        3 => ops.push(Op::Remove(random.usize(..1_000))),
        4 => ops.push(Op::PutBack(random.usize(..1_000))),
        5 => ops.push(Op::DeleteQueue(random.usize(..2))),
        6 => ops.extend([Op::Work(work(random, 0)), ingest()]),
        _ => ops.push(op(random)),
    }
    ops.push(Op::Step(which, Cut::No));
    ops
}

/// What leads to retries: somebody dies, the loops are at their work, and time passes.
fn round(random: &mut Rng) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..random.usize(..3)).map(|_| Op::Bury(job(random))).collect();
    ops.extend([Op::Step(Loop::Ingest, cut(random)), Op::Step(Loop::Ingest, cut(random))]);
    if random.u8(..3) > 0 {
        ops.push(Op::Step(Loop::Judge, cut(random)));
    }
    ops.extend([
        Op::ClockToAge(random.usize(..1_000), [0, 1_000, 7_000, 30_000][random.usize(..4)]),
        Op::Step(Loop::Retry, cut(random)),
        Op::Clock(200),
        Op::Step(Loop::Retry, cut(random)),
    ]);
    ops
}

/// What leads to deaths: the attempts of a life.
fn life(random: &mut Rng) -> Vec<Op> {
    let fails = |random: &mut Rng| {
        let error = random.usize(..ERRORS.len());
        Op::Work(Work { pick: random.usize(..1_000), end: End::Fails(error), dies: random.u8(..5) == 0 })
    };
    vec![fails(random), fails(random), Op::Clock(1_500), Op::Promote, fails(random), fails(random)]
}

/// A leader that goes on after its lease has run out.
fn lapse(random: &mut Rng) -> Vec<Op> {
    let mut ops = vec![Op::Handover(Handover::Lapse)];
    if random.bool() {
        ops.push(Op::Step(Loop::ALL[random.usize(..3)], Cut::No));
    }
    ops.push(Op::StaleStep(0, Loop::ALL[random.usize(..3)]));
    ops
}

/// A clock that is set back and finds its way again, while something goes on.
fn wobble(random: &mut Rng) -> Vec<Op> {
    let by = [300, 1_000, 5_000, 60_000][random.usize(..4)];
    let ahead = random.i64(0..3) * by;
    let mut ops = vec![Op::Clock(ahead), Op::Step(Loop::Retry, Cut::No), Op::Clock(-by)];
    for _ in 0..random.usize(1..4) {
        let meanwhile = [Op::Promote, Op::Work(work(random, 0)), Op::Step(Loop::Ingest, Cut::No), op(random)];
        ops.push(meanwhile[random.usize(..4)].clone());
    }
    ops.extend([Op::Clock(by + 200), Op::Step(Loop::Retry, Cut::No)]);
    ops
}

fn op(random: &mut Rng) -> Op {
    let pick = random.usize(..1_000);
    match random.u32(..100) {
        0..12 => Op::Bury(job(random)),
        12..15 => Op::Enqueue(live_job(random)),
        15..19 => Op::BuryAgain(pick),
        19..37 => Op::Work(work(random, pick)),
        37..40 => Op::Promote,
        40..50 => Op::Step(Loop::Ingest, cut(random)),
        50..54 => Op::Step(Loop::Judge, cut(random)),
        54..66 => Op::Step(Loop::Retry, cut(random)),
        66..69 => Op::StaleStep(pick, Loop::ALL[pick % 3]),
        69..72 => Op::Handover([Handover::Crash, Handover::Lapse, Handover::Lapse, Handover::Stop][pick % 4]),
        72..80 => Op::Clock(pause(random)),
        80..85 => Op::ClockToAge(pick, [-1, 0, 1, 2_000, 10_000][random.usize(..5)]),
        85..88 => Op::Bury(job(random)),
        88..90 => Op::Remove(pick),
        90..92 => Op::PutBack(pick),
        92 => Op::ScriptFlush,
        93 => Op::DeleteQueue(pick),
        94..97 => Op::MakeQueues,
        _ => Op::Clock(-[1, 200, 5_000, 60_000, 600_000][random.usize(..5)]),
    }
}

/// A pool is looked at again after a moment, so most pauses are short.
fn pause(random: &mut Rng) -> i64 {
    match random.u8(..10) {
        0..4 => 200,
        4 => random.i64(1..1_000),
        5 => 1_500,
        6 => 11_000,
        7 => 70_000,
        8 => 600_000,
        _ => random.i64(1..3) * 3_600_000,
    }
}

fn cut(random: &mut Rng) -> Cut {
    let waits = random.usize(1..12);
    match random.u8(..20) {
        0..4 => Cut::Hangs(waits),
        4 => Cut::Dies(waits),
        _ => Cut::No,
    }
}

fn job(random: &mut Rng) -> NewJob {
    let kind = match random.u8(..20) {
        0..3 => Kind::Dedup(random.usize(..DEDUP_KEYS.len())),
        3 => Kind::MaxDeliveries,
        4 => Kind::UnknownTask,
        5 => Kind::Malformed,
        6 => Kind::Foreign,
        7 => Kind::Nameless,
        _ => Kind::Plain,
    };
    NewJob { kind, ..live_job(random) }
}

fn live_job(random: &mut Rng) -> NewJob {
    let kind = if random.u8(..4) == 0 { Kind::Dedup(random.usize(..DEDUP_KEYS.len())) } else { Kind::Plain };
    // Mostly of one kind, so that groups have more than one entry.
    let mostly = |random: &mut Rng, of: usize| if random.bool() { 0 } else { random.usize(..of) };
    NewJob {
        task: mostly(random, TASKS.len()),
        queue: mostly(random, QUEUES.len()),
        error: mostly(random, ERRORS.len()),
        kind,
    }
}

fn work(random: &mut Rng, pick: usize) -> Work {
    let end = match random.u8(..10) {
        0..5 => End::Fails(random.usize(..ERRORS.len())),
        5 => End::Unknown,
        _ => End::Ok,
    };
    Work { pick, end, dies: random.u8(..5) == 0 }
}

/// One to three rules; mostly the last one takes whatever is left, and retries it.
fn rules(random: &mut Rng) -> RuleSet {
    const NAMES: [&str; 3] = ["flaky", "slow", "rest"];
    let count = random.usize(1..=3);
    let mut rules: RuleSet = (0..count)
        .map(|n| Rule {
            name: NAMES[n],
            task: random.bool().then(|| TASKS[random.usize(..TASKS.len())]),
            reason: (random.u8(..6) == 0).then_some("max_attempts"),
            error: (random.u8(..4) == 0).then(|| ERRORS[random.usize(..ERRORS.len())].0),
            grants: (random.u8(..4) != 0).then(|| grants(random)),
        })
        .collect();
    if let Some(last) = rules.last_mut().filter(|_| random.u8(..8) != 0) {
        *last = Rule { name: last.name, task: None, reason: None, error: None, grants: Some(grants(random)) };
    }
    rules
}

fn grants(random: &mut Rng) -> Grants {
    let pick = |random: &mut Rng, of: &[i64]| of[random.usize(..of.len())];
    let min_age = pick(random, &[1_000, 10_000, 10_000, 60_000]);
    let start = [1, 2, 5, 50][random.usize(..4)];
    Grants {
        min_age,
        backoff: random.i64(1..=2),
        max_backoff: min_age.max(pick(random, &[1_000, 60_000, 600_000])),
        max_retries: random.u32(1..=3),
        start,
        max_in_flight: if random.u8(..4) == 0 { start } else { 100 },
        max_queue_length: if random.u8(..6) == 0 { 2 } else { 10_000 },
        confirm_within: pick(random, &[30_000, 900_000, 900_000]),
    }
}
