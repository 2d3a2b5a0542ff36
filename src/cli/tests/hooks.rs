//! `hooks` and what `check` says of them.

use super::*;

#[tokio::test]
async fn hooks_ls_shows_no_secret() {
    let ran = run(&[Arc::new(led())], "sexton hooks ls").await;
    assert_eq!(
        ran.out,
        "\
HOOK    FORMAT    ADDRESS              EVENTS            RATE  SOURCE  LANE    STATE           BACKLOG  PENDING
oncall  standard  https://alerts.test  job.dead,alert.*  60/m  orders  deaths  not served yet  0        0
oncall  standard  https://alerts.test  job.dead,alert.*  60/m  orders  alerts  not served yet  0        0
"
    );
    let json = run(&[Arc::new(led())], "sexton hooks ls -o json").await;
    let check = run(&[], "sexton check").await;
    assert_eq!(
        check.out,
        "source orders: smallage namespace lrs at redis://redis.test:6380/2\n\
         hook oncall: standard to https://alerts.test, job.dead, alert.*, 60/m, signed\n\
         no rules: nothing is retried\n\
         no alerts: a rising line is seen by nobody\n"
    );
    for shown in [ran.out, json.out, check.out] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

fn trouble(event: &str, status: u16, rejected: bool) -> String {
    format!(r#"{{"at":9,"status":{status},"error":"{status} \u001b","event":"{event}","rejected":{rejected}}}"#)
}

#[tokio::test]
async fn hooks_ls_says_how_a_lane_stands_and_why() {
    let minute_ago = crate::triage::fake::now().0 - 60_000;
    let failing = format!(r#""failing":{{"since":{minute_ago},"failures":3,"probes":0,"next_at":5}}"#);
    let rejecting = format!(r#""rejecting_since":{minute_ago}"#);
    let refused = r#"{"at":9,"error":"cannot send: connect: Connection refused"}"#;
    for (state, standing, name) in [
        (r#""delivered_at":9"#.to_owned(), "delivering", "delivering"),
        (failing.clone(), "failing for 60s", "failing"),
        (format!(r#"{failing},"last_trouble":{}"#, trouble("1-0", 503, false)), "failing (503) for 60s", "failing"),
        (format!(r#"{failing},"last_trouble":{refused}"#), "failing for 60s: Connection refused", "failing"),
        (format!(r#"{failing},"last_trouble":{}"#, trouble("1-0", 404, true)), "failing for 60s", "failing"),
        (
            format!(r#"{rejecting},"last_trouble":{}"#, trouble("1-0", 404, true)),
            "rejecting (404) for 60s",
            "rejecting",
        ),
        (format!(r#"{rejecting},"off":"f1""#), "off (410)", "off"),
    ] {
        let fake = Arc::new(led());
        fake.set_lane("oncall", Lane::Deaths, &format!(r#"{{"cursor":"1-0","pending":[["1-0",1,1,9]],{state}}}"#));
        fake.post(OutboxId { ms: 2, seq: 0 }, EventData::JobDead(Box::default()));
        let ran = run(&[Arc::clone(&fake)], "sexton hooks ls").await;
        let row: Vec<&str> = ran.out.lines().nth(1).unwrap().split("  ").filter(|cell| !cell.is_empty()).collect();
        let row: Vec<&str> = row.iter().map(|cell| cell.trim()).collect();
        assert_eq!(row[6..], ["deaths", standing, "2", "1"][..], "{state}: {}", ran.out);
        let json = run(&[fake], "sexton hooks ls -o json").await;
        let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        let lane = &json["items"][0]["sources"][0]["lanes"][0];
        assert_eq!((&lane["state"], &lane["backlog"], &lane["pending"]), (&name.into(), &2.into(), &1.into()));
        assert_eq!(lane["last_trouble"].is_object(), state.contains("last_trouble"), "{lane}");
    }
}

#[tokio::test]
async fn a_hook_that_is_off_is_sent_nothing_again() {
    let fake = with_outbox(3);
    fake.set_lane("oncall", Lane::Deaths, r#"{"cursor":"3000-0","off":"f1"}"#);
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 30000d --yes").await;
    assert_eq!((ran.code(), ran.out.as_str()), (1, ""));
    assert!(
        ran.failure().starts_with("oncall is switched off, so nothing of orders is sent again"),
        "{}",
        ran.failure()
    );
    assert_eq!(cursor_of(&fake), "3000-0", "it would only be passed over");
    fake.set_lane("oncall", Lane::Deaths, r#"{"cursor":"3000-0","off":"another"}"#);
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 30000d --yes").await;
    assert_eq!(ran.code(), 0, "{}", ran.failure());
}

#[tokio::test]
async fn hooks_test_says_what_became_of_the_event() {
    let id = format!("{}-0", crate::triage::fake::now().0);
    let fake = Arc::new(Fake::new("orders", Vec::new()));
    let nobody = run(&[Arc::clone(&fake)], "sexton hooks test oncall").await;
    assert_eq!(nobody.code(), 1);
    assert!(nobody.failure().starts_with("nobody leads orders: nothing would deliver"), "{}", nobody.failure());
    assert!(fake.outbox.lock().unwrap().is_empty());
    let fake = Arc::new(led());
    fake.set_lane("oncall", Lane::Alerts, r#"{"cursor":"1-0","off":"f1"}"#);
    let off = run(&[Arc::clone(&fake)], "sexton hooks test oncall").await;
    assert!(off.code() == 1 && off.failure().starts_with("oncall is switched off, so no test"), "{}", off.failure());
    assert!(fake.outbox.lock().unwrap().is_empty());
    for (state, code, expected) in [
        (format!(r#"{{"cursor":"{id}","delivered_at":9}}"#), 0, "it worked"),
        (format!(r#"{{"cursor":"{id}"}}"#), 1, "the leader has passed it over"),
        (format!(r#"{{"cursor":"{id}","pending":[["{id}",1,1,9]]}}"#), 1, "1 try has failed"),
        (
            format!(r#"{{"cursor":"{id}","pending":[["{id}",2,1,9]],"last_trouble":{}}}"#, trouble(&id, 503, false)),
            1,
            "2 tries have failed, and the leader goes on trying; the last error: 503 \\x1b",
        ),
        (
            format!(r#"{{"cursor":"{id}","pending":[["{id}",0,1,9]],"last_trouble":{}}}"#, trouble("1-0", 503, false)),
            1,
            "no try has come to an end, and the leader goes on trying",
        ),
        (
            format!(r#"{{"cursor":"{id}","last_trouble":{},"delivered_at":9}}"#, trouble(&id, 404, true)),
            1,
            "rejected: 404 \\x1b",
        ),
        (
            format!(
                r#"{{"cursor":"{id}","last_trouble":{},"rejecting_since":8,"delivered_at":7}}"#,
                trouble("8-0", 404, true)
            ),
            1,
            "rejected: 404",
        ),
        (
            format!(r#"{{"cursor":"{id}","last_trouble":{},"delivered_at":9}}"#, trouble("8-0", 404, true)),
            0,
            "it worked",
        ),
        (
            format!(r#"{{"cursor":"{id}","last_trouble":{},"delivered_at":9}}"#, trouble(&id, 503, false)),
            1,
            "no longer tried; the last error: 503",
        ),
        (r#"{"cursor":"1-0"}"#.to_owned(), 1, "has not come to it yet"),
        (r#"{"cursor":"1-0","off":"another"}"#.to_owned(), 1, "has not come to it yet"),
    ] {
        let fake = Arc::new(led());
        fake.set_lane("oncall", Lane::Alerts, &state);
        let ran = run(&[Arc::clone(&fake)], "sexton hooks test oncall --wait 0s").await;
        assert_eq!(ran.code(), code, "{state}");
        assert!(ran.failure().contains(expected), "{state}: {}", ran.failure());
        assert!(ran.out.starts_with(&format!("the test event {id} is in the ledger of orders; pod-1 delivers it\n")));
        let outbox = fake.outbox.lock().unwrap();
        assert!(
            matches!(&outbox[0].event.data, EventData::HookTest(HookTest { source, hook, .. }) if source == "orders" && hook == "oncall")
        );
    }
    let ran = run(&[Arc::new(led())], "sexton hooks test nobody").await;
    assert_eq!((ran.failure().as_str(), ran.code()), ("there is no hook \"nobody\"; there is oncall", 2));
    let ran = run(&[Arc::new(led())], "sexton hooks test oncall --source x").await;
    assert_eq!(
        (ran.failure().as_str(), ran.code()),
        ("there is no source \"x\"; the only one here is called orders", 2)
    );
}

fn with_outbox(events: u64) -> Arc<Fake> {
    let fake = led();
    for n in 1..=events {
        fake.post(OutboxId { ms: n * 1_000, seq: 0 }, EventData::JobDead(Box::default()));
    }
    fake.set_lane("oncall", Lane::Deaths, &format!(r#"{{"cursor":"{}-0"}}"#, events * 1_000));
    Arc::new(fake)
}

fn cursor_of(fake: &Fake) -> String {
    let lanes = fake.lanes.lock().unwrap();
    let state: serde_json::Value = serde_json::from_str(&lanes[&("oncall".to_owned(), "deaths")].state).unwrap();
    state["cursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn hooks_resend_rewinds_whatever_the_leader_saves_meanwhile() {
    let fake = with_outbox(1_200);
    *fake.moves.lock().unwrap() = 3;
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 1970-01-01T00:10:00Z --yes").await;
    assert_eq!(ran.code(), 0, "{}", ran.failure());
    assert_eq!(cursor_of(&fake), format!("599999-{}", u64::MAX));
    assert!(ran.out.starts_with("601 events of the outbox will be read again for oncall"), "{}", ran.out);
    assert!(ran.out.ends_with("orders: the deaths lane reads 601 events again\n"), "{}", ran.out);
    let ran = run(&[Arc::clone(&fake)], "sexton hooks resend oncall --since 1970-01-01T00:15:00Z --yes").await;
    assert!(ran.out.ends_with("nothing to send again\n"), "{}", ran.out);
    assert_eq!(cursor_of(&fake), format!("599999-{}", u64::MAX), "never forwards");
}

#[tokio::test]
async fn hooks_resend_asks_first() {
    let asks = Screen { asks: true, ..Screen::default() };
    let line = "sexton hooks resend oncall --since 30000d";
    for (screen, answer, code, rewound) in
        [(Screen::default(), "y\n", 2, false), (asks, "n\n", 1, false), (asks, "", 1, false), (asks, "y\n", 0, true)]
    {
        let fake = with_outbox(3);
        let ran = run_on(&[Arc::clone(&fake)], line, screen, answer).await;
        assert_eq!(ran.code(), code, "{}", ran.failure());
        assert_eq!(cursor_of(&fake) != "3000-0", rewound, "{answer:?}");
    }
}
