//! Tables for people: cut to the terminal's width, or whole and plain where they are read by a program.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};

use super::io::Screen;

/// Rows laid out together. A longer table is laid out in several pieces, so that it need not be held whole.
const PIECE: usize = 1_000;

/// Between two columns.
const GAP: u16 = 2;

/// One column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// What stands above it.
    head: &'static str,
    /// It may be cut to so many characters where the terminal is too narrow.
    cut_to: Option<u16>,
    /// Where even that is not enough it is left out, the highest number first; 0 is never left out.
    gives_way: u8,
}

impl Column {
    /// A column that is never cut.
    pub(super) const fn whole(head: &'static str) -> Column {
        Column { head, cut_to: None, gives_way: 0 }
    }

    /// A column that may be cut to so many characters.
    pub(super) const fn cut_to(head: &'static str, characters: u16) -> Column {
        Column { head, cut_to: Some(characters), gives_way: 0 }
    }

    /// The same, left out where there is no room, the highest number first.
    pub(super) const fn gives_way(self, rank: u8) -> Column {
        Column { gives_way: rank, ..self }
    }

    /// The least it takes for contents of this width.
    fn least(&self, width: u16) -> u16 {
        self.cut_to.map_or(width, |least| width.min(least))
    }
}

/// Which columns stay on a terminal of this width, and whether these fit; `contents` are their contents' widths.
fn that_fit(columns: &[Column], contents: &[u16], terminal: u16) -> (Vec<bool>, bool) {
    let mut stay = vec![true; columns.len()];
    loop {
        let kept = columns.iter().zip(contents).zip(&stay).filter(|(_, stays)| **stays);
        let least: u32 = kept.map(|((column, width), _)| u32::from(column.least(*width)) + u32::from(GAP)).sum();
        if least <= u32::from(terminal) + u32::from(GAP) {
            return (stay, true);
        }
        let candidates = columns.iter().enumerate().filter(|(n, column)| stay[*n] && column.gives_way > 0);
        let Some((next, _)) = candidates.max_by_key(|(_, column)| column.gives_way) else { return (stay, false) };
        stay[next] = false;
    }
}

/// A table being filled. Cells are harmless already: see `text`.
pub(super) struct Rows {
    columns: &'static [Column],
    screen: Screen,
    rows: Vec<Vec<String>>,
    /// Which columns are shown, and whether they fit; found out with the first piece, so that all pieces have the same.
    stay: Option<(Vec<bool>, bool)>,
}

impl Rows {
    /// An empty table.
    pub(super) fn new(columns: &'static [Column], screen: Screen) -> Rows {
        Rows { columns, screen, rows: Vec::new(), stay: None }
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
                // Cut where the room ends, not at the last space before: no cell holds a NUL.
                .set_delimiter('\0')
                .set_truncation_indicator("…"),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        if self.screen.emphasis {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        if self.stay.is_none() {
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
        let contents = table.column_max_content_widths();
        let (stay, fit) = self.stay.get_or_insert_with(|| match self.screen.width {
            Some(terminal) => that_fit(self.columns, &contents, terminal),
            None => (vec![true; self.columns.len()], true),
        });
        let last = stay.iter().rposition(|stays| *stays);
        for (number, ((column, stays), content)) in self.columns.iter().zip(&*stay).zip(contents).enumerate() {
            let Some(laid_out) = table.column_mut(number) else { continue };
            let padding = if Some(number) == last { 0 } else { GAP };
            laid_out.set_padding((0, padding));
            if self.screen.width.is_none() {
                continue;
            }
            laid_out.set_constraint(match column.cut_to {
                _ if !stays => ColumnConstraint::Hidden,
                None => ColumnConstraint::ContentWidth,
                Some(_) if !*fit => continue,
                Some(_) => ColumnConstraint::LowerBoundary(Width::Fixed(column.least(content).saturating_add(padding))),
            });
        }
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
        &[Column::whole("ENTRY"), Column::cut_to("QUEUE", 4).gives_way(1), Column::cut_to("ERROR", 10)];

    fn written(screen: Screen, rows: usize) -> String {
        let mut table = Rows::new(COLUMNS, screen);
        let mut out = Vec::new();
        for n in 0..rows {
            let cells = [&format!("{n}-0"), "default", "ConnectionError: the host timed out"];
            table.push(&mut out, cells.map(str::to_owned).to_vec()).unwrap();
        }
        table.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_program_gets_whole_lines_and_a_terminal_what_fits() {
        assert_eq!(
            written(Screen::default(), 2),
            "ENTRY  QUEUE    ERROR\n\
             0-0    default  ConnectionError: the host timed out\n\
             1-0    default  ConnectionError: the host timed out\n"
        );
        let narrow = written(Screen { width: Some(30), ..Screen::default() }, 1);
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert_eq!(narrow.lines().count(), 2, "cut, not wrapped: {narrow}");
        assert!(narrow.contains("0-0 ") && narrow.contains('…'), "{narrow}");
        let bold = written(Screen { width: Some(80), emphasis: true, ..Screen::default() }, 1);
        assert!(bold.contains("\x1b[1m"), "{bold:?}");
    }

    #[test]
    fn columns_give_way_in_their_order_and_only_where_they_must() {
        let columns = [
            Column::whole("A"),
            Column::cut_to("B", 4).gives_way(2),
            Column::whole("C").gives_way(1),
            Column::cut_to("D", 10),
        ];
        for (contents, terminal, stay, fit) in [
            ([5, 8, 6, 50], 31, [true, true, true, true], true),
            ([5, 8, 6, 50], 30, [true, false, true, true], true),
            ([5, 8, 6, 50], 24, [true, false, false, true], true),
            ([5, 8, 6, 50], 3, [true, false, false, true], false),
            ([5, 8, 6, 2], 23, [true, true, true, true], true),
            ([u16::MAX, 8, u16::MAX, u16::MAX], u16::MAX, [true, false, false, true], false),
        ] {
            assert_eq!(that_fit(&columns, &contents, terminal), (stay.to_vec(), fit), "{contents:?} on {terminal}");
        }
    }

    #[test]
    fn a_table_in_pieces_has_one_head() {
        let long = written(Screen::default(), PIECE + 1);
        assert_eq!(long.lines().count(), PIECE + 2);
        assert_eq!(long.matches("ENTRY").count(), 1);
    }
}
