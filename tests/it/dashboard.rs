//! The dashboard for Grafana, and the rules for Prometheus: a real Prometheus scrapes a real run in which everything happens
//! that they speak of, and every query shows something.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use redis::AsyncCommands as _;
use serde_json::{Value, json};
use sexton::metrics;

use crate::support::{
    graveyard::{bury_all, bury_many, letter},
    process::Sexton,
    prometheus::{Prometheus, Series},
    receiver::{Behaviour, Receiver},
    redis::{Options, Redis},
    stage::leader,
    workers::{Crew, Hiring},
};

const NS: &str = "lrs";
/// Panels that Grafana has without a plugin.
const CORE: [&str; 5] = ["row", "stat", "timeseries", "state-timeline", "table"];
/// What Grafana fills in besides the variables.
const BUILT_IN: [(&str, &str); 3] = [("__rate_interval", "15s"), ("__interval", "1s"), ("__range", "2m")];
/// Panels that may show nothing but 0 in this run, for they show what is now, and in the end all is well.
const CALM: [&str; 3] = ["Without a leader", "On hold now", "Unread entries"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("rules/grafana/sexton.json")).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The panels that show something.
fn shows(dashboard: &Value) -> Vec<&Value> {
    list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row").collect()
}

/// A query of the dashboard: where it stands, the expression, the legend, and whether it is over time.
struct Query {
    at: String,
    expression: String,
    legend: String,
    over_time: bool,
}

fn queries(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in shows(dashboard) {
        for target in list(&panel["targets"]) {
            queries.push(Query {
                at: text(&panel["title"]).to_owned(),
                expression: text(&target["expr"]).to_owned(),
                legend: text(&target["legendFormat"]).to_owned(),
                over_time: target["instant"] != true,
            });
        }
    }
    for annotation in
        list(&dashboard["annotations"]["list"]).iter().filter(|annotation| annotation["expr"] != json!(null))
    {
        queries.push(Query {
            at: text(&annotation["name"]).to_owned(),
            expression: text(&annotation["expr"]).to_owned(),
            legend: text(&annotation["titleFormat"]).to_owned(),
            over_time: true,
        });
    }
    queries
}

#[test]
fn it_is_a_dashboard_that_any_grafana_takes() {
    let dashboard = dashboard();
    assert_eq!((&dashboard["uid"], &dashboard["title"]), (&json!("sexton"), &json!("Sexton")));
    assert!((38..=41).contains(&dashboard["schemaVersion"].as_u64().unwrap()), "of Grafana 10 or 11");
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    let mut taken: BTreeMap<(u64, u64), &str> = BTreeMap::new();
    for panel in list(&dashboard["panels"]) {
        let (title, kind) = (text(&panel["title"]), text(&panel["type"]));
        assert!(CORE.contains(&kind), "{title}: {kind} needs a plugin");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        assert!(!title.is_empty() && titles.insert((title, kind)), "{title}: its title is taken");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title} has no {side}"));
        let [x, y, w, h] = ["x", "y", "w", "h"].map(place);
        assert!(w > 0 && h > 0 && x + w <= 24, "{title} does not fit in");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            let other = taken.insert(cell, title);
            assert!(other.is_none(), "{title} lies over {other:?}");
        }
        if kind == "row" {
            continue;
        }
        assert!(text(&panel["description"]).len() > 60, "{title} does not say what it shows and what to do");
        let defaults = &panel["fieldConfig"]["defaults"];
        for part in [&defaults["unit"], &defaults["thresholds"]["steps"], &defaults["color"]["mode"], &panel["options"]]
        {
            assert!(!part.is_null(), "{title} lacks a part: {defaults}");
        }
        assert_eq!(
            defaults["thresholds"]["steps"][0]["value"],
            json!(null),
            "{title}: the first step has no lower end"
        );
        let mut names = BTreeSet::new();
        for target in list(&panel["targets"]) {
            assert_eq!(target["datasource"], json!({"type": "prometheus", "uid": "${datasource}"}), "{title}");
            assert!(names.insert(text(&target["refId"])), "{title}: two targets of one name");
            assert!(kind == "table" || !text(&target["legendFormat"]).is_empty(), "{title} has no legend");
            assert_eq!(target["format"] == "table", kind == "table", "{title}");
        }
        assert!(!names.is_empty(), "{title} asks nothing");
    }
    for variable in list(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query") {
        // Outside Kubernetes there is no namespace, and only `.*` takes what has none.
        assert_eq!((&variable["includeAll"], &variable["allValue"]), (&json!(true), &json!(".*")), "{variable}");
        assert_eq!(variable["multi"], true, "{variable}");
    }
}

#[test]
fn every_metric_is_on_it_and_each_is_asked_for_by_namespace_and_source() {
    let queries = queries(&dashboard());
    for (name, labels, _) in metrics::REFERENCE {
        let asks = |query: &&Query| query.expression.contains(name);
        assert!(queries.iter().any(|query| asks(&query)), "{name} is nowhere on the dashboard");
        for query in queries.iter().filter(asks) {
            for (at, _) in query.expression.match_indices(name) {
                let rest = &query.expression[at + name.len()..];
                let rest = ["_bucket", "_sum", "_count"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
                let selector =
                    rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(selector, _)| selector);
                // Another metric whose name begins like this one.
                let Some(selector) = selector else { continue };
                assert!(selector.contains("namespace=~\"$namespace\""), "{}: {}", query.at, query.expression);
                if labels.contains(&"source") {
                    assert!(selector.contains("source=~\"$source\""), "{}: {}", query.at, query.expression);
                }
            }
            if name.ends_with("_total") {
                // A counter says nothing but by how much it rises, in each process by itself.
                let risen = format!("rate({name}{{");
                let increased = format!("increase({name}{{");
                assert!(
                    query.expression.contains(&risen) || query.expression.contains(&increased),
                    "{}: {}",
                    query.at,
                    query.expression
                );
            }
        }
    }
}

/// An expression as Grafana sends it.
fn filled(expression: &str, values: &BTreeMap<String, String>) -> String {
    let mut filled = expression.to_owned();
    for (name, value) in BUILT_IN {
        filled = filled.replace(&format!("${name}"), value);
    }
    for (name, value) in values {
        filled = filled.replace(&format!("${name}"), value);
    }
    assert!(!filled.replace("\"$1\"", "").contains('$'), "a variable is not known: {filled}");
    filled
}

/// The value of each variable that is not All, with what it offers.
async fn offers(prometheus: &Prometheus, dashboard: &Value) -> BTreeMap<String, Vec<String>> {
    let all = every(dashboard, ".*");
    let mut offers = BTreeMap::new();
    for variable in list(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query") {
        let query = filled(text(&variable["query"]["query"]), &all);
        let (selector, label) = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')'))
            .and_then(|query| query.rsplit_once(", "))
            .unwrap_or_else(|| panic!("a query of labels: {query}"));
        let values = prometheus.label_values(label, selector).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        offers.insert(text(&variable["name"]).to_owned(), values);
    }
    offers
}

/// The same value for every variable.
fn every(dashboard: &Value, value: &str) -> BTreeMap<String, String> {
    let variables = list(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query");
    variables.map(|variable| (text(&variable["name"]).to_owned(), value.to_owned())).collect()
}

/// What a run needs for everything to happen.
struct Run {
    redis: Redis,
    crew: Crew,
    prometheus: Prometheus,
    /// Two of one namespace and source, the first of which leads.
    replicas: Vec<Sexton>,
    /// One of another source, outside of any namespace.
    _alone: Sexton,
    _receivers: [Receiver; 3],
    began: f64,
}

const RULES: &str = "\
retry:
  - {name: flaky, match: {task: [send_email]}, min_age: 1s, backoff: 1, max_backoff: 1s, max_retries: 20, pace: {start: 2}}
  - {name: hopeless, match: {task: [parse_order]}, min_age: 1s, backoff: 1, max_backoff: 1s, max_retries: 1}
alerts:
  - {name: burst, burst: {over: 5m, deaths: 20}}
";

fn config(redis: &Redis, source: &str, namespace: &str, more: &str) -> String {
    format!(
        "sources: [{{name: {source}, smallage: {{url: \"{}\", namespace: {namespace}}}}}]\nsample_every: 500ms\n\
         http: {{listen: \"127.0.0.1:0\"}}\nannounce_existing: true\nrules: [rules.yaml]\n{more}",
        redis.url()
    )
}

impl Run {
    async fn begin() -> Run {
        let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
        let crew = Crew::start(&redis, NS, &Hiring::default());
        crew.dependencies.break_down("smtp");
        let receivers = [Receiver::start().await, Receiver::start().await, Receiver::start().await];
        receivers[1].otherwise(Behaviour::status(503));
        receivers[2].otherwise(Behaviour::status(400));
        let [oncall, failing, refusing] = receivers.each_ref().map(Receiver::url);
        let more = format!(
            "retention: {{max_entries: 300}}\nhooks:\n\
             - {{name: oncall, url: \"{oncall}\", rate: unlimited, events: [\"*\"]}}\n\
             - {{name: failing, url: \"{failing}\", rate: 60/m, timeout: 1s, give_up_after: 10s}}\n\
             - {{name: refusing, url: \"{refusing}\", rate: 60/m}}\n"
        );
        let rules = root().join("rules/prometheus/sexton.yaml");
        let mut prometheus = Prometheus::start(Duration::from_secs(1), &[rules]).await;
        let began = prometheus.now().await;
        let mut replicas = Vec::new();
        for pod in ["workers-0", "workers-1"] {
            let sexton = Sexton::run_with(&config(&redis, "orders", NS, &more), &[("rules.yaml", RULES)]);
            prometheus.scrape(sexton.http().await, &[("namespace", "jobs"), ("pod", pod)]);
            replicas.push(sexton);
            leader(&replicas[..1]).await;
        }
        let alone = Sexton::run_with(&config(&redis, "mails", "mails", ""), &[("rules.yaml", RULES)]);
        prometheus.scrape(alone.http().await, &[]);
        Run { redis, crew, prometheus, replicas, _alone: alone, _receivers: receivers, began }
    }

    /// Waits until Prometheus has seen that this is more than 0.
    async fn sees(&self, what: &str) {
        self.prometheus.until(&format!("sum(max_over_time({what}[5m])) > 0"), Duration::from_secs(90)).await;
    }

    /// Everything happens that a dashboard could show.
    async fn happen(&mut self) {
        let mut con = self.redis.connect().await;
        self.sees("sexton_leader{namespace=\"\"}").await;
        self.crew.enqueue(&mut con, "send_email", 0..40).await;
        self.crew.enqueue(&mut con, "parse_order", 40..45).await;
        bury_all(&mut con, "mails", (0..5).map(|n| letter("mails", n))).await;
        // More than retention keeps, so many that it is a burst, and nothing that a rule would retry.
        let left = (1..2_000).filter(|n| n % 5 == 1 || n % 5 == 2);
        bury_all(&mut con, NS, left.map(|n| letter(NS, n))).await;
        self.sees("sexton_groups_held").await;
        self.sees("sexton_retry_outcomes_total{outcome=\"re_died\"}").await;

        // Some are taken away before they are read.
        let leading = &self.replicas[0].process;
        leading.freeze();
        let unread = bury_many(&mut con, NS, 9_000..9_003).await;
        let () = con.xdel(format!("{{{NS}}}:dlq"), &unread).await.unwrap();
        leading.thaw();
        self.sees("sexton_unseen_entries_total").await;
        // The store loses what it had confirmed.
        let () = con.del("{mails}:sexton:outbox:deaths").await.unwrap();
        self.sees("sexton_store_losses_total").await;

        self.crew.dependencies.mend("smtp");
        for seen in [
            "sexton_retry_outcomes_total{outcome=\"recovered\"}",
            "sexton_entries_exhausted_total",
            "sexton_retry_refusals_total",
            "sexton_retries_in_flight",
            "sexton_retry_due_entries",
            "sexton_dlq_purged_total",
            "sexton_alert_firing",
            "sexton_hook_backlog",
            "sexton_hook_deliveries_total{outcome=\"given_up\"}",
            "sexton_hook_deliveries_total{outcome=\"rejected\"}",
        ] {
            self.sees(seen).await;
        }
        // Another leads, and the first one is gone.
        self.replicas[0].process.kill();
        self.prometheus.until("sexton_leader{pod=\"workers-1\"} == 1", Duration::from_secs(60)).await;
        for alert in FIRED {
            self.sees(&format!("ALERTS{{alertname=\"{alert}\"}}")).await;
        }
    }
}

/// Alerts of Prometheus that this run gives a reason for, pending or firing.
const FIRED: [&str; 7] = [
    "SextonBurst",
    "SextonDown",
    "SextonEntriesUnseen",
    "SextonGroupsHeld",
    "SextonHookFailing",
    "SextonHookLosesEvents",
    "SextonStoreLosesData",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_and_every_rule_shows_something_of_a_run_in_which_all_of_it_happens() {
    let mut run = Run::begin().await;
    run.happen().await;
    let dashboard = dashboard();
    let prometheus = &run.prometheus;
    let to = prometheus.now().await;
    let mut wrong = Vec::new();

    let offers = offers(prometheus, &dashboard).await;
    let offered = |name: &str| offers[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(offered("namespace"), ["jobs"]);
    assert_eq!(offered("source"), ["mails", "orders"]);
    assert_eq!(offered("hook"), ["failing", "oncall", "refusing"]);
    assert_eq!(offered("rule"), ["by hand", "flaky", "hopeless"]);

    let one = [("namespace", "jobs"), ("source", "orders"), ("hook", "oncall"), ("rule", "flaky")];
    let one: BTreeMap<String, String> =
        one.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let several =
        BTreeMap::from_iter(offers.iter().map(|(name, values)| (name.clone(), format!("({})", values.join("|")))));
    for (chosen, values) in [("All", every(&dashboard, ".*")), ("one of each", one), ("all by name", several)] {
        for query in queries(&dashboard) {
            let expression = filled(&query.expression, &values);
            let answer = match query.over_time {
                true => prometheus.query_range(&expression, run.began, to, 1.0).await,
                false => prometheus.query_at(&expression, to).await,
            };
            let at = format!("{} ({chosen}): {expression}", query.at);
            match answer {
                Err(error) => wrong.push(format!("{at}: {error}")),
                Ok(series) => judge(&query, chosen == "All", &series, &at, &mut wrong),
            }
        }
    }
    // What has no namespace is shown all the same.
    let alone = filled("sexton_leader{namespace=~\"$namespace\", source=\"mails\"}", &every(&dashboard, ".*"));
    assert_eq!(prometheus.query(&alone).await.unwrap().len(), 1);

    rules_are_healthy(prometheus, &mut wrong).await;
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What a panel that shows one number shows: its text and its colour.
async fn shown(panel: &Value, prometheus: &Prometheus, values: &BTreeMap<String, String>) -> (String, String) {
    let expression = filled(text(&panel["targets"][0]["expr"]), values);
    let answer = prometheus.query(&expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"));
    // Grafana shows a lack of values in the colour of the first step, which is mostly green: so there is always one.
    let [line] = answer.as_slice() else { panic!("one value and no more: {expression}: {answer:?}") };
    let (value, defaults) = (line.last(), &panel["fieldConfig"]["defaults"]);
    let mut mappings = list(&defaults["mappings"]).iter().map(|mapping| &mapping["options"][value.to_string()]);
    if let Some(mapped) = mappings.find(|mapped| !mapped.is_null()) {
        return (text(&mapped["text"]).to_owned(), text(&mapped["color"]).to_owned());
    }
    let mut steps = list(&defaults["thresholds"]["steps"]).iter();
    let step = steps.rfind(|step| step["value"].as_f64().is_none_or(|from| from <= value)).unwrap();
    (value.to_string(), text(&step["color"]).to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_glance_nothing_is_well_without_a_sexton_or_a_leader_and_all_is_well_in_an_idle_one() {
    const WITHOUT: &str = "Without a leader";
    let dashboard = dashboard();
    let glance: Vec<&Value> = shows(&dashboard).into_iter().filter(|panel| panel["type"] == "stat").collect();
    let mut prometheus = Prometheus::start(Duration::from_secs(1), &[]).await;

    // Prometheus knows of no Sexton, or of none in the chosen namespace.
    let nobody = every(&dashboard, ".*");
    for panel in &glance {
        let says = if panel["title"] == "Replicas" { "no Sexton" } else { "unknown" };
        assert_eq!(shown(panel, &prometheus, &nobody).await, (says.to_owned(), "red".to_owned()), "{panel}");
    }
    for panel in shows(&dashboard).into_iter().filter(|panel| panel["type"] != "stat") {
        for target in list(&panel["targets"]) {
            let expression = filled(text(&target["expr"]), &nobody);
            assert_eq!(prometheus.query(&expression).await.unwrap().len(), 0, "{expression}");
        }
        // What it says instead of nothing; Grafana says "No data" of itself.
        let says = text(&panel["fieldConfig"]["defaults"]["noValue"]);
        let allowed = ["", "no Sexton", "no leader, or no alert rules", "none, if Prometheus has the rules"];
        assert!(allowed.contains(&says), "{}: {says}", panel["title"]);
    }

    let redis = Redis::with(Options { tcp: true, ..Options::default() }).await;
    let idle = Sexton::run_with(&config(&redis, "orders", NS, ""), &[("rules.yaml", RULES)]);
    let lost = config(&redis, "orders", NS, "").replace(&redis.url(), "redis://127.0.0.1:1");
    let lost = Sexton::run_with(&lost, &[("rules.yaml", RULES)]);
    let at = idle.http().await;
    prometheus.scrape(at, &[("namespace", "idle")]);
    prometheus.scrape(lost.http().await, &[("namespace", "lost")]);
    prometheus.until("sexton_leader{namespace=\"lost\"} == 0", Duration::from_secs(60)).await;
    prometheus.until("sexton_dlq_level{namespace=\"idle\"} == 0", Duration::from_secs(60)).await;
    let of = |namespace: &str| {
        let mut values = every(&dashboard, ".*");
        values.insert("namespace".to_owned(), namespace.to_owned());
        values
    };
    for panel in &glance {
        let title = text(&panel["title"]);
        let (says, colour) = shown(panel, &prometheus, &of("lost")).await;
        let expected = match title {
            "Replicas" => ("1", "green"),
            WITHOUT => ("1", "red"),
            _ => ("unknown", "red"),
        };
        assert_eq!((says.as_str(), colour.as_str()), expected, "{title} without a leader");
        let (says, colour) = shown(panel, &prometheus, &of("idle")).await;
        let expected = match title {
            "Replicas" => ("1", "green"),
            "Recovered" => ("no retries", "#6e7681"),
            "Oldest entry" => ("empty", "green"),
            _ => ("0", "green"),
        };
        assert_eq!((says.as_str(), colour.as_str()), expected, "{title} of an idle one");
    }

    // A source that is gone altogether is one without a leader.
    prometheus.forget(at);
    prometheus.until("absent(sexton_build_info{namespace=\"idle\"})", Duration::from_secs(60)).await;
    let without = glance.iter().find(|panel| panel["title"] == WITHOUT).unwrap();
    let two = ("2".to_owned(), "red".to_owned());
    assert_eq!(shown(without, &prometheus, &every(&dashboard, ".*")).await, two);
}

/// Whether a query's result is worth a look.
fn judge(query: &Query, all: bool, series: &[Series], at: &str, wrong: &mut Vec<String>) {
    let values: Vec<f64> = series.iter().flat_map(|series| &series.samples).map(|(_, value)| *value).collect();
    if !values.iter().any(|value| value.is_finite()) {
        return wrong.push(format!("shows nothing: {at}"));
    }
    if !all {
        return;
    }
    if values.iter().all(|value| *value == 0.0 || !value.is_finite()) && !CALM.contains(&query.at.as_str()) {
        wrong.push(format!("shows only zeros: {at}"));
    }
    for label in query.legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label) {
        if !series.iter().any(|series| !series.label(label).is_empty()) {
            wrong.push(format!("no line has {label}, which its legend names: {at}"));
        }
    }
    let mut legends = BTreeSet::new();
    for line in series.iter().filter(|_| !query.legend.is_empty()) {
        let legend = line
            .labels
            .iter()
            .fold(query.legend.clone(), |legend, (label, value)| legend.replace(&format!("{{{{{label}}}}}"), value));
        if !legends.insert(legend.clone()) {
            wrong.push(format!("two lines are called {legend}: {at}"));
        }
    }
}

/// The rules for Prometheus are evaluated without an error, of series that are there, and fire.
async fn rules_are_healthy(prometheus: &Prometheus, wrong: &mut Vec<String>) {
    let groups = prometheus.ask("rules", &[]).await.unwrap();
    let rules: Vec<&Value> = list(&groups["groups"]).iter().flat_map(|group| list(&group["rules"])).collect();
    assert!(rules.len() >= 17, "{rules:?}");
    for rule in &rules {
        let (name, expression) = (text(&rule["name"]), text(&rule["query"]));
        if rule["health"] != "ok" {
            wrong.push(format!("{name}: {} {}", rule["health"], rule["lastError"]));
        }
        for selector in selectors(expression) {
            let there = prometheus.query(&format!("last_over_time({selector}[5m])")).await;
            if !there.as_ref().is_ok_and(|series| !series.is_empty()) {
                wrong.push(format!("{name}: there is no {selector}: {there:?}"));
            }
        }
    }
    let alerting = |rule: &&&Value| rule["type"] == "alerting" && rule["state"] != "inactive";
    let alerting: BTreeSet<&str> = rules.iter().filter(alerting).map(|rule| text(&rule["name"])).collect();
    for alert in FIRED {
        if !alerting.contains(alert) {
            wrong.push(format!("{alert} is neither pending nor firing: {alerting:?}"));
        }
    }
}

/// The selectors of Sexton's metrics in an expression, without their times.
fn selectors(expression: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut selectors = Vec::new();
    for (at, _) in expression.match_indices("sexton_") {
        let from = expression[..at].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
        let rest = &expression[from..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let braces = match rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((selector, _)) => format!("{{{selector}}}"),
            None => String::new(),
        };
        selectors.push(format!("{}{braces}", &rest[..end]));
    }
    selectors
}
