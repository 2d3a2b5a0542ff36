//! Logging in: a Unix socket with a user, a password and a database; passwords that change while everything runs.

use std::{path::Path, time::Duration};

use redis::{AsyncCommands as _, aio::MultiplexedConnection};

use crate::support::{
    graveyard::bury_many,
    process::{Http, Sexton, Stream},
    redis::{Options, Redis},
    rights,
};

const NS: &str = "lrs";
/// Longer than any pause between two tries to connect.
const A_WHILE: Duration = Duration::from_secs(6);

fn config(smallage: &str) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{{smallage}, namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\n"
    )
}

/// Runs a command line.
async fn run(con: &mut MultiplexedConnection, line: &str) -> redis::Value {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query_async(con).await.unwrap()
}

async fn announces(con: &mut MultiplexedConnection, http: Http, from: u64) {
    http.metric_is("sexton_leader", &[], 1.0).await;
    http.metric_is("sexton_ingest_lag_entries", &[], 0.0).await;
    let before = http.metric("sexton_jobs_dead_total", &[]).await.unwrap_or_default();
    bury_many(con, NS, from..from + 10).await;
    http.metric_is("sexton_jobs_dead_total", &[], before + 10.0).await;
}

/// How many tries to log in a server has refused.
async fn refused(con: &mut MultiplexedConnection) -> usize {
    let log = rights::refused(con).await;
    let counts = log.iter().map(|entry| match entry {
        redis::Value::Array(pairs) => match pairs.get(1) {
            Some(redis::Value::Int(count)) => usize::try_from(*count).unwrap(),
            other => panic!("a count: {other:?}"),
        },
        other => panic!("an entry: {other:?}"),
    });
    counts.sum()
}

#[tokio::test]
async fn a_socket_with_a_user_and_a_database() {
    let redis = Redis::with(Options::default()).await;
    let mut con = redis.connect().await;
    rights::grant(&mut con, &rights::of_sexton(NS)).await;
    rights::grant(&mut con, &["sexton".to_owned(), "+select".to_owned()]).await;
    run(&mut con, "SELECT 3").await;
    let socket = redis.socket().display().to_string();
    let pw = rights::PASSWORD;
    for (n, smallage) in [
        format!("url: \"unix://{socket}?db=3&user=sexton&pass={pw}\""),
        format!("url: \"unix://{socket}?db=3\", username: sexton, password: {pw}"),
    ]
    .iter()
    .enumerate()
    {
        let sexton = Sexton::run(&config(smallage));
        announces(&mut con, sexton.http().await, 10 * n as u64).await;
        assert!(!sexton.process.shown(Stream::Err).join("\n").contains("failing"));
    }
    assert_eq!(con.exists::<_, u32>(format!("{{{NS}}}:sexton:state")).await.unwrap(), 1);
    run(&mut con, "SELECT 0").await;
    assert_eq!(con.exists::<_, u32>(format!("{{{NS}}}:sexton:state")).await.unwrap(), 0);
}

struct Rotating {
    redis: Redis,
    con: MultiplexedConnection,
    sexton: Sexton,
    http: Http,
    secrets: tempfile::TempDir,
}

/// A Sexton at work with a password from a file.
async fn rotating() -> Rotating {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    rights::grant(&mut con, &rights::of_sexton(NS)).await;
    let secrets = tempfile::tempdir().unwrap();
    write(secrets.path(), rights::PASSWORD);
    let port = redis.port().unwrap();
    let file = secrets.path().join("password");
    let smallage = format!("url: \"redis://127.0.0.1:{port}\", username: sexton, password_file: {}", file.display());
    let sexton = Sexton::run(&config(&smallage));
    let http = sexton.http().await;
    announces(&mut con, http, 0).await;
    Rotating { redis, con, sexton, http, secrets }
}

/// As Kubernetes does it: a new file takes the old one's place.
fn write(folder: &Path, password: &str) {
    std::fs::write(folder.join("new"), format!("{password}\n")).unwrap();
    std::fs::rename(folder.join("new"), folder.join("password")).unwrap();
}

/// Every connection of that user breaks.
async fn break_connections(con: &mut MultiplexedConnection) {
    run(con, "CLIENT KILL USER sexton").await;
}

#[tokio::test]
async fn a_password_that_rotates_in_the_right_order_goes_unnoticed() {
    let Rotating { redis: _redis, mut con, sexton, http, secrets } = rotating().await;
    // Both count for a while.
    run(&mut con, "ACL SETUSER sexton >newer").await;
    break_connections(&mut con).await;
    announces(&mut con, http, 10).await;
    write(secrets.path(), "newer");
    run(&mut con, "ACL SETUSER sexton <pw").await;
    // Who is in stays in.
    announces(&mut con, http, 20).await;
    break_connections(&mut con).await;
    announces(&mut con, http, 30).await;
    assert_eq!(refused(&mut con).await, 0);
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("WRONGPASS") && !shown.contains("newer"), "{shown}");
}

#[tokio::test]
async fn a_file_that_comes_late_is_waited_for_with_few_tries() {
    let Rotating { redis: _redis, mut con, sexton, http, secrets } = rotating().await;
    run(&mut con, "ACL SETUSER sexton resetpass >newer").await;
    break_connections(&mut con).await;
    sexton.process.says("WRONGPASS").await;
    http.metric_is("sexton_up", &[], 0.0).await;
    let before = refused(&mut con).await;
    tokio::time::sleep(A_WHILE).await;
    let tries = refused(&mut con).await - before;
    assert!((1..20).contains(&tries), "{tries} tries in {A_WHILE:?}");
    bury_many(&mut con, NS, 10..20).await;
    write(secrets.path(), "newer");
    let told = sexton::clock::monotonic();
    http.metric_is("sexton_jobs_dead_total", &[], 20.0).await;
    assert!(told.elapsed() < A_WHILE * 2, "{:?}", told.elapsed());
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("newer"), "{shown}");
}
