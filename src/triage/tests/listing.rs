//! Walks and listings.

use super::*;

async fn passed(fake: &Fake, json: &str) -> Vec<String> {
    let filter = filter(json);
    let mut walk = Walk::new(fake, &filter, now(), Order::NewestFirst);
    let mut passed = Vec::new();
    while let Some(letters) = walk.next(PIECE).await.unwrap() {
        passed.extend(letters.into_iter().map(|letter| letter.entry_id));
    }
    passed
}

#[tokio::test]
async fn every_filter_keeps_what_it_names() {
    let fake = Fake::new(
        "orders",
        vec![
            DeadLetter { task: "send_email".into(), queue: "mail".into(), ..letter("1-0", 3_600) },
            DeadLetter { task: "send_sms".into(), queue: "sms".into(), ..letter("2-0", 600) },
            DeadLetter { task: "charge".into(), reason: Reason::Malformed, ..letter("3-0", 60) },
            DeadLetter { task: "x".into(), group: Group("aaaaaaaaaaaa".into()), ..letter("4-0", 0) },
        ],
    );
    for (json, expected) in [
        ("{}", &["4-0", "3-0", "2-0", "1-0"][..]),
        (r#"{"task":["send_*"]}"#, &["2-0", "1-0"]),
        (r#"{"task":["send_e*","charge"]}"#, &["3-0", "1-0"]),
        (r#"{"queue":["sms"]}"#, &["2-0"]),
        (r#"{"reason":["malformed"]}"#, &["3-0"]),
        (r#"{"group":["AAAAAAAAAAAA"]}"#, &["4-0"]),
        (r#"{"error":"^ConnectionError: .*4-0"}"#, &["4-0"]),
        (r#"{"older_than":"10m"}"#, &["2-0", "1-0"]),
        (r#"{"newer_than":"10m"}"#, &["4-0", "3-0", "2-0"]),
        (r#"{"newer_than":"30m","older_than":"30s"}"#, &["3-0", "2-0"]),
        (r#"{"task":["send_*"],"queue":["none"]}"#, &[]),
    ] {
        assert_eq!(passed(&fake, json).await, expected, "{json}");
    }
}

#[tokio::test]
async fn a_walk_reads_in_pieces_what_the_store_cannot_sift() {
    let fake = Fake::new("orders", letters(3_000));
    let everything = filter("{}");
    let mut walk = Walk::new(&fake, &everything, now(), Order::OldestFirst);
    let mut seen = Vec::new();
    while let Some(letters) = walk.next(10_000).await.unwrap() {
        assert!(letters.len() <= PIECE);
        seen.extend(letters.into_iter().map(|letter| letter.entry_id));
        // What goes meanwhile, before and behind, moves nothing else.
        fake.take(seen.last().unwrap());
        fake.take(&format!("{}-0", seen.len() + 250));
    }
    assert!(seen.len() > 2_980 && walk.looked_at() == seen.len() as u64);
    let mut sorted = seen.clone();
    sorted.sort_by_key(|id| id.trim_end_matches("-0").parse::<u64>().unwrap());
    sorted.dedup();
    assert_eq!(seen, sorted, "in order, each once");
    let scans = fake.hands().scans.clone();
    assert!(scans.iter().all(|scan| scan.without_payload && scan.max == PIECE && scan.since.is_none()));
}

#[tokio::test]
async fn what_is_too_old_or_too_young_is_not_even_read() {
    let fake = Fake::new("orders", letters(5_000));
    let filter = filter(r#"{"newer_than":"100s"}"#);
    let mut walk = Walk::new(&fake, &filter, now(), Order::NewestFirst);
    let mut passed = 0;
    while let Some(letters) = walk.next(PIECE).await.unwrap() {
        passed += letters.len();
    }
    assert_eq!(passed, 100, "ages 1 s to 100 s");
    assert_eq!(walk.looked_at(), 160, "and a minute for clocks");
}

#[tokio::test]
async fn pages_fit_together_over_sources_and_while_entries_come_and_go() {
    let (orders, payments) = (Fake::new("orders", letters(40)), Fake::new("payments", letters(7)));
    let sources: [&dyn TriageLedger; 2] = [&orders, &payments];
    let (none, everything) = (Rules::default(), filter("{}"));
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let after_this = after.as_deref().map(|text| Cursor::parse(text, &sources).unwrap());
        let page = list(&sources, &everything, &none, Ask { limit: 4, after: after_this, offset: 0 }).await.unwrap();
        assert!(page.items.len() == 4 || page.next_cursor.is_none());
        seen.extend(page.items.iter().map(|item| format!("{}/{}", item.source, item.entry_id)));
        // The one that the cursor names goes, and one that was to come.
        orders.take(&page.items.last().unwrap().entry_id);
        orders.take("3-0");
        after = page.next_cursor;
        if after.is_none() {
            break;
        }
    }
    let expected = (1..=40).rev().filter(|n| *n != 3).map(|n| format!("orders/{n}-0"));
    let expected: Vec<String> = expected.chain((1..=7).rev().map(|n| format!("payments/{n}-0"))).collect();
    assert_eq!(seen, expected);

    let page = list(&sources, &everything, &none, Ask { limit: 2, after: None, offset: 30 }).await.unwrap();
    let shown: Vec<&str> = page.items.iter().map(|item| item.entry_id.as_str()).collect();
    assert!(shown.len() == 2 && page.next_cursor.is_some(), "{shown:?}");
}

#[tokio::test]
async fn a_listing_can_be_broken_off_and_gone_on_with() {
    let orders = Fake::new("orders", letters(3_000));
    let sources: [&dyn TriageLedger; 1] = [&orders];
    let rare = filter(r#"{"error":" (7|1500|2999)-0 "}"#);
    let none = Rules::default();
    let (mut seen, mut resume, mut times) = (Vec::new(), None, 0);
    loop {
        let after = resume.as_deref().map(|text| Cursor::parse(text, &sources).unwrap());
        let mut listing = Listing::new(&sources, &rare, &none, Ask { limit: 10, after, offset: 0 });
        // One piece only.
        let found = listing.next().await.unwrap();
        seen.extend(found.into_iter().flatten().map(|listed| listed.job.entry_id));
        resume = listing.resume();
        times += 1;
        if resume.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["2999-0", "1500-0", "7-0"]);
    assert!(times > 50, "{times} pieces of eleven");
}

#[tokio::test]
async fn rule_and_next_retry_are_told_by_the_rules_in_force() {
    let mut orders = Fake::new("orders", letters(1));
    orders.jobs = BTreeMap::from([("job-1-0".into(), JobCounts { deaths: 2, retries: 1 })]);
    let everything = filter("{}");
    let first = |orders: Fake| {
        let everything = everything.clone();
        async move {
            let sources: [&dyn TriageLedger; 1] = [&orders];
            let ask = Ask { limit: 1, after: None, offset: 0 };
            list(&sources, &everything, &rules(), ask).await.unwrap().items.remove(0)
        }
    };
    let item = first(orders).await;
    assert_eq!((item.rule, item.deaths, item.retries), (None, 2, 1), "other rules are in force");
    let mut orders = Fake::new("orders", letters(1));
    orders.judging = Judging { generation: 1, fingerprint: rules().fingerprint, ..Judging::default() };
    let item = first(orders).await;
    assert_eq!((item.rule.as_deref(), item.deaths), (Some("flaky"), 0));
    assert!(item.next_retry_at.unwrap() > item.died_at.unwrap());
}

#[tokio::test]
async fn the_audit_log_is_listed_in_pages_and_as_far_back_as_is_wanted() {
    let line = |n: i64| crate::ledger::AuditLine {
        id: format!("{n}-0"),
        at: Millis(n * 1_000),
        what: "retried".into(),
        by: if n % 2 == 0 { "flaky".into() } else { "anna@host".into() },
        entry_id: format!("{}-0", n % 3),
        job_id: format!("job-{}", n % 3),
        ..crate::ledger::AuditLine::default()
    };
    let mut orders = Fake::new("orders", Vec::new());
    orders.log = (1..=20).rev().map(line).collect();
    let mut payments = Fake::new("payments", Vec::new());
    payments.log = vec![line(1)];
    let sources: [&dyn TriageLedger; 2] = [&orders, &payments];
    for (ask, expected) in [
        (AuditAsk { limit: 100, ..AuditAsk::default() }, 21),
        (AuditAsk { limit: 100, since: Some(Millis(18_000)), ..AuditAsk::default() }, 3),
        (AuditAsk { limit: 100, entry: Some("1-0".into()), ..AuditAsk::default() }, 8),
        (AuditAsk { limit: 100, job: Some("job-2".into()), ..AuditAsk::default() }, 7),
    ] {
        let whole = audit(&sources, &ask).await.unwrap();
        assert_eq!((whole.items.len(), &whole.next_cursor), (expected, &None), "{ask:?}");
        let (mut pages, mut after) = (Vec::new(), None);
        for _ in 0..30 {
            let page = audit(&sources, &AuditAsk { limit: 3, after, ..ask.clone() }).await.unwrap();
            pages.extend(page.items);
            let Some(next) = page.next_cursor else { break };
            after = Some(Cursor::parse(&next, &sources).unwrap());
        }
        assert_eq!(pages, whole.items, "{ask:?}");
    }
}
