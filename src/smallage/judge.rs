//! Which rules are in force, and judging by them what was there before they were.

use redis::{Value, cmd, pipe};

use super::{
    Smallage,
    connection::{Arg, KeyList},
    plans::{Plans, retries_planned},
    reply::{self, Reply},
    store::{AUDIT_LINES, REMEMBER_JOBS},
};
use crate::{
    clock::millis,
    event::Lane,
    ledger::{Batch, Committed, Cursor, JobCounts, Judge, Judging, Lease, Place, PlanEnd, Pool, Result, StoreError},
};

/// Generations that are tried before a ledger counts as broken. Only one that has lost its state and kept its index
/// needs more than one.
const MOST_GENERATIONS: usize = 10_000;
/// Old generations without an index that are passed over in one go.
const PASSED_OVER: usize = 100;

impl Smallage {
    pub(super) async fn adopt(&self, lease: &Lease, cursor: &Cursor, fingerprint: &str) -> Result<u64> {
        let answer = self.commands.run(cmd("HGET").arg(self.keys.state()).arg("generation")).await?;
        let mut proposed = reply::number(&answer).unwrap_or(0).saturating_add(1);
        for _ in 0..MOST_GENERATIONS {
            let answer = self
                .commands
                .run_script(
                    &self.scripts.adopt,
                    &[&self.keys.lease(), &self.keys.state(), &self.keys.due(proposed)],
                    &[Arg::Text(&lease.token()), Arg::Text(&cursor.0), Arg::Text(fingerprint), Arg::count(proposed)],
                )
                .await?;
            let mut pieces = Reply::array(answer.clone())?;
            if pieces.text()? != "TAKEN" {
                return Reply::of_script(answer)?.number();
            }
            proposed = proposed.max(pieces.number()?).saturating_add(1);
        }
        Err(StoreError::Unexpected(format!("there are due indexes of rules up to {proposed} and no state")))
    }

    pub(super) async fn judging_state(&self) -> Result<Judging> {
        let mut command = cmd("HMGET");
        command.arg(self.keys.state()).arg(&["generation", "rules", "judged", "judge_until"]);
        let mut state = Reply::array(self.commands.run(&command).await?)?;
        let generation = reply::number(&state.next()?).unwrap_or(0);
        let fingerprint = reply::text(&state.next()?).unwrap_or_default();
        let mut cursor = || {
            let stored = reply::text(&state.next()?);
            Ok(Cursor(stored.unwrap_or_else(|| "0-0".to_owned())))
        };
        Ok(Judging { generation, fingerprint, judged: cursor()?, until: cursor()? })
    }

    pub(super) async fn page_to_judge(
        &self,
        after: &Cursor,
        until: &Cursor,
        max: usize,
    ) -> Result<(Batch, Vec<JobCounts>)> {
        let mut command = cmd("XRANGE");
        command.arg(self.keys.dlq()).arg(format!("({}", after.0)).arg(&until.0).arg("COUNT").arg(max);
        let entries = reply::entries(self.commands.run(&command).await?)?;
        let caught_up = entries.len() < max;
        let cursor = if caught_up {
            until.clone()
        } else {
            entries.last().map_or_else(|| until.clone(), |(id, _)| Cursor(id.clone()))
        };
        let (letters, heaviest) = self.letters_of(entries);
        let jobs: Vec<String> = letters.iter().map(|letter| letter.job_id.clone()).collect();
        let counts = self.job_counts(&jobs).await?;
        Ok((Batch { letters, cursor, heaviest, caught_up }, counts))
    }

    pub(super) async fn judge_step(&self, lease: &Lease, step: &Judge) -> Result<PlanEnd<Committed>> {
        let token = lease.token();
        let mut keys = KeyList::new(vec![
            self.keys.lease(),
            self.keys.state(),
            self.keys.outbox(Lane::Deaths),
            self.keys.dlq(),
            self.keys.audit(),
        ]);
        let entries = &step.entries;
        let plans = Plans::of(entries.iter().map(|entry| (&*entry.entry_id, &*entry.job_id, entry.plan.as_ref())));
        let mut args = vec![
            Arg::Text(&token),
            Arg::Text(&step.from.0),
            Arg::Text(&step.to.0),
            Arg::Int(millis(REMEMBER_JOBS)),
            Arg::count(step.generation),
            Arg::Int(AUDIT_LINES),
            Arg::place(entries.len()),
        ];
        for entry in entries {
            let job = if entry.job_id.is_empty() { Arg::Int(0) } else { keys.number(self.keys.job(&entry.job_id)) };
            args.extend([Arg::Text(&entry.entry_id), job, retries_planned(entry.plan.as_ref())]);
        }
        plans.args(&self.keys, step.generation, &mut keys, &mut args);
        let answer = self.commands.run_script(&self.scripts.judge, &keys.as_strs(), &args).await?;
        let mut reply = match Reply::of_plans(answer)? {
            PlanEnd::Stands(reply) => reply,
            PlanEnd::Stale(counts) => return Ok(PlanEnd::Stale(counts)),
        };
        let (outbox_len, exhausted) = (reply.number()?, reply.numbers()?);
        if !exhausted.is_empty() {
            self.outbox_grew(Lane::Deaths);
        }
        Ok(PlanEnd::Stands(Committed { outbox_len, exhausted, ..Committed::default() }))
    }

    pub(super) async fn discard_generations(&self, lease: &Lease, max: usize) -> Result<bool> {
        let mut command = cmd("HMGET");
        command.arg(self.keys.state()).arg(&["generation", "oldest_generation"]);
        let mut state = Reply::array(self.commands.run(&command).await?)?;
        let generation = reply::number(&state.next()?).unwrap_or(0);
        let mut oldest = reply::number(&state.next()?).unwrap_or(0).max(1);
        let (mut groups_left, mut passed_over) = (max, 0);
        while oldest < generation {
            if groups_left == 0 || passed_over == PASSED_OVER {
                return Ok(true);
            }
            let (discarded, gone) = self.discard_some(lease, oldest, groups_left).await?;
            groups_left = groups_left.saturating_sub(discarded);
            oldest += u64::from(gone);
            passed_over += usize::from(gone);
        }
        Ok(false)
    }

    /// Discards groups of the first pool of a generation; how many they were (a pool counts as one), and whether that
    /// was all.
    async fn discard_some(&self, lease: &Lease, generation: u64, max: usize) -> Result<(usize, bool)> {
        let members = async |key: &str, max: usize| {
            let mut commands = pipe();
            commands.cmd("ZRANGE").arg(key).arg(0).arg(max.saturating_sub(1));
            let mut answers = self.commands.read_all(&commands).await?;
            let mut list = Reply::list(answers.pop().unwrap_or(Value::Nil))?;
            let mut names = Vec::with_capacity(list.len());
            while list.len() > 0 {
                names.push(list.text()?);
            }
            Ok::<_, StoreError>(names)
        };
        let pools = self.keys.due(generation);
        let pool = Pool(members(&pools, 1).await?.pop().unwrap_or_default());
        let pool_key = if pool.0.is_empty() { pools.clone() } else { self.keys.due_pool(generation, &pool) };
        let groups = if pool.0.is_empty() { Vec::new() } else { members(&pool_key, max).await? };
        let mut keys = vec![self.keys.lease(), self.keys.state(), pools, pool_key];
        keys.extend(
            groups
                .iter()
                .map(|group| self.keys.due_group(generation, &Place { pool: pool.clone(), group: group.clone() })),
        );
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let token = lease.token();
        let mut args = vec![Arg::Text(&token), Arg::count(generation), Arg::Text(&pool.0)];
        args.extend(groups.iter().map(|group| Arg::Text(group)));
        let answer = self.commands.run_script(&self.scripts.discard, &keys, &args).await?;
        Ok((groups.len().max(1), Reply::of_script(answer)?.number()? == 1))
    }
}
