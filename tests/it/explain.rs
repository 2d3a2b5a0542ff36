//! `sexton explain` and `sexton rules try` through the real binary, on what the ledger itself has written: every state that
//! can be set up, and that nothing is ever written by asking.

use std::{collections::BTreeMap, process::Stdio};

use redis::AsyncCommands as _;
use serde_json::{Value, json};
use sexton::{
    config,
    ledger::{JobCounts, Judge, Judged, Lesson, Plan, PlanEnd, Settled, Verdict},
    letter::{DeadLetter, Millis},
    retry::{Evidence, Learnt, fate, place},
    rule::{Decision, Rules},
};
use tempfile::TempDir;

use crate::support::{
    SOON, eventually,
    graveyard::{Fields, bury, job_id, letter_at, with},
    process::{Sexton, command},
    workers::now,
    yard::{NS, QUEUE, Yard},
};

/// The realistic letters' tasks come in turn: `send_email`, `charge_card`, `sync_crm`, `parse_order`, `ship_parcel`.
const RULES: &str = "
retry:
  - { name: bugs, match: { task: parse_order }, action: leave }
  - { name: flaky, match: { task: send_email }, min_age: 10m, max_retries: 2, pace: { max_queue_length: 3 } }
  - { name: leap, match: { task: charge_card }, window: '* * 29 2 *' }
";
const HOUR: u64 = 3_600_000;

/// A graveyard whose ledger works by rules, and a folder with the configuration that names them.
struct Plot {
    yard: Yard,
    folder: TempDir,
    rules: Rules,
    /// How many letters were made.
    made: u64,
}

impl Plot {
    async fn new() -> Plot {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
        let mut plot = Plot { yard: Yard::open().await, folder, rules: Rules::default(), made: 0 };
        plot.write("sexton.yaml", &plot.config(""));
        plot.adopt(RULES).await;
        plot
    }

    fn config(&self, more: &str) -> String {
        let url = self.yard.redis.url();
        format!(
            "sources: [{{name: orders, smallage: {{url: \"{url}\", namespace: {NS}}}}}]\nhttp: {{listen: \
             \"127.0.0.1:0\"}}\nrules: [rules.yaml]\n{more}"
        )
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Puts these rules in force.
    async fn adopt(&mut self, rules: &str) {
        self.write("rules.yaml", rules);
        let none: BTreeMap<String, String> = BTreeMap::new();
        self.rules = config::read(&self.folder.path().join("sexton.yaml"), &none).unwrap().rules;
        let Yard { ledger, lease, cursor, .. } = &self.yard;
        self.yard.generation = ledger.adopt_rules(lease, cursor, &self.rules.fingerprint).await.unwrap();
    }

    /// A letter of a new job of the `task`-th task, that died so long ago.
    async fn letter(&mut self, task: u64, ago_ms: u64) -> Fields {
        let died_at = u64::try_from(now(&mut self.yard.con).await).unwrap() - ago_ms;
        self.made += 1;
        letter_at(NS, 5 * self.made + task, died_at)
    }

    /// Buries a letter, and has the leader read it.
    async fn bury(&mut self, fields: &Fields) -> String {
        let id = bury(&mut self.yard.con, NS, fields).await;
        self.read(None).await;
        id
    }

    /// Has the leader read on; with another time for what waits, if there is one.
    async fn read(&mut self, due: Option<i64>) {
        let rules = self.rules.clone();
        let plan = move |letter: &DeadLetter, job: JobCounts| match fate(&rules, "orders", letter, job).plan {
            Some(Plan::Wait { place, due: by_rule, retries }) => {
                Some(Plan::Wait { place, due: due.map_or(by_rule, Millis), retries })
            }
            plan => plan,
        };
        self.yard.ingest(&plan).await;
    }

    /// Has all flights end like this, or fail.
    async fn settle(&self, verdict: Verdict) {
        let flights = self.yard.ledger.flights().await.unwrap();
        let ended = |mut flight: sexton::ledger::Flight| {
            flight.failing |= verdict == Verdict::Failing;
            Settled { flight, verdict: Some(verdict), event: None }
        };
        let settled: Vec<Settled> = flights.into_iter().map(ended).collect();
        self.yard.ledger.settle(&self.yard.lease, &settled, &[]).await.unwrap();
    }

    /// Runs `sexton …` with words parted by spaces, beside the configuration: code, output, errors.
    async fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = tokio::process::Command::from(command());
        command.current_dir(self.folder.path()).args(line.split(' ')).env_remove("SEXTON_CONFIG");
        let ended = command.stdin(Stdio::null()).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
    }

    async fn json(&self, line: &str) -> Value {
        let (code, out, err) = self.run(&format!("{line} -o json")).await;
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        serde_json::from_str(&out).unwrap()
    }

    /// Explains an entry or job in both forms, and compares: state, why a retry would be refused, rule, what the sentence
    /// says.
    async fn expect(&self, name: &str, state: &str, refusal: Option<&str>, rule: Option<&str>, says: &str) -> Value {
        let said = self.json(&format!("explain {name}")).await;
        assert_eq!((said["state"].as_str(), said["refusal"].as_str()), (Some(state), refusal), "{name}: {said}");
        assert_eq!(said["rule"].as_str(), rule, "{said}");
        let sentence = said["sentence"].as_str().unwrap();
        assert!(sentence.contains(says), "{says}\n{sentence}");
        let (code, out, err) = self.run(&format!("explain {name}")).await;
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        let (first, facts) = out.split_once("\n\n").unwrap();
        assert!(first.contains(says) && !first.contains('\n'), "{out}");
        assert!(facts.contains(&format!("\n  state     {state}\n")), "{out}");
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out}");
        said
    }
}

#[tokio::test]
async fn entries_that_wait_say_what_for() {
    let mut plot = Plot::new().await;
    let (by_flaky, none) = (Some("flaky"), None);

    let letter = plot.letter(2, HOUR).await;
    let no_rule = plot.bury(&letter).await;
    plot.expect(&no_rule, "no_rule", none, none, "No rule matches it").await;
    let letter = plot.letter(3, HOUR).await;
    let left = plot.bury(&letter).await;
    plot.expect(&left, "left", none, Some("bugs"), "Rule bugs leaves it in the DLQ").await;
    let letter = plot.letter(0, HOUR).await;
    let malformed = plot.bury(&with(&letter, "dlq_reason", b"malformed")).await;
    plot.expect(&malformed, "never_retried", Some("malformed"), none, "cannot be read as a job").await;
    let letter = plot.letter(0, HOUR).await;
    let foreign = plot.bury(&with(&letter, "dlq_source", b"partner:events\x1b[2J")).await;
    plot.expect(&foreign, "never_retried", Some("foreign_stream"), none, "foreign (broker-mode) stream").await;

    let letter = plot.letter(0, 60_000).await;
    let young = plot.bury(&letter).await;
    let says = "rule flaky retries a job 10m after that at the earliest: retry 1 of 2 is due at";
    let said = plot.expect(&young, "too_young", Some("too_young"), by_flaky, says).await;
    assert!(said["next_at"].is_string() && said["led"] == true && said["rules_in_force"] == true, "{said}");
    assert_eq!((&said["deaths"], &said["retries"], &said["max_retries"]), (&json!(1), &json!(0), &json!(2)));

    let letter = plot.letter(0, HOUR).await;
    let due = plot.bury(&letter).await;
    plot.expect(&due, "awaits_turn", none, by_flaky, "its group may send a retry ahead").await;
    let letter = plot.letter(0, HOUR).await;
    let gone = plot.bury(&with(&letter, "dlq_source", b"{lrs}:q:nobody:0")).await;
    let says = "its queue's stream {lrs}:q:nobody:0 does not exist";
    plot.expect(&gone, "queue_gone", Some("queue_gone"), by_flaky, says).await;
    let letter = plot.letter(0, HOUR).await;
    let claimed = plot.bury(&[letter, vec![(b"dedup".to_vec(), b"order-7".to_vec())]].concat()).await;
    plot.expect(&claimed, "awaits_turn", none, by_flaky, "It is due").await;
    let () = plot.yard.con.set("{lrs}:dedup:order-7", "another-job").await.unwrap();
    let says = "another job holds its dedup key";
    plot.expect(&claimed, "dedup_claimed", Some("dedup_claimed"), by_flaky, says).await;
    for _ in 0..3 {
        let _: String = plot.yard.con.xadd(QUEUE, "*", &[("v", "1")]).await.unwrap();
    }
    let says = "its queue {lrs}:q:default:0 holds more than 3 entries";
    plot.expect(&due, "queue_too_long", Some("queue_too_long"), by_flaky, says).await;
    let () = plot.yard.con.xtrim(QUEUE, redis::streams::StreamMaxlen::Equals(0)).await.unwrap();

    // Buried twice: the newer one stands for both.
    let letter = plot.letter(0, HOUR).await;
    let (older, newer) = (plot.bury(&letter).await, plot.bury(&letter).await);
    let says = format!("The same job has a newer entry in the DLQ, {newer}, which stands for it.");
    plot.expect(&older, "superseded", Some("superseded"), by_flaky, &says).await;
    plot.expect(&newer, "awaits_turn", none, by_flaky, "It is due").await;

    // Due, but outside the window: the day is one that today can hardly be.
    let letter = plot.letter(1, HOUR).await;
    let closed = bury(&mut plot.yard.con, NS, &letter).await;
    plot.expect(&closed, "not_judged", none, Some("leap"), "has not judged it").await;
    plot.read(Some(1_000)).await;
    let says = "the window of rule leap (`* * 29 2 * (UTC)`) is closed until";
    plot.expect(&closed, "window_closed", Some("window_closed"), Some("leap"), says).await;

    plot.yard.ledger.release(&plot.yard.lease).await.unwrap();
    let said = plot.expect(&young, "nobody_leads", none, by_flaky, "Nobody leads this source").await;
    assert_eq!(said["led"], false);
}

#[tokio::test]
async fn what_was_learnt_holds_an_entry() {
    let mut plot = Plot::new().await;
    let letter = plot.letter(0, HOUR).await;
    let held = plot.bury(&letter).await;
    let standing = plot.yard.ledger.standing(std::slice::from_ref(&held)).await.unwrap().remove(0).unwrap();
    let Decision::Retry(rule, terms) = plot.rules.decide("orders", &standing.letter) else { panic!("it is retried") };
    let (at, place) = (plot.yard.ledger.clock().now(), place(rule, &standing.letter));
    let evidence = Evidence { round: 1, sent_at: at, was_failing: false, since: Millis(0) };
    let mut learnt = Learnt::default();
    learnt.failed(at, terms, evidence, 0.0).expect("one failure of one canary is a hold");
    let lesson = Lesson {
        pool: place.pool.clone(),
        group: Some(place.group.clone()),
        learnt: learnt.to_json(),
        held_until: learnt.held_until(at, terms),
        keep_until: learnt.keep_until(terms),
    };
    plot.yard.ledger.settle(&plot.yard.lease, &[], &[lesson]).await.unwrap();
    let said = plot.expect(&held, "held", Some("group_held"), Some("flaky"), "so its group is on hold until").await;
    assert!(said["held_until"].is_string() && said["held_until"] == said["next_at"], "{said}");
    let (_, out, _) = plot.run("stats").await;
    assert!(out.contains("  retries   0 in flight, 1 entry in the due index\n"), "{out}");
    assert!(out.contains("  rule      flaky: 0 in flight, 1 hold\n"), "{out}");
}

#[tokio::test]
async fn entries_that_have_left_say_what_became_of_them() {
    let mut plot = Plot::new().await;
    let (gone, by_flaky) = (Some("entry_gone"), Some("flaky"));
    let letter = plot.letter(0, HOUR).await;
    let job = job_id(5 * plot.made);
    let first = plot.bury(&letter).await;
    plot.yard.send(&first).await;
    plot.expect(&first, "in_flight", gone, by_flaky, "Rule flaky put it back on its queue at").await;
    let said = plot.expect(&job, "in_flight", gone, by_flaky, "it waits there or runs").await;
    assert_eq!(
        (said["entry_id"].as_str(), &said["retries"], &said["in_dlq"]),
        (Some(&*first), &json!(1), &json!(false))
    );
    plot.settle(Verdict::Failing).await;
    plot.expect(&first, "failing", gone, by_flaky, "it has failed at least once since").await;

    // It dies again, with one retry left.
    let second = plot.bury(&letter).await;
    plot.settle(Verdict::ReDied).await;
    let says = "its new entry in the DLQ has an explanation of its own";
    let said = plot.expect(&first, "re_died", gone, by_flaky, says).await;
    let whats: Vec<&str> = said["audit"].as_array().unwrap().iter().map(|l| l["what"].as_str().unwrap()).collect();
    assert_eq!(whats, ["re_died", "failing", "retried"]);
    plot.expect(&job, "awaits_turn", None, by_flaky, "It is due").await;
    plot.yard.send(&second).await;
    let third = plot.bury(&letter).await;
    plot.settle(Verdict::ReDied).await;
    let says = "Rule flaky grants a job 2 retries, and this one has had 2, the last at";
    let said = plot.expect(&third, "exhausted", Some("allowance_spent"), by_flaky, says).await;
    assert_eq!((&said["deaths"], &said["next_at"]), (&json!(3), &Value::Null));
    let says = "its allowance is spent, and its new entry in the DLQ waits for a person";
    plot.expect(&second, "re_died", gone, by_flaky, says).await;

    for (verdict, state, says) in [
        (Verdict::Recovered, "recovered", "It was retried by flaky at"),
        (Verdict::LostSight, "lost_sight", "so nobody can say what became of the job"),
    ] {
        let letter = plot.letter(0, HOUR).await;
        let job = job_id(5 * plot.made);
        let entry = plot.bury(&letter).await;
        plot.yard.send(&entry).await;
        plot.settle(verdict).await;
        plot.expect(&entry, state, gone, by_flaky, says).await;
        plot.expect(&job, state, gone, by_flaky, says).await;
    }

    // Buried twice, and retried once.
    let letter = plot.letter(0, HOUR).await;
    let (older, newer) = (plot.bury(&letter).await, plot.bury(&letter).await);
    plot.yard.send(&newer).await;
    plot.expect(&older, "superseded", gone, by_flaky, "It was a second entry of a job").await;

    let letter = plot.letter(0, HOUR).await;
    let by_hand = plot.bury(&letter).await;
    let _: i64 = plot.yard.con.xdel(format!("{{{NS}}}:dlq"), &[&by_hand]).await.unwrap();
    let said = plot.expect(&by_hand, "removed", gone, None, "Sexton did not take it out").await;
    assert_eq!((&said["audit"], &said["audit_complete"]), (&json!([]), &json!(true)));
    let (_, out, _) = plot.run(&format!("explain {by_hand}")).await;
    assert!(out.contains("  audit     nothing about it in the newest 12 lines, back to "), "{out}");
}

#[tokio::test]
async fn new_rules_are_told_from_those_in_force() {
    let mut plot = Plot::new().await;
    let letter = plot.letter(0, 60_000).await;
    let entry = plot.bury(&letter).await;
    // Written, but not taken by any leader yet.
    plot.write("rules.yaml", "retry: [{ name: slow, min_age: 2h }]");
    let said = plot.expect(&entry, "not_judged", None, Some("slow"), "has not judged it by these rules yet").await;
    assert_eq!(said["rules_in_force"], false);
    let (_, out, _) = plot.run(&format!("explain {entry}")).await;
    assert!(out.contains("  rules     not those in force: the leader has not read these yet"), "{out}");
    let (_, out, _) = plot.run("rules try").await;
    assert!(out.ends_with("orders: these rules are not in force: the leader works by others\n"), "{out}");

    // Taken, but this entry is still to be judged by them.
    plot.adopt("retry: [{ name: slow, min_age: 2h }]").await;
    let said = plot.expect(&entry, "not_judged", None, Some("slow"), "it does so in the background").await;
    assert_eq!(said["rules_in_force"], true);
    let judging = plot.yard.ledger.judging().await.unwrap();
    let (batch, _) = plot.yard.ledger.read_to_judge(&judging.judged, &judging.until, 10).await.unwrap();
    let judged = |letter: &DeadLetter| Judged {
        entry_id: letter.entry_id.clone(),
        job_id: letter.job_id.clone(),
        plan: fate(&plot.rules, "orders", letter, JobCounts::default()).plan,
    };
    let step = Judge {
        generation: judging.generation,
        from: judging.judged,
        to: batch.cursor.clone(),
        entries: batch.letters.iter().map(judged).collect(),
    };
    assert!(matches!(plot.yard.ledger.judge(&plot.yard.lease, step).await.unwrap(), PlanEnd::Stands(_)));
    plot.expect(&entry, "too_young", Some("too_young"), Some("slow"), "retries a job 2h after that").await;
    // Rules of the command line take the place of the configuration's.
    plot.write("other.yaml", RULES);
    let said = plot.json(&format!("explain {entry} --rules other.yaml")).await;
    assert_eq!((&said["rule"], &said["rules_in_force"]), (&json!("flaky"), &json!(false)), "{said}");
    let url = plot.yard.redis.url();
    let said = plot.json(&format!("explain {entry} --smallage {url} --rules rules.yaml")).await;
    assert_eq!((&said["source"], &said["state"]), (&json!("lrs"), &json!("too_young")), "{said}");
    let said = plot.json(&format!("explain {entry} --smallage {url}")).await;
    assert!(said["sentence"].as_str().unwrap().starts_with("No rules are known here"), "{said}");
}

#[tokio::test]
async fn rules_are_tried_and_nothing_is_written() {
    let mut plot = Plot::new().await;
    for (task, ago, times) in [(0, HOUR, 3), (0, 1_000, 2), (1, HOUR, 1), (2, HOUR, 4), (3, HOUR, 1)] {
        for _ in 0..times {
            let letter = plot.letter(task, ago).await;
            plot.bury(&letter).await;
        }
    }
    let letter = plot.letter(0, HOUR).await;
    plot.bury(&with(&letter, "dlq_source", b"partner:events")).await;
    // One job has had both of its retries.
    let letter = plot.letter(0, HOUR).await;
    for _ in 0..2 {
        let dead = plot.bury(&letter).await;
        plot.yard.send(&dead).await;
        plot.settle(Verdict::ReDied).await;
    }
    let spent = plot.bury(&letter).await;
    let before = plot.yard.picture().await;

    let tried = plot.json("rules try").await;
    let rows: Vec<Value> = tried["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row["rule"], row["action"], row["why"], row["entries"], row["spent"], row["due_now"]]))
        .collect();
    assert_eq!(
        rows,
        [
            json!(["bugs", "leave", null, 1, 0, 0]),
            json!(["flaky", "retry", null, 6, 1, 3]),
            json!(["leap", "retry", null, 1, 0, 0]),
            json!([null, "none", "no_rule", 4, 0, 0]),
            json!([null, "none", "foreign_stream", 1, 0, 0]),
        ]
    );
    assert_eq!(tried["totals"], json!({"entries": 13, "retry": 6, "due_now": 3, "spent": 1, "stay": 6}));
    assert_eq!(tried["sources"], json!([{"source": "orders", "scanned": 13, "rules_in_force": true}]));
    let largest = &tried["items"][1]["groups"][0];
    assert_eq!((&largest["count"], &largest["task"]), (&json!(6), &json!("send_email")), "{tried}");
    let (code, out, err) = plot.run("rules try").await;
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("RULE                   ACTION  ENTRIES  JOBS  SPENT  DUE NOW  FIRST DUE\n"), "{out}");
    assert!(
        out.contains("\n13 entries: 6 to be retried, 3 of them due now; 1 with no retry left; 6 that no rule "),
        "{out}"
    );
    assert!(out.ends_with("orders: these rules are in force\n"), "{out}");

    // Rules that are in no configuration, on some of the entries.
    plot.write("all.yaml", "retry: [{ name: all, min_age: 100ms }]");
    let tried = plot.json("rules try --rules all.yaml --task send_* --older-than 10m").await;
    let row = &tried["items"][0];
    assert_eq!((&row["rule"], &row["entries"], &row["due_now"]), (&json!("all"), &json!(4), &json!(4)), "{tried}");
    assert_eq!(tried["sources"][0]["rules_in_force"], false);

    for name in [spent.as_str(), "1-1", "nobody"] {
        plot.run(&format!("explain {name}")).await;
    }
    assert_eq!(plot.yard.picture().await, before, "nothing is written by asking");
}

#[tokio::test]
async fn secrets_of_hooks_need_not_be_there_and_rules_must_be_sound() {
    let mut plot = Plot::new().await;
    let letter = plot.letter(0, 60_000).await;
    let entry = plot.bury(&letter).await;
    plot.write("needy.yaml", &plot.config("hooks: [{name: a, url: \"http://h\", secret: \"${NO_SUCH_VARIABLE}\"}]\n"));
    plot.write("broken.yaml", "retry:\n  - { name: a, min_aeg: 5m }\n");
    plot.write("variable.yaml", "retry: [{ name: a, match: { task: '${NO_SUCH_VARIABLE}' } }]\n");
    plot.write("bad.yaml", &plot.config("").replace("rules.yaml", "broken.yaml"));
    for (line, code, said) in [
        (format!("explain {entry} -c needy.yaml"), 0, ""),
        (format!("explain orders/{entry}"), 0, ""),
        ("rules try -c needy.yaml".to_owned(), 0, ""),
        ("explain 1-1".to_owned(), 0, ""),
        (format!("explain {entry} -c bad.yaml"), 78, "broken.yaml:2:16: unknown key \"min_aeg\""),
        // What has left needs no rules.
        ("explain 1-1 -c bad.yaml".to_owned(), 0, ""),
        ("rules try -c bad.yaml".to_owned(), 78, "broken.yaml:2:16: unknown key \"min_aeg\""),
        ("rules try -c bad.yaml --rules rules.yaml".to_owned(), 0, ""),
        (
            "rules try --rules none.yaml".to_owned(),
            78,
            "sexton: command line: cannot read \"none.yaml\" for \"rules\": No such file or directory (os error 2); check \
             path and permissions; relative paths begin in the working directory",
        ),
        ("rules try --rules variable.yaml".to_owned(), 78, "the variable NO_SUCH_VARIABLE is not set"),
        ("rules try --source nope".to_owned(), 2, "no source matches --source nope"),
        ("rules".to_owned(), 2, "Usage: sexton rules "),
        ("explain nope/1-1".to_owned(), 2, "there is no source \"nope\""),
        ("explain nobody".to_owned(), 1, "no entry is called nobody, and no job"),
        ("explain 1-1 --smallage redis://127.0.0.1:1".to_owned(), 69, "lrs: the store cannot be reached"),
        ("rules try --smallage redis://127.0.0.1:1".to_owned(), 69, "lrs: the store cannot be reached"),
    ] {
        let (ended, out, err) = plot.run(&line).await;
        assert_eq!(ended, code, "{line}: {err}");
        assert!(err.contains(said) && (code == 0) == err.is_empty(), "{line}: {err}");
        assert!(code == 0 || out.is_empty(), "{line}: {out}");
    }
}

#[tokio::test]
async fn a_running_sidecar_and_the_command_agree() {
    let redis = crate::support::redis::Redis::start().await;
    let mut con = redis.connect().await;
    let () = con.xgroup_create_mkstream(QUEUE, "workers", "0").await.unwrap();
    let url = redis.url();
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{url}\", namespace: {NS}}}}}]\nhttp: {{listen: \
         \"127.0.0.1:0\"}}\nrules: [rules.yaml]\nannounce_existing: true\n"
    );
    let rules = "retry: [{ name: soon, match: { task: send_email }, min_age: 100ms }, { name: later, min_age: 1h }]";
    let sexton = Sexton::run_with(&config, &[("rules.yaml", rules)]);
    sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    let died_at = u64::try_from(now(&mut con).await).unwrap();
    let soon = bury(&mut con, NS, &letter_at(NS, 0, died_at)).await;
    let later = bury(&mut con, NS, &letter_at(NS, 1, died_at)).await;
    let explained = async |entry: &str| {
        let mut command = tokio::process::Command::from(command());
        command.args(["explain", entry, "-o", "json", "-c"]).arg(sexton.config_file());
        let ended = command.stdin(Stdio::null()).output().await.unwrap();
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let reaches = async |entry: &str, state: &str| {
        eventually(&format!("{entry} is {state}"), SOON, || async {
            Some(explained(entry).await).filter(|said| said["state"] == state)
        })
        .await
    };
    let said = reaches(&soon, "in_flight").await;
    assert_eq!((&said["rule"], &said["led"], &said["job_id"]), (&json!("soon"), &json!(true), &json!(job_id(0))));
    let said = reaches(&later, "too_young").await;
    assert_eq!((&said["rule"], &said["rules_in_force"]), (&json!("later"), &json!(true)), "{said}");
    // A worker runs it through.
    let () = con.xtrim(QUEUE, redis::streams::StreamMaxlen::Equals(0)).await.unwrap();
    let said = reaches(&soon, "recovered").await;
    assert_eq!(said["audit"][0]["what"], "recovered", "{said}");
}
