//! A replica that leads, or thinks so: its loops, each of which takes a step when it is told to, and can be cut off in it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use sexton::{
    event::Include,
    ledger::{Attached, Lease, RetryLedger, StoreError},
    loops::{Ingest, IngestOptions, Judge, Next, Retry, Step},
    metrics::Metrics,
    rule::Rules,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    ops::Loop,
    picture::{Id, Picture},
    reference::Wrong,
    standstill::Standstill,
};

/// A step under way, which gives its loop back.
type Turn = Pin<Box<dyn Future<Output = (Box<dyn Step>, Result<Next, StoreError>)>>>;

/// A loop: at rest, or in the middle of a step.
enum Seat {
    Idle(Box<dyn Step>),
    Busy(Turn, CancellationToken),
    /// It is being turned.
    Taken,
}

/// A replica that leads, or thinks so.
pub(super) struct Leader {
    pub(super) ledger: Arc<dyn RetryLedger>,
    pub(super) lease: Lease,
    /// How far the DLQ had been read when it led last.
    read: Id,
    /// In the order of [`Loop::ALL`].
    seats: [Seat; 3],
}

impl Leader {
    /// One that has attached.
    pub(super) fn new(
        ledger: Arc<dyn RetryLedger>,
        lease: Lease,
        attached: Attached,
        metrics: &Arc<Metrics>,
        rules: &watch::Sender<Arc<Rules>>,
    ) -> Leader {
        let (shared, held) = (|| Arc::clone(&ledger), || lease.clone());
        let (metrics, rules) = (|| Arc::clone(metrics), || rules.subscribe());
        let options = IngestOptions { include: Include::default(), outbox_cap: 50_000 };
        let seats = [
            Seat::Idle(Box::new(Ingest::new(shared(), held(), metrics(), options, rules(), attached))),
            Seat::Idle(Box::new(Judge::new(shared(), held(), metrics(), rules()))),
            Seat::Idle(Box::new(Retry::new(shared(), held(), metrics(), rules()))),
        ];
        Leader { ledger, lease, read: Id::default(), seats }
    }

    /// Nothing of it is half done.
    pub(super) fn is_idle(&self) -> bool {
        !self.seats.iter().any(|seat| matches!(seat, Seat::Busy(..)))
    }

    /// It still leads in this picture.
    pub(super) fn leads_in(&mut self, picture: &Picture) {
        self.read = picture.cursor();
    }

    /// Takes a step of a loop, or goes on with the one it is in; none if it was cut off after so many waits.
    pub(super) async fn turn(
        &mut self,
        which: Loop,
        waits: Option<usize>,
        picture: &Picture,
    ) -> Result<Option<Result<Next, StoreError>>, Wrong> {
        let seat = &mut self.seats[which as usize];
        let (mut turn, stop) = match std::mem::replace(seat, Seat::Taken) {
            Seat::Busy(turn, stop) => (turn, stop),
            Seat::Idle(mut step) => {
                let stop = CancellationToken::new();
                let told = stop.clone();
                let turn: Turn = Box::pin(async move {
                    let outcome = step.step(&told).await;
                    (step, outcome)
                });
                (turn, stop)
            }
            Seat::Taken => return Err(format!("{which:?} never ended its turn")),
        };
        // Whoever is told to stop does not wait for anything to come. Time stands still here, so nothing would; but what
        // is there to be read is to be read.
        let is_unread = picture.dlq.keys().next_back().is_some_and(|last| *last > self.read);
        if which != Loop::Ingest || !is_unread {
            stop.cancel();
        }
        // What a rule's pace allows comes with time.
        Standstill::a_moment_passes().await;
        let mut waited = 0;
        let step = poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => {
                waited += 1;
                if waits.is_some_and(|most| waited >= most) { Poll::Ready(None) } else { Poll::Pending }
            }
        });
        let outcome = match step.await {
            Some((step, outcome)) => {
                *seat = Seat::Idle(step);
                Some(outcome)
            }
            None => {
                *seat = Seat::Busy(turn, stop);
                None
            }
        };
        self.settled().await;
        Ok(outcome)
    }

    /// Waits until what is under way on the connection, also of tasks that nobody waits for, has been done: a command is
    /// answered after those before it.
    pub(super) async fn settled(&self) {
        for _ in 0..2 {
            tokio::task::yield_now().await;
            self.ledger.leader().await.expect("Redis is there");
        }
    }

    /// It is told to stop while it leads.
    pub(super) async fn comes_to_rest(&mut self, picture: &Picture) -> Result<(), Wrong> {
        for which in Loop::ALL {
            let is_busy = matches!(self.seats[which as usize], Seat::Busy(..));
            if is_busy && let Some(Err(error)) = self.turn(which, None, picture).await? {
                return Err(format!("{which:?} has failed: {error:?}"));
            }
            if let Seat::Idle(step) = &mut self.seats[which as usize] {
                step.settle().await.map_err(|error| format!("{which:?} cannot come to rest: {error:?}"))?;
            }
        }
        self.ledger.release(&self.lease).await.map_err(|error| format!("the lease is not given up: {error:?}"))
    }
}
