//! Reads for people: the overview, pages of the DLQ, single entries, job records. Nothing here writes.

use redis::{Value, cmd, pipe};

use super::{
    Smallage,
    ingest::{count, id_time},
    lease::parse_token,
    record,
    reply::{self, Reply},
};
use crate::{
    event::Lane,
    ledger::{DlqPage, JobCounts, Ledger as _, Overview, RawLetter, Result},
};

impl Smallage {
    pub(super) async fn look_over(&self) -> Result<Overview> {
        let dlq = self.keys.dlq();
        let mut commands = pipe();
        commands
            .cmd("TIME")
            .cmd("XLEN")
            .arg(&dlq)
            .cmd("XRANGE")
            .arg(&dlq)
            .arg("-")
            .arg("+")
            .arg("COUNT")
            .arg(1)
            .cmd("XREVRANGE")
            .arg(&dlq)
            .arg("+")
            .arg("-")
            .arg("COUNT")
            .arg(1)
            .cmd("HMGET")
            .arg(self.keys.state())
            .arg("seen")
            .arg("deaths")
            .cmd("GET")
            .arg(self.keys.lease());
        for lane in Lane::ALL {
            commands.cmd("XLEN").arg(self.keys.outbox(lane));
        }
        let mut reply = Reply::array(Value::Array(self.commands.run_all(&commands).await?))?;
        self.clock.set(Reply::array(reply.next()?)?.time()?);
        let entries = reply.number()?;
        let (oldest, newest) = (reply::entries(reply.next()?)?, reply::entries(reply.next()?)?);
        let mut state = Reply::array(reply.next()?)?;
        let (seen, deaths) = (reply::number(&state.next()?), reply::number(&state.next()?));
        let leader = match reply.next()? {
            Value::Nil => None,
            token => Some(parse_token(&reply::text(&token).unwrap_or_default())?),
        };
        let outbox = [reply.number()?, reply.number()?];
        // XINFO fails where there is no DLQ yet, which is no trouble.
        let added =
            if entries == 0 && newest.is_empty() { seen.unwrap_or(0) } else { self.entries_added(&dlq).await? };
        Ok(Overview {
            entries,
            oldest: oldest.first().and_then(|(id, _)| id_time(id)),
            newest: newest.first().and_then(|(id, _)| id_time(id)),
            added,
            lag: seen.map(|seen| added.saturating_sub(seen)),
            deaths: deaths.unwrap_or(0),
            leader,
            outbox,
        })
    }

    async fn entries_added(&self, dlq: &str) -> Result<u64> {
        let mut info = Reply::array(self.commands.run(cmd("XINFO").arg("STREAM").arg(dlq)).await?)?;
        while info.len() >= 2 {
            let (name, value) = (info.text()?, info.next()?);
            if name == "entries-added" {
                return Ok(reply::number(&value).unwrap_or(0));
            }
        }
        Ok(0)
    }

    pub(super) async fn one_entry(&self, entry_id: &str) -> Result<Option<RawLetter>> {
        // What is no stream id is no entry, rather than an error of Redis.
        if !self.is_entry_id(entry_id) {
            return Ok(None);
        }
        let answer = self.commands.run(cmd("XRANGE").arg(self.keys.dlq()).arg(entry_id).arg(entry_id)).await?;
        Ok(reply::entries(answer)?
            .into_iter()
            .next()
            .map(|(id, fields)| RawLetter { letter: record::decode(&self.keys, &id, fields.clone()), fields }))
    }

    pub(super) async fn page_of_dlq(&self, before: Option<&str>, max: usize) -> Result<DlqPage> {
        let from = before.map_or_else(|| "+".to_owned(), |before| format!("({before}"));
        let mut command = cmd("XREVRANGE");
        command.arg(self.keys.dlq()).arg(from).arg("-").arg("COUNT").arg(max);
        let entries = reply::entries(self.commands.run(&command).await?)?;
        let next = (entries.len() == max).then(|| entries.last().map(|(id, _)| id.clone())).flatten();
        let letters = entries.into_iter().map(|(id, fields)| record::decode(&self.keys, &id, fields)).collect();
        Ok(DlqPage { letters, next })
    }

    pub(super) async fn job_counts(&self, job_ids: &[String]) -> Result<Vec<JobCounts>> {
        let mut commands = pipe();
        for id in job_ids {
            commands.cmd("HMGET").arg(self.keys.job(id)).arg("deaths").arg("retries");
        }
        let answers = self.commands.read_all(&commands).await?;
        answers
            .into_iter()
            .map(|answer| {
                let mut pair = Reply::list(answer)?;
                if pair.len() == 0 {
                    return Ok(JobCounts::default());
                }
                let mut one = || Ok(count(reply::number(&pair.next()?).unwrap_or(0)));
                Ok(JobCounts { deaths: one()?, retries: one()? })
            })
            .collect()
    }
}
