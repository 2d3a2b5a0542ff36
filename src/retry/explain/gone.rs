//! Entries that have left the DLQ.

use super::{Explanation, Facts, State, moment::moment};
use crate::ledger::{AuditLine, Flight, Pool, Verdict, Whereabouts};

/// What the audit log calls a retry.
const RETRIED: &str = "retried";
/// What it calls a second entry of one job that was taken away.
const TWIN_REMOVED: &str = "twin_removed";
/// What it calls an entry that a person took away.
const REMOVED: &str = "removed";
/// What it calls the end of an allowance.
const EXHAUSTED: &str = "exhausted";

pub(super) fn explain(facts: &Facts<'_>) -> Explanation {
    if let Some(flight) = facts.flight.filter(|flight| flight.dead.entry_id == facts.entry_id) {
        return in_flight(facts, flight);
    }
    let of_this = |what: &str| facts.audit.iter().position(|line| line.what == what && line.entry_id == facts.entry_id);
    if let Some(at) = of_this(RETRIED) {
        return retried(facts, at);
    }
    if let Some(at) = of_this(TWIN_REMOVED) {
        return twin(facts, at);
    }
    if let Some(line) = of_this(REMOVED).map(|at| &facts.audit[at]) {
        let sentence = format!("It was removed by {} at {}.", line.by, moment(facts.now, line.at));
        return gone(State::Removed, sentence, None);
    }
    let sentence = "It is not in the DLQ, and as far as the audit log reaches Sexton did not take it out: a person or \
                    another program has retried or removed it."
        .to_owned();
    gone(State::Removed, sentence, None)
}

/// A second entry of a job that was retried from another one, whose removal is line `at` of the log.
fn twin(facts: &Facts<'_>, at: usize) -> Explanation {
    let line = &facts.audit[at];
    // The retry may have been long before, if this entry was read late; and the log may not reach so far.
    let retry = facts.audit[at..].iter().find(|earlier| earlier.what == RETRIED && earlier.job_id == line.job_id);
    let retried = match retry {
        Some(retry) => format!("by {} from {} at {}", retry.by, retry.entry_id, moment(facts.now, retry.at)),
        None => "from another one".to_owned(),
    };
    let sentence = format!(
        "It was a second entry of a job that was retried {retried}, and was removed at {} so that the job does not run \
         twice.",
        moment(facts.now, line.at),
    );
    gone(State::Superseded, sentence, rule_of(line))
}

/// A job that is on its way, told of the entry that was retried.
fn in_flight(facts: &Facts<'_>, flight: &Flight) -> Explanation {
    let sentence = match by_rule(flight) {
        Some(rule) => format!("Rule {rule} {}.", under_way(facts, flight)),
        None => format!("A person {}.", under_way(facts, flight)),
    };
    gone(state_of(flight), sentence, by_rule(flight).map(str::to_owned))
}

/// The rule that has sent it, if it was a rule.
pub(super) fn by_rule(flight: &Flight) -> Option<&str> {
    Some(flight.place.pool.rule()).filter(|rule| *rule != Pool::BY_HAND)
}

pub(super) fn state_of(flight: &Flight) -> State {
    if flight.failing { State::Failing } else { State::InFlight }
}

/// `put it back on its queue at …, and …`
pub(super) fn under_way(facts: &Facts<'_>, flight: &Flight) -> String {
    let news = match (flight.failing, &flight.at) {
        (true, _) => "it has failed at least once since, so that the framework will try it again",
        (false, Whereabouts::Queue(_)) => "it waits there or runs",
        (false, Whereabouts::Clock(_)) => "the framework has put it off, for no worker that saw it could run it",
    };
    format!(
        "put it back on its queue at {}, and {news}; a verdict is awaited until {}",
        moment(facts.now, flight.sent_at),
        moment(facts.now, flight.confirm_by),
    )
}

/// An entry whose retry is line `at` of the log.
fn retried(facts: &Facts<'_>, at: usize) -> Explanation {
    let line = &facts.audit[at];
    // What came of it stands above it, up to the job's next retry.
    let later = facts.audit[..at].iter().rev().filter(|later| later.job_id == line.job_id);
    let outcomes: Vec<&AuditLine> = later.take_while(|later| later.what != RETRIED).collect();
    let last = |what: &str| outcomes.iter().rev().find(|outcome| outcome.what == what);
    let verdict = |verdict: Verdict| last(verdict.as_str()).map(|line| moment(facts.now, line.at));
    let (state, news) = if let Some(when) = verdict(Verdict::Recovered) {
        (State::Recovered, format!("the job ran through, as was seen at {when}"))
    } else if let Some(when) = verdict(Verdict::ReDied) {
        let end = match last(EXHAUSTED) {
            Some(_) => "its allowance is spent, and its new entry in the DLQ waits for a person",
            None => "its new entry in the DLQ has an explanation of its own",
        };
        (State::ReDied, format!("the job died again, as was seen at {when}: {end}"))
    } else if let Some(when) = verdict(Verdict::LostSight) {
        (State::LostSight, format!("no verdict was seen until {when}, so nobody can say what became of the job"))
    } else if verdict(Verdict::Failing).is_some() {
        (State::Failing, "the job has failed at least once since; the log says no more".to_owned())
    } else {
        (State::Retried, "the log does not say what became of the job".to_owned())
    };
    let sentence = format!("It was retried by {} at {}, and {news}.", line.by, moment(facts.now, line.at));
    gone(state, sentence, rule_of(line))
}

/// The rule that a line is about. Whoever does it by hand is called something that no rule can be.
fn rule_of(line: &AuditLine) -> Option<String> {
    Some(line.by.clone()).filter(|by| !by.contains(['@', ':']))
}

/// When a job was last retried, as far as the log reaches: `, the last at …`.
pub(super) fn last_retry(facts: &Facts<'_>) -> String {
    let line = facts.audit.iter().find(|line| line.what == RETRIED);
    line.map(|line| format!(", the last at {}", moment(facts.now, line.at))).unwrap_or_default()
}

fn gone(state: State, sentence: String, rule: Option<String>) -> Explanation {
    Explanation { state, sentence, rule, next_at: None }
}
