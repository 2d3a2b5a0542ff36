//! What the watch tells, case by case.

use super::*;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const EVERY: i64 = 5 * SECOND;
const START: i64 = 1_794_787_200_000;

/// A DLQ by hand, and the watch over it.
struct Line {
    watch: Watch,
    rules: Vec<AlertRule>,
    now: i64,
    entries: u64,
    in_flight: u64,
    told: Vec<Transition>,
}

impl Line {
    fn new(rules: Vec<AlertRule>) -> Line {
        let (watch, _) = Watch::load("orders", Duration::from_secs(5), [("learnt", "all")]);
        let mut line = Line { watch, rules, now: START, entries: 0, in_flight: 0, told: Vec::new() };
        line.minutes(15, |_| {});
        line
    }

    fn dead(task: &str) -> JobDead {
        JobDead {
            group: format!("{:012x}", task.bytes().fold(7_u64, |sum, byte| sum * 31 + u64::from(byte))),
            task: Some(task.to_owned()),
            queue: Some("default".to_owned()),
            reason: Some("max_attempts".to_owned()),
            error: crate::event::ErrorText {
                kind: Some("ConnectionError".to_owned()),
                message: Some("smtp timed out\nsee the runbook".to_owned()),
            },
            ..JobDead::default()
        }
    }

    fn count(&mut self, arrival: Arrival, task: &str, jobs: u64) {
        // Right after the last sample.
        let at = Millis(self.now + 1);
        for _ in 0..jobs {
            self.watch.count(at, at, arrival, &Line::dead(task), &self.rules);
        }
    }

    fn die(&mut self, task: &str, jobs: u64) {
        self.count(Arrival::First, task, jobs);
        self.entries += jobs;
    }

    fn retry(&mut self, task: &str, jobs: u64) {
        self.count(Arrival::Retried, task, jobs);
        self.entries -= jobs;
        self.in_flight += jobs;
    }

    fn die_again(&mut self, task: &str, jobs: u64) {
        self.count(Arrival::Again, task, jobs);
        self.entries += jobs;
        self.in_flight -= jobs;
    }

    fn recover(&mut self, task: &str, jobs: u64) {
        self.count(Arrival::Left, task, jobs);
        self.in_flight -= jobs;
    }

    fn tick(&mut self, aged: &[Aged]) {
        let sample = Sample { entries: self.entries, in_flight: self.in_flight };
        let tick = self.watch.tick(Millis(self.now), sample, &self.rules, aged);
        self.told.extend(tick.transitions);
    }

    /// Minutes go by, in each of which this happens once.
    fn minutes(&mut self, minutes: i64, mut happens: impl FnMut(&mut Line)) {
        for _ in 0..minutes {
            happens(self);
            for _ in 0..MINUTE / EVERY {
                self.now += EVERY;
                self.tick(&[]);
            }
        }
    }

    /// What has been told since the last call: rule, change, and for what but the source.
    fn told(&mut self) -> Vec<String> {
        let change = |transition: &Transition| match transition.change {
            Change::Fire => "fires",
            Change::Repeat => "repeats",
            Change::Resolve(Ended::Over) => "is over",
            Change::Resolve(Ended::RuleGone) => "is withdrawn",
        };
        let labels = |transition: &Transition| {
            transition.labels.iter().filter(|(key, _)| *key != "source").map(|(_, value)| format!(" {value}")).collect()
        };
        let one = |transition: &Transition| -> String {
            let labels: String = labels(transition);
            format!("{} {}{labels}", transition.alert, change(transition))
        };
        std::mem::take(&mut self.told).iter().map(one).collect()
    }
}

fn rising() -> AlertRule {
    AlertRule::new("rising", Kind::Rising(Rising::default()))
}

fn by(key: Key, rule: AlertRule) -> AlertRule {
    AlertRule { by: vec![key], ..rule }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_line_that_rises_fires_once_and_is_over_some_time_after_it_stopped() {
    let mut line = Line::new(vec![rising()]);
    line.minutes(8, |line| line.die("a", 5));
    assert_eq!(line.told(), NOTHING);
    line.minutes(2, |line| line.die("a", 5));
    assert_eq!(line.told(), ["rising fires"]);
    line.minutes(3 * 60, |line| line.die("a", 5));
    assert_eq!(line.told(), NOTHING);
    line.minutes(60, |line| line.die("a", 5));
    assert_eq!(line.told(), ["rising repeats"]);
    // Two buckets until it is seen to have stopped, and ten minutes.
    line.minutes(11, |_| {});
    assert_eq!(line.told(), NOTHING);
    line.minutes(2, |_| {});
    assert_eq!(line.told(), ["rising is over"]);
}

#[test]
fn only_a_steady_rise_that_goes_on_is_one() {
    // What happens in each of thirty minutes, and whether that fires.
    type Case = (&'static str, fn(&mut Line, i64), bool);
    let cases: [Case; 9] = [
        ("a burst that stays flat", |line, n| line.die("a", if n == 0 { 5_000 } else { 0 }), false),
        ("a burst over five minutes", |line, n| line.die("a", if n < 5 { 500 } else { 0 }), false),
        ("a burst and a trickle", |line, n| line.die("a", if n == 8 { 500 } else { 1 }), false),
        ("one a minute is too little", |line, _| line.die("a", 1), false),
        ("two a minute", |line, _| line.die("a", 2), true),
        ("every other minute", |line, n| line.die("a", 50 * (n as u64 % 2)), false),
        ("three of four minutes", |line, n| line.die("a", if n % 4 == 0 { 0 } else { 5 }), true),
        (
            "cleaned up as it comes",
            |line, _| {
                line.die("a", 50);
                line.entries -= 50;
            },
            false,
        ),
        (
            "a purge in the middle hides nothing",
            |line, n| {
                line.die("a", 5);
                if n == 3 {
                    line.entries = 0;
                }
            },
            true,
        ),
    ];
    for (name, happens, fires) in cases {
        for rule in [rising(), by(Key::Task, rising())] {
            let mut line = Line::new(vec![rule]);
            line.entries = 100;
            line.tick(&[]);
            let mut n = 0;
            line.minutes(30, |line| {
                happens(line, n);
                n += 1;
            });
            let told = line.told();
            assert_eq!(told.iter().any(|told| told.starts_with("rising fires")), fires, "{name}: {told:?}");
        }
    }
}

#[test]
fn our_own_retries_neither_hide_a_rise_nor_feed_it() {
    for rule in [rising(), by(Key::Task, rising())] {
        let mut line = Line::new(vec![rule.clone()]);
        // All that dies is under way again at once, and dies again.
        line.minutes(15, |line| {
            let waiting = line.entries;
            line.die("a", 5);
            line.retry("a", waiting + 5);
            line.die_again("a", waiting);
        });
        assert_eq!(line.told().len(), 1, "a rise that is hidden");
        let mut line = Line::new(vec![rule]);
        line.die("a", 200);
        line.minutes(40, |_| {});
        line.told();
        // The same jobs, tried again and again.
        line.minutes(60, |line| {
            line.retry("a", 10);
            line.die_again("a", 10);
        });
        line.minutes(20, |line| {
            line.retry("a", 10);
            line.recover("a", 10);
        });
        assert_eq!(line.told(), NOTHING, "a rise that is none");
    }
}

#[test]
fn by_task_each_task_has_its_own_line() {
    let mut line = Line::new(vec![by(Key::Task, rising())]);
    line.minutes(12, |line| {
        line.die("a", 5);
        line.die("b", 1);
    });
    assert_eq!(line.told(), ["rising fires a"]);
    line.minutes(12, |line| {
        line.die("a", 5);
        line.die("b", 3);
        // Only what comes is cleaned up of the first.
        line.entries -= 1;
    });
    assert_eq!(line.told(), ["rising fires b"]);
    line.minutes(30, |_| {});
    assert_eq!(line.told(), ["rising is over a", "rising is over b"]);
}

#[test]
fn what_matches_makes_a_line_of_its_own() {
    let mut only_b = rising();
    only_b.matcher.error = Some(regex::Regex::new("^ConnectionError: smtp").unwrap());
    only_b.matcher.group = Some(vec![Line::dead("b").group]);
    let mut line = Line::new(vec![only_b]);
    line.minutes(15, |line| line.die("a", 50));
    assert_eq!(line.told(), NOTHING);
    line.minutes(15, |line| line.die("b", 5));
    assert_eq!(line.told(), ["rising fires"]);
}

#[test]
fn a_gap_is_neither_a_rise_nor_an_end() {
    let mut line = Line::new(vec![rising()]);
    line.minutes(10, |line| line.die("a", 5));
    assert_eq!(line.told(), ["rising fires"]);
    // Nobody leads for half an hour, in which nothing happens.
    line.now += 30 * MINUTE;
    line.minutes(1, |line| line.die("a", 5));
    line.minutes(11, |line| line.die("a", 5));
    assert_eq!(line.told(), NOTHING, "what was told is not over because nobody looked");
    // And a line that is higher after a gap has risen once, not in every minute of it.
    let mut line = Line::new(vec![rising()]);
    line.minutes(4, |line| line.die("a", 5));
    line.now += 5 * MINUTE;
    line.entries += 500;
    line.minutes(3, |line| line.die("a", 5));
    assert_eq!(line.told(), NOTHING);
}

#[test]
fn after_a_gap_an_end_is_waited_for_anew() {
    let mut line = Line::new(vec![rising()]);
    line.minutes(12, |line| line.die("a", 5));
    line.minutes(8, |_| {});
    line.told();
    line.now += 60 * MINUTE;
    line.minutes(10, |_| {});
    assert_eq!(line.told(), NOTHING);
    line.minutes(5, |_| {});
    assert_eq!(line.told(), ["rising is over"]);
}

#[test]
fn what_died_in_a_gap_is_counted_where_it_died() {
    let burst = AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 200 }));
    let mut line = Line::new(vec![burst]);
    line.now += 120 * MINUTE;
    let died = Millis(line.now - 60 * MINUTE);
    for _ in 0..500 {
        line.watch.count(Millis(line.now), died, Arrival::First, &Line::dead("a"), &line.rules);
    }
    line.entries = 500;
    line.minutes(10, |_| {});
    assert_eq!(line.told(), NOTHING);
    let summary = line.watch.samples().summary(Millis(died.0 - MINUTE), Millis(died.0 + MINUTE));
    assert_eq!(summary.died, 500);
    // A beginner reads a day's backlog: that is no burst either.
    let (mut watch, _) = Watch::load("orders", Duration::from_secs(5), [("", ""); 0]);
    for n in 0..500 {
        watch.count(Millis(START), Millis(START - n * MINUTE), Arrival::First, &Line::dead("a"), &line.rules);
    }
    let tick = watch.tick(Millis(START), Sample { entries: 500, in_flight: 0 }, &line.rules, &[]);
    assert_eq!(tick.transitions, []);
    assert_eq!(watch.samples().summary(Millis(START - 59 * MINUTE), Millis(START)).died, 60);
}

#[test]
fn many_deaths_at_once_are_a_burst_and_deaths_once_more_are_not() {
    let burst = AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 200 }));
    let mut line = Line::new(vec![burst.clone(), AlertRule { name: "by-task".to_owned(), ..by(Key::Task, burst) }]);
    line.minutes(4, |line| line.die("a", 49));
    assert_eq!(line.told(), NOTHING);
    line.minutes(1, |line| line.die("b", 4));
    assert_eq!(line.told(), ["burst fires"]);
    line.minutes(1, |line| line.die("a", 100));
    assert_eq!(line.told(), ["by-task fires a"]);
    line.minutes(20, |_| {});
    assert_eq!(line.told(), ["by-task is over a", "burst is over"]);
    line.retry("a", 250);
    line.die_again("a", 250);
    line.minutes(5, |_| {});
    assert_eq!(line.told(), NOTHING);
}

#[test]
fn entries_that_wait_too_long_are_told_whatever_the_samples_say() {
    let day = 24 * 60 * MINUTE;
    let rule =
        by(Key::Task, AlertRule::new("untriaged", Kind::Waiting(Waiting { entries: 2, older_than: mins(1_440) })));
    let mut line = Line::new(vec![rule.clone()]);
    assert_eq!(rule.aged(), Some(AgedQuery { older_than: mins(1_440), at_most: WAITING_AT_MOST }));
    let look = |line: &Line, died: &[(&str, i64)]| {
        let mut aged = Aged::new(&rule);
        for (task, at) in died {
            aged.add(&rule, "orders", Millis(line.now), Millis(*at), &Line::dead(task));
        }
        aged
    };
    let now = line.now;
    let young = look(&line, &[("a", now - day), ("a", now - day + 1), ("b", now - 2 * day)]);
    line.tick(&[young]);
    assert_eq!(line.told(), NOTHING);
    let old = look(&line, &[("a", now - day), ("a", now - 2 * day), ("b", now - day)]);
    line.tick(&[old]);
    assert_eq!(line.told.iter().map(|told| (told.since.0, told.value)).collect::<Vec<_>>(), [(now - 2 * day, 2)]);
    assert_eq!(line.told(), ["untriaged fires a"]);
    // Nobody looks most of the time, and that ends nothing.
    line.minutes(30, |_| {});
    assert_eq!(line.told(), NOTHING);
    for _ in 0..2 {
        let none = look(&line, &[]);
        line.tick(&[none]);
        line.now += 10 * MINUTE;
    }
    let none = look(&line, &[]);
    line.tick(&[none]);
    assert_eq!(line.told(), NOTHING, "after a gap the ten minutes begin anew");
    line.minutes(11, |line| {
        let none = Aged::new(&rule);
        line.tick(&[none]);
    });
    assert_eq!(line.told(), ["untriaged is over a"]);
}

#[test]
fn a_group_is_new_once_and_a_death_once_more_is_no_news() {
    let new = AlertRule::new("new", Kind::NewGroup(NewGroup { quiet_for: mins(60) }));
    let mut line = Line::new(vec![by(Key::Group, new)]);
    let name = |task: &str, change: &str| format!("new {change} {}", Line::dead(task).group);
    line.watch.learn(Millis(line.now - MINUTE), &Line::dead("old").group);
    line.die("old", 1);
    line.die("a", 3);
    line.minutes(1, |_| {});
    assert_eq!(line.told(), [name("a", "fires")]);
    line.retry("a", 1);
    line.die_again("b", 1);
    line.minutes(20, |line| line.die("a", 1));
    assert_eq!(line.told(), [name("a", "is over")]);
    line.minutes(58, |_| {});
    line.die("a", 1);
    line.minutes(1, |_| {});
    assert_eq!(line.told(), NOTHING, "it died an hour ago, less a minute");
    line.minutes(60, |_| {});
    line.die("a", 1);
    line.minutes(1, |_| {});
    assert_eq!(line.told(), [name("a", "fires")]);
}

#[test]
fn a_rule_waits_before_it_fires_and_nothing_fires_without_end() {
    let mut line = Line::new(vec![AlertRule { for_: mins(5), ..rising() }]);
    line.minutes(13, |line| line.die("a", 5));
    assert_eq!(line.told(), NOTHING);
    let pending = &line.watch.incidents().live()[0];
    assert_eq!((pending.state, pending.fired_at), (State::Pending, None));
    let id = pending.id.clone();
    line.minutes(1, |line| line.die("a", 5));
    assert_eq!(line.told[0].incident, id);
    assert_eq!(line.told(), ["rising fires"]);
    // The rule goes; so does what it has told.
    line.rules.clear();
    line.minutes(1, |_| {});
    assert_eq!(line.told[0].incident, id);
    assert_eq!(line.told(), ["rising is withdrawn"]);
    // What was pending goes without a word.
    line.rules = vec![AlertRule { for_: mins(5), ..rising() }];
    line.minutes(2, |line| line.die("a", 5));
    assert_eq!(line.watch.incidents().live().len(), 1);
    line.rules = vec![AlertRule { for_: mins(5), ..by(Key::Task, rising()) }];
    line.minutes(1, |_| {});
    assert_eq!(line.told(), NOTHING);
}

#[test]
fn what_another_rule_has_told_is_not_told_again() {
    let slow = Rising { over: mins(60), buckets: 6, at_least: 5, growth: 10 };
    let slow = AlertRule { unless: vec!["rising".to_owned()], ..AlertRule::new("slow", Kind::Rising(slow)) };
    // In either order.
    for rules in [vec![slow.clone(), rising()], vec![rising(), slow.clone()]] {
        let mut line = Line::new(rules);
        line.minutes(120, |line| line.die("a", 5));
        assert_eq!(line.told(), ["rising fires"]);
        line.minutes(30, |_| {});
        assert_eq!(line.told(), ["rising is over"]);
        // What comes after it counts, and only that.
        line.minutes(40, |line| line.die("a", 1));
        assert_eq!(line.told(), NOTHING);
        line.minutes(15, |line| line.die("a", 1));
        assert_eq!(line.told(), ["slow fires"]);
        // What fires already is no page of the other's.
        line.minutes(30, |line| line.die("a", 5));
        assert_eq!(line.told(), ["rising fires"]);
    }
}

#[test]
fn one_rule_cannot_flood_the_pager() {
    let burst = by(Key::Task, AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 1 })));
    let mut line = Line::new(vec![burst]);
    for n in 0..40 {
        line.die(&format!("task{n:02}"), n + 1);
    }
    line.now += EVERY;
    let sample = Sample { entries: line.entries, in_flight: 0 };
    let tick = line.watch.tick(Millis(line.now), sample, &line.rules, &[]);
    assert_eq!(tick.passed_over, 20);
    let told: Vec<&str> = tick.transitions.iter().map(|told| told.labels["task"].as_str()).collect();
    let expected: Vec<String> = (20..40).rev().map(|n| format!("task{n:02}")).collect();
    assert_eq!(told, expected, "the largest first");
}

#[test]
fn an_event_says_how_much_since_when_and_of_what() {
    let mut line = Line::new(vec![rising()]);
    let begins = line.now + EVERY;
    line.minutes(10, |line| {
        line.die("send_email", 5);
        line.die("charge_card", 1);
    });
    let told = line.told.remove(0);
    assert_eq!(told.labels, Labels::from([("source".to_owned(), "orders".to_owned())]));
    assert_eq!((told.since.0, told.fired_at, told.value, told.level), (begins, told.at, 54, 54));
    assert_eq!(
        told.summary,
        "orders: the line rises, by 54 in 12m and in 9 of 12 steps, to 54 dead letters; mostly send_email \
         (ConnectionError: smtp timed out)"
    );
    let groups: Vec<_> = told.groups.iter().map(|group| (group.cause.task.as_str(), group.deaths)).collect();
    assert_eq!(groups, [("send_email", 45), ("charge_card", 9)]);
    let first = &told.groups[0];
    assert_eq!((first.cause.first.0, first.last), (begins - EVERY + 1, Some(Millis(begins + 8 * MINUTE))));
    line.minutes(30, |_| {});
    let over = line.told.remove(0);
    assert_eq!((over.incident, over.value), (told.incident, 60));
    assert_eq!(
        over.summary,
        "orders: rising is over after 13m; 60 jobs died since it began, 60 dead letters are left; mostly send_email \
         (ConnectionError: smtp timed out)"
    );
}

#[test]
fn how_far_a_rule_is_from_firing_can_be_asked_at_any_time() {
    let burst = AlertRule::new("burst", Kind::Burst(Burst { over: mins(5), deaths: 200 }));
    let waiting = AlertRule::new("waiting", Kind::Waiting(Waiting::default()));
    let mut line = Line::new(vec![rising(), burst, waiting]);
    line.minutes(3, |line| line.die("a", 2));
    let judgements = line.watch.judgements(Millis(line.now), &line.rules, &[]);
    let needs = |n: usize| judgements[n].readings.as_ref().map(|readings| readings[0].needs.clone());
    let need = |what, have, need| Need { what, have, need };
    assert_eq!(needs(0), Some(vec![need("buckets rising", 3, 9), need("steady growth", 6, 20)]));
    assert_eq!(needs(1), Some(vec![need("deaths", 6, 200)]));
    assert_eq!(needs(2), None, "nobody has looked");
    let reading = &judgements[0].readings.as_ref().unwrap()[0];
    assert_eq!((reading.holds, reading.still_rising), (Holds::No, Some(true)));
    assert!((reading.progress() - 0.3).abs() < 1e-9, "{}", reading.progress());
}

#[test]
fn a_clock_that_steps_back_is_believed() {
    let mut line = Line::new(vec![rising()]);
    line.minutes(20, |line| line.die("a", 5));
    line.told();
    line.now -= 2 * 60 * MINUTE;
    line.minutes(30, |_| {});
    assert_eq!(line.told(), ["rising is over"]);
    line.minutes(12, |line| line.die("a", 5));
    assert_eq!(line.told(), ["rising fires"]);
}

#[test]
fn the_end_is_told_to_those_who_were_told_of_the_beginning() {
    let hooks = Some(vec!["oncall".to_owned()]);
    let waiting = Kind::Waiting(Waiting { entries: 1, older_than: mins(60) });
    let rule =
        AlertRule { keep_firing_for: Duration::ZERO, hooks: hooks.clone(), ..AlertRule::new("untriaged", waiting) };
    let mut line = Line::new(vec![rule.clone()]);
    line.die("a", 3);
    line.minutes(61, |_| {});
    let mut old = Aged::new(&rule);
    old.add(&rule, "orders", Millis(line.now), Millis(line.now - 61 * MINUTE), &Line::dead("a"));
    line.tick(&[old]);
    line.rules.clear();
    line.minutes(1, |_| {});
    let [fires, ends] = &line.told[..] else { panic!("{:?}", line.told) };
    assert_eq!((&fires.hooks, &ends.hooks), (&hooks, &hooks));
    assert_eq!(
        fires.summary,
        "orders: at least 1 dead letter has waited for more than 1h; a (ConnectionError: smtp timed out)"
    );
    assert_eq!(
        ends.summary,
        "orders: untriaged is withdrawn, for its rule has changed, after 5s; 3 dead letters are left"
    );
}

#[test]
fn events_are_counted_for_what_they_tell() {
    use crate::event::{Digest, Event, EventData, GroupCount, JobRetry};
    let new = by(Key::Group, AlertRule::new("new", Kind::NewGroup(NewGroup { quiet_for: mins(60) })));
    let mut line = Line::new(vec![new]);
    let dead = |task: &str, deaths| JobDead { deaths, ..Line::dead(task) };
    let retry = |task: &str| Box::new(JobRetry { dead: dead(task, 1), ..JobRetry::default() });
    let known = GroupCount {
        group: Line::dead("old").group,
        counts: crate::event::Counts::default(),
        task: None,
        error: crate::event::ErrorText::default(),
    };
    for data in [
        EventData::Digest(Box::new(Digest { groups: vec![known], ..Digest::default() })),
        EventData::JobDead(Box::new(dead("old", 1))),
        EventData::JobDead(Box::new(dead("a", 1))),
        EventData::JobRetried(retry("a")),
        EventData::JobDead(Box::new(dead("a", 2))),
        EventData::JobExhausted(Box::new(dead("a", 2))),
        EventData::JobRetried(retry("old")),
        EventData::JobRecovered(retry("old")),
    ] {
        line.now += 1;
        let event = Event { id: "msg_1".to_owned(), at: Millis(line.now), data };
        line.watch.observe(Millis(line.now), &event, &line.rules);
    }
    line.minutes(1, |_| {});
    assert_eq!(line.told(), [format!("new fires {}", Line::dead("a").group)]);
    let summary = line.watch.samples().summary(Millis(line.now - 2 * MINUTE), Millis(line.now));
    assert_eq!((summary.died, summary.died_again, summary.retried, summary.left), (2, 1, 2, 1));
    let groups: Vec<_> = summary.groups.iter().map(|group| (group.cause.task.as_str(), group.deaths)).collect();
    assert_eq!((groups, summary.other), (vec![("a", 2), ("old", 1)], 0));
}
