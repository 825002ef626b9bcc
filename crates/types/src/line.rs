//! Text of people in one line.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line() {
        assert_eq!(short("hello", 10), "hello");
        assert_eq!(short("\n  hello world \n more", 8), "hello w…");
        assert_eq!(short("one\ntwo", 10), "one…");
        assert_eq!(inline("done\nstate      failed"), "done state      failed");
    }
}
