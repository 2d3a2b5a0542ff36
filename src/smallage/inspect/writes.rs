//! What the server says to commands that could write, had they been meant: whether it takes writes now. Pure.

use redis::Value;

use super::code_of;
use crate::ledger::{Aspect, Finding};

/// What is wrong when a server answers with one of these, and what to do.
const REASONS: [(&str, &str, &str); 8] = [
    ("OOM", "it is out of memory", "raise maxmemory, or make room; nothing is announced or retried until then"),
    ("READONLY", "it is read-only", "name a Redis that takes writes in `url`"),
    ("MISCONF", "it cannot write to its disk", "look at the server's log; make room on its disk"),
    ("NOREPLICAS", "too few of its replicas are there (min-replicas-to-write)", "bring the replicas back"),
    ("MASTERDOWN", "it has lost its primary", "bring the primary back, or name the one that there is now"),
    ("CLUSTERDOWN", "the Cluster is down", "mend it: CLUSTER INFO says what is missing"),
    ("MOVED", "this node of a Cluster does not have the namespace", "name the Cluster in `url`, not one node of it"),
    ("BUSY", "a script of somebody's has been running for too long", "wait, or end it: SCRIPT KILL"),
];

/// Whether this code is told of here, or where the server's own words are judged.
pub(super) fn tells(code: &str) -> bool {
    code == "LOADING" || REASONS.iter().any(|(told, ..)| *told == code)
}

/// What stands in the way of writes, by the answers to `tries`.
pub(super) fn judge(answers: &[Value], is_replica: bool) -> Vec<Finding> {
    let said = |code: &str| answers.iter().any(|answer| code_of(answer) == Some(code));
    REASONS
        .into_iter()
        // Said already, and better.
        .filter(|(code, ..)| !(is_replica && *code == "READONLY"))
        .filter(|(code, ..)| said(code))
        .map(|(code, what, help)| Finding::unusable(Aspect::Writes, format!("{what} ({code})"), help))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once() {
        // An error as the server sends it, read by the client's own parser.
        let error = |text: &str| redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        let usual = [Value::Nil, error("ERR value is not an integer"), error("NOSCRIPT none"), error("NOPERM no")];
        assert_eq!(judge(&usual, false), []);
        for (code, ..) in REASONS {
            let answers = [error(&format!("{code} it says")), usual[0].clone(), error(&format!("{code} again"))];
            let found = judge(&answers, false);
            assert_eq!(found.len(), 1, "{code}");
            assert!(found[0].unusable && found[0].message.contains(code), "{found:?}");
            assert_eq!(judge(&answers, true).is_empty(), code == "READONLY");
        }
    }
}
