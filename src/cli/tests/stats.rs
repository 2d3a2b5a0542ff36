//! `stats`.

use super::{explain::flight, *};
use crate::ledger::Waiting;

#[tokio::test]
async fn stats_are_one_screen_a_source() {
    let mut fake = led();
    fake.flights = vec![flight("0-1", "a"), flight("0-2", "b"), flight("0-3", "c")];
    fake.waiting = Waiting { entries: 1_204, held: vec![("bugs".into(), 2)] };
    fake.set_lane(
        "oncall",
        Lane::Deaths,
        r#"{"cursor":"1795972310500-0","pending":[["4-0",2,1,9]],"failing":{"since":1,"failures":3,"probes":0,"next_at":5}}"#,
    );
    fake.post(OutboxId { ms: 1_795_972_310_501, seq: 0 }, EventData::JobDead(Box::default()));
    let ran = run(&[Arc::new(fake)], "sexton stats").await;
    let expected = "\
orders
  entries   2, 9 ever
  oldest    2026-11-29T15:11:10.500Z (2h ago)
  newest    2026-11-29T17:02:50.500Z (10m ago)
  ledger    5 deaths announced, 2 entries not read yet
  leader    pod-1, epoch 3
  retries   3 in flight, 1,204 entries in the due index
  rule      bugs: 0 in flight, 2 holds
  rule      flaky: 3 in flight, 0 holds
  alerts    0 firing, 0 pending, no sample yet
  outbox    1 in the deaths lane, 0 in the alerts lane
  hook      oncall deaths: failing for 20786d, read up to 2026-11-29T17:11:50.500Z (60s ago), backlog 2, of that 1 pending
  hook      oncall alerts: not served yet, nothing read yet, backlog 0, of that 0 pending
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
    assert_eq!(shown["items"][0]["retries"], serde_json::json!({"in_flight": 0, "waiting": 0, "rules": {}}));
    assert_eq!(shown["items"][0]["hooks"][0]["lanes"][0]["state"], "new");
}

#[tokio::test]
async fn a_list_of_the_most_frequent_says_what_it_leaves_out() {
    let of_task = |n: u32| DeadLetter { task: format!("task-{}", n % 7), ..letter(&format!("{n}-0"), 60) };
    let ran = run(&[Arc::new(Fake::new("orders", (0..20).map(of_task).collect()))], "sexton stats").await;
    assert!(
        ran.out.ends_with("        2  task task-6\n           and 2 more tasks\n")
            || ran.out.ends_with("task task-4\n           and 2 more tasks\n"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("more group"), "{}", ran.out);
}
