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
    /// What its pool and group are to learn from it; nothing where a person had sent it.
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
    let mut step = judge(flight, sight, at)?;
    if flight.place.pool.is_by_hand() {
        step.teaching = None;
    }
    Some(step)
}

fn judge(flight: &Flight, sight: &Sight, at: Millis) -> Option<Step> {
    let failure = (!flight.failing).then_some(Teaching::Failure);
    let ended = |verdict, teaching| Some(Step { flight: flight.clone(), verdict: Some(verdict), teaching });
    match sight {
        Sight::RanThrough => ended(Verdict::Recovered, Some(Teaching::Success)),
        Sight::ReDied => ended(Verdict::ReDied, failure),
        // It has not run at all, and will not: that says nothing about what it would have met.
        Sight::Swallowed => ended(Verdict::LostSight, None),
        Sight::Underway { .. } if at > flight.confirm_by => ended(Verdict::LostSight, failure),
        // That we could not look closely enough is not the dependency's fault.
        Sight::Unclear if at > flight.confirm_by => ended(Verdict::LostSight, None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::JobDead,
        ledger::{Place, Pool, Rounds},
    };

    #[test]
    fn sights_become_verdicts_and_each_flight_fails_once() {
        let queue = |id: &str| Whereabouts::Queue(id.to_owned());
        let clock = |id: &str| Whereabouts::Clock(id.to_owned());
        let underway = |at, failing| Sight::Underway { at, failing };
        let (success, failure) = (Some(Teaching::Success), Some(Teaching::Failure));
        let (recovered, re_died, lost) = (Some(Verdict::Recovered), Some(Verdict::ReDied), Some(Verdict::LostSight));
        // What it was, what is seen, whether in time; verdict and teaching, or nothing.
        let cases = [
            (false, underway(queue("1-0"), false), true, None),
            (false, underway(queue("2-0"), false), true, Some((None, None))),
            (false, underway(clock("unknown:j:1"), false), true, Some((None, None))),
            (false, underway(clock("retry:j:1"), true), true, Some((Some(Verdict::Failing), failure))),
            (false, underway(queue("1-0"), true), true, Some((Some(Verdict::Failing), failure))),
            (true, underway(queue("2-0"), true), true, Some((None, None))),
            (true, underway(queue("1-0"), true), true, None),
            // Where its place no longer tells, it is still known.
            (true, underway(queue("1-0"), false), true, None),
            (false, underway(queue("1-0"), false), false, Some((lost, failure))),
            (false, underway(queue("2-0"), true), false, Some((lost, failure))),
            (true, underway(clock("retry:j:2"), true), false, Some((lost, None))),
            (false, Sight::Unclear, true, None),
            (true, Sight::Unclear, true, None),
            (false, Sight::Unclear, false, Some((lost, None))),
            (true, Sight::Unclear, false, Some((lost, None))),
            (false, Sight::RanThrough, true, Some((recovered, success))),
            (true, Sight::RanThrough, true, Some((recovered, success))),
            (false, Sight::RanThrough, false, Some((recovered, success))),
            (false, Sight::ReDied, true, Some((re_died, failure))),
            (true, Sight::ReDied, true, Some((re_died, None))),
            (false, Sight::ReDied, false, Some((re_died, failure))),
            (false, Sight::Swallowed, true, Some((lost, None))),
            (true, Sight::Swallowed, false, Some((lost, None))),
        ];
        for (failing, sight, in_time, expected) in cases {
            let flight = Flight {
                place: Place { pool: Pool::of("r", "t"), group: "g".to_owned() },
                dead: JobDead::default(),
                stream: String::new(),
                dedup: None,
                sent_at: Millis(1_000),
                confirm_by: Millis(2_000),
                rounds: Rounds::default(),
                at: queue("1-0"),
                seen_at: Millis(1_000),
                failing,
            };
            let at = Millis(if in_time { 2_000 } else { 2_001 });
            let step = conclude(&flight, &sight, at);
            let found = step.as_ref().map(|step| (step.verdict, step.teaching));
            assert_eq!(found, expected, "{failing} {sight:?} {in_time}");
            let place = Place { pool: Pool::of(Pool::BY_HAND, "t"), ..flight.place.clone() };
            let by_hand = conclude(&Flight { place, ..flight.clone() }, &sight, at);
            let found = by_hand.map(|step| (step.verdict, step.teaching));
            assert_eq!(found, expected.map(|(verdict, _)| (verdict, None)), "by hand: {failing} {sight:?} {in_time}");
            let (Some(step), Sight::Underway { at: place, failing: now_failing }, true) = (step, sight, in_time) else {
                continue;
            };
            let moved = Flight { at: place, seen_at: at, failing: failing || now_failing, ..flight };
            assert_eq!(step.flight, moved);
        }
    }
}
