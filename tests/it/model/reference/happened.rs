//! What a leader's loop has done, as its audit lines and events say: each of it must have been allowed, and becomes a
//! part of the model.

use sexton::event::{EventData, JobDead};

use super::{Begun, Fate, Id, Job, Life, Place, Reference, Sent, Wrong};
use crate::{
    model::picture::{Line, Picture, text},
    support::graveyard::Fields,
};

/// The attempt with which a job that has a dedup key is put back: so high that failing buries it at once.
const LAST_ATTEMPT: &[u8] = b"1000000";

impl Reference {
    /// Takes in what a step of a leader has done between two pictures.
    pub(in crate::model) fn take_in(&mut self, before: &Picture, after: &Picture) -> Result<(), Wrong> {
        for line in &after.audit {
            match line.what.as_str() {
                "retried" => self.retried(line, before, after)?,
                "twin_removed" => self.twin_removed(line)?,
                "exhausted" => self.job(&line.job)?.told.exhausted_lines += 1,
                "recovered" | "failing" | "re_died" | "lost_sight" => self.verdict(line)?,
                other => return Err(format!("an audit line says {other:?}")),
            }
        }
        // A step that takes over new rules may have a commit to finish before it does.
        let in_force = [before.rules(), after.rules()];
        for event in &after.events {
            match event {
                EventData::JobDead(dead) => self.told_dead(dead, &in_force)?,
                EventData::JobRetried(retry) => self.told_retried(&retry.dead)?,
                EventData::JobRecovered(retry) => self.told(&retry.dead)?.told.recovered += 1,
                EventData::JobExhausted(dead) => self.told_exhausted(dead, &in_force)?,
                EventData::Digest(digest) => self.told_existing(digest.counts.deaths)?,
                EventData::AlertFiring(_) | EventData::AlertResolved(_) => return Err("nothing is watched".to_owned()),
                EventData::Purged(_) => return Err("nobody purges".to_owned()),
                EventData::HookTest(_) => return Err("nobody tests a hook".to_owned()),
            }
        }
        Ok(())
    }

    fn job(&mut self, id: &str) -> Result<&mut Job, Wrong> {
        self.jobs.get_mut(id).ok_or_else(|| format!("there is no job {id:?}"))
    }

    /// A retry: everything must have allowed it.
    fn retried(&mut self, line: &Line, before: &Picture, after: &Picture) -> Result<(), Wrong> {
        let Line { by, entry, job, detail, .. } = line;
        let wrong = |why: String| Err(format!("{entry} of {job} was retried by {by}, and {why}"));
        let Some(grave) = self.graves.get(entry) else { return wrong("there is no such entry".to_owned()) };
        if !grave.present {
            return wrong("it was not in the DLQ".to_owned());
        }
        if grave.job != *job {
            return wrong(format!("it is of {:?}", grave.job));
        }
        if grave.covered {
            return wrong("it was there when its job was retried before: two runs of one decision".to_owned());
        }
        let known = &self.jobs[job];
        let grants = match self.fate(grave, before.rules()) {
            Fate::Waits(rule, grants) if rule.name == by => *grants,
            Fate::Waits(rule, _) => return wrong(format!("the rule {} decides about it", rule.name)),
            Fate::Spent(rule) => {
                return wrong(format!("{} grants no more than the {} it has had", rule.name, known.retries));
            }
            Fate::Stays => return wrong("no rule grants it a retry".to_owned()),
        };
        let (age, needed) = (self.now - grave.at, grants.age(known.retries));
        if age < needed {
            return wrong(format!("it was {age} ms old, and {needed} ms are needed after {} retries", known.retries));
        }
        let newer =
            |(id, other): &(Id, &super::Grave)| id > entry && other.job == *job && !other.covered && other.remembered;
        if let Some((newer, _)) = self.present().find(newer) {
            return wrong(format!("{newer} is a later death of the same job"));
        }
        for life in &known.lives {
            if let Some(sent) = life.open() {
                return wrong(format!("the retry of {} has no verdict yet", sent.entry));
            }
            if let Some(sent) = life.sent().filter(|sent| life.goes_on() && self.now <= sent.confirm_by) {
                return wrong(format!("the life that the retry of {} began still goes on: {life:?}", sent.entry));
            }
        }
        if !before.queues.contains_key(&grave.stream) {
            return wrong(format!("{} does not exist", grave.stream));
        }
        let sent: Id = detail.parse().map_err(|_| format!("{detail} is no entry of a queue"))?;
        let length = after.queues[&grave.stream].range(..sent).count();
        if length as u64 >= grants.max_queue_length {
            return wrong(format!("{} has {length} entries already", grave.stream));
        }
        match after.queues[&grave.stream].get(&sent) {
            Some(fields) if *fields == put_back(&grave.record, grave.dedup.is_some()) => {}
            other => return wrong(format!("{sent} is not its record: {other:?}")),
        }
        if let Some(key) = &grave.dedup {
            if let Some(holder) = before.claims.get(key).filter(|holder| *holder != job) {
                return wrong(format!("{holder} holds its dedup key"));
            }
            if after.claims.contains_key(key) {
                return wrong("its dedup key is still claimed: a worker would drop it".to_owned());
            }
            let rival = |(id, other): &(&String, &Job)| {
                let going = |sent: &Sent| self.now <= sent.confirm_by;
                *id != job && other.dedup.as_ref() == Some(key) && other.lives.iter().filter_map(Life::open).any(going)
            };
            if let Some((rival, _)) = self.jobs.iter().find(rival) {
                return wrong(format!("{rival} has been put back under the same dedup key"));
            }
        }
        let of_rule = |sent: &&Sent| sent.rule == *by;
        let in_flight = self.jobs.values().flat_map(|job| &job.lives).filter_map(Life::open).filter(of_rule).count();
        if in_flight >= grants.max_in_flight as usize {
            return wrong(format!("{in_flight} are in flight already"));
        }
        let place = Place::Queue(grave.stream.clone(), sent);
        let begun = Begun::Retry(Sent {
            entry: *entry,
            rule: by.clone(),
            at: self.now,
            confirm_by: self.now + grants.confirm_within,
            failing: false,
            verdict: None,
        });
        self.graves.get_mut(entry).expect("it is known").present = false;
        for grave in self.graves.values_mut().filter(|grave| grave.present && grave.job == *job) {
            grave.covered = true;
        }
        let known = self.jobs.get_mut(job).expect("it is known");
        known.retries += 1;
        known.exhausted = 0;
        self.places.insert(place.clone(), (job.clone(), known.lives.len()));
        known.lives.push(Life::new(begun, Some(place)));
        Ok(())
    }

    /// An entry is removed because its job has been put back already.
    fn twin_removed(&mut self, line: &Line) -> Result<(), Wrong> {
        match self.graves.get_mut(&line.entry) {
            Some(grave) if grave.present && grave.covered && grave.job == line.job => {
                grave.present = false;
                Ok(())
            }
            other => Err(format!("{} was removed as a twin, and was none: {other:?}", line.entry)),
        }
    }

    /// What is said to have become of a retry must be so.
    fn verdict(&mut self, line: &Line) -> Result<(), Wrong> {
        let Line { what, entry, job, .. } = line;
        let latest = self.latest;
        let died_since = |life: &Life, but_unread: bool| {
            life.burials_since
                .iter()
                .map(|id| &self.graves[id])
                .any(|grave| grave.is_known() || (but_unread && grave.present))
        };
        let of_it = |life: &&Life| life.sent().is_some_and(|sent| sent.entry == *entry);
        let Some((number, life)) =
            self.jobs.get(job).and_then(|job| job.lives.iter().enumerate().find(|(_, life)| of_it(life)))
        else {
            return Err(format!("{job} is said to be {what} after a retry of {entry}, and there was none"));
        };
        let Some(sent) = life.open() else {
            return Err(format!("{job} is said to be {what} after its retry already had its verdict: {life:?}"));
        };
        let others_live = self.jobs[job].lives.iter().enumerate().any(|(n, other)| n != number && other.lives());
        let holds = match what.as_str() {
            // What nobody could see is taken for a recovery: a job that is in none of its places.
            "recovered" => {
                let unseen = life.burials_since.iter().any(|id| self.graves[id].taken_unread);
                let ended = life.swallowed || life.destroyed || unseen;
                (life.ran_through || (!life.lives() && ended)) && !died_since(life, true)
            }
            "failing" => !sent.failing && (life.failed_since || others_live),
            "re_died" => !life.goes_on() && died_since(life, false),
            _ => latest > sent.confirm_by || life.swallowed,
        };
        if !holds {
            return Err(format!("{job} is said to be {what}, and is not: {life:?}"));
        }
        let life = &mut self.job(job)?.lives[number];
        if let Begun::Retry(sent) = &mut life.begun {
            match what.as_str() {
                "failing" => sent.failing = true,
                _ => sent.verdict = Some(what.clone()),
            }
        }
        Ok(())
    }

    /// The job an event is about.
    fn told(&mut self, dead: &JobDead) -> Result<&mut Job, Wrong> {
        self.job(dead.job_id.as_deref().unwrap_or_default())
    }

    fn told_dead(&mut self, dead: &JobDead, in_force: &[&str]) -> Result<(), Wrong> {
        let entry: Id = dead.entry_id.parse().map_err(|_| format!("{} is no entry", dead.entry_id))?;
        let wrong = |why: String| Err(format!("{entry} was announced, and {why}"));
        let Some(grave) = self.graves.get(&entry) else { return wrong("was never buried".to_owned()) };
        if grave.announced > 0 {
            return wrong("had been already".to_owned());
        }
        if grave.existing {
            return wrong("was there before".to_owned());
        }
        let known = match dead.job_id.as_deref() {
            None => 1,
            Some(job) if job == grave.job => {
                let counted = |(id, other): &(&Id, &super::Grave)| {
                    **id <= entry && other.job == job && (**id == entry || other.announced > 0 || other.existing)
                };
                self.graves.iter().filter(counted).count()
            }
            Some(job) => return wrong(format!("is not of {job:?}")),
        };
        let sure = !self.graves.values().any(|other| other.job == grave.job && other.existing && other.taken_unread);
        if sure && dead.deaths as usize != known {
            return wrong(format!("is said to be death number {}, and is number {known}", dead.deaths));
        }
        if dead.retries != self.retries(grave) {
            return wrong(format!("is said to have been retried {} times: {}", dead.retries, self.retries(grave)));
        }
        let decides = |rules: &&str| self.decider(grave, rules).map(|rule| rule.name) == dead.rule.as_deref();
        if !in_force.iter().any(decides) {
            return wrong(format!("{:?} does not decide about it", dead.rule));
        }
        let kind = grave.kind();
        if !grave.never {
            let first = self.groups.entry(kind.clone()).or_insert_with(|| dead.group.clone());
            if *first != dead.group {
                return wrong(format!("is put into the group {}, and {kind:?} is {first}", dead.group));
            }
        }
        self.graves.get_mut(&entry).expect("it is known").announced += 1;
        Ok(())
    }

    fn told_retried(&mut self, dead: &JobDead) -> Result<(), Wrong> {
        let job = self.told(dead)?;
        job.told.retried += 1;
        if dead.retries != job.told.retried {
            return Err(format!("{:?} is told to be retry {}, and is {}", dead.job_id, dead.retries, job.told.retried));
        }
        Ok(())
    }

    fn told_exhausted(&mut self, dead: &JobDead, in_force: &[&str]) -> Result<(), Wrong> {
        let entry: Id = dead.entry_id.parse().map_err(|_| format!("{} is no entry", dead.entry_id))?;
        let Some(grave) = self.graves.get(&entry) else { return Err(format!("{entry} is exhausted, and unknown")) };
        let by_rule = |rules: &&str| match self.fate(grave, rules) {
            Fate::Spent(rule) => Some(rule.name) == dead.rule.as_deref(),
            Fate::Stays | Fate::Waits(..) => false,
        };
        if !in_force.iter().any(by_rule) {
            return Err(format!("{entry} is said to be exhausted by {:?}, and is not", dead.rule));
        }
        let job = self.told(dead)?;
        job.exhausted += 1;
        job.told.exhausted += 1;
        if job.exhausted > 1 {
            return Err(format!("{:?} is said to be exhausted twice over", dead.job_id));
        }
        Ok(())
    }

    /// What was there before is told in one number: what was read of it. What a person took away may have been read.
    fn told_existing(&mut self, count: u64) -> Result<(), Wrong> {
        self.digests += 1;
        let existing = self.graves.values().filter(|grave| grave.existing);
        let (all, unsure) =
            existing.fold((0, 0), |(all, unsure), grave| (all + 1, unsure + u64::from(grave.taken_unread)));
        if self.digests > 1 || count > all || count < all - unsure {
            return Err(format!(
                "digest number {} tells of {count} entries of before, and there were {all}",
                self.digests
            ));
        }
        Ok(())
    }
}

/// The record as it must be on the queue again.
fn put_back(record: &Fields, dedup: bool) -> Fields {
    let mut fields = record.clone();
    for (name, value) in &mut fields {
        if name == b"attempt" {
            *value = if dedup { LAST_ATTEMPT.to_vec() } else { b"0".to_vec() };
        }
    }
    debug_assert!(!text(&fields, "attempt").is_empty());
    fields
}
