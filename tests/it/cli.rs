//! The commands through the real binary, their output piped: exit codes, forms, paging, and nothing that a terminal
//! would act on, whatever stands in the DLQ.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::Stdio,
};

use redis::aio::MultiplexedConnection;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    SOON,
    graveyard::{bury, bury_many, bury_recorded, bury_rubbish, dlq, letter, with},
    ledger::buried,
    process::{Sexton, command},
    receiver::{Behaviour, Receiver},
    redis::{Options, Redis},
};

const NS: &str = "lrs";

/// How a command ended and what it said.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

/// A store to work on, and a folder with its configuration: one source, called `orders`.
struct Yard {
    redis: Redis,
    con: MultiplexedConnection,
    folder: TempDir,
}

impl Yard {
    async fn new() -> Yard {
        let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
        let con = redis.connect().await;
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
        let yard = Yard { redis, con, folder };
        yard.configure("");
        yard
    }

    /// Writes the configuration, with more after its source.
    fn configure(&self, more: &str) -> String {
        let text = format!(
            "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
             http: {{listen: \"127.0.0.1:0\"}}\n{more}",
            self.redis.url()
        );
        std::fs::write(self.folder.path().join("sexton.yaml"), &text).unwrap();
        text
    }

    /// Runs `sexton …` with words parted by spaces, beside the configuration.
    async fn run(&self, line: &str) -> Ran {
        run(self.folder.path(), line, &[]).await
    }

    async fn outbox_len(&mut self, lane: &str) -> u64 {
        redis::cmd("XLEN").arg(format!("{{{NS}}}:sexton:outbox:{lane}")).query_async(&mut self.con).await.unwrap()
    }

    async fn dig(&mut self, ids: &[String]) {
        redis::cmd("XDEL").arg(dlq(NS)).arg(ids).exec_async(&mut self.con).await.unwrap();
    }
}

async fn run(folder: &Path, line: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = tokio::process::Command::from(command());
    command.current_dir(folder).args(line.split(' ').filter(|word| !word.is_empty()));
    command.env_remove("SEXTON_CONFIG").env_remove("NO_COLOR").envs(variables.iter().copied());
    let ended = command.stdin(Stdio::null()).output().await.unwrap();
    Ran {
        code: ended.status.code().expect("no signal ends it"),
        out: String::from_utf8(ended.stdout).expect("output is UTF-8"),
        err: String::from_utf8(ended.stderr).expect("output is UTF-8"),
    }
}

/// What a terminal would act on or hide.
fn harmful(text: &str) -> String {
    let harmful = |c: &char| {
        c.is_control() && *c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().filter(harmful).collect()
}

#[tokio::test]
async fn exit_codes_and_reasons() {
    let mut yard = Yard::new().await;
    let ids = bury_many(&mut yard.con, NS, 0..3).await;
    std::fs::write(yard.folder.path().join("bad.yaml"), "sauces: []\n").unwrap();
    let needy = yard.configure("hooks: [{name: oncall, url: \"http://h\", secret: \"${NO_SUCH_VARIABLE}\"}]\n");
    std::fs::write(yard.folder.path().join("needy.yaml"), needy).unwrap();
    yard.configure("");
    let (url, id) = (yard.redis.url(), &ids[0]);
    for (line, code, said) in [
        ("ls", 0, ""),
        (&format!("show {id}"), 0, ""),
        (&format!("show orders/{id}"), 0, ""),
        (&format!("errors orders/{id}"), 0, ""),
        (&format!("explain {id}"), 0, ""),
        ("explain 1-0", 0, ""),
        ("rules try", 0, ""),
        ("stats", 0, ""),
        ("groups", 0, ""),
        ("audit", 0, "no lines"),
        ("check", 0, ""),
        (&format!("retry {id} --dry-run"), 0, ""),
        ("purge --older-than 7d --dry-run", 0, ""),
        ("man", 0, ""),
        ("completions bash", 0, ""),
        ("hooks ls", 0, "no hooks are configured"),
        ("show 1-0", 1, "there is no entry 1-0"),
        ("errors 1-0", 1, "no entry and no job in a DLQ is called 1-0"),
        ("explain some/job", 1, "no entry is called some/job, and no job"),
        ("errors some/job", 1, "no entry and no job in a DLQ is called some/job"),
        ("hooks test nobody", 2, "there is no hook \"nobody\"; none is configured"),
        ("show bogus", 2, "\"bogus\" is no entry"),
        ("show nope/1-1", 2, "there is no source \"nope\"; the only one here is called orders"),
        ("errors nope/1-1", 2, "there is no source \"nope\"; the only one here is called orders"),
        (&format!("show orders/{id} --smallage {url}"), 2, "the only one here is called lrs"),
        ("ls --source nope", 2, "no source matches --source nope; the only one here is called orders"),
        ("ls --source orders --source nope", 2, "no source matches --source nope"),
        ("ls --group abc", 2, "a group is 12 hexadecimal digits"),
        ("ls --reason max_attempt", 2, "'max_attempts'"),
        ("ls --after orders/bogus", 2, "is not a cursor of an earlier listing"),
        ("ls --after bogus", 2, "is not a cursor of an earlier listing"),
        ("ls --after nope/1-0", 2, "which is called orders"),
        ("retry", 2, "which entries? Name them, or give filters, or --all for everything there is"),
        ("rm --all", 2, "nobody can be asked here: give --yes"),
        ("purge", 2, "say how old: --older-than 7d"),
        ("audit --since yesterday", 2, "write an age such as 2h"),
        ("retry 1-0 --smallage redis://127.0.0.1:1", 69, "lrs: the store cannot be reached"),
        ("groups --smallage redis://127.0.0.1:1", 69, "lrs: the store cannot be reached"),
        ("audit --smallage redis://127.0.0.1:1", 69, "lrs: the store cannot be reached"),
        ("frobnicate", 2, "unrecognized subcommand"),
        ("ls --smallage redis://127.0.0.1:1", 69, "lrs: the store cannot be reached"),
        ("stats --smallage redis://127.0.0.1:1", 69, "lrs: the store cannot be reached"),
        ("check -c none.yaml", 78, "none.yaml"),
        ("ls -c needy.yaml", 0, ""),
        (&format!("show {id} -c needy.yaml"), 0, ""),
        (&format!("errors {id} -c needy.yaml"), 0, ""),
        ("stats -c needy.yaml", 78, "the variable NO_SUCH_VARIABLE is not set"),
        ("check -c needy.yaml", 78, "the variable NO_SUCH_VARIABLE is not set"),
        ("check -c bad.yaml", 78, "bad.yaml:1"),
        ("ls --smallage http://x", 78, "--smallage"),
    ] {
        let ran = yard.run(line).await;
        assert_eq!(ran.code, code, "{line}: {}", ran.err);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
        assert!(!said.is_empty() || ran.err.is_empty(), "{line}: {}", ran.err);
        assert!(code == 0 || ran.out.is_empty(), "{line}: {}", ran.out);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let ran = run(elsewhere.path(), "ls", &[]).await;
    assert!(ran.code == 2 && ran.err.contains("no source: name a configuration"), "{}", ran.err);
}

#[tokio::test]
async fn a_listing_is_the_same_in_every_form() {
    let mut yard = Yard::new().await;
    let recorded = bury_recorded(&mut yard.con, NS).await;
    let json = yard.run("ls -o json").await.json();
    let items = json["items"].as_array().unwrap();
    let newest_first: Vec<&str> = recorded.iter().rev().map(|entry| entry.id.as_str()).collect();
    let listed = |items: &[Value]| -> Vec<String> {
        items.iter().map(|item| item["entry_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(items), newest_first);
    assert!(json["next_cursor"].is_null());
    let lines = yard.run("ls -o jsonl").await;
    let lines: Vec<Value> = lines.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&lines, items);
    let cut = yard.run("ls -o jsonl --limit 5").await;
    assert_eq!(cut.out.lines().count(), 5);
    assert_eq!(cut.err, format!("more with --after orders/{}\n", newest_first[4]));
    let killed = yard.run("ls -o json --reason max_deliveries").await.json();
    assert_eq!(listed(killed["items"].as_array().unwrap()), ["1795973241252-0", "1795973239920-0"]);
    assert_eq!(yard.run("ls -o json --task none*").await.out, "{\"items\":[],\"next_cursor\":null}\n");

    let table = yard.run("ls").await;
    let rows: Vec<&str> = table.out.lines().collect();
    assert_eq!(rows.len(), recorded.len() + 1);
    let heads: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(heads, ["AGE", "ENTRY", "TASK", "QUEUE", "REASON", "GROUP", "ERROR"]);
    for (row, id) in rows[1..].iter().zip(newest_first) {
        assert_eq!(row.split_whitespace().nth(1), Some(id));
        assert_eq!(row.trim_end(), *row, "nothing is padded at the end");
        assert!(row.chars().count() < 320, "an error is cut: {row}");
    }
    assert_eq!(harmful(&table.out), "");
    // Piped output is never coloured, whatever the variable says.
    assert!(run(yard.folder.path(), "ls", &[("NO_COLOR", "1")]).await.out == table.out);
    let verbose = run(yard.folder.path(), "ls -v", &[("NO_COLOR", "1")]).await;
    assert_eq!(harmful(&verbose.err), "");
}

#[tokio::test]
async fn paging_skips_and_repeats_nothing_while_entries_come_and_go() {
    let mut yard = Yard::new().await;
    let before = bury_many(&mut yard.con, NS, 0..500).await;
    let (mut seen, mut gone, mut after) = (Vec::new(), BTreeSet::new(), String::new());
    for page in 1_u64.. {
        let ran = yard.run(&format!("ls --limit 37 -o json {after}")).await;
        let json = ran.json();
        let ids = json["items"].as_array().unwrap().iter().map(|item| item["entry_id"].as_str().unwrap().to_owned());
        seen.extend(ids);
        let Some(cursor) = json["next_cursor"].as_str() else { break };
        after = format!("--after {cursor}");
        // New ones come, the oldest one not seen yet goes, and so does the one that the cursor names.
        bury_many(&mut yard.con, NS, page * 1_000..page * 1_000 + 10).await;
        let next = before[usize::try_from(page).unwrap()].clone();
        let at_cursor = seen.last().unwrap().clone();
        if !seen.contains(&next) {
            gone.insert(next.clone());
        }
        yard.dig(&[next, at_cursor]).await;
    }
    let expected: Vec<String> = before.iter().rev().filter(|id| !gone.contains(*id)).cloned().collect();
    assert!(gone.len() > 5 && seen.len() > 400, "the test looks at what it is about");
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn every_entry_can_be_shown_and_none_can_act_on_the_terminal() {
    let mut yard = Yard::new().await;
    bury_recorded(&mut yard.con, NS).await;
    bury_rubbish(&mut yard.con, NS).await;
    std::fs::write(yard.folder.path().join("everything.yaml"), "retry: [{ name: everything }]").unwrap();
    for (n, id) in buried(&mut yard.con, NS).await.into_iter().enumerate() {
        // Much of the rubbish is of one job, all of whose deaths are told every time.
        for command in ["show", "errors"].into_iter().take(if n % 8 == 0 { 2 } else { 1 }) {
            let ran = yard.run(&format!("{command} {id}")).await;
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command} {id}");
            assert!(ran.out.contains(&format!("orders/{id}")), "{}", ran.out);
            assert_eq!(harmful(&ran.out), "", "{command} {id}");
        }
        let ran = yard.run(&format!("explain {id} --rules everything.yaml")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "explain {id}");
        assert!(ran.out.contains(&format!("\n\n  entry     orders/{id}, died ")), "{}", ran.out);
        assert_eq!(harmful(&ran.out), "", "explain {id}");
    }
    for line in [
        "rules try --rules everything.yaml",
        "ls --limit 1000",
        "groups --limit 1000",
        "groups --limit 1000 -o json",
        "retry --all --dry-run -o json",
        "stats",
        "ls --limit 1000 -o json",
        "ls --limit 1000 -o jsonl",
    ] {
        let ran = yard.run(line).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert_eq!(harmful(&ran.out), "", "{line}");
    }
}

#[tokio::test]
async fn real_records_are_called_what_they_are() {
    let mut yard = Yard::new().await;
    let recorded = bury_recorded(&mut yard.con, NS).await;
    for (id, parts) in [
        ("1795973237917-0", &["reason      malformed", "\nTraceback (", "attempts    0 failed attempts"][..]),
        ("1795973238720-0", &["reason      unknown_task", "\nDetail (9 bytes)\n  gone_task\n"]),
        ("1795973239920-0", &["reason      max_deliveries", "\nDetail (17 bytes)\n  delivered 4 times\n"]),
        (
            "1795973241252-0",
            &["attempts    not known of a foreign entry", "deaths      no job id, so its deaths cannot be counted"],
        ),
        (
            "1795973242803-0",
            &[
                "error       ConnectionError: upstream reset the connection\n              (from the history: the \
                 traceback is cut before it tells the last failure)\n",
                "\n     3  the record does not tell how\n",
                "\nTraceback (8,177 bytes, cut: the framework kept no more)\n",
            ],
        ),
        ("1795973249423-0", &["\n     3  ValueError: order 0 has no line items\n", "\nTraceback ("]),
    ] {
        let ran = yard.run(&format!("show {id}")).await;
        for part in parts {
            assert!(ran.out.contains(part), "{id}: {part}\n{}", ran.out);
        }
        assert_eq!(ran.out.contains("\nAttempts\n"), parts.iter().any(|part| part.contains("\n     3  ")), "{id}");
    }
    for (id, by) in [
        ("1795973237917-0", "ended by: smallage.core.errors.MalformedEnvelope: stream entry is missing field 'task'\n"),
        ("1795973238720-0", "ended by: no worker knows the task \"gone_task\"\n"),
        ("1795973239920-0", "ended by: delivered 4 times\n"),
    ] {
        let ran = yard.run(&format!("errors {id}")).await;
        assert!(ran.out.contains(&format!("        no failed attempt recorded\n{by}")), "{}", ran.out);
    }
    // The JSON form keeps every byte of every record.
    for entry in recorded {
        let json = yard.run(&format!("show {} -o json", entry.id)).await.json();
        let (_, payload) = entry.fields.iter().find(|(name, _)| name == b"payload").cloned().unwrap_or_default();
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        if json["queue"] == "default" && !payload.is_empty() {
            assert_eq!(json["payload"], STANDARD.encode(&payload), "{}", entry.id);
        }
        assert_eq!(json["fields"].as_array().unwrap().len(), entry.fields.len());
    }
}

#[tokio::test]
async fn the_lives_of_a_job_that_was_put_back_are_told_apart() {
    let mut yard = Yard::new().await;
    let history = b"0: OSError: a\n1: OSError: b\n0: KeyError: c\n1: KeyError: c";
    let id = bury(&mut yard.con, NS, &with(&letter(NS, 1), "history", history)).await;
    let ran = yard.run(&format!("errors {id}")).await;
    let numbers: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("  "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(numbers, ["1", "2", "—", "1", "2", "3"], "{}", ran.out);
    let json = yard.run(&format!("errors {id} -o json")).await.json();
    let attempts = json["items"][0]["attempts"].as_array().unwrap();
    let lives: Vec<_> = attempts.iter().map(|a| (a["life"].as_u64().unwrap(), a["number"].as_u64().unwrap())).collect();
    assert_eq!(lives, [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]);

    // Died twice, and both deaths are still there.
    bury(&mut yard.con, NS, &letter(NS, 1)).await;
    let job = json["items"][0]["job_id"].as_str().unwrap();
    let ran = yard.run(&format!("errors {job}")).await;
    assert!(ran.out.starts_with("Death 1 of 2: ") && ran.out.contains("\n\nDeath 2 of 2: "), "{}", ran.out);
}

#[tokio::test]
async fn help_names_the_keys_there_are_and_offers_what_can_be() {
    let mut yard = Yard::new().await;
    let id = bury_many(&mut yard.con, NS, 0..1).await.remove(0);
    let json = yard.run(&format!("show {id} -o json")).await.json();
    let help = yard.run("show --help").await.out;
    for key in ["traceback", "attempt_errors", "payload", "traceback_cut", "error_from_history", "fields"] {
        assert!(help.contains(key) && json.get(key).is_some(), "{key}: {help}");
    }
    assert!(yard.run("hooks --help").await.out.contains("  sexton hooks test oncall\n"));
    for verb in ["ls", "test", "resend"] {
        let help = yard.run(&format!("hooks {verb} --help")).await.out;
        assert!(help.contains("--config") && !help.contains("--smallage"), "a store alone has no hooks: {help}");
    }
}

#[tokio::test]
async fn who_reads_only_the_beginning_is_no_failure() {
    let mut yard = Yard::new().await;
    bury_many(&mut yard.con, NS, 0..2_000).await;
    for form in ["table", "json", "jsonl"] {
        let mut command = command();
        command.current_dir(yard.folder.path()).args(["ls", "--limit", "2000", "-o", form]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        let status = tokio::task::spawn_blocking(move || {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            (child.wait().unwrap().code(), said)
        });
        assert_eq!(status.await.unwrap(), (Some(0), String::new()), "{form}");
    }
    let mut command = command();
    let mut child = command.arg("demo").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap().code(), said)
    });
    assert_eq!(ended.await.unwrap(), (Some(0), String::new()), "demo");
}

#[tokio::test]
async fn hooks_are_listed_tested_and_sent_to_again() {
    let mut yard = Yard::new().await;
    let receiver = Receiver::start().await;
    let config = yard.configure(&format!("hooks: [{{name: oncall, url: \"{}\", rate: unlimited}}]\n", receiver.url()));

    // Nobody has ever led: nothing is written that nothing would deliver.
    let ran = yard.run("hooks test oncall").await;
    assert!(ran.code == 1 && ran.err.contains("nobody leads orders") && ran.out.is_empty(), "{}", ran.err);
    assert_eq!(yard.outbox_len("alerts").await, 0);
    let ran = yard.run("stats").await;
    assert!(ran.out.contains("  ledger    Sexton has never led here\n"), "{}", ran.out);
    assert!(ran.out.contains("oncall deaths: not served yet, nothing read yet"), "{}", ran.out);

    bury_many(&mut yard.con, NS, 100..107).await;
    let sexton = Sexton::run(&config);
    let http = sexton.http().await;
    http.metric_is("sexton_leader", &[], 1.0).await;
    receiver.until(SOON, |requests| requests.iter().any(|r| r.json()["type"] == "dlq.digest")).await;
    let ran = yard.run("stats").await;
    assert!(ran.out.contains("  ledger    0 deaths announced, 0 entries not read yet\n"), "{}", ran.out);

    let ran = yard.run("hooks test oncall").await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("delivered after") && ran.out.contains("oncall took it"), "{}", ran.out);
    assert!(receiver.requests().iter().any(|request| request.json()["type"] == "hook.test"));

    let ids: BTreeSet<String> = bury_many(&mut yard.con, NS, 0..3).await.into_iter().collect();
    let deaths = |requests: &[crate::support::receiver::Request]| -> Vec<(String, String)> {
        let dead = requests.iter().filter(|request| request.json()["type"] == "job.dead");
        dead.map(|r| (r.json()["data"]["entry_id"].as_str().unwrap().to_owned(), r.id().to_owned())).collect()
    };
    let told = deaths(&receiver.until(SOON, |requests| deaths(requests).len() == 3).await);
    assert_eq!(told.iter().map(|(id, _)| id.clone()).collect::<BTreeSet<_>>(), ids);
    let settled = || async {
        let lanes = yard.run("hooks ls -o json").await.json()["items"][0]["sources"][0]["lanes"].clone();
        (lanes[0]["backlog"] == 0 && lanes[0]["pending"] == 0 && lanes[0]["state"] == "delivering").then_some(())
    };
    crate::support::eventually("the deaths lane has saved that it is done", SOON, settled).await;
    let ran = yard.run("stats").await;
    assert!(ran.out.contains("  ledger    3 deaths announced, 0 entries not read yet\n"), "{}", ran.out);
    assert!(ran.out.contains("oncall deaths: delivering, read up to 20"), "{}", ran.out);
    let ran = yard.run("hooks ls").await;
    assert_eq!(ran.out.lines().count(), 3, "{}", ran.out);
    assert!(!ran.out.contains("s3cret"), "{}", ran.out);

    let ran = yard.run("hooks resend oncall --since 1h").await;
    assert!(ran.code == 2 && ran.err.contains("give --yes"), "{}", ran.err);
    let ran = yard.run("hooks resend oncall --since 1h --yes").await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.contains("digest") && !ran.out.contains("unlimited"), "no rate, no folding: {}", ran.out);
    let again = deaths(&receiver.until(SOON, |requests| deaths(requests).len() == 6).await);
    assert_eq!(again[3..].iter().collect::<BTreeSet<_>>(), told.iter().collect(), "under their old ids");

    // Switched off: the first test finds out, the second one writes nothing.
    receiver.otherwise(Behaviour::status(410));
    let ran = yard.run("hooks test oncall").await;
    assert!(ran.code == 1 && ran.err.contains("the test event is not sent"), "{}", ran.err);
    let ran = yard.run("hooks resend oncall --since 1h --yes").await;
    assert!(ran.code == 1 && ran.err.contains("nothing of orders is sent again"), "{}", ran.err);
    let before = yard.outbox_len("alerts").await;
    let ran = yard.run("hooks test oncall").await;
    assert!(ran.code == 1 && ran.err.contains("no test event was written"), "{}", ran.err);
    assert_eq!(yard.outbox_len("alerts").await, before);
    let ran = yard.run("hooks ls").await;
    assert!(ran.out.contains("off (410)"), "{}", ran.out);
}

#[tokio::test]
async fn a_receiver_that_says_no_is_told_from_one_that_is_down_and_from_one_that_takes_it() {
    let yard = Yard::new().await;
    let receiver = Receiver::start().await;
    let config = yard.configure(&format!("hooks: [{{name: oncall, url: \"{}\"}}]\n", receiver.url()));
    let sexton = Sexton::run(&config);
    sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    let stands = async |wanted: &'static str| {
        let yard = &yard;
        crate::support::eventually(wanted, SOON, || async move {
            let (ls, stats) = (yard.run("hooks ls").await.out, yard.run("stats").await.out);
            (ls.contains(wanted) && stats.contains(wanted)).then_some(())
        })
        .await;
    };

    receiver.otherwise(Behaviour::status(404));
    let ran = yard.run("hooks test oncall").await;
    assert_eq!((ran.code, ran.err.as_str()), (1, "sexton: rejected: 404 Not Found\n"), "{}", ran.out);
    stands("rejecting (404) for ").await;

    receiver.otherwise(Behaviour::status(200));
    let ran = yard.run("hooks test oncall").await;
    assert!(ran.code == 0 && ran.out.contains("oncall took it"), "{} {}", ran.out, ran.err);
    let lanes = yard.run("hooks ls -o json").await.json()["items"][0]["sources"][0]["lanes"].clone();
    assert_eq!((&lanes[1]["state"], lanes[1]["delivered_at"].is_string()), (&"delivering".into(), true), "{lanes}");
    assert_eq!(lanes[1]["last_trouble"]["status"], 404, "{lanes}");

    // It may be asked before the third failure: the command itself says what is wrong.
    receiver.otherwise(Behaviour::status(503));
    let ran = yard.run("hooks test oncall --wait 2s").await;
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the last error: 503 Service Unavailable"), "{}", ran.err);
    bury_many(&mut yard.con.clone(), NS, 0..3).await;
    stands("failing (503) for ").await;
}

#[tokio::test]
async fn where_nothing_has_ever_died_the_namespace_is_asked_about() {
    let mut yard = Yard::new().await;
    let note = "no entries; nothing has ever died under {lrs}:dlq — is the namespace right?\n";
    let ran = yard.run("ls").await;
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", note));
    let ran = yard.run("stats").await;
    assert!(ran.code == 0 && ran.out.contains(note), "{}", ran.out);
    for form in ["json", "jsonl"] {
        assert_eq!(yard.run(&format!("ls -o {form}")).await.err, "");
    }
    // Once a leader has seen something die, an empty DLQ is good news.
    let ids = bury_many(&mut yard.con, NS, 0..1).await;
    let sexton = Sexton::run(&yard.configure(""));
    sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    let yard_now = &yard;
    crate::support::eventually("the entry is read", SOON, || async move {
        yard_now.run("stats").await.out.contains(", 0 entries not read yet\n").then_some(())
    })
    .await;
    yard.dig(&ids).await;
    assert_eq!(yard.run("ls").await.err, "no entries\n");
    assert!(yard.run("stats").await.out.contains("  entries   0, 1 ever\n"));
}
