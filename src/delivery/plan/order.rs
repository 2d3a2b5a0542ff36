//! What of a plan keeps the events of an incident in order: a late `alert.firing` would open again what its
//! `alert.resolved` has closed.

use std::collections::{HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use super::{Plan, Policy};
use crate::{
    delivery::{
        Key,
        state::{Incident, Tries},
    },
    event::{Event, EventData},
    ledger::OutboxId,
};

impl Policy {
    /// What the event is told of, if its order matters.
    fn incident(&self, event: &Event) -> Option<Incident> {
        let alert = event.data.alert()?;
        let name = if self.newest_alone {
            format!("{}\n{}\n{:?}", alert.source, alert.alert, alert.labels)
        } else {
            alert.incident.clone()
        };
        let hash = Sha256::digest(name);
        let key = hash.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte));
        Some(Incident { key, fires: matches!(event.data, EventData::AlertFiring(_)) })
    }
}

impl Plan {
    /// Puts an event among those to be sent singly, not before `next_at` (ms).
    pub(super) fn choose(&mut self, id: OutboxId, event: &Event, next_at: i64) {
        let incident = self.policy.incident(event);
        self.state.pending.insert(id, Tries { next_at, incident, ..Tries::default() });
        if incident.is_some() {
            self.drop_superseded();
        }
    }

    /// Events that wait for an earlier one of the same incident to be settled.
    pub(super) fn held(&self) -> HashSet<OutboxId> {
        let mut known = HashSet::new();
        let incidents = self.state.pending.iter().filter_map(|(id, tries)| Some((*id, tries.incident?)));
        incidents.filter(|(_, incident)| !known.insert(incident.key)).map(|(id, _)| id).collect()
    }

    /// Where only the newest telling that something fires means anything: drops those that are followed by another one and
    /// not on their way. That it is over is never dropped, nor anything before it for the sake of what comes after it.
    pub(super) fn drop_superseded(&mut self) {
        if !self.policy.newest_alone {
            return;
        }
        let (mut last_firing, mut superseded) = (HashMap::new(), Vec::new());
        for (id, tries) in &self.state.pending {
            match tries.incident {
                Some(Incident { key, fires: true }) => superseded.extend(last_firing.insert(key, *id)),
                Some(Incident { key, fires: false }) => drop(last_firing.remove(&key)),
                None => {}
            }
        }
        superseded.retain(|id| !self.in_flight.contains(&Key::Event(*id)));
        for id in &superseded {
            self.state.pending.remove(id);
        }
        self.version += u64::from(!superseded.is_empty());
    }
}
