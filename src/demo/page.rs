//! What the demonstration prints: short lines, each with the time since the start.

use std::{ffi::OsStr, fmt, io, io::Write, time::Instant};

use crate::clock::monotonic;

/// Whether to print in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Plain text.
    Off,
    /// ANSI escape sequences.
    On,
}

impl Colours {
    /// In colour on a terminal, unless the variable `NO_COLOR` is set to anything.
    pub fn choose(is_terminal: bool, no_color: Option<&OsStr>) -> Colours {
        if is_terminal && no_color.is_none_or(OsStr::is_empty) { Colours::On } else { Colours::Off }
    }
}

/// How a line looks in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// As any text.
    Plain,
    /// What the demonstration does next.
    Act,
    /// Something is wrong.
    Bad,
    /// Something is well again.
    Good,
    /// For the curious.
    Faint,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Look::Plain => "0",
            Look::Act => "1",
            Look::Bad => "31",
            Look::Good => "32",
            Look::Faint => "2",
        }
    }
}

/// Where the lines go.
#[derive(Debug)]
pub(super) struct Page<W> {
    out: W,
    colours: Colours,
    start: Instant,
}

impl<W: Write> Page<W> {
    /// An empty page; its clock starts now.
    pub(super) fn new(out: W, colours: Colours) -> Page<W> {
        Page { out, colours, start: monotonic() }
    }

    /// One line with the time in front.
    pub(super) fn line(&mut self, look: Look, text: impl fmt::Display) -> io::Result<()> {
        let seconds = format!("{:5.1} s  ", self.start.elapsed().as_secs_f64());
        self.write(Look::Faint, &seconds)?;
        self.write(look, &text.to_string())?;
        self.end_line()
    }

    /// Several lines, indented, without a time.
    pub(super) fn block(&mut self, look: Look, text: &str) -> io::Result<()> {
        for line in text.lines() {
            self.write(look, &format!("         {line}"))?;
            self.end_line()?;
        }
        Ok(())
    }

    fn write(&mut self, look: Look, text: &str) -> io::Result<()> {
        if self.colours == Colours::Off || look == Look::Plain {
            return write!(self.out, "{text}");
        }
        write!(self.out, "\x1b[{}m{text}\x1b[0m", look.code())
    }

    /// A line is shown when it is written, also through a pipe.
    fn end_line(&mut self) -> io::Result<()> {
        writeln!(self.out)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_did_not_refuse_them() {
        for (is_terminal, no_color, expected) in [
            (true, None, Colours::On),
            (true, Some(""), Colours::On),
            (true, Some("1"), Colours::Off),
            (false, None, Colours::Off),
        ] {
            assert_eq!(Colours::choose(is_terminal, no_color.map(OsStr::new)), expected, "{is_terminal} {no_color:?}");
        }
    }

    #[test]
    fn escape_sequences_are_written_in_colour_only() {
        for (colours, expected) in [(Colours::On, true), (Colours::Off, false)] {
            let mut out = Vec::new();
            let mut page = Page::new(&mut out, colours);
            page.line(Look::Bad, "smtp breaks").unwrap();
            page.block(Look::Faint, "a\nb").unwrap();
            assert_eq!(out.contains(&0x1b), expected);
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 3);
        }
    }
}
