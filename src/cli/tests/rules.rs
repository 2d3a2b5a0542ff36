//! `rules try`.

use super::*;
use crate::{
    ledger::Judging,
    letter::Group,
    rule::{Terms, Window, Zone},
};

/// Twelve entries of every kind.
fn graveyard() -> Fake {
    let of = |entry: &str, age, task: &str, group: char| DeadLetter {
        task: task.into(),
        group: Group(group.to_string().repeat(12)),
        ..letter(entry, age)
    };
    let mut fake = Fake::new(
        "orders",
        vec![
            of("1-0", 7_200, "send_email", 'a'),
            of("2-0", 7_200, "send_email", 'a'),
            DeadLetter { job_id: "job-2-0".into(), ..of("3-0", 7_200, "send_email", 'b') },
            of("4-0", 7_200, "send_sms", 'c'),
            of("5-0", 7_200, "send_sms", 'd'),
            of("6-0", 60, "send_email", 'a'),
            of("7-0", 60, "parse_order", 'e'),
            of("8-0", 60, "else", 'f'),
            DeadLetter { reason: Reason::Malformed, ..of("9-0", 60, "send_email", 'a') },
            DeadLetter { foreign: true, ..of("10-0", 60, "", 'a') },
        ],
    );
    fake.jobs = BTreeMap::from([
        ("job-4-0".into(), JobCounts { deaths: 4, retries: 3 }),
        // Its next retry needs four times the age.
        ("job-5-0".into(), JobCounts { deaths: 3, retries: 2 }),
        ("job-6-0".into(), JobCounts { deaths: 2, retries: 1 }),
    ]);
    fake.judging = Judging { generation: 1, fingerprint: rules().fingerprint, ..Judging::default() };
    fake
}

#[tokio::test]
async fn every_entry_is_counted_under_what_decides_about_it() {
    let ran = run(&[Arc::new(graveyard())], "sexton rules try").await;
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.failure());
    assert_eq!(
        ran.out,
        "\
RULE                   ACTION  ENTRIES  JOBS  SPENT  DUE NOW  FIRST DUE
flaky                  retry         6     5      1        4  now
bugs                   leave         1     1      -        -  -
no rule                none          1     1      -        -  -
never: malformed       none          1     1      -        -  -
never: foreign_stream  none          1     1      -        -  -

flaky
         3  group aaaaaaaaaaaa  send_email: ConnectionError: host 6-0 timed out
         1  group bbbbbbbbbbbb  send_email: ConnectionError: host 3-0 timed out
         1  group cccccccccccc  send_sms: ConnectionError: host 4-0 timed out
            and 1 more group

bugs
         1  group eeeeeeeeeeee  parse_order: ConnectionError: host 7-0 timed out

no rule
         1  group ffffffffffff  else: ConnectionError: host 8-0 timed out

never: malformed
         1  group aaaaaaaaaaaa  send_email: ConnectionError: host 9-0 timed out

never: foreign_stream
         1  group aaaaaaaaaaaa  ConnectionError: host 10-0 timed out

10 entries: 5 to be retried, 4 of them due now; 1 with no retry left; 4 that no rule retries
orders: these rules are in force
"
    );
}

#[tokio::test]
async fn json_has_the_same_numbers() {
    let ran = run(&[Arc::new(graveyard())], "sexton rules try -o json --task send_sms --task parse_*").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"items":[{"rule":"flaky","action":"retry","why":null,"entries":2,"jobs":2,"jobs_estimated":false,"#,
            r#""spent":1,"due_now":1,"first_due":"2026-11-29T15:55:02.432Z","groups":[{"group":"cccccccccccc","#,
            r#""count":1,"task":"send_sms","error":{"type":"ConnectionError","message":"host 4-0 timed out"}},"#,
            r#"{"group":"dddddddddddd","count":1,"task":"send_sms","error":{"type":"ConnectionError","message":"#,
            r#""host 5-0 timed out"}}],"groups_estimated":false},{"rule":"bugs","action":"leave","why":null,"#,
            r#""entries":1,"jobs":1,"jobs_estimated":false,"spent":0,"due_now":0,"first_due":null,"groups":["#,
            r#"{"group":"eeeeeeeeeeee","count":1,"task":"parse_order","error":{"type":"ConnectionError","message":"#,
            r#""host 7-0 timed out"}}],"groups_estimated":false}],"totals":{"entries":3,"retry":1,"due_now":1,"#,
            r#""spent":1,"stay":1},"sources":[{"source":"orders","scanned":10,"rules_in_force":true}]}"#,
            "\n"
        )
    );
    let ran = run(&[Arc::new(graveyard())], "sexton rules try -o json").await;
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let why: Vec<_> = shown["items"].as_array().unwrap().iter().map(|item| item["why"].as_str()).collect();
    assert_eq!(why, [None, None, Some("no_rule"), Some("malformed"), Some("foreign_stream")]);
    assert_eq!(shown["items"][4]["groups"][0]["task"], serde_json::Value::Null);
}

#[tokio::test]
async fn sources_are_counted_together_and_their_rules_told_apart() {
    let mut payments = Fake::new("payments", vec![letter("1-0", 60)]);
    payments.judging = Judging { generation: 1, fingerprint: "others".into(), ..Judging::default() };
    let sources = [Arc::new(graveyard()), Arc::new(payments), Arc::new(Fake::new("mails", Vec::new()))];
    let ran = run(&sources, "sexton rules try").await;
    assert!(ran.out.contains("\n11 entries: 6 to be retried"), "{}", ran.out);
    assert!(
        ran.out.ends_with(
            "orders: these rules are in force\npayments: these rules are not in force: the leader works by \
             others\nmails: these rules are not in force: no leader has adopted any\n"
        ),
        "{}",
        ran.out
    );
    let ran = run(&sources, "sexton rules try --source pay*").await;
    assert!(ran.out.contains("\n1 entry: 1 to be retried, 0 of them due now"), "{}", ran.out);
    let ran = run(&sources, "sexton rules try --source nope").await;
    assert_eq!(ran.code(), 2, "{}", ran.failure());
}

#[tokio::test]
async fn without_rules_or_entries_there_is_still_an_answer() {
    let empty = [Arc::new(Fake::new("orders", Vec::new()))];
    let ran = run(&empty, "sexton rules try").await;
    assert!(ran.out.starts_with("RULE") && ran.out.contains("\nflaky  retry         0     0"), "{}", ran.out);
    assert!(ran.out.contains("\n0 entries: 0 to be retried"), "{}", ran.out);
    let ran = run_under(&empty, Ok(Rules::default()), "sexton rules try", Screen::default(), "").await;
    assert_eq!(
        ran.out,
        "0 entries: 0 to be retried, 0 of them due now; 0 with no retry left; 0 that no rule retries\norders: no rules \
         are in force, and none were given\n"
    );
}

/// When the first of some entries that died two hours ago is due under this window.
async fn first_due(window: &str) -> serde_json::Value {
    let window = Window::parse(window, Zone::UTC).unwrap();
    let terms = Terms { window: Some(window), ..Terms::default() };
    let rule = RetryRule { name: "r".into(), matcher: Matcher::default(), action: Action::Retry(Box::new(terms)) };
    let fake = [Arc::new(Fake::new("orders", vec![letter("1-0", 7_200)]))];
    let ran = run_under(&fake, Ok(Rules::new(vec![rule])), "sexton rules try -o json", Screen::default(), "").await;
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    serde_json::json!([shown["items"][0]["due_now"], shown["items"][0]["first_due"]])
}

#[tokio::test]
async fn nothing_is_due_while_the_window_is_closed() {
    // It is 17:12; the window was open when the entry became due, and is not any more.
    assert_eq!(first_due("* 15 * * *").await, serde_json::json!([0, "2026-11-30T15:00:00.000Z"]));
    assert_eq!(first_due("* 15-17 * * *").await[0], 1);
    assert_eq!(first_due("* 18 * * *").await, serde_json::json!([0, "2026-11-29T18:00:00.000Z"]));
}

#[tokio::test]
async fn nothing_harmful_is_shown_and_a_narrow_terminal_suffices() {
    let bad = DeadLetter {
        task: "send_\x1b[2J\u{202e}".into(),
        error: ErrorInfo { kind: "E\x1b".into(), message: "two\nlines".into() },
        ..letter("1-0", 60)
    };
    let mut fake = graveyard();
    fake.letters_mut().push(bad);
    let source = [Arc::new(fake)];
    for line in ["sexton rules try", "sexton rules try -o json"] {
        let ran = run(&source, line).await;
        assert!(ran.out.contains("x1b[2J") || ran.out.contains("u001b[2J"), "{}", ran.out);
        assert!(!ran.out.contains('\x1b') && !ran.out.contains('\u{202e}'), "{}", ran.out);
    }
    let ran = run_on(&source, "sexton rules try", Screen { width: Some(68), ..Screen::default() }, "").await;
    let heads: Vec<&str> = ran.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads.join(" "), "RULE ACTION ENTRIES SPENT DUE NOW FIRST DUE", "{}", ran.out);
}

#[tokio::test]
async fn very_many_jobs_and_groups_are_estimates_and_marked_as_such() {
    let of = |n: u32| {
        let group = if n.is_multiple_of(4) { 0 } else { n };
        let task = if n.is_multiple_of(2) { "send_email" } else { "parse_order" };
        DeadLetter { group: Group(format!("{group:012x}")), task: task.into(), ..letter(&format!("{n}-0"), 60) }
    };
    let source = [Arc::new(Fake::new("orders", (0..10_000).map(of).collect()))];
    let ran = run(&source, "sexton rules try").await;
    let row: Vec<&str> = ran.out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[2]), ("flaky", "5,000"), "{}", ran.out);
    assert!(row[3].starts_with('~'), "{}", ran.out);
    let groups: Vec<&str> = ran.out.split("\n\n").collect();
    assert!(groups[1].starts_with("flaky\n    ~2,5") && groups[1].ends_with("and many more groups"), "{}", ran.out);
    assert_eq!(groups[1].lines().count(), 3, "{}", ran.out);
    assert_eq!(groups[2], "bugs\n            many groups, none of them large");
    let ran = run(&source, "sexton rules try -o json").await;
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let item = &shown["items"][0];
    assert_eq!((&item["jobs_estimated"], &item["groups_estimated"]), (&true.into(), &true.into()));
    assert!((4_500..=5_000).contains(&item["jobs"].as_u64().unwrap()), "{item}");
}
