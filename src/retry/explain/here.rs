//! Entries that are in the DLQ.

use super::{
    Explanation, Facts, Here, State,
    gone::{by_rule, last_retry, state_of, under_way},
    moment::{counted, moment, written},
};
use crate::{
    ledger::{Place, Pool, Refusal},
    letter::Millis,
    rule::{Decision, Never, Terms},
};

pub(super) fn explain(facts: &Facts<'_>, here: &Here<'_>) -> Explanation {
    let (rule, terms) = match here.decision {
        Decision::Never(never) => return stays(State::NeverRetried, never_retried(never, here), None),
        Decision::NoRule => {
            return stays(State::NoRule, "No rule matches it, so it stays in the DLQ for a person.".to_owned(), None);
        }
        Decision::Leave(rule) => {
            let sentence = format!("Rule {} leaves it in the DLQ for a person (`action: leave`).", rule.name);
            return stays(State::Left, sentence, Some(&rule.name));
        }
        Decision::Retry(rule, terms) => (&rule.name, terms),
    };
    if let Some(flight) = facts.flight {
        let by = by_rule(flight).map_or_else(|| "a person".to_owned(), |by| format!("rule {by}"));
        let sentence = format!("Its job is already under way: {by} {}.", under_way(facts, flight));
        return stays(state_of(flight), sentence, Some(rule));
    }
    if let Some(newer) = here.newer {
        let sentence = format!("The same job has a newer entry in the DLQ, {newer}, which stands for it.");
        return stays(State::Superseded, sentence, Some(rule));
    }
    if facts.job.retries >= terms.max_retries {
        let granted = counted(u64::from(terms.max_retries), "retry", "retries");
        let had = facts.job.retries;
        let sentence = format!(
            "Rule {rule} grants a job {granted}, and this one has had {had}{}: it waits for a person.",
            last_retry(facts)
        );
        return stays(State::Exhausted, sentence, Some(rule));
    }
    if !here.judged && !here.led {
        let sentence = format!(
            "Nobody leads this source, so nothing is judged or retried until a sidecar runs; then rule {rule} would \
             retry it."
        );
        return stays(State::NobodyLeads, sentence, Some(rule));
    }
    if !here.judged {
        let sentence = format!(
            "Rule {rule} would retry it, but the leader has not judged it by these rules yet: it does so in the \
             background."
        );
        return stays(State::NotJudged, sentence, Some(rule));
    }
    match here.due {
        Some(due) => Waiting { facts, here, rule, terms, due }.explain(),
        None => not_waiting(here, rule),
    }
}

fn stays(state: State, sentence: String, rule: Option<&str>) -> Explanation {
    Explanation { state, sentence, rule: rule.map(str::to_owned), next_at: None }
}

fn never_retried(never: Never, here: &Here<'_>) -> String {
    match never {
        Never::Malformed => {
            "Its record cannot be read as a job, so no rule retries it: it waits for a person.".to_owned()
        }
        Never::Foreign => format!(
            "It comes from the foreign (broker-mode) stream {}, to which no rule puts anything back: it waits for a \
             person.",
            here.letter.origin
        ),
        Never::Shed => "An overfull queue has refused it, so no rule retries it: it waits for a person.".to_owned(),
    }
}

/// It is not in the due index although a rule would retry it.
fn not_waiting(here: &Here<'_>, rule: &str) -> Explanation {
    let (state, why) = match here.refusal {
        Some(Refusal::Malformed) => (State::NeverRetried, "the store could not read its record as a job"),
        Some(Refusal::ForeignStream) => (State::NeverRetried, "it comes from a foreign (broker-mode) stream"),
        Some(Refusal::AllowanceSpent) => (State::Exhausted, "its job has had all the retries that the rule grants"),
        Some(Refusal::Superseded) => (State::Superseded, "a newer entry of the same job stands for it"),
        _ => {
            let sentence = format!(
                "Rule {rule} would retry it, but it is not among the entries that wait: the leader works by other \
                 rules, or is about to judge it again."
            );
            return stays(State::NotJudged, sentence, Some(rule));
        }
    };
    let sentence = format!("Rule {rule} would retry it, but {why}: it waits for a person.");
    stays(state, sentence, Some(rule))
}

/// An entry in the due index.
struct Waiting<'a> {
    facts: &'a Facts<'a>,
    here: &'a Here<'a>,
    rule: &'a str,
    terms: &'a Terms,
    due: Millis,
}

impl Waiting<'_> {
    fn explain(&self) -> Explanation {
        let now = self.facts.now;
        if !self.here.led {
            let (at, _) = self.open_from(self.due.max(now));
            let sentence = format!(
                "Nobody leads this source, so nothing is retried until a sidecar runs; then rule {} retries it {}.",
                self.rule,
                if self.due > now { format!("from {} on", moment(now, self.due)) } else { "at once".to_owned() },
            );
            return self.waits(State::NobodyLeads, sentence, at);
        }
        if let Some((until, whose)) = self.held().filter(|(until, _)| *until > self.due) {
            let (at, window) = self.open_from(until);
            let sentence = format!(
                "{whose} on hold until {}{window}; then {} ahead, and the others follow when that recovers.",
                moment(now, until),
                match self.terms.pace.start {
                    1 => "one retry goes".to_owned(),
                    start => format!("{start} retries go"),
                },
            );
            return self.waits(State::Held, sentence, at);
        }
        if self.due > now {
            return self.later();
        }
        if let Some(window) = self.terms.window.as_ref().filter(|window| !window.is_open(now)) {
            return match window.opens_after(now) {
                Some(at) => {
                    let sentence = format!(
                        "It is due, but the window of rule {} (`{window}`) is closed until {}.",
                        self.rule,
                        moment(now, at)
                    );
                    self.waits(State::WindowClosed, sentence, at)
                }
                None => {
                    let sentence =
                        format!("It is due, but the window of rule {} (`{window}`) never opens again.", self.rule);
                    stays(State::WindowClosed, sentence, Some(self.rule))
                }
            };
        }
        match self.refused("is tried again in a moment") {
            Some((state, sentence)) => self.waits(state, sentence, self.due),
            None => self.its_turn(),
        }
    }

    /// It is not due yet: because it is young, or because it was put off.
    fn later(&self) -> Explanation {
        let (now, (at, window)) = (self.facts.now, self.open_from(self.due));
        let again = format!("is tried again at {}{window}", moment(now, self.due));
        if let Some((state, sentence)) = self.refused(&again) {
            return self.waits(state, sentence, at);
        }
        let retries = self.facts.job.retries;
        let sentence = format!(
            "It died at {}, and rule {} retries a job {} after that at the earliest: retry {} of {} is due at \
             {}{window}.",
            moment(now, self.here.letter.died_at),
            self.rule,
            written(self.terms.age_needed(retries)),
            retries.saturating_add(1),
            self.terms.max_retries,
            moment(now, self.due),
        );
        self.waits(State::TooYoung, sentence, at)
    }

    /// What the store refused it for when it was last its turn.
    fn refused(&self, again: &str) -> Option<(State, String)> {
        let origin = &self.here.letter.origin;
        let (state, why) = match self.here.refusal? {
            Refusal::QueueGone => (
                State::QueueGone,
                format!("its queue's stream {origin} does not exist, so no worker would ever see the job"),
            ),
            Refusal::QueueTooLong => (
                State::QueueTooLong,
                format!(
                    "its queue {origin} holds more than {} (`max_queue_length`)",
                    counted(self.terms.pace.max_queue_length, "entry", "entries")
                ),
            ),
            Refusal::DedupClaimed => {
                (State::DedupClaimed, "another job holds its dedup key, so a worker would drop it unrun".to_owned())
            }
            Refusal::InFlight => {
                (State::AwaitsTurn, "another retry of the same job had no verdict yet when it was its turn".to_owned())
            }
            Refusal::Stale => {
                (State::AwaitsTurn, "its job's count of retries had changed when it was its turn".to_owned())
            }
            Refusal::NotLeader => {
                (State::AwaitsTurn, "the lease passed to another replica when it was its turn".to_owned())
            }
            Refusal::EntryGone
            | Refusal::TooYoung
            | Refusal::AllowanceSpent
            | Refusal::Superseded
            | Refusal::ForeignStream
            | Refusal::Malformed
            | Refusal::Shed
            | Refusal::GroupHeld
            | Refusal::WindowClosed => return None,
        };
        Some((state, format!("Rule {} would retry it, but {why}; it {again}.", self.rule)))
    }

    /// Nothing stands in its way but the others.
    fn its_turn(&self) -> Explanation {
        let (now, here) = (self.facts.now, self.here);
        let pace = &self.terms.pace;
        let pool = Pool::of(self.rule, &here.letter.task);
        let place = Place { pool: pool.clone(), group: here.letter.group.0.clone() };
        let in_flight = here.aloft.of_rule(self.rule);
        if in_flight >= pace.max_in_flight {
            let sentence = format!(
                "It is due, and waits for its turn: rule {} has {} in flight, which is as many as it may \
                 (`max_in_flight`).",
                self.rule,
                counted(u64::from(in_flight), "retry", "retries"),
            );
            return self.waits(State::AwaitsTurn, sentence, self.due);
        }
        let (of_group, canaries) = (here.aloft.of_group(&place), here.aloft.canaries(&pool));
        if self.is_proven() {
            let sentence = format!(
                "It is due, and goes as soon as it is its turn: its group has {of_group} of at most {} in flight, and \
                 rule {} makes at most {} a second.",
                counted(u64::from(here.group.allowed(now, self.terms, here.pool.doubted_at())), "retry", "retries"),
                self.rule,
                counted(u64::from(pace.per_second), "retry", "retries"),
            );
            return self.waits(State::AwaitsTurn, sentence, self.due);
        }
        if canaries >= here.pool.allowed(now, self.terms) || of_group >= pace.start {
            let ahead = if of_group > 0 { "its group" } else { "its task" };
            let sentence = format!(
                "It is due, but nothing of its group has recovered lately, so it waits for the outcome of what rule {} \
                 has sent ahead of it: {} of {ahead} in flight.",
                self.rule,
                counted(u64::from(if of_group > 0 { of_group } else { canaries }), "retry", "retries"),
            );
            return stays(State::AwaitsCanary, sentence, Some(self.rule));
        }
        let sentence = format!(
            "It is due, and its group may send a retry ahead: it goes as soon as rule {} has its turn with it.",
            self.rule
        );
        self.waits(State::AwaitsTurn, sentence, self.due)
    }

    fn is_proven(&self) -> bool {
        self.here.group.is_proven(self.facts.now, self.terms, self.here.pool.doubted_at())
    }

    /// The hold that ends last, and whose it is.
    fn held(&self) -> Option<(Millis, String)> {
        let (now, here) = (self.facts.now, self.here);
        let failures = |count: u32| counted(u64::from(count.max(1)), "hold", "holds");
        let own = here.group.held_until(now, self.terms).map(|until| {
            let holds = failures(here.group.failures());
            (
                until,
                format!(
                    "Its retries under rule {} failed ({holds} since the last recovery), so its group is",
                    self.rule
                ),
            )
        });
        let pool = here.pool.held_until(now, self.terms).filter(|_| !self.is_proven()).map(|until| {
            let holds = failures(here.pool.canaries().failures());
            let whose = format!(
                "The last retries of its task under rule {} failed ({holds} since the last recovery), so each of the \
                 task's groups that has not recovered lately is",
                self.rule
            );
            (until, whose)
        });
        own.into_iter().chain(pool).max_by_key(|(until, _)| *until)
    }

    /// From when on the window is open at or after this moment, and a word on it if that is later.
    fn open_from(&self, at: Millis) -> (Millis, String) {
        let Some(window) = self.terms.window.as_ref().filter(|window| !window.is_open(at)) else {
            return (at, String::new());
        };
        match window.opens_after(at) {
            Some(opens) => {
                let when = moment(self.facts.now, opens);
                (opens, format!(", when its window (`{window}`) is closed until {when}"))
            }
            None => (at, format!(", when its window (`{window}`) is closed for good")),
        }
    }

    fn waits(&self, state: State, sentence: String, at: Millis) -> Explanation {
        Explanation { state, sentence, rule: Some(self.rule.to_owned()), next_at: Some(at) }
    }
}
