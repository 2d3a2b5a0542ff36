//! What is there already: the framework's DLQ and what Sexton has kept beside it.

use redis::{Pipeline, Value, pipe};

use super::{code_of, writes};
use crate::{
    event::Lane,
    ledger::{Aspect, Finding},
    smallage::{Keys, lease::parse_token, reply},
};

/// The queue that workers read where none is named.
const USUAL_QUEUE: &str = "default";
/// The code of an answer about a key of another kind.
const WRONG_TYPE: &str = "WRONGTYPE";

/// One key that must be of one kind, and how its length is asked.
struct Kept {
    key: String,
    command: &'static str,
    kind: &'static str,
    /// It is the framework's.
    foreign: bool,
}

fn kept(keys: &Keys) -> Vec<Kept> {
    let ours = |key, command, kind| Kept { key, command, kind, foreign: false };
    let theirs = |key, command, kind| Kept { foreign: true, ..ours(key, command, kind) };
    let mut kept = vec![
        theirs(keys.dlq(), "XLEN", "stream"),
        theirs(keys.clock(), "ZCARD", "sorted set"),
        theirs(format!("{}{USUAL_QUEUE}:0", keys.queues()), "XLEN", "stream"),
        ours(keys.lease(), "GET", "string"),
        ours(keys.state(), "HLEN", "hash"),
        ours(keys.flights(), "HLEN", "hash"),
        ours(keys.watch(), "HLEN", "hash"),
        ours(keys.held(), "ZCARD", "sorted set"),
        ours(keys.operations(), "ZCARD", "sorted set"),
        ours(keys.audit(), "XLEN", "stream"),
    ];
    kept.extend(Lane::ALL.map(|lane| ours(keys.outbox(lane), "XLEN", "stream")));
    kept
}

/// What to ask, for [`Data::of`].
pub(super) fn reads(keys: &Keys) -> Pipeline {
    let mut commands = pipe();
    commands.cmd("HGET").arg(keys.state()).arg("epoch");
    for kept in kept(keys) {
        commands.cmd(kept.command).arg(kept.key);
    }
    commands
}

/// What was found there.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Keys of another kind than they must be: the key, the right kind, and whether it is the framework's.
    wrong: Vec<(String, &'static str, bool)>,
    /// Codes of answers that tell nothing of the framework's keys, and of ours: these were not seen.
    unseen_foreign: Vec<String>,
    unseen: Vec<String>,
    /// Entries in the DLQ; none if we may not look.
    entries: Option<u64>,
    /// Something that only the framework's workers write.
    framework: bool,
    /// The ledger exists.
    ledger: bool,
    epoch: Option<u64>,
    /// The lease as it stands; none if nobody leads.
    lease: Option<String>,
    /// Workers have a leader among them; none if we may not look.
    pub(super) framework_leads: Option<bool>,
}

impl Data {
    /// Reads the answers to [`reads`].
    pub(super) fn of(keys: &Keys, answers: Vec<Value>) -> Data {
        let mut answers = answers.into_iter();
        let epoch = answers.next();
        let mut data = Data { epoch: epoch.as_ref().and_then(reply::number), ..Data::default() };
        data.unseen.extend(epoch.as_ref().and_then(code_of).filter(|code| *code != WRONG_TYPE).map(str::to_owned));
        for (kept, answer) in kept(keys).into_iter().zip(answers) {
            match code_of(&answer) {
                Some(WRONG_TYPE) => data.wrong.push((kept.key.clone(), kept.kind, kept.foreign)),
                Some(code) if kept.foreign => data.unseen_foreign.push(code.to_owned()),
                Some(code) => data.unseen.push(code.to_owned()),
                None => {}
            }
            let is_there = match kept.command {
                "GET" => {
                    data.lease = reply::text(&answer);
                    data.lease.is_some()
                }
                _ => reply::number(&answer).is_some_and(|length| length > 0),
            };
            if kept.key == keys.dlq() {
                data.entries = reply::number(&answer);
            }
            if kept.foreign {
                data.framework |= is_there;
            } else {
                data.ledger |= is_there;
            }
        }
        data
    }

    /// Something of the framework's or ours is there.
    pub(super) fn has_trace(&self) -> bool {
        self.framework || self.ledger || !self.wrong.is_empty()
    }

    pub(super) fn judge(&self, keys: &Keys) -> Vec<Finding> {
        let mut found: Vec<Finding> = self.wrong.iter().map(of_wrong_kind).collect();
        if !self.wrong.iter().any(|(key, ..)| *key == keys.dlq()) {
            found.extend(self.dlq(keys));
        }
        found.extend(self.leader());
        found
    }

    fn dlq(&self, keys: &Keys) -> Option<Finding> {
        let dlq = keys.dlq();
        let Some(entries) = self.entries else {
            return unseen(Aspect::Dlq, &dlq, &self.unseen_foreign);
        };
        if !self.has_trace() && self.framework_leads != Some(true) {
            let namespace = keys.namespace();
            let message = if self.unseen_foreign.is_empty() && self.unseen.is_empty() && self.framework_leads.is_some()
            {
                format!("nothing of smallage is under the namespace {namespace} yet")
            } else {
                format!("nothing of smallage that may be seen from here is under the namespace {namespace} yet")
            };
            return Some(Finding::warning(
                Aspect::Dlq,
                message,
                "right before the first worker runs; else mend `namespace`, or the database number in `url`",
            ));
        }
        Some(Finding::ok(
            Aspect::Dlq,
            match entries {
                0 => format!("{dlq} is empty"),
                1 => format!("{dlq} has 1 entry"),
                entries => format!("{dlq} has {entries} entries"),
            },
        ))
    }

    fn leader(&self) -> Option<Finding> {
        if self.lease.is_none() && !self.unseen.is_empty() {
            return unseen(Aspect::Ledger, "the ledger", &self.unseen);
        }
        Some(self.who_leads())
    }

    fn who_leads(&self) -> Finding {
        let epoch = self.epoch.unwrap_or(0);
        match &self.lease {
            Some(token) => match parse_token(token) {
                Ok(lease) => Finding::ok(Aspect::Ledger, format!("{} leads, in epoch {}", lease.holder, lease.epoch)),
                Err(error) => Finding::unusable(
                    Aspect::Ledger,
                    error.to_string(),
                    "find what writes to Sexton's keys, and remove what it wrote there",
                ),
            },
            None if epoch > 0 => Finding::ok(Aspect::Ledger, format!("nobody leads now; the last epoch was {epoch}")),
            None => Finding::ok(Aspect::Ledger, "there is no ledger yet: the first sidecar makes it"),
        }
    }
}

/// What could not be looked at; nothing where the reason for it is told already, and is worse.
fn unseen(aspect: Aspect, what: &str, codes: &[String]) -> Option<Finding> {
    let code = codes.iter().find(|code| !writes::tells(code.as_str()));
    if code.is_none() && !codes.is_empty() {
        return None;
    }
    let why = code.map(|code| format!(" ({code})")).unwrap_or_default();
    let help = match code.map(String::as_str) {
        Some("NOPERM") => "mend what is told of rights first",
        _ => "mend what else is told of it, and check again",
    };
    Some(Finding::warning(aspect, format!("{what} cannot be seen from here{why}"), help))
}

fn of_wrong_kind((key, kind, foreign): &(String, &'static str, bool)) -> Finding {
    let (aspect, whose) = if *foreign { (Aspect::Dlq, "smallage's") } else { (Aspect::Ledger, "Sexton's") };
    Finding::unusable(
        aspect,
        format!("{key} is no {kind}, so something other than {whose} keeps it (WRONGTYPE)"),
        "give one of the two another namespace, or remove the key if nobody needs it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Level;

    fn judged(change: impl FnOnce(&Keys, &mut Vec<Value>), framework_leads: bool) -> Vec<Finding> {
        let keys = Keys::new("lrs").unwrap();
        let mut answers = vec![Value::Int(0); kept(&keys).len() + 1];
        answers[0] = Value::Nil;
        answers[4] = Value::Nil;
        change(&keys, &mut answers);
        let mut data = Data::of(&keys, answers);
        data.framework_leads = Some(framework_leads);
        data.judge(&keys)
    }

    #[test]
    fn an_empty_namespace_is_warned_of_unless_there_is_a_trace() {
        let found = judged(|_, _| {}, false);
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].message.contains("namespace lrs"), "{found:?}");
        assert!(found[1].message.contains("no ledger yet"), "{found:?}");
        assert_eq!(judged(|_, _| {}, true)[0].message, "{lrs}:dlq is empty");
        for (n, said) in [(1, "{lrs}:dlq has 3 entries"), (2, "{lrs}:dlq is empty"), (3, "{lrs}:dlq is empty")] {
            let found = judged(|_, answers| answers[n] = Value::Int(3), false);
            assert_eq!((found[0].level, found[0].message.as_str()), (Level::Ok, said), "{n}");
        }
    }

    #[test]
    fn what_was_not_seen_is_not_said_to_be_right() {
        let error = |code: &str| redis::parse_redis_value(format!("-{code} it says\r\n").as_bytes()).unwrap();
        let messages = |found: Vec<Finding>| -> Vec<(Level, String)> {
            found.into_iter().map(|found| (found.level, found.message)).collect()
        };
        let nothing = "nothing of smallage that may be seen from here is under the namespace lrs yet";
        for (code, keys, expected) in [
            (
                "NOPERM",
                0..20,
                vec!["{lrs}:dlq cannot be seen from here (NOPERM)", "the ledger cannot be seen from here (NOPERM)"],
            ),
            (
                "ASK",
                0..20,
                vec!["{lrs}:dlq cannot be seen from here (ASK)", "the ledger cannot be seen from here (ASK)"],
            ),
            // Said already, and better.
            ("MOVED", 0..20, vec![]),
            ("LOADING", 0..20, vec![]),
            // The ledger alone, and the queues alone.
            ("NOPERM", 4..20, vec![nothing, "the ledger cannot be seen from here (NOPERM)"]),
            ("NOPERM", 0..1, vec![nothing, "the ledger cannot be seen from here (NOPERM)"]),
            ("NOPERM", 3..4, vec![nothing, "there is no ledger yet: the first sidecar makes it"]),
        ] {
            let found = judged(
                |_, answers| {
                    for (n, answer) in answers.iter_mut().enumerate() {
                        if keys.contains(&n) {
                            *answer = error(code);
                        }
                    }
                },
                false,
            );
            let told: Vec<_> = messages(found).into_iter().map(|(_, message)| message).collect();
            assert_eq!(told, expected, "{code} {keys:?}");
        }
        // Who leads the framework may be hidden, too.
        let keys = Keys::new("lrs").unwrap();
        let mut answers = vec![Value::Int(0); kept(&keys).len() + 1];
        answers[4] = Value::Nil;
        let found = Data::of(&keys, answers).judge(&keys);
        assert_eq!(messages(found)[0], (Level::Warning, nothing.to_owned()));
    }

    #[test]
    fn a_key_of_another_kind_is_named() {
        let wrong = || redis::parse_redis_value(b"-WRONGTYPE it is\r\n").unwrap();
        let found = judged(|_, answers| answers[1] = wrong(), false);
        assert!(found[0].unusable && found[0].message.starts_with("{lrs}:dlq is no stream"), "{found:?}");
        assert_eq!(found.iter().filter(|found| found.aspect == Aspect::Dlq).count(), 1, "{found:?}");
        let found = judged(
            |keys, answers| {
                let outbox = kept(keys).iter().position(|kept| kept.key == keys.outbox(Lane::Deaths)).unwrap();
                answers[outbox + 1] = wrong();
            },
            false,
        );
        assert!(found[0].message.starts_with("{lrs}:sexton:outbox:deaths is no stream"), "{found:?}");
    }

    #[test]
    fn who_leads_is_told() {
        let lease = |token: &str| {
            let token = Value::BulkString(token.as_bytes().to_vec());
            judged(move |_, answers| answers[4] = token, false).remove(1)
        };
        assert_eq!(lease("7:pod-1").message, "pod-1 leads, in epoch 7");
        assert!(lease("rubbish").unusable);
        let epoch = judged(|_, answers| answers[0] = Value::BulkString(b"7".to_vec()), false).remove(1);
        assert_eq!(epoch.message, "nobody leads now; the last epoch was 7");
    }
}
