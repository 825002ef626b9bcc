//! What the real claude keeps of a conversation: tests that kill it or copy its machine wait until it has written it.

use std::path::Path;

/// Whether a conversation in the home of claude's user has this text. claude writes it a moment after it was said.
pub fn claude_has_stored(home: &Path, text: &str) -> bool {
    has_text(&home.join(".claude/projects"), text)
}

fn has_text(folder: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => has_text(&path, text),
        false => std::fs::read_to_string(&path).is_ok_and(|content| content.contains(text)),
    })
}
