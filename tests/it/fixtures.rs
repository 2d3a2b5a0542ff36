//! The tests' own footing: what they stand on does what it says.

use std::{process::Command, time::Duration};

use redis::AsyncCommands as _;

use crate::support::{
    graveyard::{bury, bury_many, bury_recorded, bury_rubbish, dlq, dug_up, letter, recorded, rubbish},
    process::{Process, Sexton, Stream, metric},
    redis::{Options, Redis},
};

#[tokio::test]
async fn a_private_redis_starts_empty_and_loses_everything_when_killed() {
    let mut redis = Redis::start().await;
    let mut con = redis.connect().await;
    let size: u64 = redis::cmd("DBSIZE").query_async(&mut con).await.unwrap();
    assert_eq!(size, 0);
    let () = con.set("key", "value").await.unwrap();
    redis.kill();
    assert!(redis.try_connect().await.is_err());
    redis.start_again().await;
    let value: Option<String> = redis.connect().await.get("key").await.unwrap();
    assert_eq!(value, None);
}

#[tokio::test]
async fn a_private_redis_keeps_its_data_if_it_is_told_to() {
    let kept =
        [Options { appendonly: true, ..Options::default() }, Options { save: Some("3600 1"), ..Options::default() }];
    for options in kept {
        let survives_a_kill = options.appendonly;
        let mut redis = Redis::with(Options { tcp: true, ..options }).await;
        let url = redis.url();
        let () = redis.connect().await.set("key", "value").await.unwrap();
        if survives_a_kill {
            redis.kill();
        } else {
            assert!(redis.stop().success());
        }
        redis.start_again().await;
        assert_eq!(redis.url(), url);
        let value: Option<String> = redis.connect().await.get("key").await.unwrap();
        assert_eq!(value.as_deref(), Some("value"));
    }
}

#[tokio::test]
async fn a_private_redis_hangs_and_goes_on() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    redis.freeze();
    let hung = tokio::time::timeout(Duration::from_millis(200), con.set::<_, _, ()>("key", "value")).await;
    assert!(hung.is_err(), "a frozen server must not answer");
    redis.thaw();
    let () = con.set("key", "again").await.unwrap();
}

#[tokio::test]
async fn a_private_redis_has_the_limits_it_was_given() {
    let redis = Redis::with(Options {
        requirepass: Some("opensesame"),
        maxmemory: Some("64mb"),
        maxclients: Some(7),
        ..Options::default()
    })
    .await;
    let mut con = redis.connect().await;
    let told = |name: &'static str, mut con: redis::aio::MultiplexedConnection| async move {
        let pair: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query_async(&mut con).await.unwrap();
        pair[1].clone()
    };
    assert_eq!(told("maxclients", con.clone()).await, "7");
    assert_eq!(told("maxmemory", con.clone()).await, (64 << 20).to_string());
    let client = redis::Client::open(redis.url().replace("opensesame", "wrong")).unwrap();
    assert!(client.get_multiplexed_async_connection().await.is_err());
    let () = con.set("key", "value").await.unwrap();
}

#[tokio::test]
async fn a_private_redis_tells_another_time_when_its_clock_is_stepped() {
    let mut redis = Redis::with(Options { stepped_clock: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let machine = || sexton::clock::StoreClock::default().now().0;
    // How far the server is ahead of the machine by `TIME`, in whole minutes, also inside a script; and the time in the
    // id of a new entry.
    let mut told = async || {
        let before = machine();
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut con).await.unwrap();
        let in_script: (i64, i64) =
            redis::cmd("EVAL").arg("return redis.call('TIME')").arg(0).query_async(&mut con).await.unwrap();
        let id: String = con.xadd("stream", "*", &[("field", "value")]).await.unwrap();
        let minutes = |seconds: i64| (seconds * 1000 - before + 30_000).div_euclid(60_000);
        assert_eq!(minutes(seconds), minutes(in_script.0));
        (minutes(seconds), id.split_once('-').unwrap().0.parse::<i64>().unwrap(), id)
    };
    let (ahead, first, _) = told().await;
    assert_eq!(ahead, 0);
    redis.step_clock(7_200);
    let (ahead, second, _) = told().await;
    assert_eq!(ahead, 120);
    assert!((7_200_000..7_260_000).contains(&(second - first)), "{first} {second}");
    // Backwards, and beyond where it was: new ids stay on the old millisecond.
    redis.step_clock(-10_800);
    let (ahead, third, id) = told().await;
    assert_eq!((ahead, third), (-60, second));
    assert!(id.ends_with("-1"), "{id}");
    redis.step_clock(3_600);
    assert_eq!(told().await.0, 0);
    // A restart keeps the clock it had, and time runs on at its usual pace.
    redis.step_clock(60);
    redis.kill();
    redis.start_again().await;
    let mut con = redis.connect().await;
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut con).await.unwrap();
    assert!((55_000..90_000).contains(&(seconds * 1000 - machine())));
    let began = sexton::clock::monotonic();
    let nothing: redis::Value = redis::cmd("BLPOP").arg("list").arg(0.2).query_async(&mut con).await.unwrap();
    assert_eq!(nothing, redis::Value::Nil);
    assert!((0.15..5.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sexton_runs_on_a_pod_whose_clock_is_off() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\"}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url()
    );
    let sexton = Sexton::run_off_time(&config, &[], 7_200);
    sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    // Its own log tells the pod's time.
    let logged = sexton.process.line("a timestamp", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line["timestamp"].as_str()?.to_owned())
    });
    let ahead = (chrono::DateTime::parse_from_rfc3339(&logged.await).unwrap().timestamp_millis()
        - sexton::clock::StoreClock::default().now().0)
        / 1000;
    assert!((7_100..7_205).contains(&ahead), "{ahead} s");
    let pid = sexton.process.pid();
    drop(sexton);
    assert!(!std::path::Path::new(&format!("/dev/shm/faketime_shm_{pid}")).exists());
}

#[tokio::test]
async fn recorded_letters_and_rubbish_round_trip_byte_for_byte() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let entries = bury_recorded(&mut con, "recorded").await;
    assert_eq!(entries.len(), 25);
    assert_eq!(dug_up(&mut con, "recorded").await, recorded());

    let ids = bury_rubbish(&mut con, "rubbish").await;
    let found = dug_up(&mut con, "rubbish").await;
    assert_eq!(ids, found.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>());
    for (item, entry) in rubbish("rubbish").into_iter().zip(found) {
        assert!(item.fields == entry.fields, "{}", item.what);
    }
}

#[tokio::test]
async fn a_hundred_thousand_realistic_letters_are_buried_in_seconds() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let started = sexton::clock::monotonic();
    let ids = bury_many(&mut con, "storm", 0..100_000).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let len: usize = con.xlen(dlq("storm")).await.unwrap();
    assert_eq!((len, ids.len()), (100_000, 100_000));
}

#[tokio::test]
async fn realistic_letters_are_about_a_kilobyte_in_many_orders_and_never_the_same_job() {
    let redis = Redis::start().await;
    let mut con = redis.connect().await;
    let mut orders = std::collections::HashSet::new();
    let mut jobs = std::collections::HashSet::new();
    for n in 0..1_000 {
        let fields = letter("ns", n);
        let size: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!((800..1_400).contains(&size), "{size} bytes");
        orders.insert(fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        jobs.insert(fields.iter().find(|(name, _)| name == b"id").unwrap().1.clone());
    }
    assert_eq!((orders.len(), jobs.len()), (8, 1_000));
    let id = bury(&mut con, "ns", &letter("ns", 7)).await;
    let found = dug_up(&mut con, "ns").await;
    assert_eq!((&found[0].id, &found[0].fields), (&id, &letter("ns", 7)));
}

#[tokio::test]
async fn a_process_shows_its_lines_takes_signals_and_tells_its_end() {
    let script = "trap 'echo told to stop >&2; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = Process::start(Command::new("sh").args(["-c", script]));
    process.says("ready").await;
    assert!(process.resident_bytes() > 100 << 10);
    let before = process.cpu_time();
    assert!(process.ended().is_none());
    process.freeze();
    process.terminate();
    process.thaw();
    process.says("told to stop").await;
    assert_eq!(process.end().await.code(), Some(3));
    assert_eq!(process.shown(Stream::Out), ["ready"]);
    assert_eq!(process.shown(Stream::Err), ["told to stop"]);
    assert!(before < Duration::from_secs(5));
}

#[tokio::test]
#[should_panic(expected = "it ended without the line: never said")]
async fn waiting_for_a_line_ends_with_the_process() {
    Process::start(Command::new("sh").args(["-c", "echo something else"])).says("never said").await;
}

#[test]
fn metrics_are_found_by_name_and_labels() {
    let text = "# HELP a_total x\n# TYPE a_total counter\na_total{source=\"x\",task=\"t 1\"} 2\n\
                a_total{source=\"x\",task=\"t\\\"2\"} 3\na_total{source=\"y\",task=\"t 1\"} 4\na_total_more 9\nplain 1.5\n";
    for (name, labels, expected) in [
        ("a_total", &[("source", "x"), ("task", "t 1")][..], Some(2.0)),
        ("a_total", &[("source", "x")], Some(5.0)),
        ("a_total", &[("task", "t\"2")], Some(3.0)),
        ("a_total", &[("source", "z")], None),
        ("a_total", &[], Some(9.0)),
        ("plain", &[], Some(1.5)),
        ("missing", &[], None),
    ] {
        assert_eq!(metric(text, name, labels), expected, "{name} {labels:?}");
    }
}
