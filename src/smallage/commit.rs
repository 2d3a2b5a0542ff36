//! Committing what was read of the DLQ, with what the rules plan for it.

use super::{
    Smallage,
    connection::{Arg, KeyList},
    ingest::count,
    plans::{Plans, retries_planned},
    reply::Reply,
    store::{AUDIT_LINES, REMEMBER_JOBS},
    tail::Kept,
};
use crate::{
    clock::millis,
    event::Lane,
    ledger::{Commit, Committed, Death, ExistingStep, JobCounts, Lease, OutboxId, PlanEnd, Result},
};

/// How `deaths` and `retries` stand in an event until the commit's script fills them in.
const HOLE: &str = r#""deaths":0,"retries":0"#;
/// What of the hole belongs in front of the first number.
const HOLE_HEAD: &str = r#""deaths":"#;

/// What a commit writes of the existing entries: the word, its data, its time.
struct Step {
    word: &'static str,
    data: String,
    at: i64,
}

impl Smallage {
    pub(super) async fn commit_batch(&self, lease: &Lease, commit: Commit) -> Result<PlanEnd<Committed>> {
        let step = match &commit.existing {
            None => Step { word: "", data: String::new(), at: 0 },
            Some(ExistingStep::Counting(tally)) => Step { word: "counting", data: tally.to_json(), at: 0 },
            Some(ExistingStep::Done(None)) => Step { word: "done", data: String::new(), at: 0 },
            Some(ExistingStep::Done(Some(digest))) => {
                Step { word: "done", data: digest.to_json(), at: self.clock.now().0 }
            }
        };
        let end = if commit.generation == 0 {
            self.commit_deaths(lease, &commit, &step).await.map(PlanEnd::Stands)
        } else {
            self.commit_plans(lease, &commit, &step).await
        }?;
        let (mut committed, places) = match end {
            PlanEnd::Stands(stands) => stands,
            PlanEnd::Stale(counts) => return Ok(PlanEnd::Stale(counts)),
        };
        // The first is that of the event before.
        committed.told = places.split(' ').skip(1).last().and_then(|place| place.parse().ok());
        self.has_seen_event(committed.told);
        let told = commit.deaths.iter().any(|death| death.event.is_some());
        self.keep(&places, &committed.jobs, commit.deaths);
        // These come last.
        if step.word == "done" || !committed.exhausted.is_empty() {
            self.outbox_grew(Lane::Deaths);
        } else if told {
            self.outbox_changed(Lane::Deaths);
        }
        Ok(PlanEnd::Stands(committed))
    }

    /// Keeps the events of a commit at hand. `places` has that of the event before them, and then theirs.
    fn keep(&self, places: &str, jobs: &[JobCounts], deaths: Vec<Death>) {
        let mut places = places.split(' ').map(str::parse::<OutboxId>);
        let Some(Ok(mut before)) = places.next() else { return };
        let mut tail = self.tail();
        let told = deaths.into_iter().zip(jobs).filter_map(|(death, counts)| Some((death.event?, death.at, *counts)));
        for ((data, at, counts), id) in told.zip(places) {
            let Ok(id) = id else { return };
            tail.push(Kept { before, id, at, data, counts });
            before = id;
        }
    }

    /// Where there are no rules: the least that a commit costs.
    async fn commit_deaths(&self, lease: &Lease, commit: &Commit, step: &Step) -> Result<(Committed, String)> {
        let deaths = &commit.deaths;
        let token = lease.token();
        let (lease_key, state, outbox) = (self.keys.lease(), self.keys.state(), self.keys.outbox(Lane::Deaths));
        let job_keys: Vec<String> =
            deaths.iter().filter(|death| !death.job_id.is_empty()).map(|death| self.keys.job(&death.job_id)).collect();
        let mut keys: Vec<&str> = vec![&lease_key, &state, &outbox];
        keys.extend(job_keys.iter().map(String::as_str));
        let mut args = first_args(&token, commit, step);
        for death in deaths {
            let (head, tail) = death.event.as_deref().map_or(("", ""), split_at_hole);
            args.extend([
                Arg::Text(if death.job_id.is_empty() { "0" } else { "1" }),
                Arg::Int(death.at.0),
                Arg::Text(head),
                Arg::Text(tail),
                Arg::Text(&death.entry_id),
            ]);
        }
        let answer = self.commands.run_script(&self.scripts.commit, &keys, &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let (outbox_len, places) = (reply.number()?, reply.text()?);
        Ok((Committed { jobs: jobs_of(reply, deaths)?, outbox_len, ..Committed::default() }, places))
    }

    async fn commit_plans(&self, lease: &Lease, commit: &Commit, step: &Step) -> Result<PlanEnd<(Committed, String)>> {
        let deaths = &commit.deaths;
        let token = lease.token();
        let mut keys = KeyList::new(vec![
            self.keys.lease(),
            self.keys.state(),
            self.keys.outbox(Lane::Deaths),
            self.keys.dlq(),
            self.keys.audit(),
        ]);
        let plans = Plans::of(deaths.iter().map(|death| (&*death.entry_id, &*death.job_id, death.plan.as_ref())));
        let mut args = first_args(&token, commit, step);
        args.extend([Arg::count(commit.generation), Arg::Int(AUDIT_LINES), Arg::place(deaths.len())]);
        for death in deaths {
            let (head, tail) = death.event.as_deref().map_or(("", ""), split_at_hole);
            let job = if death.job_id.is_empty() { Arg::Int(0) } else { keys.number(self.keys.job(&death.job_id)) };
            args.extend([
                Arg::Text(&death.entry_id),
                job,
                Arg::Int(death.at.0),
                Arg::Text(head),
                Arg::Text(tail),
                retries_planned(death.plan.as_ref()),
            ]);
        }
        plans.args(&self.keys, commit.generation, &mut keys, &mut args);
        let answer = self.commands.run_script(&self.scripts.commit_plans, &keys.as_strs(), &args).await?;
        let mut reply = match Reply::of_plans(answer)? {
            PlanEnd::Stands(reply) => reply,
            PlanEnd::Stale(counts) => return Ok(PlanEnd::Stale(counts)),
        };
        let outbox_len = reply.number()?;
        let jobs = jobs_of(Reply::array(reply.next()?)?, deaths)?;
        let (exhausted, elsewhere) = (reply.numbers()?, reply.numbers()?);
        let places = reply.text()?;
        Ok(PlanEnd::Stands((Committed { jobs, outbox_len, exhausted, elsewhere, ..Committed::default() }, places)))
    }
}

fn first_args<'a>(token: &'a str, commit: &'a Commit, step: &'a Step) -> Vec<Arg<'a>> {
    vec![
        Arg::Text(token),
        Arg::Text(&commit.from.0),
        Arg::Text(&commit.to.0),
        Arg::Int(millis(REMEMBER_JOBS)),
        Arg::Text(step.word),
        Arg::Text(&step.data),
        Arg::Int(step.at),
    ]
}

/// The counts of each death; only those that are no first ones are told.
fn jobs_of(mut told: Reply, deaths: &[Death]) -> Result<Vec<JobCounts>> {
    let mut jobs = vec![JobCounts { deaths: 1, retries: 0 }; deaths.len()];
    while told.len() >= 3 {
        let (index, deaths, retries) = (told.number()?, told.number()?, told.number()?);
        if let Some(job) = usize::try_from(index).ok().and_then(|index| jobs.get_mut(index)) {
            *job = JobCounts { deaths: count(deaths), retries: count(retries) };
        }
    }
    Ok(jobs)
}

/// The event's JSON around the values of `deaths` and `retries`. Quotes inside a text are escaped in JSON, so the hole
/// cannot be found anywhere but where it is.
fn split_at_hole(json: &str) -> (&str, &str) {
    match json.rfind(HOLE) {
        Some(at) => (&json[..at + HOLE_HEAD.len()], &json[at + HOLE.len()..]),
        None => (json, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ErrorText, JobDead};

    #[test]
    fn the_counts_go_where_they_belong_whatever_the_texts_say() {
        let event = JobDead {
            error: ErrorText { kind: Some(HOLE.to_owned()), message: Some(format!("{HOLE},")) },
            traceparent: Some(HOLE.to_owned()),
            attempt_errors: Some(vec![HOLE.to_owned()]),
            ..JobDead::default()
        };
        let json = event.to_json();
        let (head, tail) = split_at_hole(&json);
        let filled = format!(r#"{head}7,"retries":2{tail}"#);
        let back: JobDead = serde_json::from_str(&filled).unwrap();
        assert_eq!(back, JobDead { deaths: 7, retries: 2, ..event });
    }
}
