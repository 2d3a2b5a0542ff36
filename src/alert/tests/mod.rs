//! The watch as a whole: what it tells of a line, over leaders and gaps, and how large it gets.

use std::time::Duration;

use super::*;
use crate::{event::JobDead, letter::Millis};

mod bench;
mod cases;
mod events;
mod leaders;
mod shipped;
mod size;
mod weeks;

/// Seconds, minutes and hours, as rules give them.
fn mins(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}
