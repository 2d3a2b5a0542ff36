//! The matrix: each way to install the chart that differs in what is made, rendered once for all tests.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::helm::{NAMESPACE, RELEASE, Workers, chart, documents, helm, said, template, values};

/// A release as Kubernetes would get it.
pub(super) struct Rendered {
    /// As helm prints it.
    pub(super) text: String,
    /// The same, read.
    pub(super) documents: Vec<Value>,
}

/// The longest name of a release that helm takes.
const LONG: &str = "a-release-whose-name-is-as-long-as-that-of-any-can-be";

/// Name, release, arguments; `@NAME` stands for a file of values.
const CASES: &[(&str, &str, &[&str])] = &[
    ("defaults", RELEASE, &[]),
    ("everything", RELEASE, &["@everything"]),
    ("nothing", RELEASE, &["@nothing"]),
    ("sidecar", RELEASE, &["@sidecar"]),
    ("topologies", RELEASE, &["@topologies"]),
    ("five-replicas", RELEASE, &["--set", "replicas=5"]),
    ("one-replica", RELEASE, &["--set", "replicas=1"]),
    ("none-running", RELEASE, &["--set", "replicas=0"]),
    ("named-like-the-chart", "sexton-orders", &[]),
    ("name-override", RELEASE, &["--set", "nameOverride=graves"]),
    ("dotted-name", "shop.eu", &[]),
    ("long-name", LONG, &["@everything", "--set", "fullnameOverride="]),
    ("long-name-sidecar", LONG, &["@sidecar"]),
    ("service-monitor", RELEASE, &["--set", "serviceMonitor.enabled=true", "--set", "service.headless=true"]),
    ("line-only", RELEASE, &["--set", "prometheusRule.enabled=true", "--set", "prometheusRule.groups={sexton-line}"]),
    (
        "runbook-url",
        RELEASE,
        &["--set", "prometheusRule.enabled=true,prometheusRule.runbookBaseUrl=https://a.test/README.md"],
    ),
    ("shipped-rules", RELEASE, &["--set", "shippedRules=true"]),
    ("some-shipped-rules", RELEASE, &["--set", "shippedRules={10-transient,90-leave.yaml}"]),
    ("rules-from-elsewhere", RELEASE, &["--set", "existingRulesConfigMap=rules-of-the-team"]),
    ("user-from-the-cluster", RELEASE, &["--set", "runAsUser=null"]),
    ("account-from-elsewhere", RELEASE, &["--set", "serviceAccount.create=false,serviceAccount.name=workers"]),
    ("recreate", RELEASE, &["--set", "strategy.type=Recreate"]),
    ("network-policy", RELEASE, &["--set", "networkPolicy.enabled=true"]),
    ("closed-off", RELEASE, &["--set-json", r#"networkPolicy={"enabled":true,"egress":{"hooks":{"ports":[]}}}"#]),
    ("tagged", RELEASE, &["--set", "image.registry=registry.example.com:5000/ops/,image.tag=0.1.0-debug"]),
];

/// The arguments of a case.
fn arguments(given: &[&str]) -> Vec<String> {
    let argument = |given: &&str| match given.strip_prefix('@') {
        Some(name) => vec!["-f".to_owned(), values(name)],
        None => vec![(*given).to_owned()],
    };
    given.iter().flat_map(argument).collect()
}

/// Every case by its name.
pub(super) fn all() -> &'static BTreeMap<String, Rendered> {
    static ALL: LazyLock<BTreeMap<String, Rendered>> = LazyLock::new(|| {
        let render = |(name, release, given): &(&str, &str, &[&str])| {
            let given = arguments(given);
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            ((*name).to_owned(), template(&chart(), release, &given).unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        let mut texts: BTreeMap<String, String> = CASES.iter().map(render).collect();
        let workers = Workers::built();
        for (name, more) in [("workers", &[][..]), ("workers-alone", &["--set", "sexton.enabled=false"])] {
            texts.insert(name.to_owned(), template(&workers.chart(), RELEASE, more).unwrap());
        }
        let read = documents(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())), &[]).unwrap();
        let whole = read.into_iter().map(|(name, documents)| {
            let text = texts.remove(&name).unwrap();
            (name, Rendered { text, documents })
        });
        whole.collect()
    });
    &ALL
}

#[test]
fn helm_lint_finds_nothing() {
    let chart = chart().display().to_string();
    for (name, _, given) in CASES {
        let given = arguments(given);
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let linted = said(&helm(&[&["lint", "--strict", "--namespace", NAMESPACE, &chart], &given[..]].concat()));
        linted.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let workers = Workers::built();
    said(&helm(&["lint", "--strict", &workers.chart().display().to_string()])).unwrap();
}
