//! Texts of others, made fit for a terminal: no text can control it, hide something or take more room than it may.

use std::borrow::Cow;

use ensemble_protocol::transcript::visible;

/// The columns of a tab.
const TAB: &str = "    ";

/// A text in which everything is visible, as requests need it: it is what is decided about.
pub(crate) fn strict(text: &str) -> String {
    let shown = visible(text);
    if shown.contains('\t') { shown.replace('\t', TAB) } else { shown.into_owned() }
}

/// A text to read. What only chooses how a character looks is left out, and other spaces become one.
pub(crate) fn readable(text: &str) -> String {
    let is_odd = |letter: char| matches!(letter, '\u{fe0f}' | '\u{a0}' | '\u{202f}' | '\r');
    if !text.contains(is_odd) {
        return strict(text);
    }
    let text = text.replace("\r\n", "\n").replace('\u{fe0f}', "");
    strict(&text.replace(['\u{a0}', '\u{202f}'], " "))
}

/// What a program wrote to its terminal: without colours, and only what stands after the last carriage return of a line.
pub(crate) fn output(text: &str) -> String {
    let text = without_styles(text);
    let lines = text.split('\n').map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.rsplit('\r').next().unwrap_or(line)
    });
    readable(&lines.collect::<Vec<_>>().join("\n"))
}

/// One line of at most `most` characters.
pub(crate) fn line(text: &str, most: usize) -> String {
    let text = strict(text.trim());
    let mut letters = text.chars().map(|letter| if letter == '\n' { ' ' } else { letter });
    let mut short: String = letters.by_ref().take(most).collect();
    if letters.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// Leaves out the sequences that set colours (ECMA-48, "select graphic rendition"). Others stay, and become visible.
fn without_styles(text: &str) -> Cow<'_, str> {
    if !text.contains("\u{1b}[") {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    kept.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let numbers =
            part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';').len();
        match part.get(numbers..).and_then(|rest| rest.strip_prefix('m')) {
            Some(rest) => kept.push_str(rest),
            None => {
                kept.push_str("\u{1b}[");
                kept.push_str(part);
            }
        }
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_to_read_loses_only_what_is_invisible() {
        assert_eq!(readable("⚠\u{fe0f} voilà\u{a0}!\r\nx\ty"), "⚠ voilà !\nx    y");
        assert_eq!(readable("a\rb\u{202e}c\u{200b}"), "a\\u{d}b\\u{202e}c\\u{200b}");
        assert_eq!(strict("⚠\u{fe0f}\u{a0}"), "⚠\\u{fe0f}\\u{a0}");
    }

    #[test]
    fn output_is_what_a_terminal_would_be_left_with() {
        assert_eq!(output("\u{1b}[1;32mok\u{1b}[0m\r\n10%\r20%\r\nend"), "ok\n20%\nend");
        assert_eq!(output("\u{1b}[2Jx\u{1b}]0;t\u{7}"), "\\u{1b}[2Jx\\u{1b}]0;t\\u{7}");
    }

    #[test]
    fn a_line_is_one_and_short() {
        assert_eq!(line(" a\nb ", 9), "a b");
        assert_eq!(line("abcdef", 4), "abc…");
    }
}
