//! What a hook's lane has saved, interpreted for people and rewound for them. The only place here that knows what is
//! in a saved lane.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Error, Result};
use crate::{
    delivery::{LaneState, Trouble},
    event::{Lane, rfc3339},
    ledger::{self, Ledger, OutboxId, SavedLane, StoreError},
    letter::Millis,
};

/// Events read in one piece while counting.
const PAGE: usize = 500;
/// Events counted at most where only the size matters.
const COUNTED_AT_MOST: u64 = 2_000;
/// How often an edit is tried again because the leader saved in between.
const EDITS: u32 = 50;

/// How a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nothing stands in the way.
    Delivering,
    /// The endpoint fails and is probed.
    Failing,
    /// Whatever was sent last was rejected for good, one event after the other.
    Rejecting,
    /// A 410 has switched the hook off.
    Off,
    /// No leader has served this hook here yet.
    New,
    /// Saved by a build that this one does not understand.
    Unreadable,
}

/// One lane of one hook in one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LanePicture {
    /// `deaths` or `alerts`.
    pub lane: &'static str,
    /// How it stands.
    pub state: Standing,
    /// Since when the endpoint has been failing, or rejecting.
    #[serde(skip)]
    pub since: Option<Millis>,
    /// The last request that was not taken.
    pub last_trouble: Option<TroubleShown>,
    /// When something was last delivered.
    pub delivered_at: Option<String>,
    /// Everything up to here has been read from the outbox.
    pub position: Option<String>,
    /// When the event there was written; none before the first.
    pub position_at: Option<String>,
    /// The same for the text.
    #[serde(skip)]
    pub read_until: Option<Millis>,
    /// Events not delivered or given up yet, whether read or not; what `sexton_hook_backlog` counts.
    pub backlog: u64,
    /// There are more than `backlog` says.
    pub backlog_is_more: bool,
    /// Those of them that are read, folded ones included.
    pub pending: u64,
}

/// A request that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TroubleShown {
    /// When.
    pub at: Option<String>,
    /// The status it was answered with; none without an answer.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: String,
    /// It is not tried again.
    pub rejected: bool,
}

impl TroubleShown {
    fn of(trouble: &Trouble) -> TroubleShown {
        TroubleShown {
            at: rfc3339(Millis(trouble.at)),
            status: trouble.status,
            error: reason(trouble),
            rejected: trouble.rejected,
        }
    }
}

/// What went wrong, in words.
fn reason(trouble: &Trouble) -> String {
    match (trouble.error.as_str(), trouble.status) {
        ("", Some(status)) => status.to_string(),
        ("", None) => "for no known reason".to_owned(),
        (error, _) => error.to_owned(),
    }
}

/// Looks at one lane. `fingerprint` is the hook's, by which a switched-off one is known.
pub async fn picture(ledger: &dyn Ledger, hook: &str, fingerprint: &str, lane: Lane) -> ledger::Result<LanePicture> {
    let mut picture = LanePicture {
        lane: lane.as_str(),
        state: Standing::New,
        since: None,
        last_trouble: None,
        delivered_at: None,
        position: None,
        position_at: None,
        read_until: None,
        backlog: 0,
        backlog_is_more: false,
        pending: 0,
    };
    let Some(saved) = ledger.load_lane(hook, lane).await? else { return Ok(picture) };
    let Ok(state) = LaneState::from_json(&saved.state) else {
        return Ok(LanePicture { state: Standing::Unreadable, ..picture });
    };
    (picture.state, picture.since) = match (state.failing_since(), state.rejecting_since()) {
        _ if state.is_off(fingerprint) => (Standing::Off, None),
        (Some(since), _) => (Standing::Failing, Some(Millis(since))),
        (None, Some(since)) => (Standing::Rejecting, Some(Millis(since))),
        (None, None) => (Standing::Delivering, None),
    };
    picture.last_trouble = state.last_trouble().map(TroubleShown::of);
    picture.delivered_at = state.delivered_at().map(Millis).and_then(rfc3339);
    picture.position = Some(state.cursor().to_string());
    picture.read_until = i64::try_from(state.cursor().ms).ok().filter(|ms| *ms > 0).map(Millis);
    picture.position_at = picture.read_until.and_then(rfc3339);
    picture.pending = state.unsettled();
    let events = events_after(ledger, lane, state.cursor(), None, COUNTED_AT_MOST + 1).await?;
    picture.backlog = events.min(COUNTED_AT_MOST).saturating_add(picture.pending);
    picture.backlog_is_more = events > COUNTED_AT_MOST;
    Ok(picture)
}

/// What has become of one event in one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The receiver has it.
    Delivered,
    /// The receiver does not want it, for this reason.
    Rejected(String),
    /// No longer tried; the last try failed for this reason, if any was made.
    GivenUp(Option<String>),
    /// There will be more tries.
    Trying {
        /// How many have failed.
        failed: u32,
        /// Why the last one did; if it is not known of this event, what the receiver is failing with.
        last: Option<String>,
    },
    /// Not read yet.
    Waiting,
    /// The hook is switched off by a 410.
    Off,
}

/// What has become of the event at `id`.
pub async fn fate(
    ledger: &dyn Ledger,
    hook: &str,
    fingerprint: &str,
    lane: Lane,
    id: OutboxId,
) -> ledger::Result<Fate> {
    let Some(saved) = ledger.load_lane(hook, lane).await? else { return Ok(Fate::Waiting) };
    let state = read(&saved)?;
    let trouble = state.last_trouble();
    let own = trouble.filter(|trouble| trouble.event == Some(id));
    let failing = trouble.filter(|_| state.failing_since().is_some());
    Ok(match (state.attempts_of(id), own) {
        _ if state.is_off(fingerprint) => Fate::Off,
        (Some(failed), own) => Fate::Trying { failed, last: own.or(failing).map(reason) },
        (None, _) if state.cursor() < id => Fate::Waiting,
        (None, Some(own)) if own.rejected => Fate::Rejected(reason(own)),
        // Trouble of its own is forgotten once it is delivered.
        (None, Some(own)) => Fate::GivenUp(Some(reason(own))),
        // Another event was rejected since; then nothing may pass for a success that perhaps was none.
        (None, None) => match trouble.filter(|_| state.rejecting_since().is_some()) {
            Some(trouble) => Fate::Rejected(reason(trouble)),
            None if state.delivered_at().is_none() => Fate::GivenUp(None),
            None => Fate::Delivered,
        },
    })
}

/// True if a 410 has switched this lane off.
pub async fn is_off(ledger: &dyn Ledger, hook: &str, fingerprint: &str, lane: Lane) -> ledger::Result<bool> {
    let Some(saved) = ledger.load_lane(hook, lane).await? else { return Ok(false) };
    Ok(read(&saved)?.is_off(fingerprint))
}

/// Events between `to` and where the lane has read to, which a rewind to `to` has it read again; `None` where nothing
/// was ever saved.
pub async fn events_since(ledger: &dyn Ledger, hook: &str, lane: Lane, to: OutboxId) -> ledger::Result<Option<u64>> {
    let Some(saved) = ledger.load_lane(hook, lane).await? else { return Ok(None) };
    let cursor = read(&saved)?.cursor();
    if cursor <= to {
        return Ok(Some(0));
    }
    events_after(ledger, lane, to, Some(cursor), u64::MAX).await.map(Some)
}

/// Has the lane read everything after `to` again.
pub async fn rewind(ledger: &dyn Ledger, hook: &str, lane: Lane, to: OutboxId) -> Result<()> {
    for _ in 0..EDITS {
        let Some(saved) = ledger.load_lane(hook, lane).await.map_err(Error::of(ledger))? else { return Ok(()) };
        let mut state = read(&saved).map_err(Error::of(ledger))?;
        state.rewind(to);
        match ledger.edit_lane(hook, lane, saved.revision, &state.to_json()).await {
            Ok(_) => return Ok(()),
            // The leader saved in between: its new state is rewound instead.
            Err(StoreError::Moved) => {}
            Err(error) => return Err(Error::of(ledger)(error)),
        }
    }
    Err(Error::Contended(format!("{}: the {} lane of {hook}", ledger.name(), lane.as_str())))
}

fn read(saved: &SavedLane) -> ledger::Result<LaneState> {
    LaneState::from_json(&saved.state)
        .map_err(|error| StoreError::Unexpected(format!("a lane that this build cannot read: {error}")))
}

/// Counts a lane's events after `after`, up to and including `until`, to about `limit`.
async fn events_after(
    ledger: &dyn Ledger,
    lane: Lane,
    after: OutboxId,
    until: Option<OutboxId>,
    limit: u64,
) -> ledger::Result<u64> {
    let (mut after, mut events) = (after, 0);
    while events < limit {
        let page = ledger.outbox(lane, after, PAGE).await?;
        let within = |id: OutboxId| until.is_none_or(|until| id <= until);
        events += page.events.iter().filter(|posted| within(posted.id)).count() as u64;
        match page.last {
            Some(last) if within(last) => after = last,
            _ => break,
        }
    }
    Ok(events)
}
