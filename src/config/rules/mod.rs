//! Rules files: which there are, what stands in them at one look, and the rules that this makes.
//!
//! Looking and reading are two things: who watches the files looks often, and reads only what has changed and has then
//! stayed as it is, so that nobody's half-written file is ever judged.

mod alert;
mod look;
mod reach;
mod retry;
#[cfg(test)]
mod tests;
mod unless;

pub use look::RulesText;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use self::{look::Part, reach::Read, unless::Leaves};
use super::{
    document::{self, Node, Value},
    env::Env,
    field::{Field, Section},
    hook::KnownHook,
    origin::Reading,
    problem::{Position, Problems},
    read::utf8,
    shape,
    source::Names,
};
use crate::{alert::AlertRule, rule::Rules};

/// Retry rules at most, over all files.
const MOST_RULES: usize = 200;
/// Alert rules at most, over all files: each is judged whenever a sample is taken.
const MOST_ALERT_RULES: usize = 100;

/// What rules files say.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    /// The retry rules.
    pub rules: Rules,
    /// The alert rules; names unique among them.
    pub alerts: Vec<AlertRule>,
}

/// Where the rules are: files, and folders with files in them, in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RulesSource {
    /// The configuration that names them, for problems.
    config: String,
    listed: Vec<Listed>,
    known: Known,
}

/// What rules are checked against, where it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The names of all sources.
    pub(super) sources: Option<Vec<String>>,
    /// All hooks.
    pub(super) hooks: Option<Vec<KnownHook>>,
    /// How often a sample is taken.
    pub(super) sample_every: Option<Duration>,
}

/// A file or folder, and where the configuration names it.
#[derive(Clone, Debug)]
struct Listed {
    path: PathBuf,
    /// As a problem may show it.
    shown: String,
    /// None if the command line names it.
    at: Option<Position>,
}

impl RulesSource {
    /// Reads `rules:` of the configuration.
    pub(super) fn of(field: Field<'_>, known: Known, reading: &mut Reading) -> RulesSource {
        let items = field.list(&mut reading.problems).unwrap_or_default();
        let listed = items.into_iter().filter_map(|item| {
            let path = reading.folder.join(item.text(&mut reading.problems)?);
            Some(Listed { path, shown: item.shown(), at: Some(item.at()) })
        });
        let listed: Vec<Listed> = listed.collect();
        if listed.is_empty() {
            return RulesSource::default();
        }
        RulesSource { config: reading.problems.file().to_owned(), listed, known }
    }

    /// These files and folders, as a command line names them.
    pub(super) fn of_flags<'p>(paths: impl IntoIterator<Item = &'p Path>, known: Known) -> RulesSource {
        let listed = |path: &Path| Listed { path: path.to_owned(), shown: format!("{path:?}"), at: None };
        RulesSource { config: "command line".to_owned(), listed: paths.into_iter().map(listed).collect(), known }
    }

    /// Whether no file and no folder is named; then there never are any rules.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The rules that the files make, or every problem in them.
    pub fn read(&self, text: &RulesText, env: &dyn Env) -> Result<RuleBook, Problems> {
        let mut problems = Problems::new(self.config.clone());
        let book = self.read_into(text, env, &mut problems);
        problems.none_or(Some(book))
    }

    /// As `read`, with the problems going to those of the configuration.
    pub(super) fn read_into(&self, text: &RulesText, env: &dyn Env, problems: &mut Problems) -> RuleBook {
        let (mut files, mut gathered) = (Vec::new(), Gathered::new(&self.known));
        for part in text.parts() {
            gathered.is_complete &= match part {
                Part::Unusable { at, message, help } => {
                    match at {
                        Some(at) => problems.add(*at, message, help),
                        None => problems.add_whole(message, help),
                    }
                    false
                }
                Part::UnusableFile { name, message, help } => {
                    let mut problems = Problems::new(name);
                    problems.add_whole(message, help);
                    files.push(problems);
                    false
                }
                Part::File { name, bytes } => {
                    let mut problems = Problems::new(name);
                    let root =
                        utf8(bytes, &mut problems).and_then(|text| document::parse(text, env, None, &mut problems));
                    let root = something(root.as_deref(), &mut problems);
                    let is_complete = root.is_some_and(|root| gathered.file(root, files.len(), &mut problems));
                    files.push(problems);
                    is_complete
                }
            };
        }
        gathered.check(&mut files);
        files.into_iter().for_each(|file| problems.append(file));
        RuleBook {
            rules: Rules::new(gathered.retry.into_iter().map(|read| read.rule).collect()),
            alerts: gathered.alerts,
        }
    }
}

/// What was found so far, over all files.
struct Gathered<'k> {
    known: &'k Known,
    retry: Vec<Read>,
    retry_names: Names,
    alerts: Vec<AlertRule>,
    alert_names: Names,
    unless: Vec<Leaves>,
    /// Whether the names of all alert rules could be read.
    is_complete: bool,
}

impl<'k> Gathered<'k> {
    fn new(known: &'k Known) -> Gathered<'k> {
        Gathered {
            known,
            retry: Vec::new(),
            retry_names: Names::new("rule"),
            alerts: Vec::new(),
            alert_names: Names::new("alert rule"),
            unless: Vec::new(),
            is_complete: true,
        }
    }

    /// Reads one file, the `number`th; false if there may be alert rules in it that were not read.
    fn file(&mut self, root: &Node, number: usize, problems: &mut Problems) -> bool {
        let Some(section) = Field::root("the rules file", root).section(&shape::RULES, problems) else { return false };
        self.retry_rules(&section, number, problems);
        self.alert_rules(&section, number, problems)
    }

    fn retry_rules(&mut self, section: &Section<'_>, file: usize, problems: &mut Problems) {
        let items = section.get("retry").and_then(|field| field.list(problems)).unwrap_or_default();
        for item in items {
            if self.retry.len() == MOST_RULES {
                let message = format!("there are more than {MOST_RULES} rules");
                problems.add(item.at(), message, "write fewer: one rule can name many tasks and errors");
                return;
            }
            let before = problems.count();
            if let Some(rule) = retry::rule(item, &mut self.retry_names, self.known.sources.as_deref(), problems) {
                // What is broken in the document was noted when that was read.
                let sound = problems.count() == before && item.node.is_whole();
                self.retry.push(Read { rule, file, at: item.at(), sound });
            }
        }
    }

    /// False if there are alert rules whose names could not be read.
    fn alert_rules(&mut self, section: &Section<'_>, file: usize, problems: &mut Problems) -> bool {
        let Some(field) = section.get("alerts") else { return true };
        let Some(items) = field.list(problems) else { return false };
        let mut is_complete = true;
        for item in items {
            if self.alerts.len() == MOST_ALERT_RULES {
                let message = format!("there are more than {MOST_ALERT_RULES} alert rules");
                problems.add(item.at(), message, "write fewer: by: [task] makes one rule watch every task by itself");
                return false;
            }
            let alert::Read { rule, name, unless } = alert::rule(item, &mut self.alert_names, self.known, problems);
            is_complete &= name.is_some();
            self.unless.extend(name.map(|rule| Leaves { rule, file, unless }));
            self.alerts.extend(rule);
        }
        is_complete
    }

    /// Notes what is wrong with rules that are right by themselves.
    fn check(&self, files: &mut [Problems]) {
        reach::check(&self.retry, files);
        // A rule that could not be read may have the name.
        if self.is_complete {
            let names: Vec<&str> = self.alert_names.taken().collect();
            unless::check_names(&self.unless, &names, files);
        }
        unless::check_circles(&self.unless, files);
    }
}

/// The document, if there is anything in it: an empty file is more likely one that could not be written than a wish.
fn something<'n>(root: Option<&'n Node>, problems: &mut Problems) -> Option<&'n Node> {
    if let Some(Node { value: Value::Nothing, .. }) | None = root {
        if problems.count() == 0 {
            problems.add_whole("the rules file is empty", "write retry: [] into it where it has no rules");
        }
        return None;
    }
    root
}
