//! `digest:`, and what is known of hooks where something names them.

use super::*;

/// A configuration with two hooks, of which one takes no digests; what is given begins in line 5.
fn with_hooks(rest: &str) -> String {
    let hooks = "- { name: team, url: 'http://h' }\n- { name: pager, url: 'http://h', events: [alert.*] }";
    with_source(&format!("hooks:\n{hooks}\n{rest}"))
}

#[test]
fn a_digest_has_a_time_a_zone_and_hooks() {
    for (text, at, hooks) in [
        (
            "{ at: 0 9 * * Mon-Fri, timezone: Europe/Berlin, hooks: [team] }",
            "0 9 * * Mon-Fri (Europe/Berlin)",
            Some("team"),
        ),
        ("{ at: '0,30 */6 * * *', hooks: team }", "0,30 */6 * * * (UTC)", Some("team")),
        ("{ at: '30 0 9 1 * *' }", "30 0 9 1 * * (UTC)", None),
        ("{ at: '*/5 * * * *' }", "*/5 * * * * (UTC)", None),
    ] {
        let digest = config(&with_hooks(&format!("digest: {text}"))).digest.unwrap();
        assert_eq!(
            (digest.at.to_string().as_str(), digest.hooks),
            (at, hooks.map(|hook| vec![hook.to_owned()])),
            "{text}"
        );
    }
    assert!(config(&with_hooks("")).digest.is_none());
}

#[test]
fn problems_of_a_digest() {
    check(
        |digest| with_hooks(&format!("digest: {digest}")),
        &[
            ("{}", r#"5:9: "at" is missing in digest; say when: at: 0 9 * * Mon-Fri"#),
            ("9:00", r#"5:9: expected a mapping for "digest", found a text; use these keys: at, timezone, hooks"#),
            ("{ at: 0 9 * * *, zone: UTC }", r#"5:26: unknown key "zone" in digest; known keys: at, timezone, hooks"#),
            (
                "{ at: '* 9 * * Mon-Fri' }",
                r#"5:15: "at" names 60 minutes an hour; write 0 9 * * Mon-Fri for once an hour, or name at most 12 minutes"#,
            ),
            (
                "{ at: '* 9 * *' }",
                r#"5:15: "at" has 4 fields instead of 5 or 6; write minute, hour, day of the month, month and day of the week: * 8-19 * * Mon-Fri"#,
            ),
            ("{ at: '${WORD}' }", r#"5:15: "at" cannot be used: "${WORD}"; give it in the form of crontab"#),
            (
                "{ at: 0 9 * * *, timezone: Berlin }",
                r#"5:36: unknown time zone "Berlin"; did you mean "Europe/Berlin"?"#,
            ),
            ("{ at: 0 9 * * *, hooks: [taem] }", r#"5:34: there is no hook "taem"; did you mean "team"?"#),
            (
                "{ at: 0 9 * * *, hooks: [team, pager] }",
                r#"5:40: the hook "pager" takes no dlq.digest; add that to the hook's events, or remove the hook here"#,
            ),
            (
                "{ at: 0 9 * * *, hooks: [] }",
                r#"5:33: the list "hooks" is empty; name at least one, or remove the key"#,
            ),
        ],
    );
    check(
        with_source,
        &[
            (
                "digest: { at: 0 9 * * * }",
                r#"2:1: "digest" is given, but no hook takes dlq.digest; add that to a hook's events, or remove it"#,
            ),
            // Of hooks that cannot be read nobody knows what they are called, and what they take.
            (
                "hooks: [{ name: a, url: 'ftp://h', format: slakc }]\ndigest: { at: 0 9 * * *, hooks: b }",
                "2:25: this URL has the scheme ftp instead of http or https; write https://HOST/PATH\n\
                 sexton.yaml:2:44: unknown value \"slakc\" for \"format\"; did you mean \"slack\"?",
            ),
        ],
    );
}

#[test]
fn rules_are_checked_against_the_hooks_and_samples_of_their_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sexton.yaml");
    let rules = "alerts: [{ name: a, burst: { over: 30s }, hooks: [team, chat] }]";
    std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
    std::fs::write(&path, with_hooks("sample_every: 1m\nrules: [rules.yaml]")).unwrap();
    let found = read(&path, &env()).unwrap_err().to_string();
    assert_eq!(found.lines().count(), 1, "{found}");
    assert!(found.contains("rules.yaml:1:57: there is no hook \"chat\"; known hooks: team, pager"), "{found}");
    // Those who read no hooks cannot know.
    let source = read_for_rules(&path, &env()).unwrap().rules;
    let found = source.read(&source.look(), &env()).unwrap_err().to_string();
    assert!(found.contains("rules.yaml:1:36: \"over\" is 30s, shorter than \"sample_every\": 1m"), "{found}");
    // What the configuration was read with is what every later look is judged by.
    std::fs::write(folder.path().join("rules.yaml"), "alerts: [{ name: a, burst: {}, hooks: team }]").unwrap();
    let config = read(&path, &env()).unwrap();
    assert_eq!(config.alerts[0].hooks, Some(vec!["team".to_owned()]));
    std::fs::write(folder.path().join("rules.yaml"), "alerts: [{ name: a, burst: {}, hooks: pager }]").unwrap();
    assert!(config.rules_source.read(&config.rules_source.look(), &env()).is_ok());
    std::fs::write(folder.path().join("rules.yaml"), "alerts: [{ name: a, burst: {}, hooks: page }]").unwrap();
    let found = config.rules_source.read(&config.rules_source.look(), &env()).unwrap_err().to_string();
    assert!(found.contains("there is no hook \"page\"; did you mean \"pager\"?"), "{found}");
}
