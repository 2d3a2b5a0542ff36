//! `retry`, `rm` and `purge`.

use super::*;
use crate::ledger::{Refusal, Removal};

/// A person sits there.
const ASKED: Screen = Screen { width: None, emphasis: false, progress: false, asks: true };

#[tokio::test]
async fn named_entries_have_a_line_each() {
    let sources = two_sources();
    sources[0].hands().refusals = vec![("2-0".into(), Refusal::InFlight)];
    let ran = run(&sources, "sexton retry orders/1-0 orders/2-0 payments/9-0 orders/8-0 orders/1-0 --note back").await;
    assert_eq!(
        ran.out,
        "\
orders/1-0  retried, as 9-1 on its queue
orders/2-0  not retried: a retry of the same job is under way
payments/9-0  retried, as 9-1 on its queue
orders/8-0  not retried: it is no longer in the DLQ
2 entries retried, 2 not: 1 entry_gone, 1 in_flight
"
    );
    assert_eq!((ran.code(), ran.failure().as_str()), (1, "2 of 4 not retried"));
    let by = sources[0].hands().by[0].clone();
    assert!(by.who.contains('@') && by.note == "back" && by.operation.is_empty(), "{by:?}");

    let ran = run(&sources, "sexton rm 2-0").await;
    assert_eq!((ran.out.as_str(), ran.code()), ("orders/2-0  removed\n", 0));
    assert_eq!(sources[0].hands().removed, [(Removal::Removed, "2-0".to_owned())]);
    let ran = run(&sources, "sexton rm 2-0").await;
    assert_eq!((ran.out.as_str(), ran.code()), ("2-0  not removed: it is no longer in the DLQ\n", 1));
}

#[tokio::test]
async fn named_entries_in_json() {
    let ran = run(&two_sources(), "sexton retry orders/1-0 orders/8-0 -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"act":"retry","dry_run":false,"items":[{"source":"orders","entry_id":"1-0","outcome":"retried","#,
            r#""refusal":null,"queue_entry":"9-1"},{"source":"orders","entry_id":"8-0","outcome":"refused","#,
            r#""refusal":"entry_gone","queue_entry":null}],"done":1,"refused":{"entry_gone":1},"stopped":false}"#,
            "\n"
        )
    );
    assert_eq!(ran.code(), 1);
    let sources = two_sources();
    let ran = run(&sources, "sexton retry orders/1-0 --dry-run").await;
    assert_eq!((ran.out.as_str(), ran.code()), ("orders/1-0  would be retried\n", 0));
    assert!(sources[0].hands().retried.is_empty());
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_looked_at() {
    for (line, said) in [
        ("sexton retry", "which entries? Name them, or give filters, or --all for everything there is"),
        ("sexton rm --source orders", "which entries? Name them, or give filters, or --all for everything there is"),
        ("sexton retry 1-0 --task x", "name entries, or filter them, but not both"),
        ("sexton retry 1-0 --source orders", "name entries, or filter them, but not both"),
        ("sexton rm --all --task x", "--all means everything: give it without filters, or filters without it"),
        ("sexton rm bogus", "\"bogus\" is no entry: write ENTRY or SOURCE/ENTRY as `sexton ls` lists them"),
        ("sexton rm nope/1-0", "there is no source \"nope\"; there is orders, payments"),
        ("sexton retry --all", "nobody can be asked here: give --yes, or --dry-run to see how many"),
        ("sexton purge --older-than 1d", "nobody can be asked here: give --yes, or --dry-run to see how many"),
        ("sexton purge --yes", "say how old: --older-than 7d"),
        ("sexton retry --task x --source nope --yes", "no source matches --source nope; there is orders, payments"),
    ] {
        let sources = two_sources();
        let ran = run(&sources, line).await;
        assert_eq!((ran.failure().as_str(), ran.code(), ran.out.as_str()), (said, 2, ""), "{line}");
        let hands = sources[0].hands();
        assert!(hands.scans.is_empty() && hands.by.is_empty(), "{line}");
    }
}

#[tokio::test]
async fn a_filter_is_counted_and_asked_for() {
    for (answer, code, err) in [
        ("n\n", 1, "orders: 2 of 3 entries\npayments: 1 of 1 entry\nRetry 3 entries? [y/N] "),
        ("", 1, "orders: 2 of 3 entries\npayments: 1 of 1 entry\nRetry 3 entries? [y/N] "),
        ("y\n", 0, "orders: 2 of 3 entries\npayments: 1 of 1 entry\nRetry 3 entries? [y/N] "),
    ] {
        let sources = two_sources();
        let ran = run_on(&sources, "sexton retry --task send_*", ASKED, answer).await;
        assert_eq!((ran.err.as_str(), ran.code()), (err, code), "{}", ran.failure());
        if code == 1 {
            assert_eq!((ran.failure().as_str(), ran.out.as_str()), ("nothing was changed", ""));
            assert!(sources.iter().all(|source| source.hands().by.is_empty() && source.hands().notes.is_empty()));
            continue;
        }
        assert_eq!(ran.out, "orders: 2 entries retried\npayments: 1 entry retried\n3 entries retried\n");
        let notes = sources[0].hands().notes.clone();
        assert_eq!((notes[0].1.as_str(), notes[0].2.as_str()), ("begun", r#"a retry of {"task":["send_*"]}"#));
    }
    let ran = run_on(&two_sources(), "sexton retry --task none --source orders", ASKED, "").await;
    assert_eq!((ran.err.as_str(), ran.code()), ("orders: 0 of 3 entries\nnothing to retry\n", 0));
    assert_eq!(ran.out, "0 entries retried\n");
}

#[tokio::test]
async fn a_filter_with_yes_is_done_and_with_dry_run_counted() {
    let sources = two_sources();
    let ran = run(&sources, "sexton rm --source orders --older-than 9m --dry-run").await;
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code()), ("2 entries would be removed\n", "", 0));
    assert_eq!(sources[0].entries().len(), 3);
    let ran = run(&sources, "sexton rm --source orders --older-than 9m --yes").await;
    assert_eq!((ran.out.as_str(), ran.code()), ("2 entries removed\n", 0), "{}", ran.failure());
    assert_eq!(sources[0].entries(), ["3-0"]);
    let ran = run(&sources, "sexton purge --older-than 1m --yes -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"act":"purge","filter":{"older_than":"1m"},"dry_run":false,"matched":2,"done":2,"refused":{},"#,
            r#""stopped":false,"sources":[{"source":"orders","looked_at":1,"matched":1,"done":1,"refused":{}},"#,
            r#"{"source":"payments","looked_at":1,"matched":1,"done":1,"refused":{}}]}"#,
            "\n"
        )
    );
    assert_eq!(sources[1].hands().removed, [(Removal::Purged, "9-0".to_owned())]);
    // Hooks are told of it.
    let told: Vec<String> = sources[1].hands().announced.iter().map(EventData::to_json).collect();
    assert!(told.len() == 1 && told[0].contains(r#""why":"purge""#) && told[0].contains(r#""count":1"#), "{told:?}");
    let ran = run(&two_sources(), "sexton retry --all --yes").await;
    assert!(ran.out.ends_with("\n4 entries retried\n") && ran.code() == 0, "{}", ran.out);
}

#[tokio::test]
async fn refusals_of_a_filter_are_counts_and_no_failure() {
    let sources = two_sources();
    sources[0].hands().refusals = vec![("1-0".into(), Refusal::QueueGone), ("2-0".into(), Refusal::QueueGone)];
    let ran = run(&sources, "sexton retry --source orders --all --yes").await;
    assert_eq!((ran.out.as_str(), ran.code()), ("1 entry retried, 2 not: 2 queue_gone\n", 0));
}

#[tokio::test]
async fn a_store_that_breaks_off_leaves_an_account_and_a_way_on() {
    let letters = (1..=250).map(|n| letter(&format!("{n}-0"), 1_000 - n)).collect();
    let source = [Arc::new(Fake::new("orders", letters))];
    source[0].hands().breaks_after = Some(2);
    let ran = run(&source, "sexton retry --all --yes").await;
    assert_eq!((ran.code(), ran.out.as_str()), (69, "200 entries retried\n"), "{}", ran.failure());
    assert_eq!(ran.err, "broken off; the same command goes on with what is left\n");
    source[0].hands().breaks_after = None;
    let ran = run(&source, "sexton retry --all --yes").await;
    assert_eq!((ran.code(), ran.out.as_str()), (0, "50 entries retried\n"));
    assert_eq!(source[0].hands().retried.len(), 250);
}
