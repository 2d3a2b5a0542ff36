//! What is said of an entry, with the facts: one value for the text, for JSON and for HTTP.

use serde::Serialize;
use utoipa::ToSchema;

use super::gather::{Around, Entry, explanation, refusal_of};
use crate::{
    event::{rfc3339, text},
    ledger::{AuditLine, Refusal},
    letter::Millis,
    rule::{Action, Decision, Rules, Terms},
};

/// What is said of an entry. Its fields are those of the JSON form; times are RFC 3339 in UTC.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Account {
    /// The source's name.
    pub source: String,
    /// The entry.
    pub entry_id: String,
    /// Its job, if that is known.
    pub job_id: Option<String>,
    /// The task.
    pub task: Option<String>,
    /// The fingerprint.
    pub group: Option<String>,
    /// Whether it is in the DLQ.
    pub in_dlq: bool,
    /// When it was buried, if it is in the DLQ.
    pub died_at: Option<String>,
    /// [`crate::retry::State`] by name.
    pub state: &'static str,
    /// Why, and when, in one sentence.
    pub sentence: String,
    /// The rule that decides about it, or that retried it.
    pub rule: Option<String>,
    /// When it is retried, if nothing comes in between.
    pub next_at: Option<String>,
    /// Deaths, as the ledger knows its job; none if its job is not known.
    pub deaths: Option<u32>,
    /// Retries by Sexton, likewise.
    pub retries: Option<u32>,
    /// What its rule grants the job.
    pub max_retries: Option<u32>,
    /// Its group, or its pool, is on hold until then.
    pub held_until: Option<String>,
    /// Why a retry would be refused now.
    pub refusal: Option<&'static str>,
    /// Whether the ledger works by the rules that were looked at here; none of what has left the DLQ.
    pub rules_in_force: Option<bool>,
    /// Somebody leads.
    pub led: bool,
    /// The audit log's lines about it and its job, newest first.
    pub audit: Vec<AccountLine>,
    /// False if the search ended before the log did.
    pub audit_complete: bool,
    /// What a text shows beside these, or shows otherwise.
    #[serde(skip)]
    pub seen: Seen,
}

/// What only a text shows, or shows otherwise.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The store's time.
    pub now: Millis,
    /// As `died_at`.
    pub died: Option<Millis>,
    /// As `next_at`.
    pub next: Option<Millis>,
    /// As `held_until`.
    pub held: Option<Millis>,
    /// Who leads.
    pub leader: Option<String>,
    /// The queue it came from and its length, if a rule retries it.
    pub queue: Option<(String, Option<u64>)>,
    /// The times of the lines in `audit`.
    pub at: Vec<Millis>,
    /// Whether the ledger works by any rules.
    pub any_rules: bool,
    /// Lines of the audit log that were looked at.
    pub searched: u64,
    /// The oldest of them.
    pub back_to: Option<Millis>,
    /// Anything is known of the entry at all.
    pub known: bool,
}

/// A line of the audit log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AccountLine {
    /// When.
    pub at: Option<String>,
    /// What was done or found.
    pub what: String,
    /// The rule, or who did it by hand.
    pub by: String,
    /// The entry.
    pub entry_id: String,
    /// Its job.
    pub job_id: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// More.
    pub detail: Option<String>,
    /// What the person who did it wrote to it.
    pub note: Option<String>,
}

impl AccountLine {
    fn of(line: &AuditLine) -> AccountLine {
        AccountLine {
            at: rfc3339(line.at),
            what: line.what.clone(),
            by: line.by.clone(),
            entry_id: line.entry_id.clone(),
            job_id: text(&line.job_id),
            task: text(&line.task),
            detail: text(&line.detail),
            note: text(&line.note),
        }
    }
}

impl Account {
    /// Of an entry, by what was gathered.
    pub(super) fn of(source: &str, rules: &Rules, entry: &Entry, around: Option<&Around>) -> Account {
        let said = explanation(source, rules, entry, around);
        let letter = entry.letter.as_ref();
        let flight = entry.flight();
        let terms = match letter.map(|letter| rules.decide(source, letter)) {
            Some(Decision::Retry(_, terms)) => Some(terms),
            Some(_) => None,
            None => said.rule.as_deref().and_then(|rule| terms_of(rules, rule)),
        };
        let held = around.zip(terms).and_then(|(around, terms)| around.held_until(entry.now, terms));
        let task = match (letter, flight) {
            (Some(letter), _) => Some(letter.task.clone()),
            (None, Some(flight)) => flight.dead.task.clone(),
            (None, None) => entry.log.lines.first().map(|line| line.task.clone()),
        };
        let group = letter.map(|letter| letter.group.0.clone()).or(flight.map(|flight| flight.place.group.clone()));
        let job_known = !entry.job_id.is_empty();
        let queue = around.zip(letter).filter(|_| terms.is_some());
        Account {
            source: source.to_owned(),
            entry_id: entry.entry_id.clone(),
            job_id: text(&entry.job_id),
            task: task.as_deref().and_then(text),
            group,
            in_dlq: letter.is_some(),
            died_at: letter.and_then(|letter| rfc3339(letter.died_at)),
            state: said.state.as_str(),
            rule: said.rule,
            next_at: said.next_at.and_then(rfc3339),
            deaths: job_known.then_some(entry.job.deaths),
            retries: job_known.then_some(entry.job.retries),
            max_retries: terms.map(|terms| terms.max_retries),
            held_until: held.and_then(rfc3339),
            refusal: refusal_of(said.state, letter.is_some(), rules, source, entry).map(Refusal::as_str),
            rules_in_force: around.map(|around| around.in_force),
            led: entry.overview.leader.is_some(),
            audit: entry.log.lines.iter().map(AccountLine::of).collect(),
            audit_complete: entry.log.complete,
            sentence: said.sentence,
            seen: Seen {
                now: entry.now,
                died: letter.map(|letter| letter.died_at),
                next: said.next_at,
                held,
                leader: entry.overview.leader.as_ref().map(|lease| lease.holder.clone()),
                queue: queue.map(|(around, letter)| (letter.origin.clone(), around.prospects.queue_length)),
                at: entry.log.lines.iter().map(|line| line.at).collect(),
                any_rules: around.is_some_and(|around| around.any_in_force),
                searched: entry.log.searched,
                back_to: entry.log.back_to,
                known: entry.is_known(),
            },
        }
    }
}

/// The terms of the rule with this name.
fn terms_of<'r>(rules: &'r Rules, name: &str) -> Option<&'r Terms> {
    match &rules.named(name)?.action {
        Action::Retry(terms) => Some(terms),
        Action::Leave => None,
    }
}
