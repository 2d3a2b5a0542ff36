//! Causes of death: what is counted apart, and the table of those that the last 24 hours know.
//!
//! There can be as many groups as entries (a message nobody could normalise), so the table is bounded: what is rare folds
//! into the rest of its task, queue and reason, and what is too much even then into one rest of everything.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde::{Deserialize, Serialize};

use crate::{
    alert::{AlertRule, Key, Labels},
    event::{ErrorText, JobDead},
    letter::{Millis, bounded_text},
    rule::Subject,
};

/// The name of what was not counted apart.
pub const OTHER: &str = crate::event::OTHER;
/// Causes in the table at most, folded ones included.
pub(super) const CAUSES: usize = 512;
/// Characters of a name, and of an error message, that are kept.
const NAME_CHARS: usize = 100;
const MESSAGE_CHARS: usize = 200;

/// A cause's number, the same over changes of the leader.
pub(super) type CauseId = u32;

/// What deaths have in common that are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The fingerprint; [`OTHER`] for the rest of a task.
    pub group: String,
    /// The task; empty where the records carry none.
    pub task: String,
    /// The queue.
    pub queue: String,
    /// Why the framework buried the jobs.
    pub reason: String,
    /// `same`, `mixed` or `unknown`.
    pub history: String,
    /// The error of the first death counted, shortened.
    pub error: ErrorText,
    /// When the first of them died that is counted under this cause.
    pub first: Millis,
}

impl Cause {
    /// The cause of this death.
    pub fn of(dead: &JobDead, at: Millis) -> Cause {
        let name = |text: &Option<String>| bounded_text(text.as_deref().unwrap_or_default().as_bytes(), NAME_CHARS);
        let shortened = |text: &Option<String>, chars| text.as_ref().map(|text| bounded_text(text.as_bytes(), chars));
        Cause {
            group: bounded_text(dead.group.as_bytes(), NAME_CHARS),
            task: name(&dead.task),
            queue: name(&dead.queue),
            reason: name(&dead.reason),
            history: dead.history.clone(),
            error: ErrorText {
                kind: shortened(&dead.error.kind, NAME_CHARS),
                message: shortened(&dead.error.message, MESSAGE_CHARS),
            },
            first: at,
        }
    }

    /// As a matcher sees it. What has been folded has no error and no history.
    pub fn subject<'a>(&'a self, source: &'a str) -> Subject<'a> {
        Subject {
            source,
            queue: &self.queue,
            task: &self.task,
            reason: &self.reason,
            error_type: self.error.kind.as_deref().unwrap_or_default(),
            error_message: self.error.message.as_deref().unwrap_or_default(),
            history: &self.history,
            group: &self.group,
        }
    }

    /// What an incident of this rule would be about, if the rule means this cause.
    pub(super) fn labels(&self, rule: &AlertRule, source: &str) -> Option<Labels> {
        rule.matcher.matches(&self.subject(source)).then(|| {
            let mut labels = whole(source);
            for key in &rule.by {
                let value = match key {
                    Key::Source => source,
                    Key::Queue => &self.queue,
                    Key::Task => &self.task,
                    Key::Reason => &self.reason,
                    Key::Group => &self.group,
                };
                labels.insert(key.as_str().to_owned(), value.to_owned());
            }
            labels
        })
    }

    /// Whether it is a group of its own, with everything that a matcher looks at: neither folded into a rest, nor with a
    /// text so long that only its beginning is known.
    pub fn is_whole(&self) -> bool {
        let ErrorText { kind, message } = &self.error;
        let texts = [Some(&self.task), Some(&self.queue), kind.as_ref(), message.as_ref()];
        self.depth() == 0 && !texts.into_iter().flatten().any(|text| text.ends_with('…'))
    }

    /// How far it has been folded: not at all, into the rest of its task, or into the rest of everything.
    pub(super) fn depth(&self) -> u8 {
        match (self.group.as_str(), self.task.as_str(), self.queue.as_str()) {
            (OTHER, OTHER, OTHER) => 2,
            (OTHER, ..) => 1,
            _ => 0,
        }
    }

    /// What it folds into.
    fn wider(&self) -> Cause {
        let rest = |name: &str| if self.depth() == 0 { name.to_owned() } else { OTHER.to_owned() };
        Cause {
            group: OTHER.to_owned(),
            task: rest(&self.task),
            queue: rest(&self.queue),
            reason: rest(&self.reason),
            first: self.first,
            ..Cause::default()
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.group, &self.task, &self.queue, &self.reason, &self.history).hash(&mut hasher);
        hasher.finish()
    }
}

/// The labels of the whole source.
pub(super) fn whole(source: &str) -> Labels {
    Labels::from([(Key::Source.as_str().to_owned(), source.to_owned())])
}

/// A cause, and how much is counted under it.
#[derive(Clone, Debug)]
struct Counted {
    cause: Cause,
    total: u64,
}

/// The causes that the kept samples speak of.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    by_id: BTreeMap<CauseId, Counted>,
    by_fingerprint: HashMap<u64, CauseId>,
    next: CauseId,
    /// New, changed or gone since the last save.
    dirty: BTreeSet<CauseId>,
}

impl Causes {
    /// Takes over a cause as it was saved.
    pub(super) fn load(&mut self, id: CauseId, cause: Cause) {
        self.by_fingerprint.insert(cause.fingerprint(), id);
        self.by_id.insert(id, Counted { cause, total: 0 });
        self.next = self.next.max(id.saturating_add(1));
    }

    /// The number of this cause, which is new if it has none.
    pub(super) fn id(&mut self, cause: Cause) -> CauseId {
        let fingerprint = cause.fingerprint();
        if let Some(known) = self.by_fingerprint.get(&fingerprint) {
            return *known;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.by_fingerprint.insert(fingerprint, id);
        self.by_id.insert(id, Counted { cause, total: 0 });
        self.dirty.insert(id);
        id
    }

    /// The number of what this cause folds into.
    pub(super) fn wider(&mut self, id: CauseId) -> CauseId {
        let wider =
            self.get(id).map_or_else(|| Cause { task: OTHER.to_owned(), ..Cause::default() }.wider(), Cause::wider);
        self.id(wider)
    }

    pub(super) fn get(&self, id: CauseId) -> Option<&Cause> {
        self.by_id.get(&id).map(|counted| &counted.cause)
    }

    pub(super) fn depth(&self, id: CauseId) -> u8 {
        self.get(id).map_or(2, Cause::depth)
    }

    pub(super) fn total(&self, id: CauseId) -> u64 {
        self.by_id.get(&id).map_or(0, |counted| counted.total)
    }

    pub(super) fn add(&mut self, id: CauseId, deaths: u64) {
        if let Some(counted) = self.by_id.get_mut(&id) {
            counted.total = counted.total.saturating_add(deaths);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.by_id.len() >= CAUSES
    }

    /// Forgets every cause that is not in `used`.
    pub(super) fn keep(&mut self, used: &BTreeSet<CauseId>) {
        let gone: Vec<CauseId> = self.by_id.keys().filter(|id| !used.contains(id)).copied().collect();
        for id in gone {
            self.forget(id);
        }
    }

    /// Takes the rarer half out of the table: what each of them folds into.
    pub(super) fn fold_the_rare(&mut self) -> HashMap<CauseId, CauseId> {
        let mut rarest: Vec<(u64, CauseId)> = self
            .by_id
            .iter()
            .filter(|(_, counted)| counted.cause.depth() < 2)
            .map(|(id, counted)| (counted.total, *id))
            .collect();
        rarest.sort_unstable();
        rarest.truncate(CAUSES / 2);
        // Also what becomes too many rests of tasks goes on to the rest of everything.
        let mut into = HashMap::new();
        for &(total, id) in &rarest {
            let wider = self.wider(id);
            self.add(wider, total);
            into.insert(id, wider);
        }
        let still_used: BTreeSet<CauseId> = into.values().copied().collect();
        for (_, id) in rarest {
            if !still_used.contains(&id) {
                self.forget(id);
            }
        }
        into
    }

    fn forget(&mut self, id: CauseId) {
        if let Some(counted) = self.by_id.remove(&id) {
            self.by_fingerprint.remove(&counted.cause.fingerprint());
            self.dirty.insert(id);
        }
    }

    /// What has changed since the last call: the cause, or none if it is gone.
    pub(super) fn take_dirty(&mut self) -> Vec<(CauseId, Option<&Cause>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|id| (id, self.by_id.get(&id).map(|counted| &counted.cause))).collect()
    }
}
