//! Rules files: which there are, what stands in them at one look, and the rules that this makes.
//!
//! Looking and reading are two things: who watches the files looks often, and reads only what has changed and has then
//! stayed as it is, so that nobody's half-written file is ever judged.

mod look;
mod reach;
mod retry;
#[cfg(test)]
mod tests;

pub use look::RulesText;

use std::path::{Path, PathBuf};

use self::{look::Part, reach::Read};
use super::{
    document::{self, Node, Value},
    env::Env,
    field::Field,
    origin::Reading,
    problem::{Position, Problems},
    read::utf8,
    shape,
    source::Names,
};
use crate::rule::Rules;

/// Retry rules at most, over all files.
const MOST_RULES: usize = 200;

/// Where the rules are: files, and folders with files in them, in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RulesSource {
    /// The configuration that names them, for problems.
    config: String,
    listed: Vec<Listed>,
    /// The names of all sources, where these are known.
    sources: Option<Vec<String>>,
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
    pub(super) fn of(field: Field<'_>, sources: Option<&[String]>, reading: &mut Reading) -> RulesSource {
        let items = field.list(&mut reading.problems).unwrap_or_default();
        let listed = items.into_iter().filter_map(|item| {
            let path = reading.folder.join(item.text(&mut reading.problems)?);
            Some(Listed { path, shown: item.shown(), at: Some(item.at()) })
        });
        let listed: Vec<Listed> = listed.collect();
        if listed.is_empty() {
            return RulesSource::default();
        }
        RulesSource { config: reading.problems.file().to_owned(), listed, sources: sources.map(<[_]>::to_vec) }
    }

    /// These files and folders, as a command line names them; `sources` are the names of all sources.
    pub fn of_flags<'p>(paths: impl IntoIterator<Item = &'p Path>, sources: Vec<String>) -> RulesSource {
        let listed = |path: &Path| Listed { path: path.to_owned(), shown: format!("{path:?}"), at: None };
        let listed = paths.into_iter().map(listed).collect();
        RulesSource { config: "command line".to_owned(), listed, sources: Some(sources) }
    }

    /// Whether no file and no folder is named; then there never are any rules.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The rules that the files make, or every problem in them.
    pub fn read(&self, text: &RulesText, env: &dyn Env) -> Result<Rules, Problems> {
        let mut problems = Problems::new(self.config.clone());
        let rules = self.read_into(text, env, &mut problems);
        problems.none_or(Some(rules))
    }

    /// As `read`, with the problems going to those of the configuration.
    pub(super) fn read_into(&self, text: &RulesText, env: &dyn Env, problems: &mut Problems) -> Rules {
        let (mut files, mut read, mut names) = (Vec::new(), Vec::new(), Names::new("rule"));
        for part in text.parts() {
            match part {
                Part::Unusable { at: Some(at), message, help } => problems.add(*at, message, help),
                Part::Unusable { at: None, message, help } => problems.add_whole(message, help),
                Part::UnusableFile { name, message, help } => {
                    let mut problems = Problems::new(name);
                    problems.add_whole(message, help);
                    files.push(problems);
                }
                Part::File { name, bytes } => {
                    let mut problems = Problems::new(name);
                    let root =
                        utf8(bytes, &mut problems).and_then(|text| document::parse(text, env, None, &mut problems));
                    if let Some(root) = something(root.as_deref(), &mut problems) {
                        self.file(root, files.len(), &mut read, &mut names, &mut problems);
                    }
                    files.push(problems);
                }
            }
        }
        reach::check(&read, &mut files);
        files.into_iter().for_each(|file| problems.append(file));
        Rules::new(read.into_iter().map(|read| read.rule).collect())
    }

    /// Reads one file, the `number`th.
    fn file(&self, root: &Node, number: usize, read: &mut Vec<Read>, names: &mut Names, problems: &mut Problems) {
        let Some(section) = Field::root("the rules file", root).section(&shape::RULES, problems) else { return };
        if let Some(field) = section.get("alerts")
            && !matches!(&field.node.value, Value::List(items) if items.is_empty())
        {
            let help = "remove it, or write alerts: []";
            problems.add(field.key_at, "\"alerts\" is not available in this version", help);
        }
        let items = section.get("retry").and_then(|field| field.list(problems)).unwrap_or_default();
        for item in items {
            if read.len() == MOST_RULES {
                let message = format!("there are more than {MOST_RULES} rules");
                problems.add(item.at(), message, "write fewer: one rule can name many tasks and errors");
                return;
            }
            let before = problems.count();
            if let Some(rule) = retry::rule(item, names, self.sources.as_deref(), problems) {
                // What is broken in the document was noted when that was read.
                let sound = problems.count() == before && item.node.is_whole();
                read.push(Read { rule, file: number, at: item.at(), sound });
            }
        }
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
