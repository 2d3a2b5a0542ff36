//! The loop against a dependency that is down, mended, flaky, or down for some.

use std::time::Duration;

use super::world::{Dependency, World};
use crate::rule::{Pace, Terms};

const SEEDS: std::ops::Range<u64> = 0..4;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The default pace, with jobs that may be retried ten seconds after their death.
fn terms() -> Terms {
    Terms { min_age: secs(10), ..Terms::default() }
}

/// Down for everybody until then.
fn down_until(seconds: i64) -> Dependency {
    Box::new(move |_, time, _| time >= seconds * 1_000)
}

fn groups(count: usize, each: usize) -> Vec<(String, usize)> {
    (0..count).map(|n| (format!("g{n}"), each)).collect()
}

fn curve(world: &World, from: i64, to: i64, every: i64) -> String {
    (from..=to)
        .step_by(usize::try_from(every).unwrap())
        .map(|time| {
            let sent = world.sent.iter().filter(|sent| sent.at <= time * 1_000).count();
            let recovered = world.recovered.iter().filter(|(at, _)| *at <= time * 1_000).count();
            format!("{time:>5} s  {sent:>5} sent  {recovered:>5} recovered\n")
        })
        .collect()
}

fn sent_before(world: &World, seconds: i64) -> usize {
    world.sent.iter().filter(|sent| sent.at < seconds * 1_000).count()
}

#[test]
fn explore() {
    let lot = |groups_: &[(String, usize)]| groups_.to_vec();
    for (name, deaths) in [
        ("one group", lot(&groups(1, 1_000))),
        ("three groups", lot(&groups(3, 333))),
        ("hundred groups of ten", lot(&groups(100, 10))),
        ("thousand groups", lot(&groups(1_000, 1))),
    ] {
        let (mut wasted, mut beyond, mut holds) = (Vec::new(), Vec::new(), Vec::new());
        for seed in SEEDS {
            let mut world = World::new(terms(), seed, &deaths, down_until(120));
            let end = world.run_dry(secs(600));
            wasted.push(sent_before(&world, 120));
            beyond.push((end - world.hold_in_force(120_000)) / 1000);
            holds.push(world.hold_in_force(120_000) / 1000);
            if seed == 0 {
                println!("{}", curve(&world, 0, 200, 10));
                println!("{:?}", world.holds.iter().take(10).collect::<Vec<_>>());
            }
        }
        println!("{name}: wasted {wasted:?} beyond {beyond:?} hold until {holds:?}");
    }
    for percent in [10, 30, 40, 50, 70] {
        let mut ends = Vec::new();
        for seed in SEEDS {
            let mut world = World::new(
                Terms { max_retries: 20, ..terms() },
                seed,
                &groups(1, 1_000),
                Box::new(move |_, _, dice| dice * 100.0 >= f64::from(percent)),
            );
            let end = world.run_dry(secs(7200));
            ends.push((
                end / 1000,
                world.sent.len(),
                world.holds.iter().filter(|h| h.1.is_some()).count(),
                world.recovered.len(),
            ));
        }
        println!("flaky {percent}: {ends:?}");
    }
    for (name, deaths) in [("one", groups(1, 3000)), ("hundred of 30", groups(100, 30))] {
        let (mut ends, mut wasted) = (vec![], vec![]);
        for seed in SEEDS {
            let mut world =
                World::new(terms(), seed, &deaths, Box::new(|_, time, _| !(25_000..145_000).contains(&time)));
            let end = world.run_dry(secs(7200));
            wasted.push(world.sent.iter().filter(|s| (25_000..145_000).contains(&s.at)).count());
            ends.push((end - world.hold_in_force(145_000)) / 1000);
            if seed == 0 {
                println!("{}", curve(&world, 0, 300, 10));
                println!("{:?}", world.holds.iter().take(10).collect::<Vec<_>>());
            }
        }
        println!("dies again {name}: wasted {wasted:?} beyond {ends:?}");
    }
    // poison
    for (name, poison) in
        [("one poison group", groups(1, 1000)), ("poison singles", groups(1000, 1)), ("poison small", groups(1, 50))]
    {
        let (mut ends, mut wasted) = (vec![], vec![]);
        for seed in SEEDS {
            let mut deaths = poison.clone();
            deaths.push(("healthy".to_owned(), 500));
            let mut world = World::new(terms(), seed, &deaths, Box::new(|group, _, _| group == "healthy"));
            if seed == 0 {
                world.run(secs(60));
                println!("{:?} {}", world.holds, curve(&world, 0, 60, 5));
            }
            world.run(secs(600));
            let end = world.recovered.iter().map(|(at, _)| *at).max().unwrap();
            assert_eq!(world.recovered.len(), 500);
            wasted.push(world.sent.iter().filter(|s| s.group != "healthy").count());
            ends.push(end / 1000);
        }
        println!("{name}: healthy done {ends:?} wasted in 10 min {wasted:?}");
    }
}

#[test]
fn explore2() {
    let base = Terms { max_retries: 1000, backoff: 1.0, ..terms() };
    for (name, attempts, run_ms, terms, percent) in [
        ("attempts 1", 1, 100, base.clone(), 30),
        ("attempts 1", 1, 100, base.clone(), 50),
        ("max 1", 3, 100, Terms { pace: Pace { max_in_flight: 1, ..base.pace }, ..base.clone() }, 30),
        ("max 5", 3, 100, Terms { pace: Pace { max_in_flight: 5, ..base.pace }, ..base.clone() }, 30),
        ("start 5", 3, 100, Terms { pace: Pace { start: 5, ..base.pace }, ..base.clone() }, 30),
        ("start 100", 3, 100, Terms { pace: Pace { start: 100, ..base.pace }, ..base.clone() }, 30),
        ("slow 120 s", 3, 120_000, base.clone(), 0),
        ("slow 120 s", 3, 120_000, base.clone(), 10),
        ("per second 1", 3, 100, Terms { pace: Pace { per_second: 1, ..base.pace }, ..base.clone() }, 10),
        ("per second 1000", 3, 100, Terms { pace: Pace { per_second: 1000, ..base.pace }, ..base.clone() }, 10),
    ] {
        let mut ends = Vec::new();
        for seed in SEEDS {
            let mut world = World::new(
                terms.clone(),
                seed,
                &groups(1, 1_000),
                Box::new(move |_, _, dice| dice * 100.0 >= f64::from(percent)),
            );
            world.run_ms = run_ms;
            world.attempts = attempts;
            let end = world.run_dry(secs(7200));
            let longest = world.holds.iter().map(|h| h.2 - h.0).max();
            ends.push((
                end / 1000,
                world.sent.len(),
                world.holds.iter().filter(|h| h.1.is_some()).count(),
                longest,
                world.recovered.len(),
                world.most_in_flight,
            ));
        }
        println!("{name} {percent}: {ends:?}");
    }
}
