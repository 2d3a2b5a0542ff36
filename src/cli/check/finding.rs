//! What a check has found, about whatever it is, and how it is shown.

use std::io;

use serde::Serialize;

use crate::{
    cli::{
        exit::Failure,
        io::{Form, Io},
        text::{counted, line},
    },
    ledger::{self, Level},
};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum About {
    /// A source, by its name.
    Source,
    /// A hook, by its name.
    Hook,
    /// A retry rule, by its name.
    Rule,
    /// An alert rule, by its name.
    Alert,
    /// The summary at certain times.
    Digest,
    /// The HTTP port, by its address.
    Http,
    /// All hooks, all rules or all alert rules.
    Configuration,
}

impl About {
    fn as_str(self) -> &'static str {
        match self {
            About::Source => "source",
            About::Hook => "hook",
            About::Rule => "rule",
            About::Alert => "alert",
            About::Digest => "digest",
            About::Http => "http",
            About::Configuration => "configuration",
        }
    }
}

/// The check of a finding that only says how the configuration was understood.
pub(super) const UNDERSTOOD: &str = "configuration";

/// One thing that was found, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) about: About,
    /// Of what it is about; none where there is but one.
    pub(super) name: Option<String>,
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) message: String,
    /// What to do.
    pub(super) help: Option<String>,
    /// The names of what is missing, such as rights.
    pub(super) missing: Vec<String>,
    /// A store cannot be used because of it.
    #[serde(skip)]
    unusable: bool,
}

impl Finding {
    /// Something that is as it should be.
    pub(super) fn ok(about: About, name: Option<&str>, check: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            level: Level::Ok,
            about,
            name: name.map(str::to_owned),
            check,
            message: message.into(),
            help: None,
            missing: Vec::new(),
            unusable: false,
        }
    }

    /// The same at another level, with what to do about it.
    pub(super) fn at(self, level: Level, help: impl Into<String>) -> Finding {
        Finding { level, help: Some(help.into()), ..self }
    }

    /// What a source's store was found to be.
    pub(super) fn of_source(name: &str, found: ledger::Finding) -> Finding {
        Finding {
            level: found.level,
            help: found.help,
            missing: found.missing,
            unusable: found.unusable,
            ..Finding::ok(About::Source, Some(name), found.aspect.as_str(), found.message)
        }
    }

    /// Of the configuration what was understood is told without more ado.
    fn is_plain(&self) -> bool {
        self.check == UNDERSTOOD && self.level == Level::Ok
    }

    fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let about = match (self.about, &self.name) {
            (About::Configuration, _) => String::new(),
            (about, None) => format!("{}: ", about.as_str()),
            (about, Some(name)) => format!("{} {name}: ", about.as_str()),
        };
        let level = match self.level {
            _ if self.is_plain() => "",
            Level::Ok => "ok       ",
            Level::Warning => "warning  ",
            Level::Error => "error    ",
        };
        writeln!(out, "{level}{}", line(&format!("{about}{}", self.message)))?;
        if let Some(help) = &self.help {
            writeln!(out, "         {}", line(help))?;
        }
        Ok(())
    }
}

/// What a check has found so far, and how it is to be shown.
pub(super) struct Findings {
    form: Form,
    /// Everything is shown at once in one document, so it is kept.
    kept: Vec<Finding>,
    errors: u64,
    warnings: u64,
    unusable: bool,
    plain: bool,
}

impl Findings {
    pub(super) fn new(form: Form) -> Findings {
        Findings { form, kept: Vec::new(), errors: 0, warnings: 0, unusable: false, plain: true }
    }

    /// Shows a finding, or keeps it until all are there.
    pub(super) fn add(&mut self, finding: Finding, io: &mut Io<'_>) -> io::Result<()> {
        match finding.level {
            Level::Ok => {}
            Level::Warning => self.warnings += 1,
            Level::Error => self.errors += 1,
        }
        self.unusable |= finding.unusable;
        match self.form {
            Form::Table => {
                // What was found is set off from what was understood.
                if std::mem::replace(&mut self.plain, finding.is_plain()) && !finding.is_plain() {
                    writeln!(io.out)?;
                }
                finding.write(io.out)?;
                io.out.flush()
            }
            Form::Jsonl => {
                io.json(&finding)?;
                io.out.flush()
            }
            Form::Json => {
                self.kept.push(finding);
                Ok(())
            }
        }
    }

    /// Says how it went on the whole, and how the command ends.
    pub(super) fn end(self, io: &mut Io<'_>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Document {
            items: Vec<Finding>,
            errors: u64,
            warnings: u64,
        }
        let Findings { form, kept, errors, warnings, unusable, plain } = self;
        if form == Form::Json {
            io.json(&Document { items: kept, errors, warnings })?;
        }
        let told = format!("{}, {}", counted(errors, "error", "errors"), counted(warnings, "warning", "warnings"));
        if form == Form::Table && !plain {
            writeln!(io.out, "\n{told}")?;
        }
        match (errors, unusable) {
            (0, _) => Ok(()),
            // It stands below the findings already.
            (_, unusable) if form == Form::Table => Err(Failure::Shown { unusable }),
            (_, true) => Err(Failure::Unusable(told)),
            (_, false) => Err(Failure::Failed(told)),
        }
    }
}
