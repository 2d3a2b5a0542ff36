//! The Helm chart by a real helm: what it renders is valid, safe, and holds together, over a matrix of values.

mod cases;
mod helm;
mod package;
mod refused;
mod running;
mod written;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::{
    cases::all,
    helm::{NAMESPACE, RELEASE, VERSIONS, chart, documents, one, template},
};

/// What is in a list, or nothing.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The pods that documents describe: metadata and specification.
fn pods(documents: &[Value]) -> Vec<(&Value, &Value)> {
    let pod = |document: &'_ Value| match document["kind"].as_str().unwrap() {
        "Deployment" | "Job" => Some("/spec/template"),
        "Pod" => Some(""),
        _ => None,
    };
    let pods = documents.iter().filter_map(|document| Some(document.pointer(pod(document)?).unwrap()));
    pods.map(|pod| (&pod["metadata"], &pod["spec"])).collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|kind| items(&pod[kind]))
}

/// Whether labels have everything that a selector asks for.
fn selects(selector: &Value, labels: &Value) -> bool {
    let asked = selector.as_object().unwrap();
    assert!(!asked.is_empty(), "nothing is asked for: everything would be found");
    asked.iter().all(|(label, value)| labels[label] == *value)
}

#[test]
fn every_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes() {
    let texts = all().iter().map(|(name, case)| (name.as_str(), case.text.as_str()));
    documents(texts, &VERSIONS).unwrap_or_else(|error| panic!("{error}"));
    // The oldest is the one that the chart names, helm says so to older ones, and the newest is no surprise to it.
    let named = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    assert!(named.contains(&format!("kubeVersion: \">={}.0-0\"", VERSIONS[0])), "{named}");
    for version in VERSIONS {
        template(&chart(), RELEASE, &["--kube-version", version]).unwrap();
    }
    let refused = template(&chart(), RELEASE, &["--kube-version", "1.28.15"]).unwrap_err();
    assert!(refused.contains("which is incompatible with Kubernetes v1.28.15"), "{refused}");
}

#[test]
fn what_validates_them_finds_what_is_wrong() {
    let text = &all()["everything"].text;
    for (good, bad, message) in [
        ("runAsNonRoot: true", "runAsNotRoot: true", "runAsNotRoot"),
        ("containerPort: 9700", "containerPort: http", "'http' is not of type 'integer'"),
        ("kind: PodDisruptionBudget", "kind: PodDisruptionBudgets", "Couldn't find schema"),
        ("podMetricsEndpoints:", "podMetricEndpoints:", "podMetricEndpoints"),
        ("keep_firing_for: 15m", "keep_firing_for: a while", "a while"),
        ("replicas: 3", "replicas: 3\n  replicas: 4", "given twice: {'replicas'}"),
    ] {
        assert!(text.contains(good), "{good}");
        let broken = text.replace(good, bad);
        let error = documents([("broken.yaml", broken.as_str())], &VERSIONS).unwrap_err();
        assert!(error.contains(message), "{bad}: {error}");
    }
}

#[test]
fn every_pod_is_restricted_and_has_no_token() {
    let mut seen = 0;
    for (name, case) in all() {
        for document in &case.documents {
            if document["kind"] == "ServiceAccount" {
                assert_eq!(document["automountServiceAccountToken"], false, "{name}");
            }
        }
        for (_, pod) in pods(&case.documents) {
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            for shared in ["hostNetwork", "hostPID", "hostIPC"] {
                assert_eq!(pod[shared], Value::Null, "{name}");
            }
            for volume in items(&pod["volumes"]) {
                let allowed = ["configMap", "secret", "emptyDir"].iter().any(|kind| !volume[kind].is_null());
                assert!(allowed, "{name}: {volume}");
            }
            for container in containers(pod) {
                let security = &container["securityContext"];
                assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
                assert_eq!(security["privileged"], Value::Null, "{name}");
                for port in items(&container["ports"]) {
                    assert_eq!(port["hostPort"], Value::Null, "{name}");
                }
                // A container of Sexton does not lean on a pod that may be somebody else's.
                let both = [&pod["securityContext"], security];
                let must = if container["name"] == "sexton" { &both[1..] } else { &both[..1] };
                for context in must {
                    assert_eq!(context["runAsNonRoot"], true, "{name}");
                    assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}), "{name}");
                    let user = &context["runAsUser"];
                    let set = name != "user-from-the-cluster" && container["name"] == "sexton";
                    assert_eq!((user.as_u64() > Some(0), user.is_null()), (set, !set), "{name}: {user}");
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Every text in a document that stands under a key, with the key.
fn texts<'a>(key: &'a str, value: &'a Value, found: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::String(text) => found.push((key, text)),
        Value::Array(values) => values.iter().for_each(|value| texts(key, value, found)),
        Value::Object(values) => values.iter().for_each(|(key, value)| texts(key, value, found)),
        _ => {}
    }
}

#[test]
fn no_secret_is_in_any_manifest() {
    let mut referred = 0;
    for (name, case) in all() {
        for document in &case.documents {
            assert_ne!(document["kind"], "Secret", "{name}");
        }
        for (_, pod) in pods(&case.documents) {
            for variable in containers(pod).flat_map(|container| items(&container["env"])) {
                let is_plain = ["SEXTON_CONFIG", "REGION"].iter().any(|plain| variable["name"] == *plain);
                assert_eq!(variable["valueFrom"]["secretKeyRef"].is_object(), !is_plain, "{name}: {variable}");
                referred += usize::from(!is_plain);
            }
        }
        // What is a secret in the configuration is the name of a file, or of a variable.
        let configs = case.documents.iter().filter_map(|document| document["data"]["sexton.yaml"].as_str());
        for config in configs.map(helm::parsed) {
            let mut found = Vec::new();
            texts("", &config[0], &mut found);
            for (key, text) in found {
                assert!(!text.contains("://") || !text.contains('@'), "{name}: {text}");
                if ["password", "secret", "token", "routing_key", "Authorization"].contains(&key) {
                    assert!(text.ends_with('}') && text.contains("${"), "{name}: {key}: {text}");
                    referred += 1;
                }
            }
        }
    }
    assert!(referred > 10, "{referred}");
}

#[test]
fn what_refers_to_something_finds_it_and_nothing_else() {
    for (name, case) in all() {
        let documents = &case.documents;
        let watching = |labels: &Value, pod: &Value| {
            // The pods of helm test and of the preflight are Sexton's, too, and are neither scraped nor counted.
            containers(pod).any(|container| container["name"] == "sexton" && container["args"][0] == "run")
                && !labels["app.kubernetes.io/name"].is_null()
        };
        let check = |what: &Value, selector: &Value| {
            for (metadata, pod) in pods(documents) {
                let wanted = watching(&metadata["labels"], pod) || what["kind"] == "NetworkPolicy";
                let found = selects(selector, &metadata["labels"]);
                assert_eq!(found, wanted, "{name}: {} and {}", what["kind"], metadata["labels"]);
            }
        };
        for document in documents {
            let spec = &document["spec"];
            match document["kind"].as_str().unwrap() {
                "Service" => check(document, &spec["selector"]),
                "PodMonitor" | "PodDisruptionBudget" => check(document, &spec["selector"]["matchLabels"]),
                "NetworkPolicy" => check(document, &spec["podSelector"]["matchLabels"]),
                "ServiceMonitor" => {
                    let service = one(documents, "Service", "");
                    assert!(selects(&spec["selector"]["matchLabels"], &service["metadata"]["labels"]));
                    assert_eq!(spec["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
                }
                "Deployment" if name != "workers-alone" && !name.starts_with("workers") => {
                    check(document, &spec["selector"]["matchLabels"]);
                    for constraint in items(&spec["template"]["spec"]["topologySpreadConstraints"]) {
                        let selector = &constraint["labelSelector"]["matchLabels"];
                        if !selector.is_null() {
                            check(document, selector);
                        }
                    }
                }
                _ => {}
            }
        }
        for (_, pod) in pods(documents) {
            the_pod_holds_together(name, pod, documents);
        }
    }
}

/// ConfigMaps, volumes, mounts, accounts, ports.
fn the_pod_holds_together(name: &str, pod: &Value, documents: &[Value]) {
    let volumes: BTreeSet<&str> =
        items(&pod["volumes"]).iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    assert_eq!(volumes.len(), items(&pod["volumes"]).len(), "{name}: a volume is there twice");
    for volume in items(&pod["volumes"]) {
        let from = &volume["configMap"]["name"];
        if from.is_string() && *from != "rules-of-the-team" {
            one(documents, "ConfigMap", from.as_str().unwrap());
        }
    }
    if let Some(account) = pod["serviceAccountName"].as_str()
        && !["default", "workers"].contains(&account)
    {
        one(documents, "ServiceAccount", account);
    }
    for container in containers(pod) {
        let mounts = items(&container["volumeMounts"]);
        let mounted: BTreeSet<&str> = mounts.iter().map(|mount| mount["name"].as_str().unwrap()).collect();
        assert!(mounted.is_subset(&volumes), "{name}: {mounted:?} of {volumes:?}");
        // What is mounted by subPath never changes.
        assert!(mounts.iter().all(|mount| mount["subPath"].is_null()), "{name}");
        if container["name"] == "sexton" {
            assert_eq!(mounted, volumes, "{name}");
            let ports: Vec<&Value> = items(&container["ports"]).iter().map(|port| &port["containerPort"]).collect();
            let served = documents.iter().filter(|document| document["kind"] == "Service");
            for port in served.map(|service| &service["spec"]["ports"][0]["targetPort"]) {
                assert!(ports.is_empty() || ports == [port], "{name}: {port}");
            }
        }
    }
}

#[test]
fn names_are_short_enough_and_each_is_there_once() {
    for (name, case) in all() {
        let mut names = BTreeSet::new();
        for document in &case.documents {
            let metadata = &document["metadata"];
            let its = metadata["name"].as_str().unwrap();
            assert!(its.len() <= 63, "{name}: {its}");
            assert!(names.insert((document["kind"].as_str().unwrap(), its)), "{name}: {its} twice");
            let elsewhere = metadata["labels"].get("grafana_dashboard").is_some();
            assert!(metadata["namespace"] == NAMESPACE || elsewhere, "{name}: {metadata}");
            let labels = metadata["labels"].as_object().unwrap();
            assert!(labels.values().all(|value| value.as_str().unwrap().len() <= 63), "{name}: {labels:?}");
        }
    }
}

/// The kinds that a case makes, each with how many.
fn kinds(name: &str) -> Map<String, Value> {
    let mut kinds = Map::new();
    for document in &all()[name].documents {
        let count = kinds.entry(document["kind"].as_str().unwrap()).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap() + 1);
    }
    kinds
}

#[test]
fn each_way_makes_what_it_needs() {
    let usual = json!({"ConfigMap": 2, "Deployment": 1, "PodDisruptionBudget": 1, "Service": 1, "ServiceAccount": 1,
        "Pod": 1});
    let with = |changes: &[(&str, u64)]| {
        let mut kinds = usual.as_object().unwrap().clone();
        for (kind, count) in changes {
            kinds.insert((*kind).to_owned(), json!(count));
        }
        kinds.retain(|_, count| *count != json!(0));
        kinds
    };
    let dashboards = written::files("rules/grafana", ".json").len() as u64;
    assert!(dashboards > 0);
    let beside = [
        ("ConfigMap", 2 + dashboards),
        ("Deployment", 0),
        ("PodDisruptionBudget", 0),
        ("ServiceAccount", 0),
        ("PodMonitor", 1),
        ("PrometheusRule", 1),
    ];
    let everything =
        [("ConfigMap", 4 + dashboards), ("PodMonitor", 1), ("PrometheusRule", 1), ("NetworkPolicy", 1), ("Job", 1)];
    let nothing = [("PodDisruptionBudget", 0), ("Service", 0), ("ServiceAccount", 0), ("Pod", 0)];
    assert_eq!(kinds("defaults"), with(&[]));
    assert_eq!(kinds("everything"), with(&everything));
    assert_eq!(kinds("nothing"), with(&nothing));
    assert_eq!(kinds("sidecar"), with(&beside));
    assert_eq!(kinds("workers"), with(&[&beside[..], &[("Deployment", 1)]].concat()));
    assert_eq!(kinds("workers-alone"), json!({"Deployment": 1}).as_object().unwrap().clone());
    assert_eq!(kinds("one-replica"), with(&[("PodDisruptionBudget", 0)]));
    assert_eq!(kinds("rules-from-elsewhere"), with(&[("ConfigMap", 1)]));
    assert_eq!(kinds("account-from-elsewhere"), with(&[("ServiceAccount", 0)]));
    assert_eq!(kinds("service-monitor"), with(&[("ServiceMonitor", 1)]));
}

#[test]
fn errands_have_the_account_of_the_pods_where_it_is_there_already() {
    let given = |more: &[&str]| {
        let usual = ["--set", "preflight.enabled=true,priorityClassName=high"];
        let documents = helm::parsed(&template(&chart(), RELEASE, &[&usual, more].concat()).unwrap());
        let pods: Vec<Value> = pods(&documents).iter().map(|(_, pod)| (*pod).clone()).collect();
        let account = |args: &str| {
            let mut found = pods
                .iter()
                .filter(|pod| containers(pod).any(|its| its["args"] == json!(args.split(' ').collect::<Vec<_>>())));
            let pod = found.next().unwrap_or_else(|| panic!("{more:?}: nothing runs {args}"));
            assert_eq!(pod["priorityClassName"], "high", "{more:?}: {args}");
            pod["serviceAccountName"].clone()
        };
        [account("check --connect"), account("check")]
    };
    assert_eq!(given(&[]), [json!("shop-sexton"), Value::Null]);
    assert_eq!(given(&["--set", "serviceAccount.name=mine"]), [json!("mine"), Value::Null]);
    let elsewhere = ["--set", "serviceAccount.create=false,serviceAccount.name=theirs"];
    assert_eq!(given(&elsewhere), [json!("theirs"), json!("theirs")]);
    let beside = ["--set", "mode=sidecar"];
    assert_eq!(given(&beside), [Value::Null, Value::Null]);
    assert_eq!(given(&[beside, elsewhere].concat()), [json!("theirs"), json!("theirs")]);
}

#[test]
fn in_a_workers_pod_it_is_a_native_sidecar_that_workers_do_not_wait_for() {
    let workers = one(&all()["workers"].documents, "Deployment", RELEASE);
    let pod = &workers["spec"]["template"]["spec"];
    let sidecar = &pod["initContainers"][0];
    assert_eq!((&sidecar["name"], &sidecar["restartPolicy"]), (&json!("sexton"), &json!("Always")));
    assert_eq!(sidecar["startupProbe"], Value::Null);
    assert_eq!(sidecar["readinessProbe"]["httpGet"]["path"], "/readyz");
    // Requests and limits of a sidecar count for its pod, for the whole of its life.
    assert!(sidecar["resources"]["requests"].is_object());
    // It is the very container of the Deployment, but for that.
    let alone = one(&all()["defaults"].documents, "Deployment", "");
    let mut alone = alone["spec"]["template"]["spec"]["containers"][0].as_object().unwrap().clone();
    let mut sidecar = sidecar.as_object().unwrap().clone();
    sidecar.remove("restartPolicy");
    alone.remove("startupProbe");
    for (container, mounts) in [(&mut sidecar, 4), (&mut alone, 2)] {
        assert_eq!(items(&container.remove("volumeMounts").unwrap()).len(), mounts);
    }
    assert_eq!(sidecar, alone);
    let monitor = one(&all()["workers"].documents, "PodMonitor", "");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], sidecar["ports"][0]["name"]);
}
