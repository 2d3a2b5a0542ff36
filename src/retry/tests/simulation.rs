//! The loop against a dependency that is down, mended, flaky, or down for some. `--nocapture` shows the curves.

#![expect(clippy::print_stdout, reason = "a curve says more than a number that is still below its limit")]

use std::time::Duration;

use super::world::{Dependency, World};
use crate::rule::{Pace, Terms};

const SEEDS: std::ops::Range<u64> = 0..2;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The default pace, with jobs that may be retried ten seconds after their death.
fn terms() -> Terms {
    Terms { min_age: secs(10), ..Terms::default() }
}

/// As [`terms`], for jobs that may be retried over and over.
fn patient() -> Terms {
    Terms { max_retries: 1_000, backoff: 1.0, ..terms() }
}

fn groups(count: usize, each: usize) -> Vec<(String, usize)> {
    (0..count).map(|n| (format!("g{n}"), each)).collect()
}

/// Down for everybody in these seconds.
fn down_in(seconds: std::ops::Range<i64>) -> Dependency {
    Box::new(move |_, time, _| !(seconds.start * 1_000..seconds.end * 1_000).contains(&time))
}

/// So many of a hundred attempts fail.
fn flaky(percent: u32) -> Dependency {
    Box::new(move |_, _, dice| dice * 100.0 >= f64::from(percent))
}

/// Retries sent in these seconds.
fn sent_in(world: &World, seconds: std::ops::Range<i64>) -> usize {
    world.sent.iter().filter(|sent| (seconds.start * 1_000..seconds.end * 1_000).contains(&sent.at)).count()
}

fn show_curve(name: &str, world: &World, every: i64) {
    println!("{name}: holds {:?}", world.holds);
    for time in (0..=world.time() / 1_000 + every).step_by(usize::try_from(every).unwrap()) {
        let recovered = world.recovered.iter().filter(|(at, _)| *at <= time * 1_000).count();
        println!("{time:>5} s {:>5} sent {recovered:>5} recovered", sent_in(world, 0..time));
    }
}

#[test]
fn while_a_dependency_is_down_little_is_wasted_and_once_it_is_mended_all_run_through() {
    for (name, deaths) in [
        ("one group", groups(1, 1_000)),
        ("three groups", groups(3, 334)),
        ("a hundred groups of ten", groups(100, 10)),
        ("a thousand groups of one", groups(1_000, 1)),
    ] {
        for seed in SEEDS {
            let mut world = World::new(terms(), seed, &deaths, down_in(0..120));
            let end = world.run_dry(secs(400));
            if seed == SEEDS.start {
                show_curve(name, &world, 20);
            }
            let jobs: usize = deaths.iter().map(|(_, count)| count).sum();
            let (wasted, beyond) = (sent_in(&world, 0..120), end - world.hold_in_force(120_000));
            println!("{name} {seed}: {wasted} wasted, all through {beyond} ms after the pause in force");
            assert_eq!((world.recovered.len(), world.exhausted), (jobs, 0), "{name} {seed}");
            assert!((1..=5).contains(&wasted), "{name} {seed}: {wasted} wasted");
            assert!(beyond < 25_000, "{name} {seed}: {beyond} ms");
        }
    }
}

#[test]
fn a_dependency_that_dies_again_takes_little_more_than_what_is_in_flight() {
    for (name, deaths) in [("one group", groups(1, 2_000)), ("a hundred groups of twenty", groups(100, 20))] {
        for seed in SEEDS {
            let mut world = World::new(terms(), seed, &deaths, down_in(25..145));
            let end = world.run_dry(secs(600));
            if seed == SEEDS.start {
                show_curve(name, &world, 20);
            }
            let (wasted, beyond) = (sent_in(&world, 25..145), end - world.hold_in_force(145_000));
            println!("{name} {seed}: {wasted} wasted, all through {beyond} ms after the pause in force");
            assert_eq!((world.recovered.len(), world.exhausted), (2_000, 0), "{name} {seed}");
            assert!(wasted <= 40, "{name} {seed}: {wasted} wasted");
            // What is left at fifty a second.
            assert!(beyond < 35_000, "{name} {seed}: {beyond} ms");
        }
    }
}

#[test]
fn what_nothing_can_mend_wastes_little_and_starves_nobody() {
    for (name, poison, at_most) in [
        ("a small group", groups(1, 50), 10),
        ("a large group", groups(1, 1_000), 10),
        ("a thousand groups of one", groups(1_000, 1), 20),
    ] {
        for seed in SEEDS {
            let deaths: Vec<_> = poison.iter().cloned().chain([("healthy".to_owned(), 500)]).collect();
            let mut world = World::new(terms(), seed, &deaths, Box::new(|group, _, _| group == "healthy"));
            world.run(secs(300));
            let end = world.recovered.iter().map(|(at, _)| *at).max().unwrap();
            let wasted = world.sent.iter().filter(|sent| sent.group != "healthy").count();
            println!("beside {name} {seed}: healthy through after {end} ms, {wasted} wasted in 5 minutes");
            assert_eq!(world.recovered.len(), 500, "{name} {seed}");
            // Due after ten seconds, at fifty a second, and perhaps behind one canary of the poison.
            assert!(end < 35_000, "{name} {seed}: {end} ms");
            assert!((1..=at_most).contains(&wasted), "{name} {seed}: {wasted} wasted");
        }
    }
}

#[test]
fn a_healthy_trickle_flows_beside_poison() {
    for seed in SEEDS {
        let mut world = World::new(terms(), seed, &groups(200, 5), Box::new(|group, _, _| group == "healthy"));
        let mut died = Vec::new();
        for second in (5..600).step_by(7) {
            world.run(secs(second));
            world.die("healthy");
            died.push(world.time());
        }
        world.run(secs(640));
        assert_eq!(world.recovered.len(), died.len());
        // Small and unknown, it may have to wait for its first canary; then it is known.
        let known = world.recovered[0].0;
        let waits = world.recovered.iter().zip(&died).filter(|(_, died)| **died > known);
        let longest = waits.map(|((at, _), died)| at - died).max().unwrap();
        println!("trickle {seed}: known after {known} ms, then recovered after {longest} ms at most");
        assert!(known < 120_000, "{seed}: {known} ms");
        // Ten seconds old, a jitter of one, and its run.
        assert!(longest < 12_000, "{seed}: {longest} ms");
    }
}

#[test]
fn with_a_flaky_dependency_it_goes_on() {
    let pace = |start, max_in_flight, per_second| {
        let pace = Pace { start, max_in_flight, per_second, ..Terms::default().pace };
        Terms { pace, ..patient() }
    };
    for (name, attempts, percent, terms, at_most) in [
        ("one in ten", 3, 10, patient(), 120),
        ("three in ten", 3, 30, patient(), 240),
        ("three in ten, one attempt", 1, 30, patient(), 900),
        ("three in ten, five canaries", 3, 30, pace(5, 100, 50), 240),
        ("three in ten, five in flight", 3, 30, pace(1, 5, 50), 400),
        ("three in ten, one in flight", 3, 30, pace(1, 1, 50), 1_500),
        ("one in ten, a thousand a second", 3, 10, pace(1, 100, 1_000), 100),
    ] {
        for seed in SEEDS {
            let max_in_flight = terms.pace.max_in_flight;
            let mut world = World::new(terms.clone(), seed, &groups(1, 1_000), flaky(percent));
            world.attempts = attempts;
            let end = world.run_dry(secs(at_most)) / 1_000;
            println!(
                "{name} {seed}: all through after {end} s, {} sent, {} holds",
                world.sent.len(),
                world.holds.len()
            );
            assert_eq!(world.recovered.len(), 1_000, "{name} {seed}");
            assert!(world.most_in_flight <= max_in_flight, "{name} {seed}");
        }
    }
}

#[test]
fn jobs_that_run_for_long_are_sent_in_ever_larger_numbers() {
    for seed in SEEDS.take(1) {
        let mut world = World::new(terms(), seed, &groups(1, 1_000), flaky(0));
        world.run_ms = 120_000;
        let end = world.run_dry(secs(3_600)) / 1_000;
        println!("two minutes each {seed}: all through after {end} s");
        // Fifty workers need 2,400 s for them.
        assert_eq!(world.recovered.len(), 1_000, "{seed}");
        assert!(end < 3_000, "{seed}: {end} s");
        assert_eq!(world.most_in_flight, 100);
    }
}

#[test]
fn a_job_that_runs_through_after_all_lifts_the_hold() {
    for seed in SEEDS {
        // Mended between the first and the second attempt of the canary, which follow each other within a second.
        let mut world = World::new(terms(), seed, &groups(1, 500), down_in(0..11));
        let end = world.run_dry(secs(100));
        println!("mended under the canary {seed}: all through after {end} ms");
        assert_eq!(world.recovered.len(), 500);
        assert!(end < 11_000 + 14_000, "{seed}: {end} ms, although the pause would have been ten seconds");
    }
}
