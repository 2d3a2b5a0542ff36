//! A leader may die at any moment: before what it decided is saved, or after. No page is lost by it, and none is told
//! under two names.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const EVERY: i64 = 5_000;
const START: i64 = 1_794_787_200_000;

/// What happens before a tick.
#[derive(Clone, Copy)]
struct Beat {
    /// Jobs that die, of one of three groups.
    die: u8,
    group: u8,
    /// Whether the leader is killed with this tick, and then whether what it decided was saved.
    killed: Option<bool>,
    /// Ticks that nobody makes after that.
    away: u8,
}

impl std::fmt::Debug for Beat {
    /// Short, for there are many.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.die, self.group)?;
        match self.killed {
            None => Ok(()),
            Some(saved) => write!(f, "!{}{}", if saved { "saved" } else { "lost" }, self.away),
        }
    }
}

fn beats() -> impl Strategy<Value = Vec<Beat>> {
    let killed = prop_oneof![8 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))];
    let die = prop_oneof![1 => Just(0), 1 => 0..4_u8];
    let beat = (die, 0..3_u8, killed, 0..3_u8).prop_map(|(die, group, killed, away)| Beat { die, group, killed, away });
    // Times in which much happens and times in which nothing does.
    let busy = prop::collection::vec(beat, 0..60);
    let quiet = prop::collection::vec(Just(Beat { die: 0, group: 0, killed: None, away: 0 }), 0..60);
    prop::collection::vec((busy, quiet), 1..5)
        .prop_map(|parts| parts.into_iter().flat_map(|(busy, quiet)| busy.into_iter().chain(quiet)).collect())
}

fn rules() -> Vec<AlertRule> {
    let secs = Duration::from_secs;
    let short = |rule: AlertRule| AlertRule { keep_firing_for: secs(30), repeat: secs(60), ..rule };
    let rising = Rising { over: secs(60), buckets: 6, at_least: 4, growth: 8 };
    vec![
        short(AlertRule::new("rising", Kind::Rising(rising.clone()))),
        short(AlertRule { by: vec![Key::Group], for_: secs(20), ..AlertRule::new("held", Kind::Rising(rising)) }),
        short(AlertRule::new("burst", Kind::Burst(Burst { over: secs(30), deaths: 10 }))),
        AlertRule {
            by: vec![Key::Group],
            ..AlertRule::new("new", Kind::NewGroup(NewGroup { quiet_for: secs(86_400) }))
        },
    ]
}

/// The ledger: the fields of the watch, and the alerts lane.
struct Store {
    fields: BTreeMap<String, String>,
    told: Vec<Transition>,
}

impl Store {
    fn load(&self) -> Watch {
        let (watch, unreadable) = Watch::load("orders", Duration::from_millis(EVERY as u64), &self.fields);
        assert_eq!(unreadable, Vec::<String>::new());
        watch
    }

    fn take(&mut self, tick: Tick) {
        self.fields.extend(tick.fields.set);
        for name in tick.fields.remove {
            self.fields.remove(&name);
        }
        self.told.extend(tick.transitions);
    }
}

/// What is told; with `kills`, leaders die as the beats say.
fn run(beats: &[Beat], kills: bool) -> Store {
    let fields = BTreeMap::from([("learnt".to_owned(), "all".to_owned())]);
    let (rules, mut store) = (rules(), Store { fields, told: Vec::new() });
    let mut watch = store.load();
    // The deaths lane, read by a cursor that is saved with the rest.
    let mut deaths: Vec<(i64, u8)> = Vec::new();
    let mut away = 0;
    for (n, beat) in beats.iter().enumerate() {
        let now = START + n as i64 * EVERY;
        deaths.extend((0..beat.die).map(|_| (now - 1, beat.group)));
        if away > 0 {
            away -= 1;
            continue;
        }
        let read: usize = watch.cursor().parse().unwrap_or(0);
        for (at, group) in &deaths[read..] {
            let dead = JobDead { group: format!("{group:012x}"), ..JobDead::default() };
            watch.count(Millis(now), Millis(*at), Arrival::First, &dead, &rules);
        }
        watch.counted_until(&deaths.len().to_string());
        let tick = watch.tick(Millis(now), Sample { entries: deaths.len() as u64, in_flight: 0 }, &rules, &[]);
        match beat.killed.filter(|_| kills) {
            None => store.take(tick),
            Some(saved) => {
                if saved {
                    store.take(tick);
                }
                watch = store.load();
                away = beat.away;
            }
        }
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_page_is_lost_and_none_is_told_under_two_names(beats in beats()) {
        let killed = run(&beats, true);
        let mut firing: BTreeMap<&str, (&str, &Labels)> = BTreeMap::new();
        for told in &killed.told {
            let about = (told.alert.as_str(), &told.labels);
            match told.change {
                Change::Fire => {
                    prop_assert!(!firing.values().any(|known| *known == about), "{about:?} fires twice");
                    prop_assert_eq!(firing.insert(&told.incident, about), None);
                }
                Change::Repeat => prop_assert_eq!(firing.get(told.incident.as_str()), Some(&about)),
                Change::Resolve(_) => prop_assert_eq!(firing.remove(told.incident.as_str()), Some(about)),
            }
        }
        // What fires is what the ledger says fires.
        let live = killed.load();
        let live = live.incidents().live().iter().filter(|incident| incident.state == State::Firing);
        let live: BTreeMap<&str, (&str, &Labels)> =
            live.map(|incident| (incident.id.as_str(), (incident.rule.as_str(), &incident.labels))).collect();
        prop_assert_eq!(firing, live);
    }

    #[test]
    fn a_leader_that_takes_over_at_every_tick_tells_what_one_that_stays_tells(beats in beats()) {
        let every: Vec<Beat> =
            beats.iter().map(|beat| Beat { killed: Some(true), away: 0, ..*beat }).collect();
        let (stays, changes) = (run(&every, false), run(&every, true));
        prop_assert_eq!(stays.told, changes.told);
        prop_assert_eq!(stays.fields, changes.fields);
    }
}
