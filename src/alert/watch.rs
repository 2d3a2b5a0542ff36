//! The watch over one source: what the leader keeps in memory from tick to tick, and the ledger from leader to leader.
//!
//! Everything is saved as fields of one hash, in the same step in which the events are appended. Whatever goes wrong with
//! that step, the watch is loaded anew from the ledger and goes on from there.

use std::{collections::HashMap, time::Duration};

use super::{
    AlertRule, Arrival, Change, Ended, Fields, Incident, Incidents, Judgement, Kind, Labels, Past, Reading, Sample,
    Samples, Summary, Transition, burst,
    cause::Cause,
    incident::{Changed, Moment, State},
    known::Known,
    new_group::{Fresh, Newcomers},
    pieces, summary,
    transition::Scene,
    trend,
    waiting::Aged,
};
use crate::{
    clock::millis,
    event::{Event, EventData, JobDead},
    letter::Millis,
    rule::Window,
};

/// The field that has [`Watch::cursor`].
pub const CURSOR: &str = "cursor";
/// The other fields that are not samples or known groups.
const INCIDENTS: &str = "incidents";
const NEWCOMERS: &str = "newcomers";
const SUMMED_UP: &str = "summed_up";
const LEARNT: &str = "learnt";
/// In the place of a cursor: the groups of all entries are known.
const ALL: &str = "all";
/// What is over is told once more, to those who want to hear it again and again, for this long.
const REMIND_FOR: Duration = Duration::from_secs(5 * 60);

/// The watch over one source.
#[derive(Clone, Debug)]
pub struct Watch {
    source: String,
    /// The ledger's id.
    ledger: String,
    every: Duration,
    samples: Samples,
    known: Known,
    incidents: Incidents,
    newcomers: Newcomers,
    cursor: String,
    summed_up: Option<Millis>,
    /// Up to which entry of the DLQ the groups are known that were there before anybody watched.
    learnt: String,
    /// The texts of these fields as the ledger has them.
    saved: HashMap<&'static str, String>,
}

/// What a tick came to. The ledger takes all of it in one step, or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tick {
    /// What is to be told, in order: each becomes one event of the alerts lane.
    pub transitions: Vec<Transition>,
    /// What the ledger has to remember.
    pub fields: Fields,
    /// Incidents that were not begun because their rule has too many already.
    pub passed_over: usize,
}

impl Watch {
    /// The watch as the ledger has it, of which a sample is to be taken every `sample_every`: every field of its hash in
    /// any order, none where nobody has watched yet. Gives the names of fields that this build cannot read.
    pub fn load<N, T>(
        source: &str,
        sample_every: Duration,
        fields: impl IntoIterator<Item = (N, T)>,
    ) -> (Watch, Vec<String>)
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        let mut watch = Watch {
            source: source.to_owned(),
            ledger: String::new(),
            every: sample_every,
            samples: Samples::new(sample_every),
            known: Known::default(),
            incidents: Incidents::default(),
            newcomers: Newcomers::default(),
            cursor: String::new(),
            summed_up: None,
            learnt: String::new(),
            saved: HashMap::new(),
        };
        let (mut loading, mut unreadable) = (pieces::Loading::default(), Vec::new());
        for (name, text) in fields {
            let (name, text) = (name.as_ref(), text.as_ref());
            if !(watch.load_state(name, text) || watch.known.load(name, text) || loading.add(name, text)) {
                unreadable.push(name.to_owned());
            }
        }
        loading.finish(&mut watch.samples);
        (watch, unreadable)
    }

    /// The watch of the ledger with this id: incidents of two ledgers have different ids, whatever their sources' names.
    pub fn of_ledger(self, id: &str) -> Watch {
        Watch { ledger: id.to_owned(), ..self }
    }

    fn load_state(&mut self, name: &str, text: &str) -> bool {
        let name = match name {
            CURSOR => {
                text.clone_into(&mut self.cursor);
                CURSOR
            }
            INCIDENTS => match serde_json::from_str(text) {
                Ok(incidents) => {
                    self.incidents = incidents;
                    INCIDENTS
                }
                Err(_) => return false,
            },
            NEWCOMERS => match serde_json::from_str(text) {
                Ok(newcomers) => {
                    self.newcomers = newcomers;
                    NEWCOMERS
                }
                Err(_) => return false,
            },
            SUMMED_UP => match text.parse() {
                Ok(at) => {
                    self.summed_up = Some(Millis(at));
                    SUMMED_UP
                }
                Err(_) => return false,
            },
            LEARNT => {
                text.clone_into(&mut self.learnt);
                LEARNT
            }
            _ => return false,
        };
        self.saved.insert(name, text.to_owned());
        true
    }

    /// Up to where arrivals have been counted, as last given to [`Watch::counted_until`]; empty at first.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Arrivals have been counted up to here; saved in the same step as they.
    pub fn counted_until(&mut self, cursor: &str) {
        cursor.clone_into(&mut self.cursor);
    }

    /// The line.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// What is pending and firing, and what was of late.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Counts, at `now`, what an event of the deaths lane tells. Every event is to be given once, in order: what has been
    /// read up to [`Watch::cursor`] has been counted.
    pub fn observe(&mut self, now: Millis, event: &Event, rules: &[AlertRule]) {
        match &event.data {
            EventData::JobDead(dead) => self.count(now, event.at, Arrival::of(dead), dead, rules),
            EventData::JobRetried(retry) => self.count(now, event.at, Arrival::Retried, &retry.dead, rules),
            EventData::JobRecovered(retry) => self.count(now, event.at, Arrival::Left, &retry.dead, rules),
            // Of those that were there before Sexton came it tells the most frequent.
            EventData::Digest(digest) => digest.groups.iter().for_each(|known| self.learn(event.at, &known.group)),
            EventData::JobExhausted(_)
            | EventData::AlertFiring(_)
            | EventData::AlertResolved(_)
            | EventData::Purged(_)
            | EventData::HookTest(_) => {}
        }
    }

    /// Counts, at `now`, what happened to a job at `at`. `dead` tells its task, queue, reason, error and group.
    pub fn count(&mut self, now: Millis, at: Millis, arrival: Arrival, dead: &JobDead, rules: &[AlertRule]) {
        self.count_alike(now, at, arrival, dead, 1, rules);
    }

    /// Counts the same of several jobs at once.
    pub(super) fn count_alike(
        &mut self,
        now: Millis,
        at: Millis,
        arrival: Arrival,
        dead: &JobDead,
        jobs: u32,
        rules: &[AlertRule],
    ) {
        self.samples.count(now, at, arrival, dead, jobs);
        if !matches!(arrival, Arrival::First | Arrival::Again) {
            return;
        }
        let quiet_for = rules.iter().filter_map(|rule| match &rule.kind {
            Kind::NewGroup(new) => Some(new.quiet_for),
            _ => None,
        });
        let shortest = quiet_for.min();
        let before = self.known.see(&dead.group, at, shortest);
        let quiet = shortest
            .is_some_and(|shortest| before.is_none_or(|before| at.0.saturating_sub(before.0) >= millis(shortest)));
        // A job that died before is no news, whatever it dies of now; nor is anything while it is not known what was there.
        if quiet && arrival == Arrival::First && self.learnt == ALL {
            self.newcomers.add(Fresh { at: now, before, cause: Cause::of(dead, at) });
        }
    }

    /// After which entry of the DLQ to read on and [`Watch::learn`] the groups of what is there, so that only new ones
    /// count as new: empty for the beginning. None if that is done, or no rule asks for it.
    pub fn to_learn(&self, rules: &[AlertRule]) -> Option<&str> {
        let asks = |rule: &AlertRule| matches!(rule.kind, Kind::NewGroup(_)) && rule.concerns(&self.source);
        (self.learnt != ALL && rules.iter().any(asks)).then_some(&self.learnt)
    }

    /// The groups of the entries up to here are known, or those of all entries.
    pub fn learnt_until(&mut self, cursor: Option<&str>) {
        cursor.unwrap_or(ALL).clone_into(&mut self.learnt);
    }

    /// Notes that this group is no news: of an entry that was in the DLQ before Sexton came.
    pub fn learn(&mut self, at: Millis, group: &str) {
        self.known.see(group, at, None);
    }

    /// Takes a sample at `now`, judges the rules, and gives what is to be told and saved. `aged` has what those rules saw
    /// that have an [`AlertRule::aged`]; one that did not look this time is judged again when it does.
    pub fn tick(&mut self, now: Millis, sample: Sample, rules: &[AlertRule], aged: &[Aged]) -> Tick {
        let (transitions, passed_over) = self.step(now, sample, rules, aged);
        Tick { transitions, fields: self.save(), passed_over }
    }

    /// A tick that saves nothing.
    pub(super) fn step(
        &mut self,
        now: Millis,
        sample: Sample,
        rules: &[AlertRule],
        aged: &[Aged],
    ) -> (Vec<Transition>, usize) {
        let gap = 3 * millis(self.every) + 1_000;
        let after_gap = self.samples.last().is_none_or(|last| now.0 - last.0 > gap);
        self.samples.sample(now, sample);
        self.newcomers.forget(now);
        let moment = Moment { now, after_gap };
        let mut changed = Vec::new();
        self.incidents.prune(&self.source, rules, now, &mut changed);
        let mut passed_over = 0;
        for rule in in_order(rules).filter(|rule| rule.concerns(&self.source)) {
            let judgement = self.judge(rule, now, aged);
            passed_over += self.incidents.step(&self.ledger, &judgement, moment, &mut changed);
        }
        let transitions = changed.into_iter().map(|changed| self.transition(changed, now, rules, aged)).collect();
        (transitions, passed_over)
    }

    /// What is to be told once more at `now` to those of these hooks that it was told to: what fires, and what has been
    /// over for less than five minutes. Changes nothing.
    pub fn reminders(&self, now: Millis, rules: &[AlertRule], aged: &[Aged], to: &[String]) -> Vec<Transition> {
        let again = |changed: Changed, at: Millis| {
            let told = changed.incident.hooks.as_ref();
            let hooks = to.iter().filter(|hook| told.is_none_or(|told| told.contains(hook)));
            let hooks: Vec<String> = hooks.cloned().collect();
            let transition = Transition { reminds: true, ..self.transition(changed, at, rules, aged) };
            (!hooks.is_empty()).then_some(Transition { hooks: Some(hooks), ..transition })
        };
        let judgements = self.judgements(now, rules, aged);
        let reading = |incident: &Incident| {
            let judgement = judgements.iter().find(|judgement| judgement.rule.name == incident.rule)?;
            judgement.readings.iter().flatten().find(|reading| reading.labels == incident.labels).cloned()
        };
        let firing = self.incidents.live().iter().filter(|incident| incident.state == State::Firing);
        let firing = firing.filter_map(|incident| {
            let changed = Changed { change: Change::Repeat, incident: incident.clone(), reading: reading(incident) };
            again(changed, now)
        });
        let fresh = |past: &&Past| now.0.saturating_sub(past.resolved_at.0) < millis(REMIND_FOR);
        // To a receiver that knows labels alone, the end of an incident would be the end of the one after it.
        let anew = |past: &&Past| {
            let live = self.incidents.of(&past.rule, &past.labels);
            live.is_some_and(|live| live.state == State::Firing)
        };
        let over = self.incidents.past().iter().filter(fresh).filter(|past| !anew(past)).filter_map(|past| {
            let change = Change::Resolve(Ended::Over);
            again(Changed { change, incident: past.incident(), reading: None }, past.resolved_at)
        });
        firing.chain(over).collect()
    }

    /// Whether a summary is due by this schedule, and when it was; each is due once, over all leaders, if what
    /// [`Watch::tick`] gives next is saved. None for the first time: there is nothing to sum up yet.
    pub fn summary_due(&mut self, schedule: &Window, now: Millis) -> Option<Summary> {
        let Some(last) = self.summed_up else {
            self.summed_up = Some(now);
            return None;
        };
        summary::due(schedule, last, now)?;
        // Not the minute that it was due in: what happened since is in this one.
        self.summed_up = Some(now);
        Some(self.samples.summary(last, now))
    }

    /// What every rule says at `now`, for people: the last sample must be a recent one. Changes nothing.
    pub fn judgements<'r>(&self, now: Millis, rules: &'r [AlertRule], aged: &[Aged]) -> Vec<Judgement<'r>> {
        let concerned = rules.iter().filter(|rule| rule.concerns(&self.source));
        concerned.map(|rule| self.judge(rule, now, aged)).collect()
    }

    /// What there is to say, at `now`, of an incident that fires or is pending, and of which its rule says this: for
    /// people. Changes nothing.
    pub fn told(
        &self,
        now: Millis,
        incident: &Incident,
        reading: &Reading,
        rules: &[AlertRule],
        aged: &[Aged],
    ) -> Transition {
        let changed = Changed { change: Change::Repeat, incident: incident.clone(), reading: Some(reading.clone()) };
        self.transition(changed, now, rules, aged)
    }

    /// Rules, severity and number of the incidents that fire, for the metric: every rule, also with none.
    pub fn firing<'r>(&self, rules: &'r [AlertRule]) -> Vec<(&'r AlertRule, usize)> {
        let live = self.incidents.live();
        let fires = |rule: &AlertRule| {
            live.iter().filter(|incident| incident.rule == rule.name && incident.state == State::Firing).count()
        };
        rules.iter().filter(|rule| rule.concerns(&self.source)).map(|rule| (rule, fires(rule))).collect()
    }

    fn judge<'r>(&self, rule: &'r AlertRule, now: Millis, aged: &[Aged]) -> Judgement<'r> {
        let told_until = |labels: &Labels| self.incidents.told_until(rule, labels, now);
        let (source, samples) = (self.source.as_str(), &self.samples);
        let readings = match &rule.kind {
            Kind::Rising(rising) => Some(trend::judge(rule, rising, source, samples, now, |labels| {
                told_until(labels).map(|(until, _)| until)
            })),
            Kind::Burst(burst) => Some(burst::judge(rule, burst, source, samples, now)),
            Kind::Waiting(_) => aged.iter().find(|aged| aged.rule == rule.name).map(|aged| aged.judge(rule)),
            Kind::NewGroup(new) => Some(self.newcomers.judge(rule, new, source)),
        };
        let readings = readings.map(|mut readings| {
            for reading in &mut readings {
                let told_now = told_until(&reading.labels).filter(|(until, _)| *until >= now);
                reading.told_by = told_now.map(|(_, by)| by.to_owned());
            }
            readings.sort_by_key(|reading| std::cmp::Reverse(reading.value));
            readings
        });
        Judgement { rule, readings }
    }

    fn transition(&self, changed: Changed, now: Millis, rules: &[AlertRule], aged: &[Aged]) -> Transition {
        let rule = rules.iter().find(|rule| rule.name == changed.incident.rule);
        let fresh = match rule {
            Some(AlertRule { kind: Kind::NewGroup(new), .. }) => rule
                .into_iter()
                .flat_map(|rule| self.newcomers.meant(rule, new, &self.source))
                .filter(|(labels, _)| *labels == changed.incident.labels)
                .map(|(_, fresh)| &fresh.cause)
                .collect(),
            _ => Vec::new(),
        };
        let aged = aged.iter().find(|aged| aged.rule == changed.incident.rule);
        Scene { source: &self.source, samples: &self.samples, aged, fresh, now }.transition(changed, rule)
    }

    pub(super) fn save(&mut self) -> Fields {
        let mut fields = Fields::default();
        pieces::save(&mut self.samples, &mut fields);
        self.known.save(&mut fields);
        let json = |text: serde_json::Result<String>| text.expect("incidents are made of texts, numbers and lists");
        for (name, text) in [
            (CURSOR, self.cursor.clone()),
            (INCIDENTS, json(serde_json::to_string(&self.incidents))),
            (NEWCOMERS, json(serde_json::to_string(&self.newcomers))),
            (SUMMED_UP, self.summed_up.map(|at| at.0.to_string()).unwrap_or_default()),
            (LEARNT, self.learnt.clone()),
        ] {
            if !text.is_empty() && self.saved.get(name) != Some(&text) {
                fields.set(name.to_owned(), text.clone());
                self.saved.insert(name, text);
            }
        }
        fields
    }
}

/// The rules in the order of judging: those that leave something to others come after them.
fn in_order(rules: &[AlertRule]) -> impl Iterator<Item = &AlertRule> {
    let first = rules.iter().filter(|rule| rule.unless.is_empty());
    first.chain(rules.iter().filter(|rule| !rule.unless.is_empty()))
}
