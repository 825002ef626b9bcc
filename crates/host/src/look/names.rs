//! The names below a directory.

use std::collections::{HashSet, VecDeque};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ensemble_protocol::seal::look::{Depth, Entry, EntryKind, Names, Refusal};
use ensemble_protocol::transcript::words::ReceiptCode;
use rustix::fs::{FileType, OFlags};

use super::below::{Below, Listed, Name, list, shown};
use super::refusal;

const MOST_NAMES: usize = 5_000;
const MOST_BYTES: usize = 512 << 10;

/// What git ignores below the session's directory.
pub(super) enum Ignored {
    /// Files, and directories of which it ignores all.
    ByGit(HashSet<PathBuf>),
    /// Outside of git: what begins with a dot.
    Dots,
}

impl Ignored {
    fn has(&self, path: &Path) -> bool {
        match self {
            Self::ByGit(paths) => path.ancestors().any(|path| paths.contains(path)),
            Self::Dots => path.iter().any(|name| name.as_bytes().starts_with(b".")),
        }
    }
}

/// The first names level by level, in the order of their paths. Directories that are ignored are only entered when they are asked for.
pub(super) fn find(
    below: &Below,
    (at, depth): (&str, Depth),
    ignored: &Ignored,
    sees_ignored: bool,
) -> Result<Names, Refusal> {
    let (first, real) = below.directory(at)?;
    if !sees_ignored && ignored.has(&real) {
        return Err(refusal(
            ReceiptCode::NotAllowed,
            "git ignores this directory. Only the owner of the session sees it.",
        ));
    }
    // What another repository ignores is not known.
    let is_repository = |place: &Path| {
        !place.as_os_str().is_empty() && below.path().join(place).join(".git").symlink_metadata().is_ok()
    };
    if !sees_ignored && real.ancestors().any(is_repository) {
        return Err(refusal(
            ReceiptCode::NotAllowed,
            "This directory is in another git repository. Only the owner of the session sees it.",
        ));
    }
    let (mut found, mut bytes, mut more) = (Vec::new(), 0, false);
    let mut waiting = VecDeque::from([(real, Some(first))]);
    'all: while let Some((place, opened)) = waiting.pop_front() {
        let opened = opened
            .or_else(|| below.find_any(&place, OFlags::DIRECTORY | OFlags::NOFOLLOW).ok().map(|(opened, _)| opened));
        // It is gone, or closed.
        let Some(opened) = opened else { continue };
        let Ok(Listed { names, more: is_cut, is_repository }) = list(&opened) else { continue };
        if is_repository && !sees_ignored && !place.as_os_str().is_empty() {
            continue;
        }
        more |= is_cut;
        for mut name in names {
            let path = place.join(std::ffi::OsString::from_vec(name.bytes.clone()));
            let is_ignored = ignored.has(&path);
            if (is_ignored && !sees_ignored) || below.closed().has(&below.path().join(&path)) {
                continue;
            }
            name.look(&opened);
            let entry = entry(&path, &name, is_ignored);
            bytes += serde_json::to_string(&entry).map_or(0, |text| text.len() + 1);
            if found.len() == MOST_NAMES || bytes > MOST_BYTES {
                more = true;
                break 'all;
            }
            if depth == Depth::All && entry.kind == EntryKind::Directory && !is_ignored {
                waiting.push_back((path, None));
            }
            found.push(entry);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Names { names: found, more })
}

fn entry(path: &Path, name: &Name, ignored: bool) -> Entry {
    let (path, can_be_opened) = match shown(path.as_os_str().as_bytes()) {
        Ok(path) => (path, true),
        Err(path) => (path, false),
    };
    let kind = match name.kind {
        _ if !can_be_opened => EntryKind::other(),
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::other(),
    };
    Entry { path, kind, bytes: name.size, ignored }
}
