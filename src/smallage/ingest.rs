//! Reading the DLQ in order and committing what was read.

use std::{sync::atomic::Ordering, time::Duration};

use redis::cmd;

use super::{
    Smallage,
    connection::Arg,
    record,
    reply::{self, Reply},
    store::{LONGEST_BLOCK, REMEMBER_JOBS},
};
use crate::{
    clock::millis,
    event::{Lane, Tally},
    ledger::{
        AttachOptions, Attached, Batch, Commit, Committed, Cursor, Existing, ExistingStep, JobCounts, Lease, Loss,
        Result, Survey,
    },
    letter::Millis,
};

/// How `deaths` and `retries` stand in an event until the commit's script fills them in.
const HOLE: &str = r#""deaths":0,"retries":0"#;
/// What of the hole belongs in front of the first number.
const HOLE_HEAD: &str = r#""deaths":"#;

impl Smallage {
    pub(super) async fn attach_dlq(&self, lease: &Lease, options: AttachOptions) -> Result<Attached> {
        let flag = |set: bool| Arg::Text(if set { "1" } else { "0" });
        let new_uid = format!("{:08x}", fastrand::u32(..));
        let answer = self
            .commands
            .run_script(
                &self.scripts.attach,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.dlq()],
                &[
                    Arg::Text(&lease.token()),
                    flag(options.announce_existing),
                    flag(options.seen_before),
                    Arg::Text(&new_uid),
                ],
            )
            .await?;
        let mut reply = Reply::of_script(answer)?;
        self.set_uid(reply.text()?);
        let cursor = Cursor(reply.text()?);
        let (until, tally, loss) = (reply.text()?, reply.text()?, reply.text()?);
        let dlq_exists = reply.number()? == 1;
        let existing = (!until.is_empty()).then(|| Existing {
            until: Cursor(until),
            // A tally that this build cannot read begins anew: the count is then too low, but nothing is lost.
            tally: serde_json::from_str::<Tally>(&tally).unwrap_or_default(),
        });
        let loss = match loss.as_str() {
            "ledger" => Some(Loss::Ledger),
            "cursor" => Some(Loss::CursorAhead),
            _ => None,
        };
        Ok(Attached { cursor, existing, loss, dlq_exists })
    }

    pub(super) async fn read_dlq(&self, after: &Cursor, max: usize, block: Option<Duration>) -> Result<Batch> {
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(max);
        if let Some(block) = block {
            // BLOCK 0 would wait for ever.
            command.arg("BLOCK").arg(millis(block.min(LONGEST_BLOCK)).max(1));
        }
        command.arg("STREAMS").arg(self.keys.dlq()).arg(&after.0);
        // A read that was abandoned while it blocked is still under way on its connection.
        if self.reading.swap(true, Ordering::Relaxed) {
            self.reads.close().await;
        }
        let answer = self.reads.run(&command).await;
        self.reading.store(false, Ordering::Relaxed);
        let entries = reply::read_entries(answer?)?;
        let caught_up = entries.len() < max;
        let cursor = entries.last().map_or_else(|| after.clone(), |(id, _)| Cursor(id.clone()));
        let mut heaviest = 0;
        let letters = entries
            .into_iter()
            .map(|(id, fields)| {
                heaviest = heaviest.max(fields.iter().map(|(name, value)| name.len() + value.len()).sum());
                record::decode(&self.keys, &id, fields)
            })
            .collect();
        Ok(Batch { letters, cursor, heaviest, caught_up })
    }

    pub(super) async fn commit_batch(&self, lease: &Lease, commit: Commit) -> Result<Committed> {
        let Commit { from, to, deaths, existing, .. } = commit;
        let token = lease.token();
        let (lease_key, state, outbox) = (self.keys.lease(), self.keys.state(), self.keys.outbox(Lane::Deaths));
        let job_keys: Vec<String> =
            deaths.iter().filter(|death| !death.job_id.is_empty()).map(|death| self.keys.job(&death.job_id)).collect();
        let (step, step_data, step_at) = match existing {
            None => ("", String::new(), 0),
            Some(ExistingStep::Counting(tally)) => ("counting", tally.to_json(), 0),
            Some(ExistingStep::Done(None)) => ("done", String::new(), 0),
            Some(ExistingStep::Done(Some(digest))) => ("done", digest.to_json(), self.clock.now().0),
        };
        let mut keys: Vec<&str> = vec![&lease_key, &state, &outbox];
        keys.extend(job_keys.iter().map(String::as_str));
        let mut args = vec![
            Arg::Text(&token),
            Arg::Text(&from.0),
            Arg::Text(&to.0),
            Arg::Int(millis(REMEMBER_JOBS)),
            Arg::Text(step),
            Arg::Text(&step_data),
            Arg::Int(step_at),
        ];
        for death in &deaths {
            let (head, tail) = death.event.as_deref().map_or(("", ""), split_at_hole);
            args.extend([
                Arg::Text(if death.job_id.is_empty() { "0" } else { "1" }),
                Arg::Int(death.at.0),
                Arg::Text(head),
                Arg::Text(tail),
            ]);
        }
        let answer = self.commands.run_script(&self.scripts.commit, &keys, &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let outbox_len = reply.number()?;
        let mut jobs = vec![JobCounts { deaths: 1, retries: 0 }; deaths.len()];
        while reply.len() >= 3 {
            let (index, deaths, retries) = (reply.number()?, reply.number()?, reply.number()?);
            if let Some(job) = usize::try_from(index).ok().and_then(|index| jobs.get_mut(index)) {
                *job = JobCounts { deaths: count(deaths), retries: count(retries) };
            }
        }
        if step == "done" || deaths.iter().any(|death| death.event.is_some()) {
            self.outbox_grew(Lane::Deaths);
        }
        Ok(Committed { jobs, outbox_len, ..Committed::default() })
    }

    pub(super) async fn check_cursor(&self, lease: &Lease, cursor: &Cursor) -> Result<()> {
        let answer = self
            .commands
            .run_script(
                &self.scripts.check,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.dlq()],
                &[Arg::Text(&lease.token()), Arg::Text(&cursor.0)],
            )
            .await?;
        Reply::of_script(answer).map(|_| ())
    }

    pub(super) async fn survey_dlq(&self, lease: &Lease) -> Result<Survey> {
        let answer = self
            .commands
            .run_script(
                &self.scripts.survey,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.dlq()],
                &[Arg::Text(&lease.token())],
            )
            .await?;
        let mut reply = Reply::of_script(answer)?;
        self.clock.set(reply.time()?);
        let (entries, added, first) = (reply.number()?, reply.number()?, reply.text()?);
        Ok(Survey {
            entries,
            oldest: id_time(&first),
            added,
            lag: reply.number()?,
            unseen: reply.number()?,
            in_flight: 0,
        })
    }
}

/// The time in a stream id.
pub(super) fn id_time(id: &str) -> Option<Millis> {
    id.split('-').next()?.parse().ok().map(Millis)
}

pub(super) fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
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
