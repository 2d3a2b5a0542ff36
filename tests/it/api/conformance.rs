//! The description of the API is true: tried by a property-based client, schemathesis, and route by route.

use std::{path::Path, process::Command};

use serde_json::Value;

use super::Stage;
use crate::support::api::{Ask, TOKEN};

/// Where `make test` puts it.
const CLIENT: &str = "target/schemathesis/bin/schemathesis";
/// Cases for each operation and phase.
const EXAMPLES: &str = "20";

#[tokio::test]
async fn every_operation_that_is_described_is_served_and_knows_its_parameters() {
    let stage = Stage::with(1).await;
    let description = stage.http.ask(Ask::get("/openapi.json")).await.with(200);
    assert_eq!(description["openapi"], "3.1.0");
    let (mut served, mut ids) = (0, Vec::new());
    for (path, operations) in description["paths"].as_object().unwrap() {
        let path = path.strip_prefix("/api/v1").unwrap();
        let path = path.replace("{source}", "orders").replace("{entry}", &stage.ids[0]).replace("{id}", "0");
        for (method, operation) in operations.as_object().unwrap() {
            // Refused before anything is done.
            let answer =
                stage.http.ask(Ask::new(&method.to_uppercase(), &format!("{path}?x-unknown=1")).bearer(TOKEN)).await;
            assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
            assert_eq!(answer.json()["errors"][0]["parameter"], "x-unknown");
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            let documented = operation["responses"].as_object().unwrap();
            assert!(
                documented.keys().any(|status| status.starts_with('2')) && documented.contains_key("503"),
                "{path}"
            );
            served += 1;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), served > 15), (served, true), "operations have names of their own");
    // Nothing is served beside it: routes come from nowhere but the description, itself apart.
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/api");
    let code: String =
        std::fs::read_dir(api).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(code.matches(".route(").count(), 1);
}

#[tokio::test]
async fn a_property_based_client_finds_nothing_that_breaks_the_description() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join(CLIENT);
    assert!(client.exists(), "schemathesis is not there: `make test` gets it, and so does sh .ci/need schemathesis");
    let stage = Stage::with(200).await;
    let folder = tempfile::tempdir().unwrap();
    let begun =
        stage.http.ask(Ask::post("/dead-letters:retry", &serde_json::json!({"all": true, "dry_run": true}))).await;
    let operation = begun.with(202)["items"][0]["id"].as_str().unwrap().to_owned();
    std::fs::write(folder.path().join("schemathesis.toml"), settings(&stage.ids, &operation)).unwrap();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(client)
            .current_dir(folder.path())
            .arg("--config-file=schemathesis.toml")
            .args(["run", &format!("http://{}/api/v1/openapi.json", stage.http.0), "--no-color", "--seed=1"])
            .args(["-H", &format!("Authorization: Bearer {TOKEN}"), "--max-examples", EXAMPLES, "--workers=2"])
            .output()
            .unwrap()
    });
    let output = output.await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    // It has come to every operation.
    let described = told.lines().find_map(|line| line.trim().strip_prefix("Tested: ")).map(str::to_owned);
    assert!(described.is_some_and(|count| count.parse::<u32>().unwrap() > 15), "{told}");
}

/// What it cannot know: names that are there, and that a filter may be well formed and still be none.
fn settings(ids: &[String], operation: &str) -> String {
    let ids: Vec<Value> = ids.iter().map(|id| Value::from(id.as_str())).collect();
    format!(
        r#"[parameters]
"path.source" = "orders"
"path.entry" = {}
"path.id" = "{operation}"
"query.source" = "orders"
"query.queue" = "*"
"query.task" = "send_*"
"query.error" = "(?i)timed out"
"query.after" = "orders/"
"query.since" = "2h"

[[operations]]
include-path-regex = "dead-letters:"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404"]
"#,
        Value::from(ids)
    )
}
