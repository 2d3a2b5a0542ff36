//! Gathers what is known of an entry. The order of reading matters: a retry moves an entry from the DLQ to the flights in
//! one step, and a verdict from the flights to the log, so whoever looks in this order misses it nowhere.

use super::log::{Extent, Log};
use crate::{
    ledger::{self, Flight, JobCounts, Overview, Prospects, Refusal, TriageLedger},
    letter::{DeadLetter, Millis},
    retry::{Aloft, Explanation, Facts, Here, Learnt, PoolLearnt, State, explain, place},
    rule::{Decision, Rules, Terms},
};

/// What is known of an entry, whether it is in the DLQ or not, whatever the rules.
pub(super) struct Entry {
    /// The store's time.
    pub(super) now: Millis,
    /// Its id.
    pub(super) entry_id: String,
    /// It, if it is in the DLQ.
    pub(super) letter: Option<DeadLetter>,
    /// Its job; empty if that is not known.
    pub(super) job_id: String,
    /// What the ledger knows of the job.
    pub(super) job: JobCounts,
    /// All flights.
    flights: Vec<Flight>,
    /// What the log says.
    pub(super) log: Log,
    /// The DLQ as a whole, and who leads.
    pub(super) overview: Overview,
}

impl Entry {
    /// Looks at an entry.
    pub(super) async fn look(ledger: &dyn TriageLedger, entry_id: &str) -> ledger::Result<Entry> {
        // It also brings the store's time.
        let overview = ledger.overview().await?;
        let letter = ledger.entry(entry_id).await?.map(|raw| raw.letter);
        let flights = ledger.flights().await?;
        let mut entry = Entry {
            now: ledger.clock().now(),
            entry_id: entry_id.to_owned(),
            job_id: String::new(),
            job: JobCounts::default(),
            flights,
            log: Log::default(),
            overview,
            letter,
        };
        if let Some(letter) = &entry.letter {
            entry.job_id.clone_from(&letter.job_id);
        } else if let Some(flight) = entry.flight() {
            entry.job_id = flight.dead.job_id.clone().unwrap_or_default();
        }
        entry.job = counts(ledger, &entry.job_id).await?;
        let extent = match &entry.letter {
            None => Extent::Departure,
            Some(_) if entry.job.retries == 0 => Extent::Recent,
            Some(_) => Extent::LastRetry,
        };
        entry.log = Log::search(ledger, entry_id, &entry.job_id, extent).await?;
        if entry.job_id.is_empty() && entry.letter.is_none() {
            entry.job_id.clone_from(&entry.log.job_id);
            entry.job = counts(ledger, &entry.job_id).await?;
        }
        Ok(entry)
    }

    /// Whether anything is known of it at all.
    pub(super) fn is_known(&self) -> bool {
        self.letter.is_some() || self.flight().is_some() || !self.log.lines.is_empty()
    }

    /// Its flight, or that of its job.
    pub(super) fn flight(&self) -> Option<&Flight> {
        let of_job = |flight: &&Flight| !self.job_id.is_empty() && flight.dead.job_id.as_ref() == Some(&self.job_id);
        let own = self.flights.iter().find(|flight| flight.dead.entry_id == self.entry_id);
        own.or_else(|| self.flights.iter().find(of_job))
    }
}

async fn counts(ledger: &dyn TriageLedger, job_id: &str) -> ledger::Result<JobCounts> {
    if job_id.is_empty() {
        return Ok(JobCounts::default());
    }
    Ok(ledger.jobs(&[job_id.to_owned()]).await?.first().copied().unwrap_or_default())
}

/// What is known besides of an entry that is in the DLQ, and under these rules.
pub(super) struct Around {
    /// The ledger works by these rules.
    pub(super) in_force: bool,
    /// It works by some rules.
    pub(super) any_in_force: bool,
    /// These are no rules at all, and the ledger works by some.
    rules_unknown: bool,
    judged: bool,
    due: Option<Millis>,
    /// What is in its way now.
    pub(super) prospects: Prospects,
    pool: PoolLearnt,
    group: Learnt,
    aloft: Aloft,
}

impl Around {
    /// Looks around an entry that is this letter.
    pub(super) async fn look(
        ledger: &dyn TriageLedger,
        entry: &Entry,
        letter: &DeadLetter,
        rules: &Rules,
    ) -> ledger::Result<Around> {
        let judging = ledger.judging().await?;
        let in_force = judging.fingerprint == rules.fingerprint;
        let mut around = Around {
            in_force,
            any_in_force: !judging.fingerprint.is_empty(),
            rules_unknown: rules.is_empty() && !in_force,
            judged: false,
            due: None,
            prospects: ledger.prospects(letter).await?,
            pool: PoolLearnt::default(),
            group: Learnt::default(),
            aloft: Aloft::of(&entry.flights),
        };
        let Decision::Retry(rule, _) = rules.decide(ledger.name(), letter) else { return Ok(around) };
        let place = place(rule, letter);
        if in_force {
            around.due = ledger.due_at(judging.generation, &place, &entry.entry_id).await?;
        }
        let of = [(place.pool.clone(), None), (place.pool, Some(place.group))];
        let learnt = ledger.learnt(&of).await?;
        let learnt = |n: usize| learnt.get(n).and_then(Option::as_deref);
        (around.pool, around.group) = (PoolLearnt::read(learnt(0)), Learnt::read(learnt(1)));
        // What came after the rules is planned when it is read, and then it is in the index, unless it was taken out.
        let after_them = ledger.is_after(&entry.entry_id, &judging.until);
        let planned = if after_them {
            around.due.is_some() || entry.overview.lag == Some(0)
        } else {
            !ledger.is_after(&entry.entry_id, &judging.judged)
        };
        around.judged = in_force && planned;
        Ok(around)
    }

    /// Until when its group, or its pool, is on hold.
    pub(super) fn held_until(&self, now: Millis, terms: &Terms) -> Option<Millis> {
        let proven = self.group.is_proven(now, terms, self.pool.doubted_at());
        let pool = self.pool.held_until(now, terms).filter(|_| !proven);
        self.group.held_until(now, terms).max(pool)
    }

    /// What the store would refuse it for now, of all that is not told by other facts.
    fn refusal(&self, terms: &Terms) -> Option<Refusal> {
        match self.prospects.queue_length {
            None => Some(Refusal::QueueGone),
            Some(length) if length >= terms.pace.max_queue_length => Some(Refusal::QueueTooLong),
            Some(_) => self.prospects.dedup_claimed.then_some(Refusal::DedupClaimed),
        }
    }
}

/// Explains an entry by what was gathered.
pub(super) fn explanation(source: &str, rules: &Rules, entry: &Entry, around: Option<&Around>) -> Explanation {
    let here = entry.letter.as_ref().zip(around).map(|(letter, around)| {
        let decision = rules.decide(source, letter);
        let refusal = match decision {
            Decision::Retry(_, terms) => around.refusal(terms),
            Decision::Never(_) | Decision::NoRule | Decision::Leave(_) => None,
        };
        Here {
            letter,
            decision,
            led: entry.overview.leader.is_some(),
            judged: around.judged,
            due: around.due,
            newer: around.prospects.newer.as_deref(),
            refusal,
            pool: &around.pool,
            group: &around.group,
            aloft: &around.aloft,
        }
    });
    if let (Some(Here { decision: Decision::NoRule, .. }), Some(Around { rules_unknown: true, .. })) = (&here, around) {
        return Explanation {
            state: State::NotJudged,
            sentence: "No rules are known here, but the leader works by some, so that nobody here can say whether one \
                       of them retries it: name the configuration with -c, or the rules with --rules."
                .to_owned(),
            rule: None,
            next_at: None,
        };
    }
    explain(&Facts {
        now: entry.now,
        entry_id: &entry.entry_id,
        job: entry.job,
        flight: entry.flight(),
        audit: &entry.log.lines,
        here,
    })
}

/// Why a retry would be refused now, as the state says.
pub(super) fn refusal_of(state: State, in_dlq: bool, rules: &Rules, source: &str, entry: &Entry) -> Option<Refusal> {
    if !in_dlq {
        return Some(Refusal::EntryGone);
    }
    match state {
        State::NeverRetried => match rules.decide(source, entry.letter.as_ref()?) {
            Decision::Never(never) => Some(Refusal::of(never)),
            Decision::NoRule | Decision::Leave(_) | Decision::Retry(..) => Some(Refusal::Malformed),
        },
        State::Exhausted => Some(Refusal::AllowanceSpent),
        State::Superseded => Some(Refusal::Superseded),
        State::TooYoung => Some(Refusal::TooYoung),
        State::Held => Some(Refusal::GroupHeld),
        State::WindowClosed => Some(Refusal::WindowClosed),
        State::QueueGone => Some(Refusal::QueueGone),
        State::QueueTooLong => Some(Refusal::QueueTooLong),
        State::DedupClaimed => Some(Refusal::DedupClaimed),
        State::InFlight | State::Failing => Some(Refusal::InFlight),
        // Nothing refuses it: nobody asks for it, or it goes when it is its turn.
        State::NoRule
        | State::Left
        | State::NotJudged
        | State::NobodyLeads
        | State::AwaitsCanary
        | State::AwaitsTurn
        | State::Recovered
        | State::ReDied
        | State::LostSight
        | State::Retried
        | State::Removed => None,
    }
}
