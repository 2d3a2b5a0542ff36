//! From where a flight was seen to what that means.

use crate::{
    ledger::{Flight, Sight, Verdict, Whereabouts},
    letter::Millis,
};

/// What a look at a flight comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The flight as it is from now on.
    pub flight: Flight,
    /// The verdict; none if it has only moved on.
    pub verdict: Option<Verdict>,
    /// What its pool and group are to learn from it.
    pub teaching: Option<Teaching>,
}

/// What an outcome says about the dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teaching {
    /// It works.
    Success,
    /// It does not. Said once of a flight, when it first fails.
    Failure,
}

/// What a look at `at` (the store's time of the look) means; none if it is where it was.
pub fn conclude(flight: &Flight, sight: &Sight, at: Millis) -> Option<Step> {
    let failure = (!flight.failing).then_some(Teaching::Failure);
    let ended = |verdict, teaching| Some(Step { flight: flight.clone(), verdict: Some(verdict), teaching });
    match sight {
        Sight::RanThrough => ended(Verdict::Recovered, Some(Teaching::Success)),
        Sight::ReDied => ended(Verdict::ReDied, failure),
        // It has not run at all, and will not: that says nothing about what it would have met.
        Sight::Swallowed => ended(Verdict::LostSight, None),
        Sight::Underway { .. } | Sight::Unclear if at > flight.confirm_by => ended(Verdict::LostSight, failure),
        Sight::Underway { at: place, failing } => underway(flight, place, *failing, at),
        Sight::Unclear => None,
    }
}

fn underway(flight: &Flight, place: &Whereabouts, failing: bool, at: Millis) -> Option<Step> {
    let fails_now = failing && !flight.failing;
    if !fails_now && *place == flight.at {
        return None;
    }
    let flight = Flight { at: place.clone(), seen_at: at, failing: flight.failing || failing, ..flight.clone() };
    Some(Step {
        flight,
        verdict: fails_now.then_some(Verdict::Failing),
        teaching: fails_now.then_some(Teaching::Failure),
    })
}
