//! Random histories of events, answers, time, saves and crashes: nothing is lost, and without a crash nothing is told
//! twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::delivery::{Note, Outcome, Taken};

#[derive(Clone, Debug)]
enum Move {
    /// These kinds of events, one after the other.
    Append(Vec<usize>),
    Read,
    Answer(Outcome),
    Wait(u32),
    Save,
    Crash,
    Relieve(u8),
    WorksElsewhere,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Delivered),
        3 => Just(Outcome::Retry { after: None }),
        1 => Just(Outcome::Retry { after: Some(Duration::from_secs(90)) }),
        1 => Just(Outcome::Rejected),
    ]
}

/// One of the [`KINDS`], or beyond them an alert of one of three incidents.
fn kind() -> impl Strategy<Value = usize> {
    prop_oneof![9 => 0..KINDS.len(), 1 => KINDS.len()..KINDS.len() + 6]
}

/// Which incident an event is of, and whether it says that it fires.
fn incident(kind: usize) -> Option<(usize, bool)> {
    let n = kind.checked_sub(KINDS.len())?;
    Some((n / 2, n.is_multiple_of(2)))
}

fn moves(crashes: bool) -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => prop::collection::vec(kind(), 1..40).prop_map(Move::Append),
        4 => Just(Move::Read),
        6 => outcome().prop_map(Move::Answer),
        2 => (1..120_000_u32).prop_map(Move::Wait),
        2 => Just(Move::Save),
        1 => (1..20_u8).prop_map(Move::Relieve),
        1 => Just(Move::WorksElsewhere),
        1 => Just(if crashes { Move::Crash } else { Move::Save }),
    ];
    prop::collection::vec(one, 0..150)
}

/// The world around a plan: an outbox, a receiver, and a ledger that holds what was saved last.
struct World {
    plan: Plan,
    policy: Policy,
    now: i64,
    outbox: BTreeMap<OutboxId, Posted>,
    /// The kind of each event.
    kinds: BTreeMap<OutboxId, usize>,
    /// Requests on their way.
    sending: Vec<Due>,
    /// Which events the running tallies stand for: beyond the rate, and of the full outbox.
    folded: Vec<OutboxId>,
    overflow: Vec<OutboxId>,
    /// Which events each digest stands for, by its id.
    digests: HashMap<String, Vec<OutboxId>>,
    saved: (String, Vec<OutboxId>, Vec<OutboxId>),
    /// Webhook ids of digests the receiver has taken.
    taken: BTreeSet<String>,
    /// How often each event was settled, singly or in a digest.
    settled: BTreeMap<OutboxId, u32>,
    /// When each event was chosen to be sent singly, for the first time.
    singles: BTreeMap<OutboxId, i64>,
    given_up: u64,
    /// What was not sent because the same was told anew.
    superseded: BTreeSet<OutboxId>,
    /// When the last request of this plan was made.
    last_sent: Option<i64>,
}

impl World {
    fn new(policy: Policy) -> World {
        let plan = Plan::new(policy.clone(), LaneState::new(place(0)));
        let saved = (plan.state().to_json(), Vec::new(), Vec::new());
        World {
            plan,
            policy,
            now: 1_000,
            outbox: BTreeMap::new(),
            kinds: BTreeMap::new(),
            sending: Vec::new(),
            folded: Vec::new(),
            overflow: Vec::new(),
            digests: HashMap::new(),
            saved,
            taken: BTreeSet::new(),
            settled: BTreeMap::new(),
            singles: BTreeMap::new(),
            given_up: 0,
            superseded: BTreeSet::new(),
            last_sent: None,
        }
    }

    fn append(&mut self, kinds: &[usize]) {
        for kind in kinds {
            let ms = self.outbox.len() as u64 + 1;
            let posted = match incident(*kind) {
                Some((n, fires)) => alert(ms, n, fires),
                None => about_a_job(ms, *kind),
            };
            self.outbox.insert(place(ms), posted);
            self.kinds.insert(place(ms), *kind);
        }
    }

    /// Notices a digest made of a running tally, and what it stands for.
    fn look_at_digests(&mut self) {
        for digest in &self.plan.state().digests {
            let (tally, left) = match digest.data.why.as_str() {
                "rate" => (&mut self.folded, self.plan.state().folded.events()),
                _ => (&mut self.overflow, self.plan.state().overflow.events()),
            };
            if digest.since_version > 0 && !self.digests.contains_key(&digest.id) {
                let keep = tally.split_off(tally.len() - usize::try_from(left).unwrap());
                let events = std::mem::replace(tally, keep);
                let counts: Counts = events.iter().map(|id| KINDS[self.kinds[id]]).sum();
                assert_eq!(counts, digest.data.counts, "a digest counts exactly what it stands for");
                let groups: Counts = digest.data.groups.iter().map(|group| group.counts).sum();
                assert_eq!(groups, counts, "and so do its groups, all of them listed");
                self.digests.insert(digest.id.clone(), events);
            }
        }
    }

    fn read(&mut self) {
        let now = Millis(self.now);
        let most = self.plan.read_up_to(now);
        let after = self.plan.cursor();
        let page = self.outbox.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)).take(most);
        let page: Vec<_> = page.map(|(id, posted)| (*id, posted.clone())).collect();
        for (id, posted) in &page {
            let before = incident(self.kinds[id]).map(|_| pending(&self.plan));
            let taken = self.plan.take(posted, true, now, JobDead::clone);
            before.iter().for_each(|before| self.dropped(before));
            match taken {
                Taken::Single if incident(self.kinds[id]).is_some() => {}
                Taken::Single => drop(self.singles.entry(*id).or_insert(self.now)),
                Taken::Folded => self.folded.push(*id),
                other => panic!("{other:?}"),
            }
        }
        self.go_on();
    }

    fn go_on(&mut self) {
        self.look_at_digests();
        let notes = self.plan.tick(Millis(self.now));
        self.note(&notes);
        self.look_at_digests();
        let due: Vec<_> = std::iter::from_fn(|| self.plan.due(Millis(self.now))).collect();
        for due in &due {
            self.is_in_order(due.key);
            self.sending.push(due.clone());
        }
        let spacing = i64::try_from(self.policy.spacing.as_millis()).unwrap();
        if spacing > 0 && !due.is_empty() {
            assert_eq!(self.sending.len(), 1, "one at a time");
            assert!(self.last_sent.replace(self.now).is_none_or(|last| self.now - last >= spacing));
        }
    }

    /// Nothing of the same incident that came earlier is still to be sent, or on its way.
    fn is_in_order(&self, key: Key) {
        let Key::Event(id) = key else { return };
        let Some((n, _)) = incident(self.kinds[&id]) else { return };
        let of_incident = |other: &OutboxId| incident(self.kinds[other]).is_some_and(|(other, _)| other == n);
        assert!(!pending(&self.plan).iter().any(|other| *other < id && of_incident(other)), "{id} overtakes");
        let sent = |due: &Due| matches!(due.key, Key::Event(other) if of_incident(&other));
        assert!(!self.sending.iter().any(sent), "{id} is sent beside another one");
    }

    /// Takes over what is pending no more and was not settled.
    fn dropped(&mut self, before: &BTreeSet<OutboxId>) {
        let dropped = before - &pending(&self.plan);
        dropped.iter().for_each(|id| self.was_superfluous(*id));
        self.superseded.extend(dropped);
    }

    /// What was dropped says that something fires, was not on its way, and is followed by the same.
    fn was_superfluous(&self, id: OutboxId) {
        assert!(self.policy.newest_alone, "{id}");
        let (n, fires) = incident(self.kinds[&id]).expect("only of incidents");
        let next = self.kinds.range((std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded));
        let mut next = next.filter_map(|(_, kind)| incident(*kind)).filter(|(other, _)| *other == n);
        assert!(fires && next.next() == Some((n, true)), "{id}");
        assert!(!self.sending.iter().any(|due| due.key == Key::Event(id)), "{id} was on its way");
    }

    fn note(&mut self, notes: &[Note]) {
        for note in notes {
            if let Note::GivenUp(events) = note {
                self.given_up += events;
            }
        }
    }

    fn answer(&mut self, outcome: Outcome) {
        if self.sending.is_empty() {
            return self.go_on();
        }
        let due = self.sending.remove(0);
        let before = matches!(outcome, Outcome::Retry { .. }).then(|| pending(&self.plan));
        let notes = self.plan.settled(due.key, outcome, Millis(self.now), 0.5);
        self.note(&notes);
        before.iter().for_each(|before| self.dropped(before));
        if matches!(outcome, Outcome::Delivered | Outcome::Rejected) {
            match (due.key, due.digest) {
                (Key::Event(id), _) => *self.settled.entry(id).or_default() += 1,
                (Key::Digest(_), Some(event)) => {
                    if self.taken.insert(event.id.clone()) {
                        for id in &self.digests[&event.id] {
                            *self.settled.entry(*id).or_default() += 1;
                        }
                    }
                }
                (Key::Digest(_), None) => panic!("a digest without a body"),
            }
        }
        self.go_on();
    }

    fn relieve(&mut self, events: u8) {
        let oldest: Vec<_> = self.outbox.values().take(usize::from(events)).cloned().collect();
        for posted in oldest {
            let before = self.plan.state().overflow.events();
            let waiting = incident(self.kinds[&posted.id]).map(|_| pending(&self.plan));
            self.plan.relieve(&posted, true, JobDead::clone);
            waiting.iter().for_each(|waiting| self.dropped(waiting));
            if self.plan.state().overflow.events() > before {
                self.overflow.push(posted.id);
                self.singles.remove(&posted.id);
            }
        }
        self.go_on();
    }

    fn save(&mut self) {
        if let Some(json) = save(&mut self.plan) {
            assert!(json.len() < 64 * 1024);
            self.saved = (json, self.folded.clone(), self.overflow.clone());
        }
        self.go_on();
    }

    fn crash(&mut self) {
        let (json, folded, overflow) = self.saved.clone();
        let saved = LaneState::from_json(&json).unwrap();
        let waiting: BTreeSet<_> = saved.pending.keys().copied().collect();
        self.plan = Plan::new(self.policy.clone(), saved);
        self.last_sent = None;
        (self.folded, self.overflow) = (folded, overflow);
        self.sending.clear();
        self.dropped(&waiting);
        // What was frozen but never saved was never sent either: its id may be used again.
        let kept: BTreeSet<_> = self.plan.state().digests.iter().map(|digest| digest.id.clone()).collect();
        self.digests.retain(|id, _| kept.contains(id) || self.taken.contains(id));
    }

    fn play(&mut self, moves: &[Move]) {
        for one in moves {
            match one {
                Move::Append(kinds) => self.append(kinds),
                Move::Read => self.read(),
                Move::Answer(outcome) => self.answer(*outcome),
                Move::Wait(ms) => {
                    self.now += i64::from(*ms);
                    self.go_on();
                }
                Move::Save => self.save(),
                Move::Crash => self.crash(),
                Move::Relieve(events) => self.relieve(*events),
                Move::WorksElsewhere => self.plan.works_elsewhere(Millis(self.now)),
            }
            self.woken_in_time();
        }
    }

    /// If something could be done now, it has been; so whoever sleeps until `wake_at` never spins.
    fn woken_in_time(&mut self) {
        self.go_on();
        if let Some(at) = self.plan.wake_at() {
            assert!(at.0 > self.now, "{at:?} at {}", self.now);
        }
    }

    /// From here on everything works: all must go out.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            self.read();
            if self.plan.save_is_urgent() {
                self.save();
            }
            if !self.sending.is_empty() {
                self.answer(Outcome::Delivered);
            } else if let Some(at) = self.plan.wake_at() {
                self.now = self.now.max(at.0);
            } else if self.plan.cursor() >= place(self.outbox.len() as u64) {
                assert_eq!(self.plan.state().unsettled(), 0);
                return;
            }
        }
        panic!("never done: {:?}", self.plan);
    }
}

/// Events that are to be sent singly and not settled.
fn pending(plan: &Plan) -> BTreeSet<OutboxId> {
    plan.state().pending.keys().copied().collect()
}

fn policies() -> impl Strategy<Value = Policy> {
    let rates = prop_oneof![Just(Rate::Unlimited), (1..20_u32).prop_map(per_minute)];
    let spacings = prop_oneof![2 => Just(Duration::ZERO), 1 => Just(Duration::from_secs(1))];
    (rates, spacings, any::<bool>()).prop_map(|(rate, spacing, newest_alone)| Policy {
        spacing,
        newest_alone,
        ..policy(rate)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn without_a_crash_every_event_is_settled_exactly_once(policy in policies(), moves in moves(false)) {
        let mut world = World::new(policy.clone());
        world.play(&moves);
        world.drain();
        prop_assert!(world.settled.values().all(|times| *times == 1));
        prop_assert!(world.superseded.iter().all(|id| !world.settled.contains_key(id)));
        let superseded = world.superseded.len() as u64;
        prop_assert_eq!(world.settled.len() as u64 + world.given_up + superseded, world.outbox.len() as u64);
        if let Rate::Limited { events, per } = policy.rate {
            let per = i64::try_from(per.as_millis()).unwrap();
            let mut times: Vec<_> = world.singles.values().copied().collect();
            times.sort_unstable();
            // A window begins with its first event, so it reaches at most over two rates' worth.
            while let Some(start) = times.first().copied() {
                let (inside, after): (Vec<_>, Vec<_>) = times.into_iter().partition(|at| *at < start + per);
                prop_assert!(inside.len() <= events as usize, "{inside:?}");
                times = after;
            }
        }
    }

    #[test]
    fn whatever_crashes_every_event_is_settled_at_least_once(policy in policies(), moves in moves(true)) {
        let mut world = World::new(policy);
        world.play(&moves);
        world.drain();
        let settled: BTreeSet<_> = world.settled.keys().chain(&world.superseded).copied().collect();
        prop_assert!(settled.len() as u64 + world.given_up >= world.outbox.len() as u64);
        if world.given_up == 0 {
            prop_assert_eq!(settled.len(), world.outbox.len());
        }
    }
}
