//! The least rights, as README.md lists them: the one place where they stand.

use redis::aio::MultiplexedConnection;

/// The password that takes the place of `PASSWORD`.
pub(crate) const PASSWORD: &str = "pw";

/// The words of README.md's line that begins so, without its `ACL SETUSER`: the user's name first.
fn line(begins: &str, namespace: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let line = readme.lines().find(|line| line.starts_with(begins)).expect("README.md has the line");
    let line = line.replace("PASSWORD", PASSWORD).replace("{lrs}", &format!("{{{namespace}}}"));
    line.split(' ').skip(2).map(str::to_owned).collect()
}

/// What Sexton needs on a Redis, for a user `sexton`: `sexton on >pw …`.
pub(crate) fn of_sexton(namespace: &str) -> Vec<String> {
    line("ACL SETUSER sexton ", namespace)
}

/// What it needs beyond that behind Sentinels, or in a Cluster.
pub(crate) fn beyond(what: &str) -> Vec<String> {
    let mut words = line(&format!("ACL SETUSER sexton +{what}"), "");
    words.remove(0);
    words
}

/// What it needs on a Sentinel, for a user `sexton`.
pub(crate) fn of_sentinel() -> Vec<String> {
    line("ACL SETUSER sexton-asks ", "")
}

/// Gives a user of this server these rights: its name first.
pub(crate) async fn grant(con: &mut MultiplexedConnection, words: &[String]) {
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER");
    for word in words {
        acl.arg(word);
    }
    let () = acl.query_async(con).await.expect("the rights are well formed");
}

/// What a server has refused to anybody so far, a line each.
pub(crate) async fn refused(con: &mut MultiplexedConnection) -> Vec<redis::Value> {
    redis::cmd("ACL").arg("LOG").query_async(con).await.expect("Redis answers")
}
