//! The loop that watches the line, in a real Redis whose clock is stepped: what it counts, tells and remembers.

use std::{sync::Arc, time::Duration};

use redis::AsyncCommands as _;
use sexton::{
    alert::{AlertRule, Key, Kind, NewGroup, Severity, Waiting},
    clock::monotonic,
    config::{DigestConfig, OutboxConfig},
    event::{EventData, Lane},
    ledger::{Lesson, StoreError},
    letter::Millis,
    loops::{Step as _, Trim, WatchOptions},
    retry::{Evidence, Learnt},
    rule::{Action, Matcher, RetryRule, Rules, Terms, Window, Zone},
};

use tokio_util::sync::CancellationToken;

use crate::support::{
    SOON, eventually,
    graveyard::{bury, bury_all, dlq, with},
    lookout::{EVERY, Lookout, Task, WATCH, burst, rising, short},
    process::metric,
    workers::now,
    yard::{NS, RULE},
};

const NOTHING: Vec<String> = Vec::new();

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_rising_line_is_told_once_and_its_end_under_the_same_id() {
    let mut lookout = Lookout::by(vec![AlertRule { severity: Severity::Critical, ..rising() }]).await;
    lookout.ticks(13, Task::Email, 0).await;
    lookout.ticks(14, Task::Email, 1).await;
    let fires = lookout.page().await;
    assert_eq!((fires.alert.as_str(), fires.severity.as_str(), fires.repeated), ("rising", "critical", false));
    assert!((8..=14).contains(&fires.value) && fires.level >= 8, "{fires:?}");
    assert!(fires.since < fires.fired_at && fires.resolved_at.is_none(), "{fires:?}");
    let [group] = &fires.groups[..] else { panic!("{fires:?}") };
    assert_eq!((group.task.as_deref(), group.queue.as_deref()), (Some("send_email"), Some("default")));
    assert_eq!(group.error.kind.as_deref(), Some("ConnectionError"));
    assert_eq!(group.deaths, fires.level, "first deaths of the time it looks at");
    assert!(group.first_died_at.is_some() && group.first_died_at <= group.last_died_at, "{group:?}");
    assert_eq!(
        group.retrying.as_deref(),
        Some("No retry rule matches, so they stay in the DLQ for a person."),
        "it says what becomes of them"
    );
    let text = lookout.metrics.render();
    assert_eq!(metric(&text, "sexton_alert_firing", &[("alert", "rising"), ("severity", "critical")]), Some(1.0));

    lookout.ticks(30, Task::Email, 0).await;
    let over = lookout.page().await;
    assert_eq!((&over.incident, over.alert.as_str()), (&fires.incident, "rising"));
    assert!(over.resolved_at > over.fired_at && over.fired_at == fires.fired_at, "{over:?}");
    assert_eq!(over.value, 14, "so many died of it");
    let text = lookout.metrics.render();
    assert_eq!(metric(&text, "sexton_alert_firing", &[("alert", "rising")]), Some(0.0));
    lookout.reload(vec![AlertRule { severity: Severity::Info, ..burst(5) }]);
    lookout.ticks(1, Task::Email, 0).await;
    let text = lookout.metrics.render();
    assert_eq!(metric(&text, "sexton_alert_firing", &[("alert", "rising")]), None, "the series of a rule that is gone");
    assert_eq!(metric(&text, "sexton_alert_firing", &[("alert", "burst"), ("severity", "info")]), Some(0.0));
    lookout.metrics.leads("orders", false, &[]);
    assert_eq!(metric(&lookout.metrics.render(), "sexton_alert_firing", &[]), None);
}

#[tokio::test]
async fn a_new_leader_sees_the_same_window_and_the_same_incidents() {
    let mut stays = Lookout::by(vec![AlertRule { for_: secs(20), ..rising() }]).await;
    let mut changes = Lookout::by(vec![AlertRule { for_: secs(20), ..rising() }]).await;
    let mut told = [Vec::new(), Vec::new()];
    for (n, lookout) in [&mut stays, &mut changes].into_iter().enumerate() {
        // Rises for a while, waits as pending, fires, stops, is over.
        for tick in 0..70 {
            let die = if (13..35).contains(&tick) { 1 } else { 0 };
            lookout.ticks(1, Task::Email, die).await;
            if n == 1 {
                lookout.new_leader();
            }
            told[n].extend(lookout.told().await.iter().map(|data| (tick, short(data))));
        }
    }
    assert_eq!(told[0], told[1]);
    let [(_, fires), (_, over)] = &told[0][..] else { panic!("{told:?}") };
    assert_eq!((fires.as_str(), over.as_str()), ("rising fires", "rising is over"));
}

#[tokio::test]
async fn what_is_pending_is_pending_for_the_next_leader_under_the_same_id() {
    let mut lookout = Lookout::by(vec![AlertRule { for_: secs(30), ..burst(3) }]).await;
    lookout.ticks(1, Task::Email, 3).await;
    let pending = lookout.fields(|name| name == "incidents").await;
    let id = pending[0].1.split('"').nth(5).unwrap().to_owned();
    assert!(pending[0].1.contains("pending") && id.len() == 16, "{pending:?}");
    lookout.new_leader();
    lookout.ticks(4, Task::Email, 1).await;
    assert_eq!(lookout.pages().await, NOTHING);
    lookout.new_leader();
    lookout.ticks(2, Task::Email, 1).await;
    assert_eq!(lookout.page().await.incident, id);
}

#[tokio::test]
async fn a_gap_is_a_gap() {
    let mut lookout = Lookout::by(vec![rising(), burst(100)]).await;
    lookout.ticks(13, Task::Email, 0).await;
    lookout.ticks(4, Task::Email, 1).await;
    // Nobody leads for ten minutes; 50 die meanwhile, at once.
    lookout.passes(300);
    lookout.die(Task::Email, 50).await;
    lookout.passes(300);
    lookout.new_leader();
    lookout.ticks(20, Task::Email, 0).await;
    assert_eq!(lookout.pages().await, NOTHING, "a step over a gap is no rise");
    // What died in the gap is counted where it died.
    lookout.reload(vec![{
        let mut wide = burst(50);
        wide.kind = Kind::Burst(sexton::alert::Burst { over: secs(450), deaths: 50 });
        wide
    }]);
    lookout.ticks(1, Task::Email, 0).await;
    assert_eq!(lookout.pages().await, ["burst fires"]);
    // It fires through a gap, and is not over because nobody looked.
    lookout.passes(3_600);
    lookout.look().await;
    assert_eq!(lookout.pages().await, NOTHING, "the wait for its end begins anew");
    lookout.ticks(6, Task::Email, 0).await;
    assert_eq!(lookout.pages().await, ["burst is over"]);
}

#[tokio::test]
async fn much_that_is_unread_holds_up_no_look_at_the_line() {
    let mut lookout = Lookout::by(vec![rising(), burst(20_000)]).await;
    lookout.ticks(13, Task::Email, 0).await;
    let mut fired_at = None;
    for tick in 0..12 {
        lookout.passes(EVERY);
        // A storm in the middle of a rise: the watch has several steps to read.
        lookout.die(Task::Email, if tick == 5 { 20_000 } else { 2 }).await;
        lookout.glance().await.unwrap();
        for page in lookout.pages().await {
            let counted = lookout.yard.ledger.counted_until().await.unwrap().unwrap();
            let end = lookout.yard.ledger.outbox_end(Lane::Deaths).await.unwrap();
            if page == "rising fires" {
                assert!(counted < end, "nothing was left to count");
                fired_at = Some(tick);
            }
        }
    }
    assert!(fired_at.is_some(), "it waits until everything is counted");
    lookout.look().await;
    let end = lookout.yard.ledger.outbox_end(Lane::Deaths).await.unwrap();
    assert_eq!(lookout.yard.ledger.counted_until().await.unwrap(), Some(end));
    assert_eq!(lookout.deaths_counted().await, 20_022, "each is counted once");
}

#[tokio::test]
async fn what_waits_is_read_from_the_dlq_itself() {
    let kind = Kind::Waiting(Waiting { entries: 3, older_than: secs(3_600) });
    let rule = AlertRule { keep_firing_for: Duration::ZERO, ..AlertRule::new("untriaged", kind) };
    let by_task = AlertRule {
        by: vec![Key::Task],
        matcher: Matcher { reason: Some(vec!["max_attempts".to_owned()]), ..Matcher::default() },
        name: "by-task".to_owned(),
        ..rule.clone()
    };
    let mut lookout = Lookout::by(vec![rule, by_task]).await;
    let heavy = lookout.letters(Task::Email, 1).await.remove(0);
    bury(&mut lookout.yard.con, NS, &with(&heavy, "payload", &vec![b'x'; 3 << 20])).await;
    lookout.die(Task::Email, 1).await;
    lookout.ticks(1, Task::Email, 0).await;
    lookout.passes(1_800);
    lookout.die(Task::Email, 1).await;
    lookout.die(Task::Charge, 5).await;
    lookout.passes(1_801);
    lookout.look().await;
    assert_eq!(lookout.pages().await, NOTHING, "two of them are old enough");
    lookout.passes(1_800);
    lookout.look().await;
    let told: Vec<_> = lookout.told().await.iter().filter_map(|data| data.alert().cloned()).collect();
    let named: Vec<_> =
        told.iter().map(|alert| (alert.alert.as_str(), alert.labels.get("task").cloned(), alert.value)).collect();
    let task = |name: &str| Some(name.to_owned());
    let expected = [("untriaged", None, 3), ("by-task", task("charge_card"), 5), ("by-task", task("send_email"), 3)];
    assert_eq!(named, expected);
    assert_eq!(told[2].groups[0].deaths, 3);
    // Somebody removes them.
    let () = lookout.yard.con.del(dlq(NS)).await.unwrap();
    lookout.ticks(12, Task::Email, 0).await;
    let mut over = lookout.pages().await;
    over.sort();
    assert_eq!(over, ["by-task is over", "by-task is over", "untriaged is over"]);
}

#[tokio::test]
async fn a_young_dlq_is_not_read_and_an_old_one_by_a_command_a_minute() {
    let rule = AlertRule::new("untriaged", Kind::Waiting(Waiting { entries: 1, older_than: secs(3_600) }));
    let mut lookout = Lookout::by(vec![rule]).await;
    lookout.die(Task::Email, 300).await;
    lookout.look().await;
    for (apart, expected) in [(0, 0), (3_600, 1)] {
        lookout.passes(apart);
        lookout.look().await;
        let before = commands(&mut lookout, "xrange").await;
        lookout.ticks(12, Task::Email, 0).await;
        assert_eq!(commands(&mut lookout, "xrange").await - before, expected);
    }
}

/// How often a command has been processed.
async fn commands(lookout: &mut Lookout, name: &str) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut lookout.yard.con).await.expect("INFO works");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn only_what_was_not_there_before_is_a_new_kind() {
    let kind = Kind::NewGroup(NewGroup { quiet_for: secs(86_400) });
    let rule = AlertRule { by: vec![Key::Group], ..AlertRule::new("new-kind", kind) };
    // A group in the DLQ of which no event has told.
    let mut lookout = Lookout::by(Vec::new()).await;
    let before = lookout.letters(Task::Email, 5_000).await;
    bury_all(&mut lookout.yard.con, NS, before.into_iter()).await;
    lookout.yard.cursor = lookout.yard.skip_to_the_end().await;
    lookout.ticks(2, Task::Email, 0).await;
    assert_eq!(lookout.fields(|name| name == "learnt").await, [], "nobody asks");
    lookout.reload(vec![rule]);
    let mut looks = 1;
    while lookout.glance().await.unwrap() {
        looks += 1;
    }
    assert!((2..=6).contains(&looks), "in a few pages: {looks}");
    assert_eq!(lookout.fields(|name| name == "learnt").await[0].1, "all");
    lookout.ticks(2, Task::Email, 1).await;
    assert_eq!(lookout.pages().await, NOTHING, "its kind was there before");
    lookout.ticks(2, Task::Charge, 1).await;
    let page = lookout.page().await;
    assert_eq!(page.groups[0].task.as_deref(), Some("charge_card"));
    lookout.new_leader();
    lookout.ticks(3, Task::Charge, 1).await;
    assert_eq!(lookout.pages().await, NOTHING);
}

#[tokio::test]
async fn who_wants_to_hear_it_again_is_told_until_five_minutes_after_the_end() {
    let options = WatchOptions {
        every: secs(EVERY.unsigned_abs()),
        digest: None,
        reminded: vec!["manager".to_owned(), "other".to_owned()],
    };
    let hooks = Some(vec!["manager".to_owned(), "pager".to_owned()]);
    let mut lookout = Lookout::with(vec![AlertRule { hooks: hooks.clone(), ..burst(3) }], options).await;
    lookout.ticks(1, Task::Email, 3).await;
    let fires = lookout.page().await;
    assert_eq!((&fires.hooks, fires.repeated), (&hooks, false));
    lookout.new_leader();
    lookout.ticks(1, Task::Email, 3).await;
    let again = lookout.page().await;
    assert!(again.repeated && again.incident == fires.incident, "a new leader reminds at once");
    assert_eq!(again.hooks, Some(vec!["manager".to_owned()]), "and those who ask for it alone");
    lookout.ticks(24, Task::Email, 3).await;
    assert_eq!(lookout.pages().await, ["burst again", "burst again"], "every minute");
    lookout.ticks(13, Task::Email, 0).await;
    let told: Vec<String> = lookout.pages().await.into_iter().filter(|page| page != "burst again").collect();
    assert_eq!(told, ["burst is over"]);
    lookout.ticks(90, Task::Email, 0).await;
    let told = lookout.told().await;
    assert!((4..=5).contains(&told.len()), "{told:?}");
    for data in &told {
        let EventData::AlertResolved(alert) = data else { panic!("{data:?}") };
        assert!(alert.repeated && alert.incident == fires.incident && alert.fired_at == fires.fired_at);
        assert_eq!(alert.resolved_at, told[0].alert().unwrap().resolved_at, "it was over once");
        assert_eq!(alert.hooks, Some(vec!["manager".to_owned()]));
    }
}

#[tokio::test]
async fn a_summary_is_told_when_it_is_due_and_once_over_leaders() {
    let at = Window::parse("*/10 * * * *", Zone::UTC).unwrap();
    let digest = Some(DigestConfig { at, hooks: Some(vec!["mail".to_owned()]) });
    let options = WatchOptions { every: secs(EVERY.unsigned_abs()), digest, reminded: Vec::new() };
    let mut lookout = Lookout::with(vec![burst(400)], options).await;
    // Half a minute after one that would have been due.
    let now = now(&mut lookout.yard.con).await / 1_000;
    lookout.passes(630 - now % 600);
    lookout.ticks(1, Task::Email, 0).await;
    for _ in 0..10 {
        lookout.ticks(12, Task::Email, 1).await;
        lookout.new_leader();
    }
    let told = lookout.told().await;
    let [EventData::Digest(first)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((first.why.as_str(), &first.hooks), ("schedule", &Some(vec!["mail".to_owned()])));
    assert_eq!(first.counts.deaths, first.groups[0].counts.deaths);
    let outlook = first.outlook.as_ref().unwrap();
    assert_eq!(outlook.waiting, outlook.highest);
    assert_eq!(outlook.sparkline.chars().count(), 48);
    lookout.ticks(9, Task::Email, 5).await;
    lookout.ticks(120, Task::Charge, 0).await;
    let told = lookout.told().await;
    let [EventData::Digest(second)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(second.counts.deaths + first.counts.deaths, 120 + 45);
}

#[tokio::test]
async fn what_the_retry_loop_does_is_told_with_every_group() {
    let mut lookout = Lookout::by(vec![AlertRule { by: vec![Key::Group], ..burst(3) }]).await;
    let terms = Terms { min_age: secs(60), ..Terms::default() };
    let rule = RetryRule {
        name: RULE.to_owned(),
        matcher: Matcher::default(),
        action: Action::Retry(Box::new(terms.clone())),
    };
    lookout.rules.send_replace(Arc::new(Rules { retry: vec![rule], ..Rules::default() }));
    let id = lookout.bury_one(Task::Email).await;
    lookout.ticks(1, Task::Email, 3).await;
    let said = lookout.page().await.groups[0].retrying.clone().unwrap();
    assert!(said.starts_with("Rule flaky retries a job 1m after its death at the earliest"), "{said}");
    // A canary goes.
    let flight = lookout.yard.send(&id).await;
    lookout.ticks(20, Task::Email, 0).await;
    assert_eq!(lookout.pages().await, ["burst is over"]);
    lookout.ticks(1, Task::Email, 3).await;
    let said = lookout.page().await.groups[0].retrying.clone().unwrap();
    assert!(said.starts_with("Rule flaky has sent 1 retry ahead and waits for the outcome"), "{said}");
    // It fails.
    let mut learnt = Learnt::default();
    let now = lookout.yard.ledger.clock().now();
    let evidence = Evidence { round: 1, sent_at: now, was_failing: false, since: Millis(0) };
    learnt.failed(now, &Terms { min_age: secs(3_600), ..terms }, evidence, 0.0);
    let lesson = Lesson {
        pool: flight.place.pool.clone(),
        group: Some(flight.place.group.clone()),
        learnt: learnt.to_json(),
        held_until: None,
        keep_until: Millis(now.0 + 86_400_000),
    };
    lookout.yard.ledger.settle(&lookout.yard.lease, &[], &[lesson]).await.unwrap();
    lookout.ticks(20, Task::Email, 0).await;
    assert_eq!(lookout.pages().await, ["burst is over"]);
    lookout.ticks(1, Task::Email, 3).await;
    let said = lookout.page().await.groups[0].retrying.clone().unwrap();
    assert!(said.starts_with("Retries under rule flaky failed, so nothing of them is sent until"), "{said}");
}

#[tokio::test]
async fn rubbish_in_the_ledger_stops_neither_the_watch_nor_the_gauges() {
    let mut lookout = Lookout::by(vec![burst(3)]).await;
    let () = lookout.yard.con.set(WATCH, "a text").await.unwrap();
    lookout.ticks(1, Task::Email, 3).await;
    assert_eq!(lookout.pages().await, ["burst fires"]);
    for (name, text) in [("m1", "{"), ("k0", "x"), ("g00", ",,"), ("cursor", "somewhere"), ("\u{fffd}", "")] {
        let () = lookout.yard.con.hset(WATCH, name, text).await.unwrap();
    }
    lookout.new_leader();
    let () = lookout.yard.con.hset(WATCH, "revision", "rubbish").await.unwrap();
    lookout.ticks(2, Task::Email, 3).await;
    assert_eq!(lookout.pages().await, NOTHING, "it fires on");

    // Where nothing can be told, the gauges come all the same, and what is to be told comes later.
    let alerts = "{lrs}:sexton:outbox:alerts";
    let () = lookout.yard.con.rename(alerts, "aside").await.unwrap();
    let () = lookout.yard.con.set(alerts, "a text").await.unwrap();
    lookout.reload(vec![AlertRule { name: "other".to_owned(), ..burst(3) }]);
    for _ in 0..3 {
        lookout.passes(EVERY);
        lookout.die(Task::Charge, 3).await;
        let failed = lookout.glance().await;
        assert!(matches!(failed, Err(StoreError::Unexpected(_))), "{failed:?}");
        let entries = lookout.yard.con.xlen::<_, u32>(dlq(NS)).await.unwrap();
        assert_eq!(metric(&lookout.metrics.render(), "sexton_dlq_entries", &[]), Some(f64::from(entries)));
    }
    let () = lookout.yard.con.rename("aside", alerts).await.unwrap();
    lookout.ticks(1, Task::Charge, 0).await;
    let mut pages = lookout.pages().await;
    pages.sort();
    assert_eq!(pages, ["burst is over", "other fires"]);
}

#[tokio::test]
async fn a_lane_that_was_begun_anew_is_counted_from_its_beginning() {
    let mut lookout = Lookout::by(vec![burst(5)]).await;
    lookout.ticks(2, Task::Email, 1).await;
    let () = lookout.yard.con.hset(WATCH, "cursor", "99999999999999-0").await.unwrap();
    lookout.new_leader();
    let () = lookout.yard.con.del("{lrs}:sexton:outbox:deaths").await.unwrap();
    lookout.ticks(1, Task::Email, 5).await;
    assert_eq!(lookout.pages().await, ["burst fires"]);
}

#[tokio::test]
async fn who_does_not_lead_any_more_tells_nothing() {
    let mut lookout = Lookout::by(vec![burst(3)]).await;
    lookout.ticks(1, Task::Email, 1).await;
    lookout.die(Task::Email, 3).await;
    lookout.yard.ledger.release(&lookout.yard.lease).await.unwrap();
    lookout.yard.ledger.try_lease("successor", secs(60), 0).await.unwrap();
    assert_eq!(lookout.glance().await, Err(StoreError::Fenced));
    assert_eq!(lookout.pages().await, NOTHING);
}

#[tokio::test]
async fn what_is_not_counted_stays_in_the_outbox_unless_the_watch_does_not_get_on() {
    let mut lookout = Lookout::by(vec![burst(200)]).await;
    let every = Duration::from_millis(50);
    let outbox = OutboxConfig { cap: 100, keep: Duration::ZERO };
    let (ledger, lease) = (lookout.yard.ledger.clone(), lookout.yard.lease.clone());
    let mut trim = Trim::new(ledger, lease, Lane::Deaths, Vec::new(), outbox, every);
    let mut trimmed = async |lookout: &mut Lookout| {
        trim.step(&CancellationToken::new()).await.unwrap();
        lookout.yard.ledger.outbox_len(Lane::Deaths).await.unwrap()
    };
    // Nobody has counted yet, and room is short.
    lookout.die(Task::Email, 90).await;
    assert_eq!(trimmed(&mut lookout).await, 90);
    lookout.look().await;
    assert_eq!(trimmed(&mut lookout).await, 0, "no hook needs it either");
    lookout.die(Task::Email, 90).await;
    assert_eq!(trimmed(&mut lookout).await, 90);
    let began = monotonic();
    eventually("the watch is not waited for", SOON, || async { (began.elapsed() > every * 20).then_some(()) }).await;
    assert_eq!(trimmed(&mut lookout).await, 0);
    // It goes on from where something is.
    lookout.die(Task::Email, 20).await;
    lookout.look().await;
    assert_eq!(lookout.deaths_counted().await, 110);
}
