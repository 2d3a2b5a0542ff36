//! Sentinels, a Cluster, another database, TLS and sockets: each refusal with the help for it.

use super::rights::{acl, missing};
use crate::support::{
    certificates::{Authority, Certificate},
    checked::{Checked, check, config},
    cluster::Cluster,
    redis::{Options, Redis, free_port},
    rights,
    sentinels::{MASTER, Watched},
};

const NS: &str = "lrs";

fn config_of(smallage: &str) -> String {
    format!("sources: [{{name: orders, smallage: {{{smallage}}}}}]\nhttp: {{listen: \"127.0.0.1:0\"}}\n")
}

/// The only error says this, and this to do.
fn told(checked: &Checked, said: &str, help: &str) {
    let errors: Vec<_> = checked.of("orders").into_iter().filter(|item| item["level"] == "error").collect();
    assert_eq!((checked.code, errors.len()), (69, 1), "{}", checked.shown);
    assert!(errors[0]["message"].as_str().unwrap().contains(said), "{said}: {}", checked.shown);
    assert!(errors[0]["help"].as_str().unwrap().contains(help), "{help}: {}", checked.shown);
}

#[tokio::test]
async fn behind_sentinels_each_refusal_names_whose_it_is() {
    let mut more = vec!["--user".to_owned()];
    more.extend(rights::of_sexton(NS));
    let asks = rights::of_sentinel().join(" ");
    let lines = format!(
        "user default off\nuser boss on >boss +@all ~* &*\nuser {asks}\nuser dumb on >pw -@all\n\
         sentinel sentinel-user boss\nsentinel sentinel-pass boss\n"
    );
    let mut watched = Watched::start(&Options { more, ..Options::default() }, &lines, "boss:boss@").await;
    let (hosts, pw) = (watched.hosts(), rights::PASSWORD);
    let login = |user: &str, password: &str| format!("sentinel: {{username: {user}, password: {password}}}");
    let ours = login("sexton-asks", pw);
    let url = |master: &str| format!("url: \"redis+sentinel://sexton:{pw}@{hosts}/{master}\"");
    for (smallage, said, help) in [
        (format!("{}, {ours}", url("other")), "they know mymaster", "name one that they know at the end of `url`"),
        (format!("{}, {}", url(MASTER), login("sexton-asks", "no")), "WRONGPASS", "mend sentinel: { username"),
        (url(MASTER), "NOAUTH", "ACL GETUSER default"),
        (
            format!("{}, {}", url(MASTER), login("dumb", pw)),
            "NOPERM",
            "on each Sentinel: ACL SETUSER dumb +sentinel|get-master-addr-by-name",
        ),
        (format!("{}, {ours}", url(MASTER)), "'role'", "ACL SETUSER sexton +role"),
        (format!("url: \"redis+sentinel://127.0.0.1:1/{MASTER}\""), "no Sentinel answers", "start the Sentinels"),
    ] {
        told(&check(&config_of(&smallage)).await, said, help);
    }
    let mut con = watched.master().connect().await;
    acl(&mut con, "SETUSER sexton +role +info").await;
    let checked = check(&config_of(&format!("{}, {ours}", url(MASTER)))).await;
    assert_eq!((checked.code, missing(&checked)), (0, vec![]), "{}", checked.shown);
    let checked = check(&config_of(&format!("{}, {ours}", url(&format!("{MASTER}/3"))))).await;
    told(&checked, "'select'", "ACL SETUSER sexton +select");

    // One of them, as if it were the Redis.
    let sentinel = hosts.split(',').next().unwrap();
    let checked = check(&config(&format!("redis://boss:boss@{sentinel}"), "")).await;
    told(&checked, "this is a Sentinel", "redis+sentinel://");
    assert_eq!(checked.of("orders").len(), 1, "{}", checked.shown);
}

#[tokio::test]
async fn in_a_cluster_its_right_is_named_and_one_node_of_it_is_told() {
    let mut more = vec!["--user".to_owned()];
    more.extend(rights::of_sexton(NS));
    let cluster = Cluster::start(&Options { more, ..Options::default() }, "{lrs}:dlq").await;
    let owner = cluster.owner();
    let others: Vec<usize> = (0..3).filter(|n| *n != owner).collect();
    for node in &cluster.nodes {
        acl(&mut node.connect().await, "SETUSER sexton +info").await;
    }
    let listed = format!("redis+cluster://sexton:{}@{}", rights::PASSWORD, cluster.hosts(&others));
    let checked = check(&config(&listed, "")).await;
    told(&checked, "CLUSTER SLOTS", "ACL SETUSER sexton +cluster|slots");
    assert_eq!(missing(&checked), ["+cluster|slots"]);
    for node in &cluster.nodes {
        acl(&mut node.connect().await, "SETUSER sexton +cluster|slots").await;
    }
    let checked = check(&config(&listed, "")).await;
    assert_eq!((checked.code, missing(&checked)), (0, vec![]), "{}", checked.shown);

    let checked = check(&config(&format!("redis://{}", cluster.hosts(&[owner])), "")).await;
    assert_eq!(checked.code, 0, "{}", checked.shown);
    let warned = checked.at("warning");
    assert!(warned.iter().any(|(_, said)| said.starts_with("this is one node of a Cluster")), "{}", checked.shown);
    let checked = check(&config(&format!("redis://{}", cluster.hosts(&others[..1])), "")).await;
    told(&checked, "(MOVED)", "name the Cluster in `url`");
    assert_eq!(checked.of("dlq").len() + checked.of("ledger").len(), 0, "{}", checked.shown);

    let alone = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let checked = check(&config(&format!("redis+cluster://127.0.0.1:{}", alone.port().unwrap()), "")).await;
    let warned = checked.at("warning");
    assert!(warned.iter().any(|(_, said)| said.starts_with("this is no Cluster")), "{}", checked.shown);
}

#[tokio::test]
async fn a_database_and_a_socket_are_looked_for_where_the_url_says() {
    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let mut con = redis.connect().await;
    let mut words = rights::of_sexton(NS);
    words.push("+info".to_owned());
    rights::grant(&mut con, &words).await;
    let port = redis.port().unwrap();
    let url = format!("redis://sexton:{}@127.0.0.1:{port}", rights::PASSWORD);
    told(&check(&config(&format!("{url}/3"), "")).await, "'select'", "ACL SETUSER sexton +select");
    acl(&mut con, "SETUSER sexton +select").await;
    let checked = check(&config(&format!("{url}/3"), "")).await;
    assert_eq!((checked.code, missing(&checked)), (0, vec![]), "{}", checked.shown);
    assert!(checked.shown.contains(&format!("at redis://127.0.0.1:{port}/3")), "{}", checked.shown);
    let beyond = check(&config(&format!("{url}/99"), "")).await;
    told(&beyond, "it refuses database 99: DB index is out of range", "`databases`");
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.sock");
    told(&check(&config(&format!("unix://{}", none.display()), "")).await, "there is no socket /", "`unixsocket`");
}

#[tokio::test]
async fn what_is_wrong_with_tls_says_which_file_or_name_to_give() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let own = authority.sign("server", &["localhost"]);
    let port = free_port();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let more = [
        ("--tls-cert-file", path(&own.cert)),
        ("--tls-key-file", path(&own.key)),
        ("--tls-ca-cert-file", path(&authority.ca())),
        ("--tls-auth-clients", "yes".to_owned()),
        ("--tls-port", port.to_string()),
    ];
    let more = more.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let _redis = Redis::with(Options { more, ..Options::default() }).await;
    let plain = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let pair = |one: &Certificate| format!("cert: {}, key: {}", path(&one.cert), path(&one.key));
    let (client, strangers) = (pair(&authority.sign("client", &[])), pair(&stranger.sign("client", &[])));
    let ca = format!("ca: {}", path(&authority.ca()));
    let there = format!("rediss://localhost:{port}");
    for (url, tls, said, help) in [
        (&there, format!("ca: {}, {client}", path(&stranger.ca())), "no authority that we trust", "tls: { ca: FILE }"),
        (&there, format!("{ca}, {client}, server_name: other"), "not for other", "tls: { server_name: NAME }"),
        (&there, ca.clone(), "wants a client certificate", "tls: { cert: FILE, key: FILE }"),
        (&there, format!("{ca}, {strangers}"), "does not take our client certificate", "its tls-ca-cert-file"),
        (
            &format!("rediss://127.0.0.1:{}", plain.port().unwrap()),
            ca.clone(),
            "no TLS",
            "write redis instead of rediss",
        ),
    ] {
        told(&check(&config_of(&format!("url: \"{url}\", tls: {{{tls}}}"))).await, said, help);
    }
    told(&check(&config(&format!("redis://127.0.0.1:{port}"), "")).await, "want TLS", "write rediss instead of redis");
}
