//! Entries that are named one by one.

use super::*;
use crate::ledger::Removal;

fn ids(list: &[&str]) -> Vec<String> {
    list.iter().map(|&id| id.to_owned()).collect()
}

#[tokio::test]
async fn each_entry_has_its_own_end_in_the_order_that_was_asked() {
    let mut orders = Fake::new(
        "orders",
        vec![
            DeadLetter { dedup: Some("k".into()), ..letter("1-0", 60) },
            DeadLetter { task: "charge".into(), ..letter("2-0", 50) },
            letter("3-0", 40),
            DeadLetter { foreign: true, ..letter("4-0", 30) },
            DeadLetter { job_id: String::new(), ..letter("5-0", 20) },
        ],
    );
    orders.jobs = BTreeMap::from([("job-1-0".into(), JobCounts { deaths: 4, retries: 3 })]);
    orders.hands().refusals = vec![("3-0".into(), Refusal::InFlight)];
    let rules = rules();
    let wanted = ids(&["3-0", "9-0", "1-0", "4-0", "2-0", "5-0"]);
    let dry = Doing { dry_run: true, ..doing(Act::Retry, &rules) };
    let ends =
        |outcomes: Vec<Outcome>| outcomes.into_iter().map(|o| (o.entry_id, o.outcome, o.refusal)).collect::<Vec<_>>();
    let of = |entry: &str, end, refusal| (entry.to_owned(), end, refusal);
    assert_eq!(
        ends(dry.to(&orders, &wanted).await.unwrap()),
        [
            of("3-0", End::Would, None),
            of("9-0", End::Refused, Some("entry_gone")),
            of("1-0", End::Would, None),
            of("4-0", End::Refused, Some("foreign_stream")),
            of("2-0", End::Would, None),
            of("5-0", End::Refused, Some("malformed")),
        ]
    );
    assert!(orders.hands().retried.is_empty(), "a dry run does nothing");

    let done = doing(Act::Retry, &rules).to(&orders, &wanted).await.unwrap();
    assert_eq!(done[2].queue_entry.as_deref(), Some("9-1"));
    assert_eq!(
        ends(done),
        [
            of("3-0", End::Refused, Some("in_flight")),
            of("9-0", End::Refused, Some("entry_gone")),
            of("1-0", End::Retried, None),
            of("4-0", End::Refused, Some("foreign_stream")),
            of("2-0", End::Retried, None),
            of("5-0", End::Refused, Some("malformed")),
        ]
    );
    let hands = orders.hands();
    assert_eq!(hands.by, [anna()]);
    let retried: Vec<_> = hands
        .retried
        .iter()
        .map(|retry| {
            let dead = &retry.dead;
            (&*dead.entry_id, dead.deaths, dead.retries, retry.dedup.as_deref(), retry.confirm_within.as_secs())
        })
        .collect();
    // A verdict is waited for as long as its rule does, or by default.
    assert_eq!(retried, [("1-0", 4, 0, Some("k"), 77), ("2-0", 0, 0, None, 900)]);
    assert!(hands.retried.iter().all(|retry| retry.stream == "{lrs}:q:default:0" && retry.dead.payload.is_none()));
}

#[tokio::test]
async fn what_is_removed_is_told_apart_from_what_was_gone() {
    let orders = Fake::new("orders", letters(3));
    let rules = Rules::default();
    let dry = Doing { dry_run: true, ..doing(Act::Delete, &rules) };
    let outcomes = dry.to(&orders, &ids(&["1-0", "7-0"])).await.unwrap();
    assert_eq!(outcomes.iter().map(|o| o.outcome).collect::<Vec<_>>(), [End::Would, End::Refused]);
    let outcomes = doing(Act::Delete, &rules).to(&orders, &ids(&["1-0", "7-0", "2-0"])).await.unwrap();
    assert_eq!(outcomes.iter().map(|o| o.outcome).collect::<Vec<_>>(), [End::Removed, End::Refused, End::Removed]);
    assert_eq!(orders.entries(), ["3-0"]);
    let removed = orders.hands().removed.clone();
    assert_eq!(removed, [(Removal::Removed, "1-0".to_owned()), (Removal::Removed, "2-0".to_owned())]);
}

#[tokio::test]
async fn an_outcome_is_plain_json() {
    let orders = Fake::new("orders", letters(1));
    let rules = Rules::default();
    let outcomes = doing(Act::Retry, &rules).to(&orders, &ids(&["1-0", "2-0"])).await.unwrap();
    assert_eq!(
        serde_json::to_string(&outcomes).unwrap(),
        concat!(
            r#"[{"source":"orders","entry_id":"1-0","outcome":"retried","refusal":null,"queue_entry":"9-1"},"#,
            r#"{"source":"orders","entry_id":"2-0","outcome":"refused","refusal":"entry_gone","queue_entry":null}]"#
        )
    );
}
