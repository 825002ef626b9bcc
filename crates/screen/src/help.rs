//! All keys, in as many columns as fit.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::paint::Paint;

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
    let columns = (area.width / COLUMNS).clamp(1, 2);
    let rows = KEYS.len().div_ceil(usize::from(columns));
    let key_columns = if area.width < COLUMNS { 14 } else { KEY_COLUMNS };
    for column in 0..columns {
        let first = usize::from(column) * rows + from;
        let shown = KEYS.iter().skip(first).take(rows.saturating_sub(from));
        for (at, row) in shown.zip(area.top()..area.bottom()) {
            let key = if key_columns < KEY_COLUMNS { at.0.split(',').next().unwrap_or_default() } else { at.0 };
            let key = Span::styled(format!("{key:key_columns$}"), paint.strong());
            let line = Line::from(vec![key, Span::raw(at.1)]);
            let left = area.left() + column * COLUMNS;
            buffer.set_line(left, row, &line, area.right().saturating_sub(left));
        }
    }
    rows
}
