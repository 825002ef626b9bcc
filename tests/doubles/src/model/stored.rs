//! What real agents keep in the home of their user: tests wait until claude has written a conversation down before they kill it or copy
//! its machine, and opencode needs no registry.

use std::path::Path;
use std::{fs, io};

/// Whether a conversation in the home of claude's user has this text. claude writes it a moment after it was said.
pub fn claude_has_stored(home: &Path, text: &str) -> bool {
    has_text(&home.join(".claude/projects"), text)
}

/// Makes a home in which claude does not tidy up its folder for sessions. A while after it has started it removes the folder if it is empty,
/// also at the moment when a command makes its own folder in there, which then fails.
///
/// # Errors
/// The home cannot be written to.
pub fn claude_has_sessions(home: &Path) -> io::Result<()> {
    fs::create_dir_all(home.join(".claude/session-env/another"))
}

/// Makes a home in which opencode believes that it has the package for plugins. In an empty one it asks the registry of npm for it, which
/// takes ten seconds of a processor, and a network.
///
/// # Errors
/// The home cannot be written to.
pub fn opencode_has_its_packages(home: &Path) -> io::Result<()> {
    let folder = home.join(".config/opencode");
    fs::create_dir_all(folder.join("node_modules"))?;
    fs::write(folder.join("package-lock.json"), r#"{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}"#)
}

fn has_text(folder: &Path, text: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => has_text(&path, text),
        false => fs::read_to_string(&path).is_ok_and(|content| content.contains(text)),
    })
}
