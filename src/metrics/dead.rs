//! How many jobs have died, over all leaders: none lost and none twice, whoever ends how.
//!
//! A leader counts what it commits, but a process that ends takes with it what nobody has seen. So Prometheus is shown the
//! deaths only up to a place in the outbox that the ledger has been told of; what lies behind that place is counted by
//! whoever leads next, and by nobody else.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus::{
    IntCounterVec,
    proto::{Counter, Metric, MetricFamily},
};

use crate::ledger::OutboxId;

/// The metric.
pub(super) const NAME: &str = "sexton_jobs_dead_total";

/// Queue, task, reason, death.
pub(super) type Line = [String; 4];
/// How many have died, by line.
pub(super) type Counts = BTreeMap<Line, u64>;

/// The deaths of all sources.
#[derive(Debug)]
pub(super) struct Dead {
    total: IntCounterVec,
    sources: Mutex<HashMap<String, Account>>,
}

/// The deaths of one source in this process.
#[derive(Debug, Default)]
struct Account {
    /// This process leads, and knows from where on it counts.
    counts: bool,
    /// Rises whenever it begins or ceases to.
    term: u64,
    /// Somebody scrapes: what has not been shown is the next leader's.
    is_scraped: bool,
    total: Counts,
    /// The place of the last death in `total`.
    until: OutboxId,
    /// What Prometheus may be shown, up to which place; none before this process has led.
    shown: Option<Counts>,
    marked: Option<OutboxId>,
    /// Lines have just been shown at 0 that have not been shown before.
    has_begun_lines: bool,
}

/// What Prometheus may be shown once the ledger knows of it.
#[derive(Clone, Debug)]
pub struct ToShow {
    /// The place of the last death in it.
    pub until: OutboxId,
    counts: Counts,
    /// What was shown before.
    before: Counts,
    term: u64,
}

impl Dead {
    pub(super) fn new(total: IntCounterVec) -> Dead {
        Dead { total, sources: Mutex::default() }
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<String, Account>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More have died, the last of them told of at this place.
    pub(super) fn count(&self, source: &str, counts: Counts, until: Option<OutboxId>) {
        let mut sources = self.sources();
        let account = sources.entry(source.to_owned()).or_default();
        for (line, count) in counts {
            self.line(source, &line).inc_by(count);
            *account.total.entry(line).or_default() += count;
        }
        account.until = account.until.max(until.unwrap_or_default());
    }

    /// This process leads from now on, and has counted everything up to a place. `marked` is how far Prometheus has been
    /// shown it by whoever led before; nothing if nobody scrapes.
    pub(super) fn begin(&self, source: &str, until: OutboxId, marked: Option<OutboxId>) {
        let mut sources = self.sources();
        let account = sources.entry(source.to_owned()).or_default();
        account.counts = true;
        account.term += 1;
        account.is_scraped |= marked.is_some();
        (account.until, account.marked) = (until, marked);
        account.shown.get_or_insert_default();
    }

    /// It does not lead any more: what has not been shown is counted by the next leader.
    pub(super) fn end(&self, source: &str) {
        let mut sources = self.sources();
        let Some(account) = sources.get_mut(source) else { return };
        account.counts = false;
        account.term += 1;
        if !account.is_scraped {
            return;
        }
        let shown = account.shown.clone().unwrap_or_default();
        for line in account.total.keys() {
            // An error only says that there was no such line.
            let [queue, task, reason, death] = line;
            let _ = self.total.remove_label_values(&[source, queue, task, reason, death]);
        }
        for (line, count) in &shown {
            self.line(source, line).inc_by(*count);
        }
        account.total = shown;
    }

    /// What may be shown once the ledger has been told; nothing if there is no more than what is shown already. New lines
    /// begin at 0, so at first nothing else happens to them.
    pub(super) fn to_show(&self, source: &str) -> Option<ToShow> {
        let mut sources = self.sources();
        let account = sources.get_mut(source)?;
        if !account.counts || account.marked == Some(account.until) {
            return None;
        }
        let shown = account.shown.get_or_insert_default();
        let before = shown.len();
        for line in account.total.keys() {
            shown.entry(line.clone()).or_default();
        }
        // Not twice in a row, or the old lines would stand still for as long as new ones come.
        account.has_begun_lines = shown.len() > before && !account.has_begun_lines;
        if account.has_begun_lines {
            return None;
        }
        let before = shown.clone();
        Some(ToShow { until: account.until, counts: account.total.clone(), before, term: account.term })
    }

    /// The ledger knows of it.
    pub(super) fn may_show(&self, source: &str, ToShow { until, counts, before, term }: ToShow) {
        let mut sources = self.sources();
        let Some(account) = sources.get_mut(source) else { return };
        account.is_scraped = true;
        if account.term == term {
            account.marked = Some(until);
            account.shown = Some(counts);
            return;
        }
        // The term has ended meanwhile, and what was not shown is the next leader's; but the ledger says that this is.
        for (line, count) in counts {
            let more = count - before.get(&line).copied().unwrap_or_default();
            self.line(source, &line).inc_by(more);
            *account.total.entry(line.clone()).or_default() += more;
            *account.shown.get_or_insert_default().entry(line).or_default() += more;
        }
    }

    /// Has this family say what may be shown. Sources that this process has never led stay as they are.
    pub(super) fn show(&self, family: &mut MetricFamily) {
        let sources = self.sources();
        family.mut_metric().retain_mut(|metric| {
            let value = |name: &str| {
                let label = metric.get_label().iter().find(|label| label.name() == name);
                label.map_or("", |label| label.value()).to_owned()
            };
            let Some(shown) = sources.get(&value("source")).and_then(|account| account.shown.as_ref()) else {
                return true;
            };
            let shown = shown.get(&["queue", "task", "reason", "death"].map(value)).copied();
            if let Some(shown) = shown {
                set(metric, shown);
            }
            // It begins with the next scrape.
            shown.is_some()
        });
    }

    fn line(&self, source: &str, [queue, task, reason, death]: &Line) -> prometheus::IntCounter {
        self.total.with_label_values(&[source, queue, task, reason, death])
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floating point")]
fn set(metric: &mut Metric, count: u64) {
    let mut counter = Counter::default();
    counter.set_value(count as f64);
    metric.set_counter(counter);
}

#[cfg(test)]
mod tests {
    use prometheus::{Opts, Registry};

    use super::*;

    const SOURCE: &str = "orders";

    /// One process: what it has counted, and what Prometheus is shown.
    struct Process {
        dead: Dead,
        registry: Registry,
    }

    fn process() -> Process {
        let total = IntCounterVec::new(Opts::new(NAME, "-"), &["source", "queue", "task", "reason", "death"]).unwrap();
        let registry = Registry::new();
        registry.register(Box::new(total.clone())).unwrap();
        Process { dead: Dead::new(total), registry }
    }

    fn place(ms: u64) -> OutboxId {
        OutboxId { ms, seq: 0 }
    }

    impl Process {
        fn dies(&self, task: &str, count: u64, until: u64) {
            let line = ["default", task, "max_attempts", "first"].map(str::to_owned);
            self.dead.count(SOURCE, Counts::from([(line, count)]), Some(place(until)));
        }

        /// A scrape; `ledger` is told, if it can be.
        fn scrape(&self, ledger: Option<&mut Option<OutboxId>>) -> Vec<(String, f64)> {
            if let (Some(what), Some(ledger)) = (self.dead.to_show(SOURCE), ledger) {
                *ledger = Some(what.until);
                self.dead.may_show(SOURCE, what);
            }
            let mut families = self.registry.gather();
            let Some(family) = families.first_mut() else { return Vec::new() };
            self.dead.show(family);
            let task =
                |metric: &Metric| metric.get_label().iter().find(|label| label.name() == "task").unwrap().clone();
            let shown = family.get_metric().iter();
            shown.map(|metric| (task(metric).value().to_owned(), metric.get_counter().get_value())).collect()
        }
    }

    fn shows(of: &[(&str, f64)]) -> Vec<(String, f64)> {
        of.iter().map(|(task, count)| ((*task).to_owned(), *count)).collect()
    }

    #[test]
    fn what_was_not_shown_is_the_next_leaders_and_nothing_is_counted_twice() {
        let mut ledger = None;
        let old = process();
        old.dead.begin(SOURCE, place(0), None);
        assert_eq!(old.scrape(Some(&mut ledger)), shows(&[]));
        old.dies("mail", 3, 10);
        assert_eq!(old.scrape(Some(&mut ledger)), shows(&[("mail", 0.0)]), "a line begins at 0");
        assert_eq!(ledger, Some(place(0)), "and what is not shown is not said to be");
        assert_eq!(old.scrape(Some(&mut ledger)), shows(&[("mail", 3.0)]));
        assert_eq!(ledger, Some(place(10)));
        old.dies("mail", 2, 20);
        // The ledger cannot be reached.
        assert_eq!(old.scrape(None), shows(&[("mail", 3.0)]));
        old.dead.end(SOURCE);
        assert_eq!(old.scrape(Some(&mut ledger)), shows(&[("mail", 3.0)]), "the two are somebody else's");

        // The next one counts them from the ledger, and goes on.
        let new = process();
        new.dead.begin(SOURCE, place(20), ledger);
        new.dies("mail", 2, 0);
        assert_eq!(new.scrape(Some(&mut ledger)), shows(&[("mail", 0.0)]));
        new.dies("mail", 1, 30);
        assert_eq!(new.scrape(Some(&mut ledger)), shows(&[("mail", 3.0)]));
        assert_eq!(ledger, Some(place(30)));

        // The old one leads again, and goes on from what it has shown.
        new.dead.end(SOURCE);
        old.dead.begin(SOURCE, place(30), ledger);
        old.dies("mail", 4, 40);
        assert_eq!(old.scrape(Some(&mut ledger)), shows(&[("mail", 7.0)]));
    }

    #[test]
    fn an_answer_of_the_ledger_that_comes_after_the_term_counts() {
        let mut ledger = None;
        let process = process();
        process.dead.begin(SOURCE, place(0), None);
        process.dies("mail", 1, 10);
        for _ in 0..3 {
            process.scrape(Some(&mut ledger));
        }
        process.dies("mail", 5, 20);
        let what = process.dead.to_show(SOURCE).unwrap();
        process.dies("mail", 2, 30);
        process.dead.end(SOURCE);
        assert_eq!(process.scrape(None), shows(&[("mail", 1.0)]));
        process.dead.may_show(SOURCE, what);
        assert_eq!(process.scrape(None), shows(&[("mail", 6.0)]), "the last two are the next leader's");
        process.dead.begin(SOURCE, place(30), Some(place(30)));
        process.dies("mail", 1, 40);
        assert_eq!(process.scrape(Some(&mut ledger)), shows(&[("mail", 7.0)]));
    }

    #[test]
    fn lines_that_keep_coming_do_not_hold_up_the_others() {
        let mut ledger = None;
        let process = process();
        process.dead.begin(SOURCE, place(0), None);
        process.dies("mail", 1, 1);
        process.scrape(Some(&mut ledger));
        for n in 2..12 {
            process.dies("mail", 1, n);
            process.dies(&format!("task{n}"), 1, n);
            process.scrape(Some(&mut ledger));
        }
        let mail = process.scrape(Some(&mut ledger)).into_iter().find(|(task, _)| task == "mail").unwrap();
        assert!(mail.1 >= 10.0, "{mail:?}");
    }

    #[test]
    fn where_nobody_scrapes_a_process_keeps_what_it_has_counted() {
        let process = process();
        process.dead.begin(SOURCE, place(0), None);
        process.dies("mail", 3, 10);
        process.dead.end(SOURCE);
        assert_eq!(process.registry.gather()[0].get_metric()[0].get_counter().get_value(), 3.0);
    }
}
