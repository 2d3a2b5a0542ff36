//! The shape of the code, kept: dependencies point one way, each outside library has one owner, scripts write only to
//! the ledger.

use std::path::{Path, PathBuf};

/// Every source file below a folder, with its text.
fn files(folder: &str, ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "nothing ends in .{ending} in {folder}");
    found
}

/// What the file belongs to: the first folder below `src`, or the file's own name.
fn room(path: &Path) -> String {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The code of a file, without comments and without its unit tests; these may stand in files of their own.
fn code(path: &Path, text: &str) -> String {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    if below.components().any(|part| part.as_os_str() == "tests") || below.ends_with("tests.rs") {
        return String::new();
    }
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The rooms of this crate that a file speaks of: `crate::x` and the first names in `use crate::{x, y::z}`.
fn rooms_used(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let (mut depth, mut name) = (0, String::new());
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => used.push(std::mem::take(&mut name)),
                    c if depth == 0 => name.push(c),
                    _ => {}
                }
            }
            used.push(name);
        } else {
            used.push(rest.to_owned());
        }
    }
    let first = |name: String| name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    used.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

#[test]
fn dependencies_point_one_way() {
    // What each room may speak of, itself apart. The pure rooms come first; nothing points back.
    let allowed: &[(&str, &[&str])] = &[
        ("letter", &[]),
        ("rule", &["clock", "letter", "event"]),
        ("event", &["letter"]),
        ("clock", &["letter"]),
        ("alert", &["clock", "event", "letter", "rule"]),
        ("config", &["alert", "clock", "event", "letter", "rule"]),
        ("ledger", &["alert", "clock", "event", "letter", "rule"]),
        ("delivery", &["clock", "config", "event", "ledger", "letter"]),
        ("retry", &["clock", "event", "ledger", "letter", "rule"]),
        ("triage", &["alert", "clock", "config", "delivery", "event", "ledger", "letter", "retry", "rule"]),
        ("metrics", &["clock", "ledger", "letter", "version"]),
        ("smallage", &["alert", "clock", "config", "event", "ledger", "letter", "rule"]),
        ("hook", &["clock", "config", "delivery", "event", "letter", "rule"]),
        (
            "loops",
            &[
                "alert", "clock", "config", "delivery", "event", "hook", "ledger", "letter", "metrics", "retry",
                "rule", "triage",
            ],
        ),
        ("http", &["alert", "clock", "config", "event", "ledger", "letter", "metrics", "rule", "triage"]),
        (
            "sidecar",
            &[
                "alert", "clock", "config", "event", "hook", "http", "ledger", "letter", "loops", "metrics", "rule",
                "smallage", "version",
            ],
        ),
        ("demo", &["clock", "config", "event", "hook", "ledger", "letter", "metrics", "sidecar", "smallage"]),
        (
            "cli",
            &[
                "alert", "clock", "config", "delivery", "demo", "event", "hook", "ledger", "letter", "retry", "rule",
                "sidecar", "smallage", "triage", "version",
            ],
        ),
        ("version", &[]),
        ("main", &[]),
        ("lib", &[]),
    ];
    for (path, text) in files("src", "rs") {
        let room = room(&path);
        let Some((_, may)) = allowed.iter().find(|(name, _)| *name == room) else {
            panic!("{}: no rule for the room {room}", path.display())
        };
        for used in rooms_used(&code(&path, &text)) {
            assert!(used == room || may.contains(&used.as_str()), "{}: {room} may not use {used}", path.display());
        }
    }
}

#[test]
fn each_outside_library_has_one_owner() {
    let owners: &[(&str, &[&str])] = &[
        ("redis", &["smallage", "demo"]),
        ("reqwest", &["hook"]),
        ("tower_layer", &["hook"]),
        ("tower_service", &["hook"]),
        ("axum", &["http", "demo"]),
        // What the API answers with describes itself.
        ("utoipa", &["http", "triage", "ledger", "event"]),
        ("subtle", &["http"]),
        ("prometheus", &["metrics"]),
        ("saphyr_parser", &["config"]),
        ("chrono_tz", &["rule"]),
        ("cron", &["rule"]),
        ("clap", &["cli"]),
        ("clap_complete", &["cli"]),
        ("clap_mangen", &["cli"]),
        ("comfy_table", &["cli"]),
        ("indicatif", &["cli"]),
        ("whoami", &["cli"]),
        ("rmpv", &["triage"]),
        ("standardwebhooks", &["hook", "config", "demo"]),
    ];
    let pure = ["letter", "rule", "event", "alert", "delivery", "retry"];
    for (path, text) in files("src", "rs") {
        let (room, code) = (room(&path), code(&path, &text));
        for (library, rooms) in owners {
            let speaks = code.contains(&format!("use {library}::"))
                || code.contains(&format!(" {library}::")) && !code.contains(&format!("crate::{library}::"));
            assert!(!speaks || rooms.contains(&room.as_str()), "{}: {room} may not use {library}", path.display());
        }
        if pure.contains(&room.as_str()) {
            assert!(!code.contains("tokio::") && !code.contains("async "), "{}: {room} is pure", path.display());
        }
    }
}

#[test]
fn loops_do_not_know_each_other() {
    let names = ["deliver", "ingest", "judge", "operate", "renew", "retain", "retry", "trim", "watch"];
    for (path, text) in files("src/loops", "rs") {
        let code = code(&path, &text);
        for name in names {
            let own = path.to_string_lossy().contains(&format!("/{name}"));
            let declares = path.ends_with("src/loops/mod.rs");
            assert!(own || declares || !code.contains(&format!("super::{name}")), "{} uses {name}", path.display());
        }
    }
}

/// Commands that change a key.
const WRITES: [&str; 21] = [
    "SET",
    "HSET",
    "HSETNX",
    "HDEL",
    "HINCRBY",
    "XADD",
    "XTRIM",
    "XDEL",
    "XACK",
    "XCLAIM",
    "XGROUP",
    "DEL",
    "UNLINK",
    "EXPIRE",
    "PEXPIRE",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "INCR",
    "RENAME",
    "COPY",
];

/// The keys of the framework, as scripts call them, and the only ways in which they are ever written.
const FRAMEWORKS: [&str; 4] = ["dlq", "clock", "stream", "claim"];
const WAYS: [(&str, &str); 6] = [
    ("parts/plans.lua", "call('XDEL', dlq, entry)"),
    ("remove.lua", "pcall('XDEL', dlq, entry)"),
    ("retain.lua", "pcall('XDEL', dlq, entry)"),
    ("retry.lua", "call('DEL', claim)"),
    ("retry.lua", "call('XADD', stream, 'NOMKSTREAM', '*', unpack(fields, 1, kept))"),
    ("retry.lua", "call('XDEL', dlq, unpack(removals))"),
];

#[test]
fn scripts_write_only_to_the_ledger_and_say_what_they_are() {
    let mut found = Vec::new();
    for (path, text) in files("src/smallage/scripts", "lua") {
        let part = path.parent().is_some_and(|folder| folder.ends_with("parts"));
        let header = ["-- KEYS ", "-- ARGV ", "-- Gives ", "-- One step, because "];
        for line in if part { &["-- Part of "][..] } else { &header } {
            assert!(text.contains(line), "{} has no `{line}` in its header", path.display());
        }
        // Which number has the framework's own key, if the script is given one. A part is given none.
        let keys = text.lines().find(|line| line.starts_with("-- KEYS ")).unwrap_or_default();
        let numbered = keys.split("  ").filter(|key| key.contains(" DLQ") || key.contains(" framework's"));
        let numbered: Vec<String> =
            numbered.filter_map(|key| Some(format!("KEYS[{}]", key.split(' ').next()?))).collect();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("--")) {
            let Some(at) = WRITES.iter().find_map(|write| line.find(&format!("('{write}', "))) else { continue };
            // What is written to follows the command.
            let target =
                line[at..].split(['\'', '(', ' ', ',', ')']).filter(|word| !word.is_empty()).nth(1).unwrap_or_default();
            if FRAMEWORKS.contains(&target) || numbered.iter().any(|key| key == target) {
                let way = WAYS.iter().find(|(script, way)| path.ends_with(script) && line.contains(way));
                found.push(*way.unwrap_or_else(|| panic!("{} writes to the framework's keys: {line}", path.display())));
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, WAYS, "a way to write to the framework's keys is gone");
}
