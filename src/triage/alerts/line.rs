//! The line itself: its levels over a time.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    alert::Watch,
    clock::{millis, written},
    event::rfc3339,
    ledger::{self, AlertLedger},
    letter::Millis,
    triage::{Error, Result},
};

/// A source's line.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LineItem {
    /// The source's name.
    pub source: String,
    /// When the last sample was taken; none if none ever was.
    pub sampled_at: Option<String>,
    /// Dead letters, and retries in flight, at that moment.
    pub level: Option<u64>,
    /// How far back it goes, such as `24h`.
    pub over: String,
    /// Its parts, all of the same length, the oldest first.
    pub points: Vec<LinePoint>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LinePoint {
    /// When it ends.
    pub at: Option<String>,
    /// The highest level in it; none where nobody took a sample.
    pub level: Option<u64>,
}

/// The line over this time up to now, in so many parts.
pub async fn line_of(ledger: &dyn AlertLedger, sample_every: Duration, over: Duration, parts: u32) -> Result<LineItem> {
    let look = async {
        // The answer brings the store's time.
        ledger.overview().await?;
        ledger::Result::Ok((ledger.load_watch().await?, ledger.clock().now()))
    };
    let (saved, now) = look.await.map_err(Error::of(ledger))?;
    let (watch, _) = Watch::load(ledger.name(), sample_every, saved.fields);
    let line = watch.samples().line(now, over, parts);
    let part = millis(over) / i64::from(parts.max(1));
    let points = (1..).zip(line.levels.iter().rev()).map(|(n, level)| {
        let at = Millis(now.0.saturating_sub((n - 1) * part));
        LinePoint { at: rfc3339(at), level: *level }
    });
    let mut points: Vec<LinePoint> = points.collect();
    points.reverse();
    Ok(LineItem {
        source: ledger.name().to_owned(),
        sampled_at: watch.samples().last().and_then(rfc3339),
        level: watch.samples().level(),
        over: written(over),
        points,
    })
}
