//! Tables for people: cut to the terminal's width, or whole and plain where they are read by a program.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Row, Table, presets};

use super::io::Screen;

/// Rows laid out together. A longer table is laid out in several pieces, so that it need not be held whole.
const PIECE: usize = 1_000;

/// One column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// What stands above it.
    pub(super) head: &'static str,
    /// It may be cut where the terminal is too narrow.
    pub(super) may_be_cut: bool,
}

/// A table being filled. Cells are harmless already: see `text`.
pub(super) struct Rows {
    columns: &'static [Column],
    screen: Screen,
    rows: Vec<Vec<String>>,
    head_written: bool,
}

impl Rows {
    /// An empty table.
    pub(super) fn new(columns: &'static [Column], screen: Screen) -> Rows {
        Rows { columns, screen, rows: Vec::new(), head_written: false }
    }

    /// Adds a row, one cell for each column.
    pub(super) fn push(&mut self, out: &mut dyn Write, row: Vec<String>) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() >= PIECE { self.write(out) } else { Ok(()) }
    }

    /// Writes what has not been written, with the head if there has been none.
    pub(super) fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match self.screen.width {
            Some(width) => table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width)
                .set_truncation_indicator("…"),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        if self.screen.emphasis {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        if !self.head_written {
            let head = |column: &Column| Cell::new(column.head).add_attribute(Attribute::Bold);
            let mut row = Row::from(self.columns.iter().map(head).collect::<Vec<_>>());
            row.max_height(1);
            table.set_header(row);
        }
        for cells in self.rows.drain(..) {
            let mut row = Row::from(cells);
            row.max_height(1);
            table.add_row(row);
        }
        for (number, column) in self.columns.iter().enumerate() {
            let Some(laid_out) = table.column_mut(number) else { continue };
            laid_out.set_padding((0, 2));
            if !column.may_be_cut && self.screen.width.is_some() {
                laid_out.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        self.head_written = true;
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] =
        &[Column { head: "ENTRY", may_be_cut: false }, Column { head: "ERROR", may_be_cut: true }];

    fn written(screen: Screen, rows: usize) -> String {
        let mut table = Rows::new(COLUMNS, screen);
        let mut out = Vec::new();
        for n in 0..rows {
            table.push(&mut out, vec![format!("{n}-0"), "ConnectionError: the host timed out".into()]).unwrap();
        }
        table.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_program_gets_whole_lines_and_a_terminal_what_fits() {
        assert_eq!(
            written(Screen::default(), 2),
            "ENTRY  ERROR\n0-0    ConnectionError: the host timed out\n1-0    ConnectionError: the host timed out\n"
        );
        let narrow = written(Screen { width: Some(30), ..Screen::default() }, 1);
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert_eq!(narrow.lines().count(), 2, "cut, not wrapped: {narrow}");
        assert!(narrow.contains("0-0 ") && narrow.contains('…'), "{narrow}");
        let bold = written(Screen { width: Some(80), emphasis: true, ..Screen::default() }, 1);
        assert!(bold.contains("\x1b[1m"), "{bold:?}");
    }

    #[test]
    fn a_table_in_pieces_has_one_head() {
        let long = written(Screen::default(), PIECE + 1);
        assert_eq!(long.lines().count(), PIECE + 2);
        assert_eq!(long.matches("ENTRY").count(), 1);
    }
}
