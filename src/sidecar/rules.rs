//! The rules in force: read again when their files change, and kept as they are when what is there cannot be used.
//!
//! The files are looked at, not watched: that works on every file system, and through the symlinks of a ConfigMap.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{JoinError, spawn_blocking},
};
use tokio_util::sync::CancellationToken;

use crate::{
    alert::AlertRule,
    clock::wall_clock,
    config::{Config, Problems, ProcessEnv, RuleBook, RulesSource},
    metrics::Metrics,
    rule::Rules,
};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon they are looked at again when something has changed: it counts once two looks in a row have seen the same.
const SETTLE: Duration = Duration::from_secs(1);
/// Problems that a log line tells of.
const PROBLEMS_SHOWN: usize = 50;

/// Keeps the rules in force up to date.
pub(super) struct RulesWatch {
    source: Arc<RulesSource>,
    in_force: watch::Sender<Arc<Rules>>,
    alerts: watch::Sender<Arc<[AlertRule]>>,
    metrics: Arc<Metrics>,
    looks: Looks,
    /// Whether what was judged last could be used.
    sound: bool,
}

impl RulesWatch {
    /// Begins with the rules that the configuration was read with.
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> RulesWatch {
        metrics.rules_read(wall_clock());
        RulesWatch {
            source: Arc::new(config.rules_source.clone()),
            in_force: watch::Sender::new(Arc::new(config.rules.clone())),
            alerts: watch::Sender::new(config.alerts.clone().into()),
            metrics,
            looks: Looks::default(),
            sound: true,
        }
    }

    /// The rules in force, now and whenever they change. At the end there are no more changes: `changed` fails then, and
    /// the last rules stay readable.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Rules>> {
        self.in_force.subscribe()
    }

    /// The alert rules in force, in the same way.
    pub(super) fn subscribe_to_alerts(&self) -> watch::Receiver<Arc<[AlertRule]>> {
        self.alerts.subscribe()
    }

    /// Goes on until told to stop; nothing else ends it.
    pub(super) async fn run(self, stop: CancellationToken) {
        // A look that hangs, on a file system that is gone, say, must not hold up the end.
        let _ = stop.run_until_cancelled(self.keep_looking()).await;
    }

    async fn keep_looking(mut self) {
        if self.source.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(if self.looks.are_unsettled() { SETTLE } else { LOOK_EVERY }).await;
            let source = Arc::clone(&self.source);
            let looked = spawn_blocking(move || {
                let text = source.look();
                (text.digest(), text)
            });
            let (digest, text) = match looked.await {
                Ok(looked) => looked,
                Err(error) => {
                    self.failed(&error);
                    continue;
                }
            };
            if !self.looks.are_to_be_judged(digest) {
                continue;
            }
            let source = Arc::clone(&self.source);
            match spawn_blocking(move || source.read(&text, &ProcessEnv)).await {
                Ok(Ok(book)) => self.take(book),
                Ok(Err(problems)) => self.refuse(&told(&problems)),
                Err(error) => self.failed(&error),
            }
        }
    }

    fn take(&mut self, RuleBook { rules, alerts }: RuleBook) {
        self.metrics.rules_read(wall_clock());
        let changes = AlertRule::changes(&self.alerts.borrow(), &alerts);
        let alerts_change = !changes.is_empty();
        if alerts_change {
            tracing::info!(
                alerts = alerts.len(),
                added = changes.added.join(", "),
                changed = changes.changed.join(", "),
                removed = changes.removed.join(", "),
                "the alert rules have changed"
            );
            self.alerts.send_replace(alerts.into());
        }
        let before = Arc::clone(&self.in_force.borrow());
        if rules.fingerprint != before.fingerprint {
            let changes = rules.changes_from(&before);
            tracing::info!(
                rules = rules.retry.len(),
                added = changes.added.join(", "),
                changed = changes.changed.join(", "),
                removed = changes.removed.join(", "),
                reordered = changes.reordered,
                "the rules have changed"
            );
            self.in_force.send_replace(Arc::new(rules));
        } else if !self.sound && !alerts_change {
            let (rules, alerts) = self.counts();
            tracing::info!(rules, alerts, "the rules can be read again, and say what they said before");
        }
        self.sound = true;
    }

    fn refuse(&mut self, problems: &str) {
        self.sound = false;
        self.metrics.rules_refused();
        let (rules, alerts) = self.counts();
        tracing::error!(rules, alerts, problems, "the rules cannot be used; those in force stay");
    }

    /// How many rules are in force: retry rules, alert rules.
    fn counts(&self) -> (usize, usize) {
        (self.in_force.borrow().retry.len(), self.alerts.borrow().len())
    }

    /// A defect in looking or reading: worth a line each time it is found anew, and no reason to end.
    fn failed(&mut self, error: &JoinError) {
        if self.sound {
            self.refuse(&format!("reading the rules failed: {error}"));
        }
    }
}

/// The problems as one line.
fn told(problems: &Problems) -> String {
    let mut lines: Vec<String> = problems.iter().take(PROBLEMS_SHOWN).map(ToString::to_string).collect();
    let more = problems.iter().count() - lines.len();
    if more > 0 {
        lines.push(format!("and {more} more: sexton check tells all"));
    }
    lines.join(" | ")
}

/// What has been seen, as digests.
#[derive(Debug, Default)]
struct Looks {
    last: Option<[u8; 32]>,
    judged: Option<[u8; 32]>,
}

impl Looks {
    /// Takes a look, and says whether what it saw is to be judged: it has not been yet, and has stopped changing.
    fn are_to_be_judged(&mut self, seen: [u8; 32]) -> bool {
        let is_settled = self.last.replace(seen) == Some(seen);
        is_settled && self.judged.replace(seen) != Some(seen)
    }

    /// Whether the last look saw something that has not been judged.
    fn are_unsettled(&self) -> bool {
        self.last != self.judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_settled_is_judged_once() {
        for (seen, judged) in [
            ("aaaa", "-a--"),
            ("a", "-"),
            ("abab", "----"),
            ("aabb", "-a-b"),
            ("aabaab", "-a----"),
            ("aabbaa", "-a-b-a"),
            ("aabcdd", "-a---d"),
        ] {
            let mut looks = Looks::default();
            let judge = |seen: char| if looks.are_to_be_judged([seen as u8; 32]) { seen } else { '-' };
            assert_eq!(seen.chars().map(judge).collect::<String>(), judged, "{seen}");
            let ends_judged = seen.chars().next_back() == judged.chars().rfind(|c| *c != '-');
            assert_eq!(looks.are_unsettled(), !ends_judged, "{seen}");
        }
    }

    #[test]
    fn a_log_line_tells_problems_but_not_without_end() {
        let text = |rules: usize| format!("rules: [{}]", "'', ".repeat(rules));
        let told = |rules| {
            let text = format!("sources: [{{ name: a, smallage: {{ url: 'redis://a' }} }}]\n{}", text(rules));
            told(&crate::config::read_text("x", &text, &ProcessEnv).unwrap_err())
        };
        assert_eq!(told(1), "x:2:9: \"rules\" is empty; give it a value, or remove the key");
        assert_eq!(told(60).matches(" | ").count(), 50);
        assert!(told(60).ends_with(" | and 10 more: sexton check tells all"));
    }
}
