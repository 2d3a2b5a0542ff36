//! From `XADD` on the DLQ to the POST's arrival, against a loop that reads and posts and does nothing else.

use std::{sync::Arc, time::Duration};

use redis::Value;
use sexton::clock::monotonic;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{
    Figure, quantile,
    support::{
        eventually,
        graveyard::{bury, dlq, letter},
        process::Sexton,
        redis::{Options, Redis},
    },
};

const NS: &str = "lrs";
const PER_SECOND: u64 = 200;
const DEATHS: u64 = 2_000;
/// Deaths before those that count, for connections and caches to warm up.
const WARM_UP: u64 = 200;

pub(super) async fn figures() -> Vec<Figure> {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let bare = bare(&redis).await;
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connect().await).await.expect("FLUSHALL works");
    let sexton = sexton(&redis).await;
    let figure = |what: &str, q: f64, most: f64, wanted: &'static str| {
        let (ours, theirs) = (quantile(&sexton, q), quantile(&bare, q));
        Figure {
            what: format!("XADD to the POST's arrival at 200 deaths a second, {what}"),
            measured: format!("{ours:.0} µs"),
            bare: format!("{theirs:.0} µs"),
            result: format!("{:.2} ×", ours / theirs),
            wanted,
            reached: ours / theirs <= most,
        }
    };
    vec![figure("p50", 0.5, 2.0, "≤ 2 ×"), figure("p99", 0.99, 3.0, "≤ 3 ×")]
}

/// Buries at a steady rate and notes when; a record's `dlq_at` carries its number to the other end.
async fn bury_steadily(redis: &Redis) -> Vec<std::time::Instant> {
    let mut con = redis.connect().await;
    let mut beat = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    let mut buried = Vec::new();
    for n in 0..WARM_UP + DEATHS {
        beat.tick().await;
        let record = letter(NS, n);
        buried.push(monotonic());
        bury(&mut con, NS, &record).await;
    }
    buried
}

/// Sorted times from burial to arrival, the warm-up left out.
fn delays(buried: &[std::time::Instant], arrived: &[std::time::Instant]) -> Vec<Duration> {
    assert_eq!(buried.len(), arrived.len(), "every death arrives once");
    let mut delays: Vec<Duration> =
        buried.iter().zip(arrived).skip(usize::try_from(WARM_UP).expect("small")).map(|(b, a)| *a - *b).collect();
    delays.sort();
    delays
}

type Arrivals = Arc<std::sync::Mutex<Vec<std::time::Instant>>>;

/// A receiver that notes when a request has arrived whole and answers 200. Deaths come five milliseconds apart, so the
/// order of arrival is the order of burial.
async fn receive() -> (String, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has ports");
    let url = format!("http://{}/hook", listener.local_addr().expect("it is bound"));
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&noted)));
        }
    });
    (url, arrivals)
}

async fn serve(mut stream: TcpStream, arrivals: Arrivals) {
    stream.set_nodelay(true).expect("TCP_NODELAY can be set");
    let mut got = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(n) => got.extend_from_slice(&piece[..n]),
        }
        let Some(head) = got.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head_text = String::from_utf8_lossy(&got[..head]).to_lowercase();
        let length = head_text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        if got.len() < head + 4 + length {
            continue;
        }
        arrivals.lock().expect("nobody panics with it").push(monotonic());
        got.clear();
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}

async fn all_arrived(arrivals: &Arrivals) -> Vec<std::time::Instant> {
    let all = usize::try_from(WARM_UP + DEATHS).expect("small");
    eventually("every death arrives", Duration::from_secs(30), || async {
        let arrived = arrivals.lock().expect("nobody panics with it");
        (arrived.len() >= all).then(|| arrived.clone())
    })
    .await
}

async fn bare(redis: &Redis) -> Vec<Duration> {
    let (url, arrivals) = receive().await;
    // A runtime of its own, as Sexton is a process of its own.
    let socket = redis.url();
    let reader = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime can be built").block_on(read_and_post(&socket, &url));
    });
    let buried = bury_steadily(redis).await;
    let delays = delays(&buried, &all_arrived(&arrivals).await);
    reader.join().expect("the bare loop ends");
    delays
}

async fn read_and_post(redis_url: &str, hook_url: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = redis::Client::open(redis_url).expect("the URL is good");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let mut con = client.get_multiplexed_async_connection_with_config(&config).await.expect("Redis is there");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client can be built");
    let mut after = "0-0".to_owned();
    let mut posts = tokio::task::JoinSet::new();
    let mut posted = 0;
    while posted < WARM_UP + DEATHS {
        let answer: Value = redis::cmd("XREAD")
            .arg("COUNT")
            .arg(100)
            .arg("BLOCK")
            .arg(5_000)
            .arg("STREAMS")
            .arg(dlq(NS))
            .arg(&after)
            .query_async(&mut con)
            .await
            .expect("the DLQ can be read");
        let reply: redis::streams::StreamReadReply = redis::from_redis_value(answer).expect("a stream");
        for entry in reply.keys.into_iter().flat_map(|key| key.ids) {
            after.clone_from(&entry.id);
            let body: String = entry.get("dlq_detail").expect("every record has it");
            posts.spawn(http.post(hook_url).body(body).send());
            posted += 1;
        }
    }
    while let Some(answer) = posts.join_next().await {
        answer.expect("a post does not panic").expect("the receiver answers");
    }
}

async fn sexton(redis: &Redis) -> Vec<Duration> {
    let (url, arrivals) = receive().await;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{url}\", rate: unlimited, secret: \"{}\"}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n",
        redis.url(),
        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    ));
    sexton.http().await.metric_is("sexton_leader", &[], 1.0).await;
    let buried = bury_steadily(redis).await;
    delays(&buried, &all_arrived(&arrivals).await)
}
