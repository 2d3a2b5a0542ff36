//! `sexton check --connect` as a program sees it.

use serde_json::Value;
use tempfile::TempDir;

use super::process;

/// What it found.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Its exit code.
    pub(crate) code: i32,
    /// Its findings.
    pub(crate) items: Vec<Value>,
    /// Everything it printed, on either stream.
    pub(crate) shown: String,
}

impl Checked {
    /// The findings about this source or hook, or of this check, that are no mere configuration.
    pub(crate) fn of(&self, name_or_check: &str) -> Vec<&Value> {
        let named = |item: &&Value| item["name"] == name_or_check || item["check"] == name_or_check;
        self.items.iter().filter(|item| item["check"] != "configuration").filter(named).collect()
    }

    /// The only one of them.
    pub(crate) fn one(&self, name_or_check: &str) -> &Value {
        let found = self.of(name_or_check);
        assert_eq!(found.len(), 1, "{name_or_check}: {}", self.shown);
        found[0]
    }

    /// The check and the message of everything at this level.
    pub(crate) fn at(&self, level: &str) -> Vec<(&str, &str)> {
        let at = self.items.iter().filter(|item| item["level"] == level && item["check"] != "configuration");
        at.map(|item| (item["check"].as_str().unwrap(), item["message"].as_str().unwrap())).collect()
    }
}

/// Runs it with this configuration, these arguments and variables.
pub(crate) async fn check_with(config: &str, args: &[&str], variables: &[(&str, &str)]) -> Checked {
    let (code, out, err) = run(config, &[&["--connect", "-o", "json"], args].concat(), variables).await;
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}\n{err}"));
    let items = document["items"].as_array().unwrap().clone();
    for (level, count) in [("error", "errors"), ("warning", "warnings")] {
        let counted = items.iter().filter(|item| item["level"] == level).count();
        assert_eq!(document[count], counted, "{out}");
    }
    for item in &items {
        let (bad, helped) = (item["level"] != "ok", !item["help"].is_null());
        assert_eq!(bad, helped, "what is wrong says what to do: {item}");
    }
    Checked { code, items, shown: format!("{out}{err}") }
}

/// Runs it with this configuration.
pub(crate) async fn check(config: &str) -> Checked {
    check_with(config, &[], &[]).await
}

/// Runs `sexton check` with this configuration: exit code, and what it printed.
pub(crate) async fn run(config: &str, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let folder: TempDir = tempfile::Builder::new().prefix("sexton-").tempdir().unwrap();
    std::fs::write(folder.path().join("sexton.yaml"), config).unwrap();
    let mut command = process::command();
    command.arg("check").arg("-c").arg(folder.path().join("sexton.yaml")).args(args);
    command.envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A configuration with one source at this URL and these hooks (the items of a list in YAML's flow form).
pub(crate) fn config(url: &str, hooks: &str) -> String {
    format!(
        "sources: [{{name: orders, smallage: {{url: \"{url}\"}}}}]\nhooks: [{hooks}]\n\
         http: {{listen: \"127.0.0.1:0\"}}\n"
    )
}
