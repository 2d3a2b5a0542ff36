//! Reads `digest:`.

use super::{
    DigestConfig,
    field::Field,
    hook::{self, KnownHook},
    problem::Problems,
    schedule, shape,
};
use crate::{event::EventType, rule::Window};

/// The summary at certain times. `hooks` are all there are, where these are known.
pub(super) fn digest(field: Field<'_>, hooks: Option<&[KnownHook]>, problems: &mut Problems) -> Option<DigestConfig> {
    const KIND: EventType = EventType::DlqDigest;
    let section = field.section(&shape::DIGEST, problems)?;
    let zone = schedule::timezone(section.get("timezone"), problems);
    let at = section.need("at", "say when: at: 0 9 * * Mon-Fri", problems);
    let at = at.and_then(|at| schedule::window(at, zone, Window::names_too_many, problems));
    let named = section.get("hooks").map(|field| hook::named(field, hooks, KIND, problems));
    if named.is_none() && hooks.is_some_and(|hooks| !hooks.iter().any(|hook| hook.takes(KIND))) {
        let message = format!("{:?} is given, but no hook takes {}", field.key, KIND.as_str());
        problems.add(field.key_at, message, "add that to a hook's events, or remove it");
    }
    Some(DigestConfig { at: at?, hooks: named })
}
