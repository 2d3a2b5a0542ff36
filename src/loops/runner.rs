//! Runs a loop: steps, waits, backs off from a store in trouble, and ends in order.

use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::Trouble;
use crate::ledger::StoreError;

/// The first pause after a failed step; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause of a loop that does not say otherwise.
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

    /// The longest pause between tries at a store in trouble.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }

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
    let longest = step.longest_pause();
    let first = FIRST_PAUSE.min(longest);
    let mut pause = first;
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
                pause = first;
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
                pause = (pause * 2).min(longest);
                jittered
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails three times, works once, and looks each time whether the trouble is on.
    struct Failing {
        steps: u32,
        trouble: Trouble,
        seen: std::sync::mpsc::Sender<bool>,
    }

    #[async_trait]
    impl Step for Failing {
        fn name(&self) -> &'static str {
            "failing"
        }

        fn longest_pause(&self) -> Duration {
            Duration::from_millis(1)
        }

        async fn step(&mut self, stop: &CancellationToken) -> Result<Next, StoreError> {
            self.seen.send(self.trouble.is_on()).unwrap();
            self.steps += 1;
            match self.steps {
                1..=3 => Err(StoreError::Unavailable("refused".to_owned())),
                4 => Ok(Next::Again),
                _ => {
                    stop.cancel();
                    Ok(Next::Again)
                }
            }
        }
    }

    #[tokio::test]
    async fn a_trouble_lasts_until_the_step_works() {
        let trouble = Trouble::new("orders", "test");
        let (seen, looks) = std::sync::mpsc::channel();
        let step = Failing { steps: 0, trouble: trouble.at("look"), seen };
        assert_eq!(run(Box::new(step), &trouble, CancellationToken::new()).await, Ended::Stopped);
        assert_eq!(looks.iter().collect::<Vec<_>>(), [false, true, true, true, false]);
    }
}
