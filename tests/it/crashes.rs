//! The leader is killed again and again while jobs die: nothing is lost, nothing is doubled.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::AsyncCommands as _;

use crate::support::{
    graveyard::{bury_many, dlq},
    ledger::{announced, every_death_announced_once},
    process::Sexton,
    receiver::Receiver,
    redis::{Options, Redis},
};

const NS: &str = "lrs";
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const KILLS: u32 = 50;
const DEATHS: u64 = 20_000;

#[expect(clippy::print_stdout, reason = "the seed is shown when the test fails")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_death_is_lost_or_doubled_however_often_the_leader_is_killed() {
    // Printed on failure: the same seed kills at the same moments, as far as the machine allows.
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let receiver = Receiver::start().await;
    // What is buried after a leader says so and before it has attached is to be announced, too.
    let config = format!(
        "sources: [{{name: orders, smallage: {{url: \"{}\", namespace: {NS}}}}}]\n\
         hooks: [{{name: oncall, url: \"{}\", rate: unlimited, secret: \"{SECRET}\"}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 500ms}}\nannounce_existing: true\n",
        redis.url(),
        receiver.url()
    );
    // Two replicas at any time, so that each kill is followed by a change of leader.
    let mut replicas = [Sexton::run(&config), Sexton::run(&config)];
    leads(&replicas).await;

    let burial = tokio::spawn({
        let mut con = redis.connect().await;
        let pace = Duration::from_millis(40);
        async move {
            for n in (0..DEATHS).step_by(20) {
                bury_many(&mut con, NS, n..n + 20).await;
                tokio::time::sleep(pace).await;
            }
        }
    });
    let mut kills = 0;
    while kills < KILLS {
        let leader = leads(&replicas).await;
        // Anywhere: while it attaches, reads, commits, sends, saves.
        tokio::time::sleep(Duration::from_micros(random.u64(0..400_000))).await;
        replicas[leader].process.kill();
        kills += 1;
        replicas[leader] = Sexton::run(&config);
    }
    burial.await.unwrap();

    let distinct = |requests: &[crate::support::receiver::Request]| {
        requests.iter().map(|request| request.id().to_owned()).collect::<BTreeSet<_>>().len()
    };
    let all = usize::try_from(DEATHS).unwrap();
    let requests = receiver.until(Duration::from_secs(120), |requests| distinct(requests) >= all).await;
    assert_eq!(every_death_announced_once(&mut con, NS).await, Ok(all));
    assert_eq!(announced(&mut con, NS).await.len(), all, "nothing is announced that is not in the DLQ");
    let deaths: u64 = con.hget(format!("{{{NS}}}:sexton:state"), "deaths").await.unwrap();
    assert_eq!(deaths, DEATHS, "the ledger's own count");

    // At least once, and one id for each entry over all tries and all leaders.
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in &requests {
        assert!(request.is_signed_with(SECRET));
        let body = request.json();
        assert_eq!(body["type"], "job.dead");
        ids.entry(body["data"]["entry_id"].as_str().unwrap().to_owned()).or_default().insert(request.id().to_owned());
    }
    let length: usize = con.xlen(dlq(NS)).await.unwrap();
    assert_eq!(ids.len(), length);
    let changing: Vec<_> = ids.iter().filter(|(_, ids)| ids.len() != 1).collect();
    assert!(changing.is_empty(), "{changing:?}");
    println!("{} requests for {all} deaths over {kills} kills", requests.len());
}

/// Which of the two leads, once one does.
async fn leads(replicas: &[Sexton; 2]) -> usize {
    crate::support::eventually("a replica leads", crate::support::SOON, || async {
        for (n, replica) in replicas.iter().enumerate() {
            if replica.http().await.metric("sexton_leader", &[]).await == Some(1.0) {
                return Some(n);
            }
        }
        None
    })
    .await
}
