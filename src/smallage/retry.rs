//! The atomic retry.

use super::{
    Smallage,
    connection::{Arg, KeyList},
    reply::Reply,
    store::{AUDIT_LINES, REMEMBER_JOBS},
};
use crate::{
    clock::millis,
    event::Lane,
    ledger::{Flight, Lease, Refusal, Result, Retried, Retry, StoreError, Whereabouts},
    letter::Millis,
};

/// Retries in one step at most; Redis does nothing else meanwhile.
const TOGETHER: usize = 100;

impl Smallage {
    pub(super) async fn raise(&self, lease: &Lease, generation: u64, retries: Vec<Retry>) -> Result<Vec<Retried>> {
        let mut all = Vec::with_capacity(retries.len());
        let mut retries = retries.into_iter().peekable();
        while retries.peek().is_some() {
            let together: Vec<Retry> = retries.by_ref().take(TOGETHER).collect();
            all.extend(self.raise_some(lease, generation, together).await?);
        }
        Ok(all)
    }

    async fn raise_some(&self, lease: &Lease, generation: u64, retries: Vec<Retry>) -> Result<Vec<Retried>> {
        let token = lease.token();
        let mut keys = KeyList::new(vec![
            self.keys.lease(),
            self.keys.state(),
            self.keys.dlq(),
            self.keys.flights(),
            self.keys.outbox(Lane::Deaths),
            self.keys.audit(),
        ]);
        let (events, flights): (Vec<_>, Vec<_>) = retries.into_iter().map(Departure::of).unzip();
        let jsons = flights
            .iter()
            .map(|flight| {
                serde_json::to_string(flight).map_err(|error| StoreError::Unexpected(format!("a flight: {error}")))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut args =
            vec![Arg::Text(&token), Arg::count(generation), Arg::Int(millis(REMEMBER_JOBS)), Arg::Int(AUDIT_LINES)];
        for ((terms, flight), json) in events.iter().zip(&flights).zip(&jsons) {
            let job_id = flight.dead.job_id.as_deref().unwrap_or_default();
            let dedup = flight.dedup.as_deref().unwrap_or_default();
            // A stream of another namespace may be in another slot of a cluster, so it must not even be named.
            let stream = match self.keys.queue_of(&flight.stream) {
                Some(_) => keys.number(flight.stream.clone()),
                None => Arg::Int(0),
            };
            let (claim, ours) = match dedup {
                "" => (Arg::Int(0), Arg::Int(0)),
                dedup => (keys.number(self.keys.dedup(dedup)), keys.number(self.keys.raised(dedup))),
            };
            args.extend([
                Arg::Text(&flight.dead.entry_id),
                Arg::Text(job_id),
                keys.number(self.keys.job(job_id)),
                stream,
                keys.number(self.keys.due_group(generation, &flight.place)),
                Arg::Text(dedup),
                claim,
                ours,
                Arg::Int(terms.retries.into()),
                Arg::Int(terms.max_retries.into()),
                Arg::Int(terms.not_before.0),
                Arg::count(terms.max_queue_length),
                Arg::Int(terms.confirm_within),
                Arg::Text(flight.place.pool.rule()),
                Arg::Text(flight.dead.task.as_deref().unwrap_or_default()),
                Arg::Text(json),
                Arg::Text(terms.event.as_deref().unwrap_or_default()),
            ]);
        }
        let answer = self.commands.run_script(&self.scripts.retry, &keys.as_strs(), &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let now = reply.time()?;
        self.clock.set(now);
        let mut announced = false;
        let mut retried = Vec::with_capacity(flights.len());
        for (terms, flight) in events.into_iter().zip(flights) {
            let told = reply.text()?;
            retried.push(match Refusal::parse(&told) {
                Some(refusal) => Retried::Refused(refusal),
                None => {
                    announced |= terms.event.is_some();
                    let confirm_by = Millis(now.0.saturating_add(terms.confirm_within));
                    let at = Whereabouts::Queue(told);
                    Retried::Sent(Flight { sent_at: now, confirm_by, at, seen_at: now, ..flight })
                }
            });
        }
        if announced {
            self.outbox_grew(Lane::Deaths);
        }
        Ok(retried)
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
    event: Option<String>,
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
}
