//! What a Redis is told, command by command.

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use super::redis::Redis;

/// What `MONITOR` tells of, one line a command.
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Of everything from now on.
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
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Whether a script made it, and its words, for every command up to this one.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<(bool, Vec<String>)> {
        let mut commands = Vec::new();
        loop {
            let line = self.line().await;
            let (head, words) = line.split_once("] ").unwrap();
            let words = words_of(words);
            if words.get(1).is_some_and(|word| word == last) {
                return commands;
            }
            commands.push((head.ends_with(" lua"), words));
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
