//! Makes characters visible that a screen hides or that change what a reader sees.
//!
//! A command such as `rm x` can look like another one when it has control characters, characters that turn the direction of
//! writing (Unicode Standard Annex 9), or characters without width. Unicode Technical Standard 55 ("source code handling")
//! names the danger.

use std::borrow::Cow;

use crate::hidden::is_hidden;
use crate::transcript::bounds::{MOST_DETAIL, beginning};

/// The text with each such character written as `\u{…}`. Line feeds and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_hidden(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// The detail of a permission request: visible, and at most [`MOST_DETAIL`] bytes.
///
/// The second value is the number of bytes that are missing. When it is there, the request may only be refused.
pub fn detail(text: &str) -> (String, Option<u64>) {
    let shown = visible(text);
    match beginning(&shown, MOST_DETAIL) {
        (_, 0) => (shown.into_owned(), None),
        (kept, missing) => (kept.to_owned(), Some(missing)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_hidden_is_written_out() {
        for (text, shown) in [
            ("ls -l\n\tgrüße 😀", "ls -l\n\tgrüße 😀"),
            ("a\rb\u{1b}[2K", "a\\u{d}b\\u{1b}[2K"),
            ("x\u{202e}y\u{2066}z", "x\\u{202e}y\\u{2066}z"),
            ("rm\u{200b} x\u{feff}", "rm\\u{200b} x\\u{feff}"),
            ("a\u{a0}b\u{3164}c\u{e0041}", "a\\u{a0}b\\u{3164}c\\u{e0041}"),
            ("\u{0}\u{7f}\u{9b}", "\\u{0}\\u{7f}\\u{9b}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn a_long_detail_is_cut_and_says_so() {
        assert_eq!(detail("ls"), ("ls".to_owned(), None));
        let exact = "x".repeat(MOST_DETAIL);
        assert_eq!(detail(&exact), (exact.clone(), None));
        let (kept, missing) = detail(&format!("{exact}é"));
        assert_eq!((kept.len(), missing), (MOST_DETAIL, Some(2)));
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in any::<String>()) {
            let shown = visible(&text).into_owned();
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert_eq!(visible(&shown).into_owned(), shown.clone());
        }
    }
}
