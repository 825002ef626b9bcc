//! Tables that fit the terminal: columns are shortened, then left out from the least important on.

use ensemble_types::line::{clean, inline};
use unicode_width::UnicodeWidthStr;

use super::styled::{Styled, Tone, cut, cut_middle};

const GAP: usize = 2;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    /// Columns with a higher rank are left out first. Columns with rank 0 stay.
    rank: u8,
    /// How far the column can be shortened. `None`: not at all.
    least: Option<usize>,
    is_id: bool,
}

impl Column {
    /// A column that is never shortened.
    pub const fn fixed(head: &'static str, rank: u8) -> Self {
        Self { head, rank, least: None, is_id: false }
    }

    /// A text whose beginning matters.
    pub const fn text(head: &'static str, rank: u8, least: usize) -> Self {
        Self { head, rank, least: Some(least), is_id: false }
    }

    /// An id, which is shortened in the middle.
    pub const fn id(head: &'static str, rank: u8) -> Self {
        Self { head, rank, least: Some(13), is_id: true }
    }
}

/// A table whose rows have one cell for each column.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(Tone, String)>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = (Tone, String)>) {
        self.rows.push(cells.into_iter().map(|(tone, text)| (tone, clean(&inline(&text)).into())).collect());
    }

    /// The lines of the table, each of at most `columns` columns.
    pub fn lines(&self, columns: Option<usize>, with_head: bool) -> Vec<Styled> {
        let widths = self.fit(columns, with_head);
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        if with_head {
            let head: Vec<_> = self.columns.iter().map(|column| (Tone::Dim, column.head.to_owned())).collect();
            lines.push(self.line(&head, &widths));
        }
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths)));
        lines
    }

    fn line(&self, cells: &[(Tone, String)], widths: &[usize]) -> Styled {
        let mut line = Styled::default();
        for ((column, (tone, text)), width) in self.columns.iter().zip(cells).zip(widths) {
            if *width == 0 {
                continue;
            }
            let text = if column.is_id { cut_middle(text, *width) } else { cut(text, *width) };
            let rest = (width + GAP).saturating_sub(text.width());
            line = line.with(*tone, &text).with(Tone::Plain, &" ".repeat(rest));
        }
        line
    }

    /// The width of each column. 0: the column is left out. Ids are kept whole as long as no column has to go.
    fn fit(&self, columns: Option<usize>, with_head: bool) -> Vec<usize> {
        let mut natural: Vec<usize> = (0..self.columns.len())
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).map(|(_, text)| text.width()).max().unwrap_or(0))
            .collect();
        for (width, column) in natural.iter_mut().zip(&self.columns).filter(|(width, _)| **width > 0 && with_head) {
            *width = column.head.width().max(*width);
        }
        let Some(most) = columns else { return natural };
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.rank(*at)));
        loop {
            for with_short_ids in [false, true] {
                let widths = self.shortened(&natural, &order, most, with_short_ids);
                if total(&widths) <= most {
                    return widths;
                }
            }
            let is_left_out = |at: &&usize| self.rank(**at) > 0 && natural.get(**at).is_some_and(|width| *width > 0);
            let Some(at) = order.iter().find(is_left_out).copied() else {
                return self.squeezed(self.shortened(&natural, &order, most, true), most);
            };
            natural.iter_mut().skip(at).take(1).for_each(|width| *width = 0);
        }
    }

    /// The last resort: texts that stay are shortened further than they should be, so that the other columns are whole.
    fn squeezed(&self, mut widths: Vec<usize>, most: usize) -> Vec<usize> {
        for (at, column) in self.columns.iter().enumerate().filter(|(_, column)| column.least.is_some()) {
            let over = total(&widths).saturating_sub(most);
            if let Some(width) = widths.get_mut(at).filter(|width| **width > 1 && column.rank == 0) {
                *width = width.saturating_sub(over).max(1);
            }
        }
        widths
    }

    fn rank(&self, at: usize) -> u8 {
        self.columns.get(at).map_or(0, |column| column.rank)
    }

    /// The widths after shortening what can be shortened, from the least important column on.
    fn shortened(&self, natural: &[usize], order: &[usize], most: usize, with_short_ids: bool) -> Vec<usize> {
        let mut widths = natural.to_vec();
        for (width, column) in widths.iter_mut().zip(&self.columns).filter(|(_, column)| column.is_id && with_short_ids)
        {
            // Half an id is no more useful than its ends.
            *width = column.least.map_or(*width, |least| least.min(*width));
        }
        for at in order {
            let over = total(&widths).saturating_sub(most);
            let column = self.columns.get(*at).filter(|column| !column.is_id);
            if let Some((width, least)) = widths.get_mut(*at).zip(column.and_then(|column| column.least)) {
                *width -= over.min(width.saturating_sub(least));
            }
        }
        widths
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().filter(|width| **width > 0).map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(columns: Option<usize>) -> Vec<String> {
        let mut table = Table::new([
            Column::id("RUN", 1),
            Column::fixed("STATE", 0),
            Column::fixed("SUBMITTED", 3),
            Column::text("TITLE", 2, 8),
            Column::text("WHY", 4, 8),
        ]);
        let plain = |text: &str| (Tone::Plain, text.to_owned());
        table.row([
            plain("01a20224-f47c-7000-8000-00000000beef"),
            (Tone::Busy, "running".to_owned()),
            plain("3 min ago"),
            plain("Review this repository"),
            plain(""),
        ]);
        table.lines(columns, true).iter().map(|line| line.render(None, false)).collect()
    }

    #[test]
    fn a_table_fits_and_keeps_the_state() {
        for columns in [120, 60, 40, 20] {
            let lines = rendered(Some(columns));
            assert!(lines.iter().all(|line| line.width() <= columns), "{lines:?}");
            assert!(lines.iter().all(|line| !line.contains("WHY")), "a column without content is left out: {lines:?}");
            assert!(lines[1].contains("running"), "{lines:?}");
        }
        assert_eq!(rendered(Some(120)), rendered(None));
        assert!(rendered(Some(120))[1].contains("00000000beef") && rendered(Some(120))[1].contains("repository"));
        assert_eq!(rendered(Some(60))[1], "01a202…00beef  running  3 min ago  Review this repository");
        assert_eq!(rendered(Some(40))[1], "01a202…00beef  running  Review this rep…");
        assert_eq!(rendered(Some(20))[1], "running");
    }
}
