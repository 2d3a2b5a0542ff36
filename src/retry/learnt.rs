//! What has been learnt of a group, or of the canaries of a pool: how many retries may be in flight, and whether it is
//! on hold.
//!
//! A *round* ends when a hold begins. Retries of earlier rounds say how things were, not how they are: their failures
//! teach nothing more, and their recoveries lift no hold, unless the job had already been seen failing and ran through
//! after all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::{clock::millis, letter::Millis, rule::Terms};

/// What was learnt holds good for at least this long after the last outcome, however young a rule lets its jobs be.
const GOOD_FOR_AT_LEAST: Duration = Duration::from_secs(60);
/// No pause is shorter, whatever the rule says.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// How much longer a pause may become: a fraction of it, so that groups do not all wake at once.
const JITTER: f64 = 0.1;
/// Outcomes in the window of a group that is proven, at least: of fewer, half fail by chance too easily.
const SMALLEST_WINDOW: u32 = 10;
/// How far the store's clock may step back without a hold being taken for one that these terms cannot have made.
const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// The pauses begin with the shortest again when so much time has passed since the last hold.
const PAUSES_FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// What has been learnt of one group, or of one pool's canaries. Kept in the ledger as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learnt {
    /// Retries that may be in flight.
    allowed: u32,
    /// Rises with every hold; the first is 1.
    round: u64,
    /// What became of the last ones.
    window: Window,
    /// When the last hold began; 0 if there was none.
    held_at: i64,
    /// On hold until then; 0 if it is not.
    held_until: i64,
    /// The last pause without its jitter, in milliseconds; 0 since the last recovery.
    pause: i64,
    /// Holds since the last recovery.
    failures: u32,
    /// When a retry of this round last recovered; 0 if none has.
    recovered: i64,
    /// When the last outcome was; 0 if there was none.
    last: i64,
}

impl Default for Learnt {
    fn default() -> Learnt {
        Learnt {
            allowed: 1,
            round: 1,
            window: Window::of(1),
            held_at: 0,
            held_until: 0,
            pause: 0,
            failures: 0,
            recovered: 0,
            last: 0,
        }
    }
}

/// One outcome, as far as learning is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The round in which the retry was sent.
    pub round: u64,
    /// When it was sent.
    pub sent_at: Millis,
    /// It had been seen failing before.
    pub was_failing: bool,
    /// What was learnt up to this moment counts no more, nor what was sent up to it; [`Millis`] 0 for everything.
    pub since: Millis,
}

/// What an outcome has changed for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A hold has begun.
    Begun {
        /// It ends then.
        until: Millis,
    },
    /// A hold has ended before its time.
    Lifted,
}

impl Learnt {
    /// Reads what the ledger has. Nothing, or what this build cannot read, is a fresh start; numbers are brought into
    /// range.
    pub fn read(json: Option<&str>) -> Learnt {
        json.and_then(|json| serde_json::from_str::<Learnt>(json).ok()).unwrap_or_default().clamped()
    }

    /// The same with its numbers in range.
    pub(super) fn clamped(self) -> Learnt {
        Learnt {
            allowed: self.allowed.max(1),
            round: self.round.max(1),
            window: self.window.clamped(),
            held_at: self.held_at.max(0),
            held_until: self.held_until.max(0),
            pause: self.pause.max(0),
            failures: self.failures,
            recovered: self.recovered.max(0),
            last: self.last.max(0),
        }
    }

    /// What the ledger keeps.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is made of numbers")
    }

    /// The present round: retries sent now belong to it.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Holds since the last recovery.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the last hold began.
    pub(super) fn held_at(&self) -> Millis {
        Millis(self.held_at)
    }

    /// When the hold ends; none if there is none in force. A hold longer than these terms can make is none either: the
    /// rule has changed, or what was stored is rubbish.
    pub fn held_until(&self, now: Millis, terms: &Terms) -> Option<Millis> {
        let longest = now.0.saturating_add(millis(longest_pause(terms).saturating_add(CLOCK_SLACK)));
        (now.0 < self.held_until && self.held_until <= longest).then_some(Millis(self.held_until))
    }

    /// Whether a retry of this round has recovered, after `since` and not too long ago.
    pub fn is_proven(&self, now: Millis, terms: &Terms, since: Millis) -> bool {
        self.recovered > since.0 && !self.is_stale(now, now, terms, since)
    }

    /// How many retries may be in flight now: none on hold, `pace.start` while nothing is known, else what was learnt.
    pub fn allowed(&self, now: Millis, terms: &Terms, since: Millis) -> u32 {
        if self.held_until(now, terms).is_some() {
            0
        } else if self.is_stale(now, now, terms, since) {
            start(terms)
        } else {
            self.allowed.clamp(start(terms), most(terms))
        }
    }

    /// After this moment it says no more than a fresh start does, also of what was sent on the strength of it.
    pub fn keep_until(&self, terms: &Terms) -> Millis {
        let good = good_until(Millis(self.last), terms);
        if self.failures == 0 {
            return good;
        }
        Millis(self.held_until.saturating_add(millis(PAUSES_FORGOTTEN_AFTER))).max(good)
    }

    /// A retry has recovered: twice as many may go, and a hold is lifted.
    pub fn recovered(&mut self, now: Millis, terms: &Terms, evidence: Evidence) -> Option<Hold> {
        // One that was failing has run through now, whenever it was sent: that is news, unless the hold is, too.
        let news = evidence.was_failing && self.held_at < now.0 && evidence.since.0 < now.0;
        if !self.is_of_this_round(evidence) && !news {
            return None;
        }
        self.forget_what_is_old(now, terms, evidence);
        let lifted = self.held_until(now, terms).is_some();
        self.allowed = self.allowed.saturating_mul(2).clamp(start(terms), most(terms));
        self.recovered = now.0;
        self.last = now.0;
        self.relieve();
        self.window.add_good();
        if self.window.is_full() {
            self.begin_window(terms);
        }
        lifted.then_some(Hold::Lifted)
    }

    /// A retry has failed: half as many may go, or none for a while. `dice` (0 to 1) is the jitter of the pause.
    pub fn failed(&mut self, now: Millis, terms: &Terms, evidence: Evidence, dice: f64) -> Option<Hold> {
        if !self.is_of_this_round(evidence) {
            return None;
        }
        self.forget_what_is_old(now, terms, evidence);
        self.last = now.0;
        self.allowed = (self.allowed / 2).clamp(start(terms), most(terms));
        self.window.add_bad();
        // Back to where the canaries were: a long run of recoveries must not pay for what is failing now.
        if self.allowed == start(terms) {
            self.window.shrink(SMALLEST_WINDOW.max(start(terms)));
        }
        if self.window.is_lost() {
            return Some(self.hold(now, terms, dice));
        }
        if self.window.is_full() {
            self.begin_window(terms);
        }
        None
    }

    /// Begins a hold, and with it a round.
    pub(super) fn hold(&mut self, now: Millis, terms: &Terms, dice: f64) -> Hold {
        let longest = longest_pause(terms);
        let pause = if self.pause == 0 { millis(terms.min_age) } else { self.pause.saturating_mul(2) };
        self.pause = pause.clamp(millis(SHORTEST_PAUSE), millis(longest));
        let jittered = Duration::from_millis(self.pause.unsigned_abs()).mul_f64(1.0 + JITTER * dice.clamp(0.0, 1.0));
        self.held_at = now.0;
        self.held_until = now.0.saturating_add(millis(jittered.min(longest)));
        self.failures = self.failures.saturating_add(1);
        self.round = self.round.saturating_add(1);
        self.last = now.0;
        self.begin_anew(terms);
        Hold::Begun { until: Millis(self.held_until) }
    }

    /// Ends the hold and begins the pauses with the shortest again; says nothing of how many may go.
    pub(super) fn relieve(&mut self) {
        self.held_until = 0;
        self.calm();
    }

    /// Begins the pauses with the shortest again.
    pub(super) fn calm(&mut self) {
        self.pause = 0;
        self.failures = 0;
    }

    fn is_of_this_round(&self, evidence: Evidence) -> bool {
        evidence.round == self.round && evidence.sent_at > evidence.since
    }

    /// Old recoveries prove nothing about new deaths: an entry that is due now has died `min_age` ago, and what was
    /// learnt before that does not speak of it. `at` is when the retry in question is sent, or was.
    fn is_stale(&self, at: Millis, now: Millis, terms: &Terms, since: Millis) -> bool {
        let good_for = millis(good_for(terms));
        let rubbish = self.last.saturating_sub(now.0) > good_for;
        self.last <= since.0 || at.0.saturating_sub(self.last) > good_for || rubbish
    }

    fn forget_what_is_old(&mut self, now: Millis, terms: &Terms, evidence: Evidence) {
        if self.is_stale(evidence.sent_at, now, terms, evidence.since) {
            self.begin_anew(terms);
            if now.0.saturating_sub(self.held_until.max(self.last)) > millis(PAUSES_FORGOTTEN_AFTER) {
                self.calm();
            }
        }
    }

    /// With canaries.
    fn begin_anew(&mut self, terms: &Terms) {
        self.allowed = start(terms);
        self.recovered = 0;
        self.begin_window(terms);
    }

    /// Canaries are a window of their own; later one that is large enough to tell half from chance.
    fn begin_window(&mut self, terms: &Terms) {
        let size = if self.recovered == 0 { start(terms) } else { self.allowed.max(SMALLEST_WINDOW) };
        self.window = Window::of(size);
    }
}

fn start(terms: &Terms) -> u32 {
    terms.pace.start.max(1)
}

fn most(terms: &Terms) -> u32 {
    terms.pace.max_in_flight.max(start(terms))
}

fn good_for(terms: &Terms) -> Duration {
    terms.min_age.max(GOOD_FOR_AT_LEAST)
}

/// Until when an outcome says something: also of what was sent on the strength of it, for as long as that may take.
pub(super) fn good_until(last: Millis, terms: &Terms) -> Millis {
    Millis(last.0.saturating_add(millis(good_for(terms).saturating_add(terms.confirm_within))))
}

fn longest_pause(terms: &Terms) -> Duration {
    terms.max_backoff.max(SHORTEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Pace;

    const NOW: i64 = 1_800_000_000_000;

    fn terms(start: u32, max_in_flight: u32) -> Terms {
        let pace = Pace { start, max_in_flight, ..Terms::default().pace };
        Terms { min_age: Duration::from_secs(10), max_backoff: Duration::from_secs(60), pace, ..Terms::default() }
    }

    fn at(seconds: i64) -> Millis {
        Millis(NOW + seconds * 1_000)
    }

    /// Of a retry sent in this round, `sent` seconds after the beginning.
    fn sent(round: u64, sent: i64) -> Evidence {
        Evidence { round, sent_at: at(sent), was_failing: false, since: Millis(0) }
    }

    /// `+` and `-` at one second after the other; what may be in flight after each.
    fn play(learnt: &mut Learnt, terms: &Terms, from: i64, outcomes: &str) -> Vec<u32> {
        let mut allowed = Vec::new();
        for (n, outcome) in (from..).zip(outcomes.chars()) {
            let evidence = sent(learnt.round(), n);
            match outcome {
                '+' => learnt.recovered(at(n), terms, evidence),
                _ => learnt.failed(at(n), terms, evidence, 0.0),
            };
            allowed.push(learnt.allowed(at(n), terms, Millis(0)));
        }
        allowed
    }

    #[test]
    fn recoveries_double_failures_halve_and_a_failed_canary_holds() {
        for (start, most, outcomes, expected) in [
            (1, 100, "++++++++", vec![2, 4, 8, 16, 32, 64, 100, 100]),
            (1, 1, "+++", vec![1, 1, 1]),
            (3, 10, "++", vec![6, 10]),
            // Worse than half of the last ten.
            (1, 100, "++++-----", vec![2, 4, 8, 16, 8, 4, 2, 1, 0]),
            // The canary fails.
            (1, 100, "-", vec![0]),
            // The first of four canaries may fail, the second may not.
            (4, 100, "--", vec![4, 0]),
            (4, 100, "-+-", vec![4, 8, 0]),
            // Once proven, a failure more or less is chance, also where one at a time may go.
            (1, 100, "+----++++++-", vec![2, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 32]),
            (1, 100, "+----++-", vec![2, 1, 1, 1, 1, 2, 4, 0]),
            (1, 1, "+----", vec![1, 1, 1, 1, 1]),
            (1, 1, "+-----", vec![1, 1, 1, 1, 1, 0]),
            // A long window does not pay for what fails now.
            (
                1,
                64,
                "+++++++++++++++++++++------",
                vec![
                    2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 32, 16, 8, 4, 2, 0,
                ],
            ),
        ] {
            let terms = terms(start, most);
            assert_eq!(play(&mut Learnt::default(), &terms, 1, outcomes), expected, "{start} {most} {outcomes}");
        }
    }

    #[test]
    fn pauses_begin_with_the_age_and_double_up_to_the_longest() {
        for (age, longest, dice, expected) in [
            (10_000, 60_000, 0.0, [10_000, 20_000, 40_000, 60_000, 60_000]),
            (10_000, 60_000, 1.0, [11_000, 22_000, 44_000, 60_000, 60_000]),
            (10_000, 60_000, 9.0, [11_000, 22_000, 44_000, 60_000, 60_000]),
            (0, 60_000, 0.0, [1_000, 2_000, 4_000, 8_000, 16_000]),
            (100, 100, 1.0, [1_000, 1_000, 1_000, 1_000, 1_000]),
        ] {
            let (min_age, max_backoff) = (Duration::from_millis(age), Duration::from_millis(longest));
            let terms = Terms { min_age, max_backoff, ..terms(1, 100) };
            let (mut learnt, mut now) = (Learnt::default(), Millis(NOW));
            for (n, pause) in (1..).zip(expected) {
                let until = Millis(now.0 + pause);
                let evidence = Evidence { sent_at: now, ..sent(learnt.round(), 0) };
                assert_eq!(learnt.failed(now, &terms, evidence, dice), Some(Hold::Begun { until }), "{age} {n}");
                assert_eq!((learnt.failures(), learnt.round()), (n, u64::from(n) + 1));
                assert_eq!(learnt.allowed(Millis(until.0 - 1), &terms, Millis(0)), 0);
                assert_eq!(learnt.held_until(Millis(until.0 - 1), &terms), Some(until));
                assert_eq!(learnt.allowed(until, &terms, Millis(0)), 1, "a canary when the pause has passed");
                now = until;
            }
            let evidence = Evidence { sent_at: now, ..sent(learnt.round(), 0) };
            assert_eq!(learnt.recovered(now, &terms, evidence), None, "there was no hold to lift");
            assert_eq!((learnt.failures(), learnt.pause), (0, 0));
        }
    }

    #[test]
    fn what_was_sent_before_a_hold_says_little() {
        let terms = terms(1, 100);
        let mut held = Learnt::default();
        held.failed(at(5), &terms, sent(1, 4), 0.0);
        let failing = Evidence { was_failing: true, ..sent(1, 4) };
        let cases = [
            ("recovered", sent(1, 4), at(6), None),
            ("recovered after failing", failing, at(6), Some(Hold::Lifted)),
            ("recovered after failing, seen when the hold began", failing, at(5), None),
            ("recovered in the round of the hold", sent(2, 6), at(7), Some(Hold::Lifted)),
            ("recovered after the hold", sent(2, 16), at(17), None),
        ];
        for (name, evidence, now, expected) in cases {
            let mut learnt = held.clone();
            assert_eq!(learnt.recovered(now, &terms, evidence), expected, "{name}");
            if name.ends_with("hold") || expected.is_some() {
                assert!(learnt.is_proven(now, &terms, Millis(0)), "{name}");
                assert_eq!(learnt.allowed(now, &terms, Millis(0)), 2, "{name}");
            } else {
                assert_eq!(learnt, held, "{name}");
            }
        }
        let mut learnt = held.clone();
        assert_eq!(learnt.failed(at(6), &terms, sent(1, 4), 0.0), None);
        assert_eq!(learnt, held, "a failure of an earlier round is no news");
    }

    #[test]
    fn what_was_learnt_counts_until_it_is_old_or_doubted() {
        let terms = terms(2, 100);
        let mut learnt = Learnt::default();
        play(&mut learnt, &terms, 1, "+++");
        for (now, since, allowed, proven) in [
            (at(3), Millis(0), 16, true),
            (at(63), Millis(0), 16, true),
            (Millis(at(63).0 + 1), Millis(0), 2, false),
            (at(4), at(2), 16, true),
            (at(4), at(3), 2, false),
            // The clock has stepped back a little; and so far that what is stored cannot be.
            (at(-30), Millis(0), 16, true),
            (at(-300), Millis(0), 2, false),
        ] {
            assert_eq!(learnt.allowed(now, &terms, since), allowed, "{now:?} {since:?}");
            assert_eq!(learnt.is_proven(now, &terms, since), proven, "{now:?} {since:?}");
        }
        let patient = Terms { min_age: Duration::from_secs(600), ..terms.clone() };
        assert_eq!(learnt.allowed(at(603), &patient, Millis(0)), 16, "no younger job can be due");

        // One that was sent while it counted goes on from there, however long it has run; one sent later begins anew.
        let (mut long, mut later) = (learnt.clone(), learnt.clone());
        long.recovered(at(600), &terms, sent(1, 60));
        assert_eq!(long.allowed(at(600), &terms, Millis(0)), 32);
        later.recovered(at(600), &terms, sent(1, 90));
        assert_eq!(later.allowed(at(600), &terms, Millis(0)), 4);
        // What was sent before the doubt teaches nothing.
        let doubted = Evidence { since: at(60), ..sent(1, 60) };
        assert_eq!(learnt.clone().recovered(at(61), &terms, doubted), None);
        assert!(!learnt.clone().is_proven(at(61), &terms, at(60)));
    }

    #[test]
    fn pauses_are_forgotten_a_day_after_the_last_hold() {
        let terms = terms(1, 100);
        let day = 24 * 3_600;
        for (canary, pause) in [(day + 10, 40_000), (day + 40, 10_000)] {
            let mut learnt = Learnt::default();
            learnt.failed(at(1), &terms, sent(1, 0), 0.0);
            learnt.failed(at(12), &terms, sent(2, 11), 0.0);
            let hold = learnt.failed(at(canary), &terms, sent(3, canary - 1), 0.0);
            assert_eq!(hold, Some(Hold::Begun { until: Millis(at(canary).0 + pause) }), "{canary}");
        }
    }

    #[test]
    fn a_hold_that_the_terms_cannot_make_is_none() {
        let mut learnt = Learnt::default();
        let long =
            Terms { min_age: Duration::from_secs(3_600), max_backoff: Duration::from_secs(3_600), ..terms(1, 9) };
        learnt.failed(at(0), &long, Evidence { sent_at: at(-1), ..sent(1, 0) }, 0.0);
        assert_eq!(learnt.allowed(at(1), &long, Millis(0)), 0);
        assert_eq!(learnt.held_until(at(-50), &long), Some(at(3_600)), "the clock has stepped back");
        assert_eq!(learnt.held_until(at(1), &terms(1, 9)), None, "the rule has become less patient");
        assert_eq!(learnt.allowed(at(1), &terms(1, 9), Millis(0)), 1);
    }

    #[test]
    fn it_is_kept_for_as_long_as_it_says_something() {
        let terms = terms(1, 100);
        let confirm = terms.confirm_within.as_secs().cast_signed();
        let mut learnt = Learnt::default();
        learnt.recovered(at(1), &terms, sent(1, 0));
        assert_eq!(learnt.keep_until(&terms), at(1 + 60 + confirm));
        let mut learnt = Learnt::default();
        learnt.failed(at(1), &terms, sent(1, 0), 0.0);
        assert_eq!(learnt.keep_until(&terms), at(1 + 10 + 24 * 3_600));
    }

    #[test]
    fn rubbish_is_a_fresh_start_and_wild_numbers_are_tamed() {
        for json in [
            None,
            Some(""),
            Some("null"),
            Some("[]"),
            Some("\"x\""),
            Some("{\"allowed\":-1}"),
            Some("{\"allowed\":1e99}"),
            Some("{\"window\":7}"),
            Some("{\"round\":0,\"allowed\":0,\"window\":{\"size\":0},\"unknown\":[1]}"),
        ] {
            assert_eq!(Learnt::read(json), Learnt::default(), "{json:?}");
        }
        let wild = format!(
            "{{\"allowed\":{0},\"round\":{1},\"failures\":{0},\"pause\":{2},\"held_until\":{2},\"held_at\":{2},\
             \"last\":{2},\"recovered\":{2},\"window\":{{\"size\":{0},\"good\":{0},\"bad\":{0}}}}}",
            u32::MAX,
            u64::MAX,
            i64::MAX
        );
        let terms = terms(1, 100);
        let mut learnt = Learnt::read(Some(&wild));
        assert_eq!(learnt.allowed(at(0), &terms, Millis(0)), 1);
        let round = learnt.round();
        learnt.failed(at(1), &terms, sent(round, 0), 1.0);
        assert_eq!(learnt.held_until(at(1), &terms), Some(at(61)));
        assert_eq!(Learnt::read(Some(&learnt.to_json())), learnt);
    }
}
