//! Where a command reads and writes, and what it knows of the screen. Injected, so that tests see every byte.

use std::io::{self, BufRead, IsTerminal as _, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::letter::is_harmful;

/// How a list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people.
    Table,
    /// One document.
    Json,
    /// One item a line.
    Jsonl,
}

/// The standard streams, or a test's.
pub(super) struct Io<'a> {
    /// For results.
    pub(super) out: &'a mut dyn Write,
    /// For everything said about them.
    pub(super) err: &'a mut dyn Write,
    /// For answers.
    pub(super) input: &'a mut dyn BufRead,
    /// What is known of the terminal.
    pub(super) screen: Screen,
}

/// What is known of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// Columns, if results go to a terminal.
    pub(super) width: Option<u16>,
    /// Results may be emphasised.
    pub(super) emphasis: bool,
    /// `err` is a terminal: progress may be shown and overwritten.
    pub(super) progress: bool,
    /// A person can be asked.
    pub(super) asks: bool,
}

impl Screen {
    /// The process's own. `no_color` is what the variable `NO_COLOR` holds.
    pub(super) fn of_process(no_color: Option<&str>) -> Screen {
        let width = io::stdout().is_terminal().then(|| comfy_table::Table::new().width().unwrap_or(80));
        Screen::of(width, io::stderr().is_terminal(), io::stdin().is_terminal(), no_color)
    }

    /// With the width of the terminal that results go to, if they do, and whether the other streams are one.
    fn of(width: Option<u16>, err: bool, input: bool, no_color: Option<&str>) -> Screen {
        Screen {
            width,
            emphasis: width.is_some() && no_color.is_none_or(str::is_empty),
            progress: err,
            asks: err && input,
        }
    }
}

impl Io<'_> {
    /// Writes a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        json(self.out, value)?;
        self.out.write_all(b"\n")
    }

    /// Asks a person; anything but a yes is a no.
    pub(super) fn ask(&mut self, question: &str) -> io::Result<bool> {
        self.out.flush()?;
        write!(self.err, "{question} [y/N] ")?;
        self.err.flush()?;
        let mut answer = String::new();
        self.input.read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }
}

/// Writes a value as compact JSON with harmful characters as `\u` escapes: the same value to a program, and nothing a
/// terminal acts on.
pub(super) fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Harmless)).map_err(io::Error::from)
}

struct Harmless;

impl serde_json::ser::Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_harmful(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emphasis_is_for_terminals_and_for_those_who_want_it() {
        for (width, no_color, emphasis) in
            [(Some(80), None, true), (Some(80), Some(""), true), (Some(80), Some("1"), false), (None, None, false)]
        {
            assert_eq!(Screen::of(width, true, true, no_color).emphasis, emphasis, "{width:?} {no_color:?}");
        }
        for (err, input, asks) in [(true, true, true), (true, false, false), (false, true, false)] {
            assert_eq!(Screen::of(None, err, input, None).asks, asks);
        }
    }

    #[test]
    fn json_says_the_same_with_nothing_harmful_in_it() {
        let text = "a\x1b\u{9b}\u{202e}\u{e0041}\"\\ä\n";
        let mut written = Vec::new();
        json(&mut written, &text).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, r#""a\u001b\u009b\u202e\udb40\udc41\"\\ä\n""#);
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, expected) in
            [("y\n", true), ("YES\n", true), ("n\n", false), ("\n", false), ("", false), ("yup\n", false)]
        {
            let (mut out, mut err, mut input) = (Vec::new(), Vec::new(), answer.as_bytes());
            let mut io = Io { out: &mut out, err: &mut err, input: &mut input, screen: Screen::default() };
            assert_eq!(io.ask("Sure?").unwrap(), expected, "{answer:?}");
            assert_eq!(err, b"Sure? [y/N] ");
        }
    }
}
