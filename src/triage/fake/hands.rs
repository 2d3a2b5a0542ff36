//! What people do to the ledger in memory.

use async_trait::async_trait;

use super::{Fake, not_here, now};
use crate::{
    event::EventData,
    ledger::{
        By, HandRetry, Lease, Operation, OperationProgress, Raised, Refusal, Removal, Result, Retain, Scan, Scanned,
        StoreError, TriageLedger,
    },
    letter::{DeadLetter, Millis},
};

/// What was done to a fake by hand, and what it is to do.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    /// Entries that were retried, with what was asked, in order.
    pub(crate) retried: Vec<HandRetry>,
    /// Entries that were removed, in order.
    pub(crate) removed: Vec<(Removal, String)>,
    /// Who did each of these steps.
    pub(crate) by: Vec<By>,
    /// Audit lines that stand for no entry.
    pub(crate) notes: Vec<(String, String, String)>,
    /// What was announced.
    pub(crate) announced: Vec<EventData>,
    /// Scans that were made.
    pub(crate) scans: Vec<Scan>,
    /// These are refused.
    pub(crate) refusals: Vec<(String, Refusal)>,
    /// A retried job dies again at once, as another entry.
    pub(crate) dies_again: bool,
    /// After so many more steps every one fails.
    pub(crate) breaks_after: Option<usize>,
    /// Operations, newest last.
    pub(crate) operations: Vec<(Operation, OperationProgress)>,
    /// The next so many saves of progress come too late.
    pub(crate) moves: u32,
}

impl Fake {
    /// What was done by hand so far.
    pub(crate) fn hands(&self) -> std::sync::MutexGuard<'_, Hands> {
        self.hands.lock().unwrap()
    }

    /// Takes an entry away, as another person would.
    pub(crate) fn take(&self, entry_id: &str) -> Option<DeadLetter> {
        let mut letters = self.letters();
        let at = letters.iter().position(|letter| letter.entry_id == entry_id)?;
        Some(letters.remove(at))
    }

    /// The entries that are there, oldest first.
    pub(crate) fn entries(&self) -> Vec<String> {
        self.letters().iter().map(|letter| letter.entry_id.clone()).collect()
    }

    fn step(&self, by: &By) -> Result<()> {
        self.works()?;
        let mut hands = self.hands();
        match &mut hands.breaks_after {
            Some(0) => return Err(StoreError::Unavailable("broken off".to_owned())),
            Some(left) => *left -= 1,
            None => {}
        }
        hands.by.push(by.clone());
        Ok(())
    }
}

#[async_trait]
impl TriageLedger for Fake {
    async fn scan(&self, scan: &Scan) -> Result<Scanned> {
        self.works()?;
        self.hands().scans.push(scan.clone());
        let letters = self.letters();
        let position = |letter: &DeadLetter| letter.entry_id.parse::<crate::ledger::OutboxId>().unwrap_or_default();
        let from = scan.from.as_ref().map(|from| from.parse().unwrap_or_default());
        let mut all: Vec<&DeadLetter> = letters.iter().collect();
        if !scan.oldest_first {
            all.reverse();
        }
        // The ids of these tests tell nothing of when an entry was added; its death does.
        let wanted = |letter: &&DeadLetter| {
            from.is_none_or(|from| if scan.oldest_first { position(letter) > from } else { position(letter) < from })
                && scan.since.is_none_or(|since| letter.died_at >= since)
                && scan.until.is_none_or(|until| letter.died_at <= until)
        };
        let mut rest = all.into_iter().filter(wanted).peekable();
        let mut scanned = Scanned::default();
        while let Some(letter) = rest.peek() {
            if scanned.letters.len() == scan.max || scanned.looked_at == 1_000 {
                break;
            }
            let passes =
                |globs: &Option<crate::rule::Globs>, name: &str| globs.as_ref().is_none_or(|g| g.is_match(name));
            let sieve = &scan.sieve;
            if passes(&sieve.task, &letter.task)
                && passes(&sieve.queue, &letter.queue)
                && sieve.reason.as_ref().is_none_or(|reasons| reasons.iter().any(|r| r == letter.reason.as_str()))
                && sieve.job_id.as_ref().is_none_or(|job| *job == letter.job_id)
            {
                let payload = if scan.without_payload { Vec::new() } else { letter.payload.clone() };
                scanned.letters.push(DeadLetter { payload, ..(*letter).clone() });
            }
            scanned.looked_at += 1;
            scanned.next = Some(letter.entry_id.clone());
            rest.next();
        }
        if rest.peek().is_none() {
            scanned.next = None;
        }
        Ok(scanned)
    }

    async fn retry_by_hand(&self, by: &By, retries: Vec<HandRetry>) -> Result<Vec<Raised>> {
        self.step(by)?;
        let mut raised = Vec::new();
        for retry in retries {
            let entry = retry.dead.entry_id.clone();
            let refusal = self.hands().refusals.iter().find(|(id, _)| *id == entry).map(|(_, why)| *why);
            raised.push(match (refusal, self.take(&entry)) {
                (Some(why), Some(letter)) => {
                    self.put_back(letter);
                    Raised::Refused(why)
                }
                (_, None) => Raised::Refused(Refusal::EntryGone),
                (None, Some(letter)) => {
                    let mut hands = self.hands();
                    hands.retried.push(retry);
                    let number = hands.retried.len() as u64;
                    if hands.dies_again {
                        let (entry_id, died_at) = (format!("{}-0", u64::MAX / 2 + number), Millis(now().0 + 1_000));
                        self.letters().push(DeadLetter { entry_id, died_at, ..letter });
                    }
                    Raised::Sent(format!("9-{number}"))
                }
            });
        }
        Ok(raised)
    }

    async fn remove(&self, by: &By, how: Removal, entries: &[String]) -> Result<Vec<bool>> {
        self.step(by)?;
        let mut was_there = Vec::new();
        for entry in entries {
            let there = self.take(entry).is_some();
            if there {
                self.hands().removed.push((how, entry.clone()));
            }
            was_there.push(there);
        }
        Ok(was_there)
    }

    async fn retain(&self, _: &Lease, _: &By, _: Retain) -> Result<u64> {
        not_here()
    }

    async fn announce(&self, _: Option<&Lease>, event: &EventData) -> Result<()> {
        self.works()?;
        self.hands().announced.push(event.clone());
        Ok(())
    }

    async fn note(&self, by: &By, what: &str, detail: &str) -> Result<()> {
        self.works()?;
        self.hands().notes.push((by.who.clone(), what.to_owned(), detail.to_owned()));
        Ok(())
    }

    async fn begin(&self, operation: &Operation) -> Result<()> {
        self.works()?;
        self.hands().operations.push((operation.clone(), OperationProgress::default()));
        Ok(())
    }

    async fn operation(&self, id: &str) -> Result<Option<(Operation, OperationProgress)>> {
        self.works()?;
        Ok(self.hands().operations.iter().find(|(operation, _)| operation.id == id).cloned())
    }

    async fn operation_ids(&self, max: usize) -> Result<Vec<String>> {
        Ok(self.operations(max).await?.into_iter().map(|(operation, _)| operation.id).collect())
    }

    async fn operations(&self, max: usize) -> Result<Vec<(Operation, OperationProgress)>> {
        self.works()?;
        Ok(self.hands().operations.iter().rev().take(max).cloned().collect())
    }

    async fn progress(&self, _: Option<&Lease>, id: &str, progress: &OperationProgress) -> Result<u64> {
        self.works()?;
        let mut hands = self.hands();
        let moves = std::mem::take(&mut hands.moves);
        hands.moves = moves.saturating_sub(1);
        let Some((_, saved)) = hands.operations.iter_mut().find(|(operation, _)| operation.id == id) else {
            return Err(StoreError::Moved);
        };
        if moves > 0 {
            saved.revision += 1;
        }
        if saved.revision != progress.revision {
            return Err(StoreError::Moved);
        }
        let (done, refused) = (saved.done, saved.refused.clone());
        *saved = OperationProgress { revision: progress.revision + 1, done, refused, ..progress.clone() };
        Ok(saved.revision)
    }
}
