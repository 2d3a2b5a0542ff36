//! What a delivery lane counts and logs: one line when something begins or ends, with the receiver's
//! host and port, never more of its URL.

use super::Deliver;
use crate::{
    delivery::{Key, Note, Outcome},
    hook::Sent,
    metrics::DeliveryOutcome,
};

impl Deliver {
    /// Counts a request; a row of rejections is logged once.
    pub(super) fn count(&mut self, key: Key, sent: &Sent) {
        let outcome = match sent.outcome {
            Outcome::Delivered => DeliveryOutcome::Delivered,
            Outcome::Retry { .. } => DeliveryOutcome::Retried,
            Outcome::Rejected | Outcome::SwitchedOff => DeliveryOutcome::Rejected,
        };
        self.metrics.delivery(&self.hook, outcome, sent.seconds);
        let (source, hook, lane, error) = (&self.policy.source, &self.hook, self.lane.as_str(), sent.error.as_deref());
        match sent.outcome {
            Outcome::Rejected => {
                if self.rejected == 0 {
                    let endpoint = self.client.endpoint();
                    tracing::warn!(source, hook, lane, endpoint, status = sent.status, error, event = %key,
                        "the receiver rejects events for good; further ones are counted");
                }
                self.rejected += 1;
            }
            Outcome::Delivered if self.rejected > 0 => {
                tracing::info!(source, hook, lane, rejected = self.rejected, "the receiver takes events again");
                self.rejected = 0;
            }
            Outcome::Delivered => tracing::debug!(source, hook, lane, event = %key, "delivered"),
            Outcome::Retry { .. } => {
                tracing::debug!(source, hook, lane, status = sent.status, error, event = %key, "to be tried again");
            }
            Outcome::SwitchedOff => {}
        }
    }

    /// Logs and counts what the plan has to say.
    pub(super) fn tell(&self, notes: &[Note], sent: Option<&Sent>) {
        let (source, hook, lane) = (&self.policy.source, &self.hook, self.lane.as_str());
        for note in notes {
            match *note {
                Note::Failing { pause } => tracing::warn!(
                    source,
                    hook,
                    lane,
                    endpoint = self.client.endpoint(),
                    status = sent.and_then(|sent| sent.status),
                    error = sent.and_then(|sent| sent.error.as_deref()),
                    next_try_seconds = pause.as_secs_f64(),
                    "the receiver is failing; trying with one request at a time"
                ),
                Note::Recovered { failures, after } => tracing::info!(
                    source,
                    hook,
                    lane,
                    failed_requests = failures,
                    seconds = after.as_secs(),
                    waiting = self.plan.as_ref().map_or(0, |plan| plan.state().unsettled()),
                    "the receiver works again"
                ),
                Note::GivenUp(events) => {
                    self.metrics.not_sent(&self.hook, DeliveryOutcome::GivenUp, events);
                    tracing::warn!(
                        source,
                        hook,
                        lane,
                        endpoint = self.client.endpoint(),
                        events,
                        "given up; `sexton hooks resend` sends what is still there"
                    );
                }
                Note::SwitchedOff(events) => {
                    self.metrics.not_sent(&self.hook, DeliveryOutcome::Rejected, events);
                    self.warn_off();
                }
            }
        }
    }

    pub(super) fn warn_off(&self) {
        tracing::warn!(
            source = self.policy.source,
            hook = self.hook,
            lane = self.lane.as_str(),
            endpoint = self.client.endpoint(),
            "the receiver is gone (410); switched off until the hook's configuration changes"
        );
    }
}
