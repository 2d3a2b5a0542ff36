//! What the chart writes, in the hands of the real Sexton: laid out as a kubelet does it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{
    cases::all,
    containers,
    helm::{RELEASE, Workers, chart, config_map, one, parsed, template, values},
    items, pods,
};
use crate::support::{
    SOON,
    graveyard::{bury, letter},
    process::{Http, Process, command},
    receiver::Receiver,
    redis::Redis,
};

/// A ConfigMap's volume.
struct Volume {
    folder: PathBuf,
    version: u32,
}

impl Volume {
    fn new(folder: PathBuf) -> Volume {
        std::fs::create_dir_all(&folder).unwrap();
        Volume { folder, version: 0 }
    }

    /// Brings the volume to these files, in the kubelet's order: another version beside the one that is there, one
    /// rename, links for what is new, none for what is gone, and then the old version goes.
    fn hold(&mut self, data: &Map<String, Value>) {
        let at = |name: &str| self.folder.join(name);
        let (old, new) = (format!("..2026_11_30_{}", self.version), format!("..2026_11_30_{}", self.version + 1));
        std::fs::create_dir(at(&new)).unwrap();
        for (name, text) in data {
            std::fs::write(at(&new).join(name), text.as_str().unwrap()).unwrap();
        }
        link(&new, &at("..data_tmp"));
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        for name in data.keys().filter(|name| !at(name).is_symlink()) {
            link(&format!("..data/{name}"), &at(name));
        }
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with("..") && !data.contains_key(&name) {
                std::fs::remove_file(at(&name)).unwrap();
            }
        }
        if self.version > 0 {
            std::fs::remove_dir_all(at(&old)).unwrap();
        }
        self.version += 1;
    }
}

fn link(to: &str, at: &Path) {
    std::os::unix::fs::symlink(to, at).unwrap();
}

/// The container of Sexton with what its pod mounts, below a folder instead of /.
struct Pod {
    folder: TempDir,
    rules: Volume,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Pod {
    /// From a release, for the container whose first argument is this. Every key of every Secret has a value that suits
    /// what it is for.
    fn of(documents: &[Value], first: &str) -> Pod {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
        let pods = pods(documents);
        let all = pods.iter().flat_map(|(_, pod)| containers(pod).map(move |container| (pod, container)));
        let mut sexton = all.filter(|(_, container)| container["name"] == "sexton" && container["args"][0] == first);
        let (pod, container) = sexton.next().unwrap_or_else(|| panic!("no container runs sexton {first}"));
        let mut rules = None;
        for mount in items(&container["volumeMounts"]) {
            let path = mount["mountPath"].as_str().unwrap();
            let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let Some(name) = volume["configMap"]["name"].as_str() else { continue };
            // A relative path: the rules' own folder and the configuration's are beside each other.
            let mut laid = Volume::new(folder.path().join(path.trim_start_matches('/')));
            let mut data = one(documents, "ConfigMap", name)["data"].as_object().unwrap().clone();
            data.values_mut().for_each(|text| *text = below(folder.path(), text.as_str().unwrap()).into());
            laid.hold(&data);
            if path == "/etc/sexton/rules" {
                rules = Some(laid);
            }
        }
        let tls = rcgen::generate_simple_self_signed(vec!["redis.internal".to_owned()]).unwrap();
        let (certificate, own_key) = (tls.cert.pem(), tls.signing_key.serialize_pem());
        let of_tls = [
            ("orders-tls/ca.pem", certificate.as_str()),
            ("orders-tls/client.pem", &certificate),
            ("orders-tls/client-key.pem", &own_key),
        ];
        for (name, key) in SECRETS.iter().copied().chain(of_tls) {
            let file = folder.path().join("run/secrets/sexton").join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, key).unwrap();
        }
        let texts = |list: &Value| items(list).iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        let variable = |variable: &Value| {
            let name = variable["name"].as_str().unwrap();
            let value = variable["value"].as_str().unwrap_or("a-secret-of-some-length");
            let value = if value.starts_with('/') { below(folder.path(), value) } else { value.to_owned() };
            (name.to_owned(), value)
        };
        let env = items(&container["env"]).iter().map(variable).collect();
        let (rules, arguments) = (rules.unwrap(), texts(&container["args"]));
        Pod { folder, rules, arguments, env }
    }

    /// Changes what a key of a Secret holds.
    fn secret(&self, name: &str, value: &str) {
        std::fs::write(self.folder.path().join("run/secrets/sexton").join(name), value).unwrap();
    }

    /// Starts the container; answers once it serves.
    async fn start(&self) -> (Process, Http) {
        let process = Process::start(&mut self.command());
        let address = |line: &str| serde_json::from_str::<Value>(line).ok()?["address"].as_str()?.parse().ok();
        let http = Http(process.line("its address", address).await);
        (process, http)
    }

    /// The container's command.
    fn command(&self) -> Command {
        let mut command = command();
        command.args(&self.arguments).env_clear().envs(&self.env).current_dir(self.folder.path());
        command
    }
}

/// The text with its paths below a folder, and its port any that is free.
fn below(folder: &Path, text: &str) -> String {
    let mut text = text.to_owned();
    for path in ["/etc/sexton", "/run/secrets/sexton"] {
        text = text.replace(path, &format!("{}{path}", folder.display()));
    }
    text.replace("0.0.0.0:9640", "127.0.0.1:0")
}

/// What the Secrets hold that the cases refer to, certificates apart.
const SECRETS: &[(&str, &str)] = &[
    ("orders-redis/url", "redis://127.0.0.1:1"),
    ("orders-redis/password", "a password"),
    ("oncall/secret", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("oncall/new", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("oncall/old", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("chat/url", "https://hooks.slack.com/services/T0/B0/x"),
    ("api/token", "0123456789abcdef0123456789abcdef"),
    ("api/ci", "fedcba9876543210fedcba9876543210"),
];

#[test]
fn sexton_takes_every_configuration_and_every_rule_that_the_chart_writes() {
    let mut checked = 0;
    for (name, case) in all() {
        let runs = pods(&case.documents).iter().any(|(_, pod)| containers(pod).any(|its| its["args"][0] == "run"));
        if !runs || name == "rules-from-elsewhere" {
            continue;
        }
        let mut pod = Pod::of(&case.documents, "run");
        pod.arguments = vec!["check".to_owned()];
        let output = pod.command().output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{name}: {out}{err}");
        let says: &[&str] = match name.as_str() {
            "defaults" => &["source default: smallage namespace lrs at redis://redis:6379", "no hooks", "alert burst"],
            "everything" => &["hook oncall: ", "signed with 2 secrets", "rule dependency-flaky", "alert one-too-many"],
            "topologies" => &["source orders: smallage namespace lrs at redis+sentinel://", "source letters: "],
            "nothing" => &["no rules: nothing is retried", "no alerts"],
            "workers" => &["source orders: ", "hook oncall: ", "rule never-charge-twice: leaves", "alert rising-fast"],
            _ => &["source "],
        };
        for line in says {
            assert!(out.contains(line), "{name}: {out}");
        }
        checked += 1;
    }
    assert!(checked >= 18, "{checked}");
}

#[test]
fn a_preflight_lets_through_what_sexton_takes_and_nothing_else() {
    let checked = |more: &[&str]| {
        let more = [&["--set", "preflight.enabled=true,test.enabled=false"], more].concat();
        let documents = parsed(&template(&chart(), RELEASE, &more).unwrap());
        // What is checked is what will be.
        for what in ["-config", "-rules"] {
            let preflight = one(&documents, "ConfigMap", &format!("-preflight{what}"));
            assert_eq!(preflight["data"].as_object().unwrap(), config_map(&documents, what));
        }
        let pod = Pod::of(&documents, "check");
        assert_eq!(pod.arguments, ["check"]);
        let output = pod.command().output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(checked(&["--set", "shippedRules=true"]).0, 0);
    for (more, says) in [
        (r#"rules={"10.yaml":{"retry":[{"name":"a","min_aeg":"5m"}]}}"#, "/etc/sexton/rules/10.yaml:"),
        (r#"config.sample_every="often""#, "sexton.yaml:"),
    ] {
        let (code, error) = checked(&["--set-json", more]);
        assert!(code == 78 && error.contains(says), "{more}: {code}: {error}");
    }
}

#[tokio::test]
async fn an_upgrade_with_other_rules_is_taken_up_without_a_restart() {
    let release = |more: &[&str]| parsed(&template(&chart(), RELEASE, more).unwrap());
    let before = release(&[]);
    let mut pod = Pod::of(&before, "run");
    let (sexton, http) = pod.start().await;
    // It answers what the kubelet asks.
    let container = &one(&before, "Deployment", "")["spec"]["template"]["spec"]["containers"][0];
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        http.answers(container[probe]["httpGet"]["path"].as_str().unwrap(), 200).await;
    }
    // Files come, change, and go; what they are in for Sexton is one folder.
    let mut upgrade = async |more: &[&str], wanted: &str| {
        let after = release(more);
        assert_eq!(one(&before, "Deployment", ""), one(&after, "Deployment", ""), "nothing restarts");
        pod.rules.hold(config_map(&after, "-rules"));
        let taken = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == wanted).then(|| (line["rules"].clone(), line["added"].clone(), line["removed"].clone()))
        };
        sexton.line(wanted, taken).await
    };
    let retry_rules = "the rules have changed";
    assert_eq!(upgrade(&["-f", &values("rules")], retry_rules).await, (1.into(), "mails".into(), "".into()));
    let (_, _, removed) = upgrade(&["--set", "shippedRules=false"], "the alert rules have changed").await;
    assert!(removed.as_str().unwrap().contains("rising-fast"), "{removed}");
    assert!(pod.rules.folder.join("none.yaml").exists() && !pod.rules.folder.join("50-alerts.yaml").exists());
}

#[tokio::test]
async fn the_sidecars_of_workers_pods_watch_their_dlq_and_hand_over() {
    let (redis, receiver) = (Redis::start().await, Receiver::start().await);
    let hooks = json!([{"name": "oncall", "url": receiver.url(), "secret_file": "/run/secrets/sexton/oncall/secret"}]);
    let more = format!("sexton.config.hooks={hooks}");
    let documents = parsed(&template(&Workers::built().chart(), RELEASE, &["--set-json", &more]).unwrap());
    let mut sidecars = Vec::new();
    for _ in 0..2 {
        let pod = Pod::of(&documents, "run");
        pod.secret("orders-redis/url", &redis.url());
        let (process, http) = pod.start().await;
        // The first one leads before there is a second one.
        let leads = if sidecars.is_empty() { 1.0 } else { 0.0 };
        http.metric_is("sexton_leader", &[("source", "orders")], leads).await;
        sidecars.push((pod, process, http));
    }
    bury(&mut redis.connect().await, "lrs", &letter("lrs", 0)).await;
    let told = receiver.until(SOON, |requests| !requests.is_empty()).await;
    assert!(told[0].is_signed_with(SECRETS.iter().find(|(name, _)| *name == "oncall/secret").unwrap().1));
    let (_pod, mut first, _) = sidecars.remove(0);
    first.terminate();
    let grace = &one(&documents, "Deployment", RELEASE)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    let ended = first.end_within(Duration::from_secs(grace.as_u64().unwrap())).await;
    assert!(ended.success(), "{ended}");
    let (_, _, second) = &sidecars[0];
    second.metric_is("sexton_leader", &[("source", "orders")], 1.0).await;
}

#[tokio::test]
async fn helm_test_tells_what_is_wrong_where_the_pods_run() {
    let (mut redis, receiver) = (Redis::start().await, Receiver::start().await);
    let hooks = json!([{"name": "oncall", "url": receiver.url(), "secret_file": "/run/secrets/sexton/oncall/secret"}]);
    let more = format!("config.hooks={hooks}");
    let checked = async |more: &[&str], url: &str| {
        let documents = parsed(&template(&chart(), RELEASE, more).unwrap());
        let pod = Pod::of(&documents, "check");
        pod.secret("orders-redis/url", url);
        let mut command = pod.command();
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let secrets = r#"secrets=[{"name":"orders-redis"},{"name":"oncall"}]"#;
    let usual = ["-f", &values("sidecar"), "--set-json", secrets, "--set-json", &more];
    let (code, said) = checked(&usual, &redis.url()).await;
    assert!(code == 0 && said.contains("source orders") && said.contains("hook oncall"), "{code}: {said}");
    assert_eq!(receiver.requests()[0].json()["type"], "hook.test");
    // Who would rather not be rung says so.
    let quiet = [&usual[..], &["--set", "test.send=false"]].concat();
    assert_eq!(checked(&quiet, &redis.url()).await.0, 0);
    assert_eq!(receiver.requests().len(), 1);
    let url = redis.url();
    redis.stop();
    let (code, said) = checked(&usual, &url).await;
    assert!(code == 69 && said.contains("error"), "{code}: {said}");
}
