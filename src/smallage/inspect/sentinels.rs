//! Whether every Sentinel of the URL is of use: any one of them hides what ails the others, until it is gone.

use crate::{
    config::Host,
    ledger::{Aspect, Finding, StoreError},
    smallage::connection::{Knows, SentinelsTold},
};

/// What each of them says. The master that counts has been found already.
pub(super) fn judge(asked: &SentinelsTold) -> Vec<Finding> {
    let SentinelsTold { name, master, each } = asked;
    let agree = each.iter().filter(|(_, knows)| matches!(knows, Knows::Master(named) if named == master)).count();
    let count = format!("{agree} of {} Sentinels name {master} as the master {name}", each.len());
    let mut found = vec![Finding::ok(Aspect::Reach, count)];
    found.extend(each.iter().filter_map(|(sentinel, knows)| trouble(name, master, sentinel, knows)));
    found
}

fn trouble(name: &str, master: &Host, sentinel: &Host, knows: &Knows) -> Option<Finding> {
    let (message, help) = match knows {
        Knows::Master(named) if named == master => return None,
        Knows::Master(named) => (
            format!("the Sentinel {sentinel} names another master, {named}"),
            "check again, for a failover may be under way; if it stays so, this one is cut off from the others, or watches \
             another Redis"
                .to_owned(),
        ),
        Knows::Others(others) => {
            let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            (
                format!("the Sentinel {sentinel} knows no master {name}; it knows {others}"),
                format!("let it watch {name} (SENTINEL MONITOR), or take it out of `url`"),
            )
        }
        Knows::Nothing(StoreError::Denied(why)) => (
            format!("the Sentinel {why}"),
            "mend `username` and `password` under `sentinel` of the source, which are the same for all Sentinels, or the \
             user there"
                .to_owned(),
        ),
        Knows::Nothing(StoreError::Unavailable(why)) => (
            format!("the Sentinel {why}"),
            "start it, mend its host and port in `url`, or take it out: without it a failover may not be noticed".to_owned(),
        ),
        Knows::Nothing(error) => (
            format!("the Sentinel {sentinel}: {error}"),
            "look at its log, or take it out of `url`".to_owned(),
        ),
    };
    Some(Finding::warning(Aspect::Reach, message, help))
}
