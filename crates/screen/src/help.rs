//! All keys, in as many columns as fit.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::paint::Paint;
use crate::wrap::{Break, wrap};

const KEYS: &[(&str, &str)] = &[
    ("enter", "send; after the turn that runs"),
    ("ctrl-s", "send into the turn that runs"),
    ("alt-enter, ctrl-j", "a new line"),
    ("up, down", "your earlier prompts"),
    ("esc", "interrupt the turn; end what still runs"),
    ("1, 2, 3, 4", "allow, deny, deny and stop, more"),
    ("alt-1 to 3", "answer it with your text"),
    ("alt-up, alt-down", "scroll a long request"),
    ("tab", "the options, the next request; complete"),
    ("ctrl-o", "unfold tools and thoughts"),
    ("ctrl-t", "show the plan"),
    ("shift-tab", "mode: ask, edit, plan"),
    ("pgup, pgdn", "scroll"),
    ("ctrl-c", "empty the text; interrupt"),
    ("ctrl-c twice, ctrl-d", "leave; the session goes on"),
    ("ctrl-w, ctrl-u, ctrl-k", "delete a word, a line"),
    ("ctrl-left, ctrl-right", "move by words"),
    ("/", "commands"),
];
/// The columns of an entry and of its keys.
const COLUMNS: u16 = 56;
const KEY_COLUMNS: usize = 24;

/// Draws the keys from this line on. How many lines there are.
pub(crate) fn draw(buffer: &mut Buffer, area: Rect, from: usize, paint: Paint) -> usize {
    if area.width < COLUMNS {
        return draw_narrow(buffer, area, from, paint);
    }
    let columns = (area.width / COLUMNS).clamp(1, 2);
    let rows = KEYS.len().div_ceil(usize::from(columns));
    for column in 0..columns {
        let first = usize::from(column) * rows + from;
        let shown = KEYS.iter().skip(first).take(rows.saturating_sub(from));
        for (at, row) in shown.zip(area.top()..area.bottom()) {
            let key = Span::styled(format!("{:KEY_COLUMNS$}", at.0), paint.strong());
            let line = Line::from(vec![key, Span::raw(at.1)]);
            let left = area.left() + column * COLUMNS;
            buffer.set_line(left, row, &line, area.right().saturating_sub(left));
        }
    }
    rows
}

/// The keys, and below each what it does: whole, however narrow it is.
fn draw_narrow(buffer: &mut Buffer, area: Rect, from: usize, paint: Paint) -> usize {
    let indent = Span::raw("  ");
    let lines: Vec<Line<'static>> = KEYS
        .iter()
        .flat_map(|(key, about)| {
            let key = wrap(&[Span::styled(*key, paint.strong())], area.width, Break::Words, &Span::raw(""), &indent);
            key.into_iter().chain(wrap(&[Span::raw(*about)], area.width, Break::Words, &indent, &indent))
        })
        .collect();
    for (line, row) in lines.iter().skip(from).zip(area.top()..area.bottom()) {
        buffer.set_line(area.left(), row, line, area.width);
    }
    lines.len()
}
