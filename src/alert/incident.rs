//! Incidents: pending, firing, resolved. What is due is given back as data; the state is JSON for the ledger, so a
//! restart or a new leader neither repeats nor forgets a page.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    AlertRule, KEPT, Labels, Severity,
    reading::{Holds, Judgement, Reading},
};
use crate::{
    clock::millis,
    letter::{Millis, hex},
};

/// Incidents of one rule that are pending or firing at most. Where more would fire, they are one thing.
pub const LIVE_PER_RULE: usize = 20;
/// Resolved incidents that are remembered at most, for a day.
const PAST: usize = 64;

/// Where an incident stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The condition holds, but not yet for as long as `for` asks.
    Pending,
    /// It has been told, and is not over.
    Firing,
}

/// Something that a rule has noticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// 16 hexadecimal digits, the same from pending to resolved. Made of ledger, rule, labels and the ten minutes in which
    /// it began, so that a leader who has to judge once more after the store went back in time comes to the same.
    pub id: String,
    /// The rule's name.
    pub rule: String,
    /// What it is about.
    pub labels: Labels,
    /// How much it matters.
    pub severity: Severity,
    /// Names of the hooks that are told; none for every hook that takes alerts.
    pub hooks: Option<Vec<String>>,
    /// Pending or firing.
    pub state: State,
    /// When the condition was first seen to hold.
    pub began: Millis,
    /// Since when there is something to see, as far as the samples tell.
    pub since: Millis,
    /// When it fired.
    pub fired_at: Option<Millis>,
    /// When it was last told.
    pub told_at: Option<Millis>,
    /// Since when the condition is seen not to hold.
    pub clear_since: Option<Millis>,
}

/// An incident that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Its id.
    pub id: String,
    /// The rule's name.
    pub rule: String,
    /// What it was about.
    pub labels: Labels,
    /// How much it mattered.
    #[serde(default)]
    pub severity: Severity,
    /// Names of the hooks that were told; none for every hook that takes alerts.
    #[serde(default)]
    pub hooks: Option<Vec<String>>,
    /// Since when there was something to see.
    pub since: Millis,
    /// When it fired.
    #[serde(default)]
    pub fired_at: Option<Millis>,
    /// When it was resolved.
    pub resolved_at: Millis,
}

impl Past {
    /// The incident as it was when it was resolved.
    pub(super) fn incident(&self) -> Incident {
        Incident {
            id: self.id.clone(),
            rule: self.rule.clone(),
            labels: self.labels.clone(),
            severity: self.severity,
            hooks: self.hooks.clone(),
            state: State::Firing,
            began: self.fired_at.unwrap_or(self.since),
            since: self.since,
            fired_at: self.fired_at,
            told_at: None,
            clear_since: None,
        }
    }
}

/// What is to be told of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It fires.
    Fire,
    /// It still fires.
    Repeat,
    /// It is over.
    Resolve(Ended),
}

/// Why an incident is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The condition has not held for `keep_firing_for`.
    Over,
    /// The rule is gone, or tells other things apart.
    RuleGone,
}

/// A change, and the incident after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changed {
    pub change: Change,
    pub incident: Incident,
    /// What the rule says now, if it says anything of these labels.
    pub reading: Option<Reading>,
}

/// All incidents of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Incidents {
    live: Vec<Incident>,
    past: Vec<Past>,
}

/// The moment of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub now: Millis,
    /// Nobody was looking just before: whatever has not held since then may have held.
    pub after_gap: bool,
}

impl Incidents {
    /// Those that are pending or firing.
    pub fn live(&self) -> &[Incident] {
        &self.live
    }

    /// Those of the last day that are over, the newest last.
    pub fn past(&self) -> &[Past] {
        &self.past
    }

    /// The live incident of these labels.
    pub fn of(&self, rule: &str, labels: &Labels) -> Option<&Incident> {
        self.live.iter().find(|incident| incident.rule == rule && incident.labels == *labels)
    }

    /// Until when another rule, which this one leaves it to, has told of these labels, and which: that is now while it
    /// fires. None for what fires already: it has been told, and stays until it is over.
    pub(super) fn told_until(&self, rule: &AlertRule, labels: &Labels, now: Millis) -> Option<(Millis, &str)> {
        if rule.unless.is_empty() || self.of(&rule.name, labels).is_some_and(|incident| incident.state == State::Firing)
        {
            return None;
        }
        let named = |name: &String| rule.unless.contains(name);
        let live = self.live.iter().filter(|incident| incident.state == State::Firing);
        let live = live.filter(|incident| named(&incident.rule) && agree(&incident.labels, labels));
        let past = self.past.iter().filter(|past| named(&past.rule) && agree(&past.labels, labels));
        let live = live.map(|incident| (now, incident.rule.as_str()));
        live.chain(past.map(|past| (past.resolved_at, past.rule.as_str()))).max_by_key(|(until, _)| *until)
    }

    /// Takes over what one rule says. Incidents beyond [`LIVE_PER_RULE`] are not begun; gives how many.
    pub(super) fn step(
        &mut self,
        ledger: &str,
        judgement: &Judgement<'_>,
        moment: Moment,
        changed: &mut Vec<Changed>,
    ) -> usize {
        let (rule, now) = (judgement.rule, moment.now);
        if moment.after_gap {
            // Whether it was over all the time that nobody looked, nobody knows: the wait for its end begins anew.
            let of_rule = self.live.iter_mut().filter(|incident| incident.rule == rule.name);
            of_rule.for_each(|incident| incident.clear_since = incident.clear_since.map(|_| now));
        }
        let Some(readings) = &judgement.readings else { return 0 };
        let mut passed_over = 0;
        for reading in readings {
            if reading.holds != Holds::Yes || self.of(&rule.name, &reading.labels).is_some() {
                continue;
            }
            if reading.told_by.is_some() {
                continue;
            }
            if self.live.iter().filter(|incident| incident.rule == rule.name).count() >= LIVE_PER_RULE {
                passed_over += 1;
                continue;
            }
            let id = self.id(ledger, rule, &reading.labels, now);
            self.live.push(Incident {
                id,
                rule: rule.name.clone(),
                labels: reading.labels.clone(),
                severity: rule.severity,
                hooks: rule.hooks.clone(),
                state: State::Pending,
                began: now,
                since: reading.since,
                fired_at: None,
                told_at: None,
                clear_since: None,
            });
        }
        let mut over = Vec::new();
        for (n, incident) in self.live.iter_mut().enumerate().filter(|(_, incident)| incident.rule == rule.name) {
            incident.severity = rule.severity;
            incident.hooks.clone_from(&rule.hooks);
            let reading = readings.iter().find(|reading| reading.labels == incident.labels);
            let holds = match reading {
                None => Holds::No,
                Some(reading) if incident.state == State::Pending && reading.told_by.is_some() => Holds::No,
                Some(reading) => reading.holds,
            };
            match incident.advance(rule, holds, now) {
                Advance::Stays => {}
                Advance::Tell(change) => {
                    changed.push(Changed { change, incident: incident.clone(), reading: reading.cloned() });
                }
                Advance::Ends => over.push((n, reading.cloned(), Ended::Over)),
            }
        }
        self.end(over, now, changed);
        passed_over
    }

    /// Resolves what no rule stands for any more, and forgets what is long over.
    pub(super) fn prune(&mut self, source: &str, rules: &[AlertRule], now: Millis, changed: &mut Vec<Changed>) {
        let stands = |incident: &Incident| {
            rules.iter().any(|rule| {
                let keys = incident.labels.keys().filter(|key| *key != "source").count();
                let told_apart = |key: &str| key == "source" || incident.labels.contains_key(key);
                rule.name == incident.rule
                    && rule.concerns(source)
                    && rule.by.iter().all(|key| told_apart(key.as_str()))
                    && rule.by.iter().filter(|key| key.as_str() != "source").count() == keys
            })
        };
        let gone = (0..self.live.len()).filter(|&n| !stands(&self.live[n]));
        let gone = gone.map(|n| (n, None, Ended::RuleGone)).collect();
        self.end(gone, now, changed);
        self.past.retain(|past| now.0.saturating_sub(past.resolved_at.0) < millis(KEPT));
    }

    /// Ends incidents, given by number in rising order; those that were never told simply go.
    fn end(&mut self, over: Vec<(usize, Option<Reading>, Ended)>, now: Millis, changed: &mut Vec<Changed>) {
        let mut resolved = Vec::new();
        for (n, reading, ended) in over.into_iter().rev() {
            let incident = self.live.remove(n);
            if incident.state == State::Firing {
                resolved.push(Changed { change: Change::Resolve(ended), incident, reading });
            }
        }
        resolved.reverse();
        self.past.extend(resolved.iter().map(|Changed { incident, .. }| Past {
            id: incident.id.clone(),
            rule: incident.rule.clone(),
            labels: incident.labels.clone(),
            severity: incident.severity,
            hooks: incident.hooks.clone(),
            since: incident.since,
            fired_at: incident.fired_at,
            resolved_at: now,
        }));
        changed.extend(resolved);
        let too_many = self.past.len().saturating_sub(PAST);
        self.past.drain(..too_many);
    }

    fn id(&self, ledger: &str, rule: &AlertRule, labels: &Labels, now: Millis) -> String {
        const QUANTUM: i64 = 600_000;
        let mut number = now.0.div_euclid(QUANTUM);
        loop {
            let text = format!("{ledger}\n{}\n{labels:?}\n{number}", rule.name);
            let id = hex(&Sha256::digest(text)[..8]);
            // One that began and ended in the same ten minutes was another one.
            if !self.past.iter().any(|past| past.id == id) {
                return id;
            }
            number += 1;
        }
    }
}

/// What becomes of an incident in one step.
enum Advance {
    Stays,
    Tell(Change),
    Ends,
}

impl Incident {
    fn advance(&mut self, rule: &AlertRule, holds: Holds, now: Millis) -> Advance {
        let passed = |since: Millis| now.0.saturating_sub(since.0);
        match (self.state, holds) {
            (State::Pending, Holds::Yes) if passed(self.began) >= millis(rule.for_) => {
                (self.state, self.fired_at, self.told_at) = (State::Firing, Some(now), Some(now));
                Advance::Tell(Change::Fire)
            }
            (State::Pending, Holds::No) => Advance::Ends,
            (State::Firing, Holds::Yes) => {
                self.clear_since = None;
                let due =
                    !rule.repeat.is_zero() && self.told_at.is_none_or(|told_at| passed(told_at) >= millis(rule.repeat));
                if !due {
                    return Advance::Stays;
                }
                self.told_at = Some(now);
                Advance::Tell(Change::Repeat)
            }
            (State::Firing, Holds::No) => {
                // A clock that stepped back must not make it wait.
                let clear_since = self.clear_since.map_or(now, |since| since.min(now));
                self.clear_since = Some(clear_since);
                if passed(clear_since) >= millis(rule.keep_firing_for) { Advance::Ends } else { Advance::Stays }
            }
            (State::Pending, Holds::Yes) | (_, Holds::Unknown) => Advance::Stays,
        }
    }
}

/// Whether two sets of labels can be about the same thing: no key says otherwise.
fn agree(one: &Labels, other: &Labels) -> bool {
    one.iter().all(|(key, value)| other.get(key).is_none_or(|known| known == value))
}
