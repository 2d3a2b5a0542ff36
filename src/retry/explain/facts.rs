//! What an explanation is made of, and the states it can find.

use crate::{
    ledger::{AuditLine, Flight, JobCounts, Refusal},
    letter::{DeadLetter, Millis},
    retry::{Aloft, Learnt, PoolLearnt},
    rule::Decision,
};

/// What is known of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The store's time.
    pub now: Millis,
    /// The entry in question.
    pub entry_id: &'a str,
    /// What the ledger knows of its job.
    pub job: JobCounts,
    /// A flight of its job, if there is one.
    pub flight: Option<&'a Flight>,
    /// Lines of the audit log about this entry or its job, newest first.
    pub audit: &'a [AuditLine],
    /// What there is only while it is in the DLQ; none if it has left it.
    pub here: Option<Here<'a>>,
}

/// What is known of an entry that is in the DLQ.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// The entry.
    pub letter: &'a DeadLetter,
    /// What the rules say about it.
    pub decision: Decision<'a>,
    /// Somebody holds the source's lease.
    pub led: bool,
    /// The ledger has planned it by these rules: it has been read, and judged anew since they changed.
    pub judged: bool,
    /// When it is due, or looked at again, by the due index; none if it is not in it.
    pub due: Option<Millis>,
    /// The newest entry of its job in the DLQ, if that is another one.
    pub newer: Option<&'a str>,
    /// Why it was refused when it was last its turn, or would be now, as far as that can be told.
    pub refusal: Option<Refusal>,
    /// What has been learnt of its pool, if a rule retries it.
    pub pool: &'a PoolLearnt,
    /// What has been learnt of its group, if a rule retries it.
    pub group: &'a Learnt,
    /// All flights.
    pub aloft: &'a Aloft,
}

/// What an entry waits for, or what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// In the DLQ: no rule may ever retry it.
    NeverRetried,
    /// In the DLQ: no rule matches.
    NoRule,
    /// In the DLQ: its rule leaves it for a person.
    Left,
    /// In the DLQ: its rule grants the job no further retry.
    Exhausted,
    /// In the DLQ: a newer entry of the same job stands for it. Or gone: its job was retried from another entry.
    Superseded,
    /// In the DLQ: the ledger has not planned it by these rules yet.
    NotJudged,
    /// In the DLQ: it waits, but no replica leads.
    NobodyLeads,
    /// In the DLQ: it waits until it is old enough.
    TooYoung,
    /// In the DLQ: its group, or its pool, is on hold.
    Held,
    /// In the DLQ: its rule's window is closed.
    WindowClosed,
    /// In the DLQ: the queue's stream does not exist.
    QueueGone,
    /// In the DLQ: the queue is too long.
    QueueTooLong,
    /// In the DLQ: another job holds its dedup key.
    DedupClaimed,
    /// In the DLQ: it is due, and waits for the outcome of a canary.
    AwaitsCanary,
    /// In the DLQ: it is due, and waits for its turn.
    AwaitsTurn,
    /// Its job was put back, and there is no verdict yet.
    InFlight,
    /// Its job was put back, has failed at least once since, and the framework will try it again.
    Failing,
    /// Gone: retried, and the job ran through.
    Recovered,
    /// Gone: retried, and the job died again.
    ReDied,
    /// Gone: retried, and nobody saw what became of the job.
    LostSight,
    /// Gone: retried, and the log does not say what became of the job.
    Retried,
    /// Gone: somebody else took it out of the DLQ.
    Removed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 22] = [
        State::NeverRetried,
        State::NoRule,
        State::Left,
        State::Exhausted,
        State::Superseded,
        State::NotJudged,
        State::NobodyLeads,
        State::TooYoung,
        State::Held,
        State::WindowClosed,
        State::QueueGone,
        State::QueueTooLong,
        State::DedupClaimed,
        State::AwaitsCanary,
        State::AwaitsTurn,
        State::InFlight,
        State::Failing,
        State::Recovered,
        State::ReDied,
        State::LostSight,
        State::Retried,
        State::Removed,
    ];

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::NeverRetried => "never_retried",
            State::NoRule => "no_rule",
            State::Left => "left",
            State::Exhausted => "exhausted",
            State::Superseded => "superseded",
            State::NotJudged => "not_judged",
            State::NobodyLeads => "nobody_leads",
            State::TooYoung => "too_young",
            State::Held => "held",
            State::WindowClosed => "window_closed",
            State::QueueGone => "queue_gone",
            State::QueueTooLong => "queue_too_long",
            State::DedupClaimed => "dedup_claimed",
            State::AwaitsCanary => "awaits_canary",
            State::AwaitsTurn => "awaits_turn",
            State::InFlight => "in_flight",
            State::Failing => "failing",
            State::Recovered => "recovered",
            State::ReDied => "re_died",
            State::LostSight => "lost_sight",
            State::Retried => "retried",
            State::Removed => "removed",
        }
    }
}
