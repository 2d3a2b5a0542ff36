//! Every state with its sentence.

use std::{collections::HashSet, time::Duration};

use super::*;
use crate::{
    event::JobDead,
    ledger::{AuditLine, Flight, JobCounts, Place, Pool, Refusal, Rounds, Whereabouts},
    letter::{DeadLetter, ErrorInfo, Group, Reason, Verdict},
    retry::{Aloft, Evidence, Learnt, PoolLearnt},
    rule::{Action, Decision, Matcher, Never, RetryRule, Terms, Window, Zone},
};

/// 2027-01-15T08:00:00Z, a Friday.
const NOW: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;

fn at(minutes: i64) -> Millis {
    Millis(NOW + minutes * MINUTE)
}

fn letter() -> DeadLetter {
    DeadLetter {
        entry_id: "9-0".to_owned(),
        job_id: "j".to_owned(),
        task: "send_email".to_owned(),
        queue: "high".to_owned(),
        reason: Reason::MaxAttempts,
        error: ErrorInfo::default(),
        detail: Vec::new(),
        attempts: 3,
        deliveries: 1,
        history: Vec::new(),
        verdict: Verdict::Same,
        group: Group("7c1f0e9a2b44".to_owned()),
        enqueued_at: None,
        died_at: at(-5),
        traceparent: None,
        payload: Vec::new(),
        dedup: None,
        origin: "{lrs}:q:high:0".to_owned(),
        foreign: false,
    }
}

fn rule(terms: &Terms) -> RetryRule {
    let action = Action::Retry(Box::new(terms.clone()));
    RetryRule { name: "flaky".to_owned(), matcher: Matcher::default(), action }
}

fn flight(entry: &str, at_place: Whereabouts, failing: bool, canary: bool) -> Flight {
    Flight {
        place: Place { pool: Pool::of("flaky", "send_email"), group: "7c1f0e9a2b44".to_owned() },
        dead: JobDead { entry_id: entry.to_owned(), ..JobDead::default() },
        stream: String::new(),
        dedup: None,
        sent_at: at(-2),
        confirm_by: at(13),
        rounds: Rounds { canary, ..Rounds::default() },
        at: at_place,
        seen_at: at(-1),
        failing,
    }
}

fn line(what: &str, entry: &str, minutes: i64) -> AuditLine {
    AuditLine {
        at: at(minutes),
        what: what.to_owned(),
        by: "flaky".to_owned(),
        entry_id: entry.to_owned(),
        job_id: "j".to_owned(),
        ..AuditLine::default()
    }
}

/// Taught by these outcomes a minute ago.
fn taught(terms: &Terms, outcomes: &str) -> Learnt {
    let mut learnt = Learnt::default();
    for outcome in outcomes.chars() {
        let evidence = Evidence { round: learnt.round(), sent_at: at(-2), was_failing: false, since: Millis(0) };
        match outcome {
            '+' => learnt.recovered(at(-1), terms, evidence),
            _ => learnt.failed(at(-1), terms, evidence, 0.0),
        };
    }
    learnt
}

fn pool(canaries: &Learnt) -> PoolLearnt {
    PoolLearnt::read(Some(&format!(r#"{{"canaries":{}}}"#, canaries.to_json())))
}

/// What is known of an entry that waits; each case changes some of it.
#[derive(Clone)]
struct Case {
    terms: Terms,
    retries: u32,
    led: bool,
    judged: bool,
    due: Option<Millis>,
    newer: Option<&'static str>,
    refusal: Option<Refusal>,
    pool: PoolLearnt,
    group: Learnt,
    flight: Option<Flight>,
    aloft: Vec<Flight>,
    audit: Vec<AuditLine>,
}

fn case() -> Case {
    Case {
        terms: Terms::default(),
        retries: 0,
        led: true,
        judged: true,
        due: Some(at(5)),
        newer: None,
        refusal: None,
        pool: PoolLearnt::default(),
        group: Learnt::default(),
        flight: None,
        aloft: Vec::new(),
        audit: Vec::new(),
    }
}

/// Explains it as an entry in the DLQ, or as one that has left it.
fn say(case: &Case, here: bool, decision: Option<Decision<'_>>) -> Explanation {
    let (letter, rule, aloft) = (letter(), rule(&case.terms), Aloft::of(&case.aloft));
    let here = here.then(|| Here {
        letter: &letter,
        decision: decision.unwrap_or(Decision::Retry(&rule, &case.terms)),
        led: case.led,
        judged: case.judged,
        due: case.due,
        newer: case.newer,
        refusal: case.refusal,
        pool: &case.pool,
        group: &case.group,
        aloft: &aloft,
    });
    let explanation = explain(&Facts {
        now: at(0),
        entry_id: "9-0",
        job: JobCounts { deaths: case.retries + 1, retries: case.retries },
        flight: case.flight.as_ref(),
        audit: &case.audit,
        here,
    });
    let sentence = &explanation.sentence;
    assert!(
        sentence.ends_with('.') && !sentence.contains(". ") && !sentence.contains('\n'),
        "one sentence: {sentence}"
    );
    assert!(sentence.starts_with(|c: char| c.is_uppercase()) && !sentence.contains("  "), "{sentence}");
    explanation
}

/// Says it of an entry that is in the DLQ, and compares.
fn expect(case: &Case, state: State, next: Option<Millis>, sentence: &str) -> State {
    let said = say(case, true, None);
    assert_eq!((said.sentence.as_str(), said.state, said.next_at), (sentence, state, next));
    assert_eq!(said.rule.as_deref(), Some("flaky"));
    state
}

fn entries_no_rule_retries() -> Vec<State> {
    let leaves = RetryRule { action: Action::Leave, name: "bugs".to_owned(), ..rule(&Terms::default()) };
    let cases = [
        (
            Decision::Never(Never::Malformed),
            State::NeverRetried,
            "Its record cannot be read as a job, so no rule retries it: it waits for a person.",
        ),
        (
            Decision::Never(Never::Foreign),
            State::NeverRetried,
            "It comes from the foreign (broker-mode) stream {lrs}:q:high:0, to which no rule puts anything back: it \
             waits for a person.",
        ),
        (
            Decision::Never(Never::Shed),
            State::NeverRetried,
            "An overfull queue has refused it, so no rule retries it: it waits for a person.",
        ),
        (Decision::NoRule, State::NoRule, "No rule matches it, so it stays in the DLQ for a person."),
        (Decision::Leave(&leaves), State::Left, "Rule bugs leaves it in the DLQ for a person (`action: leave`)."),
    ];
    let states = cases.map(|(decision, state, sentence)| {
        let said = say(&case(), true, Some(decision));
        assert_eq!((said.sentence.as_str(), said.state, said.next_at), (sentence, state, None));
        assert_eq!(said.rule.as_deref(), if state == State::Left { Some("bugs") } else { None });
        state
    });
    states.to_vec()
}

fn entries_that_have_had_theirs() -> Vec<State> {
    let spent = Case { retries: 3, audit: vec![line("re_died", "7-0", -6), line("retried", "7-0", -8)], ..case() };
    let newer = Case { newer: Some("12-0"), ..case() };
    let twin = Case { flight: Some(flight("8-0", Whereabouts::Queue("1-0".to_owned()), false, true)), ..case() };
    let one = Case { terms: Terms { max_retries: 1, ..Terms::default() }, audit: Vec::new(), ..spent.clone() };
    vec![
        expect(
            &spent,
            State::Exhausted,
            None,
            "Rule flaky grants a job 3 retries, and this one has had 3, the last at 2027-01-15T07:52:00.000Z (8 \
             minutes ago): it waits for a person.",
        ),
        expect(
            &one,
            State::Exhausted,
            None,
            "Rule flaky grants a job 1 retry, and this one has had 3: it waits for a person.",
        ),
        expect(
            &newer,
            State::Superseded,
            None,
            "The same job has a newer entry in the DLQ, 12-0, which stands for it.",
        ),
        expect(
            &twin,
            State::InFlight,
            None,
            "Its job is already under way: rule flaky put it back on its queue at 2027-01-15T07:58:00.000Z (2 minutes \
             ago), and it waits there or runs; a verdict is awaited until 2027-01-15T08:13:00.000Z (in 13 minutes).",
        ),
    ]
}

fn entries_that_wait() -> Vec<State> {
    let working_hours = Window::parse("* 9-19 * * Mon-Fri", Zone::named("Europe/Berlin").unwrap()).unwrap();
    let in_hours = Terms { window: Some(working_hours.clone()), ..Terms::default() };
    let evening = Terms { window: Window::parse("* 20 * * *", Zone::UTC).ok(), ..Terms::default() };
    let terms = Terms::default();
    let due = Some(at(-1));
    let (failed, failed_twice) = (taught(&terms, "-"), pool(&taught(&terms, "--")));
    let canary = flight("8-0", Whereabouts::Queue("1-0".to_owned()), false, true);
    let few = Terms { pace: crate::rule::Pace { max_in_flight: 1, ..terms.pace }, ..terms.clone() };
    vec![
        expect(
            &Case { judged: false, due: None, ..case() },
            State::NotJudged,
            None,
            "Rule flaky would retry it, but the leader has not judged it by these rules yet: it does so in the \
             background.",
        ),
        expect(
            &Case { due: None, ..case() },
            State::NotJudged,
            None,
            "Rule flaky would retry it, but it is not among the entries that wait: the leader works by other rules, or \
             is about to judge it again.",
        ),
        expect(
            &Case { led: false, judged: false, due: None, ..case() },
            State::NobodyLeads,
            None,
            "Nobody leads this source, so nothing is judged or retried until a sidecar runs; then rule flaky would \
             retry it.",
        ),
        expect(
            &Case { led: false, ..case() },
            State::NobodyLeads,
            Some(at(5)),
            "Nobody leads this source, so nothing is retried until a sidecar runs; then rule flaky retries it from \
             2027-01-15T08:05:00.000Z (in 5 minutes) on.",
        ),
        expect(
            &Case { led: false, due, ..case() },
            State::NobodyLeads,
            Some(at(0)),
            "Nobody leads this source, so nothing is retried until a sidecar runs; then rule flaky retries it at once.",
        ),
        expect(
            &case(),
            State::TooYoung,
            Some(at(5)),
            "It died at 2027-01-15T07:55:00.000Z (5 minutes ago), and rule flaky retries a job 10m after that at the \
             earliest: retry 1 of 3 is due at 2027-01-15T08:05:00.000Z (in 5 minutes).",
        ),
        expect(
            &Case { retries: 2, due: Some(at(40)), terms: evening, ..case() },
            State::TooYoung,
            Some(at(12 * 60)),
            "It died at 2027-01-15T07:55:00.000Z (5 minutes ago), and rule flaky retries a job 40m after that at the \
             earliest: retry 3 of 3 is due at 2027-01-15T08:40:00.000Z (in 40 minutes), when its window (`* 20 * * * \
             (UTC)`) is closed until 2027-01-15T20:00:00.000Z (in 12 hours).",
        ),
        expect(
            &Case { group: failed.clone(), due, ..case() },
            State::Held,
            Some(at(9)),
            "Its retries under rule flaky failed (1 hold since the last recovery), so its group is on hold until \
             2027-01-15T08:09:00.000Z (in 9 minutes); then one retry goes ahead, and the others follow when that \
             recovers.",
        ),
        expect(
            &Case { group: failed, pool: failed_twice.clone(), ..case() },
            State::Held,
            Some(at(19)),
            "The last retries of its task under rule flaky failed (2 holds since the last recovery), so each of the \
             task's groups that has not recovered lately is on hold until 2027-01-15T08:19:00.000Z (in 19 minutes); \
             then one retry goes ahead, and the others follow when that recovers.",
        ),
        expect(
            &Case { pool: failed_twice.clone(), due: Some(at(20)), ..case() },
            State::TooYoung,
            Some(at(20)),
            "It died at 2027-01-15T07:55:00.000Z (5 minutes ago), and rule flaky retries a job 10m after that at the \
             earliest: retry 1 of 3 is due at 2027-01-15T08:20:00.000Z (in 20 minutes).",
        ),
        expect(
            &Case { terms: in_hours, due: Some(at(-1)), ..case() },
            State::AwaitsTurn,
            Some(at(-1)),
            "It is due, and its group may send a retry ahead: it goes as soon as rule flaky has its turn with it.",
        ),
        expect(
            &Case {
                terms: Terms { window: Window::parse("30 8 * * *", Zone::UTC).ok(), ..terms.clone() },
                due,
                ..case()
            },
            State::WindowClosed,
            Some(at(30)),
            "It is due, but the window of rule flaky (`30 8 * * * (UTC)`) is closed until 2027-01-15T08:30:00.000Z (in \
             30 minutes).",
        ),
        expect(
            &Case { aloft: vec![canary.clone()], due, ..case() },
            State::AwaitsCanary,
            None,
            "It is due, but nothing of its group has recovered lately, so it waits for the outcome of what rule flaky \
             has sent ahead of it: 1 retry of its group in flight.",
        ),
        expect(
            &Case {
                aloft: vec![Flight {
                    place: Place { group: "other".to_owned(), ..canary.place.clone() },
                    ..canary.clone()
                }],
                due,
                ..case()
            },
            State::AwaitsCanary,
            None,
            "It is due, but nothing of its group has recovered lately, so it waits for the outcome of what rule flaky \
             has sent ahead of it: 1 retry of its task in flight.",
        ),
        expect(
            &Case { terms: few, aloft: vec![canary.clone()], due, ..case() },
            State::AwaitsTurn,
            due,
            "It is due, and waits for its turn: rule flaky has 1 retry in flight, which is as many as it may \
             (`max_in_flight`).",
        ),
        expect(
            &Case { group: taught(&terms, "++"), pool: failed_twice, aloft: vec![canary], due, ..case() },
            State::AwaitsTurn,
            due,
            "It is due, and goes as soon as it is its turn: its group has 1 of at most 4 retries in flight, and rule \
             flaky makes at most 50 retries a second.",
        ),
    ]
}

fn entries_that_were_refused() -> Vec<State> {
    let again = "it is tried again at 2027-01-15T08:05:00.000Z (in 5 minutes).";
    let mut states = Vec::new();
    for refusal in Refusal::ALL {
        let (state, why) = match refusal {
            Refusal::QueueGone => (
                State::QueueGone,
                "its queue's stream {lrs}:q:high:0 does not exist, so no worker would ever see the job",
            ),
            Refusal::QueueTooLong => {
                (State::QueueTooLong, "its queue {lrs}:q:high:0 holds more than 10000 entries (`max_queue_length`)")
            }
            Refusal::DedupClaimed => {
                (State::DedupClaimed, "another job holds its dedup key, so a worker would drop it unrun")
            }
            Refusal::InFlight => {
                (State::AwaitsTurn, "another retry of the same job had no verdict yet when it was its turn")
            }
            Refusal::Stale => (State::AwaitsTurn, "its job's count of retries had changed when it was its turn"),
            Refusal::NotLeader => (State::AwaitsTurn, "the lease passed to another replica when it was its turn"),
            // What is no longer true, or is seen without being told, is not repeated.
            _ => {
                let said = say(&Case { refusal: Some(refusal), ..case() }, true, None);
                assert_eq!(said, say(&case(), true, None), "{refusal:?}");
                continue;
            }
        };
        let put_off = Case { refusal: Some(refusal), ..case() };
        states.push(expect(&put_off, state, Some(at(5)), &format!("Rule flaky would retry it, but {why}; {again}")));
        let now = Case { due: Some(at(-1)), ..put_off };
        let sentence = format!("Rule flaky would retry it, but {why}; it is tried again in a moment.");
        states.push(expect(&now, state, Some(at(-1)), &sentence));
    }
    for (refusal, state, why) in [
        (Refusal::Malformed, State::NeverRetried, "the store could not read its record as a job"),
        (Refusal::ForeignStream, State::NeverRetried, "it comes from a foreign (broker-mode) stream"),
        (Refusal::AllowanceSpent, State::Exhausted, "its job has had all the retries that the rule grants"),
        (Refusal::Superseded, State::Superseded, "a newer entry of the same job stands for it"),
    ] {
        let out_of_the_index = Case { refusal: Some(refusal), due: None, ..case() };
        let sentence = format!("Rule flaky would retry it, but {why}: it waits for a person.");
        states.push(expect(&out_of_the_index, state, None, &sentence));
    }
    states
}

fn entries_that_are_gone() -> Vec<State> {
    let retried = "It was retried by flaky at 2027-01-15T07:52:00.000Z (8 minutes ago), and";
    let seen = "as was seen at 2027-01-15T07:54:00.000Z (6 minutes ago)";
    let queue = || Whereabouts::Queue("1-0".to_owned());
    let lines = |whats: &[(&str, &str)]| whats.iter().map(|(what, entry)| line(what, entry, -6)).collect::<Vec<_>>();
    let mut states = Vec::new();
    // What the log says after the retry, newest first.
    for (later, state, sentence) in [
        (vec![("recovered", "9-0")], State::Recovered, format!("{retried} the job ran through, {seen}.")),
        (
            vec![("recovered", "9-0"), ("failing", "9-0")],
            State::Recovered,
            format!("{retried} the job ran through, {seen}."),
        ),
        (
            vec![("re_died", "9-0"), ("failing", "9-0")],
            State::ReDied,
            format!("{retried} the job died again, {seen}: its new entry in the DLQ has an explanation of its own."),
        ),
        (
            vec![("re_died", "9-0"), ("exhausted", "10-0")],
            State::ReDied,
            format!(
                "{retried} the job died again, {seen}: its allowance is spent, and its new entry in the DLQ waits for \
                 a person."
            ),
        ),
        (
            vec![("recovered", "10-0"), ("retried", "10-0"), ("re_died", "9-0")],
            State::ReDied,
            format!("{retried} the job died again, {seen}: its new entry in the DLQ has an explanation of its own."),
        ),
        (
            vec![("lost_sight", "9-0")],
            State::LostSight,
            format!(
                "{retried} no verdict was seen until 2027-01-15T07:54:00.000Z (6 minutes ago), so nobody can say what \
                 became of the job."
            ),
        ),
        (
            vec![("failing", "9-0")],
            State::Failing,
            format!("{retried} the job has failed at least once since; the log says no more."),
        ),
        (vec![], State::Retried, format!("{retried} the log does not say what became of the job.")),
    ] {
        let audit = [lines(&later), vec![line("retried", "9-0", -8), line("re_died", "7-0", -9)]].concat();
        let said = say(&Case { audit, ..case() }, false, None);
        assert_eq!((said.sentence.as_str(), said.state, said.next_at), (sentence.as_str(), state, None));
        assert_eq!(said.rule.as_deref(), Some("flaky"));
        states.push(state);
    }
    let put_back = "Rule flaky put it back on its queue at 2027-01-15T07:58:00.000Z (2 minutes ago), and";
    let awaited = "a verdict is awaited until 2027-01-15T08:13:00.000Z (in 13 minutes).";
    let clock = Whereabouts::Clock("unknown:j:3".to_owned());
    for (flight, state, news) in [
        (flight("9-0", queue(), false, true), State::InFlight, "it waits there or runs"),
        (
            flight("9-0", clock.clone(), false, true),
            State::InFlight,
            "the framework has put it off, for no worker that saw it could run it",
        ),
        (
            flight("9-0", clock, true, true),
            State::Failing,
            "it has failed at least once since, so that the framework will try it again",
        ),
    ] {
        let said = say(&Case { flight: Some(flight), audit: vec![line("retried", "9-0", -2)], ..case() }, false, None);
        assert_eq!((said.sentence, said.state), (format!("{put_back} {news}; {awaited}"), state));
        states.push(state);
    }
    let mut by_hand = flight("9-0", queue(), false, false);
    by_hand.place.pool = Pool::of(Pool::BY_HAND, "send_email");
    let said = say(&Case { flight: Some(by_hand.clone()), ..case() }, false, None);
    assert!(said.sentence.starts_with("A person put it back on its queue at"), "{}", said.sentence);
    assert_eq!((said.state, said.rule), (State::InFlight, None));
    let said = say(&Case { flight: Some(by_hand), ..case() }, true, None);
    assert!(said.sentence.starts_with("Its job is already under way: a person put it"), "{}", said.sentence);
    let anna = |what| AuditLine { by: "anna@host".to_owned(), ..line(what, "9-0", -8) };
    let said = say(&Case { audit: vec![anna("retried")], ..case() }, false, None);
    assert_eq!((said.state, said.rule), (State::Retried, None));
    let said = say(&Case { audit: vec![anna("twin_removed")], ..case() }, false, None);
    assert_eq!((said.state, said.rule), (State::Superseded, None));
    let removed = "It is not in the DLQ, and as far as the audit log reaches Sexton did not take it out: a person or \
                   another program has retried or removed it.";
    for (audit, state, sentence) in [
        (
            // The job's next retry, the removal, the retry that it goes back to, and one before that.
            vec![
                line("retried", "11-0", -7),
                line("twin_removed", "9-0", -8),
                AuditLine { job_id: "another".to_owned(), ..line("retried", "7-0", -9) },
                line("retried", "10-0", -10),
                line("retried", "8-0", -20),
            ],
            State::Superseded,
            "It was a second entry of a job that was retried by flaky from 10-0 at 2027-01-15T07:50:00.000Z (10 minutes \
             ago), and was removed at 2027-01-15T07:52:00.000Z (8 minutes ago) so that the job does not run twice.",
        ),
        (
            vec![line("twin_removed", "9-0", -8)],
            State::Superseded,
            "It was a second entry of a job that was retried from another one, and was removed at \
             2027-01-15T07:52:00.000Z (8 minutes ago) so that the job does not run twice.",
        ),
        (vec![], State::Removed, removed),
        (vec![line("retried", "8-0", -8)], State::Removed, removed),
        (
            vec![anna("removed")],
            State::Removed,
            "It was removed by anna@host at 2027-01-15T07:52:00.000Z (8 minutes ago).",
        ),
    ] {
        // A flight of the same job from another entry is another story.
        let said = say(&Case { audit, flight: Some(flight("8-0", queue(), false, true)), ..case() }, false, None);
        assert_eq!((said.sentence.as_str(), said.state), (sentence, state));
        states.push(state);
    }
    states
}

#[test]
fn every_state_has_its_sentence() {
    let said = [
        entries_no_rule_retries(),
        entries_that_have_had_theirs(),
        entries_that_wait(),
        entries_that_were_refused(),
        entries_that_are_gone(),
    ];
    let said: HashSet<State> = said.into_iter().flatten().collect();
    let untold: Vec<State> = State::ALL.into_iter().filter(|state| !said.contains(state)).collect();
    assert_eq!(untold, []);
    let names: HashSet<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(names.len(), State::ALL.len());
}

#[test]
fn ages_of_rules_are_written_as_in_the_rules() {
    let terms = Terms { min_age: Duration::from_secs(90), ..Terms::default() };
    assert!(say(&Case { terms, ..case() }, true, None).sentence.contains("retries a job 1m 30s after that"));
}
