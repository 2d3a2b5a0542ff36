//! What happened to jobs, as the deaths lane of the outbox tells it, and which groups are no news.

use std::sync::Arc;

use super::{super::batch, Watch};
use crate::{
    alert::{self, AlertRule},
    event::{Event, Lane},
    ledger::{Cursor, OutboxId, StoreError, Survey},
    letter::Millis,
};

/// Events and entries of a page at most, and of the first one.
const PAGE: usize = 500;
const FIRST_PAGE: usize = 32;
/// Pages of one step: however much there is to count, the next sample is not far. What is counted later is counted where
/// it happened all the same.
const PAGES: usize = 10;
/// Pages of entries in one step, whose groups are learnt in the background.
const PAGES_TO_LEARN: usize = 4;

impl Watch {
    /// Counts on between two looks, of which the next one saves it. An error forgets what was counted since the last save.
    pub(super) async fn count_on(&mut self) -> Result<(), StoreError> {
        let Some((mut watch, revision)) = self.kept.take() else { return Ok(()) };
        let alerts = Arc::clone(&self.alerts.borrow());
        let now = self.ledger.clock().now();
        self.count(&mut watch, now, None, &alerts).await?;
        self.kept = Some((watch, revision));
        Ok(())
    }

    /// Counts on from where the watch is, up to where the lane was seen to end if that is known; true if there is more.
    pub(super) async fn count(
        &self,
        watch: &mut alert::Watch,
        now: Millis,
        end: Option<OutboxId>,
        alerts: &[AlertRule],
    ) -> Result<bool, StoreError> {
        let is_before_end = |after: OutboxId| end.is_none_or(|end| after < end);
        // A lane that ends before what has been read of it has been begun anew.
        let mut after =
            watch.cursor().parse().ok().filter(|&after| is_before_end(after) || end == Some(after)).unwrap_or_default();
        let (mut size, mut pages) = (FIRST_PAGE, 0);
        while is_before_end(after) && pages < PAGES {
            pages += 1;
            let page = self.ledger.outbox(Lane::Deaths, after, size).await?;
            for posted in &page.events {
                watch.observe(now, &posted.event, alerts);
            }
            // What is not there any more has been trimmed.
            let Some(last) = page.last.or(end) else { break };
            after = last;
            if end.is_none() && page.events.len() < size {
                break;
            }
            size =
                batch::next_size(size, page.events.iter().map(|posted| weight(&posted.event)).max().unwrap_or(0), PAGE);
        }
        watch.counted_until(&after.to_string());
        Ok(is_before_end(after))
    }

    /// Where a rule asks for new groups: reads what is in the DLQ once, for its groups are none. It waits until everything
    /// has been read by ingest, so as not to read the same at the same time. True if there is more.
    pub(super) async fn learn(
        &mut self,
        watch: &mut alert::Watch,
        survey: &Survey,
        alerts: &[AlertRule],
    ) -> Result<bool, StoreError> {
        let Some(from) = watch.to_learn(alerts).filter(|_| survey.lag == 0) else { return Ok(false) };
        let mut after = Cursor(from.to_owned());
        for _ in 0..PAGES_TO_LEARN {
            let batch = self.ledger.browse(&after, self.learnt_at_once).await?;
            for letter in &batch.letters {
                watch.learn(letter.died_at, &letter.group.0);
            }
            if batch.caught_up {
                watch.learnt_until(None);
                tracing::info!(
                    source = self.ledger.name(),
                    "the groups of what is in the DLQ are known: what differs is new"
                );
                return Ok(false);
            }
            self.learnt_at_once = batch::next_size(self.learnt_at_once, batch.heaviest, PAGE);
            after = batch.cursor;
            watch.learnt_until(Some(&after.0));
        }
        Ok(true)
    }
}

/// About what an event weighs in memory, in bytes.
fn weight(event: &Event) -> usize {
    let Some(dead) = event.data.job() else { return 0 };
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let attempts = dead.attempt_errors.iter().flatten().map(String::len).sum::<usize>();
    text(&dead.payload) + text(&dead.traceback) + text(&dead.error.message) + attempts
}
