//! Rules through the real binary: checked at the start, read again when their files change, kept while these are broken.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use serde_json::Value;
use sexton::{
    config::Config,
    letter::{DeadLetter, ErrorInfo, Verdict},
    rule::{Decision, Rules},
    smallage::{Keys, record::decode},
};
use tempfile::TempDir;

use crate::support::{
    graveyard::recorded,
    process::{Http, Sexton, command},
};

const SUCCESS: &str = "sexton_rules_reload_success";
const TIMESTAMP: &str = "sexton_rules_reload_timestamp_seconds";

/// A folder for rules.
struct Shelf(TempDir);

impl Shelf {
    fn new() -> Shelf {
        Shelf(tempfile::Builder::new().prefix("sexton-").tempdir().unwrap())
    }

    fn rules(&self) -> PathBuf {
        self.0.path().join("rules")
    }

    /// Writes a file below the rules' folder, in place.
    fn write(&self, name: &str, text: &str) {
        let path = self.rules().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn link(&self, to: &str, name: &str) {
        std::os::unix::fs::symlink(to, self.rules().join(name)).unwrap();
    }

    /// A configuration with these rules. Its store is never there: rules do not depend on it.
    fn config(&self) -> String {
        format!(
            "sources: [{{name: orders, smallage: {{url: \"redis://127.0.0.1:1\"}}}}]\nhttp: {{listen: \
             \"127.0.0.1:0\"}}\nrules: [\"{}\"]\n",
            self.rules().display()
        )
    }

    async fn run(&self) -> (Sexton, Http) {
        let sexton = Sexton::run(&self.config());
        let http = sexton.http().await;
        http.metric_is(SUCCESS, &[], 1.0).await;
        assert!(http.metric(TIMESTAMP, &[]).await.unwrap() > 1.7e9);
        (sexton, http)
    }
}

/// Rules that retry these tasks, each called as its task.
fn retrying(tasks: &[&str]) -> String {
    let rules: String =
        tasks.iter().map(|task| format!("  - {{ name: {task}, match: {{ task: {task} }} }}\n")).collect();
    format!("retry:\n{rules}")
}

/// Waits for the `n`th log line (from 0) with this message.
async fn logged(sexton: &Sexton, message: &str, n: usize) -> Value {
    let mut seen = 0;
    let found = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        seen += usize::from(line["message"] == message);
        (seen == n + 1).then_some(line)
    };
    sexton.process.line(&format!("{message}, {n}"), found).await
}

const CHANGED: &str = "the rules have changed";
const REFUSED: &str = "the rules cannot be used; those in force stay";
const MENDED: &str = "the rules can be read again, and say what they said before";

#[tokio::test]
async fn a_file_that_changes_in_place_is_read_again() {
    let shelf = Shelf::new();
    shelf.write("10.yaml", &retrying(&["a", "b"]));
    let (sexton, _) = shelf.run().await;
    let up: Value = sexton
        .process
        .line("up", |line| serde_json::from_str(line).ok().filter(|line: &Value| line["message"] == "sexton is up"))
        .await;
    assert_eq!(up["rules"], 2);
    shelf.write("10.yaml", &retrying(&["b", "c"]));
    let line = logged(&sexton, CHANGED, 0).await;
    assert_eq!((&line["added"], &line["changed"], &line["removed"]), (&"c".into(), &"".into(), &"a".into()));
    assert_eq!((&line["rules"], &line["reordered"], &line["level"]), (&2.into(), &false.into(), &"INFO".into()));
    // A second file, and then another order.
    shelf.write("05.yml", "retry: [{ name: d, match: { task: b, history: same }, action: leave }]");
    assert_eq!(logged(&sexton, CHANGED, 1).await["added"], "d");
    shelf.write("10.yaml", &retrying(&["c", "b"]).replace("task: c }", "task: c2 }"));
    let line = logged(&sexton, CHANGED, 2).await;
    assert_eq!((&line["changed"], &line["reordered"]), (&"c".into(), &true.into()));
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_read_again() {
    let shelf = Shelf::new();
    shelf.write("..2026_11_29_1/10.yaml", &retrying(&["a"]));
    shelf.link("..2026_11_29_1", "..data");
    shelf.link("..data/10.yaml", "10.yaml");
    let (sexton, http) = shelf.run().await;
    // As the kubelet does it: another version beside the old one, one rename, and the old one is removed.
    for (n, tasks) in [&["a", "b"][..], &["c"]].into_iter().enumerate() {
        let version = format!("..2026_11_29_{}", n + 2);
        shelf.write(&format!("{version}/10.yaml"), &retrying(tasks));
        shelf.link(&version, "..data_tmp");
        std::fs::rename(shelf.rules().join("..data_tmp"), shelf.rules().join("..data")).unwrap();
        std::fs::remove_dir_all(shelf.rules().join(format!("..2026_11_29_{}", n + 1))).unwrap();
        assert_eq!(logged(&sexton, CHANGED, n).await["rules"], tasks.len());
    }
    assert_eq!(http.metric(SUCCESS, &[]).await, Some(1.0));
}

#[tokio::test]
async fn broken_rules_change_nothing_until_they_are_mended() {
    let shelf = Shelf::new();
    shelf.write("10.yaml", &retrying(&["a"]));
    let (sexton, http) = shelf.run().await;
    shelf.write("10.yaml", "retry:\n  - { name: a, min_aeg: 5m }\n  - { name: A }\n");
    http.metric_is(SUCCESS, &[], 0.0).await;
    let line = logged(&sexton, REFUSED, 0).await;
    let file = shelf.rules().join("10.yaml").display().to_string();
    let problems = line["problems"].as_str().unwrap();
    assert!(
        problems.starts_with(&format!("{file}:2:16: unknown key \"min_aeg\" in a retry rule; did you mean")),
        "{problems}"
    );
    assert!(problems.contains(&format!(" | {file}:3:13: expected a name")), "{problems}");
    assert_eq!((&line["rules"], &line["level"]), (&1.into(), &"ERROR".into()));
    // Emptied is broken, too.
    shelf.write("10.yaml", "");
    let line = logged(&sexton, REFUSED, 1).await;
    assert!(line["problems"].as_str().unwrap().contains("the rules file is empty"), "{line}");
    // What says what it said is in force again without a change; what says something else is a change.
    shelf.write("10.yaml", &format!("# mended\n{}", retrying(&["a"])));
    logged(&sexton, MENDED, 0).await;
    http.metric_is(SUCCESS, &[], 1.0).await;
    shelf.write("10.yaml", "retry: [");
    http.metric_is(SUCCESS, &[], 0.0).await;
    shelf.write("10.yaml", "retry: []");
    assert_eq!(logged(&sexton, CHANGED, 0).await["removed"], "a");
    http.metric_is(SUCCESS, &[], 1.0).await;
}

const ALERTS_CHANGED: &str = "the alert rules have changed";

/// Alert rules that watch for so many deaths, by name.
fn watching(rules: &[(&str, u64)]) -> String {
    let rules = rules.iter().map(|(name, deaths)| format!("  - {{ name: {name}, burst: {{ deaths: {deaths} }} }}\n"));
    format!("alerts:\n{}", rules.collect::<String>())
}

#[tokio::test]
async fn alert_rules_are_read_again_beside_retry_rules() {
    let shelf = Shelf::new();
    shelf.write("10.yaml", &retrying(&["a"]));
    shelf.write("50.yaml", &watching(&[("a", 5), ("b", 5)]));
    let (sexton, http) = shelf.run().await;
    shelf.write("50.yaml", &watching(&[("c", 5), ("a", 6)]));
    let line = logged(&sexton, ALERTS_CHANGED, 0).await;
    assert_eq!((&line["added"], &line["changed"], &line["removed"]), (&"c".into(), &"a".into(), &"b".into()));
    assert_eq!((&line["alerts"], &line["level"]), (&2.into(), &"INFO".into()));
    // Another order is no change of alert rules, nor is a change of retry rules.
    shelf.write("50.yaml", &watching(&[("a", 6), ("c", 5)]));
    shelf.write("10.yaml", &retrying(&["a", "d"]));
    assert_eq!(logged(&sexton, CHANGED, 0).await["added"], "d");
    // What is wrong with an alert rule leaves both in force, though nothing is wrong with the retry rules.
    shelf.write("50.yaml", "alerts: [{ name: a, burst: {}, hooks: [oncall], unless: [b] }]");
    shelf.write("10.yaml", &retrying(&["e"]));
    http.metric_is(SUCCESS, &[], 0.0).await;
    let line = logged(&sexton, REFUSED, 0).await;
    let problems = line["problems"].as_str().unwrap();
    assert!(problems.contains("/50.yaml:1:40: there is no hook \"oncall\"; define it"), "{problems}");
    assert!(problems.contains("/50.yaml:1:58: \"unless\" names \"b\", but there is no such alert rule"), "{problems}");
    assert_eq!((&line["rules"], &line["alerts"]), (&2.into(), &2.into()));
    // Mended, all of it is taken.
    shelf.write("50.yaml", "alerts: []");
    let line = logged(&sexton, ALERTS_CHANGED, 1).await;
    assert_eq!((&line["alerts"], &line["removed"]), (&0.into(), &"c, a".into()));
    let line = logged(&sexton, CHANGED, 1).await;
    assert_eq!((&line["added"], &line["removed"]), (&"e".into(), &"a, d".into()));
    http.metric_is(SUCCESS, &[], 1.0).await;
}

#[tokio::test]
async fn rules_that_vanish_stay_in_force() {
    let shelf = Shelf::new();
    shelf.write("10.yaml", &retrying(&["a"]));
    let (mut sexton, http) = shelf.run().await;
    let away = shelf.0.path().join("away");
    std::fs::rename(shelf.rules(), &away).unwrap();
    http.metric_is(SUCCESS, &[], 0.0).await;
    let line = logged(&sexton, REFUSED, 0).await;
    assert!(line["problems"].as_str().unwrap().contains(":3:9: cannot read \""), "{line}");
    assert_eq!(line["rules"], 1);
    std::fs::rename(&away, shelf.rules()).unwrap();
    logged(&sexton, MENDED, 0).await;
    // A dangling link, and a folder with nothing in it.
    std::fs::remove_file(shelf.rules().join("10.yaml")).unwrap();
    assert!(logged(&sexton, REFUSED, 1).await["problems"].as_str().unwrap().contains("holds no file *.yaml or *.yml"));
    shelf.link("nowhere", "10.yaml");
    assert!(logged(&sexton, REFUSED, 2).await["problems"].as_str().unwrap().contains("cannot read this rules file"));
    assert_eq!(http.metric(SUCCESS, &[]).await, Some(0.0));
    // And it stops as ever.
    sexton.process.terminate();
    assert!(sexton.process.end().await.success());
}

/// Runs a command on this configuration.
fn run(config: &Path, name: &str) -> Output {
    command().arg(name).arg("-c").arg(config).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn broken_rules_are_an_error_at_the_start_and_every_problem_is_told() {
    let shelf = Shelf::new();
    shelf.write("10.yaml", "retry:\n  - { name: a, match: { source: order } }\n");
    shelf.write("20.yaml", "retry:\n  - { name: b, min_age: 1h, max_backoff: 30m }\n  - { name: a }\n");
    let config = shelf.0.path().join("sexton.yaml");
    std::fs::write(&config, shelf.config() + "log: { level: loud }\n").unwrap();
    for name in ["check", "run"] {
        let ran = run(&config, name);
        let told = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(78), "{told}");
        let folder = shelf.0.path().display();
        let places = [
            format!("sexton: {folder}/sexton.yaml:4:15: expected a log level"),
            format!("sexton: {folder}/rules/10.yaml:2:33: \"order\" matches no source; did you mean \"orders\"?"),
            format!("sexton: {folder}/rules/20.yaml:2:42: \"max_backoff\" is 30m, less than \"min_age\": 1h"),
            format!("sexton: {folder}/rules/20.yaml:3:13: the name \"a\" is taken by the rule in line 2 of {folder}"),
        ];
        assert_eq!(told.lines().count(), places.len(), "{told}");
        for (line, place) in told.lines().zip(places) {
            assert!(line.starts_with(&place), "{line}\n{place}");
        }
    }
    // Who looks at the hooks needs no rules.
    std::fs::write(&config, shelf.config()).unwrap();
    assert_eq!(run(&config, "hooks").status.code(), Some(2));
    let ran = command().args(["hooks", "ls", "-c"]).arg(&config).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn sexton_check_says_what_each_rule_does() {
    let shelf = Shelf::new();
    let window = "window: '* 8-19 * * Mon-Fri', timezone: Europe/Berlin";
    let rules = format!("retry: [{{ name: b, max_retries: 1, {window} }}]");
    shelf.write("20.yaml", &rules);
    shelf.write("10.yaml", "retry: [{ name: a, match: { history: same }, action: leave }]");
    let config = shelf.0.path().join("sexton.yaml");
    std::fs::write(&config, shelf.config()).unwrap();
    let ran = run(&config, "check");
    let told = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success());
    assert!(
        told.ends_with(
            "rule a: leaves what it matches\nrule b: retries after 10m, at most once, in * 8-19 * * Mon-Fri \
             (Europe/Berlin)\nno alerts: a rising line is seen by nobody\n"
        ),
        "{told}"
    );
    // The same of alert rules, and of the digest.
    shelf.write("10.yaml", "retry: []");
    shelf.write(
        "20.yaml",
        "alerts:\n- { name: a, rising: {}, severity: critical, for: 5m, by: [task, queue], unless: [b, c], hooks: [h, i] }\n\
         - { name: b, burst: {} }\n- { name: c, burst: { deaths: 1, over: 30s } }\n- { name: d, waiting: {} }\n- { name: \
         e, waiting: { entries: 7, older_than: 90m }, hooks: h }\n- { name: f, new_group: {}, severity: info, by: group }\n",
    );
    let hooks = "hooks: [{ name: h, url: 'http://h' }, { name: i, url: 'http://i' }]\n";
    let digest = "digest: { at: 0 9 * * Mon-Fri, timezone: Europe/Berlin, hooks: h }\n";
    std::fs::write(&config, shelf.config() + hooks + digest).unwrap();
    let told = String::from_utf8(run(&config, "check").stdout).unwrap();
    let from = told.find("no rules: nothing is retried\n").unwrap();
    assert_eq!(
        &told[from..],
        "\
no rules: nothing is retried
alert a: critical when the line rises by 20 within 12m, in 9 of 12 steps, by task and queue, for 5m, unless b or c, to h, i
alert b: warning when 200 jobs die within 5m
alert c: warning when a job dies within 30s
alert d: warning when an entry waits for more than 1d
alert e: warning when 7 entries wait for more than 90m, to h
alert f: info when a group dies that has not died for 7d, by group
digest: at 0 9 * * Mon-Fri (Europe/Berlin), to h
"
    );
}

/// The rules that ship with Sexton: a whole configuration of them.
fn shipped() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sexton.yaml");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let text = format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://127.0.0.1:1\"}}}}]\nrules: [\"{}\"]\n",
        rules.display()
    );
    std::fs::write(&config, text).unwrap();
    // They name no variable.
    let none: BTreeMap<String, String> = BTreeMap::new();
    sexton::config::read(&config, &none).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn the_shipped_rules_retry_and_alert() {
    let shipped = shipped();
    assert!(!shipped.rules.is_empty());
    let alerts: Vec<&str> = shipped.alerts.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(alerts, ["rising-fast", "rising-slowly", "burst", "untriaged", "new-kind"]);
}

fn decided(rules: &Rules, letter: &DeadLetter) -> String {
    match rules.decide("orders", letter) {
        Decision::Never(never) => format!("never: {}", never.as_str()),
        Decision::NoRule => "no rule".to_owned(),
        Decision::Leave(rule) => format!("{} leaves", rule.name),
        Decision::Retry(rule, _) => format!("{} retries", rule.name),
    }
}

#[test]
fn the_shipped_rules_take_real_records_as_they_are_meant_to() {
    let (rules, keys) = (shipped().rules, Keys::new("lrs").unwrap());
    let mut taken = BTreeMap::new();
    for entry in recorded() {
        let letter = decode(&keys, &entry.id, entry.fields);
        let error = letter.error.kind.rsplit('.').next().unwrap_or_default();
        *taken.entry(format!("{} {error}: {}", letter.task, decided(&rules, &letter))).or_insert(0) += 1;
    }
    let expected = [
        (" : never: foreign_stream", 1),
        (" MalformedEnvelope: never: malformed", 1),
        ("binary ValueError: bugs-by-type leaves", 1),
        ("chained TimeoutError: dependency-down retries", 1),
        ("charge_card TimeoutError: dependency-down retries", 4),
        // Its traceback was cut; the last recorded attempt says that a connection was reset.
        ("deep ConnectionError: dependency-down retries", 1),
        ("gone_task : unknown-task retries", 1),
        // A time-out, and a KeyError beside it.
        ("group ExceptionGroup: bugs-by-type leaves", 1),
        ("ok : worker-killers leaves", 1),
        ("parse_order ValueError: bugs-by-type leaves", 4),
        ("send_email ConnectionError: dependency-down retries", 5),
        ("sync_crm ConnectionResetError: dependency-down retries", 1),
        ("sync_crm TimeoutError: dependency-down retries", 3),
    ];
    assert_eq!(taken, expected.map(|(what, times)| (what.to_owned(), times)).into());
}

#[test]
fn the_shipped_rules_tell_trouble_outside_from_bugs() {
    let (rules, keys) = (shipped().rules, Keys::new("lrs").unwrap());
    // Any record of a job whose attempts all failed.
    let died = |(kind, message): (&str, &str), verdict| {
        let entry = recorded().into_iter().find(|entry| entry.id == "1795973249423-0").unwrap();
        let letter = decode(&keys, &entry.id, entry.fields);
        let error = ErrorInfo { kind: kind.to_owned(), message: message.to_owned() };
        DeadLetter { error, verdict, ..letter }
    };
    for (error, expected) in [
        (("httpx.HTTPStatusError", "Client error '429 Too Many Requests' for url 'https://x'"), "rate-limited retries"),
        (("ApiError", "HTTP 429"), "rate-limited retries"),
        (("RateLimitExceeded", "slow down, status code: 429"), "rate-limited retries"),
        (("ClientError", "An error occurred (ThrottlingException): Rate limit exceeded"), "rate-limited retries"),
        (("requests.exceptions.ReadTimeout", "HTTPSConnectionPool(host='x', port=443)"), "dependency-down retries"),
        (
            ("requests.exceptions.HTTPError", "503 Server Error: Service Unavailable for url: https://x"),
            "dependency-down retries",
        ),
        (("HTTPError", "HTTP/1.1 502"), "dependency-down retries"),
        (("ApiError", "status=504"), "dependency-down retries"),
        (
            ("redis.exceptions.ConnectionError", "Error 111 connecting to redis:6379. Connection refused."),
            "dependency-down retries",
        ),
        (("BrokenPipeError", "[Errno 32] Broken pipe"), "dependency-down retries"),
        (("aiohttp.client_exceptions.ServerDisconnectedError", "Server disconnected"), "dependency-down retries"),
        (("socket.gaierror", "[Errno -3] Temporary failure in name resolution"), "dependency-down retries"),
        (("OSError", "[Errno 113] No route to host"), "dependency-down retries"),
        (("psycopg.errors.DeadlockDetected", "deadlock detected"), "dependency-down retries"),
        (("OperationalError", "FATAL: sorry, too many clients already"), "dependency-down retries"),
        (("openai.RateLimitError", "Error code: 429 - {'error': {'type': 'tokens'}}"), "rate-limited retries"),
        (("aiohttp.client_exceptions.ClientResponseError", "429, message='', url='https://x'"), "rate-limited retries"),
        (
            ("botocore.exceptions.ClientError", "An error occurred (SlowDown) when calling the PutObject operation"),
            "rate-limited retries",
        ),
        (("google.api_core.exceptions.TooManyRequests", "429 POST https://x"), "rate-limited retries"),
        (
            ("aiohttp.client_exceptions.ClientResponseError", "503, message='', url='https://x'"),
            "dependency-down retries",
        ),
        (("openai.InternalServerError", "Error code: 500"), "dependency-down retries"),
        (("google.api_core.exceptions.ServiceUnavailable", "503 failed"), "dependency-down retries"),
        (("psycopg2.OperationalError", "server closed the connection unexpectedly"), "dependency-down retries"),
        (("psycopg2.OperationalError", "FATAL:  the database system is starting up"), "dependency-down retries"),
        (("psycopg2.OperationalError", "SSL connection has been closed unexpectedly"), "dependency-down retries"),
        (("pymysql.err.OperationalError", "(2006, 'MySQL server has gone away')"), "dependency-down retries"),
        (
            ("pymysql.err.OperationalError", "(2013, 'Lost connection to MySQL server during query')"),
            "dependency-down retries",
        ),
        (
            (
                "grpc._channel._InactiveRpcError",
                "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE",
            ),
            "dependency-down retries",
        ),
        (("kafka.errors.NoBrokersAvailable", "NoBrokersAvailable"), "dependency-down retries"),
        (("httpx.ConnectError", "All connection attempts failed"), "dependency-down retries"),
        (
            ("http.client.RemoteDisconnected", "Remote end closed connection without response"),
            "dependency-down retries",
        ),
        // Words and numbers of trouble in what is none.
        (("AttributeError", "'NoneType' object has no attribute 'timeout'"), "bugs-by-type leaves"),
        (("ValueError", "invalid timeout"), "bugs-by-type leaves"),
        (("app.errors.KeyError", "'connection_error'"), "bugs-by-type leaves"),
        (("ModuleNotFoundError", "No module named 'timeout_decorator'"), "bugs-by-type leaves"),
        (("ImportError", "cannot import name 'ReadTimeout' from 'requests'"), "bugs-by-type leaves"),
        (("jsonschema.exceptions.ValidationError", "'request_timeout' is a required property"), "bugs-by-type leaves"),
        (
            (
                "pydantic_core._pydantic_core.ValidationError",
                "1 validation error for Settings\ntimeout\n  Input should be",
            ),
            "bugs-by-type leaves",
        ),
        (("botocore.exceptions.ParamValidationError", "Unknown parameter: \"Timeout\""), "bugs-by-type leaves"),
        (("FileNotFoundError", "[Errno 2] No such file or directory: 'timeout.txt'"), "bugs-by-type leaves"),
        (("PermissionError", "[Errno 13] Permission denied: '/run/timeouts'"), "bugs-by-type leaves"),
        (("UnicodeDecodeError", "'utf-8' codec can't decode byte 0xff in 'timeout'"), "bugs-by-type leaves"),
        (("OrderError", "error code: 429"), "bugs leaves"),
        (("OrderError", "503, message='' was sent to nobody"), "bugs leaves"),
        (("ReportError", "a slowdown of 30 % against last week"), "bugs leaves"),
        (("PlanError", "status unavailable for plan 500"), "bugs leaves"),
        (("ImportJobError", "the connection string has no host"), "bugs leaves"),
        (("AccountError", "the customer closed the account; reopen it first"), "bugs leaves"),
        (("OrderError", "order 429 has no line items"), "bugs leaves"),
        (("OrderError", "order 503: nothing to ship"), "bugs leaves"),
        (("OrderError", "the limit is exceeded by 3"), "bugs leaves"),
        (("", ""), "bugs leaves"),
    ] {
        assert_eq!(decided(&rules, &died(error, Verdict::Same)), expected, "{error:?}");
    }
    for (error, verdict, expected) in [
        (("KeyError", "'data'"), Verdict::Mixed, "unwell retries"),
        (("OrderError", "order 7 is locked"), Verdict::Mixed, "unwell retries"),
        (("OrderError", "order 7 is locked"), Verdict::Unknown, "no rule"),
        (("TimeoutError", ""), Verdict::Unknown, "dependency-down retries"),
        (
            ("AttributeError", "'NoneType' object has no attribute 'timeout'"),
            Verdict::Unknown,
            "bugs-by-type-once leaves",
        ),
    ] {
        assert_eq!(decided(&rules, &died(error, verdict)), expected, "{error:?} {verdict:?}");
    }
}
