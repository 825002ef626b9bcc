//! All keys that this person may use, in as many columns as fit.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use crate::about::Level;
use crate::paint::Paint;
use crate::wrap::{Break, wrap};

/// Each key, what it does, and who may do that.
const KEYS: &[(&str, &str, Level)] = &[
    ("enter", "send; after the turn that runs", Level::Prompt),
    ("ctrl-s", "send into the turn that runs", Level::Prompt),
    ("alt-enter, ctrl-j", "a new line", Level::Prompt),
    ("up, down", "your earlier prompts", Level::Prompt),
    ("ctrl-x", "take back your last prompt that waits", Level::Prompt),
    ("esc", "interrupt; end what still runs", Level::Prompt),
    ("1, 2, 3, 4", "allow, deny, deny and stop, more", Level::Approve),
    ("alt-1 to 3", "answer it with your text", Level::Approve),
    ("alt-up, alt-down", "scroll a long request", Level::Read),
    ("tab", "options; the next request; complete", Level::Prompt),
    ("ctrl-o", "unfold tools and thoughts", Level::Read),
    ("ctrl-t", "show the plan", Level::Read),
    ("shift-tab", "mode: ask, edit, plan", Level::Owner),
    ("ctrl-c", "empty the text; interrupt", Level::Prompt),
    ("ctrl-c twice, ctrl-d", "leave; the session continues", Level::Read),
    ("pgup, pgdn", "scroll", Level::Read),
    ("ctrl-w, ctrl-u, ctrl-k", "delete a word, a line", Level::Prompt),
    ("ctrl-left, ctrl-right", "move by words", Level::Prompt),
    ("/", "commands", Level::Prompt),
];
/// The columns of an entry and of its keys.
const COLUMNS: u16 = 58;
const KEY_COLUMNS: usize = 24;

/// Draws the keys from this line on. How many lines there are.
pub(crate) fn draw(buffer: &mut Buffer, area: Rect, from: usize, level: Level, paint: Paint) -> usize {
    let keys: Vec<_> =
        KEYS.iter().filter(|(.., needs)| level >= *needs).map(|(key, about, _)| (*key, *about)).collect();
    if area.width < COLUMNS {
        return draw_narrow(buffer, area, from, &keys, paint);
    }
    let columns = (area.width / COLUMNS).clamp(1, 2);
    let rows = keys.len().div_ceil(usize::from(columns));
    for column in 0..columns {
        let first = usize::from(column) * rows + from;
        let shown = keys.iter().skip(first).take(rows.saturating_sub(from));
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
fn draw_narrow(
    buffer: &mut Buffer,
    area: Rect,
    from: usize,
    keys: &[(&'static str, &'static str)],
    paint: Paint,
) -> usize {
    let indent = Span::raw("  ");
    let lines: Vec<Line<'static>> = keys
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
