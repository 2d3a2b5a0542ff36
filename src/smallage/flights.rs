//! Retries in flight: what is kept of them, where they are, and what has become of them.

use std::collections::BTreeMap;

use chrono::DateTime;
use redis::pipe;

use super::{
    Smallage,
    connection::{Arg, KeyList},
    reply::{self, Reply},
    store::AUDIT_LINES,
};
use crate::{
    event::Lane,
    ledger::{Flight, Lease, Ledger as _, Lesson, Result, Settled, Sight, Sights, StoreError, Verdict, Whereabouts},
    letter::Millis,
};

/// Flights looked at in one step at most; Redis does nothing else meanwhile.
const TOGETHER: usize = 100;

impl Smallage {
    pub(super) async fn all_flights(&self) -> Result<Vec<Flight>> {
        let mut commands = pipe();
        commands.cmd("HVALS").arg(self.keys.flights());
        let answer = self.commands.read_all(&commands).await?.pop().unwrap_or(redis::Value::Nil);
        let mut values = Reply::list(answer)?;
        let (mut flights, mut unreadable) = (Vec::with_capacity(values.len()), 0_u64);
        while values.len() > 0 {
            match reply::text(&values.next()?).as_deref().and_then(stored) {
                Some(flight) => flights.push(flight),
                None => unreadable += 1,
            }
        }
        if unreadable > 0 {
            tracing::debug!(source = self.name(), unreadable, "flights that this build cannot read are left alone");
        }
        Ok(flights)
    }

    pub(super) async fn look_for(&self, flights: &[Flight]) -> Result<Sights> {
        let mut sights = Sights { at: self.clock.now(), sights: Vec::with_capacity(flights.len()) };
        for together in flights.chunks(TOGETHER) {
            let together: Vec<&Flight> = together.iter().collect();
            let (at, mut some) = self.look_for_some(&together, &[]).await?;
            self.look_beside(&together, &mut some).await?;
            // The first moment is true of all of them.
            if sights.sights.is_empty() {
                sights.at = at;
            }
            sights.sights.append(&mut some);
        }
        Ok(sights)
    }

    /// Looks once more for those that seem to have ended. If the number of a queue's shards has changed while its dead
    /// letters waited, the framework puts a job on another stream than the one it came from.
    async fn look_beside(&self, flights: &[&Flight], sights: &mut [Sight]) -> Result<()> {
        let mut ended: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (n, (flight, sight)) in flights.iter().zip(&*sights).enumerate() {
            if matches!(sight, Sight::RanThrough | Sight::Swallowed) {
                ended.entry(&flight.stream).or_default().push(n);
            }
        }
        for (stream, places) in ended {
            let beside = self.keys.shards_beside(stream);
            if beside.is_empty() {
                continue;
            }
            let again: Vec<&Flight> = places.iter().map(|n| flights[*n]).collect();
            let (_, found) = self.look_for_some(&again, &beside).await?;
            for (n, sight) in places.into_iter().zip(found) {
                sights[n] = sight;
            }
        }
        Ok(())
    }

    async fn look_for_some(&self, flights: &[&Flight], beside: &[String]) -> Result<(Millis, Vec<Sight>)> {
        let mut keys = KeyList::new(vec![self.keys.state(), self.keys.dlq(), self.keys.clock()]);
        let mut args = Vec::with_capacity(1 + beside.len() + 9 * flights.len());
        args.push(Arg::place(beside.len()));
        args.extend(beside.iter().map(|stream| keys.number(stream.clone())));
        for flight in flights {
            let (kind, place, stream) = match &flight.at {
                Whereabouts::Clock(name) => ("clock", name.as_str(), flight.stream.as_str()),
                // On another stream than it was sent to, it is named together with it.
                Whereabouts::Queue(entry) => match entry.split_once(' ') {
                    Some((entry, stream)) => ("queue", entry, stream),
                    None => ("queue", entry.as_str(), flight.stream.as_str()),
                },
            };
            let job_id = flight.dead.job_id.as_deref().unwrap_or_default();
            let enqueued_at = flight.dead.enqueued_at.as_deref().and_then(|at| DateTime::parse_from_rfc3339(at).ok());
            args.extend([
                Arg::Text(kind),
                Arg::Text(place),
                Arg::Int(flight.seen_at.0),
                Arg::Text(job_id),
                enqueued_at.map_or(Arg::Text(""), |at| Arg::Int(at.timestamp_millis())),
                keys.number(stream.to_owned()),
                keys.number(self.keys.job(job_id)),
                flight.dedup.as_deref().map_or(Arg::Int(0), |dedup| keys.number(self.keys.dedup(dedup))),
                Arg::Int(flight.sent_at.0),
            ]);
        }
        let answer = self.commands.run_reading_script(&self.scripts.look, &keys.as_strs(), &args).await?;
        let mut reply = Reply::of_script(answer)?;
        let now = reply.time()?;
        self.clock.set(now);
        let mut sights = Vec::with_capacity(flights.len());
        for flight in flights {
            let (seen, kind, place) = (reply.text()?, reply.text()?, reply.text()?);
            let at = || match (kind.as_str(), &flight.at) {
                ("clock", _) => Whereabouts::Clock(place.clone()),
                // Seen again where it was, also on another stream.
                (_, Whereabouts::Queue(known)) if known.split_once(' ').is_some_and(|(known, _)| known == place) => {
                    flight.at.clone()
                }
                _ => Whereabouts::Queue(place.clone()),
            };
            sights.push(match seen.as_str() {
                "underway" => Sight::Underway { at: at(), failing: false },
                "failing" => Sight::Underway { at: at(), failing: true },
                "ran_through" => Sight::RanThrough,
                "re_died" => Sight::ReDied,
                "swallowed" => Sight::Swallowed,
                "unclear" => Sight::Unclear,
                other => return Err(StoreError::Unexpected(format!("a flight was seen as {other:?}"))),
            });
        }
        Ok((now, sights))
    }

    pub(super) async fn settle_flights(&self, lease: &Lease, settled: &[Settled], lessons: &[Lesson]) -> Result<()> {
        if settled.is_empty() && lessons.is_empty() {
            return Ok(());
        }
        let token = lease.token();
        let mut keys = KeyList::new(vec![
            self.keys.lease(),
            self.keys.flights(),
            self.keys.outbox(Lane::Deaths),
            self.keys.audit(),
            self.keys.held(),
        ]);
        let jsons = settled
            .iter()
            .map(|one| match one.verdict {
                None | Some(Verdict::Failing) => serde_json::to_string(&one.flight)
                    .map_err(|error| StoreError::Unexpected(format!("a flight: {error}"))),
                Some(Verdict::Recovered | Verdict::ReDied | Verdict::LostSight) => Ok(String::new()),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut args = vec![Arg::Text(&token), Arg::Int(AUDIT_LINES), Arg::place(settled.len())];
        for (one, json) in settled.iter().zip(&jsons) {
            let flight = &one.flight;
            args.extend([
                Arg::Text(flight.dead.job_id.as_deref().unwrap_or_default()),
                Arg::Text(&flight.dead.entry_id),
                Arg::Text(one.verdict.map_or("", Verdict::as_str)),
                Arg::Text(json),
                Arg::Text(one.event.as_deref().unwrap_or_default()),
                Arg::Text(flight.place.pool.rule()),
                Arg::Text(flight.dead.task.as_deref().unwrap_or_default()),
                flight.dedup.as_deref().map_or(Arg::Int(0), |dedup| keys.number(self.keys.raised(dedup))),
            ]);
        }
        // Only groups are counted as on hold: a pool is, together with the group that is the cause.
        let held: Vec<String> = lessons
            .iter()
            .map(|lesson| lesson.group.as_ref().map_or_else(String::new, |group| format!("{}:{group}", lesson.pool.0)))
            .collect();
        for (lesson, held) in lessons.iter().zip(&held) {
            args.extend([
                keys.number(self.keys.learnt(&lesson.pool, lesson.group.as_deref())),
                Arg::Text(&lesson.learnt),
                Arg::Int(lesson.keep_until.0),
                Arg::Text(held),
                lesson.held_until.map_or(Arg::Text(""), |until| Arg::Int(until.0)),
            ]);
        }
        let answer = self.commands.run_script(&self.scripts.settle, &keys.as_strs(), &args).await?;
        let skipped = Reply::of_script(answer)?.number()?;
        self.has_seen_event(None);
        if skipped > 0 {
            tracing::debug!(source = self.name(), skipped, "flights had been settled before");
        }
        if settled.iter().any(|one| one.event.is_some()) {
            self.outbox_grew(Lane::Deaths);
        }
        Ok(())
    }
}

/// A flight as it is stored: the entry that was retried, its first queue entry, when it was sent, when it is lost sight
/// of, whether an attempt has failed, and the flight as JSON. Of those only the script that sent it knew.
fn stored(value: &str) -> Option<Flight> {
    let mut parts = value.splitn(6, ' ');
    let mut next = || parts.next();
    let (_, queue_entry, sent_at, confirm_by, _, json) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let mut flight: Flight = serde_json::from_str(json).ok()?;
    flight.sent_at = Millis(sent_at.parse().ok()?);
    flight.confirm_by = Millis(confirm_by.parse().ok()?);
    if flight.at == Whereabouts::Queue(String::new()) {
        flight.at = Whereabouts::Queue(queue_entry.to_owned());
        flight.seen_at = flight.sent_at;
    }
    Some(flight)
}
