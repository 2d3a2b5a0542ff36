//! `ls`.

use super::*;

#[tokio::test]
async fn ls_lists_newest_first_and_source_after_source() {
    let ran = run(&two_sources(), "sexton ls").await;
    assert_eq!(
        ran.out,
        "AGE  ENTRY         TASK        QUEUE    REASON        GROUP         ERROR\n\
         5m   orders/3-0    charge      default  max_attempts  7c1f0e9a2b44  ConnectionError: host 3-0 timed out\n\
         10m  orders/2-0    send_email  default  max_attempts  7c1f0e9a2b44  ConnectionError: host 2-0 timed out\n\
         2h   orders/1-0    send_email  default  max_attempts  7c1f0e9a2b44  ConnectionError: host 1-0 timed out\n\
         2d   payments/9-0  send_email  -        max_attempts  7c1f0e9a2b44  Bad\\x1b[2J: two\\nlines\\u{202e}\n"
    );
    assert_eq!((ran.err.as_str(), ran.code()), ("", 0));
}

#[tokio::test]
async fn a_narrow_terminal_loses_columns_before_the_error_is_cut_short() {
    for (width, head) in [
        (50, "AGE ENTRY TASK ERROR"),
        (61, "AGE ENTRY TASK ERROR"),
        (74, "AGE ENTRY TASK ERROR"),
        (80, "AGE ENTRY TASK REASON ERROR"),
        (90, "AGE ENTRY TASK REASON GROUP ERROR"),
        (100, "AGE ENTRY TASK QUEUE REASON GROUP ERROR"),
        (200, "AGE ENTRY TASK QUEUE REASON GROUP ERROR"),
    ] {
        let screen = Screen { width: Some(width), ..Screen::default() };
        let ran = run_on(&two_sources(), "sexton ls", screen, "").await;
        assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
        assert!(ran.out.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}:\n{}", ran.out);
        let shown: Vec<&str> = ran.out.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(shown.join(" "), head, "{width}:\n{}", ran.out);
        assert!(ran.out.contains("orders/3-0"), "{}", ran.out);
        let error = ran.out.lines().nth(1).unwrap().split_once("ConnectionError").unwrap().1;
        assert!(width < 61 || error.chars().count() >= 30 - "ConnectionError".len(), "{width}:\n{}", ran.out);
    }
}

#[tokio::test]
async fn one_long_error_widens_no_row_of_a_listing_that_is_piped() {
    let long = ErrorInfo { kind: "E".into(), message: "x".repeat(2_000) };
    let letters = vec![
        letter("1-0", 60),
        DeadLetter { error: long, task: "t".repeat(500), ..letter("2-0", 60) },
        letter("3-0", 60),
    ];
    let ran = run(&[Arc::new(Fake::new("orders", letters))], "sexton ls").await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[2].ends_with("xx…"), "{}", ran.out);
    assert!(lines.iter().all(|line| line.chars().count() < 350 && line.trim_end() == *line), "{}", ran.out);
    assert!(lines[1].chars().count() < 180, "{}", ran.out);
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
    assert_eq!(shown, [("2-0", 4, 3), ("1-0", 0, 0)], "the ledger does not know job-1-0");
    assert_eq!(ran.err, "more with --after payments/\n");

    for (line, expected) in [
        ("sexton ls --after 3-0", "--after: \"3-0\" is not a cursor of an earlier listing"),
        ("sexton ls --after other/3-0", "--after: \"other/3-0\" is of a source that is not being listed"),
        ("sexton ls --after orders/bogus", "--after: \"orders/bogus\" is not a cursor of an earlier listing"),
        (
            "sexton ls --source pay* --after orders/3-0",
            "--after: \"orders/3-0\" is not of the only source being listed, which is called payments",
        ),
        ("sexton ls --source x*", "no source matches --source x*; there is orders, payments"),
        ("sexton ls --source orders --source x*", "no source matches --source x*; there is orders, payments"),
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
