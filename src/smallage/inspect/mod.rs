//! Looks at a Redis before anything runs on it, and writes nothing: not even the rights to write are tried with a command
//! that could.

mod clock;
mod data;
mod info;
mod reach;
mod rights;
mod sentinels;
mod server;
mod writes;

use async_trait::async_trait;
use redis::{Value, cmd, pipe};

use self::{info::Info, server::Snapshots};
use super::{Smallage, reply};
use crate::{
    clock::{monotonic, wall_clock},
    ledger::{Finding, Inspect, Result, StoreError},
};

/// How often the time is asked; the quickest answer counts.
const TIMES: usize = 3;

#[async_trait]
impl Inspect for Smallage {
    async fn inspect(&self, tell: &mut (dyn FnMut(Finding) + Send)) {
        if let Err(error) = self.commands.knock().await {
            tell(reach::unreachable(&self.config, &self.keys, &error).await);
            return;
        }
        match self.commands.sentinels_told().await {
            Ok(told) => told.iter().flat_map(sentinels::judge).for_each(&mut *tell),
            Err(error) => tell(reach::lost(&error)),
        }
        // What follows may still find the connection gone; then that is told, and what was found before stays.
        match self.look_into(tell).await {
            Ok(()) => {}
            Err(error @ StoreError::Denied(_)) => tell(reach::unreachable(&self.config, &self.keys, &error).await),
            Err(error) => tell(reach::lost(&error)),
        }
    }
}

impl Smallage {
    async fn look_into(&self, tell: &mut (dyn FnMut(Finding) + Send)) -> Result<()> {
        let user = reach::user(&self.config);
        let sight = self.look_at_the_time().await?;
        let info = self.info().await?;
        let round_trip = sight.as_ref().map(|sight| sight.round_trip);
        match &info {
            Some(info) => {
                server::judge(info, round_trip).into_iter().for_each(&mut *tell);
                if info.is_sentinel() {
                    return Ok(());
                }
                let snapshots = if info.has_aof() { Snapshots::Unknown } else { self.snapshots().await? };
                server::judge_storage(info, snapshots).into_iter().for_each(&mut *tell);
            }
            None => tell(server::unseen(&user, round_trip)),
        }
        let url = reach::leads_to(&self.config);
        let tries = rights::tries(&self.keys, url.as_ref());
        let mut commands = pipe();
        for tried in &tries {
            commands.add_command(tried.command.clone());
        }
        let answers = self.commands.answers_of(&commands).await?;
        rights::judge(&self.keys, &user, &tries, &answers).into_iter().for_each(&mut *tell);
        // Where the namespace is elsewhere already, that is told.
        let is_elsewhere = answers.iter().any(|answer| code_of(answer) == Some("MOVED"));
        if let (Some(info), Some(url), false) = (&info, &url, is_elsewhere) {
            server::form(info, url).into_iter().for_each(&mut *tell);
        }
        let is_replica = info.as_ref().is_some_and(Info::is_replica);
        writes::judge(&answers, is_replica).into_iter().for_each(&mut *tell);
        let found = self.commands.answers_of(&data::reads(&self.keys)).await?;
        let mut traces = data::Data::of(&self.keys, found);
        if !traces.has_trace() {
            traces.framework_leads = self.framework_leads().await?;
        }
        traces.judge(&self.keys).into_iter().for_each(&mut *tell);
        if let Some(sight) = sight {
            self.clock.set(sight.store);
            tell(clock::judge(&sight));
        }
        Ok(())
    }

    /// What time it is there and here; nothing if we may not ask.
    async fn look_at_the_time(&self) -> Result<Option<clock::Sight>> {
        let mut best: Option<clock::Sight> = None;
        for _ in 0..TIMES {
            let began = monotonic();
            let answer = self.commands.answers_of(pipe().cmd("TIME")).await?.pop();
            let round_trip = monotonic().duration_since(began);
            let here = wall_clock();
            // A server that wants a password lets anybody connect.
            if answer.as_ref().and_then(code_of) == Some("NOAUTH") {
                return Err(StoreError::Denied("it wants a password (NOAUTH)".to_owned()));
            }
            let Some(store) = answer.and_then(|answer| reply::Reply::array(answer).ok()?.time().ok()) else {
                return Ok(None);
            };
            if best.as_ref().is_none_or(|best| round_trip < best.round_trip) {
                best = Some(clock::Sight { store, here, round_trip });
            }
        }
        Ok(best)
    }

    /// What the server tells of itself; nothing if we may not ask.
    async fn info(&self) -> Result<Option<Info>> {
        let answer = self.one(cmd("INFO").clone()).await?;
        Ok(match &answer {
            // Of several nodes: one that takes writes.
            Value::Map(nodes) => {
                let mut all = nodes.iter().filter_map(|(_, text)| reply::text(text)).map(|text| Info::of(&text));
                let first = all.next();
                first.into_iter().chain(all).find(|info| !info.is_replica())
            }
            answer => reply::text(answer).map(|text| Info::of(&text)),
        })
    }

    /// Whether snapshots are taken, as far as we may see.
    async fn snapshots(&self) -> Result<Snapshots> {
        let mut command = cmd("CONFIG");
        command.arg("GET").arg("save");
        let points = match self.one(command).await? {
            Value::Map(pairs) => pairs.first().and_then(|(_, points)| reply::text(points)),
            Value::Array(pair) => pair.get(1).and_then(reply::text),
            _ => None,
        };
        Ok(match points.as_deref() {
            None => Snapshots::Unknown,
            Some("") => Snapshots::Never,
            Some(_) => Snapshots::Taken,
        })
    }

    /// Whether workers of the framework have elected a leader of theirs lately, if we may ask.
    async fn framework_leads(&self) -> Result<Option<bool>> {
        let mut command = cmd("EXISTS");
        command.arg(self.keys.framework_leader());
        Ok(match self.one(command).await? {
            Value::Int(there) => Some(there > 0),
            _ => None,
        })
    }

    /// One command's answer, which may be an error of the server's.
    async fn one(&self, command: redis::Cmd) -> Result<Value> {
        let answer = self.commands.answers_of(pipe().add_command(command)).await?.pop();
        answer.ok_or_else(|| StoreError::Unexpected("no answer".to_owned()))
    }
}

/// The code of an error among answers.
fn code_of(answer: &Value) -> Option<&str> {
    match answer {
        Value::ServerError(error) => Some(error.code()),
        _ => None,
    }
}
