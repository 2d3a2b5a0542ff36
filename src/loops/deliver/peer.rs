//! What the two lanes of a hook tell each other, as they send to the same receiver: that it works, and that it is gone.

use tokio::sync::watch;

/// One lane's end of the line to the other.
#[derive(Debug)]
pub(super) struct Peer {
    tell: watch::Sender<Told>,
    hear: watch::Receiver<Told>,
}

/// What a lane has said so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// The receiver takes what it is sent.
    pub(super) works: bool,
    /// The receiver is gone for good.
    pub(super) gone: bool,
}

impl Peer {
    /// Both ends.
    pub(super) fn pair() -> [Peer; 2] {
        let (one, other) = (watch::Sender::default(), watch::Sender::default());
        let (hear_one, hear_other) = (one.subscribe(), other.subscribe());
        [Peer { tell: one, hear: hear_other }, Peer { tell: other, hear: hear_one }]
    }

    /// The receiver has taken what it was sent.
    pub(super) fn works(&self) {
        self.tell.send_modify(|told| told.works = true);
    }

    /// The receiver is gone for good.
    pub(super) fn gone(&self) {
        self.tell.send_modify(|told| told.gone = true);
    }

    /// What is new since the last time, if anything is.
    pub(super) fn news(&mut self) -> Option<Told> {
        self.hear.has_changed().unwrap_or(false).then(|| *self.hear.borrow_and_update())
    }

    /// Waits for something new: for ever, once the other lane has ended.
    pub(super) async fn next(&mut self) -> Told {
        match self.hear.changed().await {
            Ok(()) => *self.hear.borrow_and_update(),
            Err(_) => std::future::pending().await,
        }
    }
}
