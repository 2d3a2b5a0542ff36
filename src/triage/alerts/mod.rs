//! How alerts stand: the watch as the ledger has it, and what the rules say of it.

mod line;
mod shown;

pub use line::{LineItem, LinePoint, line_of};
pub use shown::{AlertItem, AlertsShown};

use std::{cmp::Ordering, time::Duration};

use crate::{
    alert::{
        Aged, AlertRule, Holds, Incident, Judgement, Labels, Line, Need, Past, Reading, Severity, State as Lives, Watch,
    },
    clock::millis,
    event::{AlertGroup, EventData, Include, JobDead},
    ledger::{self, AlertLedger, Cursor, Overview},
    letter::Millis,
};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Parts of a line at most.
const PARTS: u32 = 48;
/// Entries read in one piece for rules about what waits.
const PAGE: usize = 250;
/// Younger entries after which no older ones are looked for: entries come in the order of their burial, but for some whose
/// record tells another time.
const YOUNG: u64 = 100;

/// What alerts are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Measure<'r> {
    /// The alert rules.
    pub rules: &'r [AlertRule],
    /// How often a sample is to be taken.
    pub sample_every: Duration,
}

/// How alerts stand in one source.
pub struct Standing<'r> {
    /// The source's name.
    pub source: String,
    /// The store's time.
    pub now: Millis,
    /// When the last sample was taken; everything is as it was then.
    pub sampled_at: Option<Millis>,
    /// A sample ought to have been taken since.
    pub stale: bool,
    /// Somebody leads.
    pub led: bool,
    /// Dead letters, and retries in flight, at the last sample.
    pub level: Option<u64>,
    /// The line of the last hour and of the last day.
    pub lines: [Line; 2],
    /// What is there, in the order in which it is to be shown.
    pub items: Vec<AlertFound<'r>>,
    /// Fields that this build cannot read.
    pub unreadable: Vec<String>,
    /// There are alert rules that concern it.
    pub has_rules: bool,
}

/// Where an alert stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has been told, and is not over.
    Firing,
    /// Its condition holds, but not yet for as long as its rule asks.
    Pending,
    /// Neither.
    Quiet,
    /// It was over within the last day.
    Resolved,
}

impl State {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Firing => "firing",
            State::Pending => "pending",
            State::Quiet => "quiet",
            State::Resolved => "resolved",
        }
    }
}

/// An incident, or what a rule says of something that is none.
#[derive(Clone, Debug)]
pub struct AlertFound<'r> {
    /// Where it stands.
    pub state: State,
    /// The source's name.
    pub source: String,
    /// The alert rule's name.
    pub alert: String,
    /// How grave it is.
    pub severity: Severity,
    /// What it is about.
    pub labels: Labels,
    /// The incident, if it is one.
    pub incident: Option<String>,
    /// Since when there is something to see.
    pub since: Option<Millis>,
    /// When it fired.
    pub fired_at: Option<Millis>,
    /// When it fires if its condition goes on to hold.
    pub fires_at: Option<Millis>,
    /// When it is resolved if its condition goes on not to hold.
    pub resolves_at: Option<Millis>,
    /// When it was resolved.
    pub resolved_at: Option<Millis>,
    /// The hooks that are told; none for every hook that takes alerts.
    pub hooks: Option<Vec<String>>,
    /// Its rule, if it is among those that were given.
    pub rule: Option<&'r AlertRule>,
    /// What that says; none where it says nothing of these labels.
    pub reading: Option<Reading>,
    /// What must be met for it to hold, and how far it is, from 0 to 1; none if its rule is not known, or it is over.
    pub needs: Vec<Need>,
    /// How far it is from firing.
    pub progress: Option<f64>,
    /// What a hook would be told of an incident, if its rule says anything of it.
    pub summary: Option<String>,
    /// The groups that most of it is of.
    pub groups: Vec<AlertGroup>,
}

impl<'r> Standing<'r> {
    /// Looks at a source. Reads, and nothing else.
    pub async fn look(
        ledger: &dyn AlertLedger,
        overview: &Overview,
        measure: Measure<'r>,
    ) -> ledger::Result<Standing<'r>> {
        let Measure { rules, sample_every } = measure;
        let source = ledger.name();
        let (watch, unreadable) = Watch::load(source, sample_every, ledger.load_watch().await?.fields);
        let now = ledger.clock().now();
        let mut aged = Vec::new();
        for rule in rules.iter().filter(|rule| rule.concerns(source)) {
            aged.extend(look_at_the_oldest(ledger, rule, now).await?);
        }
        let sampled_at = watch.samples().last();
        let level = watch.samples().level();
        let line = |over: Duration| {
            // A part with no sample in it would look like a time when nobody looked.
            let parts = over.as_millis() / sample_every.as_millis().max(1);
            watch.samples().line(now, over, u32::try_from(parts).unwrap_or(PARTS).clamp(1, PARTS))
        };
        Ok(Standing {
            source: source.to_owned(),
            now,
            sampled_at,
            stale: sampled_at.is_none_or(|at| now.0.saturating_sub(at.0) > 3 * millis(sample_every) + 1_000),
            led: overview.leader.is_some(),
            level,
            lines: [line(HOUR), line(DAY)],
            // Judged as the leader did it; a moment later the same line would already look flatter.
            items: items(&watch, source, sampled_at.unwrap_or(now), rules, &aged),
            unreadable,
            has_rules: rules.iter().any(|rule| rule.concerns(source)),
        })
    }
}

/// What a rule about entries that wait has to see: none for other rules.
async fn look_at_the_oldest(ledger: &dyn AlertLedger, rule: &AlertRule, now: Millis) -> ledger::Result<Option<Aged>> {
    let Some(query) = rule.aged() else { return Ok(None) };
    let (mut aged, mut after, mut seen, mut young) = (Aged::new(rule), Cursor::default(), 0, 0);
    loop {
        let batch = ledger.browse(&after, PAGE).await?;
        for letter in &batch.letters {
            if seen >= query.at_most || young >= YOUNG {
                return Ok(Some(aged));
            }
            if now.0.saturating_sub(letter.died_at.0) < millis(query.older_than) {
                young += 1;
                continue;
            }
            seen += 1;
            let dead = JobDead::of(ledger.name(), letter, Include::default());
            aged.add(rule, ledger.name(), now, letter.died_at, &dead);
        }
        if batch.caught_up {
            return Ok(Some(aged));
        }
        after = batch.cursor;
    }
}

fn items<'r>(watch: &Watch, source: &str, at: Millis, rules: &'r [AlertRule], aged: &[Aged]) -> Vec<AlertFound<'r>> {
    let judgements = watch.judgements(at, rules, aged);
    let mut items = Vec::new();
    for incident in watch.incidents().live() {
        let mut item = AlertFound::of(incident, &judgements, source);
        if let Some(reading) = &item.reading
            && let EventData::AlertFiring(told) = watch.told(at, incident, reading, rules, aged).event(|_| None)
        {
            (item.summary, item.groups) = (Some(told.summary), told.groups);
        }
        items.push(item);
    }
    for judgement in judgements {
        let readings = judgement.readings.unwrap_or_default();
        let is_live = |labels: &Labels| watch.incidents().of(&judgement.rule.name, labels).is_some();
        let has_incident = watch.incidents().live().iter().any(|incident| incident.rule == judgement.rule.name);
        if readings.is_empty() && !has_incident {
            items.push(AlertFound::unseen(judgement.rule, source));
        }
        let quiet = readings.into_iter().filter(|reading| !is_live(&reading.labels));
        items.extend(quiet.map(|reading| AlertFound::quiet(judgement.rule, reading, source)));
    }
    let past = watch.incidents().past().iter();
    items.extend(past.map(|past| AlertFound::past(past, rules.iter().find(|rule| rule.name == past.rule), source)));
    items.sort_by(AlertFound::in_order);
    items
}

impl<'r> AlertFound<'r> {
    /// What fires or is pending.
    fn of(incident: &Incident, judgements: &[Judgement<'r>], source: &str) -> AlertFound<'r> {
        let judgement = judgements.iter().find(|judgement| judgement.rule.name == incident.rule);
        let rule = judgement.map(|judgement| judgement.rule);
        let readings = judgement.and_then(|judgement| judgement.readings.as_deref()).unwrap_or_default();
        let reading = readings.iter().find(|reading| reading.labels == incident.labels).cloned();
        let later = |at: Millis, by: Duration| Millis(at.0.saturating_add(millis(by)));
        let state = match incident.state {
            Lives::Firing => State::Firing,
            Lives::Pending => State::Pending,
        };
        AlertFound {
            state,
            source: source.to_owned(),
            alert: incident.rule.clone(),
            severity: incident.severity,
            labels: incident.labels.clone(),
            incident: Some(incident.id.clone()),
            since: Some(incident.since),
            fired_at: incident.fired_at,
            fires_at: rule.filter(|_| state == State::Pending).map(|rule| later(incident.began, rule.for_)),
            resolves_at: rule.zip(incident.clear_since).map(|(rule, since)| later(since, rule.keep_firing_for)),
            resolved_at: None,
            hooks: incident.hooks.clone(),
            rule,
            needs: match (&reading, rule) {
                (Some(reading), _) => reading.needs.clone(),
                (None, rule) => rule.map(AlertRule::needs).unwrap_or_default(),
            },
            progress: rule.map(|_| reading.as_ref().map_or(0.0, Reading::progress)),
            reading,
            summary: None,
            groups: Vec::new(),
        }
    }

    /// What is none, or not yet.
    fn quiet(rule: &'r AlertRule, reading: Reading, source: &str) -> AlertFound<'r> {
        AlertFound {
            labels: reading.labels.clone(),
            needs: reading.needs.clone(),
            progress: Some(reading.progress()),
            reading: Some(reading),
            ..AlertFound::unseen(rule, source)
        }
    }

    /// A rule that saw nothing at all.
    fn unseen(rule: &'r AlertRule, source: &str) -> AlertFound<'r> {
        AlertFound {
            state: State::Quiet,
            source: source.to_owned(),
            alert: rule.name.clone(),
            severity: rule.severity,
            labels: Labels::from([("source".to_owned(), source.to_owned())]),
            incident: None,
            since: None,
            fired_at: None,
            fires_at: None,
            resolves_at: None,
            resolved_at: None,
            hooks: rule.hooks.clone(),
            rule: Some(rule),
            reading: None,
            needs: rule.needs(),
            progress: Some(0.0),
            summary: None,
            groups: Vec::new(),
        }
    }

    /// What is over.
    fn past(past: &Past, rule: Option<&'r AlertRule>, source: &str) -> AlertFound<'r> {
        AlertFound {
            state: State::Resolved,
            source: source.to_owned(),
            alert: past.rule.clone(),
            severity: past.severity,
            labels: past.labels.clone(),
            incident: Some(past.id.clone()),
            since: Some(past.since),
            fired_at: past.fired_at,
            fires_at: None,
            resolves_at: None,
            resolved_at: Some(past.resolved_at),
            hooks: past.hooks.clone(),
            rule,
            reading: None,
            needs: Vec::new(),
            progress: None,
            summary: None,
            groups: Vec::new(),
        }
    }

    /// Whether its condition holds; none where its rule says nothing.
    pub fn holds(&self) -> Option<Holds> {
        match (&self.reading, self.progress) {
            (Some(reading), _) => Some(reading.holds),
            (None, Some(_)) => Some(Holds::No),
            (None, None) => None,
        }
    }

    /// What fires, what is pending, what is nearest to firing, and what was over last.
    fn in_order(&self, other: &AlertFound<'_>) -> Ordering {
        let of_state = match self.state {
            State::Firing => self.severity.cmp(&other.severity).reverse().then(self.fired_at.cmp(&other.fired_at)),
            State::Pending => self.fires_at.cmp(&other.fires_at),
            State::Quiet => other.progress.unwrap_or(0.0).total_cmp(&self.progress.unwrap_or(0.0)),
            State::Resolved => other.resolved_at.cmp(&self.resolved_at),
        };
        self.state.cmp(&other.state).then(of_state)
    }
}
