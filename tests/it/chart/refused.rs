//! Wrong values are refused before anything is made, and in words that say what to do.

use serde_json::{Value, json};

use super::helm::{RELEASE, chart, template, values};

/// Values as YAML, and what helm says to them, in parts.
const REFUSED: &[(&str, &[&str])] = &[
    // Names that are not known.
    ("replica: 3", &["additional properties 'replica' not allowed"]),
    ("image: { name: sexton }", &["/image", "additional properties 'name' not allowed"]),
    ("config: { hook: [] }", &["/config", "additional properties 'hook' not allowed"]),
    ("podMonitor: { enable: true }", &["/podMonitor", "additional properties 'enable' not allowed"]),
    ("secrets: [{ secretName: a }]", &["/secrets/0", "missing property 'name'"]),
    ("probes: { liveness: { exec: {} } }", &["/probes/liveness", "additional properties 'exec' not allowed"]),
    ("serviceAccount: { automount: true }", &["additional properties 'automount' not allowed"]),
    ("securityContext: { privileged: true }", &["additional properties 'securityContext' not allowed"]),
    // Values that make no sense.
    ("fullnameOverride: Sexton", &["/fullnameOverride", "does not match pattern"]),
    ("mode: daemonset", &["/mode", "value must be one of 'deployment', 'sidecar'"]),
    ("replicas: '2'", &["/replicas", "got string, want integer"]),
    ("replicas: -1", &["/replicas", "got -1, want 0"]),
    ("runAsUser: 0", &["/runAsUser", "another user than root"]),
    ("image: { repository: 'Sexton:1' }", &["/image/repository", "does not match pattern"]),
    ("image: { digest: latest }", &["/image/digest", "does not match pattern"]),
    ("image: { pullPolicy: Sometimes }", &["/image/pullPolicy", "value must be one of"]),
    ("config: { sources: [] }", &["/config/sources", "got 0, want 1"]),
    ("config: { http: null }", &["/config", "missing property 'http'"]),
    ("config: { http: { listen: '9640' } }", &["/config/http/listen", "does not match pattern"]),
    ("config: { http: { listen: '127.0.0.1:9640' } }", &["an address that probes and Prometheus reach"]),
    ("config: { rules: [rules] }", &["/config/rules", "under rules and shippedRules, beside config"]),
    ("rules: { retry: [] }", &["/rules/retry", "in a file called *.yaml"]),
    ("rules: { a.yaml: '' }", &["/rules/a.yaml", "does not match pattern"]),
    ("rules: { a.yaml: { alert: [] } }", &["/rules/a.yaml", "additional properties 'alert' not allowed"]),
    ("rules: { a.yaml: 'retry: [' }", &["rules: a.yaml is not YAML"]),
    ("shippedRules: [50-alert]", &["there are no shipped rules called \"50-alert\"", "50-alerts", "90-leave"]),
    ("shippedRules: all", &["/shippedRules", "want boolean"]),
    ("strategy: { type: Canary }", &["/strategy/type", "value must be one of 'RollingUpdate', 'Recreate'"]),
    ("podDisruptionBudget: { maxUnavailable: half }", &["/podDisruptionBudget/maxUnavailable"]),
    (
        "podDisruptionBudget: { maxUnavailable: 0 }",
        &["/podDisruptionBudget/maxUnavailable", "no node could be drained"],
    ),
    (
        "podDisruptionBudget: { maxUnavailable: 0% }",
        &["/podDisruptionBudget/maxUnavailable", "no node could be drained"],
    ),
    ("strategy: { rollingUpdate: { maxSurge: 0, maxUnavailable: 0% } }", &["no pod could be replaced"]),
    ("podMonitor: { interval: 15 }", &["/podMonitor/interval", "got number, want string"]),
    ("podMonitor: { interval: often }", &["/podMonitor/interval", "does not match pattern"]),
    ("prometheusRule: { groups: [sexton] }", &["value must be one of 'sexton-line', 'sexton-health'"]),
    ("prometheusRule: { runbookBaseUrl: README.md }", &["/prometheusRule/runbookBaseUrl", "does not match pattern"]),
    ("prometheusRule: { runbookBaseUrl: 'https://a.test/#top' }", &["/prometheusRule/runbookBaseUrl"]),
    ("networkPolicy: { egress: { redis: { ports: [redis] } } }", &["/networkPolicy/egress/redis/ports/0"]),
    ("podLabels: { app.kubernetes.io/name: mine }", &["this label is the chart\\'s own"]),
    ("commonLabels: { sexton/sidecar: mine }", &["this label is the chart\\'s own"]),
    // What does not go together.
    ("{ podMonitor: { enabled: true }, serviceMonitor: { enabled: true } }", &["both would count everything twice"]),
    (
        "{ service: { enabled: false }, serviceMonitor: { enabled: true } }",
        &["serviceMonitor.enabled, which looks for it"],
    ),
    ("{ mode: sidecar, networkPolicy: { enabled: true } }", &["it would be a policy for the workers"]),
    ("secrets: [{ name: a }, { name: b }, { name: a }]", &["secrets: a is there twice"]),
    // Files and variables that the pods would not have.
    (
        "config: { sources: [{ name: a, smallage: { password_file: /run/secrets/sexton/redis/password } }] }",
        &["config: /run/secrets/sexton/redis/password is", "give secrets: [{ name: redis }]"],
    ),
    (
        "{ config: { http: { tokens: [{ name: a, token_file: '/run/secrets/sexton/api' }] } }, secrets: [{ name: api }] }",
        &["name one of its keys, /run/secrets/sexton/api/KEY"],
    ),
    (
        "{ config: { hooks: [{ name: a, url_file: /run/secrets/sexton/a/url, secret_file: [/run/secrets/sexton/b/c] }] }, \
         secrets: [{ name: a }] }",
        &["config: /run/secrets/sexton/b/c is", "give secrets: [{ name: b }]"],
    ),
    (
        "{ config: { hooks: [{ name: a, url_file: /run/secrets/sexton/a/url }] }, \
         secrets: [{ name: a, items: [{ key: k, path: uri }, { key: l, path: x/y }] }] }",
        &["config: /run/secrets/sexton/a/url is not among the items", "which has: uri, x/y"],
    ),
    (
        "{ config: { hooks: [{ name: a, url_file: /run/secrets/sexton/ab/url }] }, \
         extraVolumeMounts: [{ name: v, mountPath: /run/secrets/sexton/a }], extraVolumes: [{ name: v, emptyDir: {} }] }",
        &["give secrets: [{ name: ab }]"],
    ),
    ("extraVolumeMounts: [{ name: v }]", &["/extraVolumeMounts/0", "missing property 'mountPath'"]),
    ("config: { hooks: [{ name: a, routing_key: '${PAGER}' }] }", &["config: ${PAGER} is a variable", "under env"]),
    // Secrets. What was given is not printed.
    ("config: { sources: [{ name: a, smallage: { url: 'redis://a', password: hunter2 } }] }", &["password_file"]),
    ("config: { sources: [{ name: a, smallage: { sentinel: { password: hunter2 } } }] }", &["password_file"]),
    ("config: { sources: [{ name: a, smallage: { url: 'redis+sentinel://u:hunter2@a,b/m' } }] }", &["without its"]),
    ("config: { sources: [{ name: a, smallage: { url: 'redis://:hunter2@a' } }] }", &["a URL without its password"]),
    ("config: { sources: [{ name: a, smallage: { url: 'rediss://u:hunter2@a:6380/1' } }] }", &["url_file"]),
    (
        "config: { hooks: [{ name: a, url: 'https://u:hunter2@a/in' }] }",
        &["a URL without its password: give the whole URL by url_file"],
    ),
    ("config: { hooks: [{ name: a, format: slack, url: 'https://chat.example/hunter2' }] }", &["url_file", "slack"]),
    (
        "config: { hooks: [{ name: a, format: slack, url: 'https://hooks.slack.com/services/T0/B0/hunter2' }] }",
        &["url_file", "slack"],
    ),
    ("config: { hooks: [{ name: a, url: 'https://hooks.slack.com/services/T0/B0/hunter2hunter2' }] }", &["url_file"]),
    ("config: { hooks: [{ name: a, secret: hunter2 }] }", &["secret_file"]),
    ("config: { hooks: [{ name: a, secret: ['${NEW}', hunter2] }] }", &["secret_file"]),
    ("config: { hooks: [{ name: a, routing_key: hunter2 }] }", &["routing_key_file"]),
    ("config: { hooks: [{ name: a, headers: { Authorization: Bearer hunter2 } }] }", &["with the Secret under env"]),
    ("config: { http: { token: hunter2 } }", &["token_file"]),
    ("config: { http: { tokens: [{ name: a, token: hunter2 }] } }", &["token_file"]),
    ("env: [{ name: REDIS_PASSWORD, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: PASS, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: REDIS_PW, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: HookSecrets, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: pager_key, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: API_TOKEN, value: hunter2 }]", &["valueFrom.secretKeyRef"]),
    ("env: [{ name: REDIS_URL, value: 'redis://u:hunter2@a' }]", &["valueFrom.secretKeyRef"]),
    (
        "env: [{ name: CHAT, value: 'https://hooks.slack.com/services/T0/B0/hunter2hunter2' }]",
        &["valueFrom.secretKeyRef"],
    ),
];

#[test]
fn wrong_values_are_refused_and_the_message_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    for (given, parts) in REFUSED {
        std::fs::write(&file, given).unwrap();
        let refused = template(&chart(), RELEASE, &["-f", &file.display().to_string()]);
        let message = refused.expect_err(given);
        for part in *parts {
            assert!(message.contains(part), "{given}: {message}");
        }
        assert!(!message.contains("hunter2"), "{given}: {message}");
    }
}

#[test]
fn references_to_secrets_are_not_taken_for_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    for (given, variables) in [
        ("config: { sources: [{ name: a, smallage: { url: 'redis://u:${PW}@a', password: '${PW}' } }] }", &["PW"][..]),
        ("config: { sources: [{ name: a, smallage: { url: 'redis://user@a:6379' } }] }", &[]),
        (
            "config: { hooks: [{ name: a, secret: ['${NEW}', '${OLD}'], headers: { X-Api-Key: 'a ${KEY}' } }] }",
            &["NEW", "OLD", "KEY"],
        ),
        (
            "config: { hooks: [{ name: a, format: slack, url: 'https://hooks.slack.com/${PATH_OF_CHAT}' }] }",
            &["PATH_OF_CHAT"],
        ),
        ("config: { hooks: [{ name: a, format: standard, url: 'https://a.example/in' }] }", &[]),
        ("config: { sources: [{ name: '${REGION}' }] }\npodDisruptionBudget: { maxUnavailable: 10% }", &["REGION"]),
        // No variable, one that every pod has, and a $ before one.
        ("config: { sources: [{ name: '$${A}${HOSTNAME}$$${B}' }] }", &["B"]),
        // A file that comes in otherwise.
        (
            "{ config: { http: { token_file: /run/secrets/sexton/vault/token } }, \
             extraVolumes: [{ name: v, emptyDir: {} }], extraVolumeMounts: [{ name: v, mountPath: /run/secrets/sexton/vault/ }] }",
            &[],
        ),
    ] {
        std::fs::write(&file, given).unwrap();
        let reference = |name: &&str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}});
        let env: Vec<Value> = variables.iter().map(reference).collect();
        let env = format!("env={}", json!(env));
        template(&chart(), RELEASE, &["-f", &file.display().to_string(), "--set-json", &env])
            .unwrap_or_else(|error| panic!("{given}: {error}"));
    }
    template(&chart(), RELEASE, &["-f", &values("everything")]).unwrap();
}
