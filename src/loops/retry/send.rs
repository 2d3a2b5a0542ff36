//! Whom to put back on their queue now.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{super::batch, Retry};
use crate::{
    clock::{millis, monotonic},
    event::{EventData, JobDead, JobRetry, rfc3339},
    ledger::{
        GroupView, Place, Pool, PoolView, Refusal, Relook, Retried, Retry as Decided, Rounds, Standing, StoreError,
    },
    letter::{DeadLetter, Millis},
    retry::{Aloft, Bucket, GroupLook, Learnt, Look, PoolLearnt, choose, place},
    rule::{Action, Decision, Rules},
};

/// Pools that one round looks at.
const POOLS: usize = 256;
/// Groups of a pool that one round looks at; among these the largest goes first.
const GROUPS: usize = 500;
/// How often a queue is named in the log that does not exist.
const TELL_GONE_EVERY: Duration = Duration::from_secs(5 * 60);
/// Retries of one pool in one round.
const MOST: u32 = 500;
/// Groups that are looked at when a canary is chosen.
const GROUPS_FOR_A_CANARY: usize = 5_000;
/// Entries read and retried together at most; fewer where they are huge.
const PIECE: usize = 100;
/// Entries of the first piece, when nothing is known of their size.
const FIRST_PIECE: usize = 4;
/// Times that a round looks for others where entries are gone.
const PASSES: usize = 8;
/// Entries of a group that such a look reads beyond those that are wanted: at first, and over all groups at most.
const FIRST_SURPLUS: usize = 20;
const LARGEST_SURPLUS: usize = 2_000;
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
        let mut due = self.ledger.due_pools(judging.generation, POOLS).await?;
        if due.pools.is_empty() {
            return Ok(due.next);
        }
        // The pools of a rule share what it may have under way: none is always the first, and each gets its part.
        fastrand::shuffle(&mut due.pools);
        let mut left: HashMap<String, u32> = HashMap::new();
        for pool in &due.pools {
            *left.entry(pool.rule().to_owned()).or_default() += 1;
        }
        for pool in &due.pools {
            let sharers = left.get_mut(pool.rule()).map_or(1, |left| std::mem::replace(left, left.saturating_sub(1)));
            match self.send_pool(rules, judging.generation, pool, sharers, aloft).await {
                // The rules have changed meanwhile. If the store has lost data, ingest notices.
                Err(StoreError::Moved) => break,
                sent => sent?,
            }
        }
        Ok(Some(self.now()))
    }

    async fn send_pool(
        &mut self,
        rules: &Rules,
        generation: u64,
        pool: &Pool,
        sharers: u32,
        aloft: &mut Aloft,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let mut relook = Relook::default();
        let Some(Action::Retry(terms)) = rules.named(pool.rule()).map(|rule| &rule.action) else {
            // An index of this generation knows no other rules; whatever this is, it can wait.
            relook.pool = Some(Millis(now.0.saturating_add(UNKNOWN_MS)));
            return self.ledger.relook(&self.lease, generation, pool, &relook).await;
        };
        let mut view = self.ledger.pool(generation, pool, GROUPS).await?;
        let learnt = PoolLearnt::read(view.learnt.as_deref());
        if view.groups.len() >= GROUPS
            && aloft.canaries(pool) == 0
            && (1..=terms.pace.start).contains(&learnt.allowed(now, terms))
        {
            // It is for a canary to be chosen, the largest of those that failed least: one look in a pause.
            view = self.ledger.pool(generation, pool, GROUPS_FOR_A_CANARY).await?;
        }
        let groups = groups(&view, pool, aloft);
        let term_ms = self.term_ms();
        let bucket = self.buckets.entry(pool.rule().to_owned()).or_insert_with(|| Bucket::new(term_ms));
        let rule_in_flight = aloft.of_rule(pool.rule());
        let free = terms.pace.max_in_flight.saturating_sub(rule_in_flight);
        let tokens = bucket.tokens(term_ms, terms.pace.per_second).min(free).div_ceil(sharers.max(1));
        let choice = choose(&Look {
            now,
            terms,
            rule_in_flight,
            tokens: tokens.min(MOST),
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
        // Of an emptied group nothing else would say when it is to be looked at, or that it is gone.
        relook.groups.extend(groups.iter().filter(|group| group.due == 0).map(|group| (group.group.clone(), None)));
        // What a later line says of a group counts for more than an earlier one.
        relook.groups.extend(choice.to_the_end.into_iter().map(|group| (group, Some(now))));
        relook.groups.extend(choice.send.into_iter().map(|(group, _)| (group, None)));
        relook.groups.extend(choice.held.into_iter().map(|(group, until)| (group, Some(until))));
        self.ledger.relook(&self.lease, generation, pool, &relook).await
    }

    /// Sends what was chosen. Where entries are gone from the DLQ, others of their group take their turn in the same
    /// round: after a purge by hand the index holds thousands that are.
    async fn send_chosen(
        &mut self,
        rules: &Rules,
        generation: u64,
        pool: &Pool,
        chosen: &[(String, usize)],
        rounds: impl Fn(&str) -> Rounds,
        aloft: &mut Aloft,
    ) -> Result<(), StoreError> {
        let mut missing: BTreeMap<String, usize> = chosen.iter().cloned().collect();
        let mut surplus = 0;
        for _ in 0..PASSES {
            let asked: Vec<(String, usize)> =
                missing.iter().map(|(group, wanted)| (group.clone(), wanted + surplus)).collect();
            let due = self.ledger.due_entries(generation, pool, &asked).await?;
            let entries = asked.into_iter().zip(due);
            let entries = entries.flat_map(|((group, _), ids)| ids.into_iter().map(move |id| (group.clone(), id)));
            missing = self.send_entries(rules, generation, pool, entries.collect(), missing, &rounds, aloft).await?;
            if missing.is_empty() {
                break;
            }
            surplus = (surplus * 4).clamp(FIRST_SURPLUS, (LARGEST_SURPLUS / missing.len()).max(FIRST_SURPLUS));
        }
        Ok(())
    }

    /// Reads these entries piece by piece, decides about each once more as it is now, and retries as many of each group
    /// as are wanted. Gives those groups that have fewer because entries of theirs were gone, and how many fewer.
    #[expect(clippy::too_many_arguments, reason = "it is one piece of the function above")]
    async fn send_entries(
        &mut self,
        rules: &Rules,
        generation: u64,
        pool: &Pool,
        entries: Vec<(String, String)>,
        mut wanted: BTreeMap<String, usize>,
        rounds: &impl Fn(&str) -> Rounds,
        aloft: &mut Aloft,
    ) -> Result<BTreeMap<String, usize>, StoreError> {
        let mut refusals = Refusals::default();
        let mut short = BTreeSet::new();
        let (mut entries, mut piece) = (entries.into_iter(), FIRST_PIECE);
        loop {
            let read: Vec<(String, String)> = entries.by_ref().take(piece).collect();
            if read.is_empty() {
                break;
            }
            let ids: Vec<String> = read.iter().map(|(_, id)| id.clone()).collect();
            let standing = self.ledger.standing(&ids).await?;
            let weights = standing.iter().flatten().map(|standing| weight(&standing.letter));
            piece = batch::next_size(piece, weights.max().unwrap_or(0), PIECE);
            let (mut decided, mut unwanted) = (Vec::new(), Vec::new());
            for ((group, id), standing) in read.into_iter().zip(standing) {
                let Some(left) = wanted.get_mut(&group) else { continue };
                let at = Place { pool: pool.clone(), group };
                let Some(standing) = standing else {
                    refusals.add(Refusal::EntryGone);
                    short.insert(at.group.clone());
                    unwanted.push((at, id));
                    continue;
                };
                if *left == 0 {
                    // Read in case others were gone.
                    continue;
                }
                *left -= 1;
                match self.decide(rules, &at, &standing, rounds(&at.group)) {
                    Ok(retry) => decided.push(retry),
                    Err(refusal) => {
                        refusals.add(refusal);
                        unwanted.push((at, id));
                    }
                }
            }
            if !unwanted.is_empty() {
                self.ledger.drop_due(&self.lease, generation, &unwanted).await?;
            }
            if !decided.is_empty() {
                self.retry(generation, pool, decided, &mut refusals, aloft).await?;
            }
        }
        self.tell_refusals(pool, &refusals);
        wanted.retain(|group, left| *left > 0 && short.contains(group));
        Ok(wanted)
    }

    /// Has the ledger retry these, and takes over what it did.
    async fn retry(
        &mut self,
        generation: u64,
        pool: &Pool,
        decided: Vec<Decided>,
        refusals: &mut Refusals,
        aloft: &mut Aloft,
    ) -> Result<(), StoreError> {
        let count = decided.len();
        let term_ms = self.term_ms();
        if let Some(bucket) = self.buckets.get_mut(pool.rule()) {
            // Before they are sent: if the answer is lost, they may have gone all the same.
            bucket.take(term_ms, u32::try_from(count).unwrap_or(u32::MAX));
        }
        let streams: Vec<String> = decided.iter().map(|retry| retry.stream.clone()).collect();
        let retried = self.ledger.retry(&self.lease, generation, decided).await.inspect_err(|error| {
            if *error == StoreError::Fenced {
                self.metrics.refused(self.ledger.name(), pool.rule(), Refusal::NotLeader, count as u64);
            }
        })?;
        self.take_in(pool, retried.into_iter().zip(streams), refusals, aloft);
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
        let retry = JobRetry { dead: dead.clone(), retried_at: rfc3339(self.now()), recovered_at: None };
        let event = EventData::JobRetried(Box::new(retry)).to_json();
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
    fn take_in(
        &mut self,
        pool: &Pool,
        retried: impl Iterator<Item = (Retried, String)>,
        refusals: &mut Refusals,
        aloft: &mut Aloft,
    ) {
        let (source, rule) = (self.ledger.name(), pool.rule());
        for (outcome, stream) in retried {
            let flight = match outcome {
                Retried::Sent(flight) => flight,
                Retried::Refused(refusal) => {
                    refusals.add(refusal);
                    if refusal == Refusal::QueueGone {
                        refusals.gone.insert(stream);
                    }
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
            aloft.add(&flight);
        }
    }

    fn tell_refusals(&mut self, pool: &Pool, refusals: &Refusals) {
        let (source, rule) = (self.ledger.name().to_owned(), pool.rule());
        for (refusal, count) in &refusals.counts {
            self.metrics.refused(&source, rule, *refusal, *count);
            match refusal {
                Refusal::EntryGone => tracing::info!(
                    source,
                    rule,
                    entries = count,
                    "entries are gone from the DLQ before their retry: a person, or another loop, was faster"
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
        let now = monotonic();
        for queue in &refusals.gone {
            let told = self.told_gone.get(queue).is_some_and(|at| now.duration_since(*at) < TELL_GONE_EVERY);
            if !told {
                self.told_gone.insert(queue.clone(), now);
                tracing::warn!(
                    source,
                    rule,
                    queue,
                    "not retried: this queue's stream does not exist, so no worker would see the job; start a worker \
                     for the queue"
                );
            }
        }
    }
}

/// Why entries were not retried in one round.
#[derive(Debug, Default)]
struct Refusals {
    counts: HashMap<Refusal, u64>,
    /// Queue streams that do not exist.
    gone: BTreeSet<String>,
}

impl Refusals {
    fn add(&mut self, refusal: Refusal) {
        *self.counts.entry(refusal).or_default() += 1;
    }
}

/// About what an entry weighs in memory, in bytes.
fn weight(letter: &DeadLetter) -> usize {
    letter.payload.len() + letter.detail.len()
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
