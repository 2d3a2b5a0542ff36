//! The line as the ledger keeps it: one small text for each minute, for each ten minutes once they are old, and for each
//! cause. They are fields of one hash, named by their first letter.

use std::collections::HashMap;

use super::{
    Fields, KEPT,
    cause::{Cause, CauseId, OTHER},
    cell::{Cell, Count, Level},
    samples::{MINUTE, Piece, Samples, TEN_MINUTES},
};
use crate::clock::millis;

/// A cell: its end and its level's time in milliseconds since the piece began, the level, retries, and by cause the
/// first deaths, further deaths, and what left.
type Written = (i64, Option<(i64, u64)>, u32, Vec<(CauseId, u32, u32, u32)>);

/// Cells closer to each other than this (ms) are one in the ledger.
const APART: i64 = 1_000;

impl Piece {
    fn name(self) -> String {
        match self {
            Piece::Minute(slot) => format!("m{slot}"),
            Piece::TenMinutes(slot) => format!("t{slot}"),
        }
    }

    fn parse(name: &str) -> Option<Piece> {
        // A time beyond all calendars is no piece of ours; it must not overflow either.
        let slot = name.get(1..)?.parse().ok().filter(|slot: &i64| slot.unsigned_abs() < u64::from(u32::MAX))?;
        match name.as_bytes().first()? {
            b'm' => Some(Piece::Minute(slot)),
            b't' => Some(Piece::TenMinutes(slot)),
            _ => None,
        }
    }

    fn width(self) -> i64 {
        match self {
            Piece::Minute(_) => MINUTE,
            Piece::TenMinutes(_) => TEN_MINUTES,
        }
    }

    fn start(self) -> i64 {
        let (Piece::Minute(slot) | Piece::TenMinutes(slot)) = self;
        slot * self.width()
    }
}

/// What has been read of the line so far.
#[derive(Debug, Default)]
pub(super) struct Loading {
    cells: Vec<Cell>,
    pieces: Vec<Piece>,
    causes: HashMap<CauseId, Cause>,
}

impl Loading {
    /// Takes a field of the ledger; false if it is no part of the line, or cannot be read.
    pub(super) fn add(&mut self, name: &str, text: &str) -> bool {
        if let Some(id) = name.strip_prefix('k').and_then(|id| id.parse().ok()) {
            return serde_json::from_str(text).map(|cause| self.causes.insert(id, cause)).is_ok();
        }
        let Some(piece) = Piece::parse(name) else { return false };
        let Ok(written) = serde_json::from_str::<Vec<Written>>(text) else { return false };
        let start = piece.start();
        self.cells.extend(written.into_iter().filter(|(until, ..)| (0..piece.width()).contains(until)).map(
            |(until, level, retried, counts)| Cell {
                until: start + until,
                level: level.map(|(at, entries)| Level { at: start.saturating_add(at), entries }),
                retried,
                counts:
                    counts.into_iter().map(|(cause, first, again, left)| Count { cause, first, again, left }).collect(),
            },
        ));
        self.pieces.push(piece);
        true
    }

    /// Puts into these samples what has been read.
    pub(super) fn finish(mut self, samples: &mut Samples) {
        for (id, cause) in self.causes {
            samples.causes.load(id, cause);
        }
        // Nothing is lost of what names a cause that is not there.
        for cell in &mut self.cells {
            for count in &mut cell.counts {
                if samples.causes.get(count.cause).is_none() {
                    let other = || OTHER.to_owned();
                    count.cause = samples.causes.id(Cause {
                        group: other(),
                        task: other(),
                        queue: other(),
                        reason: other(),
                        ..Cause::default()
                    });
                }
            }
        }
        samples.load(self.cells, &self.pieces);
    }
}

/// What has changed since the last save.
pub(super) fn save(samples: &mut Samples, fields: &mut Fields) {
    let oldest = samples.last().map_or(i64::MIN, |last| last.0 - millis(KEPT));
    for piece in samples.take_dirty() {
        let text = text(samples, piece);
        match text {
            Some(text) if piece.start() + piece.width() > oldest => fields.set(piece.name(), text),
            _ => fields.remove(piece.name()),
        }
    }
    for (id, cause) in samples.causes.take_dirty() {
        let name = format!("k{id}");
        match cause {
            Some(cause) => fields.set(name, serde_json::to_string(cause).expect("a cause is made of texts and a time")),
            None => fields.remove(name),
        }
    }
}

/// The text of a piece; none if nothing is left of it.
fn text(samples: &mut Samples, piece: Piece) -> Option<String> {
    let start = piece.start();
    let mut cells: Vec<Cell> = Vec::new();
    let found: Vec<Cell> = samples.cells_of(piece).into_iter().cloned().collect();
    for cell in found {
        match cells.last_mut() {
            Some(last) if last.until.div_euclid(APART) == cell.until.div_euclid(APART) => {
                last.merge(cell, &mut samples.causes);
            }
            _ => cells.push(cell),
        }
    }
    let written: Vec<Written> = cells
        .into_iter()
        .map(|cell| {
            let counts = cell.counts.iter().map(|count| (count.cause, count.first, count.again, count.left)).collect();
            let level = cell.level.map(|level| (level.at - start, level.entries));
            (cell.until - start, level, cell.retried, counts)
        })
        .collect();
    (!written.is_empty()).then(|| serde_json::to_string(&written).expect("a piece is made of numbers"))
}
