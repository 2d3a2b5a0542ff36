//! The reference model: what there is and what may become of it, in plain code, without a store.
//!
//! It is told what workers and people do, sees what Sexton has done, and says what was wrong about that. A *life* is a
//! job's way from its queue to the end of it; every retry begins one.

mod checks;
mod happened;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    picture::{Id, Picture},
    rules::{Grants, Rule, RuleSet, real},
};
use crate::support::graveyard::Fields;

/// What was wrong.
pub(super) type Wrong = String;

/// Everything the model knows.
#[derive(Debug, Default)]
pub(super) struct Reference {
    /// What the store's clock shows.
    pub(super) now: i64,
    /// The latest it has ever shown.
    latest: i64,
    /// All rules that there ever were, by fingerprint.
    rules: BTreeMap<String, RuleSet>,
    /// The rules that the loops have been given.
    given: String,
    /// By job id.
    jobs: BTreeMap<String, Job>,
    /// Every entry that the DLQ ever had.
    graves: BTreeMap<Id, Grave>,
    /// Where jobs are that live: which job, and which of its lives.
    places: BTreeMap<Place, (String, usize)>,
    /// The fingerprint of each kind of failure, as it was first told.
    groups: BTreeMap<(String, String), String>,
    /// The last entry that was there before Sexton first came, if there was any.
    existing_until: Option<Id>,
    digests: u64,
}

/// A place where a job lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// On this queue stream, waiting or taken.
    Queue(String, Id),
    /// On the framework's clock, under this name.
    Clock(String),
}

/// One job.
#[derive(Debug, Default)]
pub(super) struct Job {
    dedup: Option<String>,
    lives: Vec<Life>,
    /// Retries by Sexton.
    retries: u32,
    /// How often it was said to be exhausted since its last retry.
    exhausted: u32,
    /// Events about it so far, and what the audit log says that has one.
    told: Told,
    /// A person has had a hand in where it is.
    meddled: bool,
}

/// What was told of a job.
#[derive(Debug, Default)]
struct Told {
    retried: u32,
    recovered: u32,
    exhausted: u32,
    exhausted_lines: u32,
}

/// One life of a job.
#[derive(Debug)]
struct Life {
    begun: Begun,
    places: BTreeSet<Place>,
    ran_through: bool,
    /// It ended in the DLQ.
    buried: bool,
    /// A worker dropped it without a run: the claim on its dedup key was another job's, or its own.
    swallowed: bool,
    /// Its queue was deleted.
    destroyed: bool,
    /// Entries of the job buried since it began, whichever life they are of.
    burials_since: Vec<Id>,
    /// A run of the job has failed since it began.
    failed_since: bool,
}

/// How a life began.
#[derive(Debug)]
enum Begun {
    /// By whoever enqueued the job, or by a person.
    Elsewhere,
    /// By a retry of ours.
    Retry(Sent),
}

/// A retry of ours.
#[derive(Debug)]
struct Sent {
    entry: Id,
    rule: String,
    at: i64,
    confirm_by: i64,
    failing: bool,
    /// The final verdict.
    verdict: Option<String>,
}

/// One entry of the DLQ.
#[derive(Clone, Debug)]
pub(super) struct Grave {
    /// Empty if the record names none.
    pub(super) job: String,
    pub(super) task: String,
    /// The type of its error; empty where only a reason is known.
    pub(super) error: String,
    pub(super) reason: String,
    pub(super) dedup: Option<String>,
    /// The stream it came from.
    pub(super) stream: String,
    /// It can never be retried by rule.
    pub(super) never: bool,
    /// When it was buried.
    pub(super) at: i64,
    /// Its record without what the burial added.
    pub(super) record: Fields,
    /// The life that ended with it.
    life: usize,
    /// It is in the DLQ.
    present: bool,
    /// It was in the DLQ when its job was retried: that retry was made for it, too.
    covered: bool,
    /// The ledger has passed it.
    read: bool,
    /// The ledger has it among its job's entries: it was read when there were rules, or judged by some since.
    remembered: bool,
    /// It was taken away before.
    taken_unread: bool,
    /// It was there before Sexton first came, and is not announced.
    existing: bool,
    announced: u32,
}

/// What the rules say of an entry.
enum Fate<'r> {
    /// Nothing: it stays where it is.
    Stays,
    /// It is granted no further retry.
    Spent(&'r Rule),
    /// It waits.
    Waits(&'r Rule, &'r Grants),
}

impl Grave {
    /// A letter with these fields, for [`Reference::buried`].
    pub(super) fn new(job: &str, task: &str, reason: &str, stream: &str, at: i64, record: Fields) -> Grave {
        Grave {
            job: job.to_owned(),
            task: task.to_owned(),
            error: String::new(),
            reason: reason.to_owned(),
            dedup: None,
            stream: stream.to_owned(),
            never: false,
            at,
            record,
            life: 0,
            present: true,
            covered: false,
            read: false,
            remembered: false,
            taken_unread: false,
            existing: false,
            announced: 0,
        }
    }

    /// The ledger has seen it.
    fn is_known(&self) -> bool {
        self.read && (!self.taken_unread || self.announced > 0)
    }

    /// What its fingerprint is made of.
    fn kind(&self) -> (String, String) {
        (self.task.clone(), if self.error.is_empty() { self.reason.clone() } else { self.error.clone() })
    }
}

impl Life {
    fn new(begun: Begun, place: Option<Place>) -> Life {
        Life {
            begun,
            places: place.into_iter().collect(),
            ran_through: false,
            buried: false,
            swallowed: false,
            destroyed: false,
            burials_since: Vec::new(),
            failed_since: false,
        }
    }

    fn lives(&self) -> bool {
        !self.places.is_empty()
    }

    /// It goes on, and not only because a worker died before it could let go of a job that had come to its end.
    fn goes_on(&self) -> bool {
        self.lives() && !self.buried && !self.ran_through
    }

    fn sent(&self) -> Option<&Sent> {
        match &self.begun {
            Begun::Retry(sent) => Some(sent),
            Begun::Elsewhere => None,
        }
    }

    /// The retry it began with, if that has no verdict yet.
    fn open(&self) -> Option<&Sent> {
        self.sent().filter(|sent| sent.verdict.is_none())
    }
}

/// What workers and people do, as the model is told.
impl Reference {
    /// The clock has been set.
    pub(super) fn clock_set(&mut self, now: i64) {
        self.now = now;
        self.latest = self.latest.max(now);
    }

    /// The loops have been given these rules.
    pub(super) fn rules_given(&mut self, rules: RuleSet) {
        self.given = real(&rules).fingerprint.clone();
        self.rules.insert(self.given.clone(), rules);
    }

    /// A leader attaches for the first time, and what is in the DLQ is not to be announced one by one.
    pub(super) fn first_attached(&mut self) {
        for (id, grave) in self.graves.iter_mut().filter(|(_, grave)| grave.present) {
            grave.existing = true;
            self.existing_until = Some(*id);
        }
    }

    /// A job is put on its queue by somebody.
    pub(super) fn enqueued(&mut self, job: &str, dedup: Option<String>, place: Place) {
        let known = self.jobs.entry(job.to_owned()).or_default();
        known.dedup = dedup;
        self.places.insert(place.clone(), (job.to_owned(), known.lives.len()));
        known.lives.push(Life::new(Begun::Elsewhere, Some(place)));
    }

    /// A burial. `from` is the place that the job has in that life; none where nobody has seen that life, or where it is
    /// the one that ended with `again`.
    pub(super) fn buried(&mut self, id: Id, mut grave: Grave, from: Option<&Place>, again: Option<Id>) {
        if !grave.job.is_empty() {
            let job = self.jobs.entry(grave.job.clone()).or_default();
            job.dedup.clone_from(&grave.dedup);
            grave.life = match (from.and_then(|place| self.places.get(place)), again) {
                (Some((_, life)), _) => *life,
                (None, Some(again)) => self.graves[&again].life,
                (None, None) => {
                    job.lives.push(Life::new(Begun::Elsewhere, None));
                    job.lives.len() - 1
                }
            };
            job.lives[grave.life].buried = true;
            for life in &mut job.lives {
                life.burials_since.push(id);
                life.failed_since = true;
            }
        }
        self.graves.insert(id, grave);
    }

    /// A run ended well.
    pub(super) fn ran_through(&mut self, place: &Place) {
        self.life_at(place).ran_through = true;
    }

    /// A worker has put the job off under this name, because its run `failed` or it does not know the task.
    pub(super) fn put_off(&mut self, place: &Place, name: &str, failed: bool) {
        let tenant = self.places[place].clone();
        let job = self.jobs.get_mut(&tenant.0).expect("it lives somewhere");
        if failed {
            job.lives.iter_mut().for_each(|life| life.failed_since = true);
        }
        let clock = Place::Clock(name.to_owned());
        // Two lives of one job are put off under one name: the framework then knows only one of them.
        if let Some((_, other)) = self.places.insert(clock.clone(), tenant.clone())
            && other != tenant.1
        {
            job.lives[other].places.remove(&clock);
            job.lives[other].destroyed = true;
        }
        job.lives[tenant.1].places.insert(clock);
    }

    /// What was due is moved to a queue.
    pub(super) fn promoted(&mut self, name: &str, to: Place) {
        let from = Place::Clock(name.to_owned());
        let tenant = self.places[&from].clone();
        self.let_go(&from);
        self.jobs.get_mut(&tenant.0).expect("it lives somewhere").lives[tenant.1].places.insert(to.clone());
        self.places.insert(to, tenant);
    }

    /// A worker drops the job without a run.
    pub(super) fn swallowed(&mut self, place: &Place) {
        self.life_at(place).swallowed = true;
        self.let_go(place);
    }

    /// A worker lets go of an entry.
    pub(super) fn let_go(&mut self, place: &Place) {
        self.life_at(place).places.remove(place);
        self.places.remove(place);
    }

    /// A queue's stream is deleted.
    pub(super) fn queue_deleted(&mut self, stream: &str) {
        let on_it = |place: &&Place| matches!(place, Place::Queue(of, _) if of == stream);
        let lost: Vec<Place> = self.places.keys().filter(on_it).cloned().collect();
        for place in &lost {
            self.life_at(place).destroyed = true;
            self.let_go(place);
        }
    }

    /// A person removes an entry.
    pub(super) fn removed(&mut self, id: Id) {
        let grave = self.graves.get_mut(&id).expect("it is in the DLQ");
        grave.present = false;
        grave.taken_unread = !grave.read;
        if let Some(job) = self.jobs.get_mut(&grave.job) {
            job.meddled = true;
        }
    }

    /// A person puts an entry back by hand.
    pub(super) fn put_back(&mut self, id: Id, place: Place) {
        self.removed(id);
        let grave = &self.graves[&id];
        let (job, dedup) = (grave.job.clone(), grave.dedup.clone());
        self.enqueued(&job, dedup, place);
    }

    /// Where living jobs are, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.keys()
    }

    /// The entries in the DLQ, in order.
    pub(super) fn present(&self) -> impl Iterator<Item = (Id, &Grave)> {
        self.graves.iter().filter(|(_, grave)| grave.present).map(|(id, grave)| (*id, grave))
    }

    /// The moments at which the entries that wait are old enough, by the rules that the loops have been given.
    pub(super) fn ages_reached(&self) -> Vec<i64> {
        let waits = |grave: &Grave| match self.fate(grave, &self.given) {
            Fate::Waits(_, grants) => Some(grave.at + grants.age(self.retries(grave))),
            Fate::Stays | Fate::Spent(_) => None,
        };
        self.present().filter_map(|(_, grave)| waits(grave)).collect()
    }

    /// Whether a job has a dedup key.
    pub(super) fn has_dedup_key(&self, job: &str) -> bool {
        self.jobs.get(job).is_some_and(|job| job.dedup.is_some())
    }

    fn life_at(&mut self, place: &Place) -> &mut Life {
        let (job, life) = &self.places[place];
        &mut self.jobs.get_mut(job).expect("it lives somewhere").lives[*life]
    }

    fn retries(&self, grave: &Grave) -> u32 {
        self.jobs.get(&grave.job).map_or(0, |job| job.retries)
    }

    /// The rule that decides about an entry, also one that leaves it.
    fn decider(&self, grave: &Grave, fingerprint: &str) -> Option<&Rule> {
        let matches = |rule: &&Rule| {
            rule.task.is_none_or(|task| task == grave.task)
                && rule.reason.is_none_or(|reason| reason == grave.reason)
                && rule.error.is_none_or(|error| error == grave.error)
        };
        self.rules.get(fingerprint)?.iter().find(matches).filter(|_| !grave.never)
    }

    /// What these rules say of an entry, its job being where it is now.
    fn fate(&self, grave: &Grave, fingerprint: &str) -> Fate<'_> {
        match self.decider(grave, fingerprint).map(|rule| (rule, &rule.grants)) {
            None | Some((_, None)) => Fate::Stays,
            Some((rule, Some(grants))) if self.retries(grave) >= grants.max_retries => Fate::Spent(rule),
            Some((rule, Some(grants))) => Fate::Waits(rule, grants),
        }
    }

    /// The entries that wait, and whether a newer one of the same job stands for each.
    fn waiting(&self, picture: &Picture) -> Vec<(Id, bool)> {
        let waits = |grave: &Grave| !grave.covered && matches!(self.fate(grave, picture.rules()), Fate::Waits(..));
        let newer = |id: Id, grave: &Grave| {
            self.present().any(|(other_id, other)| other_id > id && other.job == grave.job && !other.covered)
        };
        let waiting = self.present().filter(|(_, grave)| waits(grave));
        waiting.map(|(id, grave)| (id, newer(id, grave))).collect()
    }

    /// Nothing is to be done any more, whatever the time: nobody lives, no verdict is open, what is in the DLQ stays, and
    /// the indexes of rules that are no longer in force are gone.
    pub(super) fn is_at_rest(&self, picture: &Picture) -> bool {
        let waiting = self.waiting(picture);
        self.places.is_empty()
            && waiting.iter().all(|(_, has_newer)| *has_newer)
            && picture.flights.is_empty()
            && picture
                .index
                .keys()
                .all(|set| set.split(':').next() == picture.state.get("generation").map(String::as_str))
            && picture.number("indexed") == i64::try_from(waiting.len()).expect("a few")
    }

    /// What keeps it from rest, for people.
    pub(super) fn unrest(&self, picture: &Picture) -> String {
        format!(
            "jobs live at {:?}; {:?} wait (and whether a newer one stands for each); {:?} are in flight; {} are in the \
             index: {:?}",
            self.places,
            self.waiting(picture),
            picture.flights,
            picture.number("indexed"),
            picture.index
        )
    }
}
