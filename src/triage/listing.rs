//! The entries of some sources as they are listed: newest first, one source after the other, from a cursor on.

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Cursor, Error, Filter, Result,
    walk::{Order, PIECE, Progress, Walk},
};
use crate::{
    event::{Include, JobDead, rfc3339},
    ledger::{self, JobCounts, Overview, TriageLedger},
    letter::{DeadLetter, Millis},
    retry::fate,
    rule::Rules,
};

/// Which part of a listing is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Items at most.
    pub limit: u64,
    /// From here on.
    pub after: Option<Cursor>,
    /// So many items are passed over. Shifts while entries come and go: pages may overlap or miss some.
    pub offset: u64,
}

/// One page, as `-o json` prints it and HTTP answers.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins; none at the end.
    pub next_cursor: Option<String>,
}

/// An entry as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// When it was buried.
    pub died_at: Millis,
    /// The item: the fields of the `job.dead` event. `rule` and `next_retry_at` are there where the rules given are
    /// those in force: what they plan for it, whatever is on hold.
    pub job: JobDead,
}

/// A listing, piece by piece, so that a long one need not be held whole.
pub struct Listing<'a> {
    sources: &'a [&'a dyn TriageLedger],
    filter: &'a Filter,
    rules: &'a Rules,
    /// Number of the source being listed.
    number: usize,
    after: Option<String>,
    left: u64,
    skip: u64,
    looking: Option<Looking<'a>>,
    now: Millis,
    next_cursor: Option<String>,
    ended: bool,
    looked_at: Vec<(String, Overview)>,
}

/// The source being listed.
struct Looking<'a> {
    walk: Walk<'a>,
    in_force: bool,
    entries: u64,
}

impl<'a> Listing<'a> {
    /// Of these sources.
    pub fn new(sources: &'a [&'a dyn TriageLedger], filter: &'a Filter, rules: &'a Rules, ask: Ask) -> Listing<'a> {
        let Ask { limit, after, offset } = ask;
        let Cursor { source, after } = after.unwrap_or_default();
        Listing {
            sources,
            filter,
            rules,
            number: source,
            after,
            left: limit,
            skip: offset,
            looking: None,
            now: Millis(0),
            next_cursor: None,
            ended: false,
            looked_at: Vec::new(),
        }
    }

    /// Where the next listing goes on, once this one has ended; none if nothing is left.
    pub fn next_cursor(&self) -> Option<&str> {
        self.next_cursor.as_deref()
    }

    /// Where a listing goes on that was broken off here, between two pieces; none if nothing is left.
    pub fn resume(&self) -> Option<String> {
        if self.ended {
            return self.next_cursor.clone();
        }
        let source = self.sources.get(self.number)?.name();
        let at = self.looking.as_ref().map_or(self.after.as_deref(), |looking| looking.walk.at());
        Some(at.map_or_else(|| Cursor::at(source), |entry| Cursor::after(source, entry)))
    }

    /// The time that ages are counted from, of the source that was looked at last.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The sources looked at so far, as they were when that began.
    pub fn overviews(&self) -> &[(String, Overview)] {
        &self.looked_at
    }

    /// How far it has come.
    pub fn progress(&self) -> Option<Progress<'_>> {
        let looking = self.looking.as_ref()?;
        let source = self.sources.get(self.number)?.name();
        Some(Progress { source, looked_at: looking.walk.looked_at(), entries: looking.entries })
    }

    /// The items of the next piece, perhaps none; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Listed>>> {
        let Some(&ledger) = self.sources.get(self.number).filter(|_| !self.ended) else { return Ok(None) };
        if self.looking.is_none() {
            self.looking = Some(self.look_at(ledger).await.map_err(Error::of(ledger))?);
        }
        let Some(looking) = &mut self.looking else { return Ok(None) };
        // One more than wanted shows whether there is more.
        let room = usize::try_from(self.left.saturating_add(self.skip).saturating_add(1)).unwrap_or(usize::MAX);
        let passed = looking.walk.next(room.min(PIECE)).await.map_err(Error::of(ledger))?.unwrap_or_default();
        let skipped = self.skip.min(passed.len() as u64);
        self.skip -= skipped;
        let mut wanted: Vec<DeadLetter> =
            passed.into_iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).collect();
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let more_here = wanted.len() > left || !looking.walk.ended();
        wanted.truncate(left);
        self.left -= wanted.len() as u64;
        let items = looking.fill_in(ledger, self.rules, &wanted).await.map_err(Error::of(ledger))?;
        if self.left == 0 {
            self.ended = true;
            self.next_cursor = match items.last() {
                Some(last) if more_here => Some(Cursor::after(ledger.name(), &last.job.entry_id)),
                _ => self.sources.get(self.number + 1).map(|next| Cursor::at(next.name())),
            };
        } else if looking.walk.ended() {
            self.looking = None;
            self.number += 1;
        }
        Ok(Some(items))
    }

    async fn look_at(&mut self, ledger: &'a dyn TriageLedger) -> ledger::Result<Looking<'a>> {
        // Asked first because the answer brings the store's time, by which ages are counted.
        let overview = ledger.overview().await?;
        self.now = ledger.clock().now();
        let entries = overview.entries;
        self.looked_at.push((ledger.name().to_owned(), overview));
        let in_force = !self.rules.is_empty() && ledger.judging().await?.fingerprint == self.rules.fingerprint;
        let walk = Walk::new(ledger, self.filter, self.now, Order::NewestFirst).after(self.after.take());
        Ok(Looking { walk, in_force, entries })
    }
}

impl Looking<'_> {
    /// With deaths and retries as the ledger knows them, and what the rules plan.
    async fn fill_in(
        &self,
        ledger: &dyn TriageLedger,
        rules: &Rules,
        letters: &[DeadLetter],
    ) -> ledger::Result<Vec<Listed>> {
        let counts = counts_of(ledger, letters).await?;
        let listed = |(letter, counts): (&DeadLetter, JobCounts)| {
            let mut job = JobDead {
                deaths: counts.deaths,
                retries: counts.retries,
                ..JobDead::of(ledger.name(), letter, Include::default())
            };
            if self.in_force {
                // The deaths that are known include this one.
                let before = JobCounts { deaths: counts.deaths.saturating_sub(1), ..counts };
                let fate = fate(rules, ledger.name(), letter, before);
                job.rule = fate.rule.map(str::to_owned);
                job.next_retry_at = fate.next_retry_at.and_then(rfc3339);
            }
            Listed { died_at: letter.died_at, job }
        };
        Ok(letters.iter().zip(counts).map(listed).collect())
    }
}

/// What the ledger knows of the letters' jobs; of a record without a job id only this death is known.
pub(super) async fn counts_of(ledger: &dyn TriageLedger, letters: &[DeadLetter]) -> ledger::Result<Vec<JobCounts>> {
    let ids: Vec<String> =
        letters.iter().filter(|letter| !letter.job_id.is_empty()).map(|letter| letter.job_id.clone()).collect();
    let mut known = if ids.is_empty() { Vec::new() } else { ledger.jobs(&ids).await? }.into_iter();
    let of = |letter: &DeadLetter| match letter.job_id.as_str() {
        "" => JobCounts { deaths: 1, retries: 0 },
        _ => known.next().unwrap_or_default(),
    };
    Ok(letters.iter().map(of).collect())
}

/// One page of entries, whole.
pub async fn list(sources: &[&dyn TriageLedger], filter: &Filter, rules: &Rules, ask: Ask) -> Result<Page<JobDead>> {
    let mut listing = Listing::new(sources, filter, rules, ask);
    let mut items = Vec::new();
    while let Some(piece) = listing.next().await? {
        items.extend(piece.into_iter().map(|listed| listed.job));
    }
    Ok(Page { items, next_cursor: listing.next_cursor })
}
