//! The image's recipe. What only an engine can show (that it builds and runs) is not shown here.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Dockerfile's instructions, each with its words; continued lines are one.
fn instructions() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("Dockerfile")).unwrap().replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The arguments of every instruction of this name, from the `stage`th FROM on (0: before any).
fn all<'a>(instructions: &'a [Vec<String>], stage: usize, name: &str) -> Vec<&'a [String]> {
    let mut froms = 0;
    let mut found = Vec::new();
    for words in instructions {
        froms += usize::from(words[0] == "FROM");
        if froms == stage && words[0] == name {
            found.push(&words[1..]);
        }
    }
    found
}

/// What the first stage copies from the context.
fn copied() -> Vec<String> {
    let instructions = instructions();
    let sources = |words: &&[String]| words[..words.len() - 1].to_vec();
    all(&instructions, 1, "COPY").iter().flat_map(sources).collect()
}

/// Whether the context has a path, by the last line of .dockerignore that speaks of it or of a folder around it.
fn in_context(path: &str) -> bool {
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut there = true;
    for line in ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (pattern, keeps) = line.strip_prefix('!').map_or((line, false), |pattern| (pattern, true));
        if pattern == "*" || Path::new(path).starts_with(pattern) {
            there = keeps;
        }
    }
    there
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn what_the_image_is_built_from_is_there_and_in_the_context() {
    let copied = copied();
    for path in &copied {
        assert!(root().join(path).exists(), "COPY {path}: there is no such thing");
        assert!(in_context(path), "COPY {path}: .dockerignore hides it");
    }
    assert!(!in_context("target") && !in_context(".git") && !in_context("tests/it"), "what is not needed stays out");
    // What the compiler reads beside the code.
    let mut read = 0;
    for path in files(&root().join("src")) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (at, _) in text.match_indices("include_str!(\"") {
            let named = text[at..].split('"').nth(1).unwrap();
            let file = path.parent().unwrap().join(named).canonicalize().unwrap();
            let file = file.strip_prefix(root()).unwrap();
            // Records are read by unit tests alone.
            let in_image = copied.iter().any(|copied| file.starts_with(copied)) && in_context(file.to_str().unwrap());
            assert!(in_image || file.starts_with("tests/records"), "{} is not in the image's build", file.display());
            read += 1;
        }
    }
    assert!(read > 3, "the compiler reads files beside the code");
}

#[test]
fn the_image_is_one_binary_on_an_empty_base_for_a_user_who_is_nobody() {
    let instructions = instructions();
    let froms: Vec<&Vec<String>> = instructions.iter().filter(|words| words[0] == "FROM").collect();
    assert_eq!(froms.len(), 2);
    assert_eq!(froms[0][1..], ["${RUST_IMAGE}", "AS", "build"]);
    assert_eq!(froms[1][1..], ["scratch"]);
    let given = |stage: usize, name: &str| {
        let args = all(&instructions, stage, "ARG").into_iter();
        let args: Vec<String> =
            args.filter_map(|words| Some(words[0].strip_prefix(name)?.strip_prefix('=')?.to_owned())).collect();
        assert_eq!(args.len(), 1, "ARG {name} in stage {stage}");
        args[0].clone()
    };
    // A toolchain that is named exactly, and new enough.
    let toolchain = given(0, "RUST_IMAGE");
    let (_, tag) = toolchain.rsplit_once(':').unwrap();
    let numbers = |text: &str| text.split(['.', '-']).map_while(|part| part.parse().ok()).collect::<Vec<u32>>();
    assert!(numbers(tag) >= numbers(env!("CARGO_PKG_RUST_VERSION")), "{tag}");
    assert_eq!(given(2, "VERSION"), env!("CARGO_PKG_VERSION"), "the label would tell another version");
    assert_eq!((given(1, "REVISION"), given(2, "REVISION")), (String::new(), String::new()));

    let only = |name: &str| {
        let found = all(&instructions, 2, name);
        assert_eq!(found.len(), 1, "{name}");
        found[0].join(" ")
    };
    assert_eq!(only("COPY"), "--from=build /image/ /");
    assert_eq!(only("USER"), "65532:65532", "a number that is not root's");
    // In the form that needs no shell: the process is number 1 and gets the signals.
    assert_eq!((only("ENTRYPOINT").as_str(), only("CMD").as_str()), ("[\"/sexton\"]", "[\"run\"]"));
    assert_eq!((only("ENV").as_str(), only("WORKDIR").as_str()), ("PATH=/", "/etc/sexton"));
    let reference = sexton::config::REFERENCE;
    assert!(reference.contains(&format!("listen: 0.0.0.0:{}", only("EXPOSE"))), "another port than the default");
    assert!(all(&instructions, 2, "RUN").is_empty(), "there is nothing to run anything with");
    for label in ["title", "description", "licenses", "version", "revision"] {
        assert!(only("LABEL").contains(&format!("org.opencontainers.image.{label}=")), "{label}");
    }
    for run in all(&instructions, 1, "RUN") {
        for script in run.iter().filter(|word| word.starts_with("container/")) {
            let mode = std::fs::metadata(root().join(script)).unwrap().permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{script} cannot be run");
        }
    }
}

#[test]
fn the_image_holds_what_it_needs_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let made = folder.path().join("src");
    for (name, text) in [("sexton", "the binary"), ("sexton.cdx.json", "{}")] {
        std::fs::create_dir_all(made.join("target/static")).unwrap();
        std::fs::write(made.join("target/static").join(name), text).unwrap();
    }
    for path in copied() {
        let to = made.join(&path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        if path == "container" || path == "rules" {
            assert!(Command::new("cp").arg("-r").arg(root().join(&path)).arg(to).status().unwrap().success());
        } else if !root().join(&path).is_dir() {
            std::fs::copy(root().join(&path), to).unwrap();
        }
    }
    let certificates = folder.path().join("ca-certificates.crt");
    std::fs::write(&certificates, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let image = folder.path().join("image");
    let laid_out =
        Command::new(made.join("container/root")).arg(&image).env("CERTIFICATES", &certificates).status().unwrap();
    assert!(laid_out.success());

    let mut held: Vec<String> =
        files(&image).iter().map(|path| format!("/{}", path.strip_prefix(&image).unwrap().display())).collect();
    held.sort();
    let mut expected: Vec<String> = [
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/passwd",
        "/etc/ssl/certs/ca-certificates.crt",
        "/sexton",
        "/usr/share/sexton/LICENSE-APACHE",
        "/usr/share/sexton/LICENSE-MIT",
        "/usr/share/sexton/sexton.cdx.json",
    ]
    .map(str::to_owned)
    .to_vec();
    for rules in std::fs::read_dir(root().join("rules")).unwrap().flatten() {
        let name = rules.file_name().into_string().unwrap();
        if name.ends_with(".yaml") {
            expected.push(format!("/etc/sexton/rules/{name}"));
        }
    }
    expected.sort();
    assert_eq!(held, expected);
    for path in files(&image) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o444, 0o444, "{} is not for everybody to read", path.display());
        assert_eq!(mode & 0o022, 0, "{} can be changed by others", path.display());
    }
}

#[test]
fn what_the_readme_runs_has_what_its_configuration_wants() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let section = |name: &str| {
        let rest = readme.split_once(&format!("\n## {name}\n")).unwrap().1;
        rest.split_once("\n## ").unwrap().0.to_owned()
    };
    let start = section("A minute's start");
    let configuration = start.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let wanted = configuration.split("${").skip(1).map(|rest| rest.split_once('}').unwrap().0);
    let wanted: Vec<String> = wanted.map(|name| format!(" -e {name} ")).collect();
    assert!(!wanted.is_empty() && configuration.contains("//localhost"), "{configuration}");
    let mut runs = 0;
    let commands = section("Container image").replace("\\\n", " ");
    for command in commands.lines().filter(|line| line.starts_with("docker run ") && line.contains("sexton.yaml")) {
        assert!(wanted.iter().all(|option| command.contains(option)), "{command}: {wanted:?}");
        // A check connects to nothing; what runs must reach the Redis of this machine.
        assert!(command.ends_with(" check") || command.contains(" --network host "), "{command}");
        runs += 1;
    }
    assert_eq!(runs, 2);
}
