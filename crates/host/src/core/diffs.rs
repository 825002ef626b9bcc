//! What a change of a file would do. Some agents ask only with the input of their tool, so the host computes it from the file.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ensemble_protocol::transcript::body::Diff;
use ensemble_protocol::transcript::bounds::beginning;
use serde_json::Value;

/// A longer file is not read, and its diff is not shown; the whole input is in the detail.
const MOST_FILE: u64 = 256 << 10;
/// Of each side of a diff.
const MOST_SIDE: usize = 64 << 10;

/// A change that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposed {
    path: PathBuf,
    input: Value,
    pub(super) diff: Diff,
}

impl Proposed {
    /// The change that this input of `Write` or `Edit` (Claude Code, "Tools available to Claude") makes. `None`: it is another
    /// tool, or the file is not a text that can be read.
    pub(super) fn of(input: &Value, directory: &Path) -> Option<Self> {
        // An input with more in it may be that of another tool, which does something else.
        let known = ["file_path", "content", "old_string", "new_string", "replace_all"];
        if !input.as_object()?.keys().all(|name| known.contains(&name.as_str())) {
            return None;
        }
        let named = input.get("file_path")?.as_str()?;
        let path = directory.join(named);
        // What lies elsewhere is not read before it is allowed: the diff goes to everyone who may read the session.
        let parent = path.parent()?.canonicalize().ok()?;
        if !parent.starts_with(directory.canonicalize().ok()?) {
            return None;
        }
        let old = read(&parent.join(path.file_name()?))?;
        let new = match (input.get("content"), input.get("old_string"), input.get("new_string")) {
            (Some(content), None, None) => content.as_str()?.to_owned(),
            (None, Some(from), Some(to)) => {
                let (from, to) = (from.as_str()?, to.as_str()?);
                let is_everywhere = input.get("replace_all").and_then(Value::as_bool).unwrap_or(false);
                match old.as_deref() {
                    Some(text) if from.is_empty() || !text.contains(from) => return None,
                    Some(text) if is_everywhere => text.replace(from, to),
                    Some(text) => text.replacen(from, to, 1),
                    None if from.is_empty() => to.to_owned(),
                    None => return None,
                }
            }
            _ => return None,
        };
        let (old_text, old_cut) = match &old {
            Some(text) => {
                let (kept, cut) = beginning(text, MOST_SIDE);
                (Some(kept.to_owned()), cut)
            }
            None => (None, 0),
        };
        let (new_text, new_cut) = beginning(&new, MOST_SIDE);
        let cut = Some(old_cut.saturating_add(new_cut)).filter(|cut| *cut > 0);
        let line = old_text.is_some().then_some(1);
        let diff = Diff { path: named.to_owned(), old_text, new_text: new_text.to_owned(), line, cut };
        Some(Self { path: directory.to_owned(), input: input.clone(), diff })
    }

    /// The same change as it would be now, if the file has changed.
    pub(super) fn changed(&self) -> Option<Self> {
        let now = Self::of(&self.input, &self.path)?;
        (now.diff != self.diff).then_some(now)
    }
}

/// `Some(None)`: there is no file.
fn read(path: &Path) -> Option<Option<String>> {
    // No link leads out, and a pipe does not block.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(None),
        Err(_) => return None,
    };
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MOST_FILE + 1).read_to_end(&mut text).ok()?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MOST_FILE) {
        return None;
    }
    String::from_utf8(text).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_change_is_computed_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one two two").unwrap();
        let of = |input: Value| Proposed::of(&input, folder.path());
        let edit = |from: &str, all: bool| json!({ "file_path": "a", "old_string": from, "new_string": "3", "replace_all": all });
        assert_eq!(of(edit("two", false)).unwrap().diff.new_text, "one 3 two");
        assert_eq!(of(edit("two", true)).unwrap().diff.new_text, "one 3 3");
        assert_eq!(of(edit("four", false)), None, "it would change nothing");
        let write = of(json!({ "file_path": "new", "content": "x" })).unwrap();
        assert_eq!((write.diff.old_text, write.diff.new_text), (None, "x".to_owned()));
        assert_eq!(of(json!({ "command": "ls" })), None);
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        assert_eq!(of(json!({ "file_path": "sub", "content": "x" })), None, "a folder");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        for elsewhere in ["/etc/passwd", "../x", "link"] {
            assert_eq!(of(json!({ "file_path": elsewhere, "content": "x" })), None, "{elsewhere}");
        }
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(of(json!({ "file_path": "pipe", "content": "x" })), None, "a pipe");
    }

    #[test]
    fn a_file_that_has_changed_since_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "one").unwrap();
        let shown = Proposed::of(&json!({ "file_path": file, "content": "two" }), folder.path()).unwrap();
        assert_eq!(shown.changed(), None);
        std::fs::write(&file, "1").unwrap();
        assert_eq!(shown.changed().unwrap().diff.old_text.as_deref(), Some("1"));
    }

    #[test]
    fn a_long_file_is_cut_and_a_longer_one_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "x".repeat(MOST_SIDE + 5)).unwrap();
        let input = json!({ "file_path": file, "content": "y" });
        assert_eq!(Proposed::of(&input, folder.path()).unwrap().diff.cut, Some(5));
        std::fs::write(&file, vec![b'x'; usize::try_from(MOST_FILE).unwrap() + 1]).unwrap();
        assert_eq!(Proposed::of(&input, folder.path()), None);
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(Proposed::of(&input, folder.path()), None, "no text");
        let more = json!({ "file_path": "new", "content": "one", "command": "rm" });
        assert_eq!(Proposed::of(&more, folder.path()), None, "another tool");
    }
}
