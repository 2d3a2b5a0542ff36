//! The line over the last 24 hours: levels and arrivals in cells that grow coarser with their age.
//!
//! A cell ends where a sample was taken, so levels and arrivals always speak of the same spans. Where no leader took
//! samples there is no level: a gap is a gap, not a zero. What died in a gap is counted where it died all the same, for
//! the DLQ keeps its time.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    AlertRule, KEPT, Labels,
    cause::{Cause, CauseId, Causes, whole},
    cell::{Cell, Count, Level},
};
use crate::{clock::millis, event::JobDead, letter::Millis};

/// How wide cells are, and up to what age (ms) they are as narrow as that. A rule of at most
/// [`MAX_BUCKETS`](super::MAX_BUCKETS) buckets finds no bucket narrower than its cells.
const TIERS: [(i64, i64); 4] =
    [(1_000, 4 * 60_000), (5_000, 24 * 60_000), (MINUTE, 4 * 3_600_000), (TEN_MINUTES, 24 * 3_600_000)];
/// Samples kept as they were taken, however close to each other.
const RAW: usize = 240;
/// In the ledger, cells are kept by minute, and by ten minutes once they are as wide as that.
pub(super) const MINUTE: i64 = 60_000;
pub(super) const TEN_MINUTES: i64 = 600_000;
/// The tier whose cells are as wide as ten minutes.
const COARSEST: usize = TIERS.len();

/// What the leader measures at one moment. Both at the same one: a job that dies again while its retry has no verdict yet
/// is counted twice until the verdict is in, which the retry loop has a second later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Entries in the DLQ.
    pub entries: u64,
    /// Retries of ours without a verdict yet.
    pub in_flight: u64,
}

impl Sample {
    /// The level: our own retries must not make a rising line look flat.
    pub fn level(&self) -> u64 {
        self.entries.saturating_add(self.in_flight)
    }
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It died, and had not died before.
    First,
    /// It died once more; it was part of the line all the time.
    Again,
    /// It was put back on its queue by us; it is still part of the line.
    Retried,
    /// It ran through after a retry of ours, or was removed through Sexton: it has left the line.
    Left,
}

impl Arrival {
    /// Which of the two kinds of death this is.
    pub fn of(dead: &JobDead) -> Arrival {
        if dead.deaths <= 1 { Arrival::First } else { Arrival::Again }
    }
}

/// A piece of the line as the ledger keeps it: one minute, or ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    /// The minute with this number since the epoch.
    Minute(i64),
    /// The ten minutes with this number.
    TenMinutes(i64),
}

/// The level at an edge between two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// When the sample was taken (ms).
    pub at: i64,
    /// The level it found.
    pub level: u64,
}

/// Levels and arrivals of the last 24 hours.
#[derive(Clone, Debug)]
pub struct Samples {
    every: i64,
    /// From the newest to the oldest tier, each with its oldest cell in front.
    tiers: [VecDeque<Cell>; TIERS.len() + 1],
    /// What has been counted since the last sample.
    open: Cell,
    pub(super) causes: Causes,
    dirty: BTreeSet<Piece>,
}

impl Samples {
    /// An empty line, of which a sample is to be taken every `sample_every`.
    pub fn new(sample_every: Duration) -> Samples {
        Samples {
            every: millis(sample_every).max(1),
            tiers: Default::default(),
            open: Cell::default(),
            causes: Causes::default(),
            dirty: BTreeSet::new(),
        }
    }

    /// When the last sample was taken, by whichever leader.
    pub fn last(&self) -> Option<Millis> {
        self.cells_back().find_map(|cell| cell.level).map(|level| Millis(level.at))
    }

    /// The last level known.
    pub fn level(&self) -> Option<u64> {
        self.cells_back().find_map(|cell| cell.level).map(|level| level.entries)
    }

    /// Counts, at `now`, what happened to so many jobs at `at`: in the past where that is long ago, and nowhere if it is
    /// more than 24 hours.
    pub(super) fn count(&mut self, now: Millis, at: Millis, arrival: Arrival, dead: &JobDead, jobs: u32) {
        // A time in the future is nobody's; it is now.
        let at = at.min(now);
        if at.0 <= now.0 - millis(KEPT) {
            return;
        }
        if self.causes.is_full() {
            self.make_room();
        }
        let id = self.causes.id(Cause::of(dead, at));
        let (first, again, left, retried) = match arrival {
            Arrival::First => (jobs, 0, 0, 0),
            Arrival::Again => (0, jobs, 0, 0),
            Arrival::Left => (0, 0, jobs, 0),
            Arrival::Retried => (0, 0, 0, jobs),
        };
        self.causes.add(id, u64::from(first + again));
        let count = Count { cause: id, first, again, left };
        let cell = match self.cell_at(at.0, now.0) {
            Some((tier, n)) => {
                self.dirty.insert(piece(tier, self.tiers[tier][n].until));
                &mut self.tiers[tier][n]
            }
            None => &mut self.open,
        };
        cell.retried = cell.retried.saturating_add(retried);
        if retried == 0 {
            cell.add(count, &mut self.causes);
        }
    }

    /// Takes a sample at `now`, and lets what is older grow coarser.
    pub fn sample(&mut self, now: Millis, sample: Sample) {
        self.forget_the_future(now);
        let level = Some(Level { at: now.0, entries: sample.level() });
        let mut cell = std::mem::take(&mut self.open);
        (cell.until, cell.level) = (now.0, level);
        match self.tiers[0].back_mut() {
            // Twice in the same moment, or the clock stepped back a little.
            Some(last) if now.0 <= last.until => {
                cell.until = last.until;
                last.merge(cell, &mut self.causes);
            }
            _ => self.tiers[0].push_back(cell),
        }
        self.dirty.insert(piece(0, now.0));
        self.age(now.0);
    }

    /// Where the clock has stepped back far, what lies in the future cannot be believed.
    fn forget_the_future(&mut self, now: Millis) {
        let beyond = now.0.saturating_add(MINUTE);
        for (tier, cells) in self.tiers.iter_mut().enumerate() {
            while cells.back().is_some_and(|cell| cell.until > beyond) {
                if let Some(cell) = cells.pop_back() {
                    self.dirty.insert(piece(tier, cell.until));
                }
            }
        }
    }

    fn age(&mut self, now: i64) {
        for tier in 0..COARSEST {
            let (width, _) = TIERS[tier];
            let keep = if tier == 0 { None } else { Some(TIERS[tier - 1].1) };
            loop {
                let cells = &self.tiers[tier];
                let Some(oldest) = cells.front() else { break };
                let stays = match keep {
                    None => cells.len() <= RAW,
                    Some(age) => now - oldest.until <= age,
                };
                if stays {
                    break;
                }
                let Some(cell) = self.tiers[tier].pop_front() else { break };
                // The ledger follows where that makes its pieces smaller.
                if tier + 2 >= COARSEST {
                    self.dirty.insert(piece(tier, cell.until));
                    self.dirty.insert(piece(tier + 1, cell.until));
                }
                match self.tiers[tier + 1].back_mut() {
                    Some(last) if last.until.div_euclid(width) == cell.until.div_euclid(width) => {
                        last.merge(cell, &mut self.causes);
                    }
                    _ => self.tiers[tier + 1].push_back(cell),
                }
            }
        }
        let (_, kept) = TIERS[COARSEST - 1];
        let mut forgot = false;
        while self.tiers[COARSEST].front().is_some_and(|cell| now - cell.until > kept) {
            if let Some(cell) = self.tiers[COARSEST].pop_front() {
                self.dirty.insert(piece(COARSEST, cell.until));
                forgot |= !cell.counts.is_empty();
            }
        }
        if forgot {
            self.sweep();
        }
    }

    /// The closed cell that covers a time in the past, made if there is none: tier and number. None if the time belongs to
    /// the cell that the next sample will close.
    fn cell_at(&mut self, at: i64, now: i64) -> Option<(usize, usize)> {
        let end_of_minute = (at.div_euclid(MINUTE) + 1) * MINUTE - 1;
        for tier in (0..self.tiers.len()).rev() {
            let n = self.tiers[tier].partition_point(|cell| cell.until < at);
            let Some(cell) = self.tiers[tier].get(n) else { continue };
            let width = tier.checked_sub(1).map_or(self.every, |tier| TIERS[tier].0);
            if cell.until - at <= width + 2 * self.every || cell.until <= end_of_minute {
                return Some((tier, n));
            }
            // Nobody took samples then: a cell for that minute, without a level.
            let until = end_of_minute.min(cell.until - 1);
            self.tiers[tier].insert(n, Cell { until, ..Cell::default() });
            return Some((tier, n));
        }
        if now - at <= 2 * self.every {
            return None;
        }
        self.tiers[0].push_back(Cell { until: end_of_minute.min(now), ..Cell::default() });
        Some((0, self.tiers[0].len() - 1))
    }

    fn make_room(&mut self) {
        self.sweep();
        if !self.causes.is_full() {
            return;
        }
        let into = self.causes.fold_the_rare();
        let Samples { tiers, open, dirty, .. } = self;
        for (tier, cells) in tiers.iter_mut().enumerate() {
            for cell in cells {
                if cell.replace(|id| into.get(&id).copied()) {
                    dirty.insert(piece(tier, cell.until));
                }
            }
        }
        open.replace(|id| into.get(&id).copied());
    }

    /// Forgets causes that no cell speaks of.
    fn sweep(&mut self) {
        let mut used: BTreeSet<CauseId> = self.open.counts.iter().map(|count| count.cause).collect();
        for cells in &self.tiers {
            used.extend(cells.iter().flat_map(|cell| &cell.counts).map(|count| count.cause));
        }
        self.causes.keep(&used);
    }

    /// All closed cells, the newest first.
    fn cells_back(&self) -> impl Iterator<Item = &Cell> {
        self.tiers.iter().flat_map(|cells| cells.iter().rev())
    }

    /// The closed cells that end after `after` (ms), the newest first, and before them what is not closed yet.
    pub(super) fn since(&self, after: i64) -> impl Iterator<Item = &Cell> {
        std::iter::once(&self.open).chain(self.cells_back().take_while(move |cell| cell.until > after))
    }

    /// The closed cells alone.
    pub(super) fn closed_since(&self, after: i64) -> impl Iterator<Item = &Cell> {
        self.cells_back().take_while(move |cell| cell.until > after)
    }

    /// The level at a moment, if a sample was taken shortly before it: no longer ago than `width` and two samples.
    pub(super) fn edge(&self, at: i64, width: i64) -> Option<Edge> {
        let oldest = at - width - 2 * self.every;
        for cells in &self.tiers {
            if cells.front().is_none_or(|cell| cell.until > at) {
                continue;
            }
            let n = cells.partition_point(|cell| cell.until <= at);
            for cell in cells.range(..n).rev() {
                if let Some(level) = cell.level {
                    return (level.at > oldest).then_some(Edge { at: level.at, level: level.entries });
                }
                if cell.until <= oldest {
                    return None;
                }
            }
        }
        None
    }

    /// How many bytes it takes in memory, texts at their bounds: what the bounds are to be measured by.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        let cells = self.tiers.iter().flatten();
        let cells = cells.map(|cell| size_of::<Cell>() + cell.counts.capacity() * size_of::<Count>()).sum::<usize>();
        cells + self.causes.len() * 1_000
    }

    /// What an incident of this rule would be about, if the rule means this cause.
    pub(super) fn labels(&self, cause: CauseId, rule: &AlertRule, source: &str) -> Option<Labels> {
        if rule.is_of_the_whole() { Some(whole(source)) } else { self.causes.get(cause)?.labels(rule, source) }
    }

    /// The pieces that have changed since the last call.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<Piece> {
        std::mem::take(&mut self.dirty)
    }

    /// The cells of a piece, the oldest first.
    pub(super) fn cells_of(&self, piece: Piece) -> Vec<&Cell> {
        let (tiers, width, slot) = match piece {
            Piece::Minute(slot) => (0..COARSEST, MINUTE, slot),
            Piece::TenMinutes(slot) => (COARSEST..COARSEST + 1, TEN_MINUTES, slot),
        };
        let (from, to) = (slot * width, (slot + 1) * width);
        let mut found = Vec::new();
        for tier in tiers.rev() {
            let cells = &self.tiers[tier];
            let first = cells.partition_point(|cell| cell.until < from);
            found.extend(cells.range(first..).take_while(|cell| cell.until < to));
        }
        found
    }

    /// Takes over cells as they were saved, all of them and in any order, and from which pieces.
    pub(super) fn load(&mut self, mut cells: Vec<Cell>, pieces: &[Piece]) {
        cells.sort_by_key(|cell| cell.until);
        let Some(newest) = cells.last().map(|cell| cell.until) else { return };
        for count in cells.iter().flat_map(|cell| &cell.counts) {
            self.causes.add(count.cause, u64::from(count.first) + u64::from(count.again));
        }
        self.tiers = Default::default();
        self.tiers[0].extend(cells);
        self.age(newest);
        // What has been saved is not saved again, unless it has moved on to a wider piece.
        self.dirty.clear();
        for piece in pieces {
            if let Piece::Minute(minute) = piece
                && self.cells_of(*piece).is_empty()
            {
                self.dirty.extend([*piece, Piece::TenMinutes((minute * MINUTE).div_euclid(TEN_MINUTES))]);
            }
        }
    }
}

/// The piece that a cell of this tier belongs to.
fn piece(tier: usize, until: i64) -> Piece {
    if tier == COARSEST {
        Piece::TenMinutes(until.div_euclid(TEN_MINUTES))
    } else {
        Piece::Minute(until.div_euclid(MINUTE))
    }
}
