//! Whom to put back on their queue now.

use std::collections::HashMap;

use super::Retry;
use crate::{
    clock::millis,
    event::{EventData, JobDead, JobRetry, rfc3339},
    ledger::{
        GroupView, Place, Pool, PoolView, Refusal, Relook, Retried, Retry as Decided, Rounds, Standing, StoreError,
    },
    letter::Millis,
    retry::{Aloft, Bucket, GroupLook, Learnt, Look, PoolLearnt, choose, place},
    rule::{Action, Decision, Rules},
};

/// Pools that one round looks at.
const POOLS: usize = 32;
/// Groups of a pool that one round looks at; among these the largest goes first.
const GROUPS: usize = 500;
/// Retries of one pool in one round.
const MOST: u32 = 500;
/// How soon a pool is looked at again after a look (ms): no sooner than something can have changed.
const AGAIN_MS: i64 = 150;
/// How soon a pool is looked at again whose rule is none (ms).
const UNKNOWN_MS: i64 = 3_600_000;

impl Retry {
    /// Looks at the pools that are due and sends what may go. Tells when the next pool is due, if none is left.
    pub(super) async fn send(&mut self, rules: &Rules, aloft: &mut Aloft) -> Result<Option<Millis>, StoreError> {
        if rules.is_empty() {
            return Ok(None);
        }
        let judging = self.ledger.judging().await?;
        if judging.fingerprint != rules.fingerprint {
            // The ledger works by other rules: those before the last change, for a moment.
            return Ok(None);
        }
        let due = self.ledger.due_pools(judging.generation, POOLS).await?;
        for pool in &due.pools {
            self.send_pool(rules, judging.generation, pool, aloft).await?;
        }
        Ok(if due.pools.is_empty() { due.next } else { None })
    }

    async fn send_pool(
        &mut self,
        rules: &Rules,
        generation: u64,
        pool: &Pool,
        aloft: &mut Aloft,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let mut relook = Relook::default();
        let Some(Action::Retry(terms)) = rules.named(pool.rule()).map(|rule| &rule.action) else {
            // An index of this generation knows no other rules; whatever this is, it can wait.
            relook.pool = Some(Millis(now.0.saturating_add(UNKNOWN_MS)));
            return self.ledger.relook(&self.lease, generation, pool, &relook).await;
        };
        let view = self.ledger.pool(generation, pool, GROUPS).await?;
        let learnt = PoolLearnt::read(view.learnt.as_deref());
        let groups = groups(&view, pool, aloft);
        let term_ms = self.term_ms();
        let bucket = self.buckets.entry(pool.rule().to_owned()).or_insert_with(|| Bucket::new(term_ms));
        let choice = choose(&Look {
            now,
            terms,
            rule_in_flight: aloft.of_rule(pool.rule()),
            tokens: bucket.tokens(term_ms, terms.pace.per_second).min(MOST),
            pool: &learnt,
            canaries_in_flight: aloft.canaries(pool),
            groups: &groups,
            more: groups.len() >= GROUPS,
            dice: fastrand::u64(..),
        });
        let (source, rule) = (self.ledger.name(), pool.rule());
        if choice.closed_until.is_some() {
            self.metrics.refused(source, rule, Refusal::WindowClosed, 1);
        }
        if !choice.held.is_empty() {
            self.metrics.refused(source, rule, Refusal::GroupHeld, choice.held.len() as u64);
        }
        if !choice.send.is_empty() {
            let rounds = |group: &str| match groups.iter().find(|known| known.group == group) {
                Some(known) => learnt.rounds(&known.learnt, now, terms),
                None => learnt.rounds(&Learnt::default(), now, terms),
            };
            self.send_chosen(rules, generation, pool, &choice.send, rounds, aloft).await?;
        }
        relook.pool = choice.closed_until.or(Some(Millis(now.0.saturating_add(AGAIN_MS))));
        // What a later line says of a group counts for more than an earlier one.
        relook.groups.extend(choice.to_the_end.into_iter().map(|group| (group, Some(now))));
        relook.groups.extend(choice.send.into_iter().map(|(group, _)| (group, None)));
        relook.groups.extend(choice.held.into_iter().map(|(group, until)| (group, Some(until))));
        self.ledger.relook(&self.lease, generation, pool, &relook).await
    }

    /// Reads the entries that were chosen, decides about each once more as it is now, and retries those.
    async fn send_chosen(
        &mut self,
        rules: &Rules,
        generation: u64,
        pool: &Pool,
        chosen: &[(String, usize)],
        rounds: impl Fn(&str) -> Rounds,
        aloft: &mut Aloft,
    ) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        let due = self.ledger.due_entries(generation, pool, chosen).await?;
        for ((group, _), ids) in chosen.iter().zip(due) {
            entries.extend(ids.into_iter().map(|id| (group.clone(), id)));
        }
        let ids: Vec<String> = entries.iter().map(|(_, id)| id.clone()).collect();
        let standing = self.ledger.standing(&ids).await?;
        let (mut decided, mut unwanted) = (Vec::new(), Vec::new());
        let mut refusals: HashMap<Refusal, u64> = HashMap::new();
        for ((group, id), standing) in entries.into_iter().zip(standing) {
            let at = Place { pool: pool.clone(), group };
            match standing.map(|standing| self.decide(rules, &at, &standing, rounds(&at.group))) {
                Some(Ok(retry)) => decided.push(retry),
                Some(Err(refusal)) => {
                    *refusals.entry(refusal).or_default() += 1;
                    unwanted.push((at, id));
                }
                None => {
                    *refusals.entry(Refusal::EntryGone).or_default() += 1;
                    unwanted.push((at, id));
                }
            }
        }
        if !unwanted.is_empty() {
            self.ledger.drop_due(&self.lease, generation, &unwanted).await?;
        }
        if !decided.is_empty() {
            let count = decided.len() as u64;
            let retried = self.ledger.retry(&self.lease, generation, decided).await.inspect_err(|error| {
                if *error == StoreError::Fenced {
                    self.metrics.refused(self.ledger.name(), pool.rule(), Refusal::NotLeader, count);
                }
            })?;
            self.take_in(pool, retried, &mut refusals, aloft);
        }
        self.tell_refusals(pool, &refusals);
        Ok(())
    }

    /// What to do with an entry as it stands now.
    fn decide(
        &self,
        rules: &Rules,
        at: &Place,
        Standing { letter, job }: &Standing,
        rounds: Rounds,
    ) -> Result<Decided, Refusal> {
        let source = self.ledger.name();
        let (rule, terms) = match rules.decide(source, letter) {
            Decision::Retry(rule, terms) if place(rule, letter) == *at => (rule, terms),
            Decision::Never(never) => return Err(Refusal::of(never)),
            // It is indexed where it does not belong: its record was written anew under the same id.
            Decision::NoRule | Decision::Leave(_) | Decision::Retry(..) => return Err(Refusal::Malformed),
        };
        let dead = JobDead {
            deaths: job.deaths.max(1),
            retries: job.retries.saturating_add(1),
            rule: Some(rule.name.clone()),
            ..JobDead::of(source, letter, Default::default())
        };
        let event = self.wanted.retried.then(|| {
            let retry = JobRetry { dead: dead.clone(), retried_at: rfc3339(self.now()), recovered_at: None };
            EventData::JobRetried(Box::new(retry)).to_json()
        });
        Ok(Decided {
            place: at.clone(),
            dead,
            stream: letter.origin.clone(),
            dedup: letter.dedup.clone(),
            retries: job.retries,
            max_retries: terms.max_retries,
            not_before: Millis(letter.died_at.0.saturating_add(millis(terms.age_needed(job.retries)))),
            max_queue_length: terms.pace.max_queue_length,
            confirm_within: terms.confirm_within,
            rounds,
            event,
        })
    }

    /// Takes over what the ledger did.
    fn take_in(&mut self, pool: &Pool, retried: Vec<Retried>, refusals: &mut HashMap<Refusal, u64>, aloft: &mut Aloft) {
        let (source, rule, term_ms) = (self.ledger.name(), pool.rule(), self.term_ms());
        let mut sent: u32 = 0;
        for outcome in retried {
            let flight = match outcome {
                Retried::Sent(flight) => flight,
                Retried::Refused(refusal) => {
                    *refusals.entry(refusal).or_default() += 1;
                    continue;
                }
            };
            let dead = &flight.dead;
            let (task, queue) = (dead.task.as_deref().unwrap_or_default(), dead.queue.as_deref().unwrap_or_default());
            self.metrics.retried(source, rule, queue, task);
            tracing::info!(
                source,
                rule,
                entry = dead.entry_id,
                job = dead.job_id,
                task,
                group = flight.place.group,
                retries = dead.retries,
                "a job is retried"
            );
            sent += 1;
            aloft.add(&flight);
        }
        if let Some(bucket) = self.buckets.get_mut(rule) {
            bucket.take(term_ms, sent);
        }
    }

    fn tell_refusals(&self, pool: &Pool, refusals: &HashMap<Refusal, u64>) {
        let (source, rule) = (self.ledger.name(), pool.rule());
        for (refusal, count) in refusals {
            self.metrics.refused(source, rule, *refusal, *count);
            match refusal {
                Refusal::EntryGone => tracing::info!(
                    source,
                    rule,
                    entries = count,
                    "entries are gone from the DLQ before their retry: a person, or another loop, was faster"
                ),
                Refusal::QueueGone => tracing::warn!(
                    source,
                    rule,
                    entries = count,
                    "not retried: the queue's stream is gone, and no worker would read it; looking again in a minute"
                ),
                Refusal::DedupClaimed => tracing::info!(
                    source,
                    rule,
                    entries = count,
                    "not retried yet: another job holds the dedup key, and a worker would drop this one unrun"
                ),
                other => tracing::debug!(source, rule, entries = count, reason = other.as_str(), "not retried"),
            }
        }
    }
}

fn groups(view: &PoolView, pool: &Pool, aloft: &Aloft) -> Vec<GroupLook> {
    let views = view.groups.iter();
    views
        .map(|GroupView { group, due, learnt }| GroupLook {
            group: group.clone(),
            due: *due,
            learnt: Learnt::read(learnt.as_deref()),
            in_flight: aloft.of_group(&Place { pool: pool.clone(), group: group.clone() }),
        })
        .collect()
}
