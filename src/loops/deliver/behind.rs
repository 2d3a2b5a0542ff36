//! What a lane does that cannot keep up with the outbox: lets go of the oldest events before the cap takes them, and
//! counts how far behind it is.

use std::time::Duration;

use super::Deliver;
use crate::{
    clock::monotonic,
    delivery::{PAGE, Plan},
    event::Lane,
    ledger::{OutboxId, StoreError},
};

/// How often a lane that is behind looks at how full the outbox is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon it looks again at one that is filling up: reading the DLQ waits while the outbox is full.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// How often the backlog of a lane that is behind is counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Pages read to count a backlog exactly; a longer one is given as the length of the outbox.
const COUNTED_PAGES: usize = 4;

impl Deliver {
    /// True if the lane still needs something of what the outbox holds and could fold it.
    pub(super) fn is_behind(&self) -> bool {
        // Switched off, it needs nothing and only counts what it reads.
        let needs = |plan: &Plan| !plan.is_off() && (plan.state().unsettled() > 0 || !self.caught_up);
        self.lane == Lane::Deaths && self.plan.as_ref().is_some_and(needs)
    }

    /// True if nothing of what the outbox holds is in danger, though some of it may still be on its way.
    fn keeps_up(&self) -> bool {
        // A failing lane has room to read whenever it was relieved; that says nothing.
        !self.is_behind() || (self.caught_up && self.plan.as_ref().is_some_and(|plan| !plan.is_failing()))
    }

    /// Makes room in an outbox that is nearly full, for a lane that is far behind: what stands in its older half is
    /// folded into a digest, so that it can be trimmed.
    pub(super) async fn relieve(&mut self) -> Result<(), StoreError> {
        if self.keeps_up()
            && let Some(events) = self.let_go.take()
        {
            let (source, hook) = (&self.policy.source, &self.hook);
            tracing::info!(
                source,
                hook,
                events,
                "what this hook still needs fits into the outbox again; these many were folded"
            );
        }
        let now = monotonic();
        if !self.is_behind() || self.look_at.is_some_and(|at| at > now) {
            return Ok(());
        }
        let length = self.ledger.outbox_len(self.lane).await?;
        self.look_at = Some(now + if length > self.outbox_cap / 2 { LOOK_SOON } else { LOOK_EVERY });
        if length <= self.outbox_cap / 4 * 3 {
            return Ok(());
        }
        let (mut after, mut seen, mut passed) = (OutboxId::default(), 0_u64, 0_u64);
        let folded = |plan: &Option<Plan>| plan.as_ref().map_or(0, |plan| plan.state().overflowed());
        let before = folded(&self.plan);
        loop {
            let page = self.ledger.outbox(self.lane, after, PAGE).await?;
            // Counted anew, and after the page was read: others let go, too, and what is trimmed meanwhile must not
            // make the younger half look like the older one.
            let older = self.ledger.outbox_len(self.lane).await?.saturating_sub(self.outbox_cap / 2);
            let (Some(last), Some(plan)) = (page.last, &mut self.plan) else { break };
            let leaving = self.client.leaving();
            seen += page.unreadable;
            let all = usize::try_from(older.saturating_sub(seen)).unwrap_or(usize::MAX);
            for posted in page.events.iter().take(all) {
                let wanted = self.selection.wants(&posted.event);
                if plan.relieve(posted, wanted, |dead| leaving.brief(dead)) {
                    self.bodies.remove(&posted.id);
                    passed += 1;
                }
            }
            seen += page.events.len() as u64;
            if seen >= older {
                break;
            }
            plan.passed(last);
            after = last;
        }
        if passed > 0 {
            self.unread = self.unread.saturating_sub(passed);
            self.save_now = true;
            let events = folded(&self.plan).saturating_sub(before);
            if events > 0 && self.let_go.is_none() {
                tracing::warn!(
                    source = self.policy.source,
                    hook = self.hook,
                    events,
                    outbox = length,
                    "the outbox is nearly full; what this hook was not told is folded into one digest, and counted"
                );
            }
            if events > 0 {
                *self.let_go.get_or_insert(0) += events;
            }
        }
        Ok(())
    }

    /// Counts what has not been read, while the lane is behind.
    pub(super) async fn count_unread(&mut self) -> Result<(), StoreError> {
        let now = monotonic();
        let Some(plan) = &self.plan else { return Ok(()) };
        if self.caught_up || self.count_at.is_some_and(|at| at > now) {
            return Ok(());
        }
        self.count_at = Some(now + COUNT_EVERY);
        let (mut after, mut unread) = (plan.cursor(), 0);
        for _ in 0..COUNTED_PAGES {
            let page = self.ledger.outbox(self.lane, after, PAGE).await?;
            let read = page.events.len() as u64 + page.unreadable;
            unread += read;
            match page.last {
                Some(last) if read >= PAGE as u64 => after = last,
                _ => {
                    self.unread = unread;
                    return Ok(());
                }
            }
        }
        self.unread = self.ledger.outbox_len(self.lane).await?.max(unread);
        Ok(())
    }
}
