//! What is written into the manifests: the files of the repository, the values, and nothing that changes by itself.

use std::{collections::BTreeMap, process::Command};

use serde_json::{Map, Value};

use super::{
    cases::all,
    helm::{RELEASE, chart, config_map, documents, one, parsed, root, template, values},
    items,
};

/// The files in a folder of the repository whose names end so.
pub(super) fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else { return BTreeMap::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let wanted = names.filter(|name| name.ends_with(ending));
    wanted.map(|name| (name.clone(), std::fs::read_to_string(root().join(folder).join(&name)).unwrap())).collect()
}

fn as_map(files: BTreeMap<String, String>) -> Map<String, Value> {
    files.into_iter().map(|(name, text)| (name, text.into())).collect()
}

/// The rules files.
fn rules(documents: &[Value]) -> &Map<String, Value> {
    config_map(documents, "-rules")
}

#[test]
fn what_the_chart_ships_are_the_files_in_rules() {
    // Not a copy, which would go its own way.
    assert_eq!(std::fs::read_link(chart().join("rules")).unwrap(), std::path::Path::new("../../rules"));
    let shipped = files("rules", ".yaml");
    assert!(shipped.len() >= 5, "{shipped:?}");
    assert_eq!(*rules(&all()["shipped-rules"].documents), as_map(shipped.clone()));
    for (case, names) in [
        ("defaults", &["50-alerts.yaml"][..]),
        ("some-shipped-rules", &["10-transient.yaml", "90-leave.yaml"]),
        ("sidecar", &["50-alerts.yaml"]),
    ] {
        let mut wanted = shipped.clone();
        wanted.retain(|name, _| names.contains(&name.as_str()));
        assert_eq!(*rules(&all()[case].documents), as_map(wanted), "{case}");
    }

    let prometheus = parsed(&files("rules/prometheus", "sexton.yaml")["sexton.yaml"]);
    let groups = |case: &str| one(&all()[case].documents, "PrometheusRule", "")["spec"].clone();
    assert_eq!(groups("everything"), prometheus[0]);
    let names = |case: &str| -> Vec<Value> {
        items(&groups(case)["groups"]).iter().map(|group| group["name"].clone()).collect()
    };
    assert_eq!(names("sidecar"), ["sexton-health"]);
    assert_eq!(names("line-only"), ["sexton-line"]);
    // The templates in their texts are Prometheus's, not Helm's.
    assert!(groups("everything").to_string().contains("{{ $labels.source }}"));

    let dashboards: Vec<&Value> = all()["everything"]
        .documents
        .iter()
        .filter(|document| document["metadata"]["labels"]["grafana_dashboard"] == "yes")
        .collect();
    let found: Map<String, Value> =
        dashboards.iter().flat_map(|dashboard| dashboard["data"].as_object().unwrap().clone()).collect();
    assert_eq!(found, as_map(files("rules/grafana", ".json")));
    for dashboard in dashboards {
        assert_eq!(dashboard["metadata"]["annotations"]["grafana_folder"], "Job workers");
    }
}

#[test]
fn an_alert_links_to_the_section_that_its_runbook_names_where_a_base_is_given() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let anchors: Vec<String> = readme.lines().filter_map(|line| line.strip_prefix('#')).map(anchor).collect();
    let mut spec = one(&all()["runbook-url"].documents, "PrometheusRule", "")["spec"].clone();
    let groups = spec["groups"].as_array_mut().unwrap().iter_mut();
    let mut links = 0;
    for rule in groups.flat_map(|group| group["rules"].as_array_mut().unwrap()) {
        let Some(annotations) = rule.get_mut("annotations").and_then(Value::as_object_mut) else { continue };
        let link = annotations.remove("runbook_url").unwrap_or_else(|| panic!("no link: {annotations:?}"));
        let to = link.as_str().unwrap().strip_prefix("https://a.test/README.md#").unwrap();
        assert!(anchors.iter().any(|anchor| anchor == to), "README.md has no heading {to}");
        let heading = annotations["runbook"].as_str().unwrap().split('"').nth(1).unwrap();
        assert_eq!(to, anchor(heading));
        links += 1;
    }
    assert!(links >= 17, "{links}");
    // And nothing else is another than without a base, where no alert has a link.
    assert_eq!(spec, one(&all()["everything"].documents, "PrometheusRule", "")["spec"]);
    assert!(!spec.to_string().contains("runbook_url"));
}

/// The anchor of a heading, as web pages make it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn promtool_takes_the_rules_as_the_chart_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["everything", "line-only", "sidecar", "workers"] {
        let groups = &one(&all()[case].documents, "PrometheusRule", "")["spec"];
        std::fs::write(folder.path().join("rules.yaml"), groups.to_string()).unwrap();
        let checked =
            Command::new("promtool").args(["check", "rules", "rules.yaml"]).current_dir(folder.path()).output();
        let checked = checked.expect("promtool is there: sh .ci/need promtool");
        assert!(checked.status.success(), "{case}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn the_configuration_is_the_values_and_where_the_rules_are() {
    let values = std::fs::read_to_string(values("everything")).unwrap();
    let mut wanted = parsed(&values).remove(0)["config"].take();
    wanted["rules"] = serde_json::json!(["/etc/sexton/rules"]);
    let written = config_map(&all()["everything"].documents, "-config")["sexton.yaml"].as_str().unwrap();
    assert_eq!(parsed(written), [wanted]);
    // Large numbers stay numbers that Sexton reads.
    assert!(written.contains("cap: 10000000\n") && written.contains("max_entries: 1000000000\n"), "{written}");
}

#[test]
fn rules_of_ones_own_are_files_beside_the_shipped_ones_and_over_them() {
    let documents = &all()["everything"].documents;
    let written = rules(documents);
    assert_eq!(written.len(), files("rules", ".yaml").len() + 2);
    // A text stays as it is, comments and all; a map becomes one.
    let given = parsed(&std::fs::read_to_string(values("everything")).unwrap()).remove(0);
    assert_eq!(written["00-text.yaml"], given["rules"]["00-text.yaml"]);
    assert_eq!(parsed(written["60-map.yml"].as_str().unwrap()), [given["rules"]["60-map.yml"].clone()]);

    let replaced = r#"rules={"50-alerts.yaml":"alerts: []"}"#;
    let text = template(&chart(), RELEASE, &["--set-json", replaced]).unwrap();
    assert_eq!(rules(&parsed(&text))["50-alerts.yaml"], "alerts: []");
    // None at all is said in a way that Sexton takes, so that there may be some later without a restart.
    assert_eq!(rules(&all()["nothing"].documents)["none.yaml"], "retry: []\n");
}

#[test]
fn rules_change_no_pod_and_the_configuration_replaces_them() {
    let pods = |more: &[&str]| {
        let text = template(&chart(), RELEASE, more).unwrap();
        let documents = parsed(&text);
        (one(&documents, "Deployment", "").clone(), rules(&documents).clone())
    };
    let (before, _) = pods(&[]);
    for changed in [&["--set", "shippedRules=true"][..], &["--set", "shippedRules=false"], &["-f", &values("rules")]] {
        let (after, rules) = pods(changed);
        assert_eq!(before, after, "{changed:?}: {rules:?}");
    }
    let checksum = "/spec/template/metadata/annotations/checksum~1sexton-config";
    let (after, _) = pods(&["--set", "config.log.level=debug"]);
    assert_ne!(before.pointer(checksum).unwrap(), after.pointer(checksum).unwrap());
    // The same holds in a worker's pod.
    let worker = one(&all()["workers"].documents, "Deployment", RELEASE);
    assert!(worker.pointer(checksum).unwrap().is_string());
}

/// What comes from rules/ is checked above, and changes on its own; so the golden files only say that it is there. Helms
/// differ in an empty line between documents.
fn without_shipped_texts(text: &str) -> String {
    let trimmed = |line: String| format!("{}\n", line.trim_end());
    let text: String = text.lines().map(|line| trimmed(line.to_owned())).collect();
    let mut text = text.replace("\n\n---\n", "\n---\n");
    let shipped = files("rules", ".yaml").into_iter().chain(files("rules/grafana", ".json"));
    for (name, shipped) in shipped {
        for indent in ["  ", "    "] {
            let indented: String = shipped.lines().map(|line| trimmed(format!("{indent}{line}"))).collect();
            text = text.replace(&indented, &format!("{indent}(the text of rules/…/{name})\n"));
        }
    }
    let mut short = String::new();
    for document in text.split_inclusive("\n---\n") {
        match document.split_once("\n  groups:\n") {
            Some((head, groups)) if document.contains("kind: PrometheusRule\n") => {
                let names = groups.lines().map(|line| line.trim_start().trim_start_matches("- "));
                let names: Vec<&str> = names.filter_map(|line| line.strip_prefix("name: sexton-")).collect();
                let rest = groups.rfind("\n---\n").map_or("", |at| &groups[at..]);
                short.push_str(&format!("{head}\n  groups: (of rules/prometheus, {})\n{rest}", names.join(", ")));
            }
            _ => short.push_str(document),
        }
    }
    format!("{}\n", short.trim_end())
}

#[test]
fn the_main_cases_are_as_their_golden_files() {
    for case in ["defaults", "everything", "nothing", "sidecar", "workers"] {
        let file = root().join("tests/it/chart/golden").join(format!("{case}.yaml"));
        let fresh = without_shipped_texts(&all()[case].text);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &fresh).unwrap();
            continue;
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        let differs = golden.lines().zip(fresh.lines()).enumerate().find(|(_, (golden, fresh))| golden != fresh);
        let same = golden == fresh;
        let why = "if it is meant: UPDATE_GOLDEN=1 cargo test --test it -- chart, and read what has changed";
        assert!(
            same,
            "{} is out of date; {why}. From line {:?} on",
            file.display(),
            differs.map(|(n, lines)| (n + 1, lines))
        );
        // It is still YAML, so a person can read it with what they are used to.
        documents([("golden.yaml", golden.as_str())], &[]).unwrap();
    }
}
