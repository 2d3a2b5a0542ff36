//! Stores that cannot be reached, or let nobody in.

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use sexton::clock::monotonic;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    checked::{check, config},
    process::{self, Process},
    redis::{Options, Redis},
};

/// A whole check takes no longer than this, on whatever machine; each kind of try has ten seconds.
const BOUND: Duration = Duration::from_secs(35);

#[tokio::test]
async fn what_keeps_us_out_is_told_with_what_to_do() {
    let options = Options { tcp: true, requirepass: Some("s3cret"), maxclients: Some(10), ..Options::default() };
    let mut redis = Redis::with(options).await;
    let port = redis.port().unwrap();
    for (url, said, help) in [
        (format!("redis://:s3cret-not@127.0.0.1:{port}"), "WRONGPASS", "ACL GETUSER default"),
        (format!("redis://anna:s3cret@127.0.0.1:{port}"), "WRONGPASS", "ACL GETUSER anna"),
        ("redis://:s3cret@redis.invalid".to_owned(), "no address is known for its host, redis.invalid", "DNS"),
        ("unix:///s3cret/none.sock".to_owned(), "there is no socket /s3cret/none.sock", "`unixsocket`"),
    ] {
        let checked = check(&config(&url, "")).await;
        let found = checked.one("orders");
        assert_eq!((checked.code, &found["level"], &found["check"]), (69, &"error".into(), &"reach".into()));
        assert!(found["message"].as_str().unwrap().contains(said), "{url}: {found}");
        assert!(found["help"].as_str().unwrap().contains(help), "{url}: {found}");
        assert!(!checked.shown.replace("/s3cret/none.sock", "").contains("s3cret"), "{}", checked.shown);
    }
    // Who says nothing of who it is may connect, and no more.
    let checked = check(&config(&format!("redis://127.0.0.1:{port}"), "")).await;
    let said = "the store refuses us: it wants a password (NOAUTH)";
    assert_eq!((checked.code, &checked.one("orders")["message"]), (69, &said.into()), "{}", checked.shown);
    let mut taken = Vec::new();
    while let Ok(con) = redis.try_connect().await {
        taken.push(con);
    }
    let checked = check(&config(&redis.url(), "")).await;
    assert_eq!(checked.code, 69);
    assert!(checked.shown.contains("maxclients"), "{}", checked.shown);
    drop(taken);
    redis.kill();
    let checked = check(&config(&redis.url(), "")).await;
    let refused = format!("the connection to 127.0.0.1:{port} is refused: nothing listens there");
    assert_eq!((checked.code, &checked.one("orders")["message"]), (69, &refused.into()));
}

#[tokio::test]
async fn a_server_that_hangs_is_not_waited_for_for_ever() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    redis.freeze();
    let mut command = process::command();
    let mut stopped = Process::start(command.args(["check", "--connect", "--smallage", &redis.url()]));
    stopped.says("no alerts").await;
    // Not SIGINT: who starts the tests in the background has their shell ignore it, here as well.
    stopped.terminate();
    assert_eq!(stopped.end().await.signal(), Some(15));
    let began = monotonic();
    let checked = check(&config(&redis.url(), "")).await;
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    assert_eq!(checked.code, 69);
    redis.thaw();
}

/// Answers as a Redis of this version that knows none of our commands.
async fn old_server(listener: TcpListener, version: &'static str) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(BufReader::new(stream), version));
    }
}

async fn serve(mut stream: BufReader<TcpStream>, version: &str) {
    while let Some(words) = command(&mut stream).await {
        let info = format!("# Server\r\nredis_version:{version}\r\nrole:master\r\nmaxmemory:0\r\n");
        let answer = match words[0].as_str() {
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            "TIME" => "*2\r\n$10\r\n1795972370\r\n$1\r\n0\r\n".to_owned(),
            other => format!("-ERR unknown command `{other}`, with args beginning with: \r\n"),
        };
        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The words of one command: an array of texts.
async fn command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut line = async || {
        let mut line = String::new();
        let read = stream.read_line(&mut line).await.ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    };
    let count: usize = line().await?.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        line().await?;
        words.push(line().await?);
    }
    Some(words)
}

#[tokio::test]
async fn a_version_that_is_too_old_is_told_with_the_commands_that_it_lacks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(old_server(listener, "6.2.14"));
    let checked = check(&config(&format!("redis://127.0.0.1:{port}"), "")).await;
    server.abort();
    assert_eq!(checked.code, 69, "{}", checked.shown);
    assert_eq!(checked.one("version")["message"], "it is Redis 6.2.14, which lacks commands that Sexton uses");
    let rights = checked.one("rights");
    assert!(rights["message"].as_str().unwrap().starts_with("it does not know EVALSHA, EVAL, EVALSHA_RO"), "{rights}");
    // Far from this machine's time, which is not that of 2026-11-29.
    assert_eq!(checked.of("clock").len(), 1);
}
