//! The demonstration's private Redis: in a temporary folder, on a socket, gone with the demonstration however it ends.

use std::{
    fs::DirBuilder,
    io,
    os::unix::{fs::DirBuilderExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;

use crate::clock::monotonic;

/// Names the server goes by; the first one on the PATH is taken.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
/// The oldest major version that smallage, and so Sexton, works with.
const OLDEST: u32 = 7;
/// How long it may take to answer; it takes some 20 ms.
const START_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Keeps the server: a shell that reads from a pipe whose other end only the demonstration holds. When that end closes,
/// be it by a kill, the shell ends the server and removes the folder.
const KEEPER: &str = r#"
folder=$1
shift
"$@" </dev/null >/dev/null 2>&1 &
read -r _
kill -9 $!
wait $!
rm -rf "$folder"
"#;

/// A running private Redis.
#[derive(Debug)]
pub(super) struct Server {
    folder: PathBuf,
    keeper: Child,
}

impl Server {
    /// Starts one and waits until it answers.
    pub(super) async fn start() -> anyhow::Result<Server> {
        let program = find()?;
        let folder = std::env::temp_dir().join(format!("sexton-demo-{:016x}", fastrand::u64(..)));
        DirBuilder::new().mode(0o700).create(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "sexton-demo"])
            .arg(&folder)
            .arg(program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--unixsocket")
            .arg(folder.join("redis.sock"))
            .arg("--dir")
            .arg(&folder)
            .arg("--logfile")
            .arg(folder.join("redis.log"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Of its own group, or Ctrl-C would end it before the demonstration has put everything away.
            .process_group(0)
            .spawn();
        let server = match keeper {
            Ok(keeper) => Server { folder, keeper },
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error).context("cannot start a shell to keep redis-server");
            }
        };
        server.ready().await?;
        Ok(server)
    }

    /// Where it is reached.
    pub(super) fn url(&self) -> String {
        format!("unix://{}", self.folder.join("redis.sock").display())
    }

    /// A folder for whatever else the demonstration needs; it goes with the server.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let client = redis::Client::open(self.url()).context("the temporary folder's name makes no URL")?;
        let deadline = monotonic() + START_WITHIN;
        loop {
            let Err(error) = client.get_multiplexed_async_connection().await else { return Ok(()) };
            if monotonic() >= deadline {
                let log = std::fs::read_to_string(self.folder.join("redis.log")).unwrap_or_default();
                return Err(error).context(format!("the private Redis does not start; its log says:\n{log}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing the pipe is the signal. Waiting takes as long as a kill does, and nobody is served meanwhile.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The server's program, or what to install.
fn find() -> anyhow::Result<&'static str> {
    for program in SERVERS {
        match Command::new(program).arg("--version").output() {
            Ok(told) => {
                let told = String::from_utf8_lossy(&told.stdout).into_owned();
                let major = major_version(&told);
                anyhow::ensure!(
                    major.is_none_or(|major| major >= OLDEST),
                    "{program} is too old: the demonstration needs version {OLDEST} or newer, this is: {}",
                    told.trim()
                );
                return Ok(program);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(format!("cannot run {program}")),
        }
    }
    anyhow::bail!(
        "the demonstration needs redis-server (version {OLDEST} or newer), and there is none on the PATH. Install it: \
         `apt-get install redis-server` (Debian, Ubuntu), `dnf install redis` (Fedora, RHEL), `apk add redis` (Alpine), \
         `brew install redis` (macOS), `pacman -S redis` (Arch); or run `make demo`, which does that for you"
    )
}

/// The major version in `Redis server v=7.0.15 sha=…`; none where the line is unlike that.
fn major_version(told: &str) -> Option<u32> {
    let (_, version) = told.split_once(" v=")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_where_it_is_told() {
        for (told, expected) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1", Some(7)),
            ("Valkey server v=8.1.1 sha=00000000:0", Some(8)),
            ("Redis server v=6.0.16 sha=00000000:0", Some(6)),
            ("some other program 3", None),
            ("", None),
        ] {
            assert_eq!(major_version(told), expected, "{told}");
        }
    }

    #[tokio::test]
    async fn nothing_is_left_behind() {
        let server = Server::start().await.unwrap();
        let (folder, client) = (server.folder.clone(), redis::Client::open(server.url()).unwrap());
        assert!(folder.exists());
        assert!(client.get_connection().is_ok());
        drop(server);
        assert!(!folder.exists());
        assert!(client.get_connection().is_err());
    }
}
