//! Many sidecars on one DLQ, and what they do with the lease.

use std::{collections::BTreeSet, time::Duration};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};

use super::{SOON, eventually, monitor::Monitored, process::Sexton, redis::Redis};

/// Sidecars that were started at once.
pub(crate) struct Fleet {
    /// All that run.
    pub(crate) sidecars: Vec<Sexton>,
    con: MultiplexedConnection,
    lease: String,
}

impl Fleet {
    /// So many on the namespace `ns`, with this lease.
    pub(crate) async fn start(redis: &Redis, ns: &str, size: usize, lease: Duration) -> Fleet {
        let config = format!(
            "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {ns}}}}}]\n\
             http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: {}ms}}\n",
            redis.url(),
            lease.as_millis()
        );
        let sidecars = (0..size).map(|_| Sexton::run(&config)).collect();
        Fleet { sidecars, con: redis.connect().await, lease: format!("{{{ns}}}:sexton:lease") }
    }

    /// Who leads and with which epoch, once somebody does whose epoch is above `epoch`; and once everybody else stands
    /// by under it.
    pub(crate) async fn led_above(&self, epoch: u64) -> (usize, u64) {
        let (leader, epoch) = self.taken_above(epoch).await;
        let under = format!("\"epoch\":{epoch}");
        for (n, sidecar) in self.sidecars.iter().enumerate() {
            let state = if n == leader { "\"leading\"" } else { "\"standing by\"" };
            let told = |line: &str| (line.contains(state) && line.contains(&under)).then_some(());
            sidecar.process.line(&format!("{state} with {under}"), told).await;
        }
        (leader, epoch)
    }

    /// Who has the lease and with which epoch, once somebody has one above `epoch`.
    pub(crate) async fn taken_above(&self, epoch: u64) -> (usize, u64) {
        eventually("somebody takes the lease", SOON, || {
            let mut con = self.con.clone();
            async move {
                let token: Option<String> = con.get(&self.lease).await.unwrap();
                let (taken, holder) = token.as_deref()?.split_once(':')?;
                let pid: u32 = holder.split('/').nth(1)?.parse().ok()?;
                let taken: u64 = taken.parse().ok()?;
                let leader = self.sidecars.iter().position(|sidecar| sidecar.process.pid() == pid)?;
                (taken > epoch).then_some((leader, taken))
            }
        })
        .await
    }
}

/// Commands of those who did not lead meanwhile: of every address that sent no script. Only of use while nobody tries for
/// the lease.
pub(crate) fn of_standbys(commands: &[Monitored]) -> Vec<&Monitored> {
    let led: BTreeSet<&str> =
        commands.iter().filter(|told| told.command().starts_with("EVAL")).map(|told| told.from.as_str()).collect();
    let read: BTreeSet<&str> = commands
        .iter()
        .filter(|told| {
            told.words.iter().any(|word| word.ends_with(":sexton:handover") || word.ends_with(":sexton:lease"))
        })
        .map(|told| told.from.as_str())
        .collect();
    commands
        .iter()
        .filter(|told| !told.by_script && read.contains(told.from.as_str()) && !led.contains(told.from.as_str()))
        .collect()
}

/// Follows the lease through everything that scripts have done to it: who takes it while another's has neither run out
/// nor been given up, or under an epoch that was there before, is told of. The epochs in order.
pub(crate) fn terms(commands: &[Monitored], ns: &str) -> Result<Vec<u64>, String> {
    let lease = format!("{{{ns}}}:sexton:lease");
    let mut terms: Vec<u64> = Vec::new();
    // Whose it is, and until when.
    let mut held: Option<(String, Duration)> = None;
    let ms = |text: &str| Duration::from_millis(text.parse().expect("a time in milliseconds"));
    for told in commands.iter().filter(|told| told.by_script && told.words.get(1) == Some(&lease)) {
        match told.command().as_str() {
            "SET" => {
                let token = &told.words[2];
                let (epoch, holder) =
                    token.split_once(':').ok_or_else(|| format!("a lease of another form: {token}"))?;
                let epoch: u64 = epoch.parse().map_err(|_| format!("no epoch: {token}"))?;
                if let Some((by, until)) = &held
                    && by != holder
                    && told.at < *until
                {
                    return Err(format!("{token} takes at {:?} what {by} holds until {until:?}", told.at));
                }
                if terms.last().is_some_and(|last| *last >= epoch) {
                    return Err(format!("{token} comes after epoch {:?}", terms.last()));
                }
                terms.push(epoch);
                held = Some((holder.to_owned(), told.at + ms(&told.words[4])));
            }
            "PEXPIRE" => {
                let (_, until) = held.as_mut().ok_or("nobody's lease is renewed")?;
                *until = told.at + ms(&told.words[2]);
            }
            "DEL" => held = None,
            _ => {}
        }
    }
    Ok(terms)
}
