//! One thing the plan promises, per test.

use super::*;
use crate::delivery::{Answer, CONCURRENCY, Note, Outcome, PAGE, Taken};

const RETRY: Outcome = Outcome::Retry { after: None };

fn plan(rate: Rate) -> Plan {
    Plan::new(policy(rate), LaneState::new(place(0)))
}

fn filled(rate: Rate, events: u64) -> Plan {
    let mut plan = plan(rate);
    for ms in 1..=events {
        take(&mut plan, &death(ms), 1_000);
    }
    plan
}

/// Lets the oldest events fail until the endpoint counts as failing.
fn failing(events: u64) -> Plan {
    let mut plan = filled(Rate::Unlimited, events);
    let due = all_due(&mut plan, 1_000);
    assert_eq!(plan.settled(due[0].key, RETRY, Millis(1_000), 0.0), []);
    assert_eq!(plan.settled(due[1].key, RETRY, Millis(1_000), 0.0), []);
    let pause = Duration::from_secs(1);
    assert_eq!(plan.settled(due[2].key, RETRY, Millis(1_000), 0.0), [Note::Failing { pause }]);
    plan
}

#[test]
fn what_exceeds_the_rate_becomes_one_digest_when_the_window_ends() {
    let mut plan = plan(per_minute(2));
    let taken: Vec<_> = (1..=5).map(|ms| take(&mut plan, &death(ms), 1_000 + i64::try_from(ms).unwrap())).collect();
    assert_eq!(taken, [Taken::Single, Taken::Single, Taken::Folded, Taken::Folded, Taken::Folded]);
    assert_eq!(keys(&all_due(&mut plan, 2_000)), [Key::Event(place(1)), Key::Event(place(2))]);
    assert_eq!(plan.wake_at(), Some(Millis(61_001)), "the window began with its first event");

    plan.tick(Millis(61_000));
    assert_eq!(plan.state().digests.len(), 0);
    plan.tick(Millis(61_001));
    assert!(plan.save_is_urgent());
    assert_eq!(all_due(&mut plan, 61_001), [], "its id must be saved first");
    save(&mut plan);
    let due = all_due(&mut plan, 61_001);
    let event = due[0].digest.clone().unwrap();
    assert_eq!(event.id, "digest_orders_on_call_5-0_1");
    let EventData::Digest(digest) = event.data else { panic!("{event:?}") };
    assert_eq!((digest.counts.deaths, digest.why.as_str()), (3, "rate"));
    assert_eq!(take(&mut plan, &death(6), 61_002), Taken::Single, "a new window");
}

#[test]
fn what_becomes_of_jobs_is_folded_and_counted_like_their_deaths() {
    let mut plan = plan(per_minute(6));
    for ms in 1..=40 {
        let kind = usize::try_from(ms % 4).unwrap();
        let expected = if ms <= 6 { Taken::Single } else { Taken::Folded };
        assert_eq!(take(&mut plan, &about_a_job(ms, kind), 1_000), expected, "{ms}");
    }
    assert_eq!(plan.state().unsettled(), 40);
    assert_eq!(plan.wake_at(), Some(Millis(1_000)));
    for due in all_due(&mut plan, 1_000) {
        plan.settled(due.key, Outcome::Delivered, Millis(1_000), 0.0);
    }
    assert_eq!(plan.wake_at(), Some(Millis(61_000)));
    plan.tick(Millis(61_000));
    save(&mut plan);
    let due = all_due(&mut plan, 61_000);
    let Some(Event { data: EventData::Digest(digest), .. }) = &due[0].digest else { panic!("{due:?}") };
    assert_eq!(digest.counts, Counts { deaths: 9, retried: 8, recovered: 8, exhausted: 9 });
    assert_eq!(digest.groups.iter().map(|group| group.counts).sum::<Counts>(), digest.counts);
    plan.tick(Millis(61_000 + 24 * 3_600_000 - 1));
    for due in due {
        plan.settled(due.key, RETRY, Millis(61_000), 0.0);
    }
    let given_up = plan.tick(Millis(61_000 + 24 * 3_600_000));
    assert_eq!(given_up, [Note::GivenUp(34)], "each by itself, whatever its kind");
}

#[test]
fn events_of_which_none_is_a_death_make_a_digest_too() {
    for (kind, one) in KINDS.into_iter().enumerate().skip(1) {
        let mut plan = plan(per_minute(1));
        for ms in 1..=3 {
            take(&mut plan, &about_a_job(ms, kind), 1_000);
        }
        plan.tick(Millis(61_000));
        let counts: Vec<_> = plan.state().digests.iter().map(|digest| digest.data.counts).collect();
        assert_eq!(counts, [[one; 2].into_iter().sum()]);
    }
}

#[test]
fn a_million_of_anything_is_a_handful_of_requests() {
    let mut plan = plan(per_minute(60));
    let (mut posted, mut requests, mut told) = (0_u64, 0_u64, 0_u64);
    for second in 1..=120 {
        let now = second * 1_000;
        for _ in 0..8_334 {
            posted += 1;
            take(&mut plan, &about_a_job(posted, usize::try_from(posted % 4).unwrap()), now);
        }
        plan.tick(Millis(now));
        save(&mut plan);
        while let Some(due) = plan.due(Millis(now)) {
            requests += 1;
            told += match &due.digest {
                Some(Event { data: EventData::Digest(digest), .. }) => digest.counts.events(),
                _ => 1,
            };
            plan.settled(due.key, Outcome::Delivered, Millis(now), 0.0);
        }
    }
    assert!(posted > 1_000_000);
    assert!(requests <= 2 * 60 + 2, "{requests} requests");
    assert_eq!(told + plan.state().unsettled(), posted);
}

#[test]
fn a_digest_keeps_its_id_over_a_restart() {
    let mut plan = filled(per_minute(1), 3);
    plan.tick(Millis(100_000));
    let json = save(&mut plan).unwrap();
    let first = all_due(&mut plan, 100_000).into_iter().find_map(|due| due.digest).unwrap();
    let mut after = loaded(&json, per_minute(1));
    let again = all_due(&mut after, 200_000).into_iter().find_map(|due| due.digest).unwrap();
    assert_eq!(first, again);
}

#[test]
fn a_digest_that_waits_lets_the_next_one_grow() {
    let mut plan = filled(per_minute(1), 3);
    for window in 1..10 {
        let now = window * 100_000;
        plan.tick(Millis(now));
        for n in 0..3 {
            take(&mut plan, &death(now.unsigned_abs() + n), now);
        }
    }
    assert_eq!(plan.state().digests.len(), 1);
    assert_eq!(plan.state().unsettled(), 30);
}

#[test]
fn a_digest_from_the_outbox_is_sent_by_itself_whatever_the_rate() {
    let mut plan = filled(per_minute(1), 3);
    assert_eq!(take(&mut plan, &digest(4, 900), 1_000), Taken::Single);
}

#[test]
fn no_more_requests_than_slots_at_the_same_time() {
    let mut plan = filled(Rate::Unlimited, 40);
    let due = all_due(&mut plan, 1_000);
    assert_eq!(due.len(), CONCURRENCY);
    plan.settled(due[3].key, Outcome::Delivered, Millis(1_001), 0.0);
    assert_eq!(keys(&all_due(&mut plan, 1_001)), [Key::Event(place(17))]);
}

#[test]
fn a_failing_endpoint_is_probed_with_one_request_at_a_time_and_ever_longer_pauses() {
    let mut plan = failing(16);
    // The thirteen that were still on their way come back; they say nothing new.
    for ms in 4..=16 {
        assert_eq!(plan.settled(Key::Event(place(ms)), RETRY, Millis(1_500), 0.0), []);
    }
    let (mut now, mut pauses, mut probed) = (1_000, Vec::new(), Vec::new());
    for _ in 0..12 {
        let at = plan.wake_at().unwrap().0;
        pauses.push((at - now) / 1_000);
        assert_eq!(all_due(&mut plan, at - 1), []);
        let due = all_due(&mut plan, at);
        assert_eq!(due.len(), 1, "one probe, never two");
        probed.push(due[0].key);
        plan.settled(due[0].key, RETRY, Millis(at), 0.0);
        now = at;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 150, 150, 150, 150]);
    probed.sort_unstable();
    probed.dedup();
    assert_eq!(probed.len(), 12, "an event that is itself the trouble must not be every probe");
    assert_eq!(plan.read_up_to(Millis(now)), 0, "the backlog waits in the outbox");
}

#[test]
fn the_first_success_makes_everything_due_and_the_requests_grow_again() {
    let mut plan = failing(16);
    for ms in 4..=16 {
        plan.settled(Key::Event(place(ms)), RETRY, Millis(1_500), 1.0);
    }
    let due = all_due(&mut plan, 2_000);
    let notes = plan.settled(due[0].key, Outcome::Delivered, Millis(2_100), 0.0);
    assert_eq!(notes, [Note::Recovered { failures: 16, after: Duration::from_millis(1_100) }]);
    assert!(!plan.is_failing());
    let mut waves = Vec::new();
    loop {
        let due = all_due(&mut plan, 2_100);
        if due.is_empty() {
            break;
        }
        waves.push(due.len());
        for due in due {
            plan.settled(due.key, Outcome::Delivered, Millis(2_100), 0.0);
        }
    }
    assert_eq!(waves.iter().sum::<usize>(), 15);
    assert!(waves.is_sorted() && waves[0] <= 2, "{waves:?}");
}

#[test]
fn what_works_for_another_lane_is_tried_at_once() {
    let mut plan = failing(3);
    for _ in 0..10 {
        let at = plan.wake_at().unwrap();
        let due = plan.due(at).unwrap();
        plan.settled(due.key, RETRY, at, 1.0);
    }
    let now = plan.wake_at().unwrap().0 - 250_000;
    assert_eq!(all_due(&mut plan, now), []);
    plan.works_elsewhere(Millis(now));
    let due = all_due(&mut plan, now);
    assert_eq!(due.len(), 1, "one probe");
    let notes = plan.settled(due[0].key, Outcome::Delivered, Millis(now), 0.0);
    assert!(matches!(notes[..], [Note::Recovered { .. }]), "{notes:?}");
}

#[test]
fn what_works_for_another_lane_alone_is_no_reason_to_hammer() {
    let mut plan = failing(20);
    for ms in 4..=16 {
        plan.settled(Key::Event(place(ms)), RETRY, Millis(1_000), 0.0);
    }
    let mut probes = 0;
    for now in 1_000..61_000 {
        plan.works_elsewhere(Millis(now));
        for due in all_due(&mut plan, now) {
            probes += 1;
            plan.settled(due.key, RETRY, Millis(now), 0.0);
        }
    }
    assert!((6..=12).contains(&probes), "{probes} in a minute");
}

#[test]
fn a_hint_that_comes_while_a_probe_is_out_is_not_lost() {
    let mut plan = failing(3);
    for _ in 0..10 {
        let at = plan.wake_at().unwrap();
        let due = plan.due(at).unwrap();
        plan.settled(due.key, RETRY, at, 1.0);
    }
    let at = plan.wake_at().unwrap();
    let due = plan.due(at).unwrap();
    plan.works_elsewhere(Millis(at.0 + 500));
    plan.settled(due.key, RETRY, Millis(at.0 + 10_000), 1.0);
    assert_eq!(plan.wake_at(), Some(Millis(at.0 + 10_000)));
}

#[test]
fn a_pause_the_receiver_asked_for_holds_whatever_works_elsewhere() {
    let mut plan = filled(Rate::Unlimited, 3);
    for due in all_due(&mut plan, 1_000) {
        plan.settled(due.key, Outcome::Retry { after: Some(Duration::from_secs(60)) }, Millis(1_000), 0.0);
    }
    plan.works_elsewhere(Millis(2_000));
    assert_eq!(plan.wake_at(), Some(Millis(61_000)));
}

#[test]
fn spaced_requests_go_one_at_a_time_and_evenly() {
    let spaced = Policy { spacing: Duration::from_secs(1), ..policy(Rate::Unlimited) };
    let mut plan = Plan::new(spaced, LaneState::new(place(0)));
    for ms in 1..=60 {
        take(&mut plan, &death(ms), 1_000);
    }
    let (mut now, mut sent) = (1_000, Vec::new());
    while plan.state().unsettled() > 0 {
        let due = all_due(&mut plan, now);
        assert_eq!(due.len(), 1, "one at a time, at {now}");
        assert_eq!(plan.wake_at().filter(|at| at.0 < 86_400_000), None, "nothing to do until it has come back");
        sent.push(now);
        plan.settled(due[0].key, Outcome::Delivered, Millis(now + 300), 0.0);
        assert_eq!(all_due(&mut plan, now + 999), []);
        now = plan.wake_at().map_or(now, |at| at.0);
    }
    assert_eq!(sent, (1..=60).map(|second| second * 1_000).collect::<Vec<_>>());
}

#[test]
fn a_spaced_retry_is_not_held_back_by_what_is_new() {
    let spaced = Policy { spacing: Duration::from_secs(1), ..policy(Rate::Unlimited) };
    let mut plan = Plan::new(spaced, LaneState::new(place(0)));
    take(&mut plan, &death(1), 1_000);
    let due = plan.due(Millis(1_000)).unwrap();
    plan.settled(due.key, RETRY, Millis(1_000), 0.0);
    for second in 2..=10 {
        take(&mut plan, &death(second), 1_000 * i64::try_from(second).unwrap());
    }
    assert_eq!(keys(&all_due(&mut plan, 10_000)), [Key::Event(place(1))]);
}

#[test]
fn a_test_is_outdated_after_ten_minutes_and_a_death_never() {
    let test = Event { data: EventData::HookTest(crate::event::HookTest::default()), ..death(0).event };
    for (event, now, outdated) in
        [(&test, 600_000, false), (&test, 600_001, true), (&test, -5, false), (&death(0).event, i64::MAX, false)]
    {
        assert_eq!(crate::delivery::is_outdated(event, Millis(now)), outdated, "{now}");
    }
}

#[test]
fn a_failing_endpoint_stays_failing_over_a_restart() {
    let mut plan = failing(5);
    let mut after = loaded(&save(&mut plan).unwrap(), Rate::Unlimited);
    assert_eq!(all_due(&mut after, 1_999), []);
    assert_eq!(all_due(&mut after, 2_000).len(), 1);
}

#[test]
fn an_event_that_fails_alone_does_not_stop_the_others() {
    let mut plan = plan(Rate::Unlimited);
    for ms in 1..=200 {
        take(&mut plan, &death(ms), 1_000);
        for due in all_due(&mut plan, 1_000) {
            let poison = matches!(due.key, Key::Event(id) if id.ms % 2 == 0);
            plan.settled(due.key, if poison { RETRY } else { Outcome::Delivered }, Millis(1_000), 0.5);
        }
    }
    assert!(!plan.is_failing());
    assert_eq!(plan.state().unsettled(), 100);
    assert!(plan.read_up_to(Millis(1_000)) > 0);
    for ms in 201..=210 {
        take(&mut plan, &death(ms), 9_000);
    }
    let due = keys(&all_due(&mut plan, 9_000));
    let fresh = due.iter().filter(|key| matches!(key, Key::Event(id) if id.ms > 200)).count();
    assert_eq!((due.len(), fresh), (CONCURRENCY, 10), "what is new goes first");
}

#[test]
fn retries_never_take_every_slot() {
    let mut plan = filled(Rate::Unlimited, 30);
    for n in 0..30 {
        let due = plan.due(Millis(1_000)).unwrap();
        plan.settled(due.key, if n % 3 == 2 { Outcome::Delivered } else { RETRY }, Millis(1_000), 0.0);
    }
    assert_eq!(all_due(&mut plan, 60_000).len(), CONCURRENCY / 2);
    take(&mut plan, &death(99), 60_000);
    assert_eq!(keys(&all_due(&mut plan, 60_000)), [Key::Event(place(99))]);
}

#[test]
fn what_a_receiver_asks_for_holds_for_the_whole_lane() {
    let mut plan = filled(Rate::Unlimited, 3);
    let due = plan.due(Millis(1_000)).unwrap();
    plan.settled(due.key, Outcome::Retry { after: Some(Duration::from_secs(30)) }, Millis(1_000), 0.0);
    assert_eq!(all_due(&mut plan, 30_999), []);
    assert_eq!(plan.wake_at(), Some(Millis(31_000)));
    assert_eq!(all_due(&mut plan, 31_000).len(), 3);
}

#[test]
fn an_event_is_given_up_after_its_time_counted_from_its_first_try() {
    let day = 24 * 3_600_000;
    let mut plan = failing(3);
    plan.tick(Millis(500_000));
    take(&mut plan, &death(4), 600_000);
    assert_eq!(plan.tick(Millis(day + 999)), []);
    assert_eq!(plan.tick(Millis(day + 1_000)), [Note::GivenUp(3)]);
    assert_eq!(plan.state().pending.keys().copied().collect::<Vec<_>>(), [place(4)]);
}

#[test]
fn a_hook_that_is_gone_gets_nothing_until_its_configuration_changes() {
    let mut plan = filled(per_minute(2), 5);
    let due = all_due(&mut plan, 1_000);
    assert_eq!(plan.settled(due[0].key, Outcome::SwitchedOff, Millis(1_100), 0.0), [Note::SwitchedOff(4)]);
    assert!(due.iter().all(|due| !plan.awaits(due.key)), "counted with the rest, not again when it answers");
    assert_eq!(plan.settled(due[1].key, Outcome::SwitchedOff, Millis(1_100), 0.0), []);
    assert_eq!(take(&mut plan, &death(6), 1_200), Taken::Rejected);
    assert_eq!(all_due(&mut plan, 99_000), []);
    assert_eq!(plan.cursor(), place(6));
    let json = save(&mut plan).unwrap();
    assert!(loaded(&json, per_minute(2)).is_off());
    let other = Policy { fingerprint: "f2".to_owned(), ..policy(per_minute(2)) };
    let mut back = Plan::new(other, LaneState::from_json(&json).unwrap());
    assert_eq!(take(&mut back, &death(7), 1_300), Taken::Single);
}

#[test]
fn what_one_lane_was_told_for_good_holds_for_the_other() {
    let mut plan = filled(per_minute(2), 5);
    let due = all_due(&mut plan, 1_000);
    assert_eq!(plan.gone_elsewhere(), Some(Note::SwitchedOff(5)));
    assert_eq!(plan.gone_elsewhere(), None);
    assert!(!plan.awaits(due[0].key));
    assert_eq!(plan.settled(due[0].key, Outcome::SwitchedOff, Millis(1_100), 0.0), []);
    assert_eq!(take(&mut plan, &death(6), 1_200), Taken::Rejected);
    assert!(loaded(&save(&mut plan).unwrap(), per_minute(2)).is_off());
}

#[test]
fn what_the_outbox_has_no_room_for_is_counted_in_one_digest() {
    let mut plan = failing(5);
    let probe = plan.due(Millis(2_000)); // Two are still on their way, so there is none.
    assert_eq!(probe, None);
    for ms in 1..=100 {
        let kind = if ms <= 5 { 0 } else { usize::try_from(ms % 4).unwrap() };
        plan.relieve(&about_a_job(ms, kind), ms != 50, JobDead::clone);
        plan.tick(Millis(2_000));
    }
    plan.relieve(&digest(101, 7_000), true, JobDead::clone);
    assert_eq!(plan.cursor(), place(101));
    assert_eq!(plan.state().overflowed(), 97, "not the unwanted one, nor the two on their way");
    assert_eq!(plan.state().digests[0].id, "e101", "a digest is kept whole");
    for ms in [4, 5] {
        plan.settled(Key::Event(place(ms)), Outcome::Delivered, Millis(3_000), 0.0);
    }
    plan.tick(Millis(3_000));
    save(&mut plan);
    let counts: Vec<_> = plan.state().digests.iter().map(|it| (it.data.why.as_str(), it.data.counts.deaths)).collect();
    assert_eq!(counts, [("existing", 7_000), ("overflow", 27)]);
    let all = plan.state().digests[1].data.counts;
    assert_eq!(all, Counts { deaths: 27, retried: 23, recovered: 23, exhausted: 24 });
    assert_eq!(plan.state().position(), OutboxId { ms: 101, seq: 1 });
}

#[test]
fn an_event_the_outbox_has_lost_is_given_up() {
    let mut plan = filled(Rate::Unlimited, 1);
    let due = plan.due(Millis(1_000)).unwrap();
    assert_eq!(plan.gone(due.key), Some(Note::GivenUp(1)));
    assert_eq!(plan.gone(due.key), None);
}

#[test]
fn what_is_skipped_leaves_nothing_behind() {
    let mut plan = filled(Rate::Unlimited, 1);
    let due = plan.due(Millis(1_000)).unwrap();
    plan.skipped(due.key);
    assert_eq!((plan.state().unsettled(), plan.wake_at()), (0, None));
}

#[test]
fn a_try_the_store_prevented_is_no_failure_of_the_receiver() {
    let mut plan = filled(Rate::Unlimited, 3);
    for due in all_due(&mut plan, 1_000) {
        plan.postponed(due.key, Millis(1_000));
    }
    assert!(!plan.is_failing());
    assert_eq!(plan.wake_at(), Some(Millis(2_000)));
    assert_eq!(all_due(&mut plan, 2_000).len(), 3);
}

#[test]
fn a_storm_leaves_the_state_small() {
    let mut plan = plan(per_minute(60));
    let long = "é".repeat(300);
    for ms in 1..=100_000 {
        let mut posted = about_a_job(ms, usize::try_from(ms % 4).unwrap());
        if let Some(dead) = posted.event.data.job_mut() {
            dead.group = format!("{:012x}", ms % 5_000);
            dead.error.message = Some(long.clone());
            dead.task = Some("send_email".to_owned());
        }
        if ms % 500 == 1 {
            assert!(plan.read_up_to(Millis(1_000)) > 0);
        }
        take(&mut plan, &posted, 1_000);
    }
    assert_eq!(all_due(&mut plan, 1_000).len(), CONCURRENCY);
    assert_eq!(plan.read_up_to(Millis(1_000)), PAGE, "folding needs no room");
    plan.tick(Millis(70_000));
    assert_eq!(plan.state().unsettled(), 100_000);
    let json = save(&mut plan).unwrap();
    assert!(json.len() < 64 * 1024, "{} bytes", json.len());
}

#[test]
fn a_store_whose_clock_stepped_back_delays_nothing_for_long() {
    let year = 365 * 24 * 3_600_000;
    let mut plan = plan(Rate::Unlimited);
    for ms in 1..=3 {
        take(&mut plan, &death(ms), year);
    }
    plan.tick(Millis(year));
    for due in all_due(&mut plan, year) {
        plan.settled(due.key, Outcome::Retry { after: Some(Duration::from_secs(60)) }, Millis(year), 0.0);
    }
    let mut restarted = loaded(&save(&mut plan).unwrap(), Rate::Unlimited);
    for plan in [&mut plan, &mut restarted] {
        plan.tick(Millis(1_000));
        assert!(plan.wake_at().unwrap() <= Millis(1_000 + 3_600_000));
        assert_eq!(plan.tick(Millis(25 * 3_600_000)), [Note::GivenUp(3)]);
    }
}

#[test]
fn what_went_wrong_last_is_remembered_until_the_same_event_is_delivered() {
    let mut plan = filled(Rate::Unlimited, 4);
    let due = all_due(&mut plan, 1_000);
    let answer = |outcome, status| Answer {
        outcome,
        status: Some(status),
        error: Some(format!("{status} ") + &"x".repeat(5_000)),
    };
    assert_eq!((plan.state().last_trouble(), plan.state().delivered_at()), (None, None));
    plan.settled(due[0].key, answer(RETRY, 503), Millis(1_100), 0.0);
    let trouble = plan.state().last_trouble().unwrap().clone();
    assert_eq!(
        (trouble.at, trouble.status, trouble.event, trouble.rejected),
        (1_100, Some(503), Some(place(1)), false)
    );
    assert!(trouble.error.starts_with("503 xxx") && trouble.error.len() == 200, "{}", trouble.error);
    assert_eq!(plan.state().rejecting_since(), None);
    for (n, at) in [(1, 1_200), (2, 1_300)] {
        plan.settled(due[n].key, answer(Outcome::Rejected, 404), Millis(at), 0.0);
    }
    let trouble = plan.state().last_trouble().unwrap().clone();
    assert_eq!((trouble.status, trouble.event, trouble.rejected), (Some(404), Some(place(3)), true));
    assert_eq!(plan.state().rejecting_since(), Some(1_200), "since the first of the row");
    let json = save(&mut plan).unwrap();
    assert_eq!(loaded(&json, Rate::Unlimited).state(), plan.state());

    plan.settled(due[3].key, Outcome::Delivered, Millis(1_400), 0.0);
    assert_eq!((plan.state().rejecting_since(), plan.state().delivered_at()), (None, Some(1_400)));
    assert_eq!(plan.state().last_trouble(), Some(&trouble), "that of another event");

    let again = all_due(&mut plan, 60_000);
    plan.settled(again[0].key, answer(RETRY, 503), Millis(60_000), 0.0);
    assert_eq!(plan.state().last_trouble().unwrap().event, Some(place(1)));
    let again = all_due(&mut plan, 600_000);
    plan.settled(again[0].key, Outcome::Delivered, Millis(600_000), 0.0);
    assert_eq!(plan.state().last_trouble(), None);
}
