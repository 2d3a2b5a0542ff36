//! The events of an incident go out in order.

use super::*;
use crate::delivery::{Note, Outcome, TRIED_AT_MOST};

const RETRY: Outcome = Outcome::Retry { after: None };

fn plan_with(newest_alone: bool, posted: &[Posted]) -> Plan {
    let policy = Policy { newest_alone, ..policy(Rate::Unlimited) };
    let mut plan = Plan::new(policy, LaneState::new(place(0)));
    for posted in posted {
        take(&mut plan, posted, 1_000);
    }
    plan
}

fn places(numbers: &[u64]) -> Vec<Key> {
    numbers.iter().map(|ms| Key::Event(place(*ms))).collect()
}

fn pending(plan: &Plan) -> Vec<u64> {
    plan.state().pending.keys().map(|id| id.ms).collect()
}

#[test]
fn what_is_over_waits_for_what_fires_and_nobody_else_waits() {
    let mut plan = plan_with(false, &[alert(1, 0, true), alert(2, 0, false), alert(3, 1, true), death(4)]);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[1, 3, 4]));
    plan.settled(Key::Event(place(1)), RETRY, Millis(1_000), 0.0);
    let again = plan.wake_at().unwrap();
    assert_eq!(keys(&all_due(&mut plan, again.0)), places(&[1]), "and not its end, which was never tried");
    plan.settled(Key::Event(place(1)), Outcome::Delivered, again, 0.0);
    assert_eq!(keys(&all_due(&mut plan, again.0)), places(&[2]));
}

#[test]
fn the_order_holds_over_a_restart_and_over_what_is_given_up_rejected_or_lost() {
    let mut plan = plan_with(false, &[alert(1, 0, true), alert(2, 0, true), alert(3, 0, false), alert(4, 0, false)]);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[1]));
    plan.settled(Key::Event(place(1)), RETRY, Millis(1_000), 0.0);
    let mut plan = loaded(&save(&mut plan).unwrap(), Rate::Unlimited);
    assert_eq!(keys(&all_due(&mut plan, 60_000)), places(&[1]));
    plan.settled(Key::Event(place(1)), RETRY, Millis(60_000), 0.0);
    let day = 24 * 3_600_000;
    assert_eq!(plan.tick(Millis(1_000 + day)), [Note::GivenUp(1)]);
    assert_eq!(keys(&all_due(&mut plan, 1_000 + day)), places(&[2]), "which has its own day");
    plan.settled(Key::Event(place(2)), Outcome::Rejected, Millis(1_000 + day), 0.0);
    assert_eq!(keys(&all_due(&mut plan, 1_000 + day)), places(&[3]));
    assert_eq!(plan.gone(Key::Event(place(3))), Some(Note::GivenUp(1)));
    assert_eq!(keys(&all_due(&mut plan, 1_000 + day)), places(&[4]));
}

#[test]
fn a_failing_endpoint_is_probed_with_the_first_of_each_incident() {
    let posted: Vec<_> = (1..=12).map(|ms| alert(ms, usize::try_from(ms).unwrap() % 3, true)).collect();
    let mut plan = plan_with(false, &posted);
    let due = all_due(&mut plan, 1_000);
    assert_eq!(keys(&due), places(&[1, 2, 3]));
    for due in due {
        plan.settled(due.key, RETRY, Millis(1_000), 0.0);
    }
    assert!(plan.is_failing());
    for _ in 0..6 {
        let at = plan.wake_at().unwrap();
        let due = all_due(&mut plan, at.0);
        assert!(due.len() == 1 && places(&[1, 2, 3]).contains(&due[0].key), "{due:?}");
        plan.settled(due[0].key, RETRY, at, 0.0);
    }
}

#[test]
fn what_waits_for_its_turn_does_not_keep_other_incidents_from_being_read() {
    let mut plan = plan_with(false, &[]);
    for ms in 1..TRIED_AT_MOST as u64 {
        assert!(plan.read_up_to(Millis(1_000)) > 0, "{ms}");
        take(&mut plan, &alert(ms, 0, true), 1_000);
    }
    take(&mut plan, &alert(5_000, 1, true), 1_000);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[1, 5_000]));
    take(&mut plan, &alert(5_001, 0, true), 1_000);
    take(&mut plan, &alert(5_002, 0, true), 1_000);
    assert_eq!(plan.read_up_to(Millis(1_000)), 0, "but there is an end to it");
}

#[test]
fn where_the_newest_counts_alone_it_takes_the_place_of_those_before() {
    let posted = [alert(1, 0, true), alert(2, 1, true), alert(3, 0, true), alert(4, 0, true)];
    let mut plan = plan_with(true, &posted);
    assert_eq!(pending(&plan), [2, 4]);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[2, 4]));
    // On its way it is left alone, and what comes meanwhile waits for it.
    take(&mut plan, &alert(5, 0, true), 1_000);
    take(&mut plan, &alert(6, 0, true), 1_000);
    assert_eq!(pending(&plan), [2, 4, 6]);
    assert_eq!(all_due(&mut plan, 1_000), []);
    plan.settled(Key::Event(place(4)), RETRY, Millis(1_000), 0.0);
    assert_eq!(pending(&plan), [2, 6], "it is not tried again: there is a newer one");
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[6]));
    // That it is over is never dropped, and what fires after that is another matter.
    for posted in [alert(7, 0, false), alert(8, 0, true), alert(9, 0, false), alert(10, 0, true), alert(11, 0, true)] {
        take(&mut plan, &posted, 1_000);
    }
    assert_eq!(pending(&plan), [2, 6, 7, 8, 9, 11]);
    let policy = Policy { newest_alone: true, ..policy(Rate::Unlimited) };
    let restarted = Plan::new(policy, LaneState::from_json(&save(&mut plan).unwrap()).unwrap());
    assert_eq!(pending(&restarted), [2, 6, 7, 8, 9, 11]);
}

#[test]
fn after_a_restart_what_was_on_its_way_gives_way_to_what_is_newer() {
    let mut plan = plan_with(true, &[alert(1, 0, true)]);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[1]));
    take(&mut plan, &alert(2, 0, true), 1_000);
    let policy = Policy { newest_alone: true, ..policy(Rate::Unlimited) };
    let mut restarted = Plan::new(policy, LaneState::from_json(&save(&mut plan).unwrap()).unwrap());
    assert_eq!(keys(&all_due(&mut restarted, 1_000)), places(&[2]));
}

#[test]
fn incidents_of_the_same_labels_are_one_only_where_labels_are_all_there_is() {
    let other = |ms, n, fires| {
        let mut posted = alert(ms, n, fires);
        if let EventData::AlertFiring(alert) | EventData::AlertResolved(alert) = &mut posted.event.data {
            alert.incident = format!("again {n}");
        }
        posted
    };
    for (newest_alone, expected) in [(false, &[1, 2][..]), (true, &[1])] {
        let mut plan = plan_with(newest_alone, &[alert(1, 0, false), other(2, 0, true)]);
        assert_eq!(keys(&all_due(&mut plan, 1_000)), places(expected), "{newest_alone}");
    }
}

#[test]
fn an_alert_that_the_outbox_has_no_room_for_is_still_sent() {
    let mut plan = plan_with(false, &[alert(1, 0, true)]);
    assert!(!plan.relieve(&alert(1, 0, true), true, JobDead::clone), "it is pending already");
    assert!(plan.relieve(&alert(2, 0, false), true, JobDead::clone));
    assert!(plan.relieve(&alert(3, 1, true), false, JobDead::clone), "passed over: nobody wants it");
    assert_eq!((plan.cursor(), pending(&plan)), (place(3), vec![1, 2]));
    assert_eq!(plan.state().overflowed(), 0);
    assert_eq!(keys(&all_due(&mut plan, 1_000)), places(&[1]));
}
