//! The form of a task's key, which dependencies and prompts use to name the task.

/// The longest key, in bytes.
pub(super) const MAX_TASK_KEY: usize = 64;

/// `[A-Za-z_][A-Za-z0-9_-]{0,63}`
pub(super) fn is_task_key(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= MAX_TASK_KEY && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
