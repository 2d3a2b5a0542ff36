//! Sentinels: the master changes in the middle of everything.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::{
    check_connects,
    scene::{NS, Scene},
};
use crate::support::{
    SOON,
    checked::{check, config},
    eventually,
    process::{Sexton, Stream},
    redis::{Options, Redis},
    rights,
    sentinels::{MASTER, Sentinel, Watched},
};

/// Jobs at first; each dies and is retried.
const JOBS: u64 = 5_000;
/// What the rest may take once the master has changed, on a busy machine.
const LONG: Duration = Duration::from_secs(90);
/// Of the Sentinels' administrator, and what every Sentinel is told of users.
const LOGIN: &str = "boss:boss@";

/// Servers and Sentinels with users of their own, both with the least rights.
async fn watched() -> Watched {
    let mut more = vec!["--user".to_owned()];
    more.extend(rights::of_sexton(NS));
    more.extend(rights::beyond("role"));
    let asks = rights::of_sentinel().join(" ");
    let lines = format!(
        "user default off\nuser boss on >boss +@all ~* &*\nuser {asks}\n\
                         sentinel sentinel-user boss\nsentinel sentinel-pass boss\n"
    );
    Watched::start(&Options { more, ..Options::default() }, &lines, LOGIN).await
}

fn smallage(watched: &Watched) -> String {
    let pw = rights::PASSWORD;
    format!(
        "{{url: \"redis+sentinel://sexton:{pw}@{}/{MASTER}\", namespace: {NS}, \
         sentinel: {{username: sexton-asks, password: {pw}}}}}",
        watched.hosts()
    )
}

/// Waits until so many replicas have all that was written through this connection.
async fn replicated(con: &mut MultiplexedConnection, replicas: u32) {
    let have: u32 = redis::cmd("WAIT").arg(replicas).arg(10_000).query_async(con).await.unwrap();
    assert!(have >= replicas, "{have} replicas have what was written");
}

#[tokio::test]
async fn a_master_that_is_killed_with_writes_that_no_replica_has() {
    let mut watched = watched().await;
    // The lease outlives the failover: the leader is the one who knows what the ledger was.
    let mut scene = Scene::set(watched.whereabouts(), &smallage(&watched), "20s").await;
    let mut con = watched.master().connect().await;
    scene.enqueue(&mut con, JOBS).await;
    replicated(&mut con, 2).await;
    scene.runs("all have died", JOBS as usize, |seen| !seen.ok).await;
    scene.crew.dependencies.mend("smtp");
    scene.runs("retries", 1_000, |seen| seen.ok).await;

    // From here on nothing reaches the replicas any more.
    let mut cut = redis::pipe();
    cut.cmd("ACL").arg("SETUSER").arg("default").arg("-psync").arg("-sync").ignore();
    cut.cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").ignore();
    let () = cut.query_async(&mut con).await.unwrap();
    let cut = crate::support::workers::now(&mut con).await;
    scene.runs("retries that will be lost", 300, |seen| seen.queued_at() > cut).await;
    watched.master().kill();
    watched.failed_over().await;
    let mut con = watched.master().connect().await;
    scene.enqueue(&mut con, 100).await;
    let picture = scene.settles(&mut con, LONG).await;
    let passed = scene.passes(&picture).await;
    assert!(passed.deaths + passed.retries >= 10_000, "{passed:?}");
    assert!(passed.forgotten > 0, "the master was killed with writes that no replica had");
    assert!(scene.said("the store has lost data"), "the leader says so");
    assert!(scene.losses().await >= 1.0);
    let refused = rights::refused(&mut con).await;
    assert!(refused.is_empty(), "{refused:?}");
    check_connects(&scene.sextons[0]).await;
}

#[tokio::test]
async fn a_failover_that_is_asked_for_in_the_middle_of_everything() {
    let mut watched = watched().await;
    let mut scene = Scene::set(watched.whereabouts(), &smallage(&watched), "1s").await;
    let mut con = watched.master().connect().await;
    scene.enqueue(&mut con, JOBS).await;
    replicated(&mut con, 2).await;
    scene.runs("all have died", JOBS as usize, |seen| !seen.ok).await;
    scene.crew.dependencies.mend("smtp");
    scene.runs("retries", 500, |seen| seen.ok).await;
    // One Sentinel is gone, and the first one of the list: the others tell.
    watched.sentinels[0].kill();
    let mut sentinel = watched.sentinels[1].connect(LOGIN).await.expect("it is there");
    let () = redis::cmd("SENTINEL").arg("FAILOVER").arg(MASTER).query_async(&mut sentinel).await.unwrap();
    watched.failed_over().await;
    let mut con = watched.master().connect().await;
    scene.enqueue(&mut con, 100).await;
    let picture = scene.settles(&mut con, LONG).await;
    // The old master takes writes until it is told, and all of these are lost; by whom depends on the moment.
    let passed = scene.passes(&picture).await;
    assert!(passed.deaths + passed.retries >= 10_000, "{passed:?}");
    let refused = rights::refused(&mut con).await;
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn what_is_wrong_with_sentinels_has_its_name() {
    let watched = watched().await;
    let (hosts, pw) = (watched.hosts(), rights::PASSWORD);
    let master = watched.servers[0].port().unwrap();
    let login = format!("sentinel: {{username: sexton-asks, password: {pw}}}");
    for (smallage, said) in [
        (
            format!("url: \"redis+sentinel://sexton:{pw}@{hosts}/other\", {login}"),
            "the Sentinels know no master other; they know mymaster",
        ),
        (format!("url: \"redis+sentinel://sexton:{pw}@{hosts}/{MASTER}\""), "NOAUTH"),
        (
            format!("url: \"redis+sentinel://sexton:{pw}@{hosts}/{MASTER}\", sentinel: {{username: x, password: y}}"),
            "see `sentinel` in smallage's configuration",
        ),
        (format!("url: \"redis+sentinel://sexton:wrong@{hosts}/{MASTER}\", {login}"), "WRONGPASS"),
        (
            format!("url: \"redis+sentinel://127.0.0.1:1,127.0.0.1:2/{MASTER}\""),
            "no Sentinel answers: 127.0.0.1:1: Connection refused",
        ),
        (format!("url: \"redis+sentinel://127.0.0.1:{master}/{MASTER}\""), "is no Sentinel: unknown command"),
    ] {
        let sexton = Sexton::run(&format!(
            "sources: [{{name: orders, smallage: {{{smallage}, namespace: {NS}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n"
        ));
        sexton.process.says(said).await;
        let shown = sexton.process.shown(Stream::Err).join("\n");
        assert!(!shown.contains(":pw@") && !shown.contains("wrong@"), "{shown}");
    }
}

#[tokio::test]
async fn a_master_that_was_put_down_unseen_is_left() {
    // The master is cut off from the Sentinels, and still answers us: only they know better.
    let mut watched = Watched::start(&Options::default(), "", "").await;
    let url = format!("redis+sentinel://{}/{MASTER}", watched.hosts());
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"{url}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\n"
    ));
    let http = sexton.http().await;
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    let mut old = watched.master().connect().await;
    // Only the Sentinels are refused: they use the default user, and so do the replicas.
    let name = |line: &str| line.split(' ').find_map(|part| part.strip_prefix("name=").map(str::to_owned));
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut old).await.unwrap();
    assert!(clients.lines().filter_map(name).any(|name| name.starts_with("sentinel-")), "{clients}");
    let mut deny = redis::pipe();
    deny.cmd("ACL").arg("SETUSER").arg("default").arg("-ping").arg("-info").arg("-publish").ignore();
    let () = deny.query_async(&mut old).await.unwrap();
    watched.failed_over().await;
    let before = watched.servers[0].port();
    assert_ne!(watched.master().port(), before);
    let mut new = watched.master().connect().await;
    eventually("the new master has the leader", SOON, || {
        let mut new = new.clone();
        async move {
            let lease: Option<String> =
                redis::cmd("GET").arg(format!("{{{NS}}}:sexton:lease")).query_async(&mut new).await.unwrap();
            lease
        }
    })
    .await;
    crate::support::graveyard::bury_many(&mut new, NS, 0..10).await;
    http.metric_is("sexton_dlq_entries", &[], 10.0).await;
}

#[tokio::test]
async fn a_check_tells_of_every_sentinel_that_is_of_no_use() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let master = redis.port().unwrap();
    let [good, locked, ignorant, mut dead] =
        ["", "requirepass other\n", "", ""].map(|more| Sentinel::start(master, false, more));
    let mut con = eventually("the Sentinel answers", SOON, || ignorant.connect("")).await;
    let () = redis::cmd("SENTINEL").arg("REMOVE").arg(MASTER).query_async(&mut con).await.unwrap();
    eventually("the Sentinel answers", SOON, || good.connect("")).await;
    eventually("the Sentinel answers", SOON, || locked.connect(":other@")).await;
    dead.kill();
    let at = |sentinel: &Sentinel| format!("127.0.0.1:{}", sentinel.port);
    let all = [at(&good), at(&locked), at(&ignorant), at(&dead)];
    let checked = check(&config(&format!("redis+sentinel://{}/{MASTER}", all.join(",")), "")).await;
    let counted = format!("1 of 4 Sentinels name 127.0.0.1:{master} as the master {MASTER}");
    assert!(checked.at("ok").contains(&("reach", &counted)), "{}", checked.shown);
    let warned: Vec<&str> =
        checked.at("warning").into_iter().filter(|(about, _)| *about == "reach").map(|(_, said)| said).collect();
    assert_eq!(warned.len(), 3, "{}", checked.shown);
    for (n, said) in [
        format!("the Sentinel {}: NOAUTH", all[1]),
        format!("the Sentinel {} knows no master {MASTER}; it knows none", all[2]),
        format!("the Sentinel {}: Connection refused", all[3]),
    ]
    .iter()
    .enumerate()
    {
        assert!(warned[n].starts_with(said), "{said}: {}", checked.shown);
    }

    let checked = check(&config(&format!("redis+sentinel://{}/{MASTER}", all[0]), "")).await;
    assert!(checked.at("warning").iter().all(|(about, _)| *about != "reach"), "{}", checked.shown);
}
