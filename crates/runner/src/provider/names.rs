//! Which names and ids are safe to pass to a program as arguments.

/// Whether a model name is valid in the interface. Names that look like an option or need quoting are not.
pub(crate) fn is_model(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"._:/[]-".contains(&b);
    name.len() <= 128 && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(inside)
}

/// Whether it looks like a session id of the programs. Other ids are not passed to them.
pub(crate) fn is_session(id: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    id.len() <= 128 && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && id.bytes().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_options_are_refused() {
        for good in ["gpt-5", "claude-opus-4-8[1m]", "models/x:y", "a"] {
            assert!(is_model(good), "{good}");
        }
        for bad in ["", "-m", "--help", "a b", "a;b", "$(x)", "ä", "a\0", &"x".repeat(129)] {
            assert!(!is_model(bad), "{bad}");
            assert!(!is_session(bad), "{bad}");
        }
    }
}
