//! The outbox lanes of a smallage source, and what the delivery lanes have saved.

use redis::cmd;

use super::{
    Smallage,
    connection::Arg,
    reply::{self, Reply, StreamEntry},
    store::REMEMBER_LANES,
};
use crate::{
    clock::millis,
    event::{Event, EventData, EventType, Lane},
    ledger::{Lease, OutboxId, OutboxPage, Posted, Result, SavedLane, StoreError},
    letter::Millis,
};

impl Smallage {
    pub(super) async fn read_outbox(&self, lane: Lane, after: OutboxId, max: usize) -> Result<OutboxPage> {
        let uid = self.known_uid().await?;
        if lane == Lane::Deaths
            && let Some(page) = self.page_at_hand(&uid, after, max)
        {
            return Ok(page);
        }
        let mut command = cmd("XRANGE");
        command.arg(self.keys.outbox(lane)).arg(format!("({after}")).arg("+").arg("COUNT").arg(max);
        let entries = reply::entries(self.commands.run(&command).await?)?;
        let mut page = OutboxPage::default();
        for entry in entries {
            page.last = entry.0.parse().ok().or(page.last);
            if lane == Lane::Deaths {
                self.has_read_event(page.last);
            }
            match posted(&uid, lane, entry) {
                Some(posted) => page.events.push(posted),
                None => page.unreadable += 1,
            }
        }
        Ok(page)
    }

    /// Whether the newest event that was seen here in a term is gone without having been trimmed.
    pub(super) async fn has_lost_events(&self) -> Result<bool> {
        let newest = self.newest_event();
        if newest.is_empty() {
            return Ok(false);
        }
        let outbox = self.keys.outbox(Lane::Deaths);
        let answer = self.commands.run_reading_script(&self.scripts.lost, &[&outbox], &[Arg::Text(&newest)]).await?;
        let lost = Reply::of_script(answer)?.number()? > 0;
        if lost {
            self.forget_newest_event();
        }
        Ok(lost)
    }

    /// A page of the deaths lane that this process has just written itself.
    fn page_at_hand(&self, uid: &str, after: OutboxId, max: usize) -> Option<OutboxPage> {
        let tail = self.tail();
        let mut page = OutboxPage::default();
        for kept in tail.after(after, max)? {
            let data = EventData::JobDead(Box::new(kept.dead()?));
            page.events.push(Posted { id: kept.id, event: event(uid, Lane::Deaths, kept.id, kept.at, data) });
            page.last = Some(kept.id);
        }
        self.has_read_event(page.last);
        Some(page)
    }

    pub(super) async fn get_from_outbox(&self, lane: Lane, id: OutboxId) -> Result<Option<Posted>> {
        let id = id.to_string();
        let answer = self.commands.run(cmd("XRANGE").arg(self.keys.outbox(lane)).arg(&id).arg(&id)).await?;
        let uid = self.known_uid().await?;
        Ok(reply::entries(answer)?.into_iter().next().and_then(|entry| posted(&uid, lane, entry)))
    }

    pub(super) async fn count_outbox(&self, lane: Lane) -> Result<u64> {
        let answer = self.commands.run(cmd("XLEN").arg(self.keys.outbox(lane))).await?;
        Ok(reply::number(&answer).unwrap_or(0))
    }

    pub(super) async fn end_of_outbox(&self, lane: Lane) -> Result<OutboxId> {
        let mut command = cmd("XREVRANGE");
        command.arg(self.keys.outbox(lane)).arg("+").arg("-").arg("COUNT").arg(1);
        let entries = reply::entries(self.commands.run(&command).await?)?;
        Ok(entries.first().and_then(|(id, _)| id.parse().ok()).unwrap_or_default())
    }

    pub(super) async fn mark_as_shown(&self, lease: &Lease, until: OutboxId) -> Result<()> {
        let (token, until) = (lease.token(), until.to_string());
        let keys = [&*self.keys.lease(), &self.keys.state()];
        let answer =
            self.commands.run_script(&self.scripts.mark_shown, &keys, &[Arg::Text(&token), Arg::Text(&until)]).await?;
        reply::Reply::of_script(answer).map(drop)
    }

    pub(super) async fn last_shown(&self) -> Result<Option<OutboxId>> {
        let place = self.commands.run(cmd("HGET").arg(self.keys.state()).arg("shown")).await?;
        // What is no place was not written by us.
        Ok(reply::text(&place).and_then(|place| place.parse().ok()))
    }

    pub(super) async fn trim_outbox(
        &self,
        lease: &Lease,
        lane: Lane,
        keep_from: OutboxId,
        at_most: Option<u64>,
    ) -> Result<u64> {
        let limit = at_most.map(|limit| limit.to_string()).unwrap_or_default();
        let answer = self
            .commands
            .run_script(
                &self.scripts.trim,
                &[&self.keys.lease(), &self.keys.outbox(lane)],
                &[Arg::Text(&lease.token()), Arg::Text(&keep_from.to_string()), Arg::Text(&limit)],
            )
            .await?;
        let removed = Reply::of_script(answer)?.number()?;
        if lane == Lane::Deaths {
            self.tail().forget_before(keep_from);
        }
        Ok(removed)
    }

    pub(super) async fn append_to_outbox(&self, data: &EventData) -> Result<OutboxId> {
        let kind = data.kind();
        // The time is the id's, which Redis gives.
        let mut command = cmd("XADD");
        command
            .arg(self.keys.outbox(kind.lane()))
            .arg("*")
            .arg("type")
            .arg(kind.as_str())
            .arg("data")
            .arg(data.to_json());
        let id = reply::text(&self.commands.run(&command).await?).unwrap_or_default();
        self.outbox_grew(kind.lane());
        id.parse().map_err(|_| StoreError::Unexpected(format!("XADD answered {id:?}")))
    }

    pub(super) async fn load_lane_state(&self, hook: &str, lane: Lane) -> Result<Option<SavedLane>> {
        let answer =
            self.commands.run(cmd("HMGET").arg(self.keys.hook(hook, lane)).arg("revision").arg("state")).await?;
        let mut reply = Reply::array(answer)?;
        // A revision that is no number counts as 0, as it does where the lane is saved: the state is still good.
        let (revision, state) = (reply::number(&reply.next()?).unwrap_or(0), reply.next()?);
        Ok(reply::text(&state).map(|state| SavedLane { revision, state }))
    }

    pub(super) async fn save_lane_state(
        &self,
        token: &str,
        hook: &str,
        lane: Lane,
        over: u64,
        state: &str,
    ) -> Result<u64> {
        let answer = self
            .commands
            .run_script(
                &self.scripts.save_lane,
                &[&self.keys.lease(), &self.keys.hook(hook, lane)],
                &[Arg::Text(token), Arg::Text(&over.to_string()), Arg::Text(state), Arg::Int(millis(REMEMBER_LANES))],
            )
            .await?;
        Reply::of_script(answer)?.number()
    }

    /// The ledger's id: told at attach, else asked for once.
    async fn known_uid(&self) -> Result<String> {
        let known = self.uid();
        if !known.is_empty() {
            return Ok(known);
        }
        let answer = self.commands.run(cmd("HGET").arg(self.keys.state()).arg("uid")).await?;
        let uid = reply::text(&answer).unwrap_or_default();
        self.set_uid(uid.clone());
        Ok(uid)
    }
}

/// The event in an outbox entry; `None` if this build cannot read it.
fn posted(uid: &str, lane: Lane, (id, fields): StreamEntry) -> Option<Posted> {
    let field = |name: &str| {
        let (_, value) = fields.iter().find(|(known, _)| known == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    };
    let id: OutboxId = id.parse().ok()?;
    let kind = EventType::parse(field("type")?)?;
    let data = EventData::from_json(kind, field("data")?).ok()?;
    let at = field("at").and_then(|at| at.parse().ok()).unwrap_or_else(|| i64::try_from(id.ms).unwrap_or(i64::MAX));
    Some(Posted { id, event: event(uid, lane, id, Millis(at), data) })
}

/// The event at this place of a lane.
fn event(uid: &str, lane: Lane, id: OutboxId, at: Millis, data: EventData) -> Event {
    // One letter for the lane, because the two outboxes count on their own.
    let lane = &lane.as_str()[..1];
    Event { id: format!("msg_{uid}_{lane}{id}"), at, data }
}
