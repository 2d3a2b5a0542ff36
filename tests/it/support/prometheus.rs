//! A real Prometheus, private to a test: it scrapes replicas and answers queries as it does for a dashboard.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    SOON, eventually,
    process::{Http, Process},
};

/// One line of a result: labels, and samples by time in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its labels, the name under `__name__`.
    pub(crate) labels: BTreeMap<String, String>,
    /// Times and values, in order; one pair for an instant.
    pub(crate) samples: Vec<(f64, f64)>,
}

impl Series {
    /// A label; empty where it has none, as Prometheus sees it.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// The newest value.
    pub(crate) fn last(&self) -> f64 {
        self.samples.last().expect("a series has a sample").1
    }
}

/// A running Prometheus; gone with its data when dropped.
#[derive(Debug)]
pub(crate) struct Prometheus {
    http: Http,
    targets: Vec<Value>,
    folder: TempDir,
    _process: Process,
}

impl Prometheus {
    /// One that scrapes so often, and has these rules.
    pub(crate) async fn start(interval: Duration, rules: &[PathBuf]) -> Prometheus {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().expect("a temporary folder can be made");
        let every = format!("{}ms", interval.as_millis());
        let config = json!({
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": rules,
            "scrape_configs": [{"job_name": "sexton", "file_sd_configs": [{"files": ["targets.json"]}]}],
        });
        // JSON is YAML.
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string()).expect("a file can be written");
        let mut command = Command::new("prometheus");
        command.arg("--config.file").arg(folder.path().join("prometheus.yml"));
        command.arg("--storage.tsdb.path").arg(folder.path().join("data"));
        command.arg("--web.listen-address=127.0.0.1:0");
        let found = Command::new("prometheus").arg("--version").output();
        assert!(found.is_ok(), "this test needs prometheus on the PATH: `make test` gets it");
        let process = Process::start(&mut command);
        let address = |line: &str| {
            let (_, port) = line.split_once("\"Listening on\" address=127.0.0.1:")?;
            Some(([127, 0, 0, 1], port.trim().parse().ok()?).into())
        };
        let http = Http(process.line("the address it listens on", address).await);
        http.answers("/-/ready", 200).await;
        let prometheus = Prometheus { http, targets: Vec::new(), folder, _process: process };
        prometheus.write_targets();
        prometheus
    }

    /// Scrapes this from now on, with these labels besides.
    pub(crate) fn scrape(&mut self, replica: Http, labels: &[(&str, &str)]) {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        self.targets.push(json!({"targets": [replica.0.to_string()], "labels": labels}));
        self.write_targets();
    }

    /// Scrapes it no more, as when a pod is gone.
    pub(crate) fn forget(&mut self, replica: Http) {
        self.targets.retain(|target| target["targets"][0] != replica.0.to_string());
        self.write_targets();
    }

    fn write_targets(&self) {
        // Moved into place whole: it is read at any moment.
        let whole = self.folder.path().join("targets.new");
        std::fs::write(&whole, Value::from(self.targets.clone()).to_string()).expect("a file can be written");
        std::fs::rename(whole, self.folder.path().join("targets.json")).expect("a file can be moved");
    }

    /// Where its configuration is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What its API answers: the data, or its error.
    pub(crate) async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        let path = format!("/api/v1/{path}?{}", query.finish());
        let http = self.http;
        let (_, body) = eventually("Prometheus answers", SOON, || http.get(&path)).await;
        let mut answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"].take()),
            _ => Err(answer["error"].to_string()),
        }
    }

    /// An expression's value now.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Series>, String> {
        self.ask("query", &[("query", expression)]).await.map(|data| series(&data))
    }

    /// The same at a time in seconds.
    pub(crate) async fn query_at(&self, expression: &str, at: f64) -> Result<Vec<Series>, String> {
        self.ask("query", &[("query", expression), ("time", &format!("{at:.3}"))]).await.map(|data| series(&data))
    }

    /// An expression's values over a time, in seconds, with so many between two of them.
    pub(crate) async fn query_range(
        &self,
        expression: &str,
        from: f64,
        to: f64,
        step: f64,
    ) -> Result<Vec<Series>, String> {
        let [from, to, step] = [from, to, step].map(|seconds| format!("{seconds:.3}"));
        let parameters = [("query", expression), ("start", &from), ("end", &to), ("step", &step)];
        self.ask("query_range", &parameters).await.map(|data| series(&data))
    }

    /// The values of a label among the series of a selector.
    pub(crate) async fn label_values(&self, label: &str, selector: &str) -> Result<Vec<String>, String> {
        let values = self.ask(&format!("label/{label}/values"), &[("match[]", selector)]).await?;
        let values = values.as_array().into_iter().flatten();
        Ok(values.filter_map(|value| value.as_str().map(str::to_owned)).collect())
    }

    /// Its own time, in seconds.
    pub(crate) async fn now(&self) -> f64 {
        self.query("vector(time())").await.expect("it knows the time")[0].last()
    }

    /// Waits until an expression has a result.
    pub(crate) async fn until(&self, expression: &str, within: Duration) -> Vec<Series> {
        eventually(&format!("Prometheus sees {expression}"), within, || async {
            let result = self.query(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"));
            (!result.is_empty()).then_some(result)
        })
        .await
    }
}

/// The lines of a result. A scalar is a line without labels.
fn series(data: &Value) -> Vec<Series> {
    let sample = |pair: &Value| {
        let value = pair[1].as_str().expect("a value is a text").parse().expect("and a number");
        (pair[0].as_f64().expect("a time is a number"), value)
    };
    if data["resultType"] == "scalar" {
        return vec![Series { labels: BTreeMap::new(), samples: vec![sample(&data["result"])] }];
    }
    let one = |line: &Value| Series {
        labels: serde_json::from_value(line["metric"].clone()).expect("labels are texts"),
        samples: match line["values"].as_array() {
            Some(values) => values.iter().map(sample).collect(),
            None => vec![sample(&line["value"])],
        },
    };
    data["result"].as_array().expect("a result has lines").iter().map(one).collect()
}
