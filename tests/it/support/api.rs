//! A client of the API: one request a connection, everything of the answer at hand.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use serde_json::Value;

use super::{SOON, eventually, process::Http};

/// The token of [`CONFIGURED`], called `default`.
pub(crate) const TOKEN: &str = "0123456789abcdef-default";
/// Of the one called `ci`.
pub(crate) const CI_TOKEN: &str = "0123456789abcdef-ci";
/// For one exchange: the API itself gives up after 30 s.
const EXCHANGE: Duration = Duration::from_secs(40);

/// A request to make.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Ask {
    /// `method /api/v1{path}`.
    pub(crate) fn new(method: &str, path: &str) -> Ask {
        Ask { method: method.to_owned(), path: format!("/api/v1{path}"), headers: Vec::new(), body: None }
    }

    /// `GET`.
    pub(crate) fn get(path: &str) -> Ask {
        Ask::new("GET", path)
    }

    /// `POST` with this JSON, by the bearer of the token called `default`.
    pub(crate) fn post(path: &str, body: &Value) -> Ask {
        Ask::new("POST", path).bearer(TOKEN).header("content-type", "application/json").body(&body.to_string())
    }

    /// With a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a token.
    pub(crate) fn bearer(self, token: &str) -> Ask {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// With a body.
    pub(crate) fn body(mut self, body: &str) -> Ask {
        self.body = Some(body.as_bytes().to_vec());
        self
    }

    /// What is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: sexton\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON, if the status is this one; fails the test if not.
    pub(crate) fn with(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Reads one that a server has sent to the end.
    pub(crate) fn read(bytes: &[u8]) -> Option<Answer> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        };
        Some(Answer { status, headers: lines.filter_map(header).collect(), body: body.to_owned() })
    }
}

impl Http {
    /// Asks, and waits for the whole answer.
    pub(crate) async fn ask(self, ask: Ask) -> Answer {
        let exchange = move || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&self.0, EXCHANGE)?;
            stream.set_read_timeout(Some(EXCHANGE))?;
            stream.write_all(&ask.bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = tokio::task::spawn_blocking(exchange).await.expect("the exchange does not panic");
        let answer = answer.expect("the port answers");
        Answer::read(&answer).unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(&answer)))
    }

    /// Waits until an operation has ended; as it is then.
    pub(crate) async fn ended(self, id: &str) -> Value {
        eventually(&format!("operation {id} ends"), SOON * 3, || async move {
            let operation = self.ask(Ask::get(&format!("/operations/{id}"))).await.with(200);
            (operation["state"] != "running").then_some(operation)
        })
        .await
    }
}

/// What a command of `sexton` prints as JSON.
pub(crate) fn printed(mut command: Command) -> Value {
    let output = command.output().expect("the command can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}
