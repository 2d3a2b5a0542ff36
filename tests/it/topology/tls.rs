//! TLS: an authority of one's own, client certificates, names; on one server, behind Sentinels and in a Cluster.

use std::path::Path;

use super::check_connects;
use crate::support::{
    certificates::{Authority, Certificate},
    cluster::Cluster,
    graveyard::bury_many,
    process::{Http, Sexton, Stream},
    redis::{Options, Redis, free_port},
    sentinels::{MASTER, Watched},
};

const NS: &str = "lrs";

/// The arguments of a server that speaks TLS with this certificate; `clients` is `yes` where it wants one of clients.
fn speaks_tls(authority: &Authority, own: &Certificate, clients: &str) -> Vec<String> {
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let words = [
        ("--tls-cert-file", path(&own.cert)),
        ("--tls-key-file", path(&own.key)),
        ("--tls-ca-cert-file", path(&authority.ca())),
        ("--tls-auth-clients", clients.to_owned()),
    ];
    words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// A server that speaks nothing but TLS to who comes from outside, and its port.
async fn server(authority: &Authority, own: &Certificate, clients: &str) -> (Redis, u16) {
    let port = free_port();
    let mut more = speaks_tls(authority, own, clients);
    more.extend(["--tls-port".to_owned(), port.to_string()]);
    (Redis::with(Options { more, ..Options::default() }).await, port)
}

fn sexton(url: &str, tls: &str) -> Sexton {
    Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"{url}\", namespace: {NS}, tls: {{{tls}}}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\nlease: {{ttl: 1s}}\nsample_every: 200ms\n"
    ))
}

fn pem(name: &str, path: &Path) -> String {
    format!("{name}: {}", path.display())
}

fn pair(certificate: &Certificate) -> String {
    format!("{}, {}", pem("cert", &certificate.cert), pem("key", &certificate.key))
}

/// It leads, and announces.
async fn works(redis: &Redis, http: Http, from: u64) {
    http.metric_is("sexton_leader", &[], 1.0).await;
    http.metric_is("sexton_ingest_lag_entries", &[], 0.0).await;
    let before = http.metric("sexton_jobs_dead_total", &[]).await.unwrap_or_default();
    bury_many(&mut redis.connect().await, NS, from..from + 10).await;
    http.metric_is("sexton_jobs_dead_total", &[], before + 10.0).await;
}

#[tokio::test]
async fn an_authority_and_a_name_of_ones_own() {
    let authority = Authority::new();
    let (redis, port) = server(&authority, &authority.sign("server", &["localhost"]), "no").await;
    let ca = pem("ca", &authority.ca());
    works(&redis, sexton(&format!("rediss://localhost:{port}"), &ca).http().await, 0).await;
    // The certificate is for another name than the one it is reached by.
    works(
        &redis,
        sexton(&format!("rediss://127.0.0.1:{port}"), &format!("{ca}, server_name: localhost")).http().await,
        10,
    )
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_tls_has_its_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let own = authority.sign("server", &["localhost", "redis.internal"]);
    let (_redis, port) = server(&authority, &own, "yes").await;
    let plain = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let (ca, foreign) = (pem("ca", &authority.ca()), pem("ca", &stranger.ca()));
    let client = pair(&authority.sign("client", &[]));
    let strangers = pair(&stranger.sign("client", &[]));
    let there = format!("rediss://localhost:{port}");
    for (url, tls, said) in [
        (
            there.clone(),
            format!("{foreign}, {client}"),
            "its certificate is signed by no authority that we trust (tls: ca)",
        ),
        (there.clone(), client.clone(), "its certificate is signed by no authority that we trust (tls: ca)"),
        (
            format!("rediss://127.0.0.1:{port}"),
            format!("{ca}, {client}"),
            "for localhost, redis.internal, and not for 127.0.0.1 (tls: server_name)",
        ),
        (there.clone(), format!("{ca}, {client}, server_name: other.internal"), "and not for other.internal"),
        (there.clone(), ca.clone(), "it wants a client certificate (tls: cert, key)"),
        (there.clone(), format!("{ca}, {strangers}"), "it does not take our client certificate"),
        (format!("rediss://127.0.0.1:{}", plain.port().unwrap()), ca.clone(), "it may speak no TLS"),
    ] {
        let sexton = sexton(&url, &tls);
        sexton.process.says(said).await;
    }
    // No TLS where it is wanted.
    let sexton = Sexton::run(&format!(
        "sources: [{{name: orders, smallage: {{url: \"redis://127.0.0.1:{port}\", namespace: {NS}}}}}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n"
    ));
    sexton.process.says("or want TLS (rediss)").await;
}

#[tokio::test]
async fn certificates_that_are_renewed_are_used_from_the_next_connection_on() {
    let authority = Authority::new();
    let (redis, port) = server(&authority, &authority.sign("server", &["localhost"]), "yes").await;
    let client = authority.sign("client", &[]);
    let sexton =
        sexton(&format!("rediss://localhost:{port}"), &format!("{}, {}", pem("ca", &authority.ca()), pair(&client)));
    let http = sexton.http().await;
    works(&redis, http, 0).await;
    // A new authority signs both; the old one is forgotten everywhere.
    let new = Authority::new();
    let (server, own) = (new.sign("server", &["localhost"]), new.sign("client", &[]));
    std::fs::copy(new.ca(), authority.ca()).unwrap();
    std::fs::copy(&own.cert, &client.cert).unwrap();
    std::fs::copy(&own.key, &client.key).unwrap();
    let mut con = redis.connect().await;
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("tls-cert-file").arg(server.cert.to_str()).arg("tls-key-file").arg(server.key.to_str());
    set.arg("tls-ca-cert-file").arg(new.ca().to_str());
    let () = set.query_async(&mut con).await.unwrap();
    let () = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").query_async(&mut con).await.unwrap();
    works(&redis, http, 10).await;
}

#[tokio::test]
async fn behind_sentinels_and_in_a_cluster() {
    let authority = Authority::new();
    let own = authority.sign("server", &["redis.internal"]);
    let client = authority.sign("client", &[]);
    let tls = format!("{}, {}, server_name: redis.internal", pem("ca", &authority.ca()), pair(&client));
    let mut more = speaks_tls(&authority, &own, "yes");
    more.extend(["--tls-replication", "yes"].map(str::to_owned));
    let options = Options { more, tls: true, ..Options::default() };

    let lines: String =
        speaks_tls(&authority, &own, "yes").chunks(2).map(|pair| format!("{} {}\n", &pair[0][2..], pair[1])).collect();
    let mut watched = Watched::start(&options, &format!("{lines}tls-replication yes\n"), "").await;
    let sexton_there = sexton(&format!("rediss+sentinel://{}/{MASTER}", watched.hosts()), &tls);
    let http = sexton_there.http().await;
    works(watched.master(), http, 0).await;
    watched.master().kill();
    watched.failed_over().await;
    works(watched.master(), http, 10).await;
    check_connects(&sexton_there).await;
    drop((sexton_there, watched));

    let mut options = options;
    options.more.extend(["--tls-cluster", "yes"].map(str::to_owned));
    let cluster = Cluster::start(&options, "{lrs}:dlq").await;
    let seed = (cluster.owner() + 1) % 3;
    let sexton_there = sexton(&format!("rediss+cluster://{}", cluster.hosts(&[seed])), &tls);
    works(&cluster.nodes[cluster.owner()], sexton_there.http().await, 0).await;
    let shown = sexton_there.process.shown(Stream::Err).join("\n");
    assert!(!shown.contains("failing"), "{shown}");
    check_connects(&sexton_there).await;
}
