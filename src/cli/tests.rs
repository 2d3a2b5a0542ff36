//! The commands as people type them, against sources in memory: what comes out, byte for byte, and how it ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::{CommandFactory as _, Parser as _};

use super::{
    Cli, Command, check, errors,
    exit::Failure,
    fake::{Fake, letter},
    hooks,
    io::{Io, Screen},
    ls, show, stats,
};
use crate::{
    config::{
        Config, Format, HookConfig, HttpConfig, LogConfig, LogFormat, OutboxConfig, Rate, Secret, SecretSource,
        SmallageConfig, SourceConfig, SourceKind,
    },
    event::{EventData, HookTest, Include, JobDead, Lane},
    ledger::{JobCounts, Lease, Ledger, OutboxId, StoreError},
    letter::{Attempt, DeadLetter, ErrorInfo, Reason, Verdict},
    rule::Matcher,
};

fn config() -> Config {
    let url = |url: &str| SecretSource::Inline(Secret::new(url));
    Config {
        sources: vec![SourceConfig {
            name: "orders".into(),
            kind: SourceKind::Smallage(SmallageConfig {
                url: url("redis://user:hush@redis.test:6380/2"),
                namespace: "lrs".into(),
                username: None,
                password: None,
                tls: None,
            }),
        }],
        hooks: vec![HookConfig {
            name: "oncall".into(),
            url: url("https://user:hush@alerts.test/services/T0/hush?token=hush"),
            format: Format::Standard,
            secrets: vec![SecretSource::Inline(Secret::new("whsec_hush"))],
            events: vec!["job.dead".into(), "alert.*".into()],
            matcher: Matcher::default(),
            headers: Vec::new(),
            rate: Rate::Limited { events: 60, per: Duration::from_secs(60) },
            timeout: Duration::from_secs(10),
            give_up_after: Duration::from_secs(86_400),
            include: Include::default(),
            redact: Vec::new(),
            fingerprint: "f1".into(),
        }],
        http: HttpConfig { listen: "127.0.0.1:0".into() },
        lease_ttl: Duration::from_secs(10),
        sample_every: Duration::from_secs(5),
        outbox: OutboxConfig { cap: 50_000, keep: Duration::from_secs(86_400) },
        announce_existing: false,
        log: LogConfig { format: LogFormat::Text, level: "info".into() },
    }
}

struct Ran {
    out: String,
    err: String,
    result: Result<(), Failure>,
}

impl Ran {
    fn code(&self) -> u8 {
        self.result.as_ref().map_or_else(|failure| failure.exit() as u8, |()| 0)
    }

    fn failure(&self) -> String {
        self.result.as_ref().map_or_else(ToString::to_string, |()| "it worked".into())
    }
}

async fn run_on(sources: &[Arc<Fake>], line: &str, screen: Screen, answer: &str) -> Ran {
    let ledgers: Vec<Arc<dyn Ledger>> = sources.iter().map(|fake| Arc::clone(fake) as Arc<dyn Ledger>).collect();
    let cli = Cli::try_parse_from(line.split(' ')).unwrap();
    let (mut out, mut err, mut input) = (Vec::new(), Vec::new(), answer.as_bytes());
    let mut io = Io { out: &mut out, err: &mut err, input: &mut input, screen };
    let result = match &cli.command {
        Command::Check(_) => check::check(&config(), &mut io),
        Command::Ls(args) => ls::ls(&ledgers, args, &mut io).await,
        Command::Show(args) => show::show(&ledgers, args, &mut io).await,
        Command::Errors(args) => errors::errors(&ledgers, args, &mut io).await,
        Command::Stats(args) => stats::stats(&config(), &ledgers, args, &mut io).await,
        Command::Hooks(args) => hooks::hooks(&config(), &ledgers, args, &mut io).await,
        Command::Run(_) | Command::Demo => unreachable!("not run here"),
    };
    Ran { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), result }
}

async fn run(sources: &[Arc<Fake>], line: &str) -> Ran {
    run_on(sources, line, Screen::default(), "").await
}

fn two_sources() -> Vec<Arc<Fake>> {
    let orders =
        vec![letter("1-0", 7_300), letter("2-0", 600), DeadLetter { task: "charge".into(), ..letter("3-0", 300) }];
    let payments = vec![DeadLetter {
        queue: String::new(),
        error: ErrorInfo { kind: "Bad\x1b[2J".into(), message: "two\nlines\u{202e}".into() },
        ..letter("9-0", 200_000)
    }];
    let mut orders = Fake::new("orders", orders);
    orders.jobs = BTreeMap::from([("job-2-0".into(), JobCounts { deaths: 4, retries: 3 })]);
    vec![Arc::new(orders), Arc::new(Fake::new("payments", payments))]
}

#[test]
fn the_command_line_is_sound_and_every_command_has_examples() {
    Cli::command().debug_assert();
    fn look(command: &clap::Command) {
        let children: Vec<_> = command.get_subcommands().filter(|child| child.get_name() != "help").collect();
        assert!(command.get_about().is_some(), "{}", command.get_name());
        if children.is_empty() {
            let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                notes.contains(&format!("  sexton {}", command.get_name())) || notes.contains("  sexton hooks"),
                "{notes}"
            );
        }
        children.into_iter().for_each(look);
    }
    look(&Cli::command());
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    for (line, accepted) in [
        ("sexton", false),
        ("sexton frobnicate", false),
        ("sexton ls", true),
        ("sexton ls -c a.yaml", true),
        ("sexton ls -c a.yaml --smallage redis://x", false),
        ("sexton ls --smallage redis://x --namespace n", true),
        ("sexton ls --namespace n", false),
        ("sexton ls --limit 0", false),
        ("sexton ls --after x/1-0 --offset 3", false),
        ("sexton ls --after x/1-0", true),
        ("sexton ls --error (", false),
        ("sexton ls --task [", false),
        ("sexton ls --older-than soon", false),
        ("sexton ls --older-than 7d --newer-than 9d", true),
        ("sexton ls -o yaml", false),
        ("sexton show", false),
        ("sexton show 1-0 -o json", true),
        ("sexton show 1-0 -o table", false),
        ("sexton hooks", false),
        ("sexton hooks resend oncall", false),
        ("sexton hooks resend oncall --since yesterday", false),
        ("sexton hooks resend oncall --since 2h", true),
        ("sexton hooks resend oncall --since 2026-11-29T17:00:00Z", true),
        ("sexton run --log-level info,sexton::hook=debug", true),
        ("sexton run --log-level sexton=loud", false),
        ("sexton -v ls", true),
        ("sexton ls -v", true),
    ] {
        assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), accepted, "{line}");
    }
}

#[tokio::test]
async fn ls_lists_newest_first_and_source_after_source() {
    let ran = run(&two_sources(), "sexton ls").await;
    assert_eq!(
        ran.out,
        "AGE  ENTRY         TASK        QUEUE    REASON        ERROR                                GROUP\n\
         5m   orders/3-0    charge      default  max_attempts  ConnectionError: host 3-0 timed out  7c1f0e9a2b44\n\
         10m  orders/2-0    send_email  default  max_attempts  ConnectionError: host 2-0 timed out  7c1f0e9a2b44\n\
         2h   orders/1-0    send_email  default  max_attempts  ConnectionError: host 1-0 timed out  7c1f0e9a2b44\n\
         2d   payments/9-0  send_email  -        max_attempts  Bad\\x1b[2J: two\\nlines\\u{202e}       7c1f0e9a2b44\n"
    );
    assert_eq!((ran.err.as_str(), ran.code()), ("", 0));
}

#[tokio::test]
async fn ls_fits_the_terminal() {
    for width in [60, 80, 100, 120] {
        let screen = Screen { width: Some(width), ..Screen::default() };
        let ran = run_on(&two_sources(), "sexton ls", screen, "").await;
        assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
        assert!(ran.out.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}:\n{}", ran.out);
        assert!(ran.out.contains("orders/3-0") && ran.out.contains("7c1f0e9a2b44"), "{}", ran.out);
    }
}

#[tokio::test]
async fn cursors_walk_through_every_entry_once() {
    let sources = two_sources();
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..10 {
        let ran = run(&sources, &format!("sexton ls --limit 1 -o json{after}")).await;
        let page: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["entry_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => after = format!(" --after {next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["3-0", "2-0", "1-0", "9-0"]);
    assert_eq!(after, " --after payments/", "the last page is known to be the last");

    let ran = run(&sources, "sexton ls --offset 1 --limit 2 -o jsonl").await;
    let entries: Vec<JobDead> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = entries.iter().map(|e| (e.entry_id.as_str(), e.deaths, e.retries)).collect();
    assert_eq!(shown, [("2-0", 4, 3), ("1-0", 0, 0)]);
    assert_eq!(ran.err, "more with --after payments/\n");

    for (line, expected) in [
        ("sexton ls --after 3-0", "--after: \"3-0\" is not a cursor of an earlier listing"),
        ("sexton ls --after other/3-0", "--after: \"other/3-0\" is of a source that is not being listed"),
        (
            "sexton ls --source pay* --after orders/3-0",
            "--after: \"orders/3-0\" is of a source that is not being listed",
        ),
        ("sexton ls --source x*", "no source matches --source; there is orders, payments"),
    ] {
        let ran = run(&sources, line).await;
        assert_eq!((ran.failure().as_str(), ran.code()), (expected, 2));
    }
}

#[tokio::test]
async fn ls_json_is_the_event_s_data() {
    let ran = run(&two_sources(), "sexton ls -o json --task none*").await;
    assert_eq!(ran.out, "{\"items\":[],\"next_cursor\":null}\n");
    let ran = run(&two_sources(), "sexton ls -o json --source payments").await;
    assert_eq!(
        ran.out,
        concat!(
            "{\"items\":[\n",
            r#"{"source":"payments","entry_id":"9-0","job_id":"job-9-0","task":"send_email","queue":null,"#,
            r#""reason":"max_attempts","error":{"type":"Bad\u001b[2J","message":"two\nlines\u202e"},"attempts":3,"#,
            r#""deliveries":1,"history":"same","group":"7c1f0e9a2b44","enqueued_at":null,"#,
            r#""died_at":"2026-11-27T09:39:30.500Z","deaths":0,"retries":0,"rule":null,"next_retry_at":null,"#,
            "\"traceparent\":null}\n],\"next_cursor\":null}\n"
        )
    );
    let ran = run(&two_sources(), "sexton ls --task none*").await;
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "no entries\n"));
}

fn failed_three_times() -> DeadLetter {
    let attempt = |number, kind: &str| Attempt {
        number: Some(number),
        error: ErrorInfo { kind: kind.into(), message: "no".into() },
    };
    DeadLetter {
        job_id: "job".into(),
        history: vec![attempt(0, "TimeoutError"), attempt(1, "OSError\r")],
        verdict: Verdict::Mixed,
        detail: b"Traceback\n  File\x1b\xff".to_vec(),
        payload: br#"{"i":1}"#.to_vec(),
        dedup: Some("key".into()),
        ..letter("2-0", 600)
    }
}

#[tokio::test]
async fn show_tells_everything_and_nothing_harmful() {
    let mut fake = Fake::new("orders", vec![failed_three_times()]);
    fake.fields = vec![(b"v".to_vec(), b"1".to_vec()), (b"\xff\r".to_vec(), "é\n".repeat(60).into_bytes())];
    let source = [Arc::new(fake)];
    let ran = run(&source, "sexton show orders/2-0").await;
    let expected = "\
orders/2-0
  job         job
  task        send_email
  queue       default
  reason      max_attempts
  error       ConnectionError: host 2-0 timed out
  group       7c1f0e9a2b44
  attempts    3 failed attempts, 1 delivery of the last queue entry
  history     attempts failed in different ways
  deaths      not counted by Sexton yet
  enqueued    -
  died        2026-11-29T17:02:50.500Z (10m ago)
  origin      {lrs}:q:default:0
  dedup key   key
  traceparent -

Attempts
     1  TimeoutError: no
     2  OSError\\r: no
     3  ConnectionError: host 2-0 timed out

Traceback (18 bytes)
  Traceback
    File\\x1b\u{fffd}

Payload (7 bytes, JSON)
  {
    \"i\": 1
  }

Record (2 fields, 184 bytes)
  v               1
";
    let record = format!("  \u{fffd}\\r             {}…\n", "é\\n".repeat(50));
    assert_eq!(ran.out, format!("{expected}{record}"));
    let ran = run(&source, "sexton show 7-0").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("there is no entry 7-0", 1));
}

#[tokio::test]
async fn show_json_keeps_every_byte() {
    let mut fake = Fake::new("orders", vec![failed_three_times()]);
    fake.fields =
        vec![(b"v".to_vec(), b"1".to_vec()), (b"v".to_vec(), b"\x1b".to_vec()), (vec![0xff], vec![0xff, 0xfe])];
    let ran = run(&[Arc::new(fake)], "sexton show 2-0 -o json").await;
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        shown["fields"],
        serde_json::json!([["v", "1"], ["v", "\u{1b}"], [{"base64": "/w=="}, {"base64": "//4="}]])
    );
    assert_eq!(shown["payload"], "eyJpIjoxfQ==");
    assert_eq!(shown["attempt_errors"], serde_json::json!(["TimeoutError: no", "OSError\r: no"]));
    assert!(!ran.out.contains('\x1b'));
}

#[tokio::test]
async fn an_entry_of_two_sources_must_be_named_with_its_source() {
    let twice = [Arc::new(Fake::new("a", vec![letter("2-0", 1)])), Arc::new(Fake::new("b", vec![letter("2-0", 1)]))];
    let ran = run(&twice, "sexton show 2-0").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("2-0 is an entry of a and of b; write a/2-0 or b/2-0", 2));
    assert!(run(&twice, "sexton show b/2-0").await.out.starts_with("b/2-0\n"));
}

#[tokio::test]
async fn errors_of_a_job_are_those_of_all_its_deaths() {
    let earlier = DeadLetter { attempts: 1, history: Vec::new(), verdict: Verdict::Unknown, ..failed_three_times() };
    let earlier = DeadLetter { entry_id: "1-0".into(), died_at: letter("1-0", 7_300).died_at, ..earlier };
    let killed = DeadLetter {
        job_id: "other".into(),
        reason: Reason::MaxDeliveries,
        error: ErrorInfo { kind: String::new(), message: "delivered 4 times".into() },
        ..letter("3-0", 60)
    };
    let source = [Arc::new(Fake::new("orders", vec![earlier, failed_three_times(), killed]))];
    let ran = run(&source, "sexton errors job").await;
    assert_eq!(
        ran.out,
        "\
Death 1 of 2: orders/1-0  2026-11-29T15:11:10.500Z (2h ago)
job job, task send_email, reason max_attempts
     1  ConnectionError: host 2-0 timed out
too few attempts to tell

Death 2 of 2: orders/2-0  2026-11-29T17:02:50.500Z (10m ago)
job job, task send_email, reason max_attempts
     1  TimeoutError: no
     2  OSError\\r: no
     3  ConnectionError: host 2-0 timed out
attempts failed in different ways
"
    );
    let ran = run(&source, "sexton errors orders/3-0 -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"items":[{"source":"orders","entry_id":"3-0","job_id":"other","task":"send_email","#,
            r#""reason":"max_deliveries","died_at":"2026-11-29T17:11:50.500Z","history":"same","#,
            r#""attempts":[{"number":null,"type":null,"message":"delivered 4 times"}]}]}"#,
            "\n"
        )
    );
    let ran = run(&source, "sexton errors nobody").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("no entry and no job in a DLQ is called nobody", 1));
}

#[test]
fn attempts_the_record_no_longer_holds_are_mentioned() {
    let late = Attempt { number: Some(4), error: ErrorInfo { kind: "E".into(), message: String::new() } };
    let letter = DeadLetter { attempts: 6, history: vec![late], ..letter("1-0", 1) };
    let mut out = Vec::new();
    errors::write_attempts(&mut out, &errors::attempts_of(&letter)).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "  4 attempts before these, not recorded\n     5  E\n     6  ConnectionError: host 1-0 timed out\n"
    );
}

#[tokio::test]
async fn a_store_that_fails_ends_with_69_and_hides_no_other_source() {
    let broken = |error| {
        let mut fake = Fake::new("orders", Vec::new());
        fake.broken = Some(error);
        [Arc::new(fake), Arc::new(Fake::new("payments", vec![letter("9-0", 60)]))]
    };
    for line in ["sexton ls", "sexton show 1-0", "sexton errors x", "sexton stats", "sexton hooks ls"] {
        let ran = run(&broken(StoreError::Unavailable("refused".into())), line).await;
        assert_eq!(ran.code(), 69, "{line}");
        assert_eq!(ran.failure(), "orders: the store cannot be reached: refused", "{line}");
    }
    let ran = run(&broken(StoreError::Denied("who?".into())), "sexton stats").await;
    assert!(ran.out.starts_with("payments\n"), "{}", ran.out);
}

fn led() -> Fake {
    let mut fake =
        Fake::new("orders", vec![letter("1-0", 7_300), DeadLetter { task: "charge".into(), ..letter("2-0", 600) }]);
    fake.leader = Some(Lease { epoch: 3, holder: "pod-1".into() });
    fake
}

#[tokio::test]
async fn stats_are_one_screen_a_source() {
    let fake = led();
    fake.set_lane(
        "oncall",
        Lane::Deaths,
        r#"{"cursor":"5-0","pending":[["4-0",2,1,9]],"failing":{"since":1,"failures":3,"probes":0,"next_at":5}}"#,
    );
    fake.post(OutboxId { ms: 6, seq: 0 }, EventData::JobDead(Box::default()));
    let ran = run(&[Arc::new(fake)], "sexton stats").await;
    let expected = "\
orders
  entries   2, 9 ever
  oldest    2026-11-29T15:11:10.500Z (2h ago)
  newest    2026-11-29T17:02:50.500Z (10m ago)
  ledger    5 deaths, 2 not read yet
  leader    pod-1, epoch 3
  outbox    1 in the deaths lane, 0 in the alerts lane
  hook      oncall deaths: failing for 20786d, at 5-0, backlog 1, pending 1
  hook      oncall alerts: not served yet, at -, backlog 0, pending 0
  among the newest 2 entries:
        2  group 7c1f0e9a2b44  charge: ConnectionError: host 2-0 timed out
        1  task charge
        1  task send_email
";
    assert_eq!(ran.out, expected);
    let ran = run(&[Arc::new(Fake::new("orders", Vec::new()))], "sexton stats").await;
    assert!(
        ran.out.contains("  leader    nobody leads\n") && ran.out.contains("Sexton has never led here"),
        "{}",
        ran.out
    );
    let ran = run(&[Arc::new(led())], "sexton stats -o json").await;
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shown["items"][0]["leader"], serde_json::json!({"holder": "pod-1", "epoch": 3}));
    assert_eq!(shown["items"][0]["hooks"][0]["lanes"][0]["state"], "new");
}

#[tokio::test]
async fn hooks_ls_shows_no_secret() {
    let ran = run(&[Arc::new(led())], "sexton hooks ls").await;
    assert_eq!(
        ran.out,
        "\
HOOK    FORMAT    ADDRESS              EVENTS            RATE  SOURCE  LANE    STATE           BACKLOG  PENDING
oncall  standard  https://alerts.test  job.dead,alert.*  60/m  orders  deaths  not served yet  0        0
oncall  standard  https://alerts.test  job.dead,alert.*  60/m  orders  alerts  not served yet  0        0
"
    );
    let json = run(&[Arc::new(led())], "sexton hooks ls -o json").await;
    let check = run(&[], "sexton check").await;
    assert_eq!(
        check.out,
        "source orders: smallage namespace lrs at redis://redis.test:6380\n\
         hook oncall: standard to https://alerts.test, job.dead, alert.*, 60/m, signed\n"
    );
    for shown in [ran.out, json.out, check.out] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn hooks_test_says_what_became_of_the_event() {
    let id = format!("{}-0", super::fake::now().0);
    let nobody = run(&[Arc::new(Fake::new("orders", Vec::new()))], "sexton hooks test oncall").await;
    assert_eq!(nobody.code(), 1);
    assert!(nobody.failure().contains("nobody leads there: nothing delivers it until"), "{}", nobody.failure());
    for (state, code, expected) in [
        (format!(r#"{{"cursor":"{id}"}}"#), 0, "it worked"),
        (format!(r#"{{"cursor":"{id}","pending":[["{id}",1,1,9]]}}"#), 1, "1 try has failed"),
        (r#"{"cursor":"1-0"}"#.to_owned(), 1, "has not come to it yet"),
        (r#"{"cursor":"1-0","off":"f1"}"#.to_owned(), 1, "switched off"),
        (r#"{"cursor":"1-0","off":"another"}"#.to_owned(), 1, "has not come to it yet"),
    ] {
        let fake = Arc::new(led());
        fake.set_lane("oncall", Lane::Alerts, &state);
        let ran = run(&[Arc::clone(&fake)], "sexton hooks test oncall --wait 0s").await;
        assert_eq!(ran.code(), code, "{state}");
        assert!(ran.failure().contains(expected), "{state}: {}", ran.failure());
        assert!(ran.out.starts_with(&format!("the test event {id} is in the ledger of orders; pod-1 delivers it\n")));
        let outbox = fake.outbox.lock().unwrap();
        assert!(
            matches!(&outbox[0].event.data, EventData::HookTest(HookTest { source, hook, .. }) if source == "orders" && hook == "oncall")
        );
    }
    let ran = run(&[Arc::new(led())], "sexton hooks test nobody").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("there is no hook \"nobody\"; there is oncall", 2));
    let ran = run(&[Arc::new(led())], "sexton hooks test oncall --source x").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("there is no source \"x\"; there is orders", 2));
}

fn with_outbox(events: u64) -> Arc<Fake> {
    let fake = led();
    for n in 1..=events {
        fake.post(OutboxId { ms: n * 1_000, seq: 0 }, EventData::JobDead(Box::default()));
    }
    fake.set_lane("oncall", Lane::Deaths, &format!(r#"{{"cursor":"{}-0"}}"#, events * 1_000));
    Arc::new(fake)
}

fn cursor_of(fake: &Fake) -> String {
    let lanes = fake.lanes.lock().unwrap();
    let state: serde_json::Value = serde_json::from_str(&lanes[&("oncall".to_owned(), "deaths")].state).unwrap();
    state["cursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn hooks_resend_rewinds_whatever_the_leader_saves_meanwhile() {
    let fake = with_outbox(1_200);
    *fake.moves.lock().unwrap() = 3;
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 1970-01-01T00:10:00Z --yes").await;
    assert_eq!(ran.code(), 0, "{}", ran.failure());
    assert_eq!(cursor_of(&fake), format!("599999-{}", u64::MAX));
    assert!(ran.out.starts_with("601 events of the outbox will be read again for oncall"), "{}", ran.out);
    assert!(ran.out.ends_with("orders: the deaths lane reads 601 events again\n"), "{}", ran.out);
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 1970-01-01T00:15:00Z --yes").await;
    assert!(ran.out.ends_with("nothing to send again\n"), "{}", ran.out);
    assert_eq!(cursor_of(&fake), format!("599999-{}", u64::MAX), "never forwards");
}

#[tokio::test]
async fn hooks_resend_asks_first() {
    let asks = Screen { asks: true, ..Screen::default() };
    let line = "sexton hooks resend oncall --since 30000d";
    for (screen, answer, code, rewound) in
        [(Screen::default(), "y\n", 2, false), (asks, "n\n", 1, false), (asks, "", 1, false), (asks, "y\n", 0, true)]
    {
        let fake = with_outbox(3);
        let ran = run_on(&[Arc::clone(&fake)], line, screen, answer).await;
        assert_eq!(ran.code(), code, "{}", ran.failure());
        assert_eq!(cursor_of(&fake) != "3000-0", rewound, "{answer:?}");
    }
}
