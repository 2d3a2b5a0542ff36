//! Every key there is: the sections of the configuration and of rules files, and what may stand in each.
//!
//! The references (`reference.yaml`, `rules.yaml`) are tested against these tables.

/// One section.
#[derive(Debug)]
pub(super) struct Shape {
    /// Where it is, for problems: `in a hook`.
    pub(super) place: &'static str,
    /// Its keys, in the order of the reference.
    pub(super) keys: &'static [&'static str],
}

const fn shape(place: &'static str, keys: &'static [&'static str]) -> Shape {
    Shape { place, keys }
}

pub(super) const ROOT: Shape = shape(
    "at the top level",
    &[
        "sources",
        "hooks",
        "announce_existing",
        "http",
        "lease",
        "sample_every",
        "outbox",
        "log",
        "rules",
        "digest",
        "retention",
    ],
);
pub(super) const SOURCE: Shape = shape("in a source", &["name", "smallage"]);
pub(super) const SMALLAGE: Shape =
    shape("in smallage", &["url", "url_file", "namespace", "username", "password", "password_file", "tls", "sentinel"]);
pub(super) const TLS: Shape = shape("in tls", &["ca", "cert", "key", "server_name"]);
pub(super) const SENTINEL: Shape = shape("in sentinel", &["username", "password", "password_file"]);
pub(super) const HOOK: Shape = shape(
    "in a hook",
    &[
        "name",
        "url",
        "url_file",
        "format",
        "secret",
        "secret_file",
        "routing_key",
        "routing_key_file",
        "events",
        "match",
        "headers",
        "rate",
        "timeout",
        "give_up_after",
        "include",
        "redact",
    ],
);
pub(super) const MATCH: Shape =
    shape("in a match", &["source", "queue", "task", "reason", "error", "history", "group"]);
pub(super) const HTTP: Shape = shape("in http", &["listen", "token", "token_file", "tokens"]);
pub(super) const TOKEN: Shape = shape("in a token", &["name", "token", "token_file"]);
pub(super) const LEASE: Shape = shape("in lease", &["ttl"]);
pub(super) const OUTBOX: Shape = shape("in outbox", &["cap", "keep"]);
pub(super) const RETENTION: Shape = shape("in retention", &["max_age", "max_entries"]);
pub(super) const LOG: Shape = shape("in log", &["format", "level"]);
pub(super) const DIGEST: Shape = shape("in digest", &["at", "timezone", "hooks"]);
pub(super) const RULES: Shape = shape("in a rules file", &["retry", "alerts"]);
pub(super) const RETRY_RULE: Shape = shape(
    "in a retry rule",
    &[
        "name",
        "match",
        "action",
        "min_age",
        "max_retries",
        "backoff",
        "max_backoff",
        "confirm_within",
        "window",
        "timezone",
        "pace",
    ],
);
pub(super) const PACE: Shape = shape("in a pace", &["start", "max_in_flight", "per_second", "max_queue_length"]);
pub(super) const ALERT_RULE: Shape = shape(
    "in an alert rule",
    &[
        "name",
        "rising",
        "burst",
        "waiting",
        "new_group",
        "by",
        "match",
        "severity",
        "for",
        "keep_firing_for",
        "repeat",
        "hooks",
        "unless",
    ],
);
pub(super) const RISING: Shape = shape("in rising", &["over", "buckets", "at_least", "growth"]);
pub(super) const BURST: Shape = shape("in burst", &["over", "deaths"]);
pub(super) const WAITING: Shape = shape("in waiting", &["entries", "older_than"]);
pub(super) const NEW_GROUP: Shape = shape("in new_group", &["quiet_for"]);

/// Every section of the configuration with its path; `[]` stands for each item of a list.
#[cfg(test)]
pub(super) const ALL: &[(&str, &Shape)] = &[
    ("", &ROOT),
    ("sources[].", &SOURCE),
    ("sources[].smallage.", &SMALLAGE),
    ("sources[].smallage.tls.", &TLS),
    ("sources[].smallage.sentinel.", &SENTINEL),
    ("hooks[].", &HOOK),
    ("hooks[].match.", &MATCH),
    ("http.", &HTTP),
    ("http.tokens[].", &TOKEN),
    ("lease.", &LEASE),
    ("outbox.", &OUTBOX),
    ("retention.", &RETENTION),
    ("log.", &LOG),
    ("digest.", &DIGEST),
];

/// Every section of a rules file.
#[cfg(test)]
pub(super) const ALL_OF_RULES: &[(&str, &Shape)] = &[
    ("", &RULES),
    ("retry[].", &RETRY_RULE),
    ("retry[].match.", &MATCH),
    ("retry[].pace.", &PACE),
    ("alerts[].", &ALERT_RULE),
    ("alerts[].rising.", &RISING),
    ("alerts[].burst.", &BURST),
    ("alerts[].waiting.", &WAITING),
    ("alerts[].new_group.", &NEW_GROUP),
];
