//! What a filter passes.

use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::ledger::{Operation, OperationProgress, OperationState, StoreError};

async fn run(fake: &Fake, bulk: &mut Bulk<'_>, progress: &mut OperationProgress) -> crate::ledger::Result<()> {
    bulk.run(fake, progress, None, &CancellationToken::new(), &mut |_| {}).await
}

#[tokio::test]
async fn the_oldest_go_first_and_what_dies_again_is_not_meant() {
    let fake = Fake::new("orders", letters(1_234));
    fake.hands().dies_again = true;
    let rules = Rules::default();
    let mut progress = OperationProgress::default();
    let mut bulk = Bulk::new(doing(Act::Retry, &rules), filter("{}"), now());
    run(&fake, &mut bulk, &mut progress).await.unwrap();
    assert_eq!((progress.state, progress.done, progress.matched), (OperationState::Done, 1_234, 1_234));
    assert!(progress.ended_at.is_some() && progress.refused.is_empty());
    let hands = fake.hands();
    let order: Vec<&str> = hands.retried.iter().map(|retry| retry.dead.entry_id.as_str()).collect();
    let expected: Vec<String> = (1..=1_234).map(|n| format!("{n}-0")).collect();
    assert_eq!(order, expected);
    assert!(hands.by.len() >= 13, "in pieces of a hundred");
}

#[tokio::test]
async fn only_what_passes_is_done_and_the_rest_is_counted_by_reason() {
    let mut letters = letters(1_000);
    for letter in letters.iter_mut().step_by(3) {
        letter.task = "charge".into();
    }
    letters[4].foreign = true;
    let fake = Fake::new("orders", letters);
    fake.hands().refusals = vec![("3-0".into(), Refusal::InFlight), ("6-0".into(), Refusal::InFlight)];
    let (rules, sends) = (Rules::default(), filter(r#"{"task":["send_*"]}"#));
    let counted = count(&fake, doing(Act::Retry, &rules), &sends, now(), 1_000, &mut silent()).await.unwrap();
    assert_eq!((counted.matched, counted.done), (666, 665), "only the letter itself tells in advance");
    let mut progress = OperationProgress::default();
    let mut bulk = Bulk::new(doing(Act::Retry, &rules), sends, now());
    run(&fake, &mut bulk, &mut progress).await.unwrap();
    assert_eq!((progress.matched, progress.done, progress.looked_at), (666, 663, 1_000));
    let refused = [("foreign_stream".to_owned(), 1), ("in_flight".to_owned(), 2)];
    assert_eq!(progress.refused, BTreeMap::from(refused));
    assert_eq!(fake.entries().len(), 1_000 - 663);
}

#[tokio::test]
async fn two_at_once_do_every_entry_once() {
    let fake = Fake::new("orders", letters(2_000));
    let rules = Rules::default();
    let (mut one, mut two) = (OperationProgress::default(), OperationProgress::default());
    let mut first = Bulk::new(doing(Act::Retry, &rules), filter("{}"), now());
    let mut second = Bulk::new(doing(Act::Retry, &rules), filter("{}"), now());
    while one.state == OperationState::Running || two.state == OperationState::Running {
        first.step(&fake, &mut one, 70).await.unwrap();
        second.step(&fake, &mut two, 100).await.unwrap();
    }
    assert_eq!(one.done + two.done, 2_000);
    assert!(one.done > 0 && two.done > 0, "{} and {}", one.done, two.done);
    let gone =
        one.refused.get("entry_gone").copied().unwrap_or(0) + two.refused.get("entry_gone").copied().unwrap_or(0);
    assert!(gone > 0, "each came too late for some: a count, no failure");
    let hands = fake.hands();
    let mut once: Vec<&str> = hands.retried.iter().map(|retry| retry.dead.entry_id.as_str()).collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 2_000);
}

#[tokio::test]
async fn a_stop_comes_between_two_pieces_and_a_second_run_goes_on() {
    let fake = Fake::new("orders", letters(1_000));
    let rules = Rules::default();
    let stop = CancellationToken::new();
    let mut progress = OperationProgress::default();
    let mut bulk = Bulk::new(doing(Act::Delete, &rules), filter("{}"), now());
    let mut tell = |progress: &OperationProgress| {
        if progress.done >= 500 {
            stop.cancel();
        }
    };
    bulk.run(&fake, &mut progress, None, &stop, &mut tell).await.unwrap();
    assert_eq!((progress.state, progress.done), (OperationState::Running, 500));
    assert_eq!(fake.entries().len(), 500, "what is said to be done is done, and no more");
    let mut again = OperationProgress::default();
    run(&fake, &mut Bulk::new(doing(Act::Delete, &rules), filter("{}"), now()), &mut again).await.unwrap();
    assert_eq!((again.state, again.done), (OperationState::Done, 500));
    assert!(fake.entries().is_empty());
}

#[tokio::test]
async fn another_leader_goes_on_from_the_progress_that_was_saved() {
    let fake = Fake::new("orders", letters(1_000));
    let operation = Operation {
        id: "op1".into(),
        act: Act::Retry,
        filter: serde_json::json!({"task": ["send_*"]}),
        by: anna(),
        dry_run: false,
        per_second: None,
        asked_at: now(),
    };
    let rules = rules();
    let mut progress = OperationProgress::default();
    let mut first = Bulk::of(&operation, &rules).unwrap();
    assert!(!first.waits());
    for _ in 0..3 {
        first.step(&fake, &mut progress, 100).await.unwrap();
    }
    assert!(first.waits() && progress.done == 300);
    // The store breaks off in the middle of a piece: what was saved last is gone on from.
    fake.hands().breaks_after = Some(0);
    let saved = progress.clone();
    let broken = first.step(&fake, &mut progress, 100).await;
    assert!(matches!(broken, Err(StoreError::Unavailable(_))));
    assert_eq!(progress, saved);
    fake.hands().breaks_after = None;
    let mut second = Bulk::of(&operation, &rules).unwrap();
    run(&fake, &mut second, &mut progress).await.unwrap();
    assert_eq!((progress.state, progress.done, progress.looked_at), (OperationState::Done, 1_000, 1_000));
    assert!(fake.hands().by.iter().all(|by| by.operation == "op1" && by.who == "anna@host"));
    // Whatever has ended stays as it is.
    let ended = progress.clone();
    second.step(&fake, &mut progress, 100).await.unwrap();
    assert_eq!(progress, ended);

    let bad = Operation { filter: serde_json::json!({"tusk": []}), ..operation };
    assert_eq!(Bulk::of(&bad, &rules).err().unwrap().field, "filter");
}

#[tokio::test]
async fn with_a_pace_no_more_go_than_it_says() {
    let fake = Fake::new("orders", letters(60));
    let rules = Rules::default();
    let mut progress = OperationProgress::default();
    let began: Instant = crate::clock::monotonic();
    let mut bulk = Bulk::new(doing(Act::Retry, &rules), filter("{}"), now());
    let mut at = Vec::new();
    let mut tell = |progress: &OperationProgress| at.push((began.elapsed(), progress.done));
    bulk.run(&fake, &mut progress, Some(100), &CancellationToken::new(), &mut tell).await.unwrap();
    assert_eq!(progress.done, 60);
    for (after, done) in at {
        assert!(done <= u64::try_from(after.as_millis()).unwrap() / 10 + 1, "{done} after {after:?}");
    }
}

#[tokio::test]
async fn ids_of_the_future_are_no_reason_to_leave_an_entry() {
    // In the fake it is the death that tells when an entry was added, so here they are told apart by the filter alone.
    let mut late = letter("5-0", -3_600);
    late.task = "late".into();
    let fake = Fake::new("orders", vec![letter("1-0", 60), late]);
    let rules = Rules::default();
    let mut progress = OperationProgress::default();
    run(&fake, &mut Bulk::new(doing(Act::Delete, &rules), filter("{}"), now()), &mut progress).await.unwrap();
    assert_eq!((progress.done, fake.entries()), (1, vec!["5-0".to_owned()]), "it is still to come");
}
