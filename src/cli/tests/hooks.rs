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
        "source orders: smallage namespace lrs at redis://redis.test:6380\n\
         hook oncall: standard to https://alerts.test, job.dead, alert.*, 60/m, signed\n"
    );
    for shown in [ran.out, json.out, check.out] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn hooks_test_says_what_became_of_the_event() {
    let id = format!("{}-0", crate::cli::fake::now().0);
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
        (format!(r#"{{"cursor":"{id}"}}"#), 0, "it worked"),
        (format!(r#"{{"cursor":"{id}","pending":[["{id}",1,1,9]]}}"#), 1, "1 try has failed"),
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
