//! Which configuration and which sources a command works on, and how an entry is named.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use globset::{Glob, GlobMatcher};

use super::{exit::Failure, text::line};
use crate::{
    config::{
        Config, DEFAULT_NAMESPACE, Env, ForRules, Problems, SourceConfig, SourceKind, read, read_for_other_rules,
        read_for_rules, read_sources, read_without_rules,
    },
    ledger::{Ledger, Overview, RawLetter, SourceLedger, TriageLedger},
    letter::Millis,
    rule::Rules,
    smallage,
};

/// Read where neither a flag nor a variable names a file.
const DEFAULT_FILE: &str = "sexton.yaml";
/// Names the configuration file where no flag does.
const FILE_VARIABLE: &str = "SEXTON_CONFIG";

/// Where the sources are found.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sources")]
pub(super) struct SourceArgs {
    /// Configuration file [default: $SEXTON_CONFIG, else sexton.yaml in the working directory]
    #[arg(short, long, value_name = "FILE", conflicts_with = "smallage")]
    pub(super) config: Option<PathBuf>,

    /// Instead of a configuration: the Redis of a smallage namespace, such as redis://localhost:6379. A password in
    /// here shows in the list of processes; a configuration can take it from a file
    #[arg(long, value_name = "URL")]
    pub(super) smallage: Option<String>,

    /// The smallage namespace [default: lrs]
    #[arg(long, value_name = "NAME", requires = "smallage")]
    pub(super) namespace: Option<String>,
}

/// Where the hooks are found: only a configuration has any.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sources")]
pub(super) struct ConfigArgs {
    /// Configuration file [default: $SEXTON_CONFIG, else sexton.yaml in the working directory]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where the sources and the rules are found.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct RuledArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Instead of the configuration's rules: a rules file, or a folder of them; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Sources")]
    rules: Vec<PathBuf>,
}

/// Reads a configuration file, in whole or in part.
type Read = fn(&Path, &dyn Env) -> Result<Config, Problems>;

impl ConfigArgs {
    /// The checked configuration these arguments mean, without rules.
    pub(super) fn config(&self, env: &dyn Env) -> Result<Config, Failure> {
        let file = file(self.config.as_deref(), env, Path::new("")).ok_or_else(|| no_file(""))?;
        Ok(read_without_rules(&file, env)?)
    }
}

impl SourceArgs {
    /// The checked configuration these arguments mean, with its rules.
    pub(super) fn config(&self, env: &dyn Env) -> Result<Config, Failure> {
        self.config_in(env, Path::new(""), read)
    }

    /// The same without rules: a sidecar goes on with those it has while their files are broken, and so does whoever
    /// looks at it.
    pub(super) fn config_without_rules(&self, env: &dyn Env) -> Result<Config, Failure> {
        self.config_in(env, Path::new(""), read_without_rules)
    }

    fn config_in(&self, env: &dyn Env, working_directory: &Path, read: Read) -> Result<Config, Failure> {
        if let Some(url) = &self.smallage {
            let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            return Ok(Config::for_smallage(url, namespace)?);
        }
        Ok(read(&self.file(env, working_directory)?, env)?)
    }

    /// The sources alone. What hooks need, such as their secrets, need not be there.
    pub(super) fn sources(&self, env: &dyn Env) -> Result<Vec<SourceConfig>, Failure> {
        if self.smallage.is_some() {
            return self.config_without_rules(env).map(|config| config.sources);
        }
        Ok(read_sources(&self.file(env, Path::new(""))?, env)?)
    }

    /// The sources alone, and the rules as far as they are known: none without a configuration, or where theirs cannot
    /// be read.
    pub(super) fn sources_and_known_rules(&self, env: &dyn Env) -> Result<(Vec<SourceConfig>, Rules), Failure> {
        if self.smallage.is_some() {
            return Ok((self.sources(env)?, Rules::default()));
        }
        let ForRules { sources, rules, .. } = read_for_rules(&self.file(env, Path::new(""))?, env)?;
        let rules = rules.read(&rules.look(), env).unwrap_or_default().rules;
        Ok((sources, rules))
    }

    fn file(&self, env: &dyn Env, working_directory: &Path) -> Result<PathBuf, Failure> {
        file(self.config.as_deref(), env, working_directory)
            .ok_or_else(|| no_file(", or name a store with --smallage redis://HOST:PORT"))
    }
}

impl RuledArgs {
    /// The sources, and the rules as far as they are known: those of a configuration that cannot be read are not. Of
    /// files that were named the problems are told.
    pub(super) fn sources_and_known_rules(&self, env: &dyn Env) -> Result<(Vec<SourceConfig>, Rules), Failure> {
        if self.rules.is_empty() {
            return self.source.sources_and_known_rules(env);
        }
        let ForRules { sources, rules, .. } = self.sources_and_rules(env)?;
        Ok((sources, rules.read(&rules.look(), env)?.rules))
    }

    /// The sources, and where the rules are; these are not looked at yet. What hooks need, such as their secrets, need
    /// not be there.
    pub(super) fn sources_and_rules(&self, env: &dyn Env) -> Result<ForRules, Failure> {
        let rules = self.rules.iter().map(PathBuf::as_path);
        if self.source.smallage.is_some() {
            return Ok(ForRules::by_flags(self.source.sources(env)?, rules));
        }
        let file = self.source.file(env, Path::new(""))?;
        Ok(if self.rules.is_empty() { read_for_rules(&file, env)? } else { read_for_other_rules(&file, rules, env)? })
    }
}

/// The configuration file: the one given, or the variable's, or the default one if it is there.
fn file(given: Option<&Path>, env: &dyn Env, working_directory: &Path) -> Option<PathBuf> {
    if let Some(file) = given {
        return Some(file.to_owned());
    }
    if let Some(file) = env.var(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return Some(file.into());
    }
    Some(working_directory.join(DEFAULT_FILE)).filter(|file| file.exists())
}

fn no_file(or: &str) -> Failure {
    Failure::Usage(format!(
        "no source: name a configuration with --config FILE or {FILE_VARIABLE}, or put a {DEFAULT_FILE} into the \
         working directory{or}"
    ))
}

/// What to say of a source where nothing ever was; `None` if something was, or it is not among these.
pub(super) fn never(sources: &[SourceConfig], name: &str, overview: &Overview) -> Option<String> {
    // A DLQ that somebody has deleted forgets what was added to it; the ledger does not forget what it announced.
    if overview.entries > 0 || overview.added > 0 || overview.deaths > 0 {
        return None;
    }
    let SourceKind::Smallage(smallage) = &sources.iter().find(|source| source.name == name)?.kind;
    Some(format!("nothing has ever died under {{{}}}:dlq — is the namespace right?", line(&smallage.namespace)))
}

/// The sources of a configuration, in its order. Nothing is connected yet.
pub(super) fn ledgers(sources: &[SourceConfig]) -> Result<Vec<Arc<dyn TriageLedger>>, Failure> {
    Ok(source_ledgers(sources)?.into_iter().map(|ledger| ledger as Arc<dyn TriageLedger>).collect())
}

/// The same, for those who look at alerts as well.
pub(super) fn source_ledgers(sources: &[SourceConfig]) -> Result<Vec<Arc<dyn SourceLedger>>, Failure> {
    let open = |source| smallage::open(source).map_err(|error| Failure::Config(error.to_string()));
    sources.iter().map(open).collect()
}

/// The store's time, by which ages are counted. Asks the store, so it also tells early whether there is one.
pub(super) async fn store_time(ledger: &dyn Ledger) -> Result<Millis, Failure> {
    ledger.overview().await.map_err(Failure::store(ledger.name()))?;
    Ok(ledger.clock().now())
}

/// The sources whose names match one of the globs, or all of them without any. Every glob must match a source.
pub(super) fn chosen<'a, L: Ledger + ?Sized>(ledgers: &'a [Arc<L>], globs: &[Glob]) -> Result<Vec<&'a L>, Failure> {
    let globs: Vec<GlobMatcher> = globs.iter().map(Glob::compile_matcher).collect();
    let matches = |glob: &GlobMatcher, ledger: &Arc<L>| glob.is_match(ledger.name());
    if let Some(glob) = globs.iter().find(|glob| !ledgers.iter().any(|ledger| matches(glob, ledger))) {
        let glob = line(glob.glob().glob());
        return Err(Failure::Usage(format!("no source matches --source {glob}; {}", known(ledgers))));
    }
    let wanted = ledgers.iter().filter(|ledger| globs.is_empty() || globs.iter().any(|glob| matches(glob, ledger)));
    Ok(wanted.map(AsRef::as_ref).collect())
}

/// Which sources there are, for messages.
fn known<L: Ledger + ?Sized>(ledgers: &[Arc<L>]) -> String {
    match ledgers {
        [only] => format!("the only one here is called {}", only.name()),
        several => format!("there is {}", several.iter().map(|ledger| ledger.name()).collect::<Vec<_>>().join(", ")),
    }
}

/// The source called `name`.
pub(super) fn named<'a>(ledgers: &'a [Arc<dyn TriageLedger>], name: &str) -> Result<&'a dyn TriageLedger, Failure> {
    let found = ledgers.iter().find(|ledger| ledger.name() == name);
    found
        .map(AsRef::as_ref)
        .ok_or_else(|| Failure::Usage(format!("there is no source {:?}; {}", line(name), known(ledgers))))
}

/// Splits `source/entry`. What has no slash means something in any source, and so does a slash in what can be no
/// entry, such as a job id.
pub(super) fn split<'a>(
    ledgers: &'a [Arc<dyn TriageLedger>],
    text: &'a str,
) -> Result<(Vec<&'a dyn TriageLedger>, &'a str), Failure> {
    if let Some((source, rest)) = text.split_once('/') {
        match named(ledgers, source) {
            Ok(ledger) => return Ok((vec![ledger], rest)),
            Err(unknown) if ledgers.iter().any(|ledger| ledger.is_entry_id(rest)) => return Err(unknown),
            Err(_) => {}
        }
    }
    Ok((ledgers.iter().map(AsRef::as_ref).collect(), text))
}

/// The entry called `text`, `source/entry` or just the entry, with its source; `None` if no source has it.
pub(super) async fn find<'a>(
    ledgers: &'a [Arc<dyn TriageLedger>],
    text: &'a str,
) -> Result<Option<(&'a dyn TriageLedger, RawLetter)>, Failure> {
    let (sources, entry) = split(ledgers, text)?;
    let mut found: Option<(&dyn TriageLedger, RawLetter)> = None;
    for ledger in sources.into_iter().filter(|ledger| ledger.is_entry_id(entry)) {
        let Some(raw) = ledger.entry(entry).await.map_err(Failure::store(ledger.name()))? else { continue };
        if let Some((other, _)) = &found {
            let (one, two) = (other.name(), ledger.name());
            return Err(Failure::Usage(format!(
                "{entry} is an entry of {one} and of {two}; write {one}/{entry} or {two}/{entry}"
            )));
        }
        found = Some((ledger, raw));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn args(config: Option<&Path>, smallage: Option<&str>) -> SourceArgs {
        SourceArgs { config: config.map(Into::into), smallage: smallage.map(Into::into), namespace: None }
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_the_default_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let file = folder.path().join(name);
            let text = format!("sources: [{{ name: {}, smallage: {{ url: 'redis://x:1' }} }}]", name.replace('.', "-"));
            std::fs::write(&file, text).unwrap();
            file
        };
        let (flag, variable) = (write("flag.yaml"), write("variable.yaml"));
        let set = BTreeMap::from([(FILE_VARIABLE.to_owned(), variable.display().to_string())]);
        let empty = BTreeMap::from([(FILE_VARIABLE.to_owned(), String::new())]);
        let name = |args: &SourceArgs, env: &dyn Env| {
            args.config_in(env, folder.path(), read)
                .map(|config| config.sources[0].name.clone())
                .map_err(|f| f.exit() as u8)
        };
        assert_eq!(name(&args(None, None), &BTreeMap::new()), Err(2), "nothing names a source");
        assert_eq!(name(&args(None, None), &empty), Err(2));
        write("sexton.yaml");
        assert_eq!(name(&args(None, None), &BTreeMap::new()).as_deref(), Ok("sexton-yaml"));
        assert_eq!(name(&args(None, None), &set).as_deref(), Ok("variable-yaml"));
        assert_eq!(name(&args(Some(&flag), None), &set).as_deref(), Ok("flag-yaml"));
        assert_eq!(name(&args(None, Some("redis://x:1")), &set).as_deref(), Ok("lrs"));
        assert_eq!(name(&args(None, Some("http://x")), &set), Err(78));
        assert_eq!(name(&args(Some(&folder.path().join("none.yaml")), None), &set), Err(78));
    }
}
