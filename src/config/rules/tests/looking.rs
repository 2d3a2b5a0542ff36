//! Which files are read, and what is told of those that cannot be.

use super::*;

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// What a configuration with this `rules:` finds in its folder: file names and texts, or what is wrong.
fn looked(folder: &Path, rules: &str) -> Vec<String> {
    let source = source(folder, rules);
    let below = |name: &str| name.strip_prefix(&format!("{}/", folder.display())).unwrap().to_owned();
    let shown = |part: &Part| match part {
        Part::File { name, bytes } => format!("{} {}", below(name), String::from_utf8_lossy(bytes)),
        Part::UnusableFile { name, message, .. } => format!("{}: {message}", below(name)),
        Part::Unusable { at, message, .. } => format!("{}: {message}", at.unwrap()),
    };
    source.look().parts().iter().map(shown).collect()
}

fn source(folder: &Path, rules: &str) -> RulesSource {
    let config = folder.join("sexton.yaml");
    write(&config, &format!("sources: [{{ name: a, smallage: {{ url: 'redis://x' }} }}]\nrules: {rules}\n"));
    crate::config::read_without_rules(&config, &env()).unwrap_or_else(|problems| panic!("{problems}")).rules_source
}

#[test]
fn files_and_folders_are_looked_at_in_order_hidden_names_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    std::fs::create_dir_all(rules.join("below")).unwrap();
    for name in ["20.yml", "10.yaml", ".hidden.yaml", "README.md", "10.yaml~", "10.yaml.bak", "below/30.yaml", "9.yaml"]
    {
        write(&rules.join(name), name);
    }
    write(&folder.path().join("more.txt"), "more");
    let found = looked(folder.path(), "[rules/, more.txt]");
    assert_eq!(found, ["rules/10.yaml 10.yaml", "rules/20.yml 20.yml", "rules/9.yaml 9.yaml", "more.txt more"]);
    assert!(looked(folder.path(), "[]").is_empty());
}

#[test]
fn a_mounted_config_map_is_looked_at_through_its_links() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    for (version, text) in [("..2026_1", "one"), ("..2026_2", "two")] {
        std::fs::create_dir_all(rules.join(version)).unwrap();
        write(&rules.join(version).join("10.yaml"), text);
    }
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, rules.join(at)).unwrap();
    link("..2026_1", "..data");
    link("..data/10.yaml", "10.yaml");
    assert_eq!(looked(folder.path(), "[rules]"), ["rules/10.yaml one"]);
    link("..2026_2", "..data_tmp");
    std::fs::rename(rules.join("..data_tmp"), rules.join("..data")).unwrap();
    assert_eq!(looked(folder.path(), "[rules]"), ["rules/10.yaml two"]);
    std::fs::remove_dir_all(rules.join("..2026_2")).unwrap();
    let dangling = "rules/10.yaml: cannot read this rules file: No such file or directory (os error 2)";
    assert_eq!(looked(folder.path(), "[rules]"), [dangling]);
}

#[test]
fn what_cannot_be_looked_at_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["empty", "odd/10.yaml", "huge", "many"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    write(&path("huge/1.yaml"), "x");
    write(&path("huge/2.yaml"), &"x".repeat(1 << 20));
    for n in 0..257 {
        write(&path("many").join(format!("{n}.yaml")), "x");
    }
    let socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    for (rules, expected) in [
        ("[none]", r#"2:9: cannot read "none" for "rules": No such file or directory (os error 2)"#),
        ("[empty]", r#"2:9: the folder "empty" of "rules" holds no file *.yaml or *.yml"#),
        ("[odd]", "odd/10.yaml: cannot read this rules file: it is not a file"),
        ("[socket]", r#"2:9: cannot read "socket" for "rules": it is not a file"#),
        ("[many]", r#"2:9: the folder "many" of "rules" holds more than 256 files"#),
        (
            "[huge/2.yaml, huge/1.yaml]",
            r#"2:22: cannot read "huge/1.yaml" for "rules": all rules files together are larger than 1048576 bytes"#,
        ),
    ] {
        let found = looked(folder.path(), rules);
        assert_eq!(found.last().map(String::as_str), Some(expected), "{rules}");
    }
    drop(socket);
}

#[test]
fn a_file_that_is_named_twice_is_read_once_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    write(&folder.path().join("rules/1.yaml"), "one");
    std::os::unix::fs::symlink("rules", folder.path().join("link")).unwrap();
    let below = format!("{}/", folder.path().display());
    for (rules, expected) in [
        ("[rules, rules/1.yaml]", r#"2:16: "rules/1.yaml" of "rules" is read already, through "rules""#),
        ("[rules, link]", r#"2:16: "link" of "rules" is read already, through "rules""#),
        ("[rules/, rules]", r#"2:17: "rules" of "rules" is read already, through "rules/""#),
        (
            "[link/1.yaml, rules]",
            r#"2:22: rules/1.yaml in the folder "rules" of "rules" is read already, through "link/1.yaml""#,
        ),
    ] {
        let found = looked(folder.path(), rules);
        let found: Vec<String> = found.iter().map(|part| part.replace(&below, "")).collect();
        assert!(found.len() == 2 && found[0].ends_with("/1.yaml one"), "{rules}: {found:?}");
        assert_eq!(found[1], expected, "{rules}");
    }
}

#[test]
fn two_looks_differ_exactly_if_they_saw_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).unwrap();
    let source = source(folder.path(), "[rules]");
    let mut seen: Vec<[u8; 32]> = Vec::new();
    let mut look = |what: &str, is_new: bool| {
        let digest = source.look().digest();
        assert_eq!(source.look().digest(), digest, "{what}");
        assert_eq!(!seen.contains(&digest), is_new, "{what}");
        seen.push(digest);
    };
    look("no file", true);
    write(&rules.join("a.yaml"), "");
    look("an empty file", true);
    write(&rules.join("a.yaml"), "x");
    look("text in it", true);
    write(&rules.join("a.yaml"), "x");
    look("the same written anew", false);
    std::fs::rename(rules.join("a.yaml"), rules.join("b.yaml")).unwrap();
    look("another name", true);
    std::fs::rename(&rules, folder.path().join("away")).unwrap();
    look("no folder", true);
    std::fs::rename(folder.path().join("away"), &rules).unwrap();
    look("back again", false);
}

#[test]
fn problems_with_rules_stand_behind_those_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    write(&folder.path().join("rules/a.yaml"), "retry: [{ name: a, match: { source: b } }]");
    std::fs::write(folder.path().join("rules/b.yaml"), b"retry:\n  - name: \xff").unwrap();
    let config = folder.path().join("sexton.yaml");
    let text = "rules: [none, rules/]\nlog: { level: loud }\nsources: [{ name: a, smallage: { url: 'redis://x' } }]\n";
    write(&config, text);
    let found = crate::config::read(&config, &env()).unwrap_err().to_string();
    let folder = folder.path().display();
    let places: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = ["sexton.yaml:1:9", "sexton.yaml:2:15", "rules/a.yaml:1:37", "rules/b.yaml:2:11"];
    assert_eq!(places, expected.map(|place| format!("{folder}/{place}")), "{found}");
    // Who reads no rules does not care; who has wrong ones does not start.
    write(&config, &text.replace("loud", "warn"));
    assert!(crate::config::read(&config, &env()).is_err());
    assert!(crate::config::read_without_rules(&config, &env()).is_ok_and(|config| config.rules.is_empty()));
}
