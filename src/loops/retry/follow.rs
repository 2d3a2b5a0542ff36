//! What became of the retries under way, and what that teaches.

use std::collections::{BTreeMap, BTreeSet};

use super::{Retry, Sighting};
use crate::{
    event::{EventData, JobRetry, rfc3339},
    ledger::{Flight, Lesson, Place, Pool, Relook, Settled, Sight, StoreError, Verdict},
    letter::Millis,
    retry::{Change, Hold, Learning, Learnt, Outcome, PoolLearnt, Step, conclude, learn},
};

impl Retry {
    /// Looks after every retry under way, and writes what has become of it and what that teaches. Gives those that are
    /// still under way.
    pub(super) async fn follow(&mut self) -> Result<Vec<Flight>, StoreError> {
        let mut flights = self.ledger.flights().await?;
        if flights.is_empty() {
            self.seen.clear();
            return Ok(flights);
        }
        for flight in &mut flights {
            if let Some(seen) = self.seen.get(job(flight)).filter(|seen| seen.at == flight.at) {
                flight.seen_at = flight.seen_at.max(seen.seen_at);
            }
        }
        let sights = self.ledger.look(&flights).await?;
        let at = sights.at;
        let (mut steps, mut under_way) = (Vec::new(), Vec::new());
        self.seen.clear();
        for (flight, sight) in flights.into_iter().zip(&sights.sights) {
            if let Sight::Underway { at: place, .. } = sight {
                self.seen.insert(job(&flight).to_owned(), Sighting { at: place.clone(), seen_at: at });
            }
            if *sight == Sight::Swallowed {
                self.warn_swallowed(&flight);
            }
            match conclude(&flight, sight, at) {
                None => under_way.push(flight),
                Some(step) => {
                    if matches!(step.verdict, None | Some(Verdict::Failing)) {
                        under_way.push(step.flight.clone());
                    }
                    steps.push(step);
                }
            }
        }
        if !steps.is_empty() {
            self.settle_steps(&steps, at).await?;
        }
        Ok(under_way)
    }

    async fn settle_steps(&mut self, steps: &[Step], at: Millis) -> Result<(), StoreError> {
        let outcomes = self.learn_from(steps, at).await?;
        let lessons: Vec<Lesson> = outcomes.iter().flat_map(|(_, outcome)| outcome.lessons.clone()).collect();
        let settled: Vec<Settled> = steps.iter().map(|step| Retry::settled(step, at)).collect();
        self.ledger.settle(&self.lease, &settled, &lessons).await?;
        for step in steps {
            self.tell(step);
        }
        for (pool, outcome) in &outcomes {
            self.tell_changes(pool, &outcome.changes, steps);
            // The gauge of held groups is to show it in this very round.
            self.counted = self.counted.filter(|_| outcome.changes.is_empty());
        }
        self.wake(steps).await
    }

    /// Reads what is known of the pools and groups that these steps are about, and lets them learn.
    async fn learn_from(&self, steps: &[Step], at: Millis) -> Result<Vec<(Pool, Outcome)>, StoreError> {
        let places: BTreeSet<&Place> =
            steps.iter().filter(|step| step.teaching.is_some()).map(|step| &step.flight.place).collect();
        let pools: BTreeSet<&Pool> = places.iter().map(|place| &place.pool).collect();
        let of: Vec<(Pool, Option<String>)> = pools
            .iter()
            .map(|pool| ((*pool).clone(), None))
            .chain(places.iter().map(|place| (place.pool.clone(), Some(place.group.clone()))))
            .collect();
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.ledger.learnt(&of).await?;
        let mut learning: BTreeMap<Pool, Learning> = BTreeMap::new();
        for ((pool, group), json) in of.into_iter().zip(known) {
            let blank = || Learning { pool: pool.clone(), learnt: PoolLearnt::default(), groups: BTreeMap::new() };
            let learning = learning.entry(pool.clone()).or_insert_with(blank);
            match group {
                None => learning.learnt = PoolLearnt::read(json.as_deref()),
                Some(group) => drop(learning.groups.insert(group, Learnt::read(json.as_deref()))),
            }
        }
        let learnt = learning.into_values().map(|mut learning| {
            let terms = Retry::terms(&self.known, learning.pool.rule());
            let outcome = learn(at, &terms, &mut learning, steps, &mut fastrand::f64);
            (learning.pool, outcome)
        });
        Ok(learnt.collect())
    }

    fn settled(step: &Step, at: Millis) -> Settled {
        let flight = &step.flight;
        let event = (step.verdict == Some(Verdict::Recovered)).then(|| {
            let retry =
                JobRetry { dead: flight.dead.clone(), retried_at: rfc3339(flight.sent_at), recovered_at: rfc3339(at) };
            EventData::JobRecovered(Box::new(retry)).to_json()
        });
        Settled { flight: flight.clone(), verdict: step.verdict, event }
    }

    /// A recovery may let more of a group go, or end a hold: its pool is looked at again in this very round.
    async fn wake(&self, steps: &[Step]) -> Result<(), StoreError> {
        let recovered = steps
            .iter()
            .filter(|step| step.verdict == Some(Verdict::Recovered) && !step.flight.place.pool.is_by_hand());
        let mut relooks: BTreeMap<&Pool, BTreeSet<&str>> = BTreeMap::new();
        for step in recovered {
            relooks.entry(&step.flight.place.pool).or_default().insert(&step.flight.place.group);
        }
        if relooks.is_empty() {
            return Ok(());
        }
        let (generation, now) = (self.ledger.judging().await?.generation, self.now());
        for (pool, groups) in relooks {
            let groups = groups.into_iter().map(|group| (group.to_owned(), None)).collect();
            let relook = Relook { groups, pool: Some(now) };
            match self.ledger.relook(&self.lease, generation, pool, &relook).await {
                // The rules have changed meanwhile; the new index knows nothing of this.
                Err(StoreError::Moved) => break,
                looked => looked?,
            }
        }
        Ok(())
    }

    fn tell(&self, step: &Step) {
        let (source, flight) = (self.ledger.name(), &step.flight);
        let rule = flight.place.pool.rule();
        let Some(verdict) = step.verdict else { return };
        self.metrics.outcome(source, rule, verdict);
        let (dead, group) = (&flight.dead, &flight.place.group);
        let (entry, task, retries) = (&dead.entry_id, dead.task.as_deref(), dead.retries);
        let job = job(flight);
        match verdict {
            Verdict::Recovered => {
                tracing::info!(source, rule, entry, job, task, retries, group, "a job has run through");
            }
            Verdict::Failing => {
                tracing::debug!(source, rule, entry, job, task, retries, group, "a retried job fails again");
            }
            Verdict::ReDied => {
                tracing::info!(source, rule, entry, job, task, retries, group, "a retried job died again");
            }
            Verdict::LostSight => tracing::warn!(
                source,
                rule,
                entry,
                job,
                task,
                retries,
                queue = flight.stream,
                "no verdict in time: the retried job is lost sight of; is a worker reading its queue?"
            ),
        }
    }

    fn warn_swallowed(&self, flight: &Flight) {
        tracing::warn!(
            source = self.ledger.name(),
            rule = flight.place.pool.rule(),
            entry = flight.dead.entry_id,
            job = job(flight),
            "a worker has dropped the retried job unrun: another job with its dedup key was faster"
        );
    }

    fn tell_changes(&self, pool: &Pool, changes: &[Change], steps: &[Step]) {
        let (source, rule) = (self.ledger.name(), pool.rule());
        let of_pool = steps.iter().map(|step| &step.flight).filter(|flight| flight.place.pool == *pool);
        let of_pool: Vec<&Flight> = of_pool.collect();
        let task = of_pool.first().and_then(|flight| flight.dead.task.as_deref());
        for Change { group, hold } in changes {
            let example = of_pool.iter().find(|flight| Some(&flight.place.group) == group.as_ref());
            let error = example.map(|flight| flight.dead.error.to_string());
            match (group, hold) {
                (Some(group), Hold::Begun { until }) => tracing::warn!(
                    source,
                    rule,
                    task,
                    group,
                    error,
                    until = rfc3339(*until),
                    "retries of this group fail: on hold, then one canary again"
                ),
                (Some(group), Hold::Lifted) => {
                    tracing::info!(source, rule, task, group, "a retry has recovered: the hold is over");
                }
                // Of all groups of the task of which nothing good is known: they share one budget of canaries.
                (None, Hold::Begun { until }) => tracing::info!(
                    source,
                    rule,
                    task,
                    until = rfc3339(*until),
                    "no canary of any group of this task before then"
                ),
                (None, Hold::Lifted) => {
                    tracing::info!(source, rule, task, "canaries of this task may go again");
                }
            }
        }
    }
}

/// The job's id; a flight always has one.
fn job(flight: &Flight) -> &str {
    flight.dead.job_id.as_deref().unwrap_or_default()
}
