//! An explanation as people read it: one sentence, and the facts below it.

use std::io::{self, Write};

use crate::{
    cli::{
        io::Io,
        text::{count, counted, cut_line, line, when, when_or_until},
    },
    triage::Account,
};

/// Lines of the audit log that the text shows.
const LINES: usize = 10;
/// Characters of a line's detail that the text shows.
const LONGEST_DETAIL: usize = 200;

/// Writes it for people: the sentence first, alone in its line.
pub(super) fn write(account: &Account, io: &mut Io<'_>) -> io::Result<()> {
    let (out, shown) = (&mut *io.out, &account.seen);
    let dash = |text: &Option<String>| text.as_deref().map_or("-".into(), |text| line(text).into_owned());
    writeln!(out, "{}\n", line(&account.sentence))?;
    let entry = format!("{}/{}", account.source, line(&account.entry_id));
    match shown.died {
        Some(died) => row(out, "entry", &format!("{entry}, died {}", when(shown.now, died)))?,
        None => row(out, "entry", &format!("{entry}, not in the DLQ"))?,
    }
    if account.job_id.is_some() || account.in_dlq {
        row(out, "job", &format!("{}, task {}", dash(&account.job_id), dash(&account.task)))?;
    }
    row(out, "state", account.state)?;
    row(out, "rule", &dash(&account.rule))?;
    if let Some(retries) = account.retries {
        let of = account.max_retries.map(|most| format!(" of {}", count(most.into()))).unwrap_or_default();
        let deaths = match account.deaths.unwrap_or(0) {
            0 => "its deaths are not counted yet".to_owned(),
            deaths => counted(deaths.into(), "death", "deaths"),
        };
        row(out, "retries", &format!("{}{of} made by Sexton; {deaths}", count(retries.into())))?;
    }
    if let Some(next) = shown.next {
        row(out, "next", &when_or_until(shown.now, next))?;
    }
    if account.group.is_some() {
        let held = shown.held.map(|held| format!(", on hold until {}", when_or_until(shown.now, held)));
        row(out, "group", &format!("{}{}", dash(&account.group), held.unwrap_or_default()))?;
    }
    match &shown.queue {
        Some((queue, Some(length))) => {
            row(out, "queue", &format!("{}, {}", line(queue), counted(*length, "entry", "entries")))?;
        }
        Some((queue, None)) => row(out, "queue", &format!("{}, which does not exist", line(queue)))?,
        None => {}
    }
    if account.in_dlq {
        row(out, "leader", &shown.leader.as_deref().map_or("nobody leads".into(), line))?;
    }
    match (account.rules_in_force, shown.any_rules) {
        (Some(false), false) => row(out, "rules", "no leader has taken these rules yet")?,
        (Some(false), true) => {
            row(out, "rules", "not those in force: the leader has not read these yet, or was given others")?;
        }
        (Some(true) | None, _) => {}
    }
    write_log(account, out)
}

fn write_log(account: &Account, out: &mut dyn Write) -> io::Result<()> {
    let shown = &account.seen;
    let mut name = "audit";
    for (said, at) in account.audit.iter().zip(&shown.at).take(LINES) {
        let other = match said.entry_id == account.entry_id {
            true => String::new(),
            false => format!(", entry {}", line(&said.entry_id)),
        };
        let detail = said.detail.as_deref().map(|detail| format!(" ({})", cut_line(detail, LONGEST_DETAIL)));
        let what = format!("{} by {}{other}{}", line(&said.what), line(&said.by), detail.unwrap_or_default());
        row(out, name, &format!("{}  {what}", when(shown.now, *at)))?;
        name = "";
    }
    let more = account.audit.len().saturating_sub(LINES) as u64;
    if more > 0 {
        row(out, "", &format!("and {} before these", counted(more, "line", "lines")))?;
    }
    let searched = counted(shown.searched, "line", "lines");
    let back_to = shown.back_to.map(|at| format!(", back to {}", when(shown.now, at))).unwrap_or_default();
    if shown.searched == 0 {
        row(out, name, "the log is empty")?;
    } else if account.audit.is_empty() {
        row(out, name, &format!("nothing about it in the newest {searched}{back_to}"))?;
    } else if !account.audit_complete {
        row(out, "", &format!("no more in the newest {searched}{back_to}"))?;
    }
    if !shown.known {
        row(out, "", "an entry that never was looks the same: was it copied in full?")?;
    }
    Ok(())
}

fn row(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {name:<10}{value}")
}
