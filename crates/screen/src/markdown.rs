//! What agents write, with the marks of Markdown as styles: headings, lists, quotes, code, bold, italic, links and tables.
//!
//! It goes line by line, so that a text that is still growing looks as it will, and what is not understood stays as it is.

use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::paint::Paint;
use crate::table;
use crate::wrap::{Break, wrap};

/// The marks inside of a line, longest first.
const MARKS: &[(&str, Modifier)] = &[("**", Modifier::BOLD), ("__", Modifier::BOLD), ("*", Modifier::ITALIC)];

/// A partner that is farther away is not looked for, so that a line of marks costs no more than its length.
const FARTHEST: usize = 2_000;

/// What begins and ends a block of code.
pub(crate) type Fence = &'static str;

/// The lines of a text that is visible already.
pub(crate) fn lines(text: &str, base: Style, width: u16, paint: Paint) -> Vec<Line<'static>> {
    lines_within(&mut None, text, base, width, paint)
}

/// The same for a part of a text, which begins within this fence and leaves the one in which it ends.
pub(crate) fn lines_within(
    fence: &mut Option<Fence>,
    text: &str,
    base: Style,
    width: u16,
    paint: Paint,
) -> Vec<Line<'static>> {
    let nothing = Span::raw("");
    let mut lines = Vec::new();
    let text: Vec<&str> = text.trim_end().split('\n').collect();
    let mut at = 0;
    while let Some(line) = text.get(at) {
        at += 1;
        let trimmed = line.trim_start();
        if let Some(open) = *fence {
            let is_end = trimmed.starts_with(open) && trimmed.trim_end().chars().all(|one| open.starts_with(one));
            if is_end {
                *fence = None;
            } else {
                let code = Span::styled(*line, base.patch(paint.code()));
                let broken = Span::styled(paint.pick("↳ ", "\\ "), base.patch(paint.dim()));
                lines.extend(wrap(&[code], width, Break::Anywhere, &Span::raw("  "), &broken));
            }
            continue;
        }
        if let Some(open) = ["```", "~~~"].into_iter().find(|open| trimmed.starts_with(open)) {
            *fence = Some(open);
            let language = trimmed.trim_start_matches(['`', '~']).trim();
            if !language.is_empty() {
                lines.push(Line::styled(format!("  {language}"), base.patch(paint.dim())));
            }
            continue;
        }
        if let Some((table, used)) = text.get(at - 1..).and_then(|rest| table::lines(rest, base, width, paint)) {
            lines.extend(table);
            at += used - 1;
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
pub(crate) fn inline(line: &str, base: Style, paint: Paint) -> Vec<Span<'_>> {
    let (mut spans, mut plain_from, mut at) = (Vec::new(), 0, 0);
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        if let Some((text, address, used)) = link(rest).filter(|_| before != Some('!')) {
            spans.push(Span::styled(line.get(plain_from..at).unwrap_or_default(), base));
            spans.push(Span::styled(text, base.add_modifier(Modifier::UNDERLINED)));
            if text != address {
                // Where it leads is always seen.
                spans.extend([" (", address, ")"].map(|part| Span::styled(part, base.patch(paint.dim()))));
            }
            at += used;
            plain_from = at;
            continue;
        }
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

/// A link at the beginning of a text: its words, its address, and the bytes of both with their marks.
fn link(text: &str) -> Option<(&str, &str, usize)> {
    let text = ensemble_protocol::transcript::bounds::beginning(text.strip_prefix('[')?, FARTHEST).0;
    let (words, rest) = text.split_once("](")?;
    let (address, _) = rest.split_once(')')?;
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    let is_plain = !words.is_empty() && !words.contains(['[', ']']) && !address.contains([' ', '(', '<']);
    (is_web && is_plain).then(|| (words, address, words.len() + address.len() + 4))
}

/// What is between two marks, if the text begins with one: the inside, its style, and the bytes with both marks.
fn marked(text: &str, before: Option<char>, base: Style, paint: Paint) -> Option<(&str, Style, usize)> {
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
    let window = ensemble_protocol::transcript::bounds::beginning(rest, FARTHEST).0;
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
    fn tables_are_drawn_in_columns_that_fit() {
        let text = "Before\n| Name | Says |\n|---|:--|\n| a | **one** `|`two |\n| longer | three four five six seven eight |\nAfter";
        let expected = [
            "Before",
            "Name    Says",
            "──────  ──────────────────────",
            "a       one `",
            "longer  three four five six",
            "        seven eight",
            "After",
        ];
        assert_eq!(shown(text), expected);
        // What is no table, or has no room, stays as it is.
        for text in ["| Name | Says |\n| a | b |", "| a |", "a | b\n--|--"] {
            assert_eq!(shown(text), text.split('\n').collect::<Vec<_>>());
        }
        let wide = format!("|{}\n|{}", "a|".repeat(12), "-|".repeat(12));
        assert!(shown(&wide).concat().starts_with("|a|a|"));
    }

    #[test]
    fn links_say_where_they_lead() {
        assert_eq!(shown("See [the docs](https://a.example/x)."), ["See the docs", "(https://a.example/x)."]);
        assert_eq!(shown("[https://a.example](https://a.example)"), ["https://a.example"]);
        for text in ["[a](javascript:x)", "[a](file.rs)", "a[0](b)", "[a](https://x", "![a](http://x)"] {
            assert_eq!(shown(text), [text]);
        }
    }

    #[test]
    fn code_that_is_broken_is_marked() {
        let code = "a".repeat(40);
        assert_eq!(shown(&format!("```\n{code}\n```")), [format!("  {}", &code[..28]), format!("↳ {}", &code[28..])]);
    }

    #[test]
    fn lists_hang_and_growing_texts_stay() {
        assert_eq!(shown("- a list that is longer than one line"), ["• a list that is longer than", "  one line"]);
        assert_eq!(shown("**not yet"), ["**not yet"]);
        assert_eq!(shown("```\nopen `code"), ["  open `code"]);
        assert_eq!(shown("`a"), ["`a"]);
    }
}
