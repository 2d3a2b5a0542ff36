//! The pod's end: five seconds of grace while nobody answers, or none at all. What was on its way is sent again by the
//! next one under the same id, and nothing is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::SocketAddr,
    process::Command,
    time::Duration,
};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use sexton::clock::monotonic;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::support::{
    SOON, eventually,
    graveyard::bury_many,
    ledger::every_death_announced_once,
    process::{Process, Sexton, Stream},
    receiver::{Behaviour, Receiver, Request},
    redis::{Options, Redis},
    signal,
};

const NS: &str = "lrs";
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
/// What a pod has left for its sidecars, at least.
const GRACE: Duration = Duration::from_secs(5);
/// Deaths before the end; more than are on their way at a time.
const DEATHS: u64 = 300;

fn config(redis: &Redis, receivers: &[Receiver], lease: &str) -> String {
    let hook = |(n, receiver): (usize, &Receiver)| {
        format!("{{name: hook{n}, url: \"{}\", rate: unlimited, timeout: 60s, secret: \"{SECRET}\"}}", receiver.url())
    };
    let hooks: Vec<String> = receivers.iter().enumerate().map(hook).collect();
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\nhooks: [{}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: {lease}}}\nannounce_existing: true\n",
        redis.url(),
        hooks.join(", ")
    )
}

/// A leader whose receivers have requests and do not answer them, and a backlog behind.
struct Scene {
    redis: Redis,
    con: MultiplexedConnection,
    receivers: Vec<Receiver>,
    config: String,
}

impl Scene {
    async fn set(lease: &str) -> (Scene, Sexton) {
        let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
        let mut con = redis.connect().await;
        let receivers = vec![Receiver::start().await, Receiver::start().await];
        receivers[0].otherwise(Behaviour::After(Duration::from_secs(30), Box::new(Behaviour::status(204))));
        receivers[1].otherwise(Behaviour::SlowHeaders(204));
        let config = config(&redis, &receivers, lease);
        let leader = Sexton::run(&config);
        leader.process.says("\"leading\"").await;
        bury_many(&mut con, NS, 0..DEATHS).await;
        for receiver in &receivers {
            receiver.until(SOON, |requests| !requests.is_empty()).await;
        }
        (Scene { redis, con, receivers, config }, leader)
    }

    /// What was on its way at the end, by receiver.
    fn on_their_way(&self) -> Vec<BTreeSet<String>> {
        self.receivers.iter().map(|receiver| receiver.requests().iter().map(id).collect()).collect()
    }

    /// The receivers answer again, and `next` goes on: every death arrives everywhere, always under one id, and what was
    /// on its way comes again.
    async fn goes_on(&mut self, next: &Sexton, on_their_way: &[BTreeSet<String>]) {
        for receiver in &self.receivers {
            receiver.otherwise(Behaviour::status(204));
        }
        next.process.says("\"leading\"").await;
        let all = usize::try_from(DEATHS).unwrap();
        for (receiver, on_their_way) in self.receivers.iter().zip(on_their_way) {
            let requests = receiver.until(Duration::from_secs(60), |requests| entries(requests).len() == all).await;
            let ids = entries(&requests);
            assert!(ids.values().all(|ids| ids.len() == 1), "an entry has one id: {ids:?}");
            let times = |wanted: &String| requests.iter().filter(|request| request.id() == wanted).count();
            for id in on_their_way {
                assert!(times(id) >= 2, "{id} was on its way and is not sent again");
            }
        }
        assert_eq!(every_death_announced_once(&mut self.con, NS).await, Ok(all));
    }
}

fn id(request: &Request) -> String {
    request.id().to_owned()
}

/// The ids under which each entry's death was told.
fn entries(requests: &[Request]) -> BTreeMap<String, BTreeSet<String>> {
    let mut entries: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in requests {
        let body = request.json();
        if body["type"] == "job.dead" {
            let entry = body["data"]["entry_id"].as_str().unwrap().to_owned();
            entries.entry(entry).or_default().insert(id(request));
        }
    }
    entries
}

async fn ends_in_time(mut sexton: Sexton) {
    let told = monotonic();
    sexton.process.terminate();
    assert_eq!(sexton.process.end_within(SOON).await.code(), Some(0));
    assert!(told.elapsed() < GRACE, "{:?}", told.elapsed());
    sexton.process.says("sexton has stopped").await;
}

#[tokio::test]
async fn with_receivers_that_do_not_answer_it_ends_in_time_and_the_next_goes_on_at_once() {
    // A lease that nobody could wait out.
    let (mut scene, leader) = Scene::set("60s").await;
    let next = Sexton::run(&scene.config);
    next.process.says("standing by").await;
    ends_in_time(leader).await;
    let gone = monotonic();
    next.process.says("\"leading\"").await;
    assert!(gone.elapsed() < Duration::from_secs(1), "{:?}", gone.elapsed());
    let on_their_way = scene.on_their_way();
    scene.goes_on(&next, &on_their_way).await;
}

#[tokio::test]
async fn killed_right_after_it_was_told_to_stop_it_loses_nothing() {
    let (mut scene, mut leader) = Scene::set("1s").await;
    leader.process.terminate();
    tokio::time::sleep(Duration::from_millis(1)).await;
    leader.process.kill();
    let on_their_way = scene.on_their_way();
    let next = Sexton::run(&scene.config);
    scene.goes_on(&next, &on_their_way).await;
}

#[tokio::test]
async fn a_signal_that_comes_twice_is_one_and_a_second_one_later_ends_it_at_once() {
    let (mut scene, mut leader) = Scene::set("1s").await;
    leader.process.terminate();
    leader.process.interrupt();
    leader.process.says("told to stop: finishing").await;
    // Longer than one signal takes to come twice, and much less than what is on its way gets.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(leader.process.ended(), None, "it waits for what is on its way");
    let told = monotonic();
    leader.process.terminate();
    assert_eq!(leader.process.end().await.code(), Some(1));
    assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
    let on_their_way = scene.on_their_way();
    let next = Sexton::run(&scene.config);
    scene.goes_on(&next, &on_their_way).await;
}

#[tokio::test]
async fn while_redis_hangs_everybody_ends_in_time() {
    let (mut scene, leader) = Scene::set("3s").await;
    let standby = Sexton::run(&scene.config);
    standby.process.says("standing by").await;
    scene.redis.freeze();
    // This one hangs at its very first look at the lease.
    let newcomer = Sexton::run(&scene.config);
    newcomer.process.says("sexton is up").await;
    tokio::join!(ends_in_time(leader), ends_in_time(standby), ends_in_time(newcomer));
    scene.redis.thaw();
    let on_their_way = scene.on_their_way();
    let next = Sexton::run(&scene.config);
    scene.goes_on(&next, &on_their_way).await;
}

#[tokio::test]
async fn in_the_middle_of_a_large_backlog_it_ends_in_time_and_loses_nothing() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..20_000).await;
    let config = config(&redis, &[], "60s");
    let leader = Sexton::run(&config);
    eventually("something is committed", SOON, || {
        let mut con = con.clone();
        async move {
            let deaths: Option<u64> = con.hget(format!("{{{NS}}}:sexton:state"), "deaths").await.unwrap();
            deaths.filter(|deaths| *deaths > 0)
        }
    })
    .await;
    ends_in_time(leader).await;
    let _next = Sexton::run(&config);
    eventually("everything is announced, once", SOON, || {
        let mut con = con.clone();
        async move { (every_death_announced_once(&mut con, NS).await == Ok(20_000)).then_some(()) }
    })
    .await;
}

/// A client that has asked for a page of a thousand entries, and whose side of the connection holds next to nothing: the
/// answer is under way until it is read.
async fn asked(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET /api/v1/dead-letters?limit=1000 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn an_answer_under_way_arrives_whole_and_one_that_nobody_reads_holds_up_nothing() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    bury_many(&mut con, NS, 0..1_000).await;
    let config = config(&redis, &[], "60s");
    for reads in [true, false] {
        let mut sexton = Sexton::run(&config);
        sexton.process.says("\"leading\"").await;
        let mut client = asked(sexton.http().await.0).await;
        let mut answer = vec![0; 1_000];
        client.read_exact(&mut answer).await.unwrap();
        let told = monotonic();
        sexton.process.terminate();
        // The lease does not wait for a client.
        sexton.process.says("the lease is given up").await;
        if reads {
            client.read_to_end(&mut answer).await.unwrap();
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let page: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(page["items"].as_array().unwrap().len(), 1_000);
        }
        assert_eq!(sexton.process.end().await.code(), Some(0));
        assert!(told.elapsed() < GRACE, "{:?}", told.elapsed());
    }
}

/// What a container's runtime does: the command is process number 1 of its own.
fn as_number_one(folder: &TempDir) -> Process {
    let mut command = Command::new("unshare");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_sexton"), "run", "-c"]);
    Process::start(command.arg(folder.path().join("sexton.yaml")))
}

/// The command itself, once it catches SIGTERM.
async fn number_one(unshare: &Process) -> u32 {
    let pid = unshare.pid();
    eventually("it catches SIGTERM", SOON, || async move {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child: u32 = children.trim().parse().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught >> (15 - 1) & 1 == 1).then_some(child)
    })
    .await
}

#[tokio::test]
async fn as_process_number_one_it_stops_in_order_even_before_it_has_read_its_configuration() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let config = config(&redis, &[], "60s");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sexton.yaml");
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    let mut early = as_number_one(&folder);
    // It waits for its configuration, for nobody writes it.
    let pid = number_one(&early).await;
    signal(pid, "TERM");
    let writing = tokio::task::spawn_blocking({
        let (file, config) = (file.clone(), config.clone());
        move || std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all(config.as_bytes()).unwrap()
    });
    writing.await.unwrap();
    assert_eq!(early.end_within(GRACE).await.code(), Some(0));
    assert!(!early.shown(Stream::Err).iter().any(|line| line.contains("\"leading\"")));

    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &config).unwrap();
    let mut later = as_number_one(&folder);
    later.says("\"leading\"").await;
    signal(number_one(&later).await, "TERM");
    assert_eq!(later.end_within(GRACE).await.code(), Some(0));
    assert!(!con.exists::<_, bool>(format!("{{{NS}}}:sexton:lease")).await.unwrap(), "the lease is given up");
}
