//! A line across the screen, with words in it.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use crate::paint::Paint;
use crate::wrap::{columns, fit};

/// A rule with words at its left and at its right. Where both do not fit, the right ones go.
pub(crate) fn rule(left: &str, style: Style, right: &str, width: u16, paint: Paint) -> Line<'static> {
    let line = |count: u16| Span::styled(paint.rule().repeat(usize::from(count)), paint.dim());
    let left = fit(left, width.saturating_sub(6), paint.more());
    let left_columns = if left.is_empty() { 0 } else { columns(&left) + 2 };
    let right_columns = if right.is_empty() { 0 } else { columns(right) + 2 };
    let has_right = right_columns > 0 && 2 + left_columns + right_columns + 2 <= width;
    let used = 1 + left_columns + if has_right { right_columns + 1 } else { 0 };
    let mut spans = vec![line(1)];
    if !left.is_empty() {
        spans.push(Span::styled(format!(" {left} "), style));
    }
    spans.push(line(width.saturating_sub(used)));
    if has_right {
        spans.push(Span::styled(format!(" {right} "), paint.dim()));
        spans.push(line(1));
    }
    Line::from(spans)
}
