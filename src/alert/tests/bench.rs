//! Runs the synthetic weeks and says what the rules made of them.

use std::collections::{BTreeMap, VecDeque};

use super::{
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

/// The rules of `rules/50-alerts.yaml`.
fn shipped() -> Vec<AlertRule> {
    let rule = |name: &str, severity, kind| AlertRule { severity, ..AlertRule::new(name, kind) };
    let fast = Rising { over: mins(10), buckets: 10, at_least: 8, growth: 25 };
    let slow = Rising { over: mins(170), buckets: 17, at_least: 15, growth: 28 };
    vec![
        AlertRule { keep_firing_for: mins(15), ..rule("rising-fast", Severity::Critical, Kind::Rising(fast)) },
        AlertRule {
            keep_firing_for: mins(120),
            unless: vec!["rising-fast".to_owned()],
            ..rule("rising-slowly", Severity::Error, Kind::Rising(slow))
        },
        rule("burst", Severity::Warning, Kind::Burst(Burst { over: mins(5), deaths: 200 })),
        rule("untriaged", Severity::Warning, Kind::Waiting(Waiting { entries: 1, older_than: mins(24 * 60) })),
        AlertRule {
            by: vec![Key::Group],
            ..rule("new-kind", Severity::Info, Kind::NewGroup(NewGroup { quiet_for: mins(7 * 24 * 60) }))
        },
    ]
}

/// The DLQ as it would be, and the watch over it.
struct World {
    watch: Watch,
    rules: Vec<AlertRule>,
    ledger: BTreeMap<String, String>,
    /// Entries by the time of their death, the oldest first.
    entries: VecDeque<(i64, u32)>,
    waiting: u64,
    in_flight: u64,
    fired: Vec<(Transition, i64)>,
}

impl World {
    fn new(rules: Vec<AlertRule>) -> World {
        let (watch, _) = Watch::load("orders", mins(2), [("", ""); 0]);
        World {
            watch,
            rules,
            ledger: BTreeMap::new(),
            entries: VecDeque::new(),
            waiting: 0,
            in_flight: 0,
            fired: Vec::new(),
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
        self.fired.extend(transitions.into_iter().map(|transition| (transition, now)));
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

/// What the rules told in one week.
fn run(seed: u64) -> (Week, Vec<(Transition, i64)>) {
    let mut week = Week::new(seed);
    let mut world = World::new(shipped());
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
    (week, world.fired)
}

/// All weeks, half of them at a time.
fn all_weeks() -> BTreeMap<u64, (Week, Vec<(Transition, i64)>)> {
    let half = |rest| (0..WEEKS).filter(move |seed| seed % 2 == rest).map(|seed| (seed, run(seed))).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut weeks: BTreeMap<_, _> = half(0).into_iter().collect();
        weeks.extend(other.join().expect("no week panics"));
        weeks
    })
}

#[derive(Default)]
struct Row {
    episodes: usize,
    paged: usize,
    twice: usize,
    late: usize,
    delays: Vec<i64>,
}

impl Row {
    fn delay(&self, part: f64) -> String {
        if self.delays.is_empty() {
            return "-".to_owned();
        }
        let n = ((self.delays.len() - 1) as f64 * part).round() as usize;
        format!("{:.1}m", self.delays[n] as f64 / MINUTE as f64)
    }
}

/// The row of the table that an episode belongs to.
fn row(episode: &Episode) -> String {
    match episode.what {
        What::Outage { a_minute, minutes } => {
            let rate = if a_minute < 20 {
                "5-19"
            } else if a_minute < 100 {
                "20-99"
            } else {
                "100-500"
            };
            format!("outage, {rate} a minute, {}", if minutes < 60 { "under an hour" } else { "longer" })
        }
        What::Leak => "leak, one in five minutes".to_owned(),
        What::Burst => "burst".to_owned(),
        What::CleanUp => "burst, slowly cleaned up".to_owned(),
        What::Deploy => "deploy".to_owned(),
    }
}

#[test]
fn every_outage_and_leak_pages_once_and_nothing_else_does() {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut told: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut stray = 0;
    for (seed, (week, fired)) in all_weeks() {
        for (transition, _) in &fired {
            let change = match transition.change {
                Change::Fire => "fired",
                Change::Repeat => "repeated",
                Change::Resolve(_) => "resolved",
            };
            *told.entry((transition.alert.clone(), change)).or_default() += 1;
        }
        let mut pages: Vec<&(Transition, i64)> = fired
            .iter()
            .filter(|(transition, _)| transition.change == Change::Fire && transition.severity.pages())
            .collect();
        for episode in &week.episodes {
            let within = match episode.what {
                What::Outage { .. } => Some(OUTAGE_WITHIN),
                What::Leak => Some(LEAK_WITHIN),
                _ => None,
            };
            let row = rows.entry(row(episode)).or_default();
            row.episodes += 1;
            let Some(within) = within else { continue };
            let mine: Vec<_> = pages.iter().filter(|(_, at)| (episode.from..=episode.settled).contains(at)).collect();
            let Some((_, first)) = mine.first() else {
                row.late += 1;
                wrong.push(format!("week {seed}: no page for {episode:?}"));
                continue;
            };
            row.paged += 1;
            row.delays.push(first - episode.from);
            if first - episode.from > within {
                row.late += 1;
                wrong.push(format!("week {seed}: {:.1}m late: {episode:?}", (first - episode.from) as f64 / 6e4));
            }
            if mine.len() > 1 {
                row.twice += 1;
                let names: Vec<_> =
                    mine.iter().map(|(page, at)| (page.alert.clone(), (at - MONDAY) / MINUTE)).collect();
                wrong.push(format!("week {seed}: {names:?} for {episode:?} from {}", (episode.from - MONDAY) / MINUTE));
            }
            pages.retain(|(_, at)| !(episode.from..=episode.settled).contains(at));
        }
        for (page, at) in pages {
            let of = week.episodes.iter().find(|episode| (episode.from..=episode.settled).contains(at));
            match of {
                Some(episode) => rows.entry(row(episode)).or_default().paged += 1,
                None => stray += 1,
            }
            wrong.push(format!("week {seed}: a false page at {}: {} {of:?}", (at - MONDAY) / MINUTE, page.summary));
        }
    }
    println!(
        "{:<44}{:>9}{:>7}{:>7}{:>7}{:>9}{:>9}{:>9}",
        "", "episodes", "paged", "late", "twice", "p50", "p95", "max"
    );
    for (name, row) in &mut rows {
        row.delays.sort_unstable();
        let (p50, p95, max) = (row.delay(0.5), row.delay(0.95), row.delay(1.0));
        let Row { episodes, paged, late, twice, .. } = row;
        println!("{name:<44}{episodes:>9}{paged:>7}{late:>7}{twice:>7}{p50:>9}{p95:>9}{max:>9}");
    }
    println!("pages that nothing explains: {stray}");
    println!("{told:?}");
    for line in &wrong {
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{} wrong", wrong.len());
}
