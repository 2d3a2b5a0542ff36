//! The chart as it is handed on: its package, its dependants, its notes, its versions.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::helm::{NAMESPACE, RELEASE, VERSIONS, Workers, chart, helm, one, parsed, root, said, template, values};

/// What is in an archive: names, in order.
fn names(archive: &Path) -> Vec<String> {
    let listed = Command::new("tar").arg("tzf").arg(archive).output().unwrap();
    assert!(listed.status.success());
    let mut names: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn a_package_carries_the_files_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().display().to_string();
    said(&helm(&["package", &chart().display().to_string(), "--destination", &into])).unwrap();
    let archive = folder.path().join(format!("sexton-{}.tgz", env!("CARGO_PKG_VERSION")));
    let unpacked = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(folder.path()).output().unwrap();
    assert!(unpacked.status.success());
    let packed = folder.path().join("sexton");
    let mut compared = 0;
    for name in names(&archive) {
        let path = folder.path().join(&name);
        assert!(!path.is_symlink(), "{name}");
        if let Some(file) = name.strip_prefix("sexton/rules/") {
            let own = std::fs::read(root().join("rules").join(file)).unwrap();
            assert!(std::fs::read(&path).unwrap() == own, "{name} is not as in rules/");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
    // Tests of rules are of no use there.
    assert!(!names(&archive).iter().any(|name| name.ends_with("_test.yaml")));
    // It makes what the chart makes from the repository.
    let more = ["-f", &values("everything")];
    assert_eq!(template(&packed, RELEASE, &more), template(&chart(), RELEASE, &more));
}

#[test]
fn it_has_a_readme_whose_values_work() {
    let told = said(&helm(&["show", "readme", &chart().display().to_string()])).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for section in ["Deploy with Helm", "Configuration"] {
        assert!(told.contains(&format!("\"{section}\"")), "{told}");
        assert!(readme.contains(&format!("\n## {section}\n")), "{section}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    let values: Vec<&str> = told.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(values.len() > 5, "{told}");
    std::fs::write(&file, values.join("\n")).unwrap();
    template(&chart(), RELEASE, &["-f", &file.display().to_string()]).unwrap();
}

#[test]
fn a_copy_without_its_rules_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-R").arg(chart()).arg(folder.path()).output().unwrap();
    assert!(copied.status.success());
    let copy = folder.path().join("sexton");
    std::fs::remove_file(copy.join("rules")).unwrap();
    let refused = template(&copy, RELEASE, &["--set", "shippedRules=false"]).unwrap_err();
    assert!(refused.contains("has lost its folder rules/"), "{refused}");
}

#[test]
fn workers_charts_are_built_with_no_network_and_leave_the_rest_to_it() {
    let workers = Workers::built();
    let archive = workers.chart().join(format!("charts/sexton-{}.tgz", env!("CARGO_PKG_VERSION")));
    assert!(names(&archive).contains(&"sexton/rules/50-alerts.yaml".to_owned()));
    // Values of a chart above are held against the same schema.
    let refused = template(&workers.chart(), RELEASE, &["--set", "sexton.replica=3"]).unwrap_err();
    assert!(refused.contains("additional properties 'replica' not allowed"), "{refused}");
    // Values for all charts pass.
    template(&workers.chart(), RELEASE, &["--set", "global.team=payments"]).unwrap();
}

#[test]
fn the_versions_are_sextons() {
    let chart = parsed(&std::fs::read_to_string(chart().join("Chart.yaml")).unwrap()).remove(0);
    let workers = root().join("helm/examples/workers/Chart.yaml");
    let workers = parsed(&std::fs::read_to_string(workers).unwrap()).remove(0);
    for version in [&chart["version"], &chart["appVersion"], &workers["dependencies"][0]["version"]] {
        assert_eq!(*version, env!("CARGO_PKG_VERSION"));
    }
}

#[test]
fn every_value_has_a_default_an_explanation_and_a_place_in_the_schema() {
    let text = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    let mut known: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    known.retain(|name| *name != "global");
    let given = parsed(&text).remove(0);
    let mut given: Vec<&str> = given.as_object().unwrap().keys().map(String::as_str).collect();
    given.sort_unstable();
    assert_eq!(given, known);
    // Values that stand together are explained together.
    for paragraph in text.split("\n\n") {
        assert!(paragraph.lines().any(|line| line.trim_start().starts_with('#')), "not explained: {paragraph}");
    }
}

#[test]
fn the_schema_knows_the_sections_of_the_configuration() {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    let known = schema["definitions"]["config"]["properties"].as_object().unwrap();
    let mut known: Vec<&str> = known.keys().map(String::as_str).collect();
    known.sort_unstable();
    let is_key = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let reference = sexton::config::REFERENCE.lines();
    let keys = reference.filter_map(|line| line.strip_prefix('#').unwrap_or(line).split_once(':').map(|(key, _)| key));
    let mut keys: Vec<&str> = keys.filter(is_key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(known, keys);
}

/// What `helm install` would say.
fn notes(more: &[&str]) -> String {
    notes_of(&chart(), more)
}

fn notes_of(chart: &Path, more: &[&str]) -> String {
    let chart = chart.display().to_string();
    let install = ["install", RELEASE, &chart, "--namespace", NAMESPACE, "--dry-run=client"];
    let text = said(&helm(&[&install, more].concat())).unwrap();
    text.split_once("NOTES:\n").unwrap().1.to_owned()
}

#[test]
fn the_notes_say_what_to_do_next() {
    let hint = |name: &str| match name {
        "hooks" => "* No hooks:",
        "retries" => "* No retry rules:",
        "alerts" => "* No alerts:",
        "twice" => "paged twice",
        "scrape" => "* Nothing scrapes",
        "health" => "* Nobody watches Sexton itself",
        "token" => "* No token:",
        "one" => "* One replica:",
        "open" => "* Everybody in the cluster",
        "image" => "from no registry of yours",
        _ => unreachable!("{name}"),
    };
    let hints = ["hooks", "retries", "alerts", "twice", "scrape", "health", "token", "one", "open", "image"];
    let hook = r#"config.hooks=[{"name":"oncall","url":"https://a.example/in"}]"#;
    for (more, wanted) in [
        (&[][..], &["hooks", "retries", "scrape", "token", "open", "image"][..]),
        (&["-f", &values("everything")], &["twice"]),
        (&["-f", &values("nothing")], &["hooks", "retries", "alerts", "scrape", "token", "one", "open", "image"]),
        (&["-f", &values("sidecar")], &["hooks", "retries", "token", "image"]),
        (&["-f", &values("rules")], &["hooks", "scrape", "token", "open", "image"]),
        (&["--set-json", hook, "--set", "shippedRules=true"], &["scrape", "token", "open", "image"]),
        (
            &["--set", "serviceMonitor.enabled=true,shippedRules=false"],
            &["hooks", "retries", "alerts", "health", "token", "open", "image"],
        ),
        (&["--set", "existingRulesConfigMap=a"], &["hooks", "scrape", "token", "open", "image"]),
    ] {
        let text = notes(more);
        for name in hints {
            assert_eq!(text.contains(hint(name)), wanted.contains(&name), "{name} in {more:?}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 120 && line.trim_end() == line), "{text}");
        assert!(!text.contains("\n\n\n"), "{text}");
    }
    let text = notes(&["-f", &values("everything")]);
    assert!(text.contains("orders: smallage, namespace lrs\n  mails: smallage, namespace mails\n"), "{text}");
    assert!(text.contains("kubectl -n jobs exec deployment/graveyard -- sexton stats"), "{text}");
    assert!(text.contains("kubectl -n jobs port-forward service/graveyard 9700"), "{text}");
    assert!(text.contains("helm -n jobs test shop --logs"), "{text}");
    assert!(!notes(&["-f", &values("nothing")]).contains("helm -n jobs test"));
    assert!(notes(&["-f", &values("sidecar")]).contains("-l sexton/sidecar=shop-sexton"));
    // Another chart's notes are its own, and so it has these in them.
    let workers = Workers::built();
    let text = notes_of(&workers.chart(), &[]);
    assert!(
        text.contains("orders: smallage") && text.contains(hint("token")) && !text.contains(hint("hooks")),
        "{text}"
    );
    assert!(notes_of(&workers.chart(), &["--set", "sexton.enabled=false"]).contains("run without Sexton"));
}

#[test]
fn the_notes_name_the_ports_that_the_policy_keeps_closed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    let (redis, hooks) = ("config: { sources: [{ name: a, smallage: { url: ", "config: { hooks: [");
    for (given, wanted) in [
        (format!("{redis}'redis://a' }} }}] }}"), vec![]),
        (format!("{redis}'rediss://u@a:6380/1' }} }}] }}"), vec!["port 6380, which a source needs"]),
        (format!("{redis}'redis://[fd00::1]:6380?a=b' }} }}] }}"), vec!["port 6380, which a source needs"]),
        (format!("{redis}'redis://[fd00::1]' }} }}] }}"), vec![]),
        (
            format!("{redis}'redis+sentinel://a:26380,b,c/m' }} }}] }}"),
            vec!["ports 26380, 26379, which a source needs"],
        ),
        (format!("{redis}'rediss+cluster://a,b:7000,c' }} }}] }}"), vec!["port 7000, which a source needs"]),
        (format!("{redis}'unix:///run/redis.sock' }} }}] }}"), vec![]),
        // Whatever is behind a variable or a file is not known.
        (format!("{redis}'redis://${{PATH}}' }} }}] }}"), vec![]),
        (format!("{hooks}{{ name: a, url_file: /etc/url }}] }}"), vec![]),
        (format!("{hooks}{{ name: a, url: 'https://a.example/in' }}, {{ name: b, format: pagerduty }}] }}"), vec![]),
        (
            format!("{hooks}{{ name: a, url: 'http://alertmanager:9093' }}, {{ name: b, url: 'http://b/a:1@c' }}] }}"),
            vec!["ports 9093, 80, which a hook needs"],
        ),
        (
            format!(
                "{hooks}{{ name: b, format: pagerduty }}] }}\nnetworkPolicy: {{ egress: {{ hooks: {{ ports: [80] }} }} }}"
            ),
            vec!["port 443, which a hook needs"],
        ),
        // It is let out by another rule.
        (
            format!(
                "{hooks}{{ name: a, url: 'http://a:8080' }}, {{ name: b, url: 'http://b:9093' }}] }}\n\
                 networkPolicy: {{ egress: {{ extra: [{{ ports: [{{ port: 9093 }}, {{ port: 8000, endPort: 8100 }}] }}] }} }}"
            ),
            vec![],
        ),
        (
            format!(
                "{hooks}{{ name: a, url: 'http://a:8080' }}] }}\n\
                 networkPolicy: {{ egress: {{ redis: {{ to: [{{ podSelector: {{}} }}], ports: [6379, 8080] }} }} }}"
            ),
            vec!["port 8080, which a hook needs"],
        ),
    ] {
        std::fs::write(&file, &given).unwrap();
        let text = notes(&["-f", &file.display().to_string(), "--set", "networkPolicy.enabled=true"]);
        let told = text.lines().filter_map(|line| line.strip_prefix("* The network policy lets nothing out to "));
        let told: Vec<&str> = told.map(|line| line.trim_end_matches(':')).collect();
        assert_eq!(told, wanted, "{given}: {text}");
        assert!(text.lines().all(|line| line.len() <= 120 && line.trim_end() == line), "{text}");
        assert!(!text.contains("\n\n\n"), "{text}");
    }
}

#[test]
fn what_the_readme_says_of_it_works() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let section = readme.split_once("\n## Deploy with Helm\n").unwrap().1.split_once("\n## ").unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    let blocks = section.split("```yaml\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    let (mut written, example) = (Vec::new(), root().join("helm/examples/workers"));
    for block in blocks {
        match block.lines().next().unwrap() {
            "# values.yaml" => {
                let file = folder.path().join(format!("values-{}.yaml", written.len())).display().to_string();
                std::fs::write(&file, block).unwrap();
                let made = template(&chart(), RELEASE, &["-f", &file]);
                made.unwrap_or_else(|error| panic!("{block}: {error}"));
                written.push(file);
            }
            "# Chart.yaml" => {
                let told = parsed(block).remove(0);
                let own = parsed(&std::fs::read_to_string(example.join("Chart.yaml")).unwrap()).remove(0);
                assert_eq!(told["dependencies"], own["dependencies"]);
            }
            "# templates/deployment.yaml" => {
                let own = std::fs::read_to_string(example.join("templates/deployment.yaml")).unwrap();
                let own: Vec<&str> = own.lines().map(str::trim).collect();
                for line in block.lines().skip(1).map(str::trim) {
                    assert!(own.contains(&line), "the example has no {line}");
                }
                pasted_into_a_template(block);
                // The header of the templates shows the same.
                let told = std::fs::read_to_string(chart().join("templates/_sidecar.tpl")).unwrap();
                assert!(told.contains(block.split_once('\n').unwrap().1), "_sidecar.tpl does not show {block}");
            }
            other => panic!("what is {other}?"),
        }
    }
    assert_eq!(written.len(), 3);
    // Together, too: the policy is for the sources and hooks of the values above.
    let together: Vec<&str> = written.iter().flat_map(|file| ["-f", file.as_str()]).collect();
    let text = notes(&together);
    assert!(!text.contains("lets nothing out") && !text.contains("* Everybody in the cluster"), "{text}");
    // The newest Kubernetes that is named is the newest that manifests are held against.
    assert!(section.contains(&format!("Kubernetes {} to {}", VERSIONS[0], VERSIONS[1])));
}

/// What the README shows of a template, as the only thing in one: with Sexton, without it, and in the wrong mode.
fn pasted_into_a_template(block: &str) {
    let workers = Workers::built();
    let deployment = workers.chart().join("templates/deployment.yaml");
    let head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: pasted }\nspec:\n";
    std::fs::write(&deployment, format!("{head}{block}")).unwrap();
    let pod = |more: &[&str]| {
        let documents = parsed(&template(&workers.chart(), RELEASE, more).unwrap());
        one(&documents, "Deployment", "pasted")["spec"]["template"].clone()
    };
    let with = pod(&[]);
    assert_eq!(with["spec"]["initContainers"][0]["name"], "sexton");
    assert_eq!(with["spec"]["volumes"].as_array().unwrap().len(), 4);
    assert_eq!(with["metadata"]["labels"]["sexton/sidecar"], "shop-sexton");
    assert!(with["metadata"]["annotations"]["checksum/sexton-config"].is_string());
    assert_eq!(pod(&["--set", "sexton.enabled=false"]), json!({"metadata": {"labels": null}, "spec": null}));
}

#[test]
fn templates_for_other_charts_refuse_the_mode_that_has_pods_of_its_own() {
    let workers = Workers::built();
    let deployment = workers.chart().join("templates/deployment.yaml");
    for name in ["sidecar", "podLabels", "podAnnotations", "volumes"] {
        std::fs::write(&deployment, format!("{{{{ include \"sexton.{name}\" .Subcharts.sexton }}}}")).unwrap();
        // As when the line is forgotten: the chart's own default.
        let refused = template(&workers.chart(), RELEASE, &["--set", "sexton.mode=deployment"]).unwrap_err();
        assert!(refused.contains("set sexton.mode=sidecar, or leave"), "{name}: {refused}");
    }
    // A chart that only has it beside its workers uses none of them.
    std::fs::remove_file(&deployment).unwrap();
    template(&workers.chart(), RELEASE, &["--set", "sexton.mode=deployment"]).unwrap();
}

#[test]
fn the_image_is_what_the_chart_takes_it_for() {
    let image = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let values = parsed(&std::fs::read_to_string(chart().join("values.yaml")).unwrap()).remove(0);
    let user = values["runAsUser"].as_u64().unwrap();
    // Containers are given arguments and no command; people are told where the command is.
    let path = "\nENV PATH=/\n".to_owned();
    for line in ["ENTRYPOINT [\"/sexton\"]\n".to_owned(), path, format!("\nUSER {user}:{user}\n")] {
        assert!(image.contains(&line), "{line}");
    }
    assert!(notes(&[]).contains(" -- sexton stats"));
    // Everybody is told it in one way, and where the chart has the configuration.
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(!readme.contains(" -- /sexton"));
    let pod = one(&parsed(&template(&chart(), RELEASE, &[]).unwrap()), "Deployment", "").clone();
    let variable = &pod["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"], "SEXTON_CONFIG");
    assert!(readme.contains(&format!("the chart mounts it at `{}`", variable["value"].as_str().unwrap())));
}
