//! Retrying and removing what a filter passes, piece by piece, however much it is: by a command, or by the leader for
//! an operation that was asked for over HTTP.
//!
//! Oldest first, and only what was in the DLQ when it began: a retried job that dies again is not retried for ever.
//! Whoever is interrupted goes on from the progress that was saved; several at once do every entry once, for each is
//! done by one atomic step of the store.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    Filter, FilterError, FilterSpec,
    act::{Doing, TOGETHER},
    walk::{Order, PIECE, Progress, Tell, Walk},
};
use crate::{
    clock::monotonic,
    ledger::{self, Act, Operation, OperationProgress, OperationState, TriageLedger},
    letter::{DeadLetter, Millis},
    retry::Bucket,
    rule::Rules,
};

/// How long one waits for the pace to allow the next piece, at most: soon enough to hear of a stop.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// At least.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// One bulk action on one source.
pub struct Bulk<'a> {
    doing: Doing<'a>,
    filter: Filter,
    /// Nothing that was added later is meant, and ages count from here.
    asked_at: Millis,
    leg: Leg,
    /// Letters that passed and are still to be done.
    waiting: VecDeque<DeadLetter>,
    /// Up to where the DLQ was looked at; the letters that wait lie before it.
    scanned: Option<Scanned>,
    died: Option<Died>,
}

/// When those died to which something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died {
    /// The first of them.
    pub first: Millis,
    /// The last.
    pub last: Millis,
}

impl Died {
    fn and(so_far: Option<Died>, at: Millis) -> Option<Died> {
        let Died { first, last } = so_far.unwrap_or(Died { first: at, last: at });
        Some(Died { first: first.min(at), last: last.max(at) })
    }
}

/// Which entries a bulk action has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    /// Those that were added before it began, as their ids tell.
    Before,
    /// Later ones, of which some may have died before it began all the same: where the store's clock has stepped back,
    /// or somebody has chosen an id, all further ids lie in the future.
    Odd,
    /// None any more.
    Over,
}

/// A piece that was looked at, whose letters are being done.
struct Scanned {
    /// Where it ended, if more is to come there.
    next: Option<String>,
    /// Entries in it that have not been counted as looked at.
    uncounted: u64,
}

impl<'a> Bulk<'a> {
    /// What is done, to what this filter passes of what was there at `asked_at`.
    pub fn new(doing: Doing<'a>, filter: Filter, asked_at: Millis) -> Bulk<'a> {
        Bulk { doing, filter, asked_at, leg: Leg::Before, waiting: VecDeque::new(), scanned: None, died: None }
    }

    /// What an operation asks for. Its acts carry its id, so that the ledger counts them.
    pub fn of(operation: &Operation, rules: &'a Rules) -> Result<Bulk<'a>, FilterError> {
        let spec: FilterSpec = serde_json::from_value(operation.filter.clone())
            .map_err(|error| FilterError { field: "filter", problem: error.to_string() })?;
        let by = ledger::By { operation: operation.id.clone(), ..operation.by.clone() };
        let doing = Doing { act: operation.act, by, dry_run: operation.dry_run, rules };
        Ok(Bulk::new(doing, spec.compile()?, operation.asked_at))
    }

    /// The same, going on by these rules.
    pub fn by_rules<'b>(self, rules: &'b Rules) -> Bulk<'b> {
        let Bulk { doing, filter, asked_at, leg, waiting, scanned, died } = self;
        let Doing { act, by, dry_run, rules: _ } = doing;
        Bulk { doing: Doing { act, by, dry_run, rules }, filter, asked_at, leg, waiting, scanned, died }
    }

    /// When those died to which this has done something; none if it has done nothing.
    pub fn died(&self) -> Option<Died> {
        self.died
    }

    /// Does one piece: `at_most` entries or fewer, perhaps none of those that it looked at. `progress` says where it goes on, and
    /// is brought up to date; its `state` turns to done at the end. After an error some of the piece may have been
    /// done: going on is safe.
    pub async fn step(
        &mut self,
        ledger: &dyn TriageLedger,
        progress: &mut OperationProgress,
        at_most: usize,
    ) -> ledger::Result<()> {
        if progress.state != OperationState::Running {
            return Ok(());
        }
        if self.waiting.is_empty() {
            self.look(ledger, progress).await?;
        }
        let most = match self.doing.act {
            _ if self.doing.dry_run => PIECE,
            Act::Retry => at_most.min(TOGETHER),
            Act::Delete | Act::Purge => at_most.min(PIECE),
        };
        let piece: Vec<DeadLetter> = self.waiting.iter().take(most).cloned().collect();
        if let Some(last) = piece.last() {
            let outcomes = self.doing.to_letters(ledger, &piece).await?;
            for (letter, outcome) in piece.iter().zip(&outcomes) {
                match outcome.refusal {
                    None => {
                        progress.done += 1;
                        self.died = Died::and(self.died, letter.died_at);
                    }
                    Some(why) => *progress.refused.entry(why.to_owned()).or_default() += 1,
                }
            }
            progress.matched += piece.len() as u64;
            progress.from = Some(last.entry_id.clone());
            self.waiting.drain(..piece.len());
            if let Some(scanned) = &mut self.scanned {
                let counted = scanned.uncounted.min(piece.len() as u64);
                scanned.uncounted -= counted;
                progress.looked_at += counted;
            }
        }
        if self.waiting.is_empty()
            && let Some(Scanned { next, uncounted }) = self.scanned.take()
        {
            progress.looked_at += uncounted;
            if next.is_some() {
                progress.from = next;
            }
            if self.leg == Leg::Over {
                progress.state = OperationState::Done;
                progress.ended_at = Some(ledger.clock().now());
            }
        }
        Ok(())
    }

    async fn look(&mut self, ledger: &dyn TriageLedger, progress: &OperationProgress) -> ledger::Result<()> {
        let walk = Walk::new(ledger, &self.filter, self.asked_at, Order::OldestFirst).after(progress.from.clone());
        let mut walk = match self.leg {
            Leg::Before => walk.added_until(self.asked_at),
            Leg::Odd | Leg::Over => walk.added_after(self.asked_at),
        };
        let mut letters = walk.next(PIECE).await?.unwrap_or_default();
        if self.leg != Leg::Before {
            letters.retain(|letter| letter.died_at <= self.asked_at);
        }
        let next = walk.at().filter(|_| !walk.ended()).map(str::to_owned);
        if walk.ended() {
            self.leg = if self.leg == Leg::Before { Leg::Odd } else { Leg::Over };
        }
        self.scanned = Some(Scanned { next, uncounted: walk.looked_at() });
        self.waiting = letters.into();
        Ok(())
    }

    /// Whether letters wait to be done. If not, the next step looks for some, whatever the pace allows.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Does all of it, no faster than `per_second` entries, until the end or until it is told to stop, which it does
    /// after the piece under way. `progress` says what was done, also after an error.
    pub async fn run(
        &mut self,
        ledger: &dyn TriageLedger,
        progress: &mut OperationProgress,
        per_second: Option<u32>,
        stop: &CancellationToken,
        tell: &mut (dyn FnMut(&OperationProgress) + Send),
    ) -> ledger::Result<()> {
        let mut pace = Pace::new(per_second);
        while progress.state == OperationState::Running && !stop.is_cancelled() {
            let room = pace.room();
            if room == 0 && self.waits() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(pace.wait()) => {}
                }
                continue;
            }
            let before = progress.matched;
            self.step(ledger, progress, room).await?;
            pace.take(progress.matched - before);
            tell(progress);
        }
        Ok(())
    }
}

/// How fast a bulk action goes.
pub struct Pace {
    began: Instant,
    /// The limit, and what is left of it.
    limit: Option<(u32, Bucket)>,
}

impl Pace {
    /// At most so many entries in any second; none for as fast as goes.
    pub fn new(per_second: Option<u32>) -> Pace {
        Pace { began: monotonic(), limit: per_second.map(|per_second| (per_second.max(1), Bucket::new(0))) }
    }

    /// How many may be done now.
    pub fn room(&mut self) -> usize {
        let now = self.now();
        match &mut self.limit {
            None => usize::MAX,
            Some((per_second, bucket)) => usize::try_from(bucket.tokens(now, *per_second)).unwrap_or(usize::MAX),
        }
    }

    /// So many were done.
    pub fn take(&mut self, count: u64) {
        let now = self.now();
        if let Some((_, bucket)) = &mut self.limit {
            bucket.take(now, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// About how long it takes until there is room for one.
    pub fn wait(&self) -> Duration {
        self.limit
            .as_ref()
            .map_or(Duration::ZERO, |(per_second, _)| Duration::from_secs(1) / *per_second)
            .clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Counts what a filter passes of what is there now, as a dry run of `doing` does.
pub async fn count(
    ledger: &dyn TriageLedger,
    doing: Doing<'_>,
    filter: &Filter,
    now: Millis,
    entries: u64,
    tell: Tell<'_>,
) -> ledger::Result<OperationProgress> {
    let mut progress = OperationProgress::default();
    let mut bulk = Bulk::new(Doing { dry_run: true, ..doing }, filter.clone(), now);
    while progress.state == OperationState::Running {
        bulk.step(ledger, &mut progress, PIECE).await?;
        tell(Progress { source: ledger.name(), looked_at: progress.looked_at, entries });
    }
    Ok(progress)
}
