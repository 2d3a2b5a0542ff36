//! `groups` and `audit`.

use super::*;
use crate::{
    ledger::{AuditLine, Judging},
    letter::{Group, Millis},
    triage::fake::now,
};

fn graveyard() -> Fake {
    let of = |entry: &str, age, task: &str, group: char| DeadLetter {
        task: task.into(),
        group: Group(group.to_string().repeat(12)),
        ..letter(entry, age)
    };
    Fake::new(
        "orders",
        vec![
            of("1-0", 7_200, "send_email", 'a'),
            of("2-0", 600, "parse_order", 'b'),
            of("3-0", 300, "send_email", 'a'),
            DeadLetter {
                error: ErrorInfo { kind: "Bad\x1b[2J".into(), message: "two\nlines\u{202e}".into() },
                ..of("4-0", 60, "charge", 'c')
            },
        ],
    )
}

#[tokio::test]
async fn groups_are_listed_by_their_size() {
    let ran = run(&[Arc::new(graveyard())], "sexton groups").await;
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.failure());
    assert_eq!(
        ran.out,
        "\
COUNT  GROUP         FIRST  LAST  LOOP  TASK         QUEUE    REASON        ERROR
    2  aaaaaaaaaaaa  2h     5m    -     send_email   default  max_attempts  ConnectionError: host 3-0 timed out
    1  cccccccccccc  60s    60s   -     charge       default  max_attempts  Bad\\x1b[2J: two\\nlines\\u{202e}
    1  bbbbbbbbbbbb  10m    10m   -     parse_order  default  max_attempts  ConnectionError: host 2-0 timed out
"
    );
    let mut fake = graveyard();
    fake.judging = Judging { generation: 1, fingerprint: rules().fingerprint, ..Judging::default() };
    let ran = run(&[Arc::new(fake)], "sexton groups --limit 2 --older-than 2m").await;
    let loops: Vec<&str> = ran.out.lines().skip(1).map(|row| row.split_whitespace().nth(4).unwrap()).collect();
    assert_eq!(loops, ["waiting", "left"], "{}", ran.out);
    let ran = run(&[Arc::new(graveyard())], "sexton groups --limit 1").await;
    assert_eq!(ran.err, "and 2 more groups with 2 entries; --limit shows more\n");
    let ran = run(&[Arc::new(graveyard())], "sexton groups --task none").await;
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code()), ("", "no entries\n", 0));
}

#[tokio::test]
async fn groups_in_json() {
    let ran = run(&[Arc::new(graveyard())], "sexton groups --limit 1 -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"items":[{"source":"orders","group":"aaaaaaaaaaaa","count":2,"at_least":false,"#,
            r#""first_died_at":"2026-11-29T15:12:50.500Z","last_died_at":"2026-11-29T17:07:50.500Z","#,
            r#""task":"send_email","queue":"default","reason":"max_attempts","#,
            r#""error":{"type":"ConnectionError","message":"host 3-0 timed out"},"entry_id":"3-0","rule":null,"#,
            r#""state":"unknown","in_flight":0,"held_until":null}],"next_cursor":null,"#,
            r#""other":{"groups":2,"entries":2,"estimated":false},"entries":4}"#,
            "\n"
        )
    );
    let ran = run(&[Arc::new(graveyard())], "sexton groups -o jsonl").await;
    assert_eq!(ran.out.lines().count(), 3);
}

#[tokio::test]
async fn a_table_of_groups_fits_the_terminal() {
    for width in [60, 80, 100, 200] {
        let screen = Screen { width: Some(width), ..Screen::default() };
        let ran = run_on(&[Arc::new(graveyard())], "sexton groups", screen, "").await;
        assert!(ran.out.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}:\n{}", ran.out);
        assert!(ran.out.contains("aaaaaaaaaaaa") && ran.out.contains("ERROR"), "{width}:\n{}", ran.out);
    }
}

fn logged() -> Vec<Arc<Fake>> {
    let line = |n: i64, what: &str, by: &str, entry: &str| AuditLine {
        id: format!("{}-0", now().0 - n * 60_000),
        at: Millis(now().0 - n * 60_000),
        what: what.to_owned(),
        by: by.to_owned(),
        entry_id: entry.to_owned(),
        job_id: if entry.is_empty() { String::new() } else { format!("job-{entry}") },
        task: if entry.is_empty() { String::new() } else { "send_email".to_owned() },
        ..AuditLine::default()
    };
    let mut orders = Fake::new("orders", Vec::new());
    orders.log = vec![
        AuditLine { detail: "9-1".into(), ..line(1, "retried", "flaky", "3-0") },
        AuditLine { note: "smtp\x1b is back".into(), ..line(5, "removed", "anna@host", "2-0") },
        AuditLine { detail: "a retry of {}".into(), note: "INC-1".into(), ..line(9, "begun", "anna@host", "") },
    ];
    vec![Arc::new(orders), Arc::new(Fake::new("payments", Vec::new()))]
}

#[tokio::test]
async fn the_audit_log_says_who_did_what() {
    let ran = run(&logged()[..1], "sexton audit").await;
    assert_eq!(
        ran.out,
        "\
AGE  WHAT     BY         ENTRY  TASK        JOB      DETAIL
60s  retried  flaky      3-0    send_email  job-3-0  9-1
5m   removed  anna@host  2-0    send_email  job-2-0  smtp\\x1b is back
9m   begun    anna@host  -      -           -        a retry of {} (INC-1)
"
    );
    assert_eq!((ran.err.as_str(), ran.code()), ("", 0));
    for (line, rows) in [
        ("sexton audit -o jsonl", 3),
        ("sexton audit --since 6m -o jsonl", 2),
        ("sexton audit --since 2026-11-29T17:11:00Z -o jsonl", 1),
        ("sexton audit --entry 2-0 -o jsonl", 1),
        ("sexton audit --entry orders/2-0 -o jsonl", 1),
        ("sexton audit --entry payments/2-0 -o jsonl", 0),
        ("sexton audit --job job-3-0 -o jsonl", 1),
        ("sexton audit --source pay* -o jsonl", 0),
    ] {
        let ran = run(&logged(), line).await;
        assert_eq!((ran.out.lines().count(), ran.code()), (rows, 0), "{line}: {}", ran.failure());
    }
    let ran = run(&logged(), "sexton audit --limit 1 -o json").await;
    let next = format!("orders/{}-0", now().0 - 60_000);
    assert_eq!(
        ran.out,
        format!(
            "{{\"items\":[{{\"source\":\"orders\",\"id\":\"{0}-0\",\"at\":\"2026-11-29T17:11:50.500Z\",\
             \"what\":\"retried\",\"by\":\"flaky\",\"entry_id\":\"3-0\",\"job_id\":\"job-3-0\",\"task\":\"send_email\",\
             \"detail\":\"9-1\",\"note\":null,\"operation\":null}}],\"next_cursor\":\"{next}\"}}\n",
            now().0 - 60_000
        )
    );
    let ran = run(&logged(), &format!("sexton audit --limit 1 -o jsonl --after {next}")).await;
    assert!(ran.out.contains("removed") && ran.err.starts_with("more with --after orders/"), "{}", ran.err);
    for (line, said) in [
        ("sexton audit --after x", "--after: \"x\" is not a cursor of an earlier listing"),
        ("sexton audit --entry bogus", "--entry: \"bogus\" is no entry of a source that is being listed"),
        ("sexton audit --entry nope/1-0", "there is no source \"nope\"; there is orders, payments"),
    ] {
        let ran = run(&logged(), line).await;
        assert_eq!((ran.failure().as_str(), ran.code()), (said, 2), "{line}");
    }
}

#[tokio::test]
async fn completions_and_manual_pages_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&[], &format!("sexton completions {shell}")).await;
        assert!(ran.code() == 0 && ran.out.contains("per-second") && ran.out.contains("resend"), "{shell}");
    }
    let ran = run(&[], "sexton man").await;
    assert!(ran.out.contains(".TH sexton 1") && ran.out.contains("sexton\\-retry(1)"), "{}", ran.out);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man/man1");
    let ran = run(&[], &format!("sexton man --out {}", out.display())).await;
    assert_eq!((ran.code(), ran.out.as_str()), (0, ""), "{}", ran.failure());
    let mut pages: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    for page in ["sexton.1", "sexton-hooks-resend.1", "sexton-purge.1", "sexton-rules-try.1"] {
        assert!(pages.iter().any(|there| there == page), "{page} is not in {pages:?}");
    }
    let purge = std::fs::read_to_string(out.join("sexton-purge.1")).unwrap();
    assert!(purge.contains("older\\-than") && purge.contains("the audit log gets a line for each piece"), "{purge}");
    let ran = run(&[], "sexton man --out /dev/null/x").await;
    assert!(ran.code() == 1 && ran.failure().starts_with("cannot write manual pages to /dev/null/x:"));
}
