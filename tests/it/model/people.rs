//! The workers and the people of a world: what they do to the store, the model is told.

use redis::AsyncCommands as _;

use super::{
    ops::{DEDUP_KEYS, ERRORS, End, Kind, NewJob, QUEUES, TASKS, Work},
    picture::{Id, text},
    reference::{Grave, Place},
    world::{World, pick_of},
};
use crate::support::{
    graveyard::{Fields, bury, dlq, with},
    yard::NS,
};

/// The workers' attempts in one life.
const MAX_ATTEMPTS: u32 = 2;
/// The pauses that workers put jobs off for, in milliseconds: after a failure, and for a task they do not know.
const BACKOFF: i64 = 1_000;
const UNKNOWN_PAUSE: i64 = 30_000;
/// A task that nobody knows is buried after this, in milliseconds.
const UNKNOWN_FOR: i64 = 6 * 3_600_000;
/// How long a dedup key stays claimed, in milliseconds.
const CLAIMED_FOR: i64 = 24 * 3_600_000;
/// A stream that is none of the framework's queues.
const FOREIGN: &str = "partner:events";

/// What the framework has put off.
pub(super) struct PutOff {
    due: i64,
    stream: String,
    record: Fields,
}

impl World<'_> {
    pub(super) async fn make_queues(&mut self) {
        for stream in QUEUES {
            let made: redis::RedisResult<()> = self.con.xgroup_create_mkstream(stream, "workers", "0").await;
            // It may be there already.
            drop(made);
        }
    }

    fn record(&mut self, job: NewJob) -> (String, Fields) {
        self.jobs += 1;
        let id = if job.kind == Kind::Nameless { String::new() } else { format!("job-{}", self.jobs) };
        let mut fields = vec![
            ("v", "1".to_owned()),
            ("id", id.clone()),
            ("task", TASKS[job.task].to_owned()),
            ("payload", format!("{{\"i\":{}}}", self.jobs)),
            ("enqueued_at", self.reference.now.to_string()),
            ("attempt", "0".to_owned()),
        ];
        if let Kind::Dedup(key) = job.kind {
            fields.push(("dedup", DEDUP_KEYS[key].to_owned()));
        }
        let len = fields.len();
        // The order of fields varies.
        fields.rotate_left(usize::try_from(self.jobs).unwrap_or(0) % len);
        (id, fields.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect())
    }

    pub(super) async fn bury_new(&mut self, job: NewJob) {
        let (_, record) = self.record(job);
        let stream = if job.kind == Kind::Foreign { FOREIGN } else { QUEUES[job.queue] };
        let (reason, error) = match job.kind {
            Kind::MaxDeliveries => ("max_deliveries", None),
            Kind::UnknownTask => ("unknown_task", None),
            Kind::Malformed => ("malformed", None),
            Kind::Plain | Kind::Dedup(_) | Kind::Foreign | Kind::Nameless => ("max_attempts", Some(job.error)),
        };
        let (id, mut grave) = self.bury(&record, stream, reason, error).await;
        grave.never = matches!(job.kind, Kind::Malformed | Kind::Foreign | Kind::Nameless);
        if job.kind == Kind::Foreign {
            grave.job = String::new();
        }
        self.reference.buried(id, grave, None, None);
    }

    /// Buries a record as the framework does.
    async fn bury(&mut self, record: &Fields, stream: &str, reason: &str, error: Option<usize>) -> (Id, Grave) {
        let (job, task) = (text(record, "id"), text(record, "task"));
        let detail = match (reason, error) {
            (_, Some(error)) => {
                let (kind, message) = ERRORS[error];
                format!("Traceback (most recent call last):\n  File \"/srv/app.py\", line 1, in f\n{kind}: {message}\n")
            }
            ("unknown_task", None) => task.clone(),
            (_, None) => "delivered 4 times".to_owned(),
        };
        let now = self.reference.now;
        let mut fields = record.clone();
        for (name, value) in [
            ("dlq_reason", reason),
            ("dlq_detail", &detail),
            ("dlq_source", stream),
            ("dlq_deliveries", "1"),
            ("dlq_at", &now.to_string()),
        ] {
            fields.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        let id = bury(&mut self.con, NS, &fields).await.parse().expect("an id");
        let mut grave = Grave::new(&job, &task, reason, stream, now, record.clone());
        grave.error = error.map_or(String::new(), |error| ERRORS[error].0.to_owned());
        grave.dedup = Some(text(record, "dedup")).filter(|key| !key.is_empty());
        (id, grave)
    }

    pub(super) async fn enqueue(&mut self, job: NewJob) {
        let (id, record) = self.record(job);
        let place = self.add_to(QUEUES[job.queue], &record).await;
        self.reference.enqueued(&id, Some(text(&record, "dedup")).filter(|key| !key.is_empty()), place);
    }

    async fn add_to(&mut self, stream: &str, record: &Fields) -> Place {
        let id: String = redis::cmd("XADD")
            .arg(stream)
            .arg("*")
            .arg(record)
            .query_async(&mut self.con)
            .await
            .expect("it is a stream");
        Place::Queue(stream.to_owned(), id.parse().expect("an id"))
    }

    pub(super) async fn bury_again(&mut self, pick: usize) {
        let graves: Vec<(Id, Grave)> =
            self.reference.present().filter(|(_, grave)| !grave.never).map(|(id, grave)| (id, grave.clone())).collect();
        let Some((again, grave)) = pick_of(&graves, pick) else { return };
        let error = ERRORS.iter().position(|(kind, _)| *kind == grave.error);
        let (id, twin) = self.bury(&grave.record, &grave.stream, &grave.reason, error).await;
        self.reference.buried(id, twin, None, Some(again));
    }

    pub(super) async fn work(&mut self, Work { pick, end, dies }: Work) {
        let queued: Vec<(String, Id)> = self
            .reference
            .places()
            .filter_map(|place| match place {
                Place::Queue(stream, id) => Some((stream.clone(), *id)),
                Place::Clock(_) => None,
            })
            .collect();
        let Some((stream, entry)) = pick_of(&queued, pick) else { return };
        let place = Place::Queue(stream.clone(), entry);
        let record = self.picture.queues[&stream][&entry].clone();
        let (job, dedup) = (text(&record, "id"), text(&record, "dedup"));
        if !dedup.is_empty() && end != End::Unknown {
            let mut claim = redis::cmd("SET");
            claim.arg(format!("{{{NS}}}:dedup:{dedup}")).arg(&job).arg("NX").arg("PX").arg(CLAIMED_FOR);
            let claimed: Option<String> = claim.query_async(&mut self.con).await.expect("Redis is there");
            if claimed.is_none() {
                // Whoever holds the key, be it the job itself: it is let go of without a run.
                let () = self.con.xdel(&stream, &[entry.to_string()]).await.expect("Redis is there");
                return self.reference.swallowed(&place);
            }
        }
        self.ends(&place, &stream, &record, &job, end).await;
        if !dies {
            let () = self.con.xdel(&stream, &[entry.to_string()]).await.expect("Redis is there");
            self.reference.let_go(&place);
        }
    }

    /// What a worker writes of the end of an attempt.
    async fn ends(&mut self, place: &Place, stream: &str, record: &Fields, job: &str, end: End) {
        let number = |field: &str| text(record, field).parse::<i64>().expect("a number");
        let now = self.reference.now;
        match end {
            End::Ok => self.reference.ran_through(place),
            End::Fails(error) => {
                let failed = number("attempt") + 1;
                if failed >= i64::from(MAX_ATTEMPTS) {
                    let (id, grave) = self.bury(record, stream, "max_attempts", Some(error)).await;
                    return self.reference.buried(id, grave, Some(place), None);
                }
                let again = with(record, "attempt", failed.to_string().as_bytes());
                self.put_on_clock(&format!("retry:{job}:{failed}"), now + BACKOFF, stream, again).await;
                self.reference.put_off(place, &format!("retry:{job}:{failed}"), true);
            }
            End::Unknown => {
                let age = (now - number("enqueued_at")).max(0);
                if age > UNKNOWN_FOR {
                    let (id, grave) = self.bury(record, stream, "unknown_task", None).await;
                    return self.reference.buried(id, grave, Some(place), None);
                }
                let name = format!("unknown:{job}:{}", age / 1000);
                self.put_on_clock(&name, now + UNKNOWN_PAUSE, stream, record.clone()).await;
                self.reference.put_off(place, &name, false);
            }
        }
    }

    async fn put_on_clock(&mut self, name: &str, due: i64, stream: &str, record: Fields) {
        let () = self.con.zadd(format!("{{{NS}}}:sched"), name, due).await.expect("Redis is there");
        self.put_off.insert(name.to_owned(), PutOff { due, stream: stream.to_owned(), record });
    }

    pub(super) async fn promote(&mut self) {
        let now = self.reference.now;
        let due: Vec<String> =
            self.put_off.iter().filter(|(_, put_off)| put_off.due <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            let PutOff { stream, record, .. } = self.put_off.remove(&name).expect("it is put off");
            let to = self.add_to(&stream, &record).await;
            let () = self.con.zrem(format!("{{{NS}}}:sched"), &name).await.expect("Redis is there");
            self.reference.promoted(&name, to);
        }
    }

    pub(super) fn grave(&self, pick: usize) -> Option<Id> {
        pick_of(&self.reference.present().map(|(id, _)| id).collect::<Vec<_>>(), pick)
    }

    pub(super) async fn remove(&mut self, id: Id) {
        let () = self.con.xdel(dlq(NS), &[id.to_string()]).await.expect("Redis is there");
    }

    pub(super) async fn put_back(&mut self, pick: usize) {
        let Some(id) = self.grave(pick) else { return };
        let (_, grave) = self.reference.present().find(|(known, _)| *known == id).expect("it is in the DLQ");
        let (stream, record, never) = (grave.stream.clone(), with(&grave.record, "attempt", b"0"), grave.never);
        if never || !self.picture.queues.contains_key(&stream) {
            return;
        }
        let place = self.add_to(&stream, &record).await;
        self.remove(id).await;
        self.reference.put_back(id, place);
    }
}
