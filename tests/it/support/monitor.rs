//! What Redis is told, command by command, as `MONITOR` shows it.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use super::redis::Redis;

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct Monitored {
    /// When, since 1970, by the server's clock.
    pub(crate) at: Duration,
    /// The address that it came from; of no use for one that a script made.
    pub(crate) from: String,
    /// Whether a script made it.
    pub(crate) by_script: bool,
    /// The command and its arguments.
    pub(crate) words: Vec<String>,
}

impl Monitored {
    /// The command in upper case.
    pub(crate) fn command(&self) -> String {
        self.words.first().map(|word| word.to_uppercase()).unwrap_or_default()
    }
}

/// What `MONITOR` tells of, one line a command.
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// From now on.
    pub(crate) async fn of(redis: &Redis) -> Monitor {
        let mut stream = UnixStream::connect(redis.socket()).await.unwrap();
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut monitor = Monitor(BufReader::new(stream));
        assert_eq!(monitor.line().await, "+OK");
        monitor
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await.unwrap();
        assert!(!line.is_empty(), "the server has closed the connection");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// All commands before the next one whose first argument is this.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<Monitored> {
        let mut commands = Vec::new();
        loop {
            let line = self.line().await;
            let (head, words) = line.split_once("] ").unwrap();
            let (time, from) = head.trim_start_matches('+').split_once(" [").unwrap();
            let words = words_of(words);
            if words.get(1).is_some_and(|word| word == last) {
                return commands;
            }
            let from = from.split_once(' ').map_or(from, |(_, from)| from).to_owned();
            let at = Duration::from_secs_f64(time.parse().unwrap());
            commands.push(Monitored { at, by_script: from == "lua", from, words });
        }
    }
}

/// The quoted words of a line; what is escaped in them stays as it is shown.
fn words_of(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match (quoted, c) {
            (true, '"') if !escaped => {
                words.push(std::mem::take(&mut word));
                quoted = false;
            }
            (true, c) => {
                escaped = c == '\\' && !escaped;
                word.push(c);
            }
            (false, '"') => quoted = true,
            (false, _) => {}
        }
    }
    words
}
