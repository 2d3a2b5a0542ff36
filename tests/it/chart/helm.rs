//! The real helm, kept from everything of whoever runs the tests, and what it renders as documents.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The oldest Kubernetes that the chart names, and the newest that there are schemas of.
pub(super) const VERSIONS: [&str; 2] = ["1.29", "1.37"];
/// What every release is called, unless a case says otherwise, and where it is.
pub(super) const RELEASE: &str = "shop";
pub(super) const NAMESPACE: &str = "jobs";

/// The repository.
pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The chart.
pub(super) fn chart() -> PathBuf {
    root().join("helm/sexton")
}

/// Values beside these tests.
pub(super) fn values(name: &str) -> String {
    root().join("tests/it/chart/values").join(format!("{name}.yaml")).display().to_string()
}

/// Helm's own folders: none of the user's is looked at.
static HOME: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Runs helm.
pub(super) fn helm(arguments: &[&str]) -> Output {
    let mut command = Command::new(root().join("target/helm/helm"));
    for (variable, folder) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        command.env(variable, HOME.path().join(folder));
    }
    command.env("KUBECONFIG", "/dev/null").args(arguments);
    command.output().expect("helm is there: `make test` gets it, and so does sh .ci/need helm")
}

/// What helm printed, or why it refused.
pub(super) fn said(output: &Output) -> Result<String, String> {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    if output.status.success() { Ok(out) } else { Err(err) }
}

/// `helm template` of a chart with these further arguments.
pub(super) fn template(chart: &Path, release: &str, more: &[&str]) -> Result<String, String> {
    let chart = chart.display().to_string();
    said(&helm(&[&["template", release, &chart, "--namespace", NAMESPACE], more].concat()))
}

/// The documents of each text, by the text's name; with versions held against the schemas of these, too.
pub(super) fn documents<'a>(
    texts: impl IntoIterator<Item = (&'a str, &'a str)>,
    versions: &[&str],
) -> Result<BTreeMap<String, Vec<Value>>, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut files = BTreeMap::new();
    for (name, text) in texts {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        files.insert(file.display().to_string(), name.to_owned());
    }
    let job = folder.path().join("job.json");
    let asked = json!({"files": files.keys().collect::<Vec<_>>(), "versions": versions});
    std::fs::write(&job, asked.to_string()).unwrap();
    let output = Command::new(root().join("target/kubeschemas/bin/python"))
        .arg(root().join("tests/it/chart/manifests.py"))
        .arg(job)
        .output()
        .expect("kubernetes-validate is there: `make test` gets it, and so does sh .ci/need kubeschemas");
    let read: BTreeMap<String, Vec<Value>> = serde_json::from_str(&said(&output)?).unwrap();
    Ok(read.into_iter().map(|(file, documents)| (files[&file].clone(), documents)).collect())
}

/// The documents of one text.
pub(super) fn parsed(text: &str) -> Vec<Value> {
    documents([("one.yaml", text)], &[]).unwrap().remove("one.yaml").unwrap()
}

/// The one document of this kind, and of this name where there is more than one.
pub(super) fn one<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| {
        document["kind"] == kind && document["metadata"]["name"].as_str().is_some_and(|its| its.ends_with(name))
    });
    let one = found.next().unwrap_or_else(|| panic!("there is no {kind} {name}"));
    assert!(found.next().is_none(), "there is more than one {kind} {name}");
    one
}

/// What the ConfigMap whose name ends so holds; that of the preflight apart.
pub(super) fn config_map<'a>(documents: &'a [Value], name: &str) -> &'a Map<String, Value> {
    let of_the_preflight = |document: &&Value| document["metadata"]["annotations"]["helm.sh/hook"].is_null();
    let mut found = documents.iter().filter(of_the_preflight).filter(|document| {
        document["kind"] == "ConfigMap" && document["metadata"]["name"].as_str().is_some_and(|its| its.ends_with(name))
    });
    found.next().unwrap_or_else(|| panic!("there is no ConfigMap {name}"))["data"].as_object().unwrap()
}

/// The chart for workers, with its dependency built in.
pub(super) struct Workers(TempDir);

impl Workers {
    /// As the README says it, in a copy: nothing is written into the repository.
    pub(super) fn built() -> Workers {
        let folder = tempfile::tempdir().unwrap();
        let workers = folder.path().join("helm/examples/workers");
        copy(&root().join("helm/examples/workers"), &workers);
        std::os::unix::fs::symlink(chart(), folder.path().join("helm/sexton")).unwrap();
        said(&helm(&["dependency", "build", &workers.display().to_string()])).unwrap();
        Workers(folder)
    }

    /// Where it is.
    pub(super) fn chart(&self) -> PathBuf {
        self.0.path().join("helm/examples/workers")
    }
}

/// Copies what is part of the repository; what somebody has built beside it is not.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if name == "charts" || name == "Chart.lock" {
            continue;
        }
        if from.is_dir() {
            copy(&from, &to.join(name));
        } else {
            std::fs::copy(&from, to.join(name)).unwrap();
        }
    }
}
