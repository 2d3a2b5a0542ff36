//! Runs a loop: steps, waits, backs off from a store in trouble, and ends in order.

use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::Trouble;
use crate::ledger::StoreError;

/// The first pause after a failed step; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between tries at a store in trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a loop wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Step again at once: there is more to do.
    Again,
    /// Step again after this long, or never if told to stop first.
    After(Duration),
}

/// One loop of a leader.
#[async_trait]
pub trait Step: Send {
    /// Its name in logs, such as `ingest`.
    fn name(&self) -> &'static str;

    /// One round. It may wait inside for something to do, but comes back soon once `stop` is cancelled.
    async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError>;

    /// Called once, after the last step, if the loop was told to stop while still leading: save what is not saved.
    async fn settle(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Why a loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The lease is no longer ours: no loop of this term may go on.
    Fenced,
    /// The ledger is not as this term believed: attach again.
    Moved,
}

/// Steps until told to stop, or until the term is over. What goes wrong with the store goes to `trouble`, which all loops
/// of a source share.
pub async fn run(mut step: Box<dyn Step>, trouble: &Trouble, stop: CancellationToken) -> Ended {
    let trouble = trouble.at(step.name());
    let mut pause = FIRST_PAUSE;
    loop {
        if stop.is_cancelled() {
            return match step.settle().await {
                Err(StoreError::Fenced) => Ended::Fenced,
                Err(error) => {
                    trouble.failed(&error);
                    Ended::Stopped
                }
                Ok(()) => Ended::Stopped,
            };
        }
        let wait = match step.step(&stop).await {
            Ok(next) => {
                trouble.over();
                pause = FIRST_PAUSE;
                match next {
                    Next::Again => continue,
                    Next::After(wait) => wait,
                }
            }
            Err(StoreError::Fenced) => return Ended::Fenced,
            Err(StoreError::Moved) => return Ended::Moved,
            Err(error) => {
                trouble.failed(&error);
                let jittered = pause.mul_f64(0.5 + fastrand::f64());
                pause = (pause * 2).min(LONGEST_PAUSE);
                jittered
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}
