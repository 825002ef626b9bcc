//! Texts of others in Markdown, which editors show: they must look as they are.

use ensemble_protocol::transcript::visible;

/// A text of others within a sentence of ours.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in visible(text).chars() {
        if letter.is_ascii_punctuation() && !matches!(letter, ',' | '.' | ':' | ';' | '\'' | '"' | '?' | '/' | '%') {
            shown.push('\\');
        }
        shown.push(if letter == '\n' { ' ' } else { letter });
    }
    shown
}

/// A text of others as a quotation that it cannot leave (CommonMark, "Block quotes"). It may have Markdown.
pub(super) fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.split(['\n', '\r']).map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

/// A text as it is, in a block of code that it cannot close (CommonMark, "Fenced code blocks").
pub(super) fn fenced(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_stay_texts() {
        assert_eq!(escaped("[x](y) *Ann*\n<b>"), "\\[x\\]\\(y\\) \\*Ann\\* \\<b\\>");
        assert_eq!(escaped("a\u{202e}b"), "a\\\\u\\{202e\\}b");
        assert_eq!(quoted("a\n\n**Ann:** b"), "> a\n> \n> **Ann:** b");
        assert_eq!(fenced("ls"), "```\nls\n```");
        assert_eq!(fenced("a\n````\nb\n"), "`````\na\n````\nb\n`````");
    }
}
