//! Diffs: which lines of a file change, with a few lines around them.

use std::time::Duration;

use ensemble_protocol::transcript::body::Diff;
use ratatui_core::text::{Line, Span};
use similar::{ChangeTag, TextDiff};

use crate::clean::{line, strict};
use crate::paint::Paint;
use crate::wrap::{Break, wrap};

/// The lines around a change.
const AROUND: usize = 3;
/// After it the rest of a diff is shown as replaced.
const LONGEST: Duration = Duration::from_millis(20);

/// How many lines were added and removed.
pub(crate) fn counts(diff: &Diff) -> (usize, usize) {
    let compared = compare(diff);
    let count = |tag| compared.iter_all_changes().filter(|change| change.tag() == tag).count();
    (count(ChangeTag::Insert), count(ChangeTag::Delete))
}

/// The path and the changed lines.
pub(crate) fn lines(diff: &Diff, width: u16, indent: &str, paint: Paint) -> Vec<Line<'static>> {
    let before = Span::raw(indent.to_owned());
    let title = Span::styled(line(&diff.path, 4_096), paint.strong());
    let new = Span::styled(if diff.old_text.is_none() { " (new file)" } else { "" }, paint.dim());
    let mut lines = wrap(&[title, new], width, Break::Anywhere, &before, &before);
    let compared = compare(diff);
    for (number, group) in compared.grouped_ops(AROUND).iter().enumerate() {
        if number > 0 {
            lines.push(Line::styled(format!("{indent}  {}", paint.more()), paint.dim()));
        }
        for change in group.iter().flat_map(|part| compared.iter_changes(part)) {
            let (mark, style) = match change.tag() {
                ChangeTag::Insert => ("+ ", paint.good()),
                ChangeTag::Delete => ("- ", paint.bad()),
                ChangeTag::Equal => ("  ", paint.dim()),
            };
            let text = change.value();
            let ends_with_return = text.strip_suffix("\r\n");
            let text = strict(ends_with_return.unwrap_or_else(|| text.strip_suffix('\n').unwrap_or(text)));
            let first = Span::styled(format!("{indent}{mark}"), style);
            let rest = Span::styled(format!("{indent}  "), style);
            lines.extend(wrap(&[Span::styled(text, style)], width, Break::Anywhere, &first, &rest));
        }
    }
    if let Some(missing) = diff.cut {
        lines.push(missing_bytes(missing, indent, paint));
    }
    lines
}

/// The line that says how much is not there.
pub(crate) fn missing_bytes(missing: u64, indent: &str, paint: Paint) -> Line<'static> {
    Line::styled(format!("{indent}{} {missing} bytes are missing here", paint.more()), paint.warning())
}

fn compare(diff: &Diff) -> TextDiff<'_, '_, '_, str> {
    let old = diff.old_text.as_deref().unwrap_or_default();
    TextDiff::configure().timeout(LONGEST).diff_lines(old, &diff.new_text)
}
