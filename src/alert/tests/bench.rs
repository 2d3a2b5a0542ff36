//! Runs the synthetic weeks and says what the rules made of them.

use std::collections::{BTreeMap, VecDeque};

use super::{
    shipped::shipped,
    weeks::{Episode, HOUR, Happens, MINUTE, MONDAY, SECOND, WEEKS, Week, What, dead},
    *,
};

/// Where much happens, samples are this close, and elsewhere so far apart; there is one right behind everything that
/// happens. The rules are told that they come every two minutes, so that none of this looks like a gap.
const CLOSE: i64 = 20 * SECOND;
const QUIET: i64 = 6 * MINUTE;
/// An outage must page within this time, and a leak within that.
const OUTAGE_WITHIN: i64 = 10 * MINUTE;
const LEAK_WITHIN: i64 = 3 * HOUR;

/// The DLQ as it would be, and the watch over it.
struct World {
    watch: Watch,
    rules: Vec<AlertRule>,
    ledger: BTreeMap<String, String>,
    /// Entries by the time of their death, the oldest first.
    entries: VecDeque<(i64, u32)>,
    waiting: u64,
    in_flight: u64,
    told: Vec<Transition>,
}

impl World {
    fn new(rules: Vec<AlertRule>) -> World {
        let (watch, _) = Watch::load("orders", mins(2), [("learnt", "all")]);
        World {
            watch,
            rules,
            ledger: BTreeMap::new(),
            entries: VecDeque::new(),
            waiting: 0,
            in_flight: 0,
            told: Vec::new(),
        }
    }

    fn bury(&mut self, at: i64, jobs: u32) {
        self.waiting += u64::from(jobs);
        self.entries.push_back((at, jobs));
    }

    /// Takes so many of the oldest entries away, if there are as many.
    fn take(&mut self, jobs: u64) -> u64 {
        let mut left = jobs;
        while left > 0
            && let Some(oldest) = self.entries.front_mut()
        {
            let taken = u32::try_from(left).unwrap_or(u32::MAX).min(oldest.1);
            oldest.1 -= taken;
            left -= u64::from(taken);
            if oldest.1 == 0 {
                self.entries.pop_front();
            }
        }
        self.waiting -= jobs - left;
        jobs - left
    }

    fn happens(&mut self, now: i64, at: i64, happens: Happens) {
        let (arrival, kind, jobs) = match happens {
            Happens::Die { kind, jobs } => {
                self.bury(at, jobs);
                (Arrival::First, kind, jobs)
            }
            Happens::Retry { kind, jobs } => {
                let taken = self.take(u64::from(jobs));
                self.in_flight += taken;
                (Arrival::Retried, kind, taken as u32)
            }
            Happens::DieAgain { kind, jobs } => {
                let jobs = jobs.min(self.in_flight as u32);
                self.in_flight -= u64::from(jobs);
                self.bury(at, jobs);
                (Arrival::Again, kind, jobs)
            }
            Happens::Recover { kind, jobs } => {
                let jobs = jobs.min(self.in_flight as u32);
                self.in_flight -= u64::from(jobs);
                (Arrival::Left, kind, jobs)
            }
            Happens::Remove { jobs } => {
                self.take(u64::from(jobs));
                return;
            }
            Happens::Purge => {
                self.take(self.waiting);
                return;
            }
        };
        if jobs > 0 {
            self.watch.count_alike(Millis(now), Millis(at), arrival, &dead(kind), jobs, &self.rules);
        }
    }

    fn tick(&mut self, now: i64) {
        let mut aged = Vec::new();
        if now / MINUTE % 60 == 0 {
            for rule in &self.rules {
                if let Some(query) = rule.aged() {
                    let mut seen = Aged::new(rule);
                    for (at, _) in self.entries.iter().take(query.at_most as usize) {
                        seen.add(rule, "orders", Millis(now), Millis(*at), &dead(0));
                    }
                    aged.push(seen);
                }
            }
        }
        let sample = Sample { entries: self.waiting, in_flight: self.in_flight };
        let (transitions, _) = self.watch.step(Millis(now), sample, &self.rules, &aged);
        self.told.extend(transitions);
    }

    /// The leader dies, and another one takes over.
    fn change_leader(&mut self) {
        let fields = self.watch.save();
        for (name, text) in fields.set {
            self.ledger.insert(name, text);
        }
        for name in fields.remove {
            self.ledger.remove(&name);
        }
        let (watch, unreadable) = Watch::load("orders", mins(2), &self.ledger);
        assert_eq!(unreadable, Vec::<String>::new());
        self.watch = watch;
    }
}

/// A week that has been lived through: what happened, and what the rules told.
struct Lived {
    seed: u64,
    episodes: Vec<Episode>,
    told: Vec<Transition>,
}

fn live(seed: u64, rules: &[AlertRule]) -> Lived {
    let mut week = Week::new(seed);
    let mut world = World::new(rules.to_vec());
    let (mut now, mut next) = (MONDAY, 0);
    let mut busy_until = 0;
    let mut change = now + week.dice.i64(HOUR..72 * HOUR);
    while now < MONDAY + 7 * 24 * HOUR {
        let from = next;
        while week.happens.get(next).is_some_and(|(at, _)| *at <= now) {
            let (at, happens) = week.happens[next];
            world.happens(now, at, happens);
            next += 1;
        }
        world.tick(now);
        if next - from >= 2 {
            busy_until = now + 15 * MINUTE;
        }
        let pages = world.watch.incidents().live().iter().any(|incident| incident.severity.pages());
        let behind_next = week.happens.get(next).map_or(i64::MAX, |(at, _)| at + SECOND);
        let latest = if pages { MINUTE } else { QUIET };
        now += if now < busy_until { CLOSE } else { (behind_next - now).clamp(CLOSE, latest) };
        if now >= change {
            world.change_leader();
            change += week.dice.i64(HOUR..72 * HOUR);
            // The lease runs out first.
            now += 12 * SECOND;
        }
    }
    Lived { seed, episodes: week.episodes, told: world.told }
}

/// All weeks, half of them at a time.
fn all_weeks() -> Vec<Lived> {
    let rules = shipped();
    let half = |rest| {
        let seeds = (0..WEEKS).filter(|seed| seed % 2 == rest);
        seeds.map(|seed| live(seed, &rules)).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut weeks = half(0);
        weeks.extend(other.join().expect("no week panics"));
        weeks
    })
}

/// What became of the episodes of one sort.
#[derive(Default)]
struct Row {
    episodes: usize,
    /// Those with a page, also where there should be none.
    paged: usize,
    /// Those that should have paged, and did not in time.
    late: usize,
    /// Those with more than one page.
    twice: usize,
    /// From the first death to the page.
    delays: Vec<i64>,
}

impl Row {
    /// The delay that this part of them stay under.
    fn delay(&self, part: f64) -> String {
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        let n = (delays.len().saturating_sub(1) as f64 * part).round() as usize;
        delays.get(n).map_or("-".to_owned(), |delay| format!("{:.1}m", *delay as f64 / MINUTE as f64))
    }
}

/// The row of the table that an episode belongs to.
fn row(episode: &Episode) -> String {
    match episode.what {
        What::Outage { a_minute, minutes } => {
            let rate = match a_minute {
                0..20 => "5 to 19",
                20..100 => "20 to 99",
                _ => "100 to 500",
            };
            format!("outage, {rate} a minute, {}", if minutes < 60 { "under an hour" } else { "longer" })
        }
        What::Leak => "leak, one in five minutes".to_owned(),
        What::Burst => "burst".to_owned(),
        What::CleanUp => "burst, slowly cleaned up".to_owned(),
        What::Deploy => "deploy".to_owned(),
    }
}

/// Within which time an episode must page, if it must.
fn due_within(episode: &Episode) -> Option<i64> {
    match episode.what {
        What::Outage { .. } => Some(OUTAGE_WITHIN),
        What::Leak => Some(LEAK_WITHIN),
        What::Burst | What::CleanUp | What::Deploy => None,
    }
}

/// The table of all weeks.
#[derive(Default)]
struct Table {
    rows: BTreeMap<String, Row>,
    /// Pages of background weeks: of nothing that happened.
    stray: usize,
    /// By rule: fired, repeated, resolved.
    told: BTreeMap<String, [usize; 3]>,
    /// What is not as it should be.
    wrong: Vec<String>,
}

impl Table {
    fn add(&mut self, week: &Lived) {
        for transition in &week.told {
            let column = match transition.change {
                Change::Fire => 0,
                Change::Repeat => 1,
                Change::Resolve(_) => 2,
            };
            self.told.entry(transition.alert.clone()).or_default()[column] += 1;
        }
        let fires = |told: &&Transition| told.change == Change::Fire && told.severity.pages();
        let mut pages: Vec<&Transition> = week.told.iter().filter(fires).collect();
        for episode in &week.episodes {
            let row = self.rows.entry(row(episode)).or_default();
            row.episodes += 1;
            let Some(within) = due_within(episode) else { continue };
            let (mine, others) = pages.into_iter().partition(|page| episode.covers(page.at));
            pages = others;
            let mine: Vec<&Transition> = mine;
            let delay = mine.first().map(|first| first.at.0 - episode.from);
            row.paged += usize::from(delay.is_some());
            row.delays.extend(delay);
            if delay.is_none_or(|delay| delay > within) {
                row.late += 1;
                self.wrong.push(format!("week {}: {delay:?} ms to the page for {episode:?}", week.seed));
            }
            if mine.len() > 1 {
                row.twice += 1;
                let summaries: Vec<&str> = mine.iter().map(|page| page.summary.as_str()).collect();
                self.wrong.push(format!("week {}: {summaries:?} for {episode:?}", week.seed));
            }
        }
        for page in pages {
            let of = week.episodes.iter().find(|episode| episode.covers(page.at));
            match of {
                Some(episode) => self.rows.entry(row(episode)).or_default().paged += 1,
                None => self.stray += 1,
            }
            self.wrong.push(format!("week {}: {} at {:?}, in {of:?}", week.seed, page.summary, page.at));
        }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = ["episodes", "paged", "late", "twice", "p50", "p95", "max"];
        writeln!(f, "{:<42}{}", "", columns.map(|column| format!("{column:>9}")).concat())?;
        for (name, row) in &self.rows {
            let counts = [row.episodes, row.paged, row.late, row.twice].map(|count| count.to_string());
            let delays = [0.5, 0.95, 1.0].map(|part| row.delay(part));
            let columns: String = counts.iter().chain(&delays).map(|column| format!("{column:>9}")).collect();
            writeln!(f, "{name:<42}{columns}")?;
        }
        writeln!(f, "pages for nothing: {}", self.stray)?;
        for (rule, [fired, repeated, resolved]) in &self.told {
            writeln!(f, "{rule:<14} fired {fired}, repeated {repeated}, resolved {resolved}")?;
        }
        self.wrong.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
fn every_outage_and_leak_pages_once_and_nothing_else_does() {
    let mut table = Table::default();
    for week in all_weeks() {
        table.add(&week);
    }
    println!("{table}");
    assert_eq!(table.wrong, Vec::<String>::new());
    let episodes = |sort: &str| -> usize {
        table.rows.iter().filter(|(name, _)| name.starts_with(sort)).map(|(_, row)| row.episodes).sum()
    };
    for (sort, at_least) in [("outage", 200), ("leak", 100), ("burst", 200), ("deploy", 1_000)] {
        assert!(
            episodes(sort) >= at_least,
            "weeks in which nothing happens prove nothing: {} of {sort}",
            episodes(sort)
        );
    }
}
