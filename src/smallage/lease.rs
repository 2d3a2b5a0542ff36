//! The lease of a smallage source: one key that expires, and an epoch that only rises.

use std::time::Duration;

use redis::{Value, cmd};

use super::{Smallage, connection::Arg, reply, store::LONGEST_BLOCK};
use crate::{
    clock::millis,
    ledger::{Lease, LeaseNow, Result, StoreError, TryLease},
};

impl Smallage {
    pub(super) async fn acquire_lease(&self, holder: &str, ttl: Duration, known_epoch: u64) -> Result<TryLease> {
        let known = known_epoch.to_string();
        let answer = self
            .commands
            .run_script(
                &self.scripts.acquire,
                &[&self.keys.lease(), &self.keys.state(), &self.keys.handover()],
                &[Arg::Text(holder), Arg::Int(millis(ttl)), Arg::Text(&known)],
            )
            .await?;
        let mut reply = reply::Reply::array(answer)?;
        let (word, second) = (reply.text()?, reply.text()?);
        self.clock.set(reply.time()?);
        if word == "HELD" {
            let lease = parse_token(&second)?;
            return Ok(TryLease::Held { by: lease.holder, epoch: lease.epoch });
        }
        let epoch =
            second.parse().map_err(|_| StoreError::Unexpected(format!("an epoch that is no number: {second}")))?;
        Ok(TryLease::Acquired(Lease { epoch, holder: holder.to_owned() }))
    }

    pub(super) async fn current_lease(&self) -> Result<Option<Lease>> {
        match self.commands.run(cmd("GET").arg(self.keys.lease())).await? {
            Value::Nil => Ok(None),
            value => parse_token(&reply::text(&value).unwrap_or_default()).map(Some),
        }
    }

    pub(super) async fn see_lease(&self) -> Result<LeaseNow> {
        let mut looks = redis::pipe();
        looks.cmd("GET").arg(self.keys.lease()).cmd("PTTL").arg(self.keys.lease()).cmd("TIME");
        let mut reply = reply::Reply::array(Value::Array(self.commands.read_all(&looks).await?))?;
        let (token, left) = (reply.next()?, reply.next()?);
        self.clock.set(reply::Reply::array(reply.next()?)?.time()?);
        let lease = reply::text(&token).and_then(|token| parse_token(&token).ok());
        Ok(match (lease, left) {
            // Below 0 it is gone by now, or would never go.
            (Some(lease), Value::Int(left @ 0..)) => {
                LeaseNow::Held { lease, left: Duration::from_millis(left.unsigned_abs()) }
            }
            _ => LeaseNow::Free,
        })
    }

    pub(super) async fn wait_for_release(&self, lease: &Lease, at_most: Duration) -> Result<()> {
        // What is left behind at the end of this epoch comes after its beginning, whoever writes it when.
        let mut command = cmd("XREAD");
        command.arg("BLOCK").arg(millis(at_most.min(LONGEST_BLOCK)).max(1));
        command.arg("STREAMS").arg(self.keys.handover()).arg(format!("{}-0", lease.epoch));
        self.blocking_read(&command).await.map(|_| ())
    }

    pub(super) async fn renew_lease(&self, lease: &Lease, ttl: Duration) -> Result<()> {
        let answer = self
            .commands
            .run_script(&self.scripts.renew, &[&self.keys.lease()], &[Arg::Text(&lease.token()), Arg::Int(millis(ttl))])
            .await?;
        self.clock.set(reply::Reply::of_script(answer)?.time()?);
        Ok(())
    }

    pub(super) async fn release_lease(&self, lease: &Lease) -> Result<()> {
        self.tail().clear();
        let answer = self
            .commands
            .run_script(
                &self.scripts.release,
                &[&self.keys.lease(), &self.keys.handover()],
                &[Arg::Text(&lease.token()), Arg::Text(&format!("{}-1", lease.epoch))],
            )
            .await?;
        match reply::Reply::of_script(answer) {
            Ok(_) | Err(StoreError::Fenced) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn parse_token(token: &str) -> Result<Lease> {
    token
        .split_once(':')
        .and_then(|(epoch, holder)| Some(Lease { epoch: epoch.parse().ok()?, holder: holder.to_owned() }))
        .ok_or_else(|| StoreError::Unexpected(format!("the lease holds {token:?}, which is none of ours")))
}
