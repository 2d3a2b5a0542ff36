//! The invariants: what holds in every state, and what holds when nothing is half done.

use std::collections::{BTreeMap, BTreeSet};

use sexton::ledger::Pool;

use super::{Fate, Id, Life, Place, Reference, Wrong};
use crate::model::picture::Picture;

/// The longest that a refusal which can pass puts an entry off.
const LONGEST_POSTPONED: i64 = 60_000;

/// Where an entry waits in the due index: pool and group, and until when.
type Waiting = BTreeMap<Id, (String, i64)>;

impl Reference {
    /// Checks everything that must hold now. `before` is the picture before the last operation. With `is_idle` nothing of
    /// the leader is half done.
    pub(in crate::model) fn check(&mut self, before: &Picture, now: &Picture, is_idle: bool) -> Result<(), Wrong> {
        self.everything_is_where_it_should_be(now)?;
        self.nobody_is_lost()?;
        self.read_on(before, now)?;
        self.records_agree(now)?;
        self.flights_agree(now)?;
        let waiting = self.index_is_sound(before, now)?;
        let judged = now.place("judged") >= now.place("judge_until");
        let read =
            self.graves.keys().next_back().is_none_or(|last| *last <= now.cursor()) && now.state.contains_key("cursor");
        if is_idle && judged && read && now.rules() == self.given {
            self.caught_up(now, &waiting)?;
        }
        Ok(())
    }

    /// The framework's keys are as workers, people and retries have left them.
    fn everything_is_where_it_should_be(&self, now: &Picture) -> Result<(), Wrong> {
        let dead: BTreeSet<Id> = self.present().map(|(id, _)| id).collect();
        let found: BTreeSet<Id> = now.dlq.keys().copied().collect();
        if dead != found {
            return Err(format!("the DLQ holds {found:?}, and should hold {dead:?}"));
        }
        let on_queues =
            now.queues.iter().flat_map(|(stream, entries)| entries.keys().map(|id| Place::Queue(stream.clone(), *id)));
        let places: BTreeSet<Place> = on_queues.chain(now.clock.keys().cloned().map(Place::Clock)).collect();
        if !self.places.keys().eq(&places) {
            return Err(format!(
                "jobs are at {places:?}, and should be at {:?}",
                self.places.keys().collect::<Vec<_>>()
            ));
        }
        Ok(())
    }

    /// Every job ran through, or is somewhere, or somebody else has done away with it.
    fn nobody_is_lost(&self) -> Result<(), Wrong> {
        let dead: BTreeSet<&str> = self.present().map(|(_, grave)| grave.job.as_str()).collect();
        let safe = |life: &Life| life.ran_through || life.lives() || life.swallowed || life.destroyed;
        for (id, job) in &self.jobs {
            if !job.meddled && !dead.contains(id.as_str()) && !job.lives.iter().any(safe) {
                return Err(format!("{id} is lost: {job:?}"));
            }
        }
        Ok(())
    }

    /// The ledger reads on in order, and tells of each entry once.
    fn read_on(&mut self, before: &Picture, now: &Picture) -> Result<(), Wrong> {
        let cursor = now.cursor();
        if cursor < before.cursor() {
            return Err(format!("the cursor went back from {} to {cursor}", before.cursor()));
        }
        for (id, grave) in &mut self.graves {
            let reads = !grave.read && *id <= cursor && now.state.contains_key("cursor");
            grave.read |= reads;
            grave.remembered |= reads && before.number("generation") > 0 || grave.read && *id <= now.place("judged");
            if grave.announced > 0 && !grave.read {
                return Err(format!("{id} is announced and not read"));
            }
            if grave.read && !grave.existing && !grave.taken_unread && grave.announced != 1 {
                return Err(format!("{id} is read, and announced {} times", grave.announced));
            }
        }
        let existing = self.graves.values().filter(|grave| grave.existing && !grave.taken_unread).count();
        let told = self.existing_until.is_some() && !now.state.contains_key("existing_until");
        if told && existing > 0 && self.digests != 1 {
            return Err(format!("{} digests tell of what was there before", self.digests));
        }
        for (id, job) in &self.jobs {
            let recovered = |life: &&Life| life.sent().is_some_and(|sent| sent.verdict.as_deref() == Some("recovered"));
            let recoveries = job.lives.iter().filter(recovered).count();
            if (job.told.retried, job.told.recovered as usize) != (job.retries, recoveries) {
                return Err(format!("{id}: {recoveries} recoveries, and its events do not fit: {job:?}"));
            }
        }
        Ok(())
    }

    /// What the ledger remembers of the jobs is what has happened to them.
    fn records_agree(&self, now: &Picture) -> Result<(), Wrong> {
        for (id, job) in &self.jobs {
            let of_it = || self.graves.values().filter(|grave| grave.job == *id);
            if of_it().any(|grave| grave.existing && grave.taken_unread) {
                continue;
            }
            let deaths = of_it().filter(|grave| grave.announced > 0 || (grave.existing && grave.read)).count();
            let told =
                |field: &str| now.records.get(id).and_then(|record| record.get(field)).map_or("0", String::as_str);
            if (told("deaths"), told("retries")) != (&deaths.to_string(), &job.retries.to_string()) {
                return Err(format!(
                    "{id} has died {deaths} times and was retried {} times; the ledger has {:?}",
                    job.retries,
                    now.records.get(id)
                ));
            }
        }
        match now.records.keys().find(|id| !self.jobs.contains_key(*id)) {
            Some(unknown) => Err(format!("the ledger remembers {unknown:?}, which never died")),
            None => Ok(()),
        }
    }

    /// What is in flight is what was sent and has no verdict.
    fn flights_agree(&self, now: &Picture) -> Result<(), Wrong> {
        let mut sent = BTreeMap::new();
        for (id, job) in &self.jobs {
            for open in job.lives.iter().filter_map(Life::open) {
                let failing = u8::from(open.failing);
                sent.insert(id.as_str(), format!("{} {} {} {failing}", open.entry, open.at, open.confirm_by));
            }
        }
        let told = |flight: &String| {
            let words: Vec<&str> = flight.splitn(6, ' ').collect();
            format!("{} {} {} {}", words[0], words[2], words[3], words[4])
        };
        let found: BTreeMap<&str, String> =
            now.flights.iter().map(|(job, flight)| (job.as_str(), told(flight))).collect();
        if sent != found {
            return Err(format!("in flight are {found:?}, and should be {sent:?}"));
        }
        Ok(())
    }

    /// The due index of the rules in force holds nothing that may not be retried, at no two places, never too early, and
    /// can be found from above; and it knows how much it holds.
    fn index_is_sound(&self, before: &Picture, now: &Picture) -> Result<Waiting, Wrong> {
        let generation = now.number("generation");
        if now
            .index
            .keys()
            .any(|set| set.split(':').next().is_none_or(|of| of.parse().is_ok_and(|of: i64| of > generation)))
        {
            return Err(format!("there is an index of rules to come: {:?}", now.index));
        }
        let set = |name: &str| now.index.get(name);
        let mut waiting = Waiting::new();
        let mut found = 0;
        for (name, entries) in &now.index {
            let parts: Vec<&str> = name.split(':').collect();
            let [of, rule, task, group] = parts[..] else { continue };
            if of != generation.to_string() {
                continue;
            }
            let pool = format!("{rule}:{task}");
            let listed = set(&format!("{of}:{pool}")).is_some_and(|groups| groups.contains_key(group))
                && set(of).is_some_and(|pools| pools.contains_key(&pool));
            if !listed {
                return Err(format!("{name} is not to be found from above: {:?}", now.index));
            }
            for (entry, until) in entries {
                found += 1;
                let entry: Id = entry.parse().map_err(|_| format!("{entry} is in the index"))?;
                self.may_wait(entry, &pool, group, *until, now)?;
                let waited = before.index.get(name).is_some_and(|entries| entries.contains_key(&entry.to_string()));
                let leaves = self.graves.get(&entry).is_some_and(|grave| !grave.present || grave.covered);
                if leaves && !waited && entry <= before.cursor() {
                    return Err(format!("{entry} has come into the index, and is gone or about to go"));
                }
                if waiting.insert(entry, (name.clone(), *until)).is_some() {
                    return Err(format!("{entry} is in the index twice: {:?}", now.index));
                }
            }
        }
        if found != now.number("indexed") {
            return Err(format!("{found} entries wait, and the ledger counts {}", now.number("indexed")));
        }
        Ok(waiting)
    }

    /// Whether an entry may be in the index where it is. What has left the DLQ, or will, does no harm.
    fn may_wait(&self, entry: Id, pool: &str, group: &str, until: i64, now: &Picture) -> Result<(), Wrong> {
        let Some(grave) = self.graves.get(&entry) else { return Err(format!("{entry} waits, and was never buried")) };
        if !grave.present || grave.covered {
            return Ok(());
        }
        let wrong =
            |why: &str| Err(format!("{entry} of {} waits in {pool}:{group} until {until}, and {why}", grave.job));
        let Fate::Waits(rule, grants) = self.fate(grave, now.rules()) else {
            return wrong("no rule grants it a retry");
        };
        if Pool::of(rule.name, &grave.task).0 != pool {
            return wrong("does not belong there");
        }
        if self.groups.get(&grave.kind()).is_some_and(|known| known != group) {
            return wrong("is of another group");
        }
        let retries = self.retries(grave);
        if until < grave.at + grants.age(retries) {
            return wrong(&format!("is too young until {}", grave.at + grants.age(retries)));
        }
        let latest = (grave.at + grants.latest_age(retries)).max(self.latest + LONGEST_POSTPONED);
        if until > latest {
            return wrong(&format!("could go by {latest}"));
        }
        Ok(())
    }

    /// Every entry has been read and judged by the rules in force.
    fn caught_up(&self, now: &Picture, waiting: &Waiting) -> Result<(), Wrong> {
        for (id, grave) in self.present() {
            let waits = waiting.contains_key(&id);
            let wrong = |why: &str| Err(format!("{id} of {:?} {why}: {grave:?}", grave.job));
            if grave.covered {
                // Without rules nothing is judged, and nothing more is done.
                if !waits && !now.rules().is_empty() {
                    return wrong("is left behind: its job was put back, and nobody will remove it");
                }
                continue;
            }
            match self.fate(grave, now.rules()) {
                Fate::Waits(..) if !waits => return wrong("is not in the index"),
                Fate::Waits(..) | Fate::Stays => {}
                Fate::Spent(_) if self.jobs[&grave.job].exhausted == 1 => {}
                Fate::Spent(_) => return wrong("is exhausted, and that was not said"),
            }
        }
        for (id, job) in &self.jobs {
            if job.told.exhausted_lines != job.told.exhausted {
                return Err(format!("{id} was said to be exhausted, and the audit log does not have it"));
            }
        }
        Ok(())
    }
}
