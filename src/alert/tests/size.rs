//! The watch stays small, in memory and in the ledger, whatever dies.

use std::collections::BTreeMap;

use super::*;

const EVERY: i64 = 5_000;
const START: i64 = 1_794_787_200_000;

/// So many jobs die a tick for so many ticks, each in a group of its own but for every tenth, which is always the same.
fn flood(jobs: i64, ticks: i64) -> (Watch, BTreeMap<String, String>, usize) {
    let rules = shipped::shipped();
    let (mut watch, _) = Watch::load("orders", Duration::from_millis(EVERY as u64), [("learnt", "all")]);
    let (mut ledger, mut most_written) = (BTreeMap::new(), 0);
    let mut number = 0_i64;
    for tick in 0..ticks {
        let now = START + tick * EVERY;
        for _ in 0..jobs {
            number += 1;
            let rare = number % 10 != 0;
            let dead = JobDead {
                group: if rare { format!("{:012x}", number * 7_919) } else { "abad1dea0001".to_owned() },
                task: Some(format!("a.module.with.a.long.name.task_{}", if rare { number % 3_000 } else { 0 })),
                queue: Some("default".to_owned()),
                reason: Some("max_attempts".to_owned()),
                error: crate::event::ErrorText { kind: None, message: Some("no two alike ".repeat(100)) },
                ..JobDead::default()
            };
            watch.count(Millis(now), Millis(now - 1), Arrival::First, &dead, &rules);
        }
        let tick = watch.tick(Millis(now), Sample { entries: number as u64, in_flight: 0 }, &rules, &[]);
        most_written = most_written.max(tick.fields.set.iter().map(|(name, text)| name.len() + text.len()).sum());
        ledger.extend(tick.fields.set);
        for name in tick.fields.remove {
            ledger.remove(&name);
        }
    }
    (watch, ledger, most_written)
}

#[test]
fn a_flood_of_groups_leaves_the_watch_small_and_its_totals_right() {
    let (jobs, ticks) = (40, 1_000);
    let (watch, ledger, most_written) = flood(jobs, ticks);
    let now = Millis(START + ticks * EVERY);
    let summary = watch.samples().summary(Millis(START - EVERY), now);
    assert_eq!(summary.died, (jobs * ticks) as u64, "what is folded is still counted");
    let largest = &summary.groups[0];
    assert_eq!(largest.cause.group, "abad1dea0001");
    // What is left of it when it shares a tick with the rare ones is most of it.
    assert!(largest.deaths > summary.died / 20, "{}", largest.deaths);
    let stored: usize = ledger.iter().map(|(name, text)| name.len() + text.len()).sum();
    assert!(stored < 600_000, "{stored} bytes in the ledger");
    assert!(ledger.len() < 1_200, "{} fields", ledger.len());
    assert!(most_written < 200_000, "{most_written} bytes in one tick");
    assert!(watch.samples().weight() < 1_500_000, "{} bytes in memory", watch.samples().weight());
}

#[test]
fn a_quiet_day_takes_little_and_a_day_later_nothing_is_left_of_it() {
    let rules = shipped::shipped();
    let every = Duration::from_secs(60);
    let (mut watch, _) = Watch::load("orders", every, [("learnt", "all")]);
    let mut ledger = BTreeMap::new();
    let mut now = START;
    let mut pass = |watch: &mut Watch, minutes: i64, deaths: bool| {
        for minute in 0..minutes {
            now += 60_000;
            if deaths && minute % 30 == 0 {
                let dead = JobDead { group: "abad1dea0001".to_owned(), ..JobDead::default() };
                watch.count(Millis(now), Millis(now - 1), Arrival::First, &dead, &rules);
            }
            let tick = watch.tick(Millis(now), Sample::default(), &rules, &[]);
            ledger.extend(tick.fields.set);
            for name in tick.fields.remove {
                ledger.remove(&name);
            }
        }
        (now, ledger.clone())
    };
    let (_, first) = pass(&mut watch, 24 * 60, true);
    let stored: usize = first.iter().map(|(name, text)| name.len() + text.len()).sum();
    assert!(stored < 40_000, "{stored} bytes");
    let (now, second) = pass(&mut watch, 25 * 60, false);
    assert_eq!(watch.samples().summary(Millis(0), Millis(now)).died, 0);
    assert!(second.keys().all(|name| !name.starts_with('k')), "causes nobody speaks of: {second:?}");
    let (oldest, _) = second.iter().find(|(name, _)| name.starts_with('t')).unwrap();
    assert!(oldest[1..].parse::<i64>().unwrap() * 600_000 >= now - 24 * 3_600_000 - 600_000);
}

#[test]
fn what_is_loaded_is_what_was_saved() {
    let (watch, ledger, _) = flood(7, 800);
    let (loaded, unreadable) = Watch::load("orders", Duration::from_millis(EVERY as u64), &ledger);
    assert_eq!(unreadable, Vec::<String>::new());
    let now = Millis(START + 799 * EVERY);
    let all = Millis(START - EVERY);
    assert_eq!(loaded.samples().summary(all, now), watch.samples().summary(all, now));
    let rules = shipped::shipped();
    let readings = |watch: &Watch| format!("{:?}", watch.judgements(now, &rules, &[]));
    assert_eq!(readings(&loaded), readings(&watch));
    assert_eq!(loaded.incidents(), watch.incidents());
}

#[test]
fn rubbish_in_the_ledger_is_named_and_does_no_harm() {
    let rubbish = [
        ("m29913120", "[[0,[0,1],0,[]]]"),
        ("m1", "{"),
        ("m99999999999999999", "[]"),
        ("t-1", "[[-5,null,0,[]]]"),
        ("k1", "[]"),
        ("g01", "zz:1,1:99999999999999999999,5:1"),
        ("incidents", "[]"),
        ("summed_up", "soon"),
        ("unheard-of", ""),
        ("", ""),
        ("ä", "ö"),
    ];
    let (mut watch, unreadable) = Watch::load("orders", Duration::from_secs(5), rubbish);
    assert_eq!(unreadable, ["m1", "m99999999999999999", "k1", "incidents", "summed_up", "unheard-of", "", "ä"]);
    let tick = watch.tick(Millis(START), Sample::default(), &shipped::shipped(), &[]);
    assert_eq!(tick.transitions, []);
}

#[test]
fn samples_grow_coarser_with_age_but_never_coarser_than_a_bucket() {
    for (every, minutes) in [(100, 20), (1_000, 90), (5_000, 24 * 60), (60_000, 24 * 60), (300_000, 24 * 60)] {
        let mut samples = Samples::new(Duration::from_millis(every as u64));
        let now = START + minutes * 60_000;
        // The level tells when it was measured.
        for at in (START..=now).step_by(every as usize) {
            samples.sample(Millis(at), Sample { entries: at as u64, in_flight: 0 });
        }
        let overs = [1, 2, 5, 10, 60, 240, 1_380_i64].map(|minutes| minutes * 60_000);
        for over in overs.into_iter().filter(|over| now - over >= START && *over >= 2 * every) {
            let buckets = 24.min(over / every);
            let width = over / buckets;
            for n in 0..=buckets {
                let at = now - over + n * width;
                let edge = samples.edge(at, width).unwrap();
                assert_eq!(edge.at as u64, edge.level);
                assert!((0..=width + every).contains(&(at - edge.at)), "{every} {over}: {} before {n}", at - edge.at);
            }
        }
    }
}
