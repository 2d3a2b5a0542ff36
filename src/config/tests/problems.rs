//! Every problem that is found, with its place and its words.

use super::*;

#[test]
fn what_is_wrong_with_the_file_as_a_whole() {
    check(
        str::to_owned,
        &[
            ("", r#" the configuration is empty; name at least one DLQ to watch under "sources""#),
            ("# nothing\n", r#" the configuration is empty; name at least one DLQ to watch under "sources""#),
            ("---\n", r#" the configuration is empty; name at least one DLQ to watch under "sources""#),
            ("a: 1\n---\nb: 2\n", "2:1: a second document begins here; keep one document in the file"),
            (
                "sources: [",
                "2:1: this is not YAML: while parsing a node, did not find expected node content; check \
             indentation, quotes and brackets here and in the line above",
            ),
            (
                "sources:\n  - name: a\n\t smallage: x\n",
                "2:11: this is not YAML: while scanning a plain scalar, found a tab; check indentation, quotes and \
             brackets here and in the line above",
            ),
            (
                "sources: *nobody",
                "1:10: this is not YAML: while parsing node, found unknown anchor; put a value that begins with * or & \
             in quotes, here or in the line above",
            ),
            (
                "- a\n",
                r#"1:1: expected a mapping for "the configuration", found a list; use these keys: sources, hooks, announce_existing, http, lease, sample_every, outbox, log, rules, digest, retention"#,
            ),
            ("hooks: []\n", r#"1:1: "sources" is missing at the top level; name at least one DLQ to watch"#),
            ("sources: &a [*a]\n", "1:14: this alias has no finished value to repeat; write the value out"),
        ],
    );
}

#[test]
fn problems_of_the_document() {
    check(
        with_source,
        &[
            ("http: {}\nhttp: {}", r#"3:1: the key "http" is given twice, first in line 2; keep one of them"#),
            ("? [a]\n: b", "2:3: a key must be a plain text; write the key itself here"),
            ("sample_every: !!str 5s", "2:15: YAML tags (!name) are not supported; remove the tag, or quote the text"),
            ("log: !x {}", "2:6: YAML tags (!name) are not supported; remove the tag, or quote the text"),
            (
                "sample_every: ${NOBODY}",
                "2:15: the variable NOBODY is not set; set it in Sexton's environment, or write $${ where no variable is \
             meant",
            ),
            (
                "sample_every: ${FLAG:-5s}",
                "2:15: a ${ here is not followed by a variable's name and }; write ${NAME} for a variable, or $${ where \
             none is meant",
            ),
            ("hoks: []", r#"2:1: unknown key "hoks" at the top level; did you mean "hooks"?"#),
            ("log: { <<: {} }", r#"2:8: unknown key "<<" in log; merge keys are not supported: write the keys out"#),
            ("log: { colour: true }", r#"2:8: unknown key "colour" in log; known keys: format, level"#),
            ("log: json", r#"2:6: expected a mapping for "log", found a text; use these keys: format, level"#),
            ("log:", r#"2:4: expected a mapping for "log", found nothing; use these keys: format, level"#),
        ],
    );
}

#[test]
fn aliases_repeat_values_but_not_without_end() {
    let config = config(&with_source(
        "hooks:\n  - { name: a, url: &u \"http://h\", events: &e [job.dead] }\n  - { name: b, url: *u, events: *e }\n",
    ));
    assert_eq!(config.hooks[1].events, ["job.dead"]);
    assert_eq!(config.hooks[1].url, config.hooks[0].url);

    let mut laughs = String::from("a0: &a0 [x]\n");
    for level in 1..10 {
        let repeated = format!("*a{}, ", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{repeated}]\n"));
    }
    let found = problems(&laughs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("more than 100000 values"), "{found:?}");

    let deep = problems(&"[".repeat(40));
    assert_eq!(deep, ["sexton.yaml:1:33: more than 32 values stand in each other; nest less deeply"]);
}

#[test]
fn a_wrong_value_behind_an_alias_is_told_once() {
    let found = problems(&with_source(
        "hooks:\n  - { name: a, url: \"http://h\", rate: &r fast }\n  - { name: b, url: \"http://h\", rate: *r }\n",
    ));
    let expected =
        r#"sexton.yaml:3:39: expected a rate for "rate", found "fast"; write it like 10/s, 60/m, 1000/h or unlimited"#;
    assert_eq!(found, [expected]);
}

#[test]
fn problems_of_sources() {
    check(
        |sources| format!("sources: {sources}"),
        &[
            ("[]", "1:10: there are no sources; name at least one DLQ to watch"),
            (
                "redis://:hunter2@db",
                r#"1:10: expected a list for "sources", found a text; write each item behind a dash, or [] for none"#,
            ),
            ("[{ smallage: { url: 'redis://db' } }]", r#"1:11: "name" is missing in a source; give the source a name"#),
            (
                "[{ name: a }]",
                r#"1:11: "smallage" is missing in a source; say which one it is: smallage: { url: …, namespace: … }"#,
            ),
            (
                "[{ name: A b, smallage: { url: 'redis://db' } }]",
                r#"1:19: expected a name for "name", found "A b"; use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a' } }, { name: a, smallage: { url: 'redis://b' } }]",
                r#"1:64: the name "a" is taken by the source in line 1; give every one a name of its own"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a' } }, { name: b, smallage: { url: 'redis://a', namespace: lrs } }]",
                "1:77: this DLQ is watched already by the source in line 1; keep one of the two, or give another namespace",
            ),
            ("[{ name: a, smallage: {} }]", r#"1:32: "url" is missing in smallage; give "url" or "url_file""#),
            (
                "[{ name: a, smallage: { url: 'redis://a', url_file: x } }]",
                r#"1:52: both "url" and "url_file" are given; keep one of them"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://user:hunter2@' } }]",
                "1:39: this URL cannot be read: empty host; write redis://HOST:6379, rediss://HOST:6379 or unix:///PATH, and \
             write characters such as / # ? @ in a user or password as %2F %23 %3F %40",
            ),
            (
                "[{ name: a, smallage: { url: 'redis+cluster://:hunter2@db/3' } }]",
                "1:39: this URL names a database, and a Cluster has but one; remove /3 at its end",
            ),
            (
                "[{ name: a, smallage: { url: 'redis+sentinel://:hunter2@db' } }]",
                "1:39: this URL names no master; end it with the name that the Sentinels know it by: …/mymaster",
            ),
            (
                "[{ name: a, smallage: { url: 'redis+cluster://db', sentinel: { password: hunter2 } } }]",
                r#"1:61: "sentinel" is given, but the URL names no Sentinels; write redis+sentinel:// in the URL; user and password of the Redis stand beside "url""#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis+sentinel://db/m', sentinel: { user: x } } }]",
                r#"1:76: unknown key "user" in sentinel; known keys: username, password, password_file"#,
            ),
            (
                "[{ name: a, smallage: { url: 'rediss://db', tls: { server_name: 'db:6379' } } }]",
                r#"1:74: expected a host for "server_name", found "db:6379"; give the name, or the address, that stands in the certificate, without a port"#,
            ),
            (
                "[{ name: a, smallage: { url: [redis://:hunter2@db] } }]",
                r#"1:39: expected a text for "url", found a list; write it as one text, in quotes if in doubt"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a', namespace: 'a:b' } }]",
                r#"1:63: expected a namespace for "namespace", found "a:b"; use smallage's own, without { } and :"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a', password: } }]",
                r#"1:60: expected a text for "password", found nothing; write it as one text, in quotes if in doubt"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a', password: '${EMPTY}' } }]",
                r#"1:62: "password" is empty; give it a value, or remove the key"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a', password_file: no/such } }]",
                r#"1:67: cannot read "no/such" for "password_file": No such file or directory (os error 2); check path and permissions; relative paths begin in the working directory"#,
            ),
            (
                "[{ name: a, smallage: { url_file: 'redis://:hunter2@a' } }]",
                r#"1:44: cannot read the file for "url_file": No such file or directory (os error 2); check path and permissions; relative paths begin in the working directory"#,
            ),
            (
                "[{ name: a, smallage: { url: 'redis://a', tls: {} } }]",
                r#"1:52: "tls" is given, but the URL asks for none; write rediss instead of redis in the URL"#,
            ),
            (
                "[{ name: a, smallage: { url: 'rediss://a', tls: { cert: Cargo.toml } } }]",
                r#"1:60: "cert" is given alone; a client certificate needs both "cert" and "key""#,
            ),
            (
                "[{ name: a, smallage: { url: 'rediss://a', tls: { ca: Cargo.toml } } }]",
                r#"1:64: the file of "ca" holds no certificate; give PEM files: an authority's certificate as "ca", a client's as "cert", and its key as "key""#,
            ),
        ],
    );
}

#[test]
fn problems_of_hooks() {
    check(
        with_hook,
        &[
            ("tineout: 1s", r#"6:5: unknown key "tineout" in a hook; did you mean "timeout"?"#),
            ("url_file: x", r#"6:5: both "url" and "url_file" are given; keep one of them"#),
            (
                "format: opsgenie",
                r#"6:13: unknown value "opsgenie" for "format"; known formats: standard, cloudevents, flexiq, slack, pagerduty, alertmanager"#,
            ),
            ("format: cloudevent", r#"6:13: unknown value "cloudevent" for "format"; did you mean "cloudevents"?"#),
            (
                "format: []",
                r#"6:13: expected a text for "format", found a list; write it as one text, in quotes if in doubt"#,
            ),
            (
                "secret: hunter2",
                r#"6:13: the signing secret of "secret" is not base64; make one with: openssl rand -base64 32"#,
            ),
            (
                "secret: whsec_aHVudGVyMg==",
                r#"6:13: the signing secret of "secret" has 7 bytes instead of 24 to 64; make one with: openssl rand -base64 32"#,
            ),
            (
                "secret: ${WORD}",
                r#"6:13: the signing secret of "secret" is not base64; make one with: openssl rand -base64 32"#,
            ),
            ("secret: ${EMPTY}", r#"6:13: "secret" is empty; give it a value, or remove the key"#),
            ("secret: []", r#"6:13: the list "secret" is empty; name at least one, or remove the key"#),
            ("secret: a\nsecret_file: b", r#"7:5: both "secret" and "secret_file" are given; keep one of them"#),
            (
                "secret_file: whsec_hunter2",
                r#"6:18: cannot read the file for "secret_file": No such file or directory (os error 2); check path and permissions; relative paths begin in the working directory"#,
            ),
            (
                "format: slack\nsecret: hunter2",
                r#"7:5: "secret" is given, but nothing signs in the format slack; remove it: a Slack webhook's URL is its secret"#,
            ),
            (
                "format: slack\nrate: 61/m",
                r#"7:11: "61/m" is more than a Slack webhook takes, which is one message a second; give rate: 60/m or less"#,
            ),
            (
                "format: slack\nrate: unlimited",
                r#"7:11: "unlimited" is more than a Slack webhook takes, which is one message a second; give rate: 60/m or less"#,
            ),
            (
                "format: alertmanager\nsecret_file: x",
                r#"7:5: "secret_file" is given, but nothing signs in the format alertmanager; remove it: what Alertmanager asks for is given with "headers""#,
            ),
            (
                "format: pagerduty\nsecret: hunter2\nrouting_key: ${WORD}",
                r#"7:5: "secret" is given, but nothing signs in the format pagerduty; remove it: what PagerDuty asks for is "routing_key""#,
            ),
            (
                "format: pagerduty",
                r#"4:5: "routing_key" is missing in a hook of the format pagerduty; give "routing_key" or "routing_key_file": the key of an Events API v2 integration"#,
            ),
            (
                "format: pagerduty\nrouting_key: 'hunter 2'",
                r#"7:18: the routing key of "routing_key" holds a character that no such key has; copy it from the integration, without spaces around it"#,
            ),
            (
                "format: pagerduty\nrouting_key: ${EMPTY}",
                r#"7:18: "routing_key" is empty; give it a value, or remove the key"#,
            ),
            (
                "format: pagerduty\nrouting_key: a\nrouting_key_file: b",
                r#"8:5: both "routing_key" and "routing_key_file" are given; keep one of them"#,
            ),
            (
                "format: pagerduty\nrouting_key_file: nobody",
                r#"7:23: cannot read "nobody" for "routing_key_file": No such file or directory (os error 2); check path and permissions; relative paths begin in the working directory"#,
            ),
            (
                "routing_key: hunter2",
                r#"6:5: "routing_key" is given, but the format standard has none; remove it, or give format: pagerduty"#,
            ),
            (
                "format: slack\nrouting_key_file: x",
                r#"7:5: "routing_key_file" is given, but the format slack has none; remove it, or give format: pagerduty"#,
            ),
            (
                "format: alertmanager\nevents: [dlq.*, job.retried]",
                "7:13: none of these events is sent in the format alertmanager; it sends job.dead, job.exhausted, alert.firing, alert.resolved, hook.test",
            ),
            (
                "format: pagerduty\nrouting_key: a\nevents: job.re*",
                "8:13: none of these events is sent in the format pagerduty; it sends job.dead, job.exhausted, dlq.digest, alert.firing, alert.resolved, hook.test",
            ),
            ("events: job.deaf", r#"6:13: "job.deaf" matches no event; did you mean "job.dead"?"#),
            (
                "events: [job.dead, 'alarm.*']",
                r#"6:24: "alarm.*" matches no event; known events: job.dead, job.retried, job.recovered, job.exhausted, dlq.digest, dlq.purged, alert.firing, alert.resolved, hook.test"#,
            ),
            (
                "events: '[a'",
                r#"6:13: "events" holds a pattern that cannot be read: unclosed character class; missing ']'; * stands for any text, ? for one character, {a,b} for either"#,
            ),
            ("events: []", r#"6:13: the list "events" is empty; name at least one, or remove the key"#),
            ("match: { source: order }", r#"6:22: "order" matches no source; did you mean "orders"?"#),
            (
                "match: { task: '{a' }",
                r#"6:20: "task" holds a pattern that cannot be read: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?); * stands for any text, ? for one character, {a,b} for either"#,
            ),
            (
                "match: { reason: [max_attempt] }",
                r#"6:23: unknown value "max_attempt" for "reason"; did you mean "max_attempts"?"#,
            ),
            (
                "match: { error: '(x' }",
                r#"6:21: "error" holds a regular expression that cannot be used: unclosed group at its character 1; mend it there; put it in single quotes, and write $$ for $ before { or $"#,
            ),
            (
                "match: { history: both }",
                r#"6:23: unknown value "both" for "history"; known values: any, same, mixed, unknown"#,
            ),
            (
                "match: { group: 7C1F0E9A2B44 }",
                r#"6:21: expected a group for "group", found "7C1F0E9A2B44"; give its 12 hexadecimal digits in lower case"#,
            ),
            ("match: { taks: x }", r#"6:14: unknown key "taks" in a match; did you mean "task"?"#),
            ("headers: { Content-Type: x }", r#"6:16: the header "Content-Type" is set by Sexton itself; remove it"#),
            ("headers: { webhook-id: x }", r#"6:16: the header "webhook-id" is set by Sexton itself; remove it"#),
            ("headers: { 'X Team': x }", r#"6:16: "X Team" cannot be the name of a header; use letters, digits and -"#),
            (
                "headers: { X-A: \"hun\\nter\" }",
                r#"6:21: the value of the header "X-A" holds a character that no header can; use printable ASCII on one line"#,
            ),
            ("headers: { X-A: 1, x-a: 2 }", r#"6:24: the header "x-a" is given twice; keep one of them"#),
            (
                "headers: { X-A: [hunter2] }",
                r#"6:21: expected a text for "X-A", found a list; write it as one text, in quotes if in doubt"#,
            ),
            (
                "rate: 60/d",
                r#"6:11: expected a rate for "rate", found "60/d"; write it like 10/s, 60/m, 1000/h or unlimited"#,
            ),
            (
                "rate: ${WORD}",
                r#"6:11: expected a rate for "rate", found "${WORD}"; write it like 10/s, 60/m, 1000/h or unlimited"#,
            ),
            (
                "timeout: 10",
                r#"6:14: expected a duration for "timeout", found "10"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            ("timeout: 99ms", r#"6:14: "timeout" is too short: "99ms"; give 100ms to 2m"#),
            ("timeout: 121s", r#"6:14: "timeout" is too long: "121s"; give 100ms to 2m"#),
            ("timeout: 1m\ngive_up_after: 59s", r#"7:20: "give_up_after" is too short: "59s"; give 1m to 30d"#),
            ("give_up_after: 31d", r#"6:20: "give_up_after" is too long: "31d"; give 10s to 30d"#),
            (
                "include: payload",
                r#"6:14: expected a list for "include", found a text; write each item behind a dash, or [] for none"#,
            ),
            ("include: [payloads]", r#"6:15: unknown value "payloads" for "include"; did you mean "payload"?"#),
            (
                "redact: ['/secret/g']",
                r#"6:14: "redact" has slashes around its expression, as in JavaScript; write it without them, and flags in front: (?i)timed out; a slash that is meant is [/]"#,
            ),
            (
                "redact: ['x*']",
                r#"6:14: "redact" holds a regular expression that matches an empty text; an expression for what must not leave, such as '\b\d{13,16}\b'"#,
            ),
        ],
    );
    check(
        |hooks| with_source(&format!("hooks: {hooks}")),
        &[
            (
                "{}",
                r#"2:8: expected a list for "hooks", found a mapping; write each item behind a dash, or [] for none"#,
            ),
            (
                "[x]",
                r#"2:9: expected a mapping for "hooks", found a text; use these keys: name, url, url_file, format, secret, secret_file, routing_key, routing_key_file, events, match, headers, rate, timeout, give_up_after, include, redact"#,
            ),
            ("[{ name: a }]", r#"2:9: "url" is missing in a hook; give "url" or "url_file""#),
            (
                "[{ name: a, url: 'ftp://:hunter2@h' }]",
                "2:25: this URL has the scheme ftp instead of http or https; write https://HOST/PATH",
            ),
            (
                "[{ name: a, url: 'http://h' }, { name: a, url: 'http://h' }]",
                r#"2:47: the name "a" is taken by the hook in line 2; give every one a name of its own"#,
            ),
        ],
    );
}

#[test]
fn problems_of_the_rest() {
    check(
        with_source,
        &[
            (
                "announce_existing: yes",
                r#"2:20: expected true or false for "announce_existing", found "yes"; write true or false"#,
            ),
            ("sample_every: 6m", r#"2:15: "sample_every" is too long: "6m"; give 100ms to 5m"#),
            ("lease: { ttl: 499ms }", r#"2:15: "ttl" is too short: "499ms"; give 500ms to 5m"#),
            (
                "lease: { ttl: -5s }",
                r#"2:15: expected a duration for "ttl", found "-5s"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            ("outbox: { cap: 99 }", r#"2:16: "cap" is too small: "99"; give at least 100"#),
            (
                "outbox: { cap: 99999999999999999999 }",
                r#"2:16: "cap" is too large: "99999999999999999999"; give at most 10000000"#,
            ),
            (
                "outbox: { cap: 50_000 }",
                r#"2:16: expected a whole number from 100 to 10000000 for "cap", found "50_000"; write digits only"#,
            ),
            (
                "outbox: { keep: for ever }",
                r#"2:17: expected a duration for "keep", found "for ever"; write it like 500ms, 10s, 5m, 24h or 7d"#,
            ),
            (
                "http: { listen: ':9640' }",
                r#"2:17: expected an IP address and a port for "listen", found ":9640"; write it like 0.0.0.0:9640 (any IPv4 address), 127.0.0.1:9640 or [::]:9640"#,
            ),
            (
                "http: { token: hunter2 }",
                r#"2:16: this token has 7 characters, and needs at least 16; make one with: openssl rand -hex 32"#,
            ),
            (
                "http: { token: 'sixteen blanks in' }",
                r#"2:16: this token has characters that no request can carry; make one with: openssl rand -hex 32"#,
            ),
            (
                "http: { token_file: x }",
                r#"2:21: cannot read "x" for "token_file": No such file or directory (os error 2); check path and permissions; relative paths begin in the working directory"#,
            ),
            (
                "http: { token: 0123456789abcdef, token_file: x }",
                r#"2:34: both "token" and "token_file" are given; keep one of them"#,
            ),
            (
                "http: { tokens: [{ name: ci }] }",
                r#"2:18: "token" is missing in a token; give "token" or "token_file""#,
            ),
            (
                "http: { tokens: [{ token: 0123456789abcdef }] }",
                r#"2:18: "name" is missing in a token; give the token a name"#,
            ),
            (
                "http: { token: 0123456789abcdef, tokens: [{ name: ci, token: 0123456789abcdef }] }",
                r#"2:62: this is the token of "default" again; give every name a token of its own"#,
            ),
            (
                "http: { token: 0123456789abcdef, tokens: [{ name: default, token: 0123456789abcdeg }] }",
                r#"2:51: the name "default" is taken by the token in line 2; give every one a name of its own"#,
            ),
            ("log: { level: inof }", r#"2:15: expected a log level for "level", found "inof"; did you mean "info"?"#),
            ("log: { format: jsno }", r#"2:16: unknown value "jsno" for "format"; did you mean "json"?"#),
            (
                "rules: [none/]",
                r#"2:9: cannot read "none/" for "rules": No such file or directory (os error 2); check path and permissions; relative paths begin in the folder of the configuration"#,
            ),
            (
                "rules: ['rules/*.yaml']",
                r#"2:9: cannot read "rules/*.yaml" for "rules": No such file or directory (os error 2); globs are not expanded: name the folder, and every *.yaml and *.yml in it is read"#,
            ),
            (
                "rules: [rules/90-leave.yaml, ./rules/90-leave.yaml]",
                r#"2:30: "./rules/90-leave.yaml" of "rules" is read already, through "rules/90-leave.yaml"; each file is read once: remove one of the two"#,
            ),
            (
                "rules: rules/",
                r#"2:8: expected a list for "rules", found a text; write each item behind a dash, or [] for none"#,
            ),
            ("retention: { max_age: 30s }", r#"2:23: "max_age" is too short: "30s"; give 1m to 3650d"#),
            ("retention: { max_entries: 0 }", r#"2:27: "max_entries" is too small: "0"; give at least 1"#),
        ],
    );
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "\
outbox: { cap: 1 }
hooks:
  - name: a
    tineout: 5s
    url: nowhere
    match: { source: [mails], reason: dead }
sources:
  - name: orders
    smallage: { url: redis://db, password: '${NOBODY}' }
    sort: x
log: { level: loud }
";
    let places: Vec<String> = problems(text).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(
        places,
        ["1:16", "4:5", "5:10", "6:23", "6:39", "9:44", "10:5", "11:15"].map(|place| format!("sexton.yaml:{place}:"))
    );
}

#[test]
fn no_problem_shows_a_secret() {
    let text = "\
sources:
  - name: a
    smallage: { url: 'redis://u:hunter2@', password: { x: hunter2 } }
  - name: b
    smallage: { url: '${WORD}', namespace: '${WORD}:' }
hooks:
  - { name: '${WORD} ', url: 'https://hooks.example.com:hunter2/', secret: [hunter2, whsec_hunter2] }
  - { name: c, url: 'hunter2://x', secret_file: 'whsec_hunter2', headers: { X-A: \"hunter2\\n\" } }
  - { name: e, url: 'http://h', events: ['${WORD}'], match: { source: '${WORD}', error: '${WORD}(', task: '${WORD}[' } }
  - { name: f, url: 'http://h', rate: '${WORD}', include: ['${WORD}'], redact: ['(${WORD}'], headers: '${WORD}' }
  - { name: g, format: pagerduty, routing_key: 'hunter2 ü' }
  - { name: h, format: pagerduty, routing_key_file: hunter2://x, secret: hunter2 }
  - { name: d, url: 'xhttps://hunter2', timeout: '${WORD}', format: '${WORD}', match: { group: '${WORD}' } }
";
    let found = problems(text);
    assert!(found.len() >= 22, "{found:#?}");
    assert!(!found.iter().any(|line| line.contains("hunter2")), "{found:#?}");
}

#[test]
fn who_reads_the_sources_alone_needs_no_variable_of_a_hook() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sexton.yaml");
    let source = "sources: [{ name: orders, smallage: { url: redis://db, password: '${PASSWORD}' } }]\n";
    let hooks = "hooks: [{ name: a, url: 'http://h', secret: &s '${NOBODY}', rate: fast }]\n";
    let read = |text: String| {
        std::fs::write(&path, text).unwrap();
        read_sources(&path, &env()).map(|sources| sources[0].name.clone()).map_err(|problems| problems.to_string())
    };
    assert_eq!(read(format!("{hooks}{source}")).as_deref(), Ok("orders"));
    for (text, problem) in [
        (source.replace("PASSWORD", "NOBODY"), "1:66: the variable NOBODY is not set"),
        (format!("{hooks}{}", source.replace("'${PASSWORD}'", "*s")), "1:45: the variable NOBODY is not set"),
        (hooks.to_owned(), "1:1: \"sources\" is missing"),
        (String::new(), " the configuration is empty"),
        (format!("{source}hook: []"), "2:1: unknown key \"hook\""),
    ] {
        let expected = format!("{}:{problem}", path.display());
        assert!(
            read(text.clone()).is_err_and(|found| found.starts_with(&expected)),
            "{text}: {:?}",
            read(text.clone())
        );
    }
}

#[test]
fn who_asks_what_rules_do_needs_no_variable_of_a_hook() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sexton.yaml");
    let text = "sources: [{ name: a, smallage: { url: 'redis://x' } }]\nrules: ['${WORD}.yaml']\nhooks: [{ name: h, url: \
                'http://h', secret: '${NOBODY}' }]\n";
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("hunter2.yaml"), "retry: [{ name: r, match: { source: a } }]").unwrap();
    let ForRules { sources, rules, sample_every } = read_for_rules(&path, &env()).unwrap();
    assert_eq!(sample_every, Duration::from_secs(5));
    assert_eq!(sources[0].name, "a");
    assert_eq!(rules.read(&rules.look(), &env()).unwrap().rules.retry[0].name, "r");
    for (wrong, problem) in [
        (text.replace("WORD", "NOBODY"), "2:9: the variable NOBODY is not set"),
        (text.replace("redis://x", "${NOBODY}"), "1:39: the variable NOBODY is not set"),
        (text.replace("hooks", "hoks"), "3:1: unknown key \"hoks\""),
    ] {
        std::fs::write(&path, &wrong).unwrap();
        let found = read_for_rules(&path, &env()).map(|_| ()).unwrap_err().to_string();
        assert!(found.starts_with(&format!("{}:{problem}", path.display())), "{found}");
    }
    std::fs::write(&path, text.replace("rules: ['${WORD}.yaml']\n", "")).unwrap();
    assert!(read_for_rules(&path, &env()).unwrap().rules.is_empty());
}

#[test]
fn other_rules_than_the_configurations_are_judged_by_the_rest_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("sexton.yaml"), folder.path().join("other.yaml"));
    let text = "sources: [{ name: a, smallage: { url: 'redis://x' } }]\nrules: ['${NOBODY}.yaml']\nsample_every: 1m\n";
    std::fs::write(&path, text).unwrap();
    std::fs::write(&other, "alerts: [{ name: b, burst: { over: 30s } }]").unwrap();
    let ForRules { sources, rules, sample_every } = read_for_other_rules(&path, [other.as_path()], &env()).unwrap();
    assert_eq!((sources[0].name.as_str(), sample_every), ("a", Duration::from_secs(60)));
    let found = rules.read(&rules.look(), &env()).unwrap_err().to_string();
    assert!(found.contains("\"over\" is 30s, shorter than \"sample_every\": 1m"), "{found}");
}

#[test]
fn rules_files_of_the_command_line_are_read_like_those_of_a_configuration() {
    let known = rules::Known { sources: Some(vec!["orders".to_owned()]), ..rules::Known::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("rules")).unwrap();
    std::fs::write(path("rules/10.yaml"), "retry: [{ name: a, match: { source: orders } }]").unwrap();
    std::fs::write(path("20.yaml"), "retry: [{ name: b }]").unwrap();
    let read = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|name| path(name)).collect();
        let source = RulesSource::of_flags(paths.iter().map(std::path::PathBuf::as_path), known.clone());
        source.read(&source.look(), &env()).map_err(|problems| problems.to_string())
    };
    let names: Vec<String> =
        read(&["rules", "20.yaml"]).unwrap().rules.retry.into_iter().map(|rule| rule.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(read(&[]).unwrap().rules.is_empty());
    let none = path("none");
    assert_eq!(
        read(&["none"]).unwrap_err(),
        format!(
            "command line: cannot read {none:?} for \"rules\": No such file or directory (os error 2); check path and \
             permissions; relative paths begin in the working directory"
        )
    );
    std::fs::write(path("20.yaml"), "retry: [{ name: b, match: { source: order } }]").unwrap();
    assert!(read(&["20.yaml"]).unwrap_err().contains("20.yaml:1:37: \"order\" matches no source"));
}

#[test]
fn files_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sexton.yaml");
    let shown = path.display();
    let check = |expected: &str| {
        assert_eq!(read(&path, &env()).unwrap_err().to_string(), format!("{shown}{expected}"));
    };
    let help = "name the file with -c, or start without one: --smallage URL";
    check(&format!(": cannot read the configuration: No such file or directory (os error 2); {help}"));
    std::fs::write(&path, b"sources:\n  \xc3\xa4 \xff").unwrap();
    check(":2:5: this is not UTF-8; save the file as UTF-8");

    std::fs::write(folder.path().join("empty"), " \n").unwrap();
    std::fs::write(folder.path().join("weak"), "aHVudGVyMg==").unwrap();
    std::fs::write(&path, with_hook("secret_file: [empty, weak]")).unwrap();
    check(&format!(
        ":6:19: the file of \"secret_file\" is empty; put the value into it\n{shown}:6:26: the signing secret of \
         \"secret_file\" has 7 bytes instead of 24 to 64; make one with: openssl rand -base64 32"
    ));
    std::fs::write(&path, with_hook("secret_file: [nobody]")).unwrap();
    check(&format!(
        ":6:19: cannot read \"nobody\" for \"secret_file\": No such file or directory (os error 2); check path and \
         permissions; relative paths begin in {}",
        folder.path().display()
    ));
}
