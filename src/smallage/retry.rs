//! The atomic retry, by rule or by hand.

use std::collections::HashMap;

use super::{
    Smallage,
    audit::note,
    connection::{Arg, KeyList},
    reply::Reply,
    store::{AUDIT_LINES, REMEMBER_JOBS},
};
use crate::{
    clock::millis,
    event::{EventData, JobRetry, Lane, rfc3339},
    ledger::{
        By, Flight, HandRetry, Lease, Place, Pool, Raised, Refusal, Result, Retried, Retry, Rounds, StoreError,
        Whereabouts,
    },
    letter::Millis,
};

/// Retries in one step at most; Redis does nothing else meanwhile.
const TOGETHER: usize = 100;
/// Flights of which there are so many that a retry by hand adds none: the loop reads all of them several times a second.
const MOST_FLIGHTS: i64 = 5_000;

/// By whose right a step is made.
#[derive(Clone, Copy)]
enum Right<'a> {
    /// The leader's, by the rules of this generation.
    Lease(&'a Lease, u64),
    /// A person's.
    Hand(&'a By),
}

impl Smallage {
    pub(super) async fn raise(&self, lease: &Lease, generation: u64, retries: Vec<Retry>) -> Result<Vec<Retried>> {
        let right = Right::Lease(lease, generation);
        let mut all = Vec::with_capacity(retries.len());
        let mut retries = retries.into_iter().map(Departure::of).peekable();
        while retries.peek().is_some() {
            let mut together = || retries.by_ref().take(TOGETHER).collect();
            let (first, second): (Vec<_>, Vec<_>) = (together(), together());
            if second.is_empty() {
                all.extend(self.raise_some(right, first).await?);
                continue;
            }
            // While Redis works on the one, the other is written down.
            let first = self.raise_some(right, first);
            let (first, second) = tokio::join!(first, self.raise_some(right, second));
            all.extend(first?.into_iter().chain(second?));
        }
        Ok(all)
    }

    pub(super) async fn raise_by_hand(&self, by: &By, retries: &[HandRetry]) -> Result<Vec<Raised>> {
        let mut all = Vec::with_capacity(retries.len());
        while all.len() < retries.len() {
            let left = retries[all.len()..].iter().take(TOGETHER);
            let departures = left.map(|retry| Departure::by_hand(retry, self.clock.now())).collect();
            // Of large ones a step makes fewer, but at least one.
            let retried = self.raise_some(Right::Hand(by), departures).await?;
            if retried.is_empty() {
                return Err(StoreError::Unexpected("a step of retries by hand has made none".to_owned()));
            }
            all.extend(retried.into_iter().map(|outcome| match outcome {
                Retried::Sent(flight) => Raised::Sent(match flight.at {
                    Whereabouts::Queue(entry) | Whereabouts::Clock(entry) => entry,
                }),
                Retried::Refused(refusal) => Raised::Refused(refusal),
            }));
        }
        Ok(all)
    }

    async fn raise_some(&self, right: Right<'_>, retries: Vec<(Departure, Flight)>) -> Result<Vec<Retried>> {
        let (token, generation, by) = match right {
            Right::Lease(lease, generation) => (lease.token(), generation, None),
            Right::Hand(by) => (String::new(), 0, Some(by)),
        };
        let mut keys = KeyList::new(vec![
            self.keys.lease(),
            self.keys.state(),
            self.keys.dlq(),
            self.keys.flights(),
            self.keys.outbox(Lane::Deaths),
            self.keys.audit(),
        ]);
        let (departures, flights): (Vec<_>, Vec<_>) = retries.into_iter().unzip();
        let mut jsons = Vec::with_capacity(flights.len());
        for flight in &flights {
            // The script counts them in the order of the retries, so a job that is there twice has two.
            keys.push(self.keys.job(flight.dead.job_id.as_deref().unwrap_or_default()));
            let json = serde_json::to_string(flight);
            jsons.push(json.map_err(|error| StoreError::Unexpected(format!("a flight: {error}")))?);
        }
        let (mut terms, mut terms_args, mut dedups) = (HashMap::new(), Vec::new(), Vec::new());
        let mut each = Vec::with_capacity(7 * flights.len());
        for (n, ((departure, flight), json)) in departures.iter().zip(&flights).zip(&jsons).enumerate() {
            let new = terms.len() + 1;
            let number = *terms.entry(Terms::of(departure, flight)).or_insert(new);
            if number == new {
                // A stream of another namespace may be in another slot of a cluster, so it must not even be named.
                let stream = match self.keys.queue_of(&flight.stream) {
                    Some(_) => keys.number(flight.stream.clone()),
                    None => Arg::Int(0),
                };
                let (group, rule) = match by {
                    None => (keys.number(self.keys.due_group(generation, &flight.place)), flight.place.pool.rule()),
                    Some(by) => (Arg::Int(0), by.who.as_str()),
                };
                terms_args.extend([
                    stream,
                    group,
                    Arg::Text(rule),
                    Arg::Text(flight.dead.task.as_deref().unwrap_or_default()),
                    Arg::Int(departure.max_retries.into()),
                    Arg::count(departure.max_queue_length),
                    Arg::Int(departure.confirm_within),
                ]);
            }
            if let Some(dedup) = flight.dedup.as_deref().filter(|dedup| !dedup.is_empty()) {
                dedups.extend([
                    Arg::place(n + 1),
                    Arg::Text(dedup),
                    keys.number(self.keys.dedup(dedup)),
                    keys.number(self.keys.raised(dedup)),
                ]);
            }
            each.extend([
                Arg::Text(&flight.dead.entry_id),
                Arg::Text(flight.dead.job_id.as_deref().unwrap_or_default()),
                Arg::place(number),
                Arg::Int(departure.retries.into()),
                Arg::Int(departure.not_before.0),
                Arg::Text(json),
                Arg::Text(&departure.event),
            ]);
        }
        let (note, operation) = (by.map(note).unwrap_or_default(), by.map_or("", |by| by.operation.as_str()));
        let operation_key = self.operation_number(&mut keys, operation);
        let mut args = vec![
            Arg::Text(&token),
            Arg::count(generation),
            Arg::Int(millis(REMEMBER_JOBS)),
            Arg::Int(AUDIT_LINES),
            Arg::Text(&note),
            Arg::Text(operation),
            operation_key,
            Arg::Int(MOST_FLIGHTS),
            Arg::place(terms.len()),
        ];
        args.append(&mut terms_args);
        args.push(Arg::place(dedups.len() / 4));
        args.append(&mut dedups);
        args.append(&mut each);
        let answer = self.commands.run_script(&self.scripts.retry, &keys.as_strs(), &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let now = reply.time()?;
        self.clock.set(now);
        if by.is_none() {
            self.has_seen_event(None);
        }
        let mut announced = false;
        let mut retried = Vec::with_capacity(flights.len());
        for (departure, flight) in departures.into_iter().zip(flights) {
            if reply.len() == 0 {
                break;
            }
            let told = reply.text()?;
            retried.push(match Refusal::parse(&told) {
                Some(refusal) => Retried::Refused(refusal),
                None => {
                    announced = true;
                    let confirm_by = Millis(now.0.saturating_add(departure.confirm_within));
                    let at = Whereabouts::Queue(told);
                    Retried::Sent(Box::new(Flight { sent_at: now, confirm_by, at, seen_at: now, ..flight }))
                }
            });
        }
        if announced {
            self.outbox_grew(Lane::Deaths);
        }
        Ok(retried)
    }
}

/// What many retries have in common.
#[derive(PartialEq, Eq, Hash)]
struct Terms<'a> {
    stream: &'a str,
    place: &'a Place,
    task: Option<&'a str>,
    max_retries: u32,
    max_queue_length: u64,
    confirm_within: i64,
}

impl<'a> Terms<'a> {
    fn of(departure: &Departure, flight: &'a Flight) -> Terms<'a> {
        Terms {
            stream: &flight.stream,
            place: &flight.place,
            task: flight.dead.task.as_deref(),
            max_retries: departure.max_retries,
            max_queue_length: departure.max_queue_length,
            confirm_within: departure.confirm_within,
        }
    }
}

/// What of a retry is not in its flight.
struct Departure {
    retries: u32,
    max_retries: u32,
    not_before: Millis,
    max_queue_length: u64,
    /// In milliseconds, at least one.
    confirm_within: i64,
    event: String,
}

impl Departure {
    /// And the flight, without what only the script knows.
    fn of(retry: Retry) -> (Departure, Flight) {
        let departure = Departure {
            retries: retry.retries,
            max_retries: retry.max_retries,
            not_before: retry.not_before,
            max_queue_length: retry.max_queue_length,
            confirm_within: millis(retry.confirm_within).max(1),
            event: retry.event,
        };
        let flight = Flight {
            place: retry.place,
            dead: retry.dead,
            stream: retry.stream,
            dedup: retry.dedup,
            sent_at: Millis::default(),
            confirm_by: Millis::default(),
            rounds: retry.rounds,
            at: Whereabouts::Queue(String::new()),
            seen_at: Millis::default(),
            failing: false,
        };
        (departure, flight)
    }

    /// As [`Departure::of`], of what a person wants. `now` is the store's time.
    fn by_hand(retry: &HandRetry, now: Millis) -> (Departure, Flight) {
        let told = JobRetry { dead: retry.dead.clone(), retried_at: rfc3339(now), recovered_at: None };
        let place = Place {
            pool: Pool::of(Pool::BY_HAND, retry.dead.task.as_deref().unwrap_or_default()),
            group: retry.dead.group.clone(),
        };
        Departure::of(Retry {
            place,
            dead: retry.dead.clone(),
            stream: retry.stream.clone(),
            dedup: retry.dedup.clone(),
            retries: 0,
            max_retries: 0,
            not_before: Millis::default(),
            max_queue_length: 0,
            confirm_within: retry.confirm_within,
            rounds: Rounds::default(),
            event: EventData::JobRetried(Box::new(told)).to_json(),
        })
    }
}
