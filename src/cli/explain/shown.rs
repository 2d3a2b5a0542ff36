//! An explanation as it is shown: one sentence and the facts, or JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::gather::{Around, Entry, explanation, refusal_of};
use crate::{
    cli::{
        io::Io,
        text::{count, counted, cut_line, line, when, when_or_until},
    },
    event::{rfc3339, text},
    ledger::{AuditLine, Refusal},
    letter::Millis,
    rule::{Action, Decision, Rules, Terms},
};

/// Lines of the audit log that the text shows.
const LINES: usize = 10;
/// Characters of a line's detail that the text shows.
const LONGEST_DETAIL: usize = 200;

/// What is said of an entry. Its fields are those of the JSON form.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    source: String,
    entry_id: String,
    job_id: Option<String>,
    task: Option<String>,
    group: Option<String>,
    in_dlq: bool,
    died_at: Option<String>,
    state: &'static str,
    sentence: String,
    rule: Option<String>,
    /// When it is retried, if nothing comes in between.
    next_at: Option<String>,
    /// As the ledger knows its job; none if its job is not known.
    deaths: Option<u32>,
    retries: Option<u32>,
    max_retries: Option<u32>,
    held_until: Option<String>,
    refusal: Option<&'static str>,
    /// Whether the ledger works by the rules that were looked at here; none of what has left the DLQ.
    rules_in_force: Option<bool>,
    led: bool,
    audit: Vec<LineShown>,
    audit_complete: bool,
    #[serde(skip)]
    shown: Shown,
}

/// What only the text shows, or shows otherwise.
#[derive(Debug)]
struct Shown {
    now: Millis,
    died: Option<Millis>,
    next: Option<Millis>,
    held: Option<Millis>,
    leader: Option<String>,
    /// The queue it came from and its length, if a rule retries it.
    queue: Option<(String, Option<u64>)>,
    at: Vec<Millis>,
    /// Whether the ledger works by any rules.
    any_rules: bool,
    searched: u64,
    back_to: Option<Millis>,
    known: bool,
}

#[derive(Debug, Serialize)]
struct LineShown {
    at: Option<String>,
    what: String,
    by: String,
    entry_id: String,
    job_id: Option<String>,
    task: Option<String>,
    detail: Option<String>,
    note: Option<String>,
}

impl LineShown {
    fn of(line: &AuditLine) -> LineShown {
        LineShown {
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
            audit: entry.log.lines.iter().map(LineShown::of).collect(),
            audit_complete: entry.log.complete,
            sentence: said.sentence,
            shown: Shown {
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

    /// Writes it for people: the sentence first, alone in its line.
    pub(super) fn write(&self, io: &mut Io<'_>) -> io::Result<()> {
        let (out, shown) = (&mut *io.out, &self.shown);
        let dash = |text: &Option<String>| text.as_deref().map_or("-".into(), |text| line(text).into_owned());
        writeln!(out, "{}\n", line(&self.sentence))?;
        let entry = format!("{}/{}", self.source, line(&self.entry_id));
        match shown.died {
            Some(died) => row(out, "entry", &format!("{entry}, died {}", when(shown.now, died)))?,
            None => row(out, "entry", &format!("{entry}, not in the DLQ"))?,
        }
        if self.job_id.is_some() || self.in_dlq {
            row(out, "job", &format!("{}, task {}", dash(&self.job_id), dash(&self.task)))?;
        }
        row(out, "state", self.state)?;
        row(out, "rule", &dash(&self.rule))?;
        if let Some(retries) = self.retries {
            let of = self.max_retries.map(|most| format!(" of {}", count(most.into()))).unwrap_or_default();
            let deaths = match self.deaths.unwrap_or(0) {
                0 => "its deaths are not counted yet".to_owned(),
                deaths => counted(deaths.into(), "death", "deaths"),
            };
            row(out, "retries", &format!("{}{of} made by Sexton; {deaths}", count(retries.into())))?;
        }
        if let Some(next) = shown.next {
            row(out, "next", &when_or_until(shown.now, next))?;
        }
        if self.group.is_some() {
            let held = shown.held.map(|held| format!(", on hold until {}", when_or_until(shown.now, held)));
            row(out, "group", &format!("{}{}", dash(&self.group), held.unwrap_or_default()))?;
        }
        match &shown.queue {
            Some((queue, Some(length))) => {
                row(out, "queue", &format!("{}, {}", line(queue), counted(*length, "entry", "entries")))?;
            }
            Some((queue, None)) => row(out, "queue", &format!("{}, which does not exist", line(queue)))?,
            None => {}
        }
        if self.in_dlq {
            row(out, "leader", &shown.leader.as_deref().map_or("nobody leads".into(), line))?;
        }
        match (self.rules_in_force, shown.any_rules) {
            (Some(false), false) => row(out, "rules", "no leader has taken these rules yet")?,
            (Some(false), true) => {
                row(out, "rules", "not those in force: the leader has not read these yet, or was given others")?;
            }
            (Some(true) | None, _) => {}
        }
        self.write_log(out)
    }

    fn write_log(&self, out: &mut dyn Write) -> io::Result<()> {
        let shown = &self.shown;
        let mut name = "audit";
        for (said, at) in self.audit.iter().zip(&shown.at).take(LINES) {
            let other = match said.entry_id == self.entry_id {
                true => String::new(),
                false => format!(", entry {}", line(&said.entry_id)),
            };
            let detail = said.detail.as_deref().map(|detail| format!(" ({})", cut_line(detail, LONGEST_DETAIL)));
            let what = format!("{} by {}{other}{}", line(&said.what), line(&said.by), detail.unwrap_or_default());
            row(out, name, &format!("{}  {what}", when(shown.now, *at)))?;
            name = "";
        }
        let more = self.audit.len().saturating_sub(LINES) as u64;
        if more > 0 {
            row(out, "", &format!("and {} before these", counted(more, "line", "lines")))?;
        }
        let searched = counted(shown.searched, "line", "lines");
        let back_to = shown.back_to.map(|at| format!(", back to {}", when(shown.now, at))).unwrap_or_default();
        if shown.searched == 0 {
            row(out, name, "the log is empty")?;
        } else if self.audit.is_empty() {
            row(out, name, &format!("nothing about it in the newest {searched}{back_to}"))?;
        } else if !self.audit_complete {
            row(out, "", &format!("no more in the newest {searched}{back_to}"))?;
        }
        if !shown.known {
            row(out, "", "an entry that never was looks the same: was it copied in full?")?;
        }
        Ok(())
    }
}

/// The terms of the rule with this name.
fn terms_of<'r>(rules: &'r Rules, name: &str) -> Option<&'r Terms> {
    match &rules.named(name)?.action {
        Action::Retry(terms) => Some(terms),
        Action::Leave => None,
    }
}

fn row(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {name:<10}{value}")
}
