//! A ledger in memory, for the tests of triage and of the commands: what they read and write, and nothing else.

mod hands;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    clock::StoreClock,
    event::{Event, EventData, Lane},
    ledger::{
        AttachOptions, Attached, AuditLine, Batch, Commit, Committed, Cursor, DlqPage, DuePools, Finding, Flight,
        Inspect, JobCounts, Judge, Judging, Lease, LeaseNow, Ledger, Lesson, OutboxId, OutboxPage, Overview, Place,
        PlanEnd, Pool, PoolView, Posted, Prospects, RawLetter, Relook, Result, Retried, Retry, RetryLedger, SavedLane,
        Settled, Sights, Standing, StoreError, Survey, TryLease, Waiting,
    },
    letter::{DeadLetter, ErrorInfo, Group, Millis, Reason, Verdict},
};

use self::hands::Hands;

/// The store's time when a fake is made.
pub(crate) fn now() -> Millis {
    Millis(1_795_972_370_500)
}

/// A letter that was buried `age` seconds ago.
pub(crate) fn letter(entry_id: &str, age: i64) -> DeadLetter {
    DeadLetter {
        entry_id: entry_id.to_owned(),
        job_id: format!("job-{entry_id}"),
        task: "send_email".to_owned(),
        queue: "default".to_owned(),
        reason: Reason::MaxAttempts,
        error: ErrorInfo { kind: "ConnectionError".to_owned(), message: format!("host {entry_id} timed out") },
        detail: Vec::new(),
        attempts: 3,
        deliveries: 1,
        history: Vec::new(),
        verdict: Verdict::Same,
        group: Group("7c1f0e9a2b44".to_owned()),
        enqueued_at: None,
        died_at: Millis(now().0 - age * 1_000),
        traceparent: None,
        payload: Vec::new(),
        dedup: None,
        origin: "{lrs}:q:default:0".to_owned(),
        foreign: false,
    }
}

/// A source in memory.
pub(crate) struct Fake {
    name: String,
    clock: StoreClock,
    /// The DLQ, oldest first.
    letters: Mutex<Vec<DeadLetter>>,
    /// The fields every entry is recorded with.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the ledger knows of jobs.
    pub(crate) jobs: BTreeMap<String, JobCounts>,
    /// Who leads.
    pub(crate) leader: Option<Lease>,
    /// Entries not read yet, while somebody leads.
    pub(crate) lag: u64,
    /// By which rules the ledger works.
    pub(crate) judging: Judging,
    /// The due index: entries with their times.
    pub(crate) due: BTreeMap<String, Millis>,
    /// What stands in the way of every retry.
    pub(crate) prospects: Prospects,
    /// What has been learnt.
    pub(crate) learnt: BTreeMap<(Pool, Option<String>), String>,
    /// Retries in flight.
    pub(crate) flights: Vec<Flight>,
    /// The due index in numbers.
    pub(crate) waiting: Waiting,
    /// The audit log, newest first.
    pub(crate) log: Vec<AuditLine>,
    /// The watch as it was saved last.
    pub(crate) watch: BTreeMap<String, String>,
    /// What is found when it is looked at before a rollout.
    pub(crate) findings: Vec<Finding>,
    /// It is never done with that.
    pub(crate) hangs: bool,
    /// Every operation fails with this.
    pub(crate) broken: Option<StoreError>,
    /// The state of the lanes by hook and lane.
    pub(crate) lanes: Mutex<BTreeMap<(String, &'static str), SavedLane>>,
    /// Both lanes' events.
    pub(crate) outbox: Mutex<Vec<Posted>>,
    /// So many edits of lanes are refused because somebody else saved in between.
    pub(crate) moves: Mutex<u32>,
    hands: Mutex<Hands>,
}

impl Fake {
    /// With these letters, oldest first.
    pub(crate) fn new(name: &str, letters: Vec<DeadLetter>) -> Fake {
        let clock = StoreClock::default();
        clock.set(now());
        Fake {
            name: name.to_owned(),
            clock,
            letters: Mutex::new(letters),
            fields: Vec::new(),
            jobs: BTreeMap::new(),
            leader: None,
            lag: 2,
            judging: Judging::default(),
            due: BTreeMap::new(),
            prospects: Prospects { queue_length: Some(0), ..Prospects::default() },
            learnt: BTreeMap::new(),
            flights: Vec::new(),
            waiting: Waiting::default(),
            log: Vec::new(),
            watch: BTreeMap::new(),
            findings: Vec::new(),
            hangs: false,
            broken: None,
            lanes: Mutex::default(),
            outbox: Mutex::default(),
            moves: Mutex::default(),
            hands: Mutex::default(),
        }
    }

    /// The letters, oldest first.
    pub(crate) fn letters_mut(&mut self) -> &mut Vec<DeadLetter> {
        self.letters.get_mut().unwrap()
    }

    /// Puts a letter in its place.
    fn put_back(&self, letter: DeadLetter) {
        let position = |letter: &DeadLetter| letter.entry_id.parse::<OutboxId>().unwrap_or_default();
        let mut letters = self.letters();
        letters.push(letter);
        letters.sort_by_key(position);
    }

    fn letters(&self) -> MutexGuard<'_, Vec<DeadLetter>> {
        self.letters.lock().unwrap()
    }

    /// Takes this letter for the only one there is.
    pub(crate) fn set_letter(&mut self, letter: DeadLetter) {
        *self.letters_mut() = vec![letter];
    }

    /// Saves a lane's state.
    pub(crate) fn set_lane(&self, hook: &str, lane: Lane, state: &str) {
        let saved = SavedLane { revision: 1, state: state.to_owned() };
        self.lanes.lock().unwrap().insert((hook.to_owned(), lane.as_str()), saved);
    }

    /// Puts an event into the outbox.
    pub(crate) fn post(&self, id: OutboxId, data: EventData) {
        let event = Event { id: format!("msg_{id}"), at: Millis(i64::try_from(id.ms).unwrap()), data };
        self.outbox.lock().unwrap().push(Posted { id, event });
    }

    fn works(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }
}

fn not_here<T>() -> Result<T> {
    Err(StoreError::Unexpected("no command asks this".to_owned()))
}

#[async_trait]
impl Ledger for Fake {
    fn is_entry_id(&self, text: &str) -> bool {
        text.contains('-')
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn dlq(&self) -> String {
        format!("{{{}}}:dlq", self.name())
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn outbox_changes(&self, _: Lane) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    async fn try_lease(&self, _: &str, _: Duration, _: u64) -> Result<TryLease> {
        not_here()
    }

    async fn leader(&self) -> Result<Option<Lease>> {
        self.works()?;
        Ok(self.leader.clone())
    }

    async fn look_at_lease(&self) -> Result<LeaseNow> {
        not_here()
    }

    async fn until_released(&self, _: &Lease, _: Duration) -> Result<()> {
        not_here()
    }

    async fn renew(&self, _: &Lease, _: Duration) -> Result<()> {
        not_here()
    }

    async fn release(&self, _: &Lease) -> Result<()> {
        not_here()
    }

    async fn attach(&self, _: &Lease, _: AttachOptions) -> Result<Attached> {
        not_here()
    }

    fn is_after(&self, entry_id: &str, cursor: &Cursor) -> bool {
        let position = |id: &str| id.parse::<OutboxId>().unwrap_or_default();
        position(entry_id) > position(&cursor.0)
    }

    async fn read(&self, _: &Cursor, _: usize, _: Option<Duration>) -> Result<Batch> {
        not_here()
    }

    async fn commit(&self, _: &Lease, _: Commit) -> Result<PlanEnd<Committed>> {
        not_here()
    }

    async fn check(&self, _: &Lease, _: &Cursor) -> Result<()> {
        not_here()
    }

    async fn survey(&self, _: &Lease) -> Result<Survey> {
        not_here()
    }

    async fn mark_shown(&self, _: &Lease, _: OutboxId) -> Result<()> {
        not_here()
    }

    async fn shown_until(&self) -> Result<Option<OutboxId>> {
        not_here()
    }

    async fn outbox(&self, lane: Lane, after: OutboxId, max: usize) -> Result<OutboxPage> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        let of_lane = outbox.iter().filter(|posted| posted.event.kind().lane() == lane && posted.id > after);
        let events: Vec<Posted> = of_lane.take(max).cloned().collect();
        Ok(OutboxPage { last: events.last().map(|posted| posted.id), events, unreadable: 0 })
    }

    async fn outbox_get(&self, lane: Lane, id: OutboxId) -> Result<Option<Posted>> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        Ok(outbox.iter().find(|posted| posted.event.kind().lane() == lane && posted.id == id).cloned())
    }

    async fn outbox_len(&self, lane: Lane) -> Result<u64> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        Ok(outbox.iter().filter(|posted| posted.event.kind().lane() == lane).count() as u64)
    }

    async fn outbox_end(&self, lane: Lane) -> Result<OutboxId> {
        self.works()?;
        let outbox = self.outbox.lock().unwrap();
        let of_lane = outbox.iter().filter(|posted| posted.event.kind().lane() == lane);
        Ok(of_lane.map(|posted| posted.id).max().unwrap_or_default())
    }

    async fn outbox_trim(&self, _: &Lease, _: Lane, _: OutboxId, _: Option<u64>) -> Result<u64> {
        not_here()
    }

    async fn append(&self, data: &EventData) -> Result<OutboxId> {
        self.works()?;
        let id = OutboxId { ms: u64::try_from(now().0).unwrap(), seq: 0 };
        self.post(id, data.clone());
        Ok(id)
    }

    async fn load_lane(&self, hook: &str, lane: Lane) -> Result<Option<SavedLane>> {
        self.works()?;
        Ok(self.lanes.lock().unwrap().get(&(hook.to_owned(), lane.as_str())).cloned())
    }

    async fn save_lane(&self, _: &Lease, _: &str, _: Lane, _: u64, _: &str) -> Result<u64> {
        not_here()
    }

    async fn edit_lane(&self, hook: &str, lane: Lane, over: u64, state: &str) -> Result<u64> {
        self.works()?;
        let mut lanes = self.lanes.lock().unwrap();
        let saved = lanes.get_mut(&(hook.to_owned(), lane.as_str())).ok_or(StoreError::Moved)?;
        let mut moves = self.moves.lock().unwrap();
        if *moves > 0 {
            *moves -= 1;
            saved.revision += 1;
        }
        if saved.revision != over {
            return Err(StoreError::Moved);
        }
        *saved = SavedLane { revision: over + 1, state: state.to_owned() };
        Ok(over + 1)
    }

    async fn overview(&self) -> Result<Overview> {
        self.works()?;
        let outbox = [self.outbox_len(Lane::ALL[0]).await?, self.outbox_len(Lane::ALL[1]).await?];
        let letters = self.letters();
        Ok(Overview {
            entries: letters.len() as u64,
            oldest: letters.first().map(|letter| letter.died_at),
            newest: letters.last().map(|letter| letter.died_at),
            added: letters.len() as u64 + 7,
            lag: self.leader.as_ref().map(|_| self.lag),
            deaths: 5,
            leader: self.leader.clone(),
            outbox,
        })
    }

    async fn entry(&self, entry_id: &str) -> Result<Option<RawLetter>> {
        self.works()?;
        let letters = self.letters();
        let found = letters.iter().find(|letter| letter.entry_id == entry_id);
        Ok(found.map(|letter| RawLetter { letter: letter.clone(), fields: self.fields.clone() }))
    }

    async fn page(&self, before: Option<&str>, max: usize) -> Result<DlqPage> {
        self.works()?;
        let letters = self.letters();
        let newest_first = letters.iter().rev();
        let rest: Vec<_> = match before {
            None => newest_first.collect(),
            Some(before) => newest_first.skip_while(|letter| letter.entry_id != before).skip(1).collect(),
        };
        let letters: Vec<DeadLetter> = rest.iter().take(max).map(|letter| (*letter).clone()).collect();
        let next = (rest.len() > max).then(|| letters.last().map(|last| last.entry_id.clone())).flatten();
        Ok(DlqPage { letters, next })
    }

    async fn jobs(&self, job_ids: &[String]) -> Result<Vec<JobCounts>> {
        self.works()?;
        Ok(job_ids.iter().map(|id| self.jobs.get(id).copied().unwrap_or_default()).collect())
    }
}

#[async_trait]
impl Inspect for Fake {
    async fn inspect(&self, tell: &mut (dyn FnMut(Finding) + Send)) {
        self.findings.iter().cloned().for_each(tell);
        if self.hangs {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl RetryLedger for Fake {
    async fn adopt_rules(&self, _: &Lease, _: &Cursor, _: &str) -> Result<u64> {
        not_here()
    }

    async fn judging(&self) -> Result<Judging> {
        self.works()?;
        Ok(self.judging.clone())
    }

    async fn read_to_judge(&self, _: &Cursor, _: &Cursor, _: usize) -> Result<(Batch, Vec<JobCounts>)> {
        not_here()
    }

    async fn judge(&self, _: &Lease, _: Judge) -> Result<PlanEnd<Committed>> {
        not_here()
    }

    async fn discard_old(&self, _: &Lease, _: usize) -> Result<bool> {
        not_here()
    }

    async fn due_pools(&self, _: u64, _: usize) -> Result<DuePools> {
        not_here()
    }

    async fn pool(&self, _: u64, _: &Pool, _: usize) -> Result<PoolView> {
        not_here()
    }

    async fn due_entries(&self, _: u64, _: &Pool, _: &[(String, usize)]) -> Result<Vec<Vec<String>>> {
        not_here()
    }

    async fn standing(&self, entries: &[String]) -> Result<Vec<Option<Standing>>> {
        self.works()?;
        let letters = self.letters();
        let standing = |letter: &DeadLetter| Standing {
            letter: letter.clone(),
            job: self.jobs.get(&letter.job_id).copied().unwrap_or_default(),
        };
        Ok(entries.iter().map(|id| letters.iter().find(|letter| letter.entry_id == *id).map(standing)).collect())
    }

    async fn retry(&self, _: &Lease, _: u64, _: Vec<Retry>) -> Result<Vec<Retried>> {
        not_here()
    }

    async fn drop_due(&self, _: &Lease, _: u64, _: &[(Place, String)]) -> Result<()> {
        not_here()
    }

    async fn relook(&self, _: &Lease, _: u64, _: &Pool, _: &Relook) -> Result<()> {
        not_here()
    }

    async fn flights(&self) -> Result<Vec<Flight>> {
        self.works()?;
        Ok(self.flights.clone())
    }

    async fn look(&self, _: &[Flight]) -> Result<Sights> {
        not_here()
    }

    async fn settle(&self, _: &Lease, _: &[Settled], _: &[Lesson]) -> Result<()> {
        not_here()
    }

    async fn learnt(&self, of: &[(Pool, Option<String>)]) -> Result<Vec<Option<String>>> {
        self.works()?;
        Ok(of.iter().map(|of| self.learnt.get(of).cloned()).collect())
    }

    async fn waiting(&self) -> Result<Waiting> {
        self.works()?;
        Ok(self.waiting.clone())
    }

    async fn due_at(&self, generation: u64, _: &Place, entry_id: &str) -> Result<Option<Millis>> {
        self.works()?;
        assert_eq!(generation, self.judging.generation);
        Ok(self.due.get(entry_id).copied())
    }

    async fn prospects(&self, _: &DeadLetter) -> Result<Prospects> {
        self.works()?;
        Ok(self.prospects.clone())
    }

    async fn audit(&self, before: Option<&str>, since: Option<Millis>, max: usize) -> Result<Vec<AuditLine>> {
        self.works()?;
        let from = before
            .map_or(0, |before| self.log.iter().position(|line| line.id == before).map_or(self.log.len(), |at| at + 1));
        let since = since.unwrap_or_default();
        Ok(self.log[from..].iter().take_while(|line| line.at >= since).take(max).cloned().collect())
    }
}
