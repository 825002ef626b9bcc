//! The form of a task's key, which dependencies and prompts use to name the task.

/// The longest key, in bytes.
pub const MAX_TASK_KEY: usize = 64;

/// `[A-Za-z_][A-Za-z0-9_-]{0,63}`
pub fn is_task_key(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= MAX_TASK_KEY && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_begins_with_a_letter_and_has_at_most_64_characters() {
        for good in ["a", "Z", "_", "a1", "a-b_c", "_-", &"a".repeat(64)] {
            assert!(is_task_key(good), "{good}");
        }
        for bad in ["", "1", "-a", "a.b", "a b", "ä", "aä", "a}", &"a".repeat(65)] {
            assert!(!is_task_key(bad), "{bad}");
        }
    }
}
