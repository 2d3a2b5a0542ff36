//! Reads one alert rule.

use std::time::Duration;

use super::Known;
use crate::{
    alert::{
        AlertRule, Burst, KEPT, Key, Kind, MAX_BUCKETS, NewGroup, QUIET_AT_MOST, Rising, Severity, WAITING_AT_MOST,
        Waiting,
    },
    config::{
        document::Value,
        field::{Field, Section},
        hook, matching,
        problem::{Position, Problems},
        shape::{self, Shape},
        source::Names,
    },
    event::EventType,
    letter::Reason,
};

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST_AGE: Duration = Duration::from_secs(365 * 24 * 3600);
const LONGEST_PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A group counts as new for some minutes, so it must have been quiet for longer.
const SHORTEST_QUIET: Duration = Duration::from_secs(3600);
const MOST_OFTEN: Duration = Duration::from_secs(60);
const LEAST_OFTEN: Duration = Duration::from_secs(30 * 24 * 3600);
const MOST: u64 = 1_000_000_000;
/// What a rule can watch for.
const KINDS: [(&str, &Shape); 4] = [
    ("rising", &shape::RISING),
    ("burst", &shape::BURST),
    ("waiting", &shape::WAITING),
    ("new_group", &shape::NEW_GROUP),
];

/// What could be read of an alert rule.
#[derive(Default)]
pub(super) struct Read {
    /// The rule, if it can be read; there may be problems with it all the same.
    pub(super) rule: Option<AlertRule>,
    /// Its name, if that can be read.
    pub(super) name: Option<String>,
    /// What its `unless` names, and where.
    pub(super) unless: Vec<(String, Position)>,
}

/// Reads the rule.
pub(super) fn rule(field: Field<'_>, names: &mut Names, known: &Known, problems: &mut Problems) -> Read {
    let before = problems.count();
    let Some(section) = field.section(&shape::ALERT_RULE, problems) else { return Read::default() };
    let name = names.take(&section, problems);
    let kind = kind(&section, problems);
    let unless = section.get("unless").map(|field| unless(field, problems)).unwrap_or_default();
    let mut rule = AlertRule::new(name.as_deref().unwrap_or_default(), Kind::Burst(Burst::default()));
    terms(&section, &mut rule, known, problems);
    rule.unless = unless.iter().map(|(name, _)| name.clone()).collect();
    let rule = kind.map(|(kind, of_kind)| {
        let rule = AlertRule { kind, ..rule };
        // With a value that is wrong or unknown nothing can be compared.
        if problems.count() == before && field.node.is_whole() {
            for misfit in rule.misfits(known.sample_every.unwrap_or_default()) {
                let at = of_kind.get(misfit.key).map_or(of_kind.at, |field| field.at());
                problems.add(at, format!("{:?} {}", misfit.key, misfit.why), misfit.help);
            }
        }
        rule
    });
    Read { rule: rule.filter(|_| name.is_some()), name, unless }
}

/// What rules of all kinds can say.
fn terms(section: &Section<'_>, rule: &mut AlertRule, known: &Known, problems: &mut Problems) {
    let sources = known.sources.as_deref();
    let matcher = section.get("match");
    set(&mut rule.matcher, matcher.and_then(|field| matching::matcher(field, sources, &Reason::NAMES, problems)));
    set(&mut rule.by, section.get("by").map(|field| by(field, problems)));
    let severities = Severity::ALL.map(|severity| (severity.as_str(), severity));
    let severity = section.get("severity");
    set(&mut rule.severity, severity.and_then(|field| field.choice("severities", &severities, problems)));
    set(&mut rule.for_, duration("for", section, Duration::ZERO, LONGEST_PATIENCE, problems));
    set(&mut rule.keep_firing_for, duration("keep_firing_for", section, Duration::ZERO, LONGEST_PATIENCE, problems));
    set(&mut rule.repeat, section.get("repeat").and_then(|field| repeat(field, problems)));
    let hooks = known.hooks.as_deref();
    rule.hooks = section.get("hooks").map(|field| hook::named(field, hooks, EventType::AlertFiring, problems));
}

fn set<T>(value: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *value = given;
    }
}

/// What the rule watches for, one thing, and where that stands.
fn kind<'n>(section: &Section<'n>, problems: &mut Problems) -> Option<(Kind, Section<'n>)> {
    let mut given = KINDS.into_iter().filter_map(|(key, shape)| Some((section.get(key)?, shape)));
    let Some((field, shape)) = given.next() else {
        let message = format!("an alert rule has none of {}", KINDS.map(|(key, _)| key).join(", "));
        problems.add(section.at, message, "say what it watches for, such as rising: {}");
        return None;
    };
    for (more, _) in given {
        let message = format!("{:?} is given, but the rule watches for {:?} already", more.key, field.key);
        problems.add(more.key_at, message, "give it a rule of its own");
    }
    let section = field.section(shape, problems)?;
    let kind = match field.key {
        "rising" => Kind::Rising(rising(&section, problems)),
        "burst" => Kind::Burst(burst(&section, problems)),
        "waiting" => Kind::Waiting(waiting(&section, problems)),
        _ => Kind::NewGroup(new_group(&section, problems)),
    };
    Some((kind, section))
}

fn rising(section: &Section<'_>, problems: &mut Problems) -> Rising {
    let mut rising = Rising::default();
    set(&mut rising.over, duration("over", section, SHORTEST, KEPT, problems));
    set(&mut rising.buckets, number("buckets", section, 2, MAX_BUCKETS.into(), problems));
    set(&mut rising.at_least, number("at_least", section, 1, MAX_BUCKETS.into(), problems));
    set(&mut rising.growth, number("growth", section, 1, MOST, problems));
    rising
}

fn burst(section: &Section<'_>, problems: &mut Problems) -> Burst {
    let mut burst = Burst::default();
    set(&mut burst.over, duration("over", section, SHORTEST, KEPT, problems));
    set(&mut burst.deaths, number("deaths", section, 1, MOST, problems));
    burst
}

fn waiting(section: &Section<'_>, problems: &mut Problems) -> Waiting {
    let mut waiting = Waiting::default();
    set(&mut waiting.entries, number("entries", section, 1, WAITING_AT_MOST, problems));
    set(&mut waiting.older_than, duration("older_than", section, SHORTEST, LONGEST_AGE, problems));
    waiting
}

fn new_group(section: &Section<'_>, problems: &mut Problems) -> NewGroup {
    let mut new = NewGroup::default();
    set(&mut new.quiet_for, duration("quiet_for", section, SHORTEST_QUIET, QUIET_AT_MOST, problems));
    new
}

fn duration(
    key: &'static str,
    section: &Section<'_>,
    min: Duration,
    max: Duration,
    problems: &mut Problems,
) -> Option<Duration> {
    section.get(key)?.duration(min, max, problems)
}

fn number<T: TryFrom<u64>>(
    key: &'static str,
    section: &Section<'_>,
    min: u64,
    max: u64,
    problems: &mut Problems,
) -> Option<T> {
    section.get(key)?.number(min, max, problems).and_then(|number| T::try_from(number).ok())
}

fn repeat(field: Field<'_>, problems: &mut Problems) -> Option<Duration> {
    let repeat = field.duration(Duration::ZERO, LEAST_OFTEN, problems)?;
    if !repeat.is_zero() && repeat < MOST_OFTEN {
        let message = format!("{:?} is too short: {}", field.key, field.shown());
        problems.add(field.at(), message, "give 1m to 30d, or 0s to tell it once");
        return None;
    }
    Some(repeat)
}

/// What is told apart; nothing is the same as not saying so.
fn by(field: Field<'_>, problems: &mut Problems) -> Vec<Key> {
    if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
        return Vec::new();
    }
    let known = Key::ALL.map(|key| (key.as_str(), key));
    let mut keys = Vec::new();
    for field in field.one_or_more(problems) {
        let Some(key) = field.choice("values", &known, problems) else { continue };
        // An incident has one label for each.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn unless(field: Field<'_>, problems: &mut Problems) -> Vec<(String, Position)> {
    let fields = field.one_or_more(problems);
    fields.into_iter().filter_map(|field| Some((field.text(problems)?.to_owned(), field.at()))).collect()
}
