//! A picture of the whole store, all at one moment.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value, aio::MultiplexedConnection, from_redis_value};
use sexton::{
    event::{EventData, EventType},
    ledger::OutboxId,
};

use crate::support::{graveyard::Fields, yard::NS};

/// The id of an entry of a stream.
pub(super) type Id = OutboxId;

/// What is where.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Picture {
    /// The DLQ.
    pub(super) dlq: BTreeMap<Id, Fields>,
    /// The queue streams that exist, by key.
    pub(super) queues: BTreeMap<String, BTreeMap<Id, Fields>>,
    /// The names on the framework's clock, with the time of each.
    pub(super) clock: BTreeMap<String, i64>,
    /// Who holds which dedup key.
    pub(super) claims: BTreeMap<String, String>,
    /// The ledger's state.
    pub(super) state: BTreeMap<String, String>,
    /// What the ledger remembers of each job.
    pub(super) records: BTreeMap<String, BTreeMap<String, String>>,
    /// Retries without a verdict, by job.
    pub(super) flights: BTreeMap<String, String>,
    /// The sets of the due indexes, by what follows `…:due:`.
    pub(super) index: BTreeMap<String, BTreeMap<String, i64>>,
    /// Whatever else there is.
    pub(super) others: BTreeMap<String, Value>,
    /// Lines of the audit log since the last picture.
    pub(super) audit: Vec<Line>,
    /// Events since the last picture.
    pub(super) events: Vec<EventData>,
}

/// One line of the audit log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// What was done.
    pub(super) what: String,
    /// By which rule.
    pub(super) by: String,
    /// The entry.
    pub(super) entry: Id,
    /// The job.
    pub(super) job: String,
    /// More.
    pub(super) detail: String,
}

/// Takes pictures, each with the news since the one before.
#[derive(Debug)]
pub(super) struct Camera {
    con: MultiplexedConnection,
    audit: Id,
    events: Id,
}

type Entries = Vec<(String, Fields)>;

impl Camera {
    pub(super) fn new(con: MultiplexedConnection) -> Camera {
        Camera { con, audit: Id::default(), events: Id::default() }
    }

    /// Takes one.
    pub(super) async fn picture(&mut self) -> Picture {
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("picture.lua")).arg(0).arg(self.audit.to_string()).arg(self.events.to_string());
        let keys: Vec<(String, Value)> = command.query_async(&mut self.con).await.expect("Redis is there");
        let mut picture = Picture::default();
        for (key, holds) in keys {
            let name = key.strip_prefix(&format!("{{{NS}}}:")).expect("every key is of the namespace");
            if name == "dlq" {
                picture.dlq = entries(holds);
            } else if name.starts_with("q:") {
                picture.queues.insert(key, entries(holds));
            } else if name == "sched" {
                picture.clock = scored(holds);
            } else if let Some(claim) = name.strip_prefix("dedup:") {
                picture.claims.insert(claim.to_owned(), read(holds));
            } else if name == "sexton:state" {
                picture.state = read(holds);
            } else if let Some(job) = name.strip_prefix("sexton:job:") {
                picture.records.insert(job.to_owned(), read(holds));
            } else if name == "sexton:flights" {
                picture.flights = read(holds);
            } else if let Some(set) = name.strip_prefix("sexton:due:") {
                picture.index.insert(set.to_owned(), scored(holds));
            } else if name == "sexton:audit" {
                for (id, fields) in read::<Entries>(holds) {
                    self.audit = id.parse().expect("an id");
                    picture.audit.push(Line::of(&fields));
                }
            } else if name == "sexton:outbox:deaths" {
                for (id, fields) in read::<Entries>(holds) {
                    self.events = id.parse().expect("an id");
                    let kind = EventType::parse(&text(&fields, "type")).expect("a known type");
                    picture.events.push(EventData::from_json(kind, &text(&fields, "data")).expect("an event's data"));
                }
            } else {
                picture.others.insert(name.to_owned(), holds);
            }
        }
        picture
    }
}

impl Line {
    fn of(fields: &Fields) -> Line {
        // Three pairs: what and by whom; the entry, and more about it; the job, and its task.
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let [(what, by), (entry, detail), (job, _)] = &fields[..] else { panic!("a line has three pairs") };
        Line {
            what: lossy(what),
            by: lossy(by),
            entry: lossy(entry).parse().expect("an id"),
            job: lossy(job),
            detail: lossy(detail),
        }
    }
}

impl Picture {
    /// A number of the ledger's state; 0 where there is none.
    pub(super) fn number(&self, field: &str) -> i64 {
        self.state.get(field).map_or(0, |value| value.parse().expect("a number"))
    }

    /// How far the DLQ has been read.
    pub(super) fn cursor(&self) -> Id {
        self.place("cursor")
    }

    /// A place in the DLQ of the ledger's state; the beginning where there is none.
    pub(super) fn place(&self, field: &str) -> Id {
        self.state.get(field).map_or(Id::default(), |id| id.parse().expect("an id"))
    }

    /// The fingerprint of the rules that the ledger works by.
    pub(super) fn rules(&self) -> &str {
        self.state.get("rules").map_or("", String::as_str)
    }

    /// The same without the news.
    pub(super) fn still(&self) -> Picture {
        Picture { audit: Vec::new(), events: Vec::new(), ..self.clone() }
    }
}

/// The value of a field; empty where there is none.
pub(super) fn text(fields: &Fields, name: &str) -> String {
    let found = fields.iter().find(|(field, _)| field == name.as_bytes());
    found.map_or(String::new(), |(_, value)| String::from_utf8_lossy(value).into_owned())
}

fn read<T: FromRedisValue>(holds: Value) -> T {
    from_redis_value(holds).expect("it has this shape")
}

fn entries(holds: Value) -> BTreeMap<Id, Fields> {
    let raw: Vec<(String, Vec<Vec<u8>>)> = read(holds);
    let pairs = |flat: Vec<Vec<u8>>| flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    raw.into_iter().map(|(id, flat)| (id.parse().expect("an id"), pairs(flat))).collect()
}

fn scored(holds: Value) -> BTreeMap<String, i64> {
    let raw: Vec<(String, f64)> = read(holds);
    #[expect(clippy::cast_possible_truncation, reason = "a time in milliseconds")]
    raw.into_iter().map(|(member, score)| (member, score as i64)).collect()
}
