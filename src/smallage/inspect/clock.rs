//! The store's clock beside this machine's. Pure.

use std::time::Duration;

use crate::{
    clock::millis,
    ledger::{Aspect, Finding},
    letter::Millis,
};

/// A difference above this is somebody's mistake.
const APART: i64 = 5_000;
/// Receivers that check signatures refuse a timestamp further off than this.
const TOLERANCE: i64 = 300_000;

/// Both clocks at about one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// The store's time, from somewhere within the round trip.
    pub(super) store: Millis,
    /// This machine's time when the answer was there.
    pub(super) here: Millis,
    /// How long it took.
    pub(super) round_trip: Duration,
}

pub(super) fn judge(sight: &Sight) -> Finding {
    // In the middle of the round trip, as likely as not.
    let here = sight.here.0.saturating_sub(millis(sight.round_trip) / 2);
    let ahead = sight.store.0.saturating_sub(here);
    let apart = ahead.saturating_abs();
    if apart <= APART {
        return Finding::ok(Aspect::Clock, "its clock and this machine's agree");
    }
    let told =
        format!("its clock is {} {} this machine's", seconds(apart), if ahead > 0 { "ahead of" } else { "behind" });
    let decides = "Redis's decides: ages, due times, and the time that webhooks are signed with";
    let help = "synchronise both (NTP), first of all the one of Redis";
    if apart < TOLERANCE {
        Finding::warning(Aspect::Clock, format!("{told}. {decides}"), help)
    } else {
        Finding::error(
            Aspect::Clock,
            format!("{told}. {decides}; receivers refuse a signature that is five minutes off"),
            help,
        )
    }
}

/// In whole seconds, or minutes where these say more.
fn seconds(ms: i64) -> String {
    match ms / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Level;

    #[test]
    fn clocks_apart_are_warned_of_and_far_apart_are_wrong() {
        for (ahead, level, said) in [
            (0, Level::Ok, "agree"),
            (5_000, Level::Ok, "agree"),
            (-5_000, Level::Ok, "agree"),
            (5_001, Level::Warning, "5 s ahead of"),
            (-90_000, Level::Warning, "90 s behind"),
            (299_999, Level::Warning, "4 min ahead of"),
            (300_000, Level::Error, "5 min ahead of"),
            (i64::MIN, Level::Error, "behind"),
        ] {
            let here = Millis(if ahead == i64::MIN { 0 } else { 1_000_000_100 });
            let store = Millis(if ahead == i64::MIN { ahead } else { 1_000_000_000 + ahead });
            let found = judge(&Sight { store, here, round_trip: Duration::from_millis(200) });
            assert_eq!(found.level, level, "{ahead}");
            assert!(found.message.contains(said), "{ahead}: {}", found.message);
        }
    }
}
