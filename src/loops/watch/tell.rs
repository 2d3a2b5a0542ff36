//! What the watch tells: the events of one save, and the log's lines about them.

use std::{collections::BTreeSet, sync::Arc};

use super::{News, Watch};
use crate::{
    alert::{self, Cause, Change, Ended, State, Tick, Transition},
    event::EventData,
    ledger::{Place, Pool, StoreError},
    letter::Millis,
    retry::{Aloft, GroupFacts, Learnt, PoolLearnt, explain_group},
    rule::{Decision, Rules},
};

/// What is known of the retry loop where an alert speaks of groups.
#[derive(Default)]
struct Retrying {
    rules: Arc<Rules>,
    aloft: Aloft,
    places: Vec<(Place, PoolLearnt, Learnt)>,
}

impl Watch {
    /// The events of what there is to tell, in order.
    pub(super) async fn events(&self, watch: &alert::Watch, now: Millis, news: &News) -> Vec<EventData> {
        let told = news.transitions.iter();
        let again = news.reminders.iter();
        let causes = told.clone().chain(again.clone()).flat_map(|told| &told.groups).map(|group| &group.cause);
        let retrying = match self.retrying(causes).await {
            Ok(retrying) => Some(retrying),
            // The alert is what matters.
            Err(error) => {
                tracing::debug!(source = self.ledger.name(), %error, "an alert cannot say what is retried of it");
                None
            }
        };
        let source = self.ledger.name();
        let said = |cause: &Cause| retrying.as_ref()?.said(source, now, cause);
        let event = |told: &Transition| told.event(said);
        let mut events: Vec<EventData> = told.map(event).collect();
        if let Some(summary) = &news.summary {
            let firing = watch.incidents().live().iter().filter(|incident| incident.state == State::Firing);
            let firing: BTreeSet<&str> = firing.map(|incident| incident.rule.as_str()).collect();
            let firing = firing.into_iter().map(str::to_owned).collect();
            let hooks = self.options.digest.as_ref().and_then(|digest| digest.hooks.clone());
            events.push(EventData::Digest(Box::new(summary.digest(source, firing, hooks))));
        }
        events.extend(again.map(event));
        events
    }

    /// Reads what the retry loop knows of these causes. Costs nothing where there are none, or no rule retries them.
    async fn retrying<'a>(&self, causes: impl Iterator<Item = &'a Cause>) -> Result<Retrying, StoreError> {
        let rules = Arc::clone(&self.rules.borrow());
        let source = self.ledger.name();
        let places: BTreeSet<Place> = causes.filter_map(|cause| place(&rules, source, cause)).collect();
        if places.is_empty() {
            return Ok(Retrying { rules, ..Retrying::default() });
        }
        let of = |place: &Place| [(place.pool.clone(), None), (place.pool.clone(), Some(place.group.clone()))];
        let known = self.ledger.learnt(&places.iter().flat_map(of).collect::<Vec<_>>()).await?;
        let aloft = Aloft::of(&self.ledger.flights().await?);
        let learnt = |(n, place)| {
            let known = |n: usize| known.get(n).and_then(Option::as_deref);
            (place, PoolLearnt::read(known(2 * n)), Learnt::read(known(2 * n + 1)))
        };
        Ok(Retrying { rules, aloft, places: places.into_iter().enumerate().map(learnt).collect() })
    }

    /// After the save: what has been told, for the log.
    pub(super) fn told(&mut self, news: &News, tick: &Tick) {
        let source = self.ledger.name();
        for told in &news.transitions {
            let Transition { incident, alert, summary, .. } = told;
            let severity = told.severity.as_str();
            match told.change {
                Change::Fire => tracing::warn!(source, alert, severity, incident, summary, "an alert fires"),
                Change::Repeat => tracing::warn!(source, alert, severity, incident, summary, "an alert still fires"),
                Change::Resolve(Ended::Over | Ended::RuleGone) => {
                    tracing::info!(source, alert, severity, incident, summary, "an alert is over");
                }
            }
        }
        if let Some(summary) = &news.summary {
            let (died, waiting) = (summary.died, summary.waiting);
            tracing::info!(source, died, waiting, "the summary is told");
        }
        if tick.passed_over > 0 && self.passed_over == 0 {
            tracing::warn!(
                source,
                incidents = tick.passed_over,
                "an alert rule has as many incidents (20) as it may: what more it notices is not told; tell less apart (`by`)"
            );
        }
        self.passed_over = tick.passed_over;
    }
}

impl Retrying {
    /// What becomes of jobs of this cause; none where that is not known.
    fn said(&self, source: &str, now: Millis, cause: &Cause) -> Option<String> {
        if !cause.is_whole() {
            return None;
        }
        let place = place(&self.rules, source, cause);
        let known = self.places.iter().find(|(known, ..)| Some(known) == place.as_ref());
        let facts = known.map(|(place, pool, group)| GroupFacts { now, place, pool, group, aloft: &self.aloft });
        explain_group(self.rules.decide_alike(&cause.subject(source)), facts)
    }
}

/// Where the entries of a cause wait, if a rule retries them.
fn place(rules: &Rules, source: &str, cause: &Cause) -> Option<Place> {
    match rules.decide_alike(&cause.subject(source)) {
        Decision::Retry(rule, _) if cause.is_whole() => {
            Some(Place { pool: Pool::of(&rule.name, &cause.task), group: cause.group.clone() })
        }
        _ => None,
    }
}
