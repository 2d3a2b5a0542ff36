//! A scriptable HTTP receiver on a loopback port: it answers each request as told and remembers what it got.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sexton::clock::monotonic;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

/// What the receiver does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Answers with this status, these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, &'static str),
    /// Does the other thing after this long.
    After(Duration, Box<Behaviour>),
    /// Reads the request and never answers.
    Silent,
    /// Sends the status line, then one more header every 20 ms for ever.
    SlowHeaders(u16),
    /// Sends something that is not HTTP, and closes.
    Garbage,
    /// Sends this status and then a body that never ends, as fast as it is read.
    EndlessBody(u16),
    /// Sends this status and a body of which one byte comes and no more.
    StuckBody(u16),
    /// Sends this status and half of the body it promises, and closes.
    HalfBody(u16),
    /// Sends half a status line, and closes.
    HalfStatus,
    /// Closes without a word.
    Close,
}

impl Behaviour {
    /// Just a status.
    pub(crate) fn status(status: u16) -> Behaviour {
        Behaviour::Answer(status, Vec::new(), "")
    }
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// When it had arrived whole.
    pub(crate) at: Instant,
    /// Its first line.
    pub(crate) line: String,
    /// Its headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Its `webhook-id`.
    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id").expect("every request carries a webhook-id")
    }

    /// Its body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("every body is JSON")
    }

    /// Whether one of its Standard Webhooks signatures was made with this secret.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let Some(signatures) = self.header("webhook-signature") else { return false };
        let seconds = self.header("webhook-timestamp").unwrap().parse().unwrap();
        let expected = standardwebhooks::Webhook::new(secret).unwrap().sign(self.id(), seconds, &self.body).unwrap();
        signatures.split(' ').any(|signature| signature == expected)
    }
}

#[derive(Debug)]
struct State {
    requests: Mutex<Vec<Request>>,
    changed: Notify,
    script: Mutex<VecDeque<Behaviour>>,
    otherwise: Mutex<Behaviour>,
    connections: AtomicUsize,
}

/// The receiver; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }
}

impl Receiver {
    /// Answers 204 until told otherwise.
    pub(crate) async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            requests: Mutex::default(),
            changed: Notify::new(),
            script: Mutex::default(),
            otherwise: Mutex::new(Behaviour::status(204)),
            connections: AtomicUsize::new(0),
        });
        let address = listener.local_addr().unwrap();
        let accepting = Some(tokio::spawn(accept(listener, Arc::clone(&state))));
        Receiver { address, state, accepting }
    }

    /// Address and port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/in/s3cret-path?token=s3cret-token", self.address)
    }

    /// Does these things with the next requests, in order.
    pub(crate) fn script(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        lock(&self.state.script).extend(behaviours);
    }

    /// Does this with every request the script says nothing about.
    pub(crate) fn otherwise(&self, behaviour: Behaviour) {
        *lock(&self.state.otherwise) = behaviour;
    }

    /// Refuses connections from now on, and closes those that are open.
    pub(crate) async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // Awaited, so that the listener is closed when this returns.
            let _ = accepting.await;
        }
    }

    /// Accepts connections again, on the same port.
    pub(crate) async fn accept_again(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.state))));
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// What has arrived so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.state.requests).clone()
    }

    /// Waits until what has arrived fulfils the condition, and returns it. Panics after `timeout`.
    pub(crate) async fn until(&self, timeout: Duration, condition: impl Fn(&[Request]) -> bool) -> Vec<Request> {
        let waiting = async {
            loop {
                let changed = self.state.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                {
                    let requests = lock(&self.state.requests);
                    if condition(&requests) {
                        return requests.clone();
                    }
                }
                changed.await;
            }
        };
        match tokio::time::timeout(timeout, waiting).await {
            Ok(requests) => requests,
            Err(_) => {
                let arrived: Vec<_> = self.requests().iter().map(|request| request.id().to_owned()).collect();
                panic!("not within {timeout:?}; arrived: {arrived:?}");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Dropped with this task, and with it every connection.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        state.connections.fetch_add(1, Ordering::Relaxed);
        connections.spawn(serve(stream, Arc::clone(&state)));
    }
}

/// Serves one connection until either side closes it.
async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let behaviour = {
            let next = lock(&state.script).pop_front();
            next.unwrap_or_else(|| lock(&state.otherwise).clone())
        };
        lock(&state.requests).push(request);
        state.changed.notify_waiters();
        if !answer(stream.get_mut(), behaviour).await {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let headers: Vec<(String, String)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(Ok(0), |(_, value)| value.parse());
    let mut body = vec![0; length.ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { at: monotonic(), line: lines.first()?.clone(), headers, body })
}

/// Acts as told; true if the connection can be used further.
async fn answer(stream: &mut TcpStream, mut behaviour: Behaviour) -> bool {
    while let Behaviour::After(delay, then) = behaviour {
        tokio::time::sleep(delay).await;
        behaviour = *then;
    }
    let line = |status: u16| format!("HTTP/1.1 {status} Scripted\r\n");
    let sent = match behaviour {
        Behaviour::After(..) => unreachable!("unwrapped above"),
        Behaviour::Answer(status, headers, body) => {
            let mut text = line(status);
            for (name, value) in headers {
                write!(text, "{name}: {value}\r\n").unwrap();
            }
            // 204 and 304 have no body and say so by their number.
            if !matches!(status, 204 | 304) {
                write!(text, "content-length: {}\r\n", body.len()).unwrap();
            }
            text.push_str("\r\n");
            text.push_str(body);
            return stream.write_all(text.as_bytes()).await.is_ok();
        }
        Behaviour::Silent => std::future::pending().await,
        Behaviour::SlowHeaders(status) => {
            let mut piece = line(status);
            while stream.write_all(piece.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                "x-slow: 1\r\n".clone_into(&mut piece);
            }
            return false;
        }
        Behaviour::Garbage => stream.write_all(b"\x00\x01\xff not HTTP at all\r\n\r\n").await,
        Behaviour::EndlessBody(status) => {
            let head = format!("{}transfer-encoding: chunked\r\n\r\n", line(status));
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                sent = stream.write_all(chunk.as_bytes()).await;
            }
            sent
        }
        Behaviour::StuckBody(status) => {
            let text = format!("{}content-length: 100\r\n\r\nx", line(status));
            if stream.write_all(text.as_bytes()).await.is_err() {
                return false;
            }
            std::future::pending().await
        }
        Behaviour::HalfBody(status) => {
            stream.write_all(format!("{}content-length: 100\r\n\r\nhalf", line(status)).as_bytes()).await
        }
        Behaviour::HalfStatus => stream.write_all(b"HTTP/1.1 20").await,
        Behaviour::Close => Ok(()),
    };
    let _ = sent;
    let _ = stream.shutdown().await;
    false
}
