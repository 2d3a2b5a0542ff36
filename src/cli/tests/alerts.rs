//! `alerts`.

use async_trait::async_trait;

use super::*;
use crate::{
    alert::{AlertRule, Arrival, Burst, Fields, Key, Kind, NewGroup, Rising, Sample, Severity, Waiting, Watch},
    ledger::{self, AlertLedger, Batch, Cursor, Ledger as _, SavedWatch},
    letter::Millis,
    triage::fake::now,
};

const EVERY: Duration = Duration::from_secs(5);
const MINUTE: i64 = 60_000;

fn mins(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// A source in memory that somebody has watched.
#[async_trait]
impl AlertLedger for Fake {
    fn id(&self) -> String {
        String::new()
    }

    async fn load_watch(&self) -> ledger::Result<SavedWatch> {
        self.overview().await?;
        Ok(SavedWatch { revision: 1, fields: self.watch.clone().into_iter().collect() })
    }

    async fn save_watch(&self, _: &Lease, _: u64, _: &Fields, _: &[EventData]) -> ledger::Result<u64> {
        unreachable!("no command watches")
    }

    async fn counted_until(&self) -> ledger::Result<Option<OutboxId>> {
        unreachable!("no command watches")
    }

    async fn browse(&self, after: &Cursor, max: usize) -> ledger::Result<Batch> {
        let newest_first = self.page(None, usize::MAX).await?.letters;
        let rest = newest_first.into_iter().rev().skip_while(|letter| !self.is_after(&letter.entry_id, after));
        let letters: Vec<DeadLetter> = rest.take(max).collect();
        let cursor = letters.last().map_or_else(|| after.clone(), |last| Cursor(last.entry_id.clone()));
        Ok(Batch { caught_up: letters.len() < max, letters, cursor, heaviest: 0 })
    }
}

/// One of each kind, and one that waits for what another one tells.
pub(super) fn rules() -> Vec<AlertRule> {
    let rule = |name: &str, severity, kind| AlertRule { severity, ..AlertRule::new(name, kind) };
    let rising = Rising { over: mins(10), buckets: 10, at_least: 8, growth: 25 };
    vec![
        rule("new-kind", Severity::Info, Kind::NewGroup(NewGroup { quiet_for: mins(7 * 24 * 60) })),
        AlertRule {
            unless: vec!["rising-fast".into()],
            ..rule("rising-slowly", Severity::Error, Kind::Rising(Rising { over: mins(20), ..rising.clone() }))
        },
        rule("rising-fast", Severity::Critical, Kind::Rising(rising)),
        AlertRule {
            by: vec![Key::Task],
            for_: mins(10),
            ..rule("busy", Severity::Warning, Kind::Burst(Burst { over: mins(10), deaths: 20 }))
        },
        rule("untriaged", Severity::Warning, Kind::Waiting(Waiting { entries: 4, older_than: mins(24 * 60) })),
    ]
}

/// What became of one task's jobs in one minute.
type Minute<'a> = &'a [(&'a str, u32)];

/// A leader that watches from `from` on, minute by minute before now, until `until`.
struct Leader {
    watch: Watch,
    fields: BTreeMap<String, String>,
    level: u64,
}

impl Leader {
    fn new() -> Leader {
        Leader { watch: Watch::load("orders", EVERY, [("", ""); 0]).0, fields: BTreeMap::new(), level: 3 }
    }

    /// Watches for these minutes before now, in each of which the same jobs die.
    fn watch(mut self, minutes: std::ops::Range<i64>, deaths: Minute<'_>) -> Leader {
        let rules = rules();
        for at in (now().0 - minutes.end * MINUTE + 5_000..=now().0 - minutes.start * MINUTE).step_by(5_000) {
            let at = Millis(at);
            if (at.0 - now().0) % MINUTE == 0 {
                for (task, jobs) in deaths {
                    let group = format!("{:0<12}", task.len());
                    let letter =
                        DeadLetter { task: (*task).into(), group: crate::letter::Group(group), ..letter("1-0", 0) };
                    let dead = JobDead::of("orders", &letter, Include::default());
                    for _ in 0..*jobs {
                        self.watch.count(at, at, Arrival::First, &dead, &rules);
                    }
                    self.level += u64::from(*jobs);
                }
            }
            let tick = self.watch.tick(at, Sample { entries: self.level, in_flight: 0 }, &rules, &[]);
            self.fields.extend(tick.fields.set);
            tick.fields.remove.iter().for_each(|name| drop(self.fields.remove(name)));
        }
        self
    }

    /// All entries but three are taken away.
    fn clean_up(mut self) -> Leader {
        self.level = 3;
        self
    }

    fn leaves(self, mut fake: Fake) -> Arc<Fake> {
        fake.watch = self.fields;
        Arc::new(fake)
    }
}

/// A DLQ with two entries of yesterday and two of today.
fn graveyard() -> Fake {
    let mut fake = led();
    fake.letters_mut().splice(0..0, [letter("0-1", 90_000), letter("0-2", 88_000)]);
    fake
}

/// An outage of the last twelve minutes, after an hour of nothing.
fn outage() -> Arc<Fake> {
    Leader::new().watch(12..90, &[]).watch(0..12, &[("send_email", 9), ("charge", 1)]).leaves(graveyard())
}

async fn json_of(sources: &[Arc<Fake>], line: &str) -> serde_json::Value {
    let ran = run(sources, line).await;
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
}

#[tokio::test]
async fn what_fires_comes_first_and_then_what_is_nearest_to_it() {
    let ran = run(&[outage()], "sexton alerts").await;
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.failure());
    let expected = "\
orders: 123 dead letters, sampled 0s ago
  last hour  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▃▃▄▄▆▆▇▇█  3 to 123
  24 hours                                                ▁▁█  3 to 123

STATE    ALERT          SEVERITY  ABOUT            SINCE  HOW FAR
firing   rising-fast    critical  -                11m    10 of 8 buckets rising, 60 of 25 steady growth
pending  busy           warning   task send_email  11m    fires in 60s; 90 of 20 deaths
quiet    busy           warning   task charge      -      10 of 20 deaths
quiet    untriaged      warning   -                -      2 of 4 entries
quiet    new-kind       info      -                -      no new group
quiet    rising-slowly  error     -                -      0 of 8 buckets rising, 0 of 25 steady growth; left to rising-fast

rising-fast (dfab8a74a7709762)
  orders: the line rises, by 100 in 10m and in 10 of 10 steps, to 123 dead letters; mostly send_email (ConnectionError: host 1-0 timed out)
        90  group 100000000000  send_email: ConnectionError: host 1-0 timed out
        10  group 600000000000  charge: ConnectionError: host 1-0 timed out
";
    assert_eq!(ran.out, expected);
}

#[tokio::test]
async fn json_has_the_fields_of_the_event_and_how_far_it_is() {
    let shown = json_of(&[outage()], "sexton alerts -o json").await;
    assert_eq!(shown["next_cursor"], serde_json::Value::Null);
    let items = shown["items"].as_array().unwrap();
    let pending = serde_json::json!({
        "source": "orders", "incident": "INCIDENT", "alert": "busy", "severity": "warning", "state": "pending",
        "since": "2026-11-29T17:01:50.500Z", "fired_at": null, "fires_at": "2026-11-29T17:13:50.500Z",
        "resolves_at": null, "resolved_at": null, "labels": {"source": "orders", "task": "send_email"}, "value": 90,
        "holds": "yes", "needs": [{"what": "deaths", "have": 90, "need": 20}], "progress": 1.0, "told_by": null,
        "known_rule": true, "hooks": null,
        "summary": "orders, task send_email: 90 jobs died within 10m; send_email (ConnectionError: host 1-0 timed out)",
        "groups": [{
            "group": "100000000000", "task": "send_email", "queue": "default", "reason": "max_attempts",
            "error": {"type": "ConnectionError", "message": "host 1-0 timed out"}, "deaths": 90,
            "first_died_at": "2026-11-29T17:01:50.500Z", "last_died_at": "2026-11-29T17:12:50.500Z", "retrying": null,
        }],
    });
    let mut found = items[1].clone();
    assert_eq!(found["incident"].as_str().map(str::len), Some(16));
    found["incident"] = "INCIDENT".into();
    assert_eq!(found, pending);
    let quiet = items.iter().find(|item| item["alert"] == "rising-slowly").unwrap();
    assert_eq!((&quiet["told_by"], &quiet["incident"]), (&"rising-fast".into(), &serde_json::Value::Null));
    let source = &shown["sources"][0];
    assert_eq!((&source["stale"], &source["led"], &source["level"]), (&false.into(), &true.into(), &123.into()));
    assert_eq!(source["line"]["hour"]["highest"], 123);
    assert_eq!(source["line"]["hour"]["sparkline"].as_str().map(|line| line.chars().count()), Some(48));
    let ran = run(&[outage()], "sexton alerts -o jsonl").await;
    let lines: Vec<serde_json::Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&lines, items);
}

#[tokio::test]
async fn what_is_over_says_when_it_will_be_resolved_and_when_it_was() {
    // Cleaned up four minutes ago.
    let outage = Leader::new().watch(40..90, &[]).watch(14..40, &[("send_email", 9)]).watch(4..14, &[]);
    let fake = outage.clean_up().watch(0..4, &[]).leaves(graveyard());
    let ran = run(&[fake], "sexton alerts").await;
    let row = ran.out.lines().find(|line| line.contains("busy")).unwrap();
    assert!(row.starts_with("firing") && row.ends_with("is over: resolved in 4m; 0 of 20 deaths"), "{}", ran.out);
    assert!(ran.out.contains("\nresolved  rising-fast"), "{}", ran.out);
    let row = ran.out.lines().find(|line| line.starts_with("resolved")).unwrap();
    assert!(row.ends_with("over 2m ago, fired for 30m"), "{row}");
}

#[tokio::test]
async fn that_nobody_looks_is_said_whether_somebody_leads_or_not() {
    let stale = || Leader::new().watch(14..90, &[("send_email", 9)]);
    let ran = run(&[stale().leaves(led())], "sexton alerts").await;
    let expected = "orders: 687 dead letters as of 14m ago; nobody has looked since, and this is how it was then (a sidecar \
                    leads, its log says why)\n";
    assert!(ran.out.starts_with(expected), "{}", ran.out);
    // As it was then: not flat because nothing is known of the time since.
    assert!(ran.out.contains("\nfiring  rising-fast"), "{}", ran.out);
    let mut nobody = led();
    nobody.leader = None;
    let fake = stale().leaves(nobody);
    let ran = run(&[Arc::clone(&fake)], "sexton alerts").await;
    assert!(ran.out.contains("this is how it was then (no sidecar leads)\n"), "{}", ran.out);
    let shown = json_of(&[fake], "sexton alerts -o json").await;
    assert_eq!((&shown["sources"][0]["stale"], &shown["sources"][0]["led"]), (&true.into(), &false.into()));
    assert_eq!(shown["sources"][0]["sampled_at"], "2026-11-29T16:58:50.500Z");

    let never = [Arc::new(Fake::new("orders", Vec::new()))];
    let ran = run(&never, "sexton alerts").await;
    assert!(ran.out.starts_with("orders: no sample has been taken yet (no sidecar leads)\n\nSTATE"), "{}", ran.out);
    let row = ran.out.lines().find(|line| line.contains("rising-fast")).unwrap();
    assert!(row.ends_with("0 of 8 buckets rising, 0 of 25 steady growth; nobody looked for some of the time"), "{row}");
    assert_eq!(
        (ran.code(), json_of(&never, "sexton alerts -o json").await["sources"][0]["stale"].as_bool()),
        (0, Some(true))
    );
}

/// The same with other rules.
async fn run_by(rules: &[AlertRule], fake: &Arc<Fake>) -> Ran {
    let Command::Alerts(args) = Cli::try_parse_from(["sexton", "alerts"]).unwrap().command else { unreachable!() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io = Io { out: &mut out, err: &mut err, input: &mut [].as_slice(), screen: Screen::default() };
    let (ledgers, measure) = ([Arc::clone(fake) as Arc<dyn SourceLedger>], Measure { rules, sample_every: EVERY });
    let result = crate::cli::alerts::alerts(&config().sources, &ledgers, measure, &args, &mut io).await;
    Ran { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), result }
}

#[tokio::test]
async fn other_rules_say_what_they_would_and_what_fires_stays() {
    let ran = run_by(&[], &outage()).await;
    assert!(
        ran.out.contains("\n  no alert rules are given for it: `rules:` in the configuration names them, or --rules\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.ends_with("11m    its rule is not among those given\n"), "{}", ran.out);
    let eager = AlertRule::new("eager", Kind::Burst(Burst { over: mins(5), deaths: 10 }));
    let ran = run_by(&[eager], &outage()).await;
    let row = ran.out.lines().find(|line| line.contains("eager")).unwrap();
    assert!(row.starts_with("quiet") && row.ends_with("50 of 10 deaths; holds, not told yet"), "{}", ran.out);
    // Of hundreds of things that a rule tells apart only the nearest are shown.
    let mut many = Leader::new();
    let tasks: Vec<String> = (0..40).map(|n| format!("task-{n:02}")).collect();
    let deaths: Vec<(&str, u32)> = tasks.iter().map(|task| (task.as_str(), 1)).collect();
    many = many.watch(0..3, &deaths);
    let ran = run_by(&rules()[3..4], &many.leaves(led())).await;
    assert_eq!(ran.out.matches("\nquiet").count(), 3, "{}", ran.out);
    assert!(ran.out.ends_with("\nand 37 more of busy, farther from firing\n"), "{}", ran.out);
}

#[tokio::test]
async fn nothing_harmful_is_shown_and_a_narrow_terminal_suffices() {
    let bad = Leader::new().watch(12..90, &[]).watch(0..12, &[("send_\x1b[2J\u{202e}", 9)]).leaves(graveyard());
    for line in ["sexton alerts", "sexton alerts -o json"] {
        let ran = run(&[Arc::clone(&bad)], line).await;
        assert!(!ran.out.contains('\x1b') && !ran.out.contains('\u{202e}') && ran.out.contains("send_"), "{}", ran.out);
    }
    for width in [60, 80] {
        let ran = run_on(&[outage()], "sexton alerts", Screen { width: Some(width), ..Screen::default() }, "").await;
        let shown: Vec<&str> = ran.out.lines().take_while(|line| !line.starts_with("rising-fast (")).collect();
        assert!(shown.iter().all(|line| line.chars().count() <= usize::from(width)), "{}", ran.out);
        assert!(shown.iter().any(|line| line.contains("fires in 60s")), "{}", ran.out);
    }
}

#[tokio::test]
async fn every_source_is_shown_by_itself_and_what_cannot_be_read_is_named() {
    let mut payments = Fake::new("payments", Vec::new());
    payments.watch = BTreeMap::from([("later\x1b".to_owned(), "x".to_owned())]);
    let sources = [outage(), Arc::new(payments)];
    let ran = run(&sources, "sexton alerts").await;
    assert!(ran.out.contains("\n\npayments: no sample has been taken yet"), "{}", ran.out);
    assert_eq!(ran.err, "payments: written by another version, and left out: later\\x1b\n");
    let ran = run(&sources, "sexton alerts --source pay*").await;
    assert!(ran.out.starts_with("payments:"), "{}", ran.out);
    assert_eq!(run(&sources, "sexton alerts --source nope").await.code(), 2);
}

#[tokio::test]
async fn of_very_many_that_fire_the_gravest_are_told_in_full() {
    let tasks: Vec<String> = (0..12).map(|n| format!("{:0>1$}", "task", n + 4)).collect();
    let deaths: Vec<(&str, u32)> = tasks.iter().map(|task| (task.as_str(), 3)).collect();
    let storm = Leader::new().watch(20..90, &[]).watch(0..20, &deaths).leaves(led());
    let ran = run(&[storm], "sexton alerts").await;
    assert_eq!(ran.out.matches("\nfiring").count(), 13, "{}", ran.out);
    let told: Vec<&str> = ran.out.split("\n\n").skip(2).collect();
    assert!(told[0].starts_with("rising-fast (") && told[1].starts_with("busy ("), "{}", ran.out);
    assert_eq!((told.len(), told[3]), (4, "and 10 more that fire: -o json tells of all\n"));
}

#[tokio::test]
async fn stats_say_how_many_fire() {
    let ran = run(&[outage()], "sexton stats").await;
    assert!(ran.out.contains("\n  alerts    1 firing (rising-fast), 1 pending, sampled 0s ago\n"), "{}", ran.out);
    let shown = json_of(&[outage()], "sexton stats -o json").await;
    let expected = serde_json::json!({"firing": 1, "pending": 1, "sampled_at": "2026-11-29T17:12:50.500Z"});
    assert_eq!(shown["items"][0]["alerts"], expected);
}
