//! Tables of Markdown (GitHub Flavored Markdown, section 4.10), drawn in columns that fit.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use crate::markdown::inline;
use crate::paint::Paint;
use crate::wrap::{Break, columns, wrap};

/// The columns and the rows that are drawn. A longer table stays as it is.
const MOST_COLUMNS: usize = 20;
const MOST_ROWS: usize = 500;
/// The columns of a terminal between two of the table.
const GAP: u16 = 2;
const LEAST: u16 = 3;

/// The table that these lines begin with, and how many lines it has. `None`: they begin with no table, or it does not fit this width.
pub(crate) fn lines(text: &[&str], base: Style, width: u16, paint: Paint) -> Option<(Vec<Line<'static>>, usize)> {
    let [head, rule, ..] = text else { return None };
    let head = cells(head)?;
    let rule = cells(rule)?;
    let is_rule = |cell: &&str| !cell.is_empty() && cell.contains('-') && cell.chars().all(|one| "-:".contains(one));
    if rule.len() != head.len() || !rule.iter().all(is_rule) || head.len() > MOST_COLUMNS {
        return None;
    }
    let mut rows: Vec<Vec<&str>> = text.iter().skip(2).map_while(|line| cells(line)).take(MOST_ROWS + 1).collect();
    let used = rows.len() + 2;
    if rows.len() > MOST_ROWS {
        return None;
    }
    // A row with fewer cells has empty ones, and more are left out.
    rows.iter_mut().for_each(|row| row.resize(head.len(), ""));
    rows.insert(0, head);
    let widths = widths(&rows, width, base, paint)?;
    let mut lines = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let style = if number == 0 { base.patch(paint.strong()) } else { base };
        lines.extend(drawn(row, &widths, style, paint));
        if number == 0 {
            let rule: Vec<String> =
                widths.iter().map(|width| paint.pick("─", "-").repeat(usize::from(*width))).collect();
            lines.push(Line::styled(rule.join(&" ".repeat(usize::from(GAP))), base.patch(paint.dim())));
        }
    }
    Some((lines, used))
}

/// Whether a line may belong to a table.
pub(crate) fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The cells of a row. `None`: the line is no row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().strip_prefix('|')?;
    let line = line.strip_suffix('|').filter(|line| !line.ends_with('\\')).unwrap_or(line);
    let (mut cells, mut from) = (Vec::new(), 0);
    for (at, _) in line.match_indices('|') {
        if line.get(..at).is_some_and(|before| before.ends_with('\\')) {
            continue;
        }
        cells.push(line.get(from..at)?.trim());
        from = at + 1;
    }
    cells.push(line.get(from..)?.trim());
    Some(cells)
}

/// The columns of each column. The widest get narrower until all fit.
fn widths(rows: &[Vec<&str>], width: u16, base: Style, paint: Paint) -> Option<Vec<u16>> {
    let count = rows.first()?.len();
    let of_cell = |cell: &str| inline(cell, base, paint).iter().map(|span| columns(&span.content)).sum::<u16>();
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| of_cell(cell)).max().unwrap_or(0);
    let mut widths: Vec<u16> = (0..count).map(|at| widest(at).max(LEAST)).collect();
    let gaps = GAP.saturating_mul(u16::try_from(count.saturating_sub(1)).ok()?);
    let room = width.checked_sub(gaps)?;
    if room < LEAST.saturating_mul(u16::try_from(count).ok()?) {
        return None;
    }
    while widths.iter().map(|width| u32::from(*width)).sum::<u32>() > u32::from(room) {
        let longest = widths.iter_mut().max()?;
        *longest -= 1;
    }
    Some(widths)
}

/// The lines of a row, whose cells are wrapped.
fn drawn(row: &[&str], widths: &[u16], style: Style, paint: Paint) -> Vec<Line<'static>> {
    let nothing = Span::raw("");
    let wrapped: Vec<Vec<Line<'static>>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrap(&inline(cell, style, paint), *width, Break::Words, &nothing, &nothing))
        .collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|at| {
            let mut line = Vec::new();
            for (number, (cell, width)) in wrapped.iter().zip(widths).enumerate() {
                let part = cell.get(at).map(|part| part.spans.clone()).unwrap_or_default();
                let used: u16 = part.iter().map(|span| columns(&span.content)).sum();
                line.extend(part);
                if number + 1 < widths.len() {
                    line.push(Span::raw(" ".repeat(usize::from(width.saturating_sub(used) + GAP))));
                }
            }
            Line::from(line)
        })
        .collect()
}
