//! `check`: what it says, in which form, and how it ends.

use clap::Parser as _;

use super::*;
use crate::{
    cli::Command,
    ledger::{Aspect, Finding},
};

async fn check(config: &Config, sources: Vec<Fake>, line: &str) -> Ran {
    let ledgers: Vec<Arc<dyn SourceLedger>> =
        sources.into_iter().map(|fake| Arc::new(fake) as Arc<dyn SourceLedger>).collect();
    let Command::Check(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("{line}") };
    let (mut out, mut err, mut input) = (Vec::new(), Vec::new(), &b""[..]);
    let mut io = Io { out: &mut out, err: &mut err, input: &mut input, screen: Screen::default() };
    let result = super::super::check::check(config, &ledgers, &args, &mut io).await;
    Ran { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), result }
}

/// Nobody is sent anything.
fn quiet() -> Config {
    Config { hooks: Vec::new(), ..config() }
}

fn found(name: &str, findings: Vec<Finding>) -> Fake {
    let mut fake = Fake::new(name, Vec::new());
    fake.findings = findings;
    fake
}

#[tokio::test]
async fn alert_rules_that_nobody_hears_of_are_warned_of() {
    let mut config = Config { alerts: alerts::rules(), ..config() };
    let heard = check(&config, Vec::new(), "sexton check").await;
    assert!(!heard.out.contains("no hook takes alerts"), "{}", heard.out);
    config.hooks[0].events = vec!["job.*".to_owned()];
    let unheard = check(&config, Vec::new(), "sexton check").await;
    assert_eq!(unheard.code(), 0);
    let told = "\nwarning  there are alert rules, and no hook takes alerts: they only show in metrics and in `sexton \
                alerts`\n         have a hook take them: events: [\"alert.*\", …]\n\n0 errors, 1 warning\n";
    assert!(unheard.out.ends_with(told), "{}", unheard.out);
    config.hooks.clear();
    let nobody = check(&config, Vec::new(), "sexton check -o json").await;
    assert!(nobody.out.ends_with("\"errors\":0,\"warnings\":1}\n"), "{}", nobody.out);
}

#[tokio::test]
async fn what_was_found_is_told_in_every_form_and_decides_the_exit_code() {
    let ok = || Finding::ok(Aspect::Version, "it is fine");
    let warning = || Finding::warning(Aspect::Memory, "it may\nend", "watch it");
    let error = || Finding::error(Aspect::Clock, "it is wrong", "set it");
    let rights =
        || Finding { missing: vec!["+x".into()], ..Finding::unusable(Aspect::Rights, "it may not", "grant it") };
    let table = "\
source orders: smallage namespace lrs at redis://redis.test:6380/2
no hooks: deaths are counted, and nobody is told
no rules: nothing is retried
no alerts: a rising line is seen by nobody

ok       source orders: it is fine
warning  source orders: it may\\nend
         watch it
ok       http 127.0.0.1:0: the port is free here

0 errors, 1 warning
";
    let ran = check(&quiet(), vec![found("orders", vec![ok(), warning()])], "sexton check --connect").await;
    assert_eq!((ran.code(), ran.out.as_str()), (0, table));
    for (findings, code, said) in [
        (vec![error(), warning()], 1, "1 error, 1 warning"),
        (vec![rights()], 69, "1 error, 0 warnings"),
        (vec![error(), rights(), error()], 69, "3 errors, 0 warnings"),
    ] {
        let ran = check(&quiet(), vec![found("orders", findings)], "sexton check --connect").await;
        assert_eq!((ran.code(), ran.failure().as_str(), ran.err.as_str()), (code, "", ""));
        assert!(ran.out.ends_with(&format!("\n\n{said}\n")), "{}", ran.out);
    }
    let ran = check(&quiet(), vec![found("orders", vec![rights()])], "sexton check --connect -o jsonl").await;
    let line = "{\"level\":\"error\",\"about\":\"source\",\"name\":\"orders\",\"check\":\"rights\",\"message\":\"it may \
                not\",\"help\":\"grant it\",\"missing\":[\"+x\"]}";
    assert!(ran.out.lines().any(|shown| shown == line), "{}", ran.out);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_hides_neither_what_was_found_of_it_nor_the_others() {
    let mut hanging = found("orders", vec![Finding::ok(Aspect::Version, "it is fine")]);
    hanging.hangs = true;
    let other = found("mails", vec![Finding::ok(Aspect::Version, "it is, too")]);
    let ran = check(&quiet(), vec![hanging, other], "sexton check --connect").await;
    assert_eq!(ran.code(), 69);
    for shown in [
        "ok       source orders: it is fine\nerror    source orders: it was not all looked at within 10 s, for it answers \
         too slowly\n",
        "ok       source mails: it is, too\n",
    ] {
        assert!(ran.out.contains(shown), "{}", ran.out);
    }
}
