//! `show` and `errors`.

use super::*;
use crate::{cli::attempts::write_lives, triage::lives_of};

fn failed_three_times() -> DeadLetter {
    let attempt = |number, kind: &str| Attempt {
        number: Some(number),
        error: ErrorInfo { kind: kind.into(), message: "no".into() },
    };
    DeadLetter {
        job_id: "job".into(),
        history: vec![attempt(0, "TimeoutError"), attempt(1, "OSError\r")],
        verdict: Verdict::Mixed,
        detail: b"Traceback (most recent call last):\n  File\x1b\xff\nConnectionError: host 2-0 timed out\n".to_vec(),
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

Traceback (80 bytes)
  Traceback (most recent call last):
    File\\x1b\u{fffd}
  ConnectionError: host 2-0 timed out

Payload (7 bytes, JSON)
  {
    \"i\": 1
  }

Record (2 fields, 184 bytes)
  v               1
";
    let record = format!("  \u{fffd}\\r             {}…\n", "é\\n".repeat(50));
    assert_eq!(ran.out, format!("{expected}{record}"));
    for (name, code, expected) in [
        ("7-0", 1, "there is no entry 7-0"),
        ("bogus", 2, "\"bogus\" is no entry: write ENTRY or SOURCE/ENTRY as `sexton ls` lists them"),
        ("orders/", 2, "\"orders/\" is no entry: write ENTRY or SOURCE/ENTRY as `sexton ls` lists them"),
        ("nope/2-0", 2, "there is no source \"nope\"; the only one here is called orders"),
    ] {
        let ran = run(&source, &format!("sexton show {name}")).await;
        assert_eq!((ran.code(), ran.failure().as_str()), (code, expected));
    }
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
    let source = [Arc::new(Fake::new("orders", vec![earlier, failed_three_times(), killed()]))];
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

over all 2 deaths: attempts failed in different ways
"
    );
    // An entry stands for its job.
    assert_eq!(run(&source, "sexton errors 1-0").await.out, ran.out);
    let ran = run(&source, "sexton errors orders/3-0 -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"items":[{"source":"orders","entry_id":"3-0","job_id":"other","task":"send_email","#,
            r#""reason":"max_deliveries","died_at":"2026-11-29T17:11:50.500Z","#,
            r#""error":{"type":null,"message":"delivered 4 times"},"history":"unknown","attempts":[]}],"history":"unknown","complete":true}"#,
            "\n"
        )
    );
    let ran = run(&source, "sexton errors nope/3-0").await;
    assert_eq!(ran.code(), 2, "{}", ran.failure());
    let ran = run(&source, "sexton errors nobody").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("no entry and no job in a DLQ is called nobody", 1));
}

/// Buried without having failed.
fn killed() -> DeadLetter {
    DeadLetter {
        job_id: "other".into(),
        reason: Reason::MaxDeliveries,
        error: ErrorInfo { kind: String::new(), message: "delivered 4 times".into() },
        detail: b"delivered 4 times".to_vec(),
        attempts: 0,
        deliveries: 4,
        verdict: Verdict::Unknown,
        ..letter("3-0", 60)
    }
}

async fn shown(letter: DeadLetter, command: &str) -> String {
    let entry = letter.entry_id.clone();
    let ran = run(&[Arc::new(Fake::new("orders", vec![letter]))], &format!("sexton {command} {entry}")).await;
    assert_eq!(ran.code(), 0, "{}", ran.failure());
    ran.out
}

#[tokio::test]
async fn what_ended_a_job_without_a_failed_attempt_is_called_none() {
    let out = shown(killed(), "show").await;
    assert!(out.contains("\n  attempts    0 failed attempts, 4 deliveries of the last queue entry\n"), "{out}");
    assert!(out.contains("\nDetail (17 bytes)\n  delivered 4 times\n"), "{out}");
    assert!(!out.contains("Attempts") && !out.contains("Traceback"), "{out}");
    let malformed = DeadLetter {
        reason: Reason::Malformed,
        detail: b"Traceback (most recent call last):\nBad: no\n".to_vec(),
        ..killed()
    };
    let out = shown(malformed, "show").await;
    assert!(out.contains("\nTraceback (43 bytes)\n") && !out.contains("Attempts"), "{out}");
    assert_eq!(
        shown(killed(), "errors").await,
        "\
orders/3-0  2026-11-29T17:11:50.500Z (60s ago)
job other, task send_email, reason max_deliveries
        no failed attempt recorded
ended by: delivered 4 times
too few attempts to tell
"
    );
}

#[tokio::test]
async fn deaths_of_an_entry_without_a_job_id_are_never_counted() {
    let nameless = || DeadLetter { job_id: String::new(), ..letter("2-0", 60) };
    let out = shown(nameless(), "show").await;
    assert!(out.contains("\n  deaths      no job id, so its deaths cannot be counted\n"), "{out}");
    let shown: serde_json::Value = serde_json::from_str(&shown(nameless(), "show -o json").await).unwrap();
    let ran = run(&[Arc::new(Fake::new("orders", vec![nameless()]))], "sexton ls -o jsonl").await;
    let listed: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&shown["deaths"], &listed["deaths"]), (&1.into(), &1.into()), "as in its event");
}

#[tokio::test]
async fn an_error_that_is_not_the_last_failure_s_says_where_it_is_from() {
    let mut detail = b"Traceback (most recent call last):\nKeyError: 'a'\n\nDuring handling of the above exception, \
                       another exception occurred:\n\nTraceback (most recent call last):\n"
        .to_vec();
    detail.resize(8_192, b' ');
    let recorded = |n| Attempt { number: Some(n), error: ErrorInfo { kind: "OSError".into(), message: "down".into() } };
    let letter = DeadLetter {
        error: recorded(1).error,
        history: vec![recorded(0), recorded(1)],
        detail,
        ..failed_three_times()
    };
    let out = shown(letter.clone(), "show").await;
    for expected in [
        "\n  error       OSError: down\n              (from the history: the traceback is cut before it tells the last failure)\n",
        "\n     2  OSError: down\n     3  the record does not tell how\n",
        "\nTraceback (8,192 bytes, cut: the framework kept no more)\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
    let errors = shown(letter.clone(), "errors").await;
    assert!(errors.contains("\nthe traceback is cut before it tells the last failure\n"), "{errors}");
    let json: serde_json::Value = serde_json::from_str(&shown(letter, "show -o json").await).unwrap();
    assert_eq!((&json["traceback_cut"], &json["error_from_history"]), (&true.into(), &true.into()));
    let json: serde_json::Value = serde_json::from_str(
        &shown(
            DeadLetter { detail: b"OSError: down".to_vec(), error: recorded(1).error, ..failed_three_times() },
            "show -o json",
        )
        .await,
    )
    .unwrap();
    assert_eq!((&json["traceback_cut"], &json["error_from_history"]), (&false.into(), &false.into()));
}

fn attempts(numbers: &[u32], attempts: u32) -> String {
    let attempt = |number: &u32| Attempt {
        number: Some(*number),
        error: ErrorInfo { kind: "E".into(), message: number.to_string() },
    };
    let history = numbers.iter().map(attempt).collect();
    let error = ErrorInfo { kind: "E".into(), message: "last".into() };
    let detail = b"E: last".to_vec();
    let letter = DeadLetter { attempts, history, error, detail, ..letter("1-0", 1) };
    let mut out = Vec::new();
    write_lives(&mut out, &lives_of(&letter)).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn attempts_the_record_no_longer_holds_are_mentioned() {
    assert_eq!(attempts(&[4], 6), "        4 attempts before these, not recorded\n     5  E: 4\n     6  E: last\n");
    assert_eq!(attempts(&[1], 3), "        1 attempt before these, not recorded\n     2  E: 1\n     3  E: last\n");
    assert_eq!(attempts(&[], 1), "     1  E: last\n");
}

#[test]
fn each_life_of_a_job_is_numbered_for_itself() {
    const BREAK: &str = "        — buried, put back, ran again; what buried it is not recorded here —\n";
    assert_eq!(
        attempts(&[0, 1, 0, 1], 3),
        format!("     1  E: 0\n     2  E: 1\n{BREAK}     1  E: 0\n     2  E: 1\n     3  E: last\n")
    );
    assert_eq!(attempts(&[0, 1], 1), format!("     1  E: 0\n     2  E: 1\n{BREAK}     1  E: last\n"));
    let waits = DeadLetter { history: failed_three_times().history, ..killed() };
    let mut out = Vec::new();
    write_lives(&mut out, &lives_of(&waits)).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("     1  TimeoutError: no\n     2  OSError\\r: no\n{BREAK}        no failed attempt recorded\n")
    );
    let lives: Vec<u32> = lives_of(&waits).concat().iter().map(|attempt| attempt.life).collect();
    assert_eq!(lives, [1, 1]);
}
