//! The due index: what is due, and when it is looked at again.

use std::collections::BTreeMap;

use redis::{Value, cmd, pipe};

use super::{
    Smallage,
    connection::{Arg, KeyList},
    record,
    reply::{self, Reply},
};
use crate::{
    ledger::{DuePools, GroupView, Lease, Place, Pool, PoolView, Relook, Result, Standing, Waiting},
    letter::Millis,
};

impl Smallage {
    pub(super) async fn pools_due(&self, generation: u64, max: usize) -> Result<DuePools> {
        let mut commands = pipe();
        // One more than wanted tells when the next one is.
        commands.cmd("TIME").cmd("ZRANGE").arg(self.keys.due(generation)).arg(0).arg(max).arg("WITHSCORES");
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let now = Reply::array(answers.next()?)?.time()?;
        self.clock.set(now);
        let mut due = DuePools::default();
        for (pool, at) in scored(answers.next()?)? {
            if at <= now && due.pools.len() < max {
                due.pools.push(Pool(pool));
            } else {
                due.next = Some(at);
                break;
            }
        }
        Ok(due)
    }

    pub(super) async fn view_pool(&self, generation: u64, pool: &Pool, max: usize) -> Result<PoolView> {
        let mut commands = pipe();
        commands
            .cmd("TIME")
            .cmd("GET")
            .arg(self.keys.learnt(pool, None))
            .cmd("ZRANGE")
            .arg(self.keys.due_pool(generation, pool))
            .arg(0)
            .arg(max.saturating_sub(1))
            .arg("WITHSCORES");
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let now = Reply::array(answers.next()?)?.time()?;
        self.clock.set(now);
        let learnt = reply::text(&answers.next()?);
        let groups: Vec<String> =
            scored(answers.next()?)?.into_iter().filter(|(_, at)| *at <= now).map(|(group, _)| group).collect();

        let mut commands = pipe();
        for group in &groups {
            let place = Place { pool: pool.clone(), group: group.clone() };
            commands.cmd("ZCOUNT").arg(self.keys.due_group(generation, &place)).arg("-inf").arg(now.0);
            commands.cmd("GET").arg(self.keys.learnt(pool, Some(group)));
        }
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let view = |group| {
            let (due, learnt) = (answers.next()?, answers.next()?);
            Ok(GroupView { group, due: reply::number(&due).unwrap_or(0), learnt: reply::text(&learnt) })
        };
        Ok(PoolView { learnt, groups: groups.into_iter().map(view).collect::<Result<_>>()? })
    }

    pub(super) async fn entries_due(
        &self,
        generation: u64,
        pool: &Pool,
        groups: &[(String, usize)],
    ) -> Result<Vec<Vec<String>>> {
        let now = self.clock.now().0;
        let mut commands = pipe();
        for (group, max) in groups {
            let place = Place { pool: pool.clone(), group: group.clone() };
            commands.cmd("ZRANGEBYSCORE").arg(self.keys.due_group(generation, &place)).arg("-inf").arg(now);
            commands.arg("LIMIT").arg(0).arg(*max);
        }
        self.commands.read_all(&commands).await?.into_iter().map(texts).collect()
    }

    pub(super) async fn stand(&self, entries: &[String]) -> Result<Vec<Option<Standing>>> {
        let mut commands = pipe();
        for entry in entries {
            commands.cmd("XRANGE").arg(self.keys.dlq()).arg(entry).arg(entry);
        }
        let answers = self.commands.read_all(&commands).await?;
        let letters = answers
            .into_iter()
            .map(|answer| {
                let found = reply::entries(answer)?.into_iter().next();
                Ok(found.map(|(id, fields)| record::decode(&self.keys, &id, fields)))
            })
            .collect::<Result<Vec<_>>>()?;
        let job_ids: Vec<String> = letters.iter().flatten().map(|letter| letter.job_id.clone()).collect();
        let mut counts = self.job_counts(&job_ids).await?.into_iter();
        let mut standing = |letter| Standing { letter, job: counts.next().unwrap_or_default() };
        Ok(letters.into_iter().map(|letter| letter.map(&mut standing)).collect())
    }

    pub(super) async fn drop_entries(&self, lease: &Lease, generation: u64, entries: &[(Place, String)]) -> Result<()> {
        let token = lease.token();
        let mut keys = KeyList::new(vec![self.keys.lease(), self.keys.state()]);
        let mut args = vec![Arg::Text(&token), Arg::count(generation)];
        for (place, entry) in entries {
            args.extend([keys.number(self.keys.due_group(generation, place)), Arg::Text(entry)]);
        }
        let answer = self.commands.run_script(&self.scripts.drop_due, &keys.as_strs(), &args).await?;
        Reply::of_script(answer).map(|_| ())
    }

    pub(super) async fn look_again(&self, lease: &Lease, generation: u64, pool: &Pool, relook: &Relook) -> Result<()> {
        let token = lease.token();
        let time = |at: Option<Millis>| at.map_or(Arg::Text(""), |at| Arg::Int(at.0));
        let mut keys = vec![self.keys.lease(), self.keys.due(generation), self.keys.due_pool(generation, pool)];
        let mut args = vec![Arg::Text(&token), Arg::Text(&pool.0), time(relook.pool)];
        for (group, at) in &relook.groups {
            keys.push(self.keys.due_group(generation, &Place { pool: pool.clone(), group: group.clone() }));
            args.extend([Arg::Text(group), time(*at)]);
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let answer = self.commands.run_script(&self.scripts.relook, &keys, &args).await?;
        Reply::of_script(answer).map(|_| ())
    }

    pub(super) async fn due_time(&self, generation: u64, place: &Place, entry_id: &str) -> Result<Option<Millis>> {
        let mut commands = pipe();
        commands.cmd("ZSCORE").arg(self.keys.due_group(generation, place)).arg(entry_id);
        Ok(self.commands.read_all(&commands).await?.first().and_then(score))
    }

    pub(super) async fn count_waiting(&self) -> Result<Waiting> {
        let mut commands = pipe();
        commands.cmd("HGET").arg(self.keys.state()).arg("indexed");
        let now = self.clock.now().0;
        commands.cmd("ZRANGEBYSCORE").arg(self.keys.held()).arg(format!("({now}")).arg("+inf");
        let mut answers = Reply::array(Value::Array(self.commands.read_all(&commands).await?))?;
        let entries = reply::number(&answers.next()?).unwrap_or(0);
        let mut held = BTreeMap::<String, u64>::new();
        for member in texts(answers.next()?)? {
            *held.entry(Pool(member).rule().to_owned()).or_default() += 1;
        }
        Ok(Waiting { entries, held: held.into_iter().collect() })
    }

    pub(super) async fn lessons(&self, of: &[(Pool, Option<String>)]) -> Result<Vec<Option<String>>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = cmd("MGET");
        for (pool, group) in of {
            command.arg(self.keys.learnt(pool, group.as_deref()));
        }
        let mut answer = Reply::array(self.commands.run(&command).await?)?;
        of.iter().map(|_| Ok(reply::text(&answer.next()?))).collect()
    }
}

/// The members of a sorted set with their times.
fn scored(value: Value) -> Result<Vec<(String, Millis)>> {
    let mut list = Reply::list(value)?;
    let mut found = Vec::with_capacity(list.len() / 2);
    while list.len() >= 2 {
        let (member, at) = (list.text()?, list.next()?);
        // A time that is none was not written by us; it counts as long past, so that it is looked at.
        found.push((member, score(&at).unwrap_or_default()));
    }
    Ok(found)
}

/// A score as a time.
fn score(value: &Value) -> Option<Millis> {
    #[expect(clippy::cast_possible_truncation, reason = "a time in milliseconds; beyond that the nearest one will do")]
    reply::text(value)?.parse::<f64>().ok().map(|at| Millis(at as i64))
}

fn texts(value: Value) -> Result<Vec<String>> {
    let mut list = Reply::list(value)?;
    let mut texts = Vec::with_capacity(list.len());
    while list.len() > 0 {
        texts.push(list.text()?);
    }
    Ok(texts)
}
