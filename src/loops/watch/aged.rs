//! The oldest entries of the DLQ, for rules that ask what waits: no sample is as old as they are.

use std::sync::Arc;

use super::{super::batch, Watch};
use crate::{
    alert::{Aged, AgedQuery, AlertRule},
    clock::millis,
    event::{Include, JobDead},
    ledger::{Cursor, StoreError, Survey},
    letter::{DeadLetter, Millis},
};

/// Entries of a page at most.
const PAGE: usize = 250;
/// Entries too young for a rule after which it looks no further: they come in the order of their burial, but for some
/// whose record tells another time.
const YOUNG: u64 = 100;

/// What one rule looks for.
struct Look<'r> {
    rule: &'r AlertRule,
    query: AgedQuery,
    aged: Aged,
    seen: u64,
    young: u64,
}

impl Look<'_> {
    fn is_done(&self) -> bool {
        self.seen >= self.query.at_most || self.young >= YOUNG
    }

    fn take(&mut self, source: &str, now: Millis, letter: &DeadLetter, dead: &JobDead) {
        if now.0.saturating_sub(letter.died_at.0) < millis(self.query.older_than) {
            self.young += 1;
        } else {
            self.seen += 1;
            self.aged.add(self.rule, source, now, letter.died_at, dead);
        }
    }
}

impl Watch {
    /// What rules see that ask for it, if it is time to look; and whether all of it could be read. A rule that has not
    /// looked is not judged.
    pub(super) async fn look_at_the_oldest(
        &mut self,
        now: Millis,
        survey: &Survey,
        alerts: &Arc<[AlertRule]>,
    ) -> (Vec<Aged>, Result<(), StoreError>) {
        let known = self.aged.as_ref().filter(|(_, rules)| Arc::ptr_eq(rules, alerts));
        if !self.is_time(known.map(|(at, _)| *at), now) {
            return (Vec::new(), Ok(()));
        }
        self.aged = Some((now, Arc::clone(alerts)));
        let source = self.ledger.name();
        let look = |rule| {
            let query = AlertRule::aged(rule)?;
            Some(Look { rule, query, aged: Aged::new(rule), seen: 0, young: 0 })
        };
        let mut looks: Vec<Look<'_>> = alerts.iter().filter(|rule| rule.concerns(source)).filter_map(look).collect();
        let looked = self.read_the_oldest(&mut looks, now, survey).await;
        // Half of what there is to see could be taken for the whole.
        let aged = if looked.is_ok() { looks.into_iter().map(|look| look.aged).collect() } else { Vec::new() };
        (aged, looked)
    }

    async fn read_the_oldest(&self, looks: &mut [Look<'_>], now: Millis, survey: &Survey) -> Result<(), StoreError> {
        // Where the oldest entry is too young for all, there is nothing to read.
        let age = survey.oldest.map_or(-1, |oldest| now.0.saturating_sub(oldest.0));
        if looks.iter().all(|look| age < millis(look.query.older_than)) {
            return Ok(());
        }
        let source = self.ledger.name();
        let (mut after, mut size) = (Cursor::default(), batch::FIRST);
        while looks.iter().any(|look| !look.is_done()) {
            let batch = self.ledger.browse(&after, size).await?;
            for letter in &batch.letters {
                let dead = JobDead::of(source, letter, Include::default());
                looks.iter_mut().filter(|look| !look.is_done()).for_each(|look| look.take(source, now, letter, &dead));
            }
            if batch.caught_up {
                break;
            }
            size = batch::next_size(size, batch.heaviest, PAGE);
            after = batch.cursor;
        }
        Ok(())
    }
}
