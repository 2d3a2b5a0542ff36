//! What people do to dead letters with the command itself: two at once, entries that go meanwhile, Ctrl-C and a second
//! run, a million entries.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use serde_json::Value;
use sexton::clock::monotonic;
use tempfile::TempDir;

use crate::support::{
    SOON, eventually,
    graveyard::{bury, bury_many, dlq, job_id, letter, letter_at, with},
    process::{
        Process,
        Stream::{Err as Said, Out},
        command,
    },
    redis::{Options, Redis},
    workers::now,
};

const NS: &str = "lrs";
const QUEUE: &str = "{lrs}:q:default:0";

/// How a command ended and what it said.
#[derive(Debug)]
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

/// A store with a queue that jobs can go back to, and a folder with its configuration: one source, called `orders`.
struct Yard {
    _redis: Redis,
    con: MultiplexedConnection,
    folder: TempDir,
}

impl Yard {
    async fn new() -> Yard {
        let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
        let mut con = redis.connect().await;
        let () = redis::cmd("XGROUP")
            .arg(&["CREATE", QUEUE, "workers", "$", "MKSTREAM"])
            .query_async(&mut con)
            .await
            .unwrap();
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
        let text = format!("sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n", redis.url());
        std::fs::write(folder.path().join("sexton.yaml"), text).unwrap();
        Yard { _redis: redis, con, folder }
    }

    /// `sexton` with these words, beside the configuration.
    fn command(&self, line: &str) -> Command {
        let mut command = command();
        command.current_dir(self.folder.path()).args(line.split(' ').filter(|word| !word.is_empty()));
        command.env_remove("SEXTON_CONFIG").env_remove("NO_COLOR").stdin(Stdio::null());
        command
    }

    async fn run(&self, line: &str) -> Ran {
        let ended = tokio::process::Command::from(self.command(line)).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Ran { code: ended.status.code().expect("no signal ends it"), out: text(ended.stdout), err: text(ended.stderr) }
    }

    async fn len(&self, key: &str) -> u64 {
        self.con.clone().xlen(key).await.unwrap()
    }

    /// The ids of the jobs on the queue, in order.
    async fn queued(&mut self) -> Vec<String> {
        let reply: redis::streams::StreamRangeReply = self.con.xrange_all(QUEUE).await.unwrap();
        reply.ids.iter().map(|entry| entry.get::<String>("id").unwrap()).collect()
    }
}

/// Jobs, sorted: none is there twice.
fn once(mut jobs: Vec<String>) -> Vec<String> {
    let len = jobs.len();
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), len, "a job came twice");
    jobs
}

#[tokio::test]
async fn named_entries_are_retried_and_removed_and_the_log_says_by_whom() {
    let mut yard = Yard::new().await;
    let ids = bury_many(&mut yard.con, NS, 0..4).await;
    let lost = bury(&mut yard.con, NS, &with(&letter(NS, 9), "dlq_source", b"{lrs}:q:nobody:0")).await;
    let ran = yard.run(&format!("retry {} orders/{} {lost} 1-0 --note smtp-is-back", ids[0], ids[1])).await;
    assert_eq!((ran.code, ran.err.as_str()), (1, "sexton: 2 of 4 not retried\n"), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with(&format!("orders/{}  retried, as ", ids[0])), "{}", lines[0]);
    assert_eq!(
        lines[2..],
        [
            &*format!(
                "orders/{lost}  not retried: its queue does not exist: no worker reads it, and it would swallow the job"
            ),
            "orders/1-0  not retried: it is no longer in the DLQ",
            "2 entries retried, 2 not: 1 entry_gone, 1 queue_gone",
        ]
    );
    assert_eq!(yard.queued().await, [job_id(0), job_id(1)]);
    let ran = yard.run(&format!("retry {} --dry-run", ids[2])).await;
    assert_eq!((ran.code, ran.out), (0, format!("orders/{}  would be retried\n", ids[2])));
    let ran = yard.run(&format!("rm {} --note paid -o json", ids[2])).await;
    assert_eq!((ran.code, &ran.json()["items"][0]["outcome"]), (0, &"removed".into()));
    assert_eq!(yard.len(&dlq(NS)).await, 2);

    let log = yard.run("audit -o json").await.json();
    let told: Vec<(&str, &str, &str)> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (&line["what"], &line["entry_id"], &line["note"]))
        .map(|(what, entry, note)| (what.as_str().unwrap(), entry.as_str().unwrap(), note.as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [("removed", &*ids[2], "paid"), ("retried", &*ids[1], "smtp-is-back"), ("retried", &*ids[0], "smtp-is-back")]
    );
    assert!(log["items"][0]["by"].as_str().unwrap().contains('@'));
    let ran = yard.run(&format!("explain {}", ids[2])).await;
    assert!(ran.out.starts_with("It was removed by ") && ran.code == 0, "{}", ran.out);
}

#[tokio::test]
async fn two_people_with_the_same_filter_retry_every_entry_once() {
    let mut yard = Yard::new().await;
    bury_many(&mut yard.con, NS, 0..1_500).await;
    let line = "retry --all --yes -o json";
    let (one, two) = tokio::join!(yard.run(line), yard.run(line));
    assert_eq!((one.code, two.code), (0, 0), "{one:?} {two:?}");
    let done = |ran: &Ran| ran.json()["done"].as_u64().unwrap();
    assert_eq!(done(&one) + done(&two), 1_500, "{} {}", one.out, two.out);
    assert_eq!(once(yard.queued().await).len(), 1_500);
    assert_eq!(yard.len(&dlq(NS)).await, 0);
    // Whoever came too late was told so, and of nothing else.
    for ran in [one, two] {
        for (why, _) in ran.json()["refused"].as_object().unwrap() {
            assert_eq!(why, "entry_gone");
        }
    }
}

#[tokio::test]
async fn an_entry_that_goes_meanwhile_is_a_line_and_no_failure() {
    let mut yard = Yard::new().await;
    let ids = bury_many(&mut yard.con, NS, 0..200).await;
    let mut process = Process::start(&mut yard.command("retry --task * --yes --per-second 50 -o json"));
    // It has looked at all of them by now, for it looks at more than it does.
    eventually("some have been retried", SOON, || async { (yard.len(QUEUE).await > 5).then_some(()) }).await;
    let () = redis::cmd("XDEL").arg(dlq(NS)).arg(&ids[150..160]).query_async(&mut yard.con).await.unwrap();
    assert_eq!(process.end().await.code(), Some(0));
    let said = process.shown(Out).concat();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["matched"], &said["done"]), (&200.into(), &190.into()), "{said}");
    assert_eq!(said["refused"], serde_json::json!({"entry_gone": 10}));
    assert_eq!(once(yard.queued().await).len(), 190);
}

#[tokio::test]
async fn what_is_interrupted_says_what_was_done_and_a_second_run_goes_on() {
    for verb in ["retry", "rm"] {
        let mut yard = Yard::new().await;
        bury_many(&mut yard.con, NS, 0..400).await;
        let mut process = Process::start(&mut yard.command(&format!("{verb} --all --yes --per-second 100")));
        let gone = || async { (yard.len(&dlq(NS)).await < 380).then_some(()) };
        eventually("some are gone", SOON, gone).await;
        process.interrupt();
        assert_eq!(process.end().await.code(), Some(1));
        let left = yard.len(&dlq(NS)).await;
        assert!(left > 100, "{left} left: it was stopped in the middle");
        let word = if verb == "retry" { "retried" } else { "removed" };
        let out = process.shown(Out);
        assert_eq!(out, [format!("{} entries {word}", 400 - left)]);
        let err = process.shown(Said);
        assert_eq!(err, ["sexton: stopped; the same command goes on with what is left"]);

        let ran = yard.run(&format!("{verb} --all --yes")).await;
        assert_eq!((ran.code, ran.out), (0, format!("{left} entries {word}\n")));
        assert_eq!(yard.len(&dlq(NS)).await, 0);
        if verb == "retry" {
            let all: BTreeSet<String> = (0..400).map(job_id).collect();
            assert_eq!(once(yard.queued().await).into_iter().collect::<BTreeSet<_>>(), all);
        }
    }
}

#[tokio::test]
async fn a_job_that_dies_again_meanwhile_is_not_retried_again() {
    let mut yard = Yard::new().await;
    bury_many(&mut yard.con, NS, 0..200).await;
    let mut process = Process::start(&mut yard.command("retry --all --yes --per-second 200"));
    // What comes back dies at once, again and again.
    let mut seen = 0;
    while process.ended().is_none() {
        let queued = yard.len(QUEUE).await;
        for n in seen..queued {
            let now = u64::try_from(now(&mut yard.con).await).unwrap();
            bury(&mut yard.con, NS, &letter_at(NS, n, now)).await;
        }
        seen = queued;
        tokio::task::yield_now().await;
    }
    assert_eq!(process.shown(Out), ["200 entries retried"]);
    assert_eq!(once(yard.queued().await).len(), 200);
}

#[tokio::test]
async fn all_deaths_of_an_entry_s_job_are_told_and_payloads_are_decoded() {
    let mut yard = Yard::new().await;
    let now = u64::try_from(now(&mut yard.con).await).unwrap();
    bury_many(&mut yard.con, NS, 10..30).await;
    let other = with(&with(&letter_at(NS, 7, now - 60_000), "history", b""), "dlq_detail", b"KeyError: 'sku'");
    let early = bury(&mut yard.con, NS, &other).await;
    let late = bury(&mut yard.con, NS, &with(&letter_at(NS, 7, now), "payload", b"\x81\xa1i\x07")).await;
    let ran = yard.run(&format!("errors {early}")).await;
    assert!(ran.out.starts_with(&format!("Death 1 of 2: orders/{early}  ")), "{}", ran.out);
    assert!(ran.out.contains(&format!("Death 2 of 2: orders/{late}  ")), "{}", ran.out);
    assert!(ran.out.ends_with("\nover all 2 deaths: attempts failed in different ways\n"), "{}", ran.out);
    let by_job = yard.run(&format!("errors {}", job_id(7))).await;
    assert_eq!(by_job.out, ran.out);

    let ran = yard.run(&format!("show {late}")).await;
    assert!(ran.out.contains("\nPayload (4 bytes, MessagePack, as JSON)\n  {\n    \"i\": 7\n  }\n"), "{}", ran.out);
    let json = yard.run(&format!("show {late} -o json")).await.json();
    assert_eq!(
        (&json["payload"], &json["payload_form"], &json["payload_bytes"], &json["payload_text"]),
        (&"gaFpBw==".into(), &"msgpack".into(), &4.into(), &"{\"i\":7}".into())
    );
}

/// A million entries of a few hundred bytes, nine in ten of them ten days old, in three hundred thousand groups, one of
/// which is large. Made inside Redis, because a million letters take their time on the wire.
async fn bury_a_million(con: &mut MultiplexedConnection) {
    const SCRIPT: &str = "
        local time = redis.call('TIME')
        local now = time[1] * 1000
        for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
          local died = now - (i < 900000 and 864000000 or 3600000) + math.floor(i / 1000)
          local word = 'x'
          if i % 2 == 0 then
            word = string.gsub(tostring(i % 600000), '%d', function(d) return string.char(103 + tonumber(d)) end)
          end
          redis.call('XADD', KEYS[1], string.format('%.0f-%d', died, i % 1000), 'v', '1', 'id', 'job-' .. i, 'task',
            'send_email', 'payload', '{\"i\":' .. i .. '}', 'attempt', '2', 'history', '0: E: no ' .. word,
            'dlq_reason', 'max_attempts', 'dlq_detail', 'E: no ' .. word, 'dlq_source', '{lrs}:q:default:0',
            'dlq_deliveries', '1', 'dlq_at', string.format('%.0f', died))
        end";
    let script = redis::Script::new(SCRIPT);
    for from in (0..1_000_000).step_by(20_000) {
        let () =
            script.key(dlq(NS)).arg(from).arg(from + 19_999).invoke_async(con).await.expect("the entries can be added");
    }
}

#[tokio::test]
async fn with_a_million_entries_listing_is_quick_grouping_is_bounded_and_purging_ends() {
    let mut yard = Yard::new().await;
    bury_a_million(&mut yard.con).await;

    let mut best: Option<(Duration, Duration)> = None;
    for _ in 0..10 {
        let began = monotonic();
        let bare: redis::Value = redis::cmd("XREVRANGE")
            .arg(dlq(NS))
            .arg(&["+", "-", "COUNT", "50"])
            .query_async(&mut yard.con)
            .await
            .unwrap();
        let bare = (began.elapsed(), bare).0;
        let began = monotonic();
        let ran = yard.run("ls --limit 50 -o jsonl").await;
        let took = began.elapsed();
        assert_eq!((ran.code, ran.out.lines().count()), (0, 50), "{}", ran.err);
        best = Some(best.map_or((took, bare), |best| best.min((took, bare))));
    }
    let (took, bare) = best.unwrap();
    assert!(took < bare + Duration::from_millis(50), "{took:?} against {bare:?}");

    let mut process = Process::start(&mut yard.command("groups --limit 1 -o json"));
    let mut most = 0;
    while process.ended().is_none() {
        most = most.max(most_resident(process.pid()).unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said: Value = serde_json::from_str(&process.shown(Out).concat()).unwrap();
    assert_eq!((&said["entries"], &said["items"][0]["count"]), (&1_000_000.into(), &500_000.into()), "{said}");
    assert_eq!((&said["other"]["entries"], &said["other"]["estimated"]), (&500_000.into(), &true.into()));
    assert!(most < 32 << 20, "{most} bytes");

    let ran = yard.run("purge --older-than 7d --yes --note spring-cleaning").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "900,000 entries purged\n"), "{}", ran.err);
    assert_eq!(yard.len(&dlq(NS)).await, 100_000);
    // A line for each piece, not for each entry.
    let lines = yard.len(&format!("{{{NS}}}:sexton:audit")).await;
    assert!((900..5_000).contains(&lines), "{lines}");
}

/// The most resident memory a process has had, if it is still there.
fn most_resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
