//! The commands as people type them, against sources in memory: what comes out, byte for byte, and how it ends.

mod acts;
mod alerts;
mod check;
mod explain;
mod groups;
mod hooks;
mod ls;
mod rules;
mod show;
mod stats;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::{CommandFactory as _, Parser as _};

use super::{
    Cli, Command,
    exit::Failure,
    io::{Io, Screen},
};
use crate::{
    config::{
        Config, Format, HookConfig, HttpConfig, LogConfig, LogFormat, OutboxConfig, Rate, RulesSource, Secret,
        SecretSource, SmallageConfig, SourceConfig, SourceKind,
    },
    event::{EventData, HookTest, Include, JobDead, Lane},
    ledger::{JobCounts, Lease, OutboxId, SourceLedger, StoreError, TriageLedger},
    letter::{Attempt, DeadLetter, ErrorInfo, Reason, Verdict},
    rule::{Action, Globs, Matcher, RetryRule, Rules},
    triage::{
        Measure,
        fake::{Fake, letter},
    },
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
                sentinel: None,
            }),
        }],
        hooks: vec![HookConfig {
            name: "oncall".into(),
            url: url("https://user:hush@alerts.test/services/T0/hush?token=hush"),
            format: Format::Standard,
            secrets: vec![SecretSource::Inline(Secret::new("whsec_hush"))],
            routing_key: None,
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
        http: HttpConfig { listen: "127.0.0.1:0".into(), tokens: Vec::new() },
        retention: crate::config::RetentionConfig::default(),
        lease_ttl: Duration::from_secs(10),
        sample_every: Duration::from_secs(5),
        outbox: OutboxConfig { cap: 50_000, keep: Duration::from_secs(86_400) },
        announce_existing: false,
        rules_source: RulesSource::default(),
        rules: Rules::default(),
        alerts: Vec::new(),
        digest: None,
        log: LogConfig { format: LogFormat::Text, level: "info".into() },
    }
}

/// Rules that retry what sends, and leave what parses.
fn rules() -> Rules {
    let task = |glob: &str| Matcher {
        task: Some(Globs::new(&[globset::Glob::new(glob).unwrap()]).unwrap()),
        ..Matcher::default()
    };
    let rule = |name: &str, glob, action| RetryRule { name: name.to_owned(), matcher: task(glob), action };
    Rules::new(vec![rule("flaky", "send_*", Action::Retry(Box::default())), rule("bugs", "parse_*", Action::Leave)])
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
    run_under(sources, Ok(rules()), line, screen, answer).await
}

/// The same, with other rules.
async fn run_under(
    sources: &[Arc<Fake>],
    rules: Result<Rules, Failure>,
    line: &str,
    screen: Screen,
    answer: &str,
) -> Ran {
    let ledgers: Vec<Arc<dyn TriageLedger>> =
        sources.iter().map(|fake| Arc::clone(fake) as Arc<dyn TriageLedger>).collect();
    let watched: Vec<Arc<dyn SourceLedger>> =
        sources.iter().map(|fake| Arc::clone(fake) as Arc<dyn SourceLedger>).collect();
    let cli = Cli::try_parse_from(line.split(' ')).unwrap();
    let (mut out, mut err, mut input) = (Vec::new(), Vec::new(), answer.as_bytes());
    let mut io = Io { out: &mut out, err: &mut err, input: &mut input, screen };
    let result = match &cli.command {
        Command::Check(args) => super::check::check(&config(), &watched, args, &mut io).await,
        Command::Ls(args) => super::ls::ls(&config().sources, &ledgers, &rules.unwrap(), args, &mut io).await,
        Command::Show(args) => super::show::show(&ledgers, args, &mut io).await,
        Command::Errors(args) => super::errors::errors(&ledgers, args, &mut io).await,
        Command::Explain(args) => super::explain::explain(&ledgers, rules, args, &mut io).await,
        Command::Rules(args) => super::rules::rules(&config().sources, &ledgers, &rules.unwrap(), args, &mut io).await,
        Command::Alerts(args) => {
            let alert_rules = alerts::rules();
            let measure = Measure { rules: &alert_rules, sample_every: config().sample_every };
            super::alerts::alerts(&config().sources, &watched, measure, args, &mut io).await
        }
        Command::Stats(args) => super::stats::stats(&config(), &watched, args, &mut io).await,
        Command::Hooks(args) => super::hooks::hooks(&config(), &ledgers, args, &mut io).await,
        Command::Groups(args) => {
            super::groups::groups(&config().sources, &ledgers, &rules.unwrap(), args, &mut io).await
        }
        Command::Retry(args) => super::act::retry(&ledgers, &rules.unwrap(), args, &mut io).await,
        Command::Rm(args) => super::act::remove(&ledgers, args, &mut io).await,
        Command::Purge(args) => super::act::purge(&ledgers, args, &mut io).await,
        Command::Audit(args) => super::audit::audit(&ledgers, args, &mut io).await,
        Command::Completions(args) => super::manual::completions(Cli::command(), args, &mut io),
        Command::Man(args) => super::manual::man(Cli::command(), args, &mut io),
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
                ["", "hooks ", "rules "]
                    .iter()
                    .any(|of| notes.contains(&format!("  sexton {of}{}", command.get_name()))),
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
        ("sexton ls --group 7c1f0e9a2b44 --group 7C1F0E9A2B44", true),
        ("sexton ls --group abc", false),
        ("sexton ls --group 7c1f0e9a2b4x", false),
        ("sexton ls --reason max_attempts --reason shed", true),
        ("sexton ls --reason max_attempt", false),
        ("sexton ls --older-than soon", false),
        ("sexton ls --older-than 7d --newer-than 9d", true),
        ("sexton ls -o yaml", false),
        ("sexton show", false),
        ("sexton show 1-0 -o json", true),
        ("sexton show 1-0 -o table", false),
        ("sexton explain", false),
        ("sexton explain 1-0 -o json", true),
        ("sexton explain 1-0 -o table", false),
        ("sexton explain 1-0 --rules a.yaml --rules b/ --smallage redis://x", true),
        ("sexton rules", false),
        ("sexton rules try", true),
        ("sexton rules try -c a.yaml --rules a.yaml --task send_* -o json", true),
        ("sexton rules try --limit 3", false),
        ("sexton check --connect --no-send -o jsonl", true),
        ("sexton check --no-send", false),
        ("sexton hooks", false),
        ("sexton hooks ls -c a.yaml", true),
        ("sexton hooks ls --smallage redis://x", false),
        ("sexton hooks resend oncall", false),
        ("sexton hooks resend oncall --since yesterday", false),
        ("sexton hooks resend oncall --since 2h", true),
        ("sexton hooks resend oncall --since 2026-11-29T17:00:00Z", true),
        ("sexton alerts", true),
        ("sexton alerts --source ord* --rules rules/ -o jsonl", true),
        ("sexton alerts -o text", false),
        ("sexton run --log-level info,sexton::hook=debug", true),
        ("sexton run --log-level sexton=loud", false),
        ("sexton run --log-level inof", false),
        ("sexton -v ls", true),
        ("sexton ls -v", true),
    ] {
        assert_eq!(Cli::try_parse_from(line.split(' ')).is_ok(), accepted, "{line}");
    }
}

#[test]
fn a_reason_mistyped_is_told_the_nearest() {
    let refused = Cli::try_parse_from(["sexton", "ls", "--reason", "max_attempt"]).unwrap_err().to_string();
    assert!(refused.contains("a similar value exists: 'max_attempts'"), "{refused}");
    let refused = Cli::try_parse_from(["sexton", "ls", "--group", "abc"]).unwrap_err().to_string();
    assert!(refused.contains("a group is 12 hexadecimal digits"), "{refused}");
}

#[tokio::test]
async fn a_store_that_fails_ends_with_69_and_hides_no_other_source() {
    let broken = |error| {
        let mut fake = Fake::new("orders", Vec::new());
        fake.broken = Some(error);
        [Arc::new(fake), Arc::new(Fake::new("payments", vec![letter("9-0", 60)]))]
    };
    for line in [
        "sexton ls",
        "sexton show 1-0",
        "sexton errors x",
        "sexton explain 1-0",
        "sexton explain x",
        "sexton rules try",
        "sexton alerts",
        "sexton stats",
        "sexton hooks ls",
    ] {
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
