//! Reading the DLQ in order: where to begin, the read itself, and looks at how far it has come.

use std::{sync::atomic::Ordering, time::Duration};

use redis::{Cmd, Value, cmd};

use super::{
    Smallage,
    connection::Arg,
    record,
    reply::{self, Reply, StreamEntry},
    store::LONGEST_BLOCK,
};
use crate::{
    clock::millis,
    event::{Lane, Tally},
    ledger::{AttachOptions, Attached, Batch, Cursor, Existing, Lease, Loss, Result, Survey},
    letter::{DeadLetter, Millis},
};

impl Smallage {
    pub(super) async fn attach_dlq(&self, lease: &Lease, options: AttachOptions) -> Result<Attached> {
        self.tail().clear();
        let flag = |set: bool| Arg::Text(if set { "1" } else { "0" });
        let new_uid = format!("{:08x}", fastrand::u32(..));
        let answer = self
            .commands
            .run_script(
                &self.scripts.attach,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.dlq()],
                &[
                    Arg::Text(&lease.token()),
                    flag(options.announce_existing),
                    flag(options.seen_before),
                    Arg::Text(&new_uid),
                ],
            )
            .await?;
        let mut reply = Reply::of_script(answer)?;
        self.set_uid(reply.text()?);
        let cursor = Cursor(reply.text()?);
        let (until, tally, loss) = (reply.text()?, reply.text()?, reply.text()?);
        let dlq_exists = reply.number()? == 1;
        let existing = (!until.is_empty()).then(|| Existing {
            until: Cursor(until),
            // A tally that this build cannot read begins anew: the count is then too low, but nothing is lost.
            tally: serde_json::from_str::<Tally>(&tally).unwrap_or_default(),
        });
        let loss = match loss.as_str() {
            "ledger" => Some(Loss::Ledger),
            "cursor" => Some(Loss::CursorAhead),
            _ => None,
        };
        if loss.is_some() || options.loss_known {
            // It would tell of the same loss once more.
            self.forget_newest_event();
        }
        Ok(Attached { cursor, existing, loss, dlq_exists })
    }

    pub(super) async fn read_dlq(&self, after: &Cursor, max: usize, block: Option<Duration>) -> Result<Batch> {
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(max);
        if let Some(block) = block {
            // BLOCK 0 would wait for ever.
            command.arg("BLOCK").arg(millis(block.min(LONGEST_BLOCK)).max(1));
        }
        command.arg("STREAMS").arg(self.keys.dlq()).arg(&after.0);
        let entries = reply::read_entries(self.blocking_read(&command).await?)?;
        let caught_up = entries.len() < max;
        let cursor = entries.last().map_or_else(|| after.clone(), |(id, _)| Cursor(id.clone()));
        let (letters, heaviest) = self.letters_of(entries);
        Ok(Batch { letters, cursor, heaviest, caught_up })
    }

    /// A command that may block, on the connection that is there for it. One at a time.
    pub(super) async fn blocking_read(&self, command: &Cmd) -> Result<Value> {
        // A read that was abandoned while it blocked is still under way on its connection.
        if self.reading.swap(true, Ordering::Relaxed) {
            self.reads.close().await;
        }
        let answer = self.reads.run(command).await;
        self.reading.store(false, Ordering::Relaxed);
        answer
    }

    pub(super) async fn browse_dlq(&self, after: &Cursor, max: usize) -> Result<Batch> {
        let from = if after.0.is_empty() { "-".to_owned() } else { format!("({}", after.0) };
        let mut command = cmd("XRANGE");
        command.arg(self.keys.dlq()).arg(from).arg("+").arg("COUNT").arg(max);
        let entries = reply::entries(self.commands.run(&command).await?)?;
        let caught_up = entries.len() < max;
        let cursor = entries.last().map_or_else(|| after.clone(), |(id, _)| Cursor(id.clone()));
        let (letters, heaviest) = self.letters_of(entries);
        Ok(Batch { letters, cursor, heaviest, caught_up })
    }

    /// The letters in these entries, and what the heaviest of them weighs.
    pub(super) fn letters_of(&self, entries: Vec<StreamEntry>) -> (Vec<DeadLetter>, usize) {
        let heaviest = entries.iter().map(|(_, fields)| record::weight(fields)).max().unwrap_or(0);
        let letters = entries.into_iter().map(|(id, fields)| record::decode(&self.keys, &id, fields));
        (letters.collect(), heaviest)
    }

    pub(super) async fn check_cursor(&self, lease: &Lease, cursor: &Cursor) -> Result<()> {
        let answer = self
            .commands
            .run_script(
                &self.scripts.check,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.dlq()],
                &[Arg::Text(&lease.token()), Arg::Text(&cursor.0)],
            )
            .await?;
        Reply::of_script(answer).map(|_| ())
    }

    pub(super) async fn survey_dlq(&self, lease: &Lease) -> Result<Survey> {
        let answer = self
            .commands
            .run_script(
                &self.scripts.survey,
                &[
                    &self.keys.lease(),
                    &self.keys.state(),
                    &self.keys.dlq(),
                    &self.keys.flights(),
                    &self.keys.outbox(Lane::Deaths),
                ],
                &[Arg::Text(&lease.token()), Arg::Text(&self.newest_event())],
            )
            .await?;
        let mut reply = Reply::of_script(answer)?;
        self.clock.set(reply.time()?);
        let (entries, added, first) = (reply.number()?, reply.number()?, reply.text()?);
        let survey = Survey {
            entries,
            oldest: id_time(&first),
            added,
            lag: reply.number()?,
            unseen: reply.number()?,
            in_flight: reply.number()?,
            told: reply.text()?.parse().ok(),
            lost: reply.number()? > 0,
        };
        if survey.lost {
            self.forget_newest_event();
        } else {
            self.has_found_newest_event(survey.told);
        }
        Ok(survey)
    }
}

/// The time in a stream id.
pub(super) fn id_time(id: &str) -> Option<Millis> {
    id.split('-').next()?.parse().ok().map(Millis)
}

pub(super) fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
