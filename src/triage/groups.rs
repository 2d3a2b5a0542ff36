//! The dead letters by group: how many, since when, what they look like, and what the retry loop does with them.
//!
//! The room this takes does not grow with the DLQ. While there are at most some thousands of groups every count is
//! exact; when there are more, the rarest are folded into `other` again and again, and a group that shows up after that
//! may have more entries than are counted for it.

use std::collections::{HashMap, hash_map::Entry};

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Error, Filter, Result,
    walk::{Order, PIECE, Progress, Tell, Walk},
};
use crate::{
    event::{ErrorText, rfc3339, text},
    ledger::{self, Judging, Place, TriageLedger},
    letter::{DeadLetter, Millis},
    retry::{Learnt, PoolLearnt, place},
    rule::{Decision, Rules, Terms},
};

/// Groups that are counted apart at most; the rarer half is folded when there are more.
const MOST: usize = 8_192;
/// Characters of a text that are kept of a group.
const LONGEST: usize = 300;

/// The groups of some sources, as `-o json` prints them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Groups {
    /// The largest first.
    pub items: Vec<GroupItem>,
    /// There is only one page.
    pub next_cursor: Option<String>,
    /// What is not among the items.
    pub other: Other,
    /// Entries that passed the filter.
    pub entries: u64,
}

/// Groups that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Other {
    /// How many.
    pub groups: u64,
    /// With so many entries.
    pub entries: u64,
    /// There were too many groups to be counted apart, so that `groups` is too high: a group that was folded and showed
    /// up again counts twice.
    pub estimated: bool,
}

/// A group in a source. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GroupItem {
    /// The source's name.
    pub source: String,
    /// The fingerprint.
    pub group: String,
    /// Its entries in the DLQ that passed the filter.
    pub count: u64,
    /// There may be more of them.
    pub at_least: bool,
    /// The death of the first of these that died.
    pub first_died_at: Option<String>,
    /// The death of the last.
    pub last_died_at: Option<String>,
    /// Of its newest entry, like all that follows.
    pub task: Option<String>,
    /// The queue.
    pub queue: Option<String>,
    /// Why its job was buried.
    pub reason: Option<String>,
    /// Its error.
    pub error: ErrorText,
    /// The entry itself.
    pub entry_id: String,
    /// The retry rule that decides about it, also one that leaves it; none where the rules in force are not known.
    pub rule: Option<String>,
    /// What the retry loop does with the group.
    pub state: GroupState,
    /// Its retries without a verdict yet.
    pub in_flight: u32,
    /// On hold until then.
    pub held_until: Option<String>,
    /// The same as the times above.
    #[serde(skip)]
    pub times: Times,
}

/// When, for those who count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first death.
    pub first: Millis,
    /// The last.
    pub last: Millis,
    /// The hold ends then.
    pub held_until: Option<Millis>,
    /// Ages count from here.
    pub now: Millis,
}

/// What the retry loop does with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// Its retries failed, or those of its task: nothing of it goes until a pause has passed.
    Held,
    /// Some of it has been put back, and has no verdict yet.
    Retrying,
    /// A rule will retry it.
    Waiting,
    /// A rule leaves it for a person.
    Left,
    /// No rule matches.
    NoRule,
    /// No rule may retry it: malformed, of a foreign stream, or refused by an overfull queue.
    Never,
    /// The rules in force are not known here.
    Unknown,
}

impl GroupState {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupState::Held => "held",
            GroupState::Retrying => "retrying",
            GroupState::Waiting => "waiting",
            GroupState::Left => "left",
            GroupState::NoRule => "no_rule",
            GroupState::Never => "never",
            GroupState::Unknown => "unknown",
        }
    }
}

/// Counts the groups of some sources, and tells of the `limit` largest.
pub async fn groups(
    sources: &[&dyn TriageLedger],
    filter: &Filter,
    rules: &Rules,
    limit: usize,
    tell: Tell<'_>,
) -> Result<Groups> {
    let mut all = Groups::default();
    for &ledger in sources {
        let found = of_source(ledger, filter, rules, limit, tell).await.map_err(Error::of(ledger))?;
        all.entries += found.entries;
        all.other.groups += found.other.groups;
        all.other.entries += found.other.entries;
        all.other.estimated |= found.other.estimated;
        all.items.extend(found.items);
    }
    all.items.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| b.times.last.cmp(&a.times.last)));
    for rest in all.items.drain(limit.min(all.items.len())..) {
        all.other.groups += 1;
        all.other.entries += rest.count;
    }
    Ok(all)
}

async fn of_source(
    ledger: &dyn TriageLedger,
    filter: &Filter,
    rules: &Rules,
    limit: usize,
    tell: Tell<'_>,
) -> ledger::Result<Groups> {
    let source = ledger.name();
    // Asked first because the answer brings the store's time, by which ages are counted.
    let entries = ledger.overview().await?.entries;
    let now = ledger.clock().now();
    let mut tally = Tally::default();
    let mut walk = Walk::new(ledger, filter, now, Order::NewestFirst);
    while let Some(letters) = walk.next(PIECE).await? {
        letters.iter().for_each(|letter| tally.add(letter, source, rules));
        tell(Progress { source, looked_at: walk.looked_at(), entries });
    }
    let Tally { kept, mut other, entries, .. } = tally;
    let mut counted: Vec<Counted> = kept.into_values().collect();
    counted.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| b.last.cmp(&a.last)));
    for rest in counted.drain(limit.min(counted.len())..) {
        other.groups += 1;
        other.entries += rest.count;
    }
    let loop_sees = Loop::look(ledger, rules, now).await?;
    let mut items = Vec::with_capacity(counted.len());
    // A few hundred at a time: what was learnt of them is asked for together.
    for some in counted.chunks(PIECE) {
        items.extend(loop_sees.items(ledger, some).await?);
    }
    Ok(Groups { items, next_cursor: None, other, entries })
}

/// Counts in a room of its own size.
#[derive(Debug, Default)]
struct Tally<'r> {
    kept: HashMap<String, Counted<'r>>,
    other: Other,
    entries: u64,
}

/// What is counted of a group; the texts are those of its newest entry, which a walk comes to first.
#[derive(Clone, Debug)]
struct Counted<'r> {
    group: String,
    count: u64,
    at_least: bool,
    first: Millis,
    last: Millis,
    task: Option<String>,
    queue: Option<String>,
    reason: Option<String>,
    error: ErrorText,
    entry_id: String,
    fate: Fate<'r>,
}

/// What the rules say about it.
#[derive(Clone, Debug)]
enum Fate<'r> {
    Never,
    NoRule,
    Left(&'r str),
    Retried(&'r str, &'r Terms, Place),
}

impl<'r> Fate<'r> {
    fn of(rules: &'r Rules, source: &str, letter: &DeadLetter) -> Fate<'r> {
        match rules.decide(source, letter) {
            Decision::Never(_) => Fate::Never,
            Decision::NoRule => Fate::NoRule,
            Decision::Leave(rule) => Fate::Left(&rule.name),
            Decision::Retry(rule, terms) => Fate::Retried(&rule.name, terms, place(rule, letter)),
        }
    }
}

impl<'r> Tally<'r> {
    fn add(&mut self, letter: &DeadLetter, source: &str, rules: &'r Rules) {
        self.entries += 1;
        match self.kept.entry(letter.group.0.clone()) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.count += 1;
                known.first = known.first.min(letter.died_at);
                known.last = known.last.max(letter.died_at);
            }
            Entry::Vacant(slot) => {
                let cut = |text: Option<String>| text.map(|text| text.chars().take(LONGEST).collect::<String>());
                let error = ErrorText::from(&letter.error);
                slot.insert(Counted {
                    group: letter.group.0.clone(),
                    count: 1,
                    at_least: self.other.estimated,
                    first: letter.died_at,
                    last: letter.died_at,
                    task: cut(text(&letter.task)),
                    queue: cut(text(&letter.queue)),
                    reason: cut(text(letter.reason.as_str())),
                    error: ErrorText { kind: cut(error.kind), message: cut(error.message) },
                    entry_id: letter.entry_id.clone(),
                    fate: Fate::of(rules, source, letter),
                });
            }
        }
        if self.kept.len() > MOST {
            self.fold();
        }
    }

    /// Folds the rarer half.
    fn fold(&mut self) {
        let mut counts: Vec<u64> = self.kept.values().map(|known| known.count).collect();
        let (_, &mut middle, _) = counts.select_nth_unstable(MOST / 2);
        // Of those that are as frequent as the middle one only so many stay as there is room for.
        let above = counts.iter().filter(|count| **count > middle).count();
        let mut room = MOST / 2 - above.min(MOST / 2);
        let other = &mut self.other;
        self.kept.retain(|_, known| {
            let stays = known.count > middle || known.count == middle && room > 0;
            if known.count == middle {
                room = room.saturating_sub(1);
            }
            if !stays {
                other.groups += 1;
                other.entries += known.count;
            }
            stays
        });
        other.estimated = true;
    }
}

/// What the retry loop does, as far as groups are concerned.
struct Loop {
    now: Millis,
    known: bool,
    /// Retries without an outcome yet by group, also those that people have made.
    in_flight: HashMap<String, u32>,
}

impl Loop {
    async fn look(ledger: &dyn TriageLedger, rules: &Rules, now: Millis) -> ledger::Result<Loop> {
        let Judging { fingerprint, .. } = ledger.judging().await?;
        let mut in_flight = HashMap::<String, u32>::new();
        for flight in ledger.flights().await?.into_iter().filter(|flight| !flight.failing) {
            *in_flight.entry(flight.dead.group).or_default() += 1;
        }
        Ok(Loop { now, known: fingerprint == rules.fingerprint, in_flight })
    }

    async fn items(&self, ledger: &dyn TriageLedger, some: &[Counted<'_>]) -> ledger::Result<Vec<GroupItem>> {
        let mut of = Vec::new();
        for counted in some {
            if let Fate::Retried(_, _, place) = &counted.fate
                && self.known
            {
                of.push((place.pool.clone(), None));
                of.push((place.pool.clone(), Some(place.group.clone())));
            }
        }
        let learnt = if of.is_empty() { Vec::new() } else { ledger.learnt(&of).await? };
        let mut learnt = learnt.chunks(2);
        let item = |counted: &Counted<'_>| {
            let mut held = None;
            let (mut rule, mut state) = (None, GroupState::Unknown);
            let in_flight = self.in_flight.get(&counted.group).copied().unwrap_or_default();
            if self.known {
                (rule, state) = match &counted.fate {
                    Fate::Never => (None, GroupState::Never),
                    Fate::NoRule => (None, GroupState::NoRule),
                    Fate::Left(rule) => (Some(*rule), GroupState::Left),
                    Fate::Retried(rule, terms, _) => {
                        let pair = learnt.next().unwrap_or_default();
                        held = held_until(pair, self.now, terms);
                        (Some(*rule), GroupState::Waiting)
                    }
                };
            }
            if held.is_some() {
                state = GroupState::Held;
            } else if in_flight > 0 {
                state = GroupState::Retrying;
            }
            GroupItem {
                source: ledger.name().to_owned(),
                group: counted.group.clone(),
                count: counted.count,
                at_least: counted.at_least,
                first_died_at: rfc3339(counted.first),
                last_died_at: rfc3339(counted.last),
                task: counted.task.clone(),
                queue: counted.queue.clone(),
                reason: counted.reason.clone(),
                error: counted.error.clone(),
                entry_id: counted.entry_id.clone(),
                rule: rule.map(str::to_owned),
                state,
                in_flight,
                held_until: held.and_then(rfc3339),
                times: Times { first: counted.first, last: counted.last, held_until: held, now: self.now },
            }
        };
        Ok(some.iter().map(item).collect())
    }
}

/// Until when a group, or its pool, is on hold, by what was learnt of the pool and of the group.
fn held_until(learnt: &[Option<String>], now: Millis, terms: &Terms) -> Option<Millis> {
    let read = |n: usize| learnt.get(n).and_then(Option::as_deref);
    let (pool, group) = (PoolLearnt::read(read(0)), Learnt::read(read(1)));
    group.held_until(now, terms).max(pool_held(&pool, &group, now, terms))
}

/// Until when a pool's hold keeps a group: one that has proven itself goes on.
fn pool_held(pool: &PoolLearnt, group: &Learnt, now: Millis, terms: &Terms) -> Option<Millis> {
    pool.held_until(now, terms).filter(|_| !group.is_proven(now, terms, pool.doubted_at()))
}
