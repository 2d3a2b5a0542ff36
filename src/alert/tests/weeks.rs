//! Two hundred synthetic weeks, with the rules that Sexton comes with: the bench on which their numbers were found.
//!
//! `cargo test --lib alert::tests::bench -- --nocapture` shows the table.

use super::*;

pub(super) const WEEKS: u64 = 200;
pub(super) const SECOND: i64 = 1_000;
pub(super) const MINUTE: i64 = 60 * SECOND;
pub(super) const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// A Monday, at midnight.
pub(super) const MONDAY: i64 = 1_794_787_200_000;

/// What happens to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happens {
    /// Jobs die for the first time, of one of a few kinds of failure.
    Die { kind: u16, jobs: u32 },
    /// We retry jobs.
    Retry { kind: u16, jobs: u32 },
    /// Jobs that we retried die again.
    DieAgain { kind: u16, jobs: u32 },
    /// Jobs that we retried run through.
    Recover { kind: u16, jobs: u32 },
    /// Somebody removes entries, behind our back.
    Remove { jobs: u32 },
    /// Somebody removes everything.
    Purge,
}

/// What a person would call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Outage { a_minute: u32, minutes: u32 },
    Leak,
    Burst,
    CleanUp,
    Deploy,
}

#[derive(Clone, Debug)]
pub(super) struct Episode {
    pub(super) what: What,
    /// Its first death.
    pub(super) from: i64,
    /// When its last traces are gone.
    pub(super) settled: i64,
}

impl Episode {
    /// Whether something at this moment is of this episode.
    pub(super) fn covers(&self, at: Millis) -> bool {
        (self.from..=self.settled).contains(&at.0)
    }
}

/// A week that has been thought up.
pub(super) struct Week {
    pub(super) dice: fastrand::Rng,
    pub(super) happens: Vec<(i64, Happens)>,
    pub(super) episodes: Vec<Episode>,
}

impl Week {
    pub(super) fn new(seed: u64) -> Week {
        let mut week = Week { dice: fastrand::Rng::with_seed(seed), happens: Vec::new(), episodes: Vec::new() };
        week.background();
        for day in 0..7 {
            for _ in 0..week.dice.usize(0..3) {
                week.deploy(day);
            }
            match week.dice.u8(0..10) {
                0..=1 => week.outage(day),
                2 => week.leak(day),
                3 => week.burst(day),
                4 => week.burst_with_clean_up(day),
                _ => {}
            }
        }
        week.happens.sort_unstable();
        week
    }

    /// A moment in these hours of a day.
    fn moment(&mut self, day: i64, hours: std::ops::Range<i64>) -> i64 {
        MONDAY + day * DAY + self.dice.i64(hours.start * HOUR..hours.end * HOUR)
    }

    /// A number between these, each order of magnitude as likely.
    fn log_uniform(&mut self, from: f64, to: f64) -> f64 {
        (from.ln() + self.dice.f64() * (to / from).ln()).exp()
    }

    /// The pause to the next of events that come `an_hour` times an hour at random.
    fn pause(&mut self, an_hour: f64) -> i64 {
        ((1.0 - self.dice.f64()).ln() / -an_hour * HOUR as f64) as i64
    }

    /// How many of events that come so often come in one go.
    fn poisson(&mut self, mean: f64) -> u32 {
        if mean > 40.0 {
            // The normal approximation, by twelve dice.
            let normal: f64 = (0..12).map(|_| self.dice.f64()).sum::<f64>() - 6.0;
            return (mean + normal * mean.sqrt()).max(0.0).round() as u32;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.dice.f64(), 0);
        while product > limit {
            product *= self.dice.f64();
            count += 1;
        }
        count
    }

    /// A trickle all week, or one that follows the office hours; in some weeks somebody clears up in the evening.
    fn background(&mut self) {
        let office = self.dice.bool();
        let peak = if office { 1.0 + 4.0 * self.dice.f64() } else { 3.0 * self.dice.f64() };
        let mut at = MONDAY;
        loop {
            at += self.pause(peak.max(0.01));
            if at >= MONDAY + 7 * DAY {
                break;
            }
            let (day, hour) = ((at - MONDAY) / DAY, (at - MONDAY) % DAY / HOUR);
            let works = day < 5 && (8..18).contains(&hour);
            if !office || works || self.dice.f64() < 0.1 {
                let kind = self.dice.u16(0..8);
                self.happens.push((at, Happens::Die { kind, jobs: 1 }));
                // Some of it is raised by us an attempt later.
                if self.dice.f64() < 0.3 {
                    let retried = at + 10 * MINUTE + self.dice.i64(0..MINUTE);
                    self.happens.push((retried, Happens::Retry { kind, jobs: 1 }));
                    let end = retried + self.dice.i64(SECOND..3 * MINUTE);
                    let recovers = self.dice.bool();
                    let ends =
                        if recovers { Happens::Recover { kind, jobs: 1 } } else { Happens::DieAgain { kind, jobs: 1 } };
                    self.happens.push((end, ends));
                }
            }
        }
        match self.dice.u8(0..3) {
            0 => (0..5).for_each(|day| {
                let at = self.moment(day, 18..20);
                self.happens.push((at, Happens::Purge));
            }),
            1 => (0..5).for_each(|day| {
                let at = self.moment(day, 9..11);
                self.happens.push((at, Happens::Remove { jobs: 5 }));
            }),
            _ => {}
        }
    }

    /// A rollout: for a minute or two, jobs die of what is half old and half new.
    fn deploy(&mut self, day: i64) {
        let at = self.moment(day, 9..18);
        let lasts = self.dice.i64(20 * SECOND..2 * MINUTE);
        let jobs = self.dice.u32(0..60);
        let mut until = at;
        for _ in 0..jobs {
            let dies = at + self.dice.i64(0..lasts);
            until = until.max(dies);
            let kind = self.dice.u16(10..14);
            self.happens.push((dies, Happens::Die { kind, jobs: 1 }));
        }
        self.episodes.push(Episode { what: What::Deploy, from: at, settled: until + 15 * MINUTE });
    }

    /// A dependency is down. We try again now and then, without success; then it is mended, and cleaned up after.
    fn outage(&mut self, day: i64) {
        let a_minute = self.log_uniform(5.0, 500.0);
        let minutes = self.log_uniform(10.0, 360.0) as i64;
        let from = self.moment(day, 0..14);
        let kind = 20 + self.dice.u16(0..4);
        let (mut died, mut first, mut until) = (0, None, from);
        for n in 0..minutes * 12 {
            let at = from + n * 5 * SECOND + self.dice.i64(0..5 * SECOND);
            let jobs = self.poisson(a_minute / 12.0);
            if jobs > 0 {
                first = first.or(Some(at));
                until = at;
                died += jobs;
                self.happens.push((at, Happens::Die { kind, jobs }));
            }
            // Canaries, and what comes of them.
            if n % 60 == 59 {
                let jobs = self.dice.u32(1..4).min(died);
                self.happens.push((at + SECOND, Happens::Retry { kind, jobs }));
                let again = at + self.dice.i64(5 * SECOND..4 * MINUTE);
                self.happens.push((again, Happens::DieAgain { kind, jobs }));
            }
        }
        let begins = until + self.dice.i64(MINUTE..HOUR);
        let settled = self.clean_up(begins, died, kind);
        let what = What::Outage { a_minute: a_minute as u32, minutes: minutes as u32 };
        self.episodes.push(Episode { what, from: first.unwrap_or(from), settled });
    }

    /// From a moment on, so many entries go: by our retries, by somebody's script, at one stroke, or never.
    fn clean_up(&mut self, from: i64, entries: u32, kind: u16) -> i64 {
        let minutes = self.dice.u32(5..180);
        let a_minute = entries.div_ceil(minutes);
        match self.dice.u8(0..4) {
            0 => {
                let (mut at, mut left) = (from, entries);
                while left > 0 {
                    let jobs = left.min(a_minute);
                    left -= jobs;
                    // One in ten dies again, and is left.
                    let again = (0..jobs).filter(|_| self.dice.u8(0..10) == 0).count() as u32;
                    self.happens.push((at, Happens::Retry { kind, jobs }));
                    let end = at + self.dice.i64(SECOND..2 * MINUTE);
                    self.happens.push((end, Happens::Recover { kind, jobs: jobs - again }));
                    self.happens.push((end + SECOND, Happens::DieAgain { kind, jobs: again }));
                    at += MINUTE;
                }
                at + 3 * MINUTE
            }
            1 => {
                let (mut at, mut left) = (from, entries);
                while left > 0 {
                    let jobs = left.min(a_minute);
                    left -= jobs;
                    self.happens.push((at, Happens::Remove { jobs }));
                    at += MINUTE / 2 + self.dice.i64(0..MINUTE);
                }
                at
            }
            2 => {
                self.happens.push((from, Happens::Purge));
                from
            }
            _ => from,
        }
    }

    /// One job in five minutes, for hours.
    fn leak(&mut self, day: i64) {
        let from = self.moment(day, 0..12);
        let ends = from + self.dice.i64(4 * HOUR..10 * HOUR);
        let (mut at, mut until) = (from, from);
        while at < ends {
            self.happens.push((at, Happens::Die { kind: 30, jobs: 1 }));
            until = at;
            at += self.dice.i64(150 * SECOND..450 * SECOND);
        }
        self.episodes.push(Episode { what: What::Leak, from, settled: until + 2 * HOUR });
    }

    fn some_burst(&mut self, day: i64) -> (i64, i64, u32) {
        let from = self.moment(day, 0..14);
        let lasts = self.log_uniform(1_000.0, 180_000.0) as i64;
        let jobs = self.log_uniform(20.0, 2_000.0) as u32;
        let mut until = from;
        for n in 0..20 {
            let at = from + lasts * n / 20;
            until = at;
            self.happens.push((at, Happens::Die { kind: 40, jobs: jobs.div_ceil(20) }));
        }
        (from, until, jobs)
    }

    fn burst(&mut self, day: i64) {
        let (from, until, _) = self.some_burst(day);
        self.episodes.push(Episode { what: What::Burst, from, settled: until + 15 * MINUTE });
    }

    fn burst_with_clean_up(&mut self, day: i64) {
        let (from, until, jobs) = self.some_burst(day);
        let begins = until + self.dice.i64(MINUTE..2 * HOUR);
        let settled = self.clean_up(begins, jobs, 40);
        self.episodes.push(Episode { what: What::CleanUp, from, settled: settled + 15 * MINUTE });
    }
}

/// A death of this kind of failure.
pub(super) fn dead(kind: u16) -> JobDead {
    JobDead {
        group: format!("{kind:012x}"),
        task: Some(format!("task_{}", kind / 2)),
        queue: Some("default".to_owned()),
        reason: Some("max_attempts".to_owned()),
        ..JobDead::default()
    }
}
