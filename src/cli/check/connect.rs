//! Tries everything from here: the stores of the sources, the receivers of the hooks, the port.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    finding::{About, Finding, Findings},
    hooks,
};
use crate::{
    cli::{exit::Failure, io::Io},
    clock::StoreClock,
    config::Config,
    event::{Event, EventData, HookTest},
    ledger::{self, Aspect, Level, SourceLedger},
    letter::Millis,
};

/// How long everything of one kind may take: all stores at once, all connections to receivers, all their answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether receivers get a test event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    /// Each one.
    Tests,
    /// None: they are only connected to.
    Nothing,
}

/// Tries it all, and adds what is found in the order of the configuration.
pub(super) async fn connect(
    config: &Config,
    ledgers: &[Arc<dyn SourceLedger>],
    send: Send,
    findings: &mut Findings,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let (sources, reached) = tokio::join!(inspected(ledgers), hooks::reached(&config.hooks, PATIENCE));
    let mut clock = None;
    for (ledger, found) in ledgers.iter().zip(sources) {
        // A store that has told its time is the clock that events are signed by.
        if clock.is_none() && found.iter().any(|found| found.aspect == Aspect::Clock) {
            clock = Some(ledger.clock());
        }
        for found in found {
            findings.add(Finding::of_source(ledger.name(), found), io)?;
        }
    }
    let now = clock.or(ledgers.first().map(|ledger| ledger.clock())).map_or(Millis(0), StoreClock::now);
    let source = ledgers.first().map(|ledger| ledger.name()).unwrap_or_default();
    let test = |hook: &str| Event {
        // As any other, and unlike any that the outbox has.
        id: format!("msg_check_{:016x}", fastrand::u64(..)),
        at: now,
        data: EventData::HookTest(HookTest {
            source: source.to_owned(),
            hook: hook.to_owned(),
            summary: format!("A test of the hook {hook} by sexton check. Nothing has happened."),
        }),
    };
    let answered = match send {
        Send::Tests => hooks::answered(&config.hooks, &reached, test, now, PATIENCE).await,
        Send::Nothing => vec![None; config.hooks.len()],
    };
    for ((hook, reached), answered) in config.hooks.iter().zip(&reached).zip(answered) {
        findings.add(hooks::connection(hook, reached.as_ref().err()), io)?;
        if let Some(answered) = answered {
            findings.add(hooks::answer(hook, answered), io)?;
        }
    }
    if let Some(found) = port(&config.http.listen) {
        findings.add(found, io)?;
    }
    Ok(())
}

/// What was found of each source, all looked at at the same time.
async fn inspected(ledgers: &[Arc<dyn SourceLedger>]) -> Vec<Vec<ledger::Finding>> {
    let mut looks = JoinSet::new();
    let mut found = Vec::new();
    for ledger in ledgers {
        let (ledger, told) = (Arc::clone(ledger), Arc::new(Mutex::new(Vec::new())));
        found.push(Arc::clone(&told));
        looks.spawn(async move {
            let mut tell = |finding| lock(&told).push(finding);
            if tokio::time::timeout(PATIENCE, ledger.inspect(&mut tell)).await.is_err() {
                tell(ledger::Finding::unusable(
                    Aspect::Reach,
                    format!("it was not all looked at within {} s, for it answers too slowly", PATIENCE.as_secs()),
                    "look whether it hangs, and whether a firewall or a NetworkPolicy drops the connection",
                ));
            }
        });
    }
    while looks.join_next().await.is_some() {}
    found.iter().map(|told| std::mem::take(&mut *lock(told))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the HTTP port can be had here.
fn port(listen: &str) -> Option<Finding> {
    let address: SocketAddr = listen.parse().ok()?;
    let found = |message: String| Finding::ok(About::Http, Some(listen), "port", message);
    Some(match TcpListener::bind(address) {
        Ok(_) => found("the port is free here".to_owned()),
        Err(error) if error.kind() == ErrorKind::AddrInUse => found("the port is in use here".to_owned())
            .at(Level::Warning, "right if it is a sidecar that runs here; else give `http: { listen: … }` another"),
        Err(error) => found(format!("the port cannot be had here: {error}"))
            .at(Level::Warning, "right if the sidecar runs elsewhere; else give `http: { listen: … }` another"),
    })
}
