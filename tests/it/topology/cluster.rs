//! A Cluster: the slot's master dies, and the slot moves, in the middle of everything.

use std::time::Duration;

use redis::AsyncCommands as _;

use super::{
    check_connects,
    scene::{NS, Scene},
};
use crate::support::{
    cluster::Cluster,
    eventually,
    graveyard::{bury_many, job_id},
    ledger::every_death_announced_once,
    process::{Sexton, Stream},
    redis::Options,
    rights,
};

/// Jobs at first; each dies and is retried.
const JOBS: u64 = 5_000;
/// What the rest may take once the Cluster has changed, on a busy machine.
const LONG: Duration = Duration::from_secs(90);

async fn cluster() -> Cluster {
    let mut more = vec!["--user".to_owned()];
    more.extend(rights::of_sexton(NS));
    more.extend(rights::beyond("cluster|slots"));
    Cluster::start(&Options { more, ..Options::default() }, "{lrs}:dlq").await
}

/// At these nodes, to begin with.
fn smallage(cluster: &Cluster, nodes: &[usize]) -> String {
    format!("{{url: \"redis+cluster://sexton:{}@{}\", namespace: {NS}}}", rights::PASSWORD, cluster.hosts(nodes))
}

#[tokio::test]
async fn the_slots_master_dies_and_then_the_slot_moves() {
    let mut cluster = cluster().await;
    let owner = cluster.owner();
    // One node of the URL, and that is the one which dies.
    let mut scene = Scene::set(cluster.whereabouts(), &smallage(&cluster, &[owner]), "2s").await;
    let mut con = cluster.nodes[owner].connect().await;
    scene.enqueue(&mut con, JOBS).await;
    let have: u32 = redis::cmd("WAIT").arg(1).arg(10_000).query_async(&mut con).await.unwrap();
    assert!(have >= 1);
    scene.runs("all have died", JOBS as usize, |seen| !seen.ok).await;
    scene.crew.dependencies.mend("smtp");
    scene.runs("retries", 500, |seen| seen.ok).await;
    cluster.nodes[owner].kill();
    cluster.failed_over().await;
    let heir = cluster.owner();
    let through = scene.seen().iter().filter(|seen| seen.ok).count();
    scene.runs("retries at the heir", through + 500, |seen| seen.ok).await;

    // To a master that never had it, while everything goes on.
    let target = (0..3).find(|n| *n != owner).unwrap();
    cluster.begin_move(target).await;
    while cluster.move_keys(target, 100).await {}
    cluster.end_move(target).await;
    assert_ne!(cluster.owner(), heir);
    let mut con = cluster.nodes[target].connect().await;
    scene.enqueue(&mut con, 100).await;
    let picture = scene.settles(&mut con, LONG).await;
    let passed = scene.passes(&picture).await;
    assert!(passed.deaths + passed.retries >= 10_000, "{passed:?}");
    for node in cluster.nodes.iter().filter(|node| node.port() != cluster.nodes[owner].port()) {
        let refused = rights::refused(&mut node.connect().await).await;
        assert!(refused.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn while_the_slot_is_on_two_nodes_nothing_is_done_by_halves() {
    let cluster = cluster().await;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
         lease: {{ttl: 60s}}\nsample_every: 200ms\n",
        smallage(&cluster, &[0, 1, 2])
    ));
    let http = sexton.http().await;
    http.metric_is("sexton_dlq_entries", &[], 0.0).await;
    let (source, target) = (cluster.owner(), (cluster.owner() + 1) % 3);
    let mut con = cluster.nodes[source].connect().await;
    bury_many(&mut con, NS, 0..50).await;
    http.metric_is("sexton_jobs_dead_total", &[], 50.0).await;

    cluster.begin_move(target).await;
    // The state is there, the DLQ and the outbox are here: no script that commits has all of its keys anywhere.
    cluster.move_key(target, "{lrs}:sexton:state").await;
    sexton.process.says("the slot moves to another node").await;
    bury_many(&mut con, NS, 50..60).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told: u64 = con.xlen("{lrs}:sexton:outbox:deaths").await.unwrap();
    let job = con.exists::<_, u32>(format!("{{{NS}}}:sexton:job:{}", job_id(50))).await;
    assert_eq!((told, job.unwrap_err().code()), (50, Some("ASK")), "nothing is written here meanwhile");
    assert_eq!(cluster.keys_at(target).await, 1, "nor there");
    while cluster.move_keys(target, 100).await {}
    cluster.end_move(target).await;
    http.metric_is("sexton_up", &[], 1.0).await;
    let mut con = cluster.nodes[target].connect().await;
    http.metric_is("sexton_jobs_dead_total", &[], 60.0).await;
    let deaths: u64 = con.hget(format!("{{{NS}}}:sexton:state"), "deaths").await.unwrap();
    assert_eq!(deaths, 60);
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(60));
    let shown = sexton.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("the store has lost"), "{shown}");
    check_connects(&sexton).await;
}

#[tokio::test]
async fn one_node_of_a_cluster_is_told_from_a_redis_of_its_own() {
    let cluster = cluster().await;
    let other = (cluster.owner() + 1) % 3;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://{}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n",
        cluster.hosts(&[other])
    ));
    sexton.process.says("write redis+cluster:// in the URL").await;
    let gone = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"redis+cluster://127.0.0.1:1,127.0.0.1:2\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n",
    ));
    gone.process.says("no node of the Cluster serves this namespace").await;
    // A replica sends on to its master, and who has no right to see the other nodes is served all the same.
    let mut con = cluster.nodes[cluster.owner()].connect().await;
    let mut deny = redis::cmd("ACL");
    deny.arg("SETUSER").arg("sexton").arg("-cluster|slots");
    let () = deny.query_async(&mut con).await.unwrap();
    let replica = cluster.owner() + 3;
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n",
        smallage(&cluster, &[replica])
    ));
    let http = sexton.http().await;
    eventually("it leads", Duration::from_secs(20), || async move {
        http.metric("sexton_leader", &[]).await.filter(|leads| *leads >= 1.0)
    })
    .await;
}
