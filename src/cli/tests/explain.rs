//! `explain`.

use super::*;
use crate::{
    ledger::{AuditLine, Flight, Judging, Place, Pool, Prospects, Rounds, Whereabouts},
    letter::Millis,
    retry::{Evidence, Learnt},
    rule::Terms,
    triage::fake::now,
};

/// A flight of this job under the rule `flaky`, sent a minute ago.
pub(super) fn flight(entry: &str, job: &str) -> Flight {
    let group = "7c1f0e9a2b44".to_owned();
    Flight {
        place: Place { pool: Pool::of("flaky", "send_email"), group },
        dead: JobDead {
            entry_id: entry.to_owned(),
            job_id: Some(job.to_owned()),
            task: Some("send_email".to_owned()),
            ..JobDead::default()
        },
        stream: "{lrs}:q:default:0".to_owned(),
        dedup: None,
        sent_at: ago(60),
        confirm_by: ago(-840),
        rounds: Rounds { pool: 1, group: 1, canary: true },
        at: Whereabouts::Queue("5-0".to_owned()),
        seen_at: ago(60),
        failing: false,
    }
}

fn ago(seconds: i64) -> Millis {
    Millis(now().0 - seconds * 1_000)
}

fn audit_line(what: &str, entry: &str, job: &str, seconds: i64) -> AuditLine {
    AuditLine {
        id: format!("{}-0", ago(seconds).0),
        at: ago(seconds),
        what: what.to_owned(),
        by: "flaky".to_owned(),
        entry_id: entry.to_owned(),
        job_id: job.to_owned(),
        task: "send_email".to_owned(),
        detail: if what == "retried" { "5-0".to_owned() } else { String::new() },
        ..AuditLine::default()
    }
}

/// A source that works by the rules, with one entry that died two minutes ago and is due in eight.
fn waiting() -> Fake {
    let mut fake = Fake::new("orders", vec![letter("2-0", 120)]);
    fake.leader = Some(Lease { epoch: 3, holder: "pod-1".into() });
    fake.jobs = BTreeMap::from([("job-2-0".into(), JobCounts { deaths: 1, retries: 0 })]);
    fake.judging = Judging { generation: 7, fingerprint: rules().fingerprint, ..Judging::default() };
    fake.due = BTreeMap::from([("2-0".into(), ago(-480))]);
    fake.prospects = Prospects { queue_length: Some(12), ..Prospects::default() };
    fake
}

async fn explained(fake: Fake, entry: &str) -> serde_json::Value {
    let ran = run(&[Arc::new(fake)], &format!("sexton explain {entry} -o json")).await;
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.failure());
    serde_json::from_str(&ran.out).unwrap()
}

#[tokio::test]
async fn the_sentence_comes_first_and_the_facts_below_it() {
    let mut fake = waiting();
    fake.jobs = BTreeMap::from([("job-2-0".into(), JobCounts { deaths: 2, retries: 1 })]);
    fake.log = vec![
        audit_line("re_died", "1-0", "job-2-0", 115),
        audit_line("twin_removed", "0-9", "another", 150),
        audit_line("retried", "1-0", "job-2-0", 200),
    ];
    let ran = run(&[Arc::new(fake)], "sexton explain 2-0").await;
    assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.failure());
    assert_eq!(
        ran.out,
        "\
It died at 2026-11-29T17:10:50.500Z (2 minutes ago), and rule flaky retries a job 20m after that at the earliest: \
retry 2 of 3 is due at 2026-11-29T17:20:50.500Z (in 8 minutes).

  entry     orders/2-0, died 2026-11-29T17:10:50.500Z (2m ago)
  job       job-2-0, task send_email
  state     too_young
  rule      flaky
  retries   1 of 3 made by Sexton; 2 deaths
  next      2026-11-29T17:20:50.500Z (in 8m)
  group     7c1f0e9a2b44
  queue     {lrs}:q:default:0, 12 entries
  leader    pod-1
  audit     2026-11-29T17:10:55.500Z (115s ago)  re_died by flaky, entry 1-0
            2026-11-29T17:09:30.500Z (3m ago)  retried by flaky, entry 1-0 (5-0)
"
    );
}

#[tokio::test]
async fn json_has_every_fact() {
    let mut fake = waiting();
    let place = Place { pool: Pool::of("flaky", "send_email"), group: "7c1f0e9a2b44".into() };
    let evidence = Evidence { round: 1, sent_at: ago(30), was_failing: false, since: Millis(0) };
    let mut learnt = Learnt::default();
    learnt.failed(ago(0), &Terms::default(), evidence, 0.0).unwrap();
    fake.learnt = BTreeMap::from([((place.pool, Some(place.group)), learnt.to_json())]);
    fake.log = vec![audit_line("re_died", "1-0", "job-2-0", 60)];
    let ran = run(&[Arc::new(fake)], "sexton explain orders/2-0 -o json").await;
    assert_eq!(
        ran.out,
        concat!(
            r#"{"source":"orders","entry_id":"2-0","job_id":"job-2-0","task":"send_email","group":"7c1f0e9a2b44","#,
            r#""in_dlq":true,"died_at":"2026-11-29T17:10:50.500Z","state":"held","#,
            r#""sentence":"Its retries under rule flaky failed (1 hold since the last recovery), so its group is on "#,
            r#"hold until 2026-11-29T17:22:50.500Z (in 10 minutes); then one retry goes ahead, and the others follow "#,
            r#"when that recovers.","rule":"flaky","next_at":"2026-11-29T17:22:50.500Z","deaths":1,"retries":0,"#,
            r#""max_retries":3,"held_until":"2026-11-29T17:22:50.500Z","refusal":"group_held","rules_in_force":true,"#,
            r#""led":true,"audit":[{"at":"2026-11-29T17:11:50.500Z","what":"re_died","by":"flaky","entry_id":"1-0","#,
            r#""job_id":"job-2-0","task":"send_email","detail":null,"note":null}],"audit_complete":true}"#,
            "\n"
        )
    );
}

/// What is changed of [`waiting`] to come to another state.
type Change = fn(&mut Fake);

#[tokio::test]
async fn every_fact_that_counts_is_looked_at() {
    let cases: &[(Change, &str, Option<&str>)] = &[
        (|_| {}, "too_young", Some("too_young")),
        (|fake| fake.leader = None, "nobody_leads", None),
        (|fake| fake.due.clear(), "not_judged", None),
        (|fake| fake.judging.fingerprint = "others".into(), "not_judged", None),
        (
            // Not yet come to.
            |fake| {
                fake.judging.judged.0 = "1-0".into();
                fake.judging.until.0 = "9-0".into();
            },
            "not_judged",
            None,
        ),
        (
            // Come to.
            |fake| {
                fake.judging.judged.0 = "2-0".into();
                fake.judging.until.0 = "9-0".into();
            },
            "too_young",
            Some("too_young"),
        ),
        (
            |fake| {
                fake.jobs.insert("job-2-0".into(), JobCounts { deaths: 4, retries: 3 });
            },
            "exhausted",
            Some("allowance_spent"),
        ),
        (|fake| fake.prospects.newer = Some("3-0".into()), "superseded", Some("superseded")),
        (|fake| fake.prospects.queue_length = None, "queue_gone", Some("queue_gone")),
        (|fake| fake.prospects.queue_length = Some(10_000), "queue_too_long", Some("queue_too_long")),
        (|fake| fake.prospects.dedup_claimed = true, "dedup_claimed", Some("dedup_claimed")),
        (|fake| fake.flights = vec![flight("1-0", "job-2-0")], "in_flight", Some("in_flight")),
        (|fake| fake.due = BTreeMap::from([("2-0".into(), ago(1))]), "awaits_turn", None),
        (
            |fake| {
                fake.due = BTreeMap::from([("2-0".into(), ago(1))]);
                fake.flights = vec![flight("1-0", "another")];
            },
            "awaits_canary",
            None,
        ),
        (|fake| fake.set_letter(DeadLetter { task: "parse_order".into(), ..letter("2-0", 120) }), "left", None),
        (|fake| fake.set_letter(DeadLetter { task: "else".into(), ..letter("2-0", 120) }), "no_rule", None),
        (
            |fake| fake.set_letter(DeadLetter { reason: Reason::Malformed, ..letter("2-0", 120) }),
            "never_retried",
            Some("malformed"),
        ),
        (
            |fake| fake.set_letter(DeadLetter { foreign: true, ..letter("2-0", 120) }),
            "never_retried",
            Some("foreign_stream"),
        ),
    ];
    for (n, (change, state, refusal)) in cases.iter().enumerate() {
        let mut fake = waiting();
        change(&mut fake);
        let said = explained(fake, "2-0").await;
        assert_eq!((said["state"].as_str(), said["refusal"].as_str()), (Some(*state), *refusal), "{n}: {said}");
        assert_eq!(said["in_dlq"], true);
    }
}

#[tokio::test]
async fn an_entry_that_has_left_is_found_in_flight_or_in_the_log() {
    let mut fake = waiting();
    fake.flights = vec![flight("1-0", "a")];
    fake.jobs.insert("a".into(), JobCounts { deaths: 1, retries: 1 });
    let said = explained(fake, "1-0").await;
    assert_eq!((&said["state"], &said["refusal"]), (&"in_flight".into(), &"entry_gone".into()), "{said}");
    assert_eq!((&said["job_id"], &said["retries"], &said["max_retries"]), (&"a".into(), &1.into(), &3.into()));
    assert_eq!((&said["task"], &said["rules_in_force"]), (&"send_email".into(), &serde_json::Value::Null));

    let mut fake = waiting();
    fake.log = vec![audit_line("recovered", "1-0", "a", 10), audit_line("retried", "1-0", "a", 30)];
    fake.jobs.insert("a".into(), JobCounts { deaths: 1, retries: 1 });
    let ran = run(&[Arc::new(fake)], "sexton explain 1-0").await;
    assert_eq!(
        ran.out,
        "\
It was retried by flaky at 2026-11-29T17:12:20.500Z (30 seconds ago), and the job ran through, as was seen at \
2026-11-29T17:12:40.500Z (10 seconds ago).

  entry     orders/1-0, not in the DLQ
  job       a, task send_email
  state     recovered
  rule      flaky
  retries   1 of 3 made by Sexton; 1 death
  audit     2026-11-29T17:12:40.500Z (10s ago)  recovered by flaky
            2026-11-29T17:12:20.500Z (30s ago)  retried by flaky (5-0)
"
    );
}

#[tokio::test]
async fn what_nobody_knows_of_is_said_with_how_far_the_search_went() {
    let mut fake = waiting();
    fake.log = vec![audit_line("retried", "7-0", "a", 30)];
    let ran = run(&[Arc::new(fake)], "sexton explain 1-0").await;
    assert_eq!(ran.code(), 0);
    assert_eq!(
        ran.out,
        "\
It is not in the DLQ, and as far as the audit log reaches Sexton did not take it out: a person or another program has \
retried or removed it.

  entry     orders/1-0, not in the DLQ
  state     removed
  rule      -
  audit     nothing about it in the newest 1 line, back to 2026-11-29T17:12:20.500Z (30s ago)
            an entry that never was looks the same: was it copied in full?
"
    );
    let sources = [Arc::new(waiting()), Arc::new(Fake::new("payments", Vec::new()))];
    let ran = run(&sources, "sexton explain 1-0").await;
    let expected =
        "no source knows of the entry 1-0: it is in no DLQ, it is not in flight, and no audit log tells of it";
    assert_eq!((ran.failure().as_str(), ran.code()), (expected, 1));
    assert!(run(&sources, "sexton explain payments/1-0").await.out.contains("payments/1-0, not in the DLQ"));
    let ran = run(&sources, "sexton explain nope/1-0").await;
    assert_eq!(ran.code(), 2, "{}", ran.failure());
}

#[tokio::test]
async fn of_two_sources_the_one_that_knows_the_entry_answers() {
    let knows = |name: &str| {
        let mut fake = Fake::new(name, Vec::new());
        fake.flights = vec![flight("1-0", "a")];
        Arc::new(fake)
    };
    let ran = run(&[Arc::new(waiting()), knows("payments")], "sexton explain 1-0").await;
    assert!(ran.out.contains("  entry     payments/1-0, not in the DLQ\n"), "{} {}", ran.out, ran.failure());
    let ran = run(&[knows("a"), knows("b")], "sexton explain 1-0").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("1-0 was an entry of a and of b; write a/1-0 or b/1-0", 2));
}

#[tokio::test]
async fn a_job_is_explained_by_the_entry_that_says_most() {
    let mut fake = waiting();
    fake.flights = vec![flight("1-0", "aloft")];
    fake.log = vec![audit_line("lost_sight", "0-7", "gone", 10), audit_line("retried", "0-7", "gone", 30)];
    let source = [Arc::new(fake)];
    for (job, entry, state) in
        [("aloft", "1-0", "in_flight"), ("job-2-0", "2-0", "too_young"), ("gone", "0-7", "lost_sight")]
    {
        for name in [job.to_owned(), format!("orders/{job}")] {
            // `job-2-0` looks like an entry to the source.
            let name = if job == "job-2-0" { "2-0".to_owned() } else { name };
            let ran = run(&source, &format!("sexton explain {name} -o json")).await;
            let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!((said["entry_id"].as_str(), said["state"].as_str()), (Some(entry), Some(state)), "{name}");
        }
    }
    let mut fake = Fake::new("orders", vec![DeadLetter { job_id: "twice".into(), ..letter("1-0", 60) }]);
    fake.letters_mut().push(DeadLetter { job_id: "twice".into(), ..letter("2-0", 60) });
    assert_eq!(explained(fake, "twice").await["entry_id"], "2-0", "the newest");
    for nobody in ["nobody", "orders/"] {
        let ran = run(&source, &format!("sexton explain {nobody}")).await;
        assert!(ran.code() == 1 && ran.failure().contains("and no job: it is in no DLQ"), "{}", ran.failure());
    }
}

#[tokio::test]
async fn nothing_harmful_is_shown() {
    let bad = "\x1b[2J\u{202e}";
    let mut fake = waiting();
    fake.set_letter(DeadLetter {
        job_id: bad.into(),
        task: format!("send_{bad}"),
        origin: format!("{{lrs}}:q:{bad}:0"),
        ..letter("2-0", 120)
    });
    fake.prospects.queue_length = None;
    fake.leader = Some(Lease { epoch: 1, holder: bad.into() });
    fake.log =
        vec![AuditLine { what: bad.into(), by: bad.into(), detail: bad.into(), ..audit_line("retried", bad, bad, 10) }];
    let source = [Arc::new(fake)];
    for line in ["sexton explain 2-0", "sexton explain 2-0 -o json"] {
        let ran = run(&source, line).await;
        assert!(ran.out.contains("x1b[2J") || ran.out.contains("u001b[2J"), "{}", ran.out);
        assert!(!ran.out.contains('\x1b') && !ran.out.contains('\u{202e}'), "{}", ran.out);
    }
    let ran = run(&source, &format!("sexton explain {bad}")).await;
    assert!(!ran.failure().contains('\x1b') && !ran.out.contains('\x1b'), "{}", ran.failure());
}

#[tokio::test]
async fn rules_that_cannot_be_read_matter_only_in_the_dlq() {
    let broken = || Err(Failure::Config("rules.yaml:1:1: no".into()));
    let mut fake = waiting();
    fake.flights = vec![flight("1-0", "a")];
    let source = [Arc::new(fake)];
    let ran = run_under(&source, broken(), "sexton explain 1-0", Screen::default(), "").await;
    assert!(ran.code() == 0 && ran.out.contains("state     in_flight"), "{}", ran.failure());
    let ran = run_under(&source, broken(), "sexton explain 2-0", Screen::default(), "").await;
    assert_eq!((ran.code(), ran.out.as_str()), (78, ""));
}

#[tokio::test]
async fn rules_that_the_leader_does_not_work_by_are_mentioned() {
    let mut fake = waiting();
    fake.judging.fingerprint = "others".into();
    let ran = run(&[Arc::new(fake)], "sexton explain 2-0").await;
    let note = "  rules     not those in force: the leader has not read these yet, or was given others\n";
    assert!(ran.out.contains(note), "{}", ran.out);
    let mut fake = waiting();
    fake.judging = Judging::default();
    let ran = run(&[Arc::new(fake)], "sexton explain 2-0").await;
    assert!(ran.out.contains("  rules     no leader has taken these rules yet\n"), "{}", ran.out);
    assert!(ran.out.ends_with("  audit     the log is empty\n"), "{}", ran.out);
    let ran = run(&[Arc::new(waiting())], "sexton explain 2-0").await;
    assert!(!ran.out.contains("  rules     "), "{}", ran.out);
    // Without any, nothing can be said.
    let ran =
        run_under(&[Arc::new(waiting())], Ok(Rules::default()), "sexton explain 2-0", Screen::default(), "").await;
    assert!(ran.out.starts_with("No rules are known here, but the leader works by some"), "{}", ran.out);
    assert!(ran.out.contains("  state     not_judged\n"), "{}", ran.out);
    // Where the leader has none either, none retries it.
    let mut fake = waiting();
    fake.judging = Judging::default();
    let ran = run_under(&[Arc::new(fake)], Ok(Rules::default()), "sexton explain 2-0", Screen::default(), "").await;
    assert!(ran.out.starts_with("No rule matches it") && !ran.out.contains("  rules     "), "{}", ran.out);
}

#[tokio::test]
async fn the_search_goes_as_far_as_it_must_and_not_without_end() {
    let others = |from: i64, lines: i64| (from..from + lines).map(|n| audit_line("recovered", "9-9", "other", n));
    // The last retry of a job that has had some, however far back.
    let mut fake = waiting();
    fake.jobs.insert("job-2-0".into(), JobCounts { deaths: 4, retries: 3 });
    fake.log = others(1, 2_500).collect();
    fake.log.push(audit_line("retried", "1-0", "job-2-0", 3_000));
    fake.log.extend(others(3_001, 3_000));
    fake.log.push(audit_line("retried", "0-9", "job-2-0", 7_000));
    let said = explained(fake, "2-0").await;
    assert_eq!((said["audit"].as_array().unwrap().len(), &said["audit_complete"]), (1, &true.into()), "{said}");
    assert!(said["sentence"].as_str().unwrap().contains("the last at 2026-11-29T16:22:50.500Z"), "{said}");
    // Of a job that has had none only the newest lines are looked at.
    let mut fake = waiting();
    fake.log = others(1, 1_500).collect();
    fake.log.push(audit_line("retried", "1-0", "job-2-0", 3_000));
    assert_eq!(explained(fake, "2-0").await["audit"], serde_json::json!([]));
    // A log without end is not read to its end.
    let mut fake = waiting();
    fake.log = others(1, 100_500).collect();
    fake.log.push(audit_line("retried", "1-0", "a", 200_000));
    let ran = run(&[Arc::new(fake)], "sexton explain 1-0").await;
    assert!(ran.out.contains("nothing about it in the newest 100,000 lines, back to "), "{}", ran.out);
}
