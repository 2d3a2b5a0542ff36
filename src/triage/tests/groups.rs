//! Groups.

use super::*;
use crate::{
    ledger::{Place, Pool},
    retry::{Evidence, Learnt},
};

/// The fingerprint with this number.
fn group(n: u64) -> Group {
    Group(format!("{n:012x}"))
}

async fn found(fake: &Fake, rules: &Rules, limit: usize) -> Groups {
    let sources: [&dyn TriageLedger; 1] = [fake];
    super::super::groups(&sources, &filter("{}"), rules, limit, &mut silent()).await.unwrap()
}

#[tokio::test]
async fn a_group_says_how_many_since_when_and_what_they_look_like() {
    let mut letters = vec![
        DeadLetter { group: group(1), queue: "old".into(), ..letter("1-0", 300) },
        DeadLetter { group: group(2), task: "parse_order".into(), ..letter("2-0", 200) },
        DeadLetter { group: group(1), queue: "new".into(), ..letter("3-0", 100) },
        DeadLetter { group: group(3), task: "charge".into(), ..letter("4-0", 90) },
        DeadLetter { group: group(4), reason: Reason::Malformed, ..letter("5-0", 80) },
    ];
    // A record may say nonsense about its death.
    letters.push(DeadLetter { group: group(1), queue: "newest".into(), ..letter("6-0", 700) });
    let mut fake = Fake::new("orders", letters);
    let all = found(&fake, &rules(), 10).await;
    assert_eq!((all.entries, all.other, all.next_cursor), (6, Other::default(), None));
    let first = &all.items[0];
    assert_eq!((first.group.as_str(), first.count, first.at_least), ("000000000001", 3, false));
    assert_eq!((first.queue.as_deref(), first.entry_id.as_str()), (Some("newest"), "6-0"));
    assert_eq!((first.times.first, first.times.last), (Millis(now().0 - 700_000), Millis(now().0 - 100_000)));
    assert!(all.items.iter().all(|item| item.state == GroupState::Unknown), "other rules are in force");

    fake.judging = Judging { generation: 1, fingerprint: rules().fingerprint, ..Judging::default() };
    let states =
        |all: &Groups| all.items.iter().map(|item| (item.group.clone(), item.state)).collect::<BTreeMap<_, _>>();
    let expected = [GroupState::Waiting, GroupState::Left, GroupState::NoRule, GroupState::Never];
    let expected: BTreeMap<String, GroupState> = (1..).map(|n| group(n).0).zip(expected).collect();
    assert_eq!(states(&found(&fake, &rules(), 10).await), expected);

    // Its retries fail.
    let place = Place { pool: Pool::of("flaky", "send_email"), group: group(1).0 };
    let evidence = Evidence { round: 1, sent_at: Millis(now().0 - 1), was_failing: false, since: Millis(0) };
    let mut learnt = Learnt::default();
    learnt.failed(now(), &Terms::default(), evidence, 0.0).unwrap();
    fake.learnt = BTreeMap::from([((place.pool, Some(place.group)), learnt.to_json())]);
    let all = found(&fake, &rules(), 10).await;
    let first = &all.items[0];
    assert_eq!((first.state, first.rule.as_deref()), (GroupState::Held, Some("flaky")));
    assert_eq!(first.held_until.as_deref(), Some("2026-11-29T17:22:50.500Z"));

    let few = found(&fake, &rules(), 1).await;
    assert_eq!((few.items.len(), few.other.groups, few.other.entries, few.other.estimated), (1, 3, 3, false));
}

#[tokio::test]
async fn retries_under_way_are_told_whoever_made_them() {
    let mut fake = Fake::new("orders", vec![DeadLetter { group: group(1), ..letter("1-0", 300) }]);
    fake.judging = Judging { generation: 1, fingerprint: rules().fingerprint, ..Judging::default() };
    let flight = |failing| crate::ledger::Flight {
        place: Place { pool: Pool::of(Pool::BY_HAND, "send_email"), group: group(1).0 },
        dead: crate::event::JobDead { group: group(1).0, ..Default::default() },
        stream: String::new(),
        dedup: None,
        sent_at: now(),
        confirm_by: now(),
        rounds: Default::default(),
        at: crate::ledger::Whereabouts::Queue(String::new()),
        seen_at: now(),
        failing,
    };
    fake.flights = vec![flight(false), flight(false), flight(true)];
    let item = found(&fake, &rules(), 10).await.items.remove(0);
    assert_eq!((item.state, item.in_flight), (GroupState::Retrying, 2));
}

#[tokio::test]
async fn very_many_groups_take_no_more_room_and_the_counts_still_add_up() {
    // Three large groups among forty thousand of one, the last of them late.
    let mut letters = letters(43_000);
    for (n, letter) in (0_u64..).zip(letters.iter_mut()) {
        letter.group = match n % 43 {
            0 => group(1),
            1 => group(2),
            2 if n < 21_500 => group(3),
            _ => group(1_000 + n),
        };
    }
    let fake = Fake::new("orders", letters);
    let all = found(&fake, &Rules::default(), 3).await;
    let shown: Vec<(&str, u64, bool)> = all.items.iter().map(|i| (i.group.as_str(), i.count, i.at_least)).collect();
    // Walked newest first, the third shows up only when others have been folded.
    assert_eq!(shown, [("000000000002", 1_000, false), ("000000000001", 1_000, false), ("000000000003", 500, true)]);
    assert!(all.other.estimated);
    assert_eq!(all.other.entries + 2_500, 43_000);
    assert_eq!(all.entries, 43_000);
}
