//! What receivers are found to be: can they be reached, and what do they say to a test event.

use std::time::Duration;

use tokio::task::JoinSet;

use super::finding::{About, Finding};
use crate::{
    clock::{monotonic, written},
    config::{Format, HookConfig, SecretSource},
    delivery::Outcome,
    event::Event,
    hook::{Client, Flaw, Sent, Unreached, reach},
    ledger::Level,
    letter::Millis,
};

/// What a test came to.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// The request has come to an end.
    Sent(Sent),
    /// It had not after this long.
    Silent(Duration),
    /// There was none.
    Unsent(String),
}

/// Connects to every receiver, to all at the same time; one result each, in order.
pub(super) async fn reached(hooks: &[HookConfig], patience: Duration) -> Vec<Result<(), Unreached>> {
    let hooks = hooks.to_vec();
    all(hooks, move |hook| async move { reach(&hook, patience.min(hook.timeout)).await })
        .await
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(Unreached::Other("the try was broken off".to_owned()))))
        .collect()
}

/// Sends a test to every receiver that was reached, to all at the same time; one result each, in order.
pub(super) async fn answered(
    hooks: &[HookConfig],
    reached: &[Result<(), Unreached>],
    test: impl Fn(&str) -> Event,
    now: Millis,
    patience: Duration,
) -> Vec<Option<Answered>> {
    let tests =
        hooks.iter().zip(reached).map(|(hook, reached)| reached.is_ok().then(|| (hook.clone(), test(&hook.name))));
    let send = move |test: Option<(HookConfig, Event)>| async move {
        let (hook, event) = test?;
        let client = match Client::new(&hook) {
            Ok(client) => client,
            Err(error) => return Some(Answered::Unsent(error.to_string())),
        };
        let (began, limit) = (monotonic(), patience.min(hook.timeout));
        Some(match tokio::time::timeout(limit, client.send(&event, now)).await {
            Ok(sent) if sent.status.is_none() && began.elapsed() >= limit => Answered::Silent(limit),
            Ok(sent) => Answered::Sent(sent),
            Err(_) => Answered::Silent(limit),
        })
    };
    all(tests.collect(), send).await.into_iter().map(Option::flatten).collect()
}

/// Does this with all at the same time; one result each, in order, and none for what was broken off.
async fn all<T, R, F>(items: Vec<T>, work: impl Fn(T) -> F) -> Vec<Option<R>>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let mut works = JoinSet::new();
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    for (n, item) in items.into_iter().enumerate() {
        let work = work(item);
        works.spawn(async move { (n, work.await) });
    }
    while let Some(done) = works.join_next().await {
        if let Ok((n, result)) = done {
            results[n] = Some(result);
        }
    }
    results
}

/// Whether the receiver can be reached.
pub(super) fn connection(hook: &HookConfig, unreached: Option<&Unreached>) -> Finding {
    let found = |message: String| Finding::ok(About::Hook, Some(&hook.name), "connect", message);
    let Some(unreached) = unreached else {
        let tls = is_https(&hook.url);
        return found(
            if tls { "it can be reached, and its certificate is good" } else { "it can be reached" }.to_owned(),
        );
    };
    let (what, help) = match unreached {
        Unreached::Url(why) => (why.clone(), "mend `url` or the file that it is in"),
        Unreached::Name(host) => (
            format!("no address is known for its host, {host}"),
            "mend the host's name in `url`, or the DNS of where Sexton runs",
        ),
        Unreached::Refused => (
            "the connection is refused: nothing listens there".to_owned(),
            "start the receiver, or mend the port in `url`",
        ),
        Unreached::NoWay => (
            "there is no way to its address".to_owned(),
            "look at routes, and at what a firewall or a NetworkPolicy lets out",
        ),
        Unreached::Silent => {
            ("nothing comes back".to_owned(), "look whether a firewall or a NetworkPolicy drops the connection")
        }
        Unreached::HangsUp => ("it closes the connection at once".to_owned(), "look at the receiver's log"),
        Unreached::Tls(flaw) => (flaw.said(), of_flaw(flaw)),
        Unreached::Other(why) => (why.clone(), "look at the receiver's log"),
    };
    found(what).at(Level::Error, help)
}

fn of_flaw(flaw: &Flaw) -> &'static str {
    match flaw {
        Flaw::Expired => "have the receiver renew it",
        Flaw::NotYet => "look at this machine's clock, or wait",
        Flaw::Issuer => {
            "add the authority to those that this machine trusts; SSL_CERT_FILE names a file that has all of them"
        }
        Flaw::Name => "name the receiver in `url` as its certificate does",
        Flaw::Certificate(_) => "have it made anew, by an authority that this machine trusts",
        Flaw::NoTls => "write http:// in `url`, or name the port that speaks TLS",
        Flaw::Handshake(_) => "look at the receiver's log",
    }
}

fn is_https(url: &SecretSource) -> bool {
    url.read().is_ok_and(|url| url.reveal().starts_with("https://"))
}

/// What the receiver says to a test event.
pub(super) fn answer(hook: &HookConfig, answered: Answered) -> Finding {
    let found = |message: String| Finding::ok(About::Hook, Some(&hook.name), "answer", message);
    let sent = match answered {
        Answered::Sent(sent) => sent,
        Answered::Unsent(why) => return found(why).at(Level::Error, "mend the hook"),
        Answered::Silent(waited) if waited < hook.timeout => {
            return found(format!("it has not answered hook.test within {}", written(waited))).at(
                Level::Warning,
                format!("it may still do within its `timeout` of {}; make it quicker", written(hook.timeout)),
            );
        }
        Answered::Silent(waited) => {
            return found(format!("it does not answer hook.test within its `timeout` of {}", written(waited)))
                .at(Level::Error, "have it answer before it does its work, or raise `timeout`");
        }
    };
    let said = sent.error.clone().unwrap_or_else(|| sent.status.map_or_else(String::new, |status| status.to_string()));
    let refused = |help: &str| found(format!("it refuses hook.test: {said}")).at(Level::Error, help);
    match (sent.outcome, sent.status) {
        (Outcome::Delivered, status) => {
            let status = status.map_or_else(String::new, |status| format!(" ({status})"));
            found(format!("it took hook.test{status} in {:.0} ms", sent.seconds * 1_000.0))
        }
        (_, Some(401 | 403)) => refused(credentials(hook.format)),
        (_, Some(404 | 405)) => refused("mend the path in `url`"),
        (Outcome::SwitchedOff, _) => {
            refused("the receiver is gone: mend `url`, or remove the hook. Sexton would switch it off")
        }
        (_, Some(300..=399)) => refused("redirects are not followed: put the new address into `url`"),
        (_, Some(400 | 406 | 415 | 422)) => refused("it does not understand the event: is `format` the right one?"),
        (_, Some(413)) => refused("it takes no events of this size: raise what it takes"),
        (_, Some(429)) => found(format!("it takes no more now: {said}"))
            .at(Level::Warning, "events are tried again; if it comes again, lower `rate`"),
        (Outcome::Rejected, _) => refused("mend the hook or its receiver: such events are not tried again"),
        (Outcome::Retry { .. }, Some(_)) => found(format!("it fails at hook.test: {said}"))
            .at(Level::Error, "mend the receiver; its log says more. Events are tried again until `give_up_after`"),
        (Outcome::Retry { .. }, None) => found(format!("hook.test did not get through: {said}"))
            .at(Level::Error, "look whether an HTTP server listens there, and at its log"),
    }
}

/// What a receiver of this form knows us by.
fn credentials(format: Format) -> &'static str {
    match format {
        Format::Standard | Format::CloudEvents | Format::Flexiq => {
            "mend `secret`, or what `headers` carries, on either side; or its clock, if it is five minutes off"
        }
        Format::Slack => "make a new incoming webhook, and put its address into `url`",
        Format::PagerDuty => "mend `routing_key`: it is the key of an Events API v2 integration",
        Format::Alertmanager => "mend what `headers` carries, such as Authorization",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Rate, Secret},
        event::Include,
        hook::of_status,
        rule::Matcher,
    };

    fn hook(timeout: u64) -> HookConfig {
        HookConfig {
            name: "oncall".to_owned(),
            url: SecretSource::Inline(Secret::new("https://alerts.test/hush")),
            format: Format::Standard,
            secrets: Vec::new(),
            routing_key: None,
            events: Vec::new(),
            matcher: Matcher::default(),
            headers: Vec::new(),
            rate: Rate::Unlimited,
            timeout: Duration::from_secs(timeout),
            give_up_after: Duration::from_secs(3_600),
            include: Include::default(),
            redact: Vec::new(),
            fingerprint: String::new(),
        }
    }

    fn sent(status: Option<u16>, error: Option<&str>) -> Answered {
        let outcome = status.map_or(Outcome::Retry { after: None }, |status| of_status(status, None));
        Answered::Sent(Sent { outcome, status, error: error.map(str::to_owned), seconds: 0.0354 })
    }

    #[test]
    fn every_status_is_fine_or_says_what_to_do() {
        let ten = Duration::from_secs(10);
        for (answered, level, said, help) in [
            (sent(Some(204), None), Level::Ok, "it took hook.test (204) in 35 ms", ""),
            (sent(Some(418), Some("418 I'm a teapot")), Level::Error, "it refuses hook.test: 418", "not tried again"),
            (sent(Some(413), Some("413")), Level::Error, "it refuses hook.test: 413", "this size"),
            (sent(Some(503), Some("503")), Level::Error, "it fails at hook.test: 503", "tried again"),
            (sent(Some(600), Some("600")), Level::Error, "it fails at hook.test: 600", "tried again"),
            (sent(None, Some("closed")), Level::Error, "hook.test did not get through: closed", "HTTP server"),
            (Answered::Silent(ten), Level::Warning, "it has not answered hook.test within 10s", "`timeout` of 30s"),
            (Answered::Silent(ten * 3), Level::Error, "it does not answer hook.test within its", "raise `timeout`"),
            (Answered::Unsent("no client".to_owned()), Level::Error, "no client", "mend the hook"),
        ] {
            let found = answer(&hook(30), answered.clone());
            assert_eq!(found.level, level, "{answered:?}");
            assert!(found.message.starts_with(said), "{answered:?}: {}", found.message);
            assert!(found.help.as_deref().unwrap_or_default().contains(help), "{answered:?}: {:?}", found.help);
        }
        for status in 100..=999 {
            let found = answer(&hook(30), sent(Some(status), None));
            assert_eq!(found.level == Level::Ok, (200..300).contains(&status), "{status}");
        }
    }

    #[test]
    fn whatever_keeps_us_from_a_receiver_says_what_to_do_and_no_secret() {
        assert_eq!(connection(&hook(1), None).message, "it can be reached, and its certificate is good");
        for unreached in [
            Unreached::Url("the hook's url is none".to_owned()),
            Unreached::Name("alerts.test".to_owned()),
            Unreached::Refused,
            Unreached::NoWay,
            Unreached::Silent,
            Unreached::HangsUp,
            Unreached::Tls(Flaw::Expired),
            Unreached::Other("odd".to_owned()),
        ] {
            let found = connection(&hook(1), Some(&unreached));
            assert!(found.level == Level::Error && found.help.is_some(), "{unreached:?}");
            assert!(!format!("{found:?}").contains("hush"), "{found:?}");
        }
    }
}
