//! What agents write, with the marks of Markdown as styles: headings, lists, quotes, code, bold and italic.
//!
//! It goes line by line, so that a text that is still growing looks as it will, and what is not understood stays as it is
//! (tables do: they are aligned by their writer).

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::paint::Paint;
use crate::wrap::{Break, wrap};

/// The marks inside of a line, longest first.
const MARKS: &[(&str, Modifier)] = &[("**", Modifier::BOLD), ("__", Modifier::BOLD), ("*", Modifier::ITALIC)];

/// The lines of a text that is visible already.
pub(crate) fn lines(text: &str, base: Style, width: u16, paint: Paint) -> Vec<Line<'static>> {
    let nothing = Span::raw("");
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.trim_end().split('\n') {
        let trimmed = line.trim_start();
        if let Some(open) = fence {
            let is_end = trimmed.starts_with(open) && trimmed.trim_end().chars().all(|one| open.starts_with(one));
            if is_end {
                fence = None;
            } else {
                let indent = Span::raw("  ");
                let code = Span::styled(line, base.patch(paint.code()));
                lines.extend(wrap(&[code], width, Break::Anywhere, &indent, &indent));
            }
            continue;
        }
        if let Some(open) = ["```", "~~~"].into_iter().find(|open| trimmed.starts_with(open)) {
            fence = Some(open);
            let language = trimmed.trim_start_matches(['`', '~']).trim();
            if !language.is_empty() {
                lines.push(Line::styled(format!("  {language}"), base.patch(paint.dim())));
            }
            continue;
        }
        let Start { before, style, rest } = start(line, base, paint);
        let hanging = " ".repeat(usize::from(crate::wrap::columns(&before.content)));
        let hanging = if before.content.trim_start().starts_with(paint.bar().trim_end()) {
            before.clone()
        } else {
            Span::raw(hanging)
        };
        let before = if before.content.is_empty() { nothing.clone() } else { before };
        lines.extend(wrap(&inline(rest, style, paint), width, Break::Words, &before, &hanging));
    }
    lines
}

/// How a line begins.
struct Start<'a> {
    before: Span<'static>,
    style: Style,
    rest: &'a str,
}

fn start(line: &str, base: Style, paint: Paint) -> Start<'_> {
    let text = line.trim_start_matches(' ');
    let indent = " ".repeat((line.len() - text.len()).min(16));
    let level = text.len() - text.trim_start_matches('#').len();
    if let Some(title) = text.get(level..).and_then(|rest| rest.strip_prefix(' ')).filter(|_| (1..=6).contains(&level))
    {
        return Start { before: Span::raw(""), style: base.patch(paint.strong()), rest: title };
    }
    if let Some(rest) = text.strip_prefix("> ").or_else(|| text.strip_prefix('>')) {
        let style = base.patch(paint.dim());
        return Start { before: Span::styled(format!("{indent}{}", paint.bar()), style), style, rest };
    }
    if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        let before = Span::styled(format!("{indent}{}", paint.bullet()), base.patch(paint.dim()));
        return Start { before, style: base, rest };
    }
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    if (1..=4).contains(&digits)
        && let (Some(number), Some(rest)) = (text.get(..digits), text.get(digits..))
        && let Some(rest) = rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))
    {
        let before = Span::styled(format!("{indent}{number}. "), base.patch(paint.dim()));
        return Start { before, style: base, rest };
    }
    Start { before: Span::raw(indent), style: base, rest: text }
}

/// The parts of a line with their styles. A mark without its partner is text.
fn inline(line: &str, base: Style, paint: Paint) -> Vec<Span<'_>> {
    let (mut spans, mut plain_from, mut at) = (Vec::new(), 0, 0);
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        match marked(rest, before, base, paint) {
            Some((inside, style, used)) => {
                spans.push(Span::styled(line.get(plain_from..at).unwrap_or_default(), base));
                spans.push(Span::styled(inside, style));
                at += used;
                plain_from = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    spans.push(Span::styled(line.get(plain_from..).unwrap_or_default(), base));
    spans.retain(|span| !span.content.is_empty());
    spans
}

/// What is between two marks, if the text begins with one: the inside, its style, and the bytes with both marks.
fn marked(text: &str, before: Option<char>, base: Style, paint: Paint) -> Option<(&str, Style, usize)> {
    /// A partner that is farther away is not looked for, so that a line of marks costs no more than its length.
    const FARTHEST: usize = 2_000;
    if let Some(rest) = text.strip_prefix('`') {
        let end = rest.char_indices().take(FARTHEST).find(|(_, letter)| *letter == '`')?.0;
        let inside = rest.get(..end).filter(|inside| !inside.is_empty())?;
        return Some((inside, base.patch(paint.code()), end + 2));
    }
    if before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let (mark, modifier) = MARKS.iter().find(|(mark, _)| text.starts_with(mark))?;
    let rest = text.get(mark.len()..)?;
    let window = ensemble_transcript::bounds::beginning(rest, FARTHEST).0;
    let end = window.match_indices(mark).map(|(end, _)| end).find(|end| *end > 0)?;
    let inside = window.get(..end)?;
    let is_text = inside.trim().len() == inside.len();
    is_text.then(|| (inside, base.add_modifier(*modifier), end + 2 * mark.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::Look;

    fn shown(text: &str) -> Vec<String> {
        let paint = Paint(Look { colour: true, unicode: true });
        lines(text, Style::new(), 30, paint).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn marks_become_styles() {
        let text = "# Title\n- one **two** `x`\n  1) deep\n> said\n```rust\nlet *a = **b;\n```\n2*3*4 and a_b";
        let expected = ["Title", "• one two x", "  1. deep", "│ said", "  rust", "  let *a = **b;", "2*3*4 and a_b"];
        assert_eq!(shown(text), expected);
        let paint = Paint(Look { colour: true, unicode: true });
        let line = lines("a **b** c", Style::new(), 30, paint).remove(0);
        assert!(line.spans.iter().any(|span| span.content == "b" && span.style == paint.strong()));
    }

    #[test]
    fn lists_hang_and_growing_texts_stay() {
        assert_eq!(shown("- a list that is longer than one line"), ["• a list that is longer than", "  one line"]);
        assert_eq!(shown("**not yet"), ["**not yet"]);
        assert_eq!(shown("```\nopen `code"), ["  open `code"]);
        assert_eq!(shown("`a"), ["`a"]);
    }
}
