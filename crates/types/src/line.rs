//! Text of people in one line, and without control over a terminal.

use std::borrow::Cow;

/// One line of at most `most` characters.
pub fn short(text: &str, most: usize) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if first.chars().count() <= most && first.len() + 1 >= text.trim().len() {
        return first.to_owned();
    }
    let cut: String = first.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// Text from others within a line. It cannot begin a new line.
pub fn inline(text: &str) -> String {
    text.split(['\n', '\t']).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Text from others without control characters other than line feed and tab, and without those that change the direction of a line, so that
/// it cannot control the terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    clean_with(text, |_| "\u{fffd}".to_owned())
}

/// The same with another text for each of these characters.
pub fn clean_with(text: &str, by: impl Fn(char) -> String) -> Cow<'_, str> {
    // Bidirectional controls: Unicode Standard Annex #9, section 2.
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { clean.push_str(&by(c)) } else { clean.push(c) }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_not_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\tc\nd"), "a\u{fffd}[2Jb\tc\nd");
        assert_eq!(clean("naïve 🙂"), "naïve 🙂");
        assert_eq!(clean("a\u{202e}b\u{9b}c"), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn texts_are_one_line() {
        assert_eq!(short("hello", 10), "hello");
        assert_eq!(short("\n  hello world \n more", 8), "hello w…");
        assert_eq!(short("one\ntwo", 10), "one…");
        assert_eq!(inline("done\nstate      failed"), "done state      failed");
    }
}
