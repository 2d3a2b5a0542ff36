//! Reads `match:` into a [`Matcher`].

use globset::Glob;

use super::{
    document::Value,
    field::Field,
    problem::{Problems, nearest_or_all},
    shape, value,
};
use crate::{
    letter::{Group, Reason},
    rule::{Globs, Matcher},
};

/// The conditions of a `match:`. `sources` are the names of all sources, where these are known; `offered` are the
/// reasons that a problem names.
pub(super) fn matcher(
    field: Field<'_>,
    sources: Option<&[String]>,
    offered: &[&str],
    problems: &mut Problems,
) -> Option<Matcher> {
    let section = field.section(&shape::MATCH, problems)?;
    Some(Matcher {
        source: section.get("source").map(|field| source_globs(field, sources, problems)),
        queue: section.get("queue").map(|field| globs(field, problems)),
        task: section.get("task").map(|field| globs(field, problems)),
        reason: section.get("reason").map(|field| reasons(field, offered, problems)),
        error: section.get("error").and_then(|field| regex(field, problems)),
        history: section.get("history").and_then(|field| history(field, problems)),
        group: section.get("group").map(|field| groups(field, problems)),
    })
}

/// A glob, or a problem.
pub(super) fn glob(field: Field<'_>, problems: &mut Problems) -> Option<Glob> {
    match Glob::new(field.text(problems)?) {
        Ok(glob) => Some(glob),
        Err(error) => {
            let message = format!("{:?} holds a pattern that cannot be read: {}", field.key, error.kind());
            problems.add(field.at(), message, "* stands for any text, ? for one character, {a,b} for either");
            None
        }
    }
}

/// A regular expression, or a problem that says where it breaks.
pub(super) fn regex(field: Field<'_>, problems: &mut Problems) -> Option<regex::Regex> {
    let text = field.text(problems)?;
    if value::is_between_slashes(text) {
        let help = "write it without them, and flags in front: (?i)timed out; a slash that is meant is [/]";
        problems.add(field.at(), format!("{:?} has slashes around its expression, as in JavaScript", field.key), help);
        return None;
    }
    match value::regex(text) {
        Ok(regex) => Some(regex),
        Err(why) => {
            let message = format!("{:?} holds a regular expression that cannot be used: {why}", field.key);
            problems.add(
                field.at(),
                message,
                "mend it there; put it in single quotes, and write $$ for $ before { or $",
            );
            None
        }
    }
}

fn globs(field: Field<'_>, problems: &mut Problems) -> Globs {
    let fields = field.one_or_more(problems);
    let globs: Vec<Glob> = fields.into_iter().filter_map(|field| glob(field, problems)).collect();
    set(field, &globs, problems)
}

fn source_globs(field: Field<'_>, sources: Option<&[String]>, problems: &mut Problems) -> Globs {
    let mut globs = Vec::new();
    for field in field.one_or_more(problems) {
        let Some(glob) = glob(field, problems) else { continue };
        let matcher = glob.compile_matcher();
        if let Some(sources) = sources
            && !sources.iter().any(|source| matcher.is_match(source))
        {
            let names: Vec<&str> = sources.iter().map(String::as_str).collect();
            let message = format!("{} matches no source", field.shown());
            problems.add(field.at(), message, nearest_or_all(glob.glob(), &names, "sources"));
        }
        globs.push(glob);
    }
    set(field, &globs, problems)
}

fn set(field: Field<'_>, globs: &[Glob], problems: &mut Problems) -> Globs {
    Globs::new(globs).unwrap_or_else(|_| {
        problems.add(field.at(), format!("{:?} holds too many patterns", field.key), "use fewer or shorter ones");
        Globs::default()
    })
}

fn reasons(field: Field<'_>, offered: &[&str], problems: &mut Problems) -> Vec<String> {
    let offered: Vec<(&str, &str)> = offered.iter().map(|&reason| (reason, reason)).collect();
    let fields = field.one_or_more(problems);
    let reasons = fields.into_iter().filter_map(|field| match &field.node.value {
        Value::Text(text) if Reason::NAMES.contains(&&*text.value) => Some(&*text.value),
        _ => field.choice("reasons", &offered, problems),
    });
    reasons.map(str::to_owned).collect()
}

fn history(field: Field<'_>, problems: &mut Problems) -> Option<String> {
    let known = [("any", None), ("same", Some("same")), ("mixed", Some("mixed")), ("unknown", Some("unknown"))];
    field.choice("values", &known, problems).flatten().map(str::to_owned)
}

fn groups(field: Field<'_>, problems: &mut Problems) -> Vec<String> {
    let help = "give its 12 hexadecimal digits in lower case";
    let fields = field.one_or_more(problems);
    fields
        .into_iter()
        .filter_map(|field| {
            field.parsed("a group", help, problems, |text| Group::is_one(text).then(|| text.to_owned()))
        })
        .collect()
}
