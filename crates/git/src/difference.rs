//! What differs between two states of a working tree: files with counts, and a unified diff in parts.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_types::changes::{ChangedFile, FileChange, ReportedChanges};
use ensemble_types::text::Text;
use serde::{Deserialize, Serialize};

use crate::GitError;
use crate::repository::Repository;
use crate::snapshot::{Snapshot, Target};

/// Files that are named, and what their names take. The interface accepts 256.
const MOST_FILES: usize = 256;
const MOST_NAME_BYTES: usize = 30 << 10;
/// A diff up to this length is sent as a whole, a longer one by files. The interface accepts 2 MiB a call, as JSON.
const WHOLE_BYTES: usize = 512 << 10;
/// The parts that are sent.
const MOST_DIFF_BYTES: usize = 8 << 20;
/// Of the list of changed files.
const MOST_LIST_BYTES: usize = 16 << 20;

/// A change of one path, as git describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub old_mode: String,
    pub new_mode: String,
    pub new_id: String,
    pub counts: Option<(u64, u64)>,
}

pub const NOTHING: &str = "000000";
/// A commit of another repository.
pub const SUBMODULE: &str = "160000";

impl Entry {
    pub fn kind(&self) -> FileChange {
        match (self.old_mode.as_str(), self.new_mode.as_str()) {
            (NOTHING, _) => FileChange::Added,
            (_, NOTHING) => FileChange::Deleted,
            _ => FileChange::Modified,
        }
    }
}

/// What an attempt changed.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    pub report: ReportedChanges,
    /// In the order of their paths, each once, as the server gives them.
    pub diff: Vec<DiffPart>,
    /// Nothing is left out in the diff.
    pub has_whole_diff: bool,
    /// Nor in the list of files.
    pub has_whole_list: bool,
    /// The commit that has it, where it is in a worktree.
    pub commit: Option<String>,
}

/// A part of a diff. Without a path it is about all files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiffPart {
    pub path: Option<String>,
    pub data: String,
}

const OPTIONS: [&str; 6] = ["-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index"];

/// The paths that differ between two trees or commits.
pub async fn entries(
    repository: &Repository,
    into: Target<'_>,
    (old, new): (&str, &str),
) -> Result<Vec<Entry>, GitError> {
    let objects = repository.path_of("objects").await?;
    let mut args = vec!["diff-tree"];
    args.extend(OPTIONS);
    args.extend(["-z", "--raw", "--numstat", old, new, "--"]);
    let output = into.call(repository, &objects, &args).at_most(MOST_LIST_BYTES).output().await?;
    parse(&output).ok_or_else(|| GitError::Other("git diff-tree wrote something unexpected".to_owned()))
}

/// First the lines that begin with a colon, each followed by a path, then the counts.
fn parse(output: &[u8]) -> Option<Vec<Entry>> {
    let (mut found, mut places) = (Vec::new(), BTreeMap::new());
    let mut fields = output.split(|byte| *byte == 0);
    while let Some(field) = fields.next().filter(|field| !field.is_empty()) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        if let Some(raw) = field.strip_prefix(b":") {
            let raw = text(raw)?;
            let mut parts = raw.split(' ');
            let (old_mode, new_mode) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            let new_id = parts.nth(1)?.to_owned();
            let path = fields.next()?.to_vec();
            places.insert(path.clone(), found.len());
            found.push(Entry { path, old_mode, new_mode, new_id, counts: None });
        } else {
            let mut parts = field.splitn(3, |byte| *byte == b'\t');
            let (added, removed, path) = (text(parts.next()?)?, text(parts.next()?)?, parts.next()?);
            let entry = found.get_mut(*places.get(path)?)?;
            entry.counts = added.parse().ok().zip(removed.parse().ok());
        }
    }
    Some(found)
}

/// Compares two states.
pub async fn compare(
    repository: &Repository,
    into: Target<'_>,
    (before, after): (&Snapshot, &Snapshot),
) -> Result<Changed, GitError> {
    let trees = (before.tree.as_str(), after.tree.as_str());
    let mut entries = entries(repository, into, trees).await?;
    entries.extend(large_files(before, after));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut report = report(&entries);
    let (diff, has_whole_diff) = diff(repository, into, trees, &entries).await?;
    let has_whole_list = report.files.len() == entries.len();
    // A person who sees the diff has to know that it is not all.
    report.partial = !has_whole_diff;
    Ok(Changed { report, diff, has_whole_diff, has_whole_list, commit: None })
}

/// The large files that were added, changed or removed.
pub fn large_files<'a>(before: &'a Snapshot, after: &'a Snapshot) -> impl Iterator<Item = Entry> {
    let of = |path: &Vec<u8>, old: bool, new: bool| {
        let mode = |exists: bool| if exists { "100644" } else { NOTHING }.to_owned();
        let (old_mode, new_mode) = (mode(old), mode(new));
        Entry { path: path.clone(), old_mode, new_mode, new_id: String::new(), counts: None }
    };
    let changed = after.large.iter().filter(|(path, stamp)| before.large.get(*path) != Some(stamp));
    let changed = changed.map(move |(path, _)| of(path, before.large.contains_key(path), true));
    let gone = before.large.keys().filter(|path| !after.large.contains_key(*path));
    changed.chain(gone.map(move |path| of(path, true, false))).collect::<Vec<_>>().into_iter()
}

/// Their names and counts, as far as they are reported.
pub fn report(entries: &[Entry]) -> ReportedChanges {
    let mut report =
        ReportedChanges { file_count: u32::try_from(entries.len()).unwrap_or(u32::MAX), ..Default::default() };
    let mut bytes = 0;
    for entry in entries {
        let (added, removed) = entry.counts.unzip();
        report.added += added.unwrap_or(0);
        report.removed += removed.unwrap_or(0);
        let name = String::from_utf8_lossy(&entry.path).replace('\0', "\u{fffd}");
        bytes += name.len();
        let Ok(path) = Text::new(name) else { continue };
        if report.files.len() < MOST_FILES && bytes <= MOST_NAME_BYTES {
            report.files.push(ChangedFile { path, kind: entry.kind(), added, removed });
        }
    }
    report
}

async fn diff(
    repository: &Repository,
    into: Target<'_>,
    trees: (&str, &str),
    entries: &[Entry],
) -> Result<(Vec<DiffPart>, bool), GitError> {
    if entries.is_empty() {
        return Ok((Vec::new(), true));
    }
    match patch(repository, into, trees, (None, WHOLE_BYTES)).await {
        Ok(data) if data.is_empty() => return Ok((Vec::new(), false)),
        Ok(data) => return Ok((vec![DiffPart { path: None, data }], true)),
        Err(GitError::TooMuch(..)) => {}
        Err(error) => return Err(error),
    }
    let (mut parts, mut bytes, mut is_whole) = (BTreeMap::new(), 0, entries.len() <= MOST_FILES);
    for entry in entries.iter().take(MOST_FILES) {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let data = match patch(repository, into, trees, (Some(&entry.path), WHOLE_BYTES)).await {
            Ok(data) => data,
            Err(GitError::TooMuch(..)) => {
                is_whole = false;
                format!("diff --git a/{path} b/{path}\n[the diff of this file is too long]\n")
            }
            Err(error) => return Err(error),
        };
        bytes += data.len();
        if bytes > MOST_DIFF_BYTES {
            is_whole = false;
            break;
        }
        let path: String = path.chars().take(1_024).collect();
        is_whole &= parts.insert(path, data).is_none();
    }
    Ok((parts.into_iter().map(|(path, data)| DiffPart { path: Some(path), data }).collect(), is_whole))
}

/// The unified diff of one path, or of all.
///
/// # Errors
/// [`GitError::TooMuch`]: it has more than `most` bytes.
pub async fn patch(
    repository: &Repository,
    into: Target<'_>,
    (old, new): (&str, &str),
    (path, most): (Option<&[u8]>, usize),
) -> Result<String, GitError> {
    use std::os::unix::ffi::OsStrExt;
    let objects = repository.path_of("objects").await?;
    let mut args = vec!["diff-tree"];
    args.extend(OPTIONS);
    args.extend(["-p", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/", old, new, "--"]);
    let mut call = into.call(repository, &objects, &args).at_most(most);
    if let Some(path) = path {
        call = call.arg(Path::new(std::ffi::OsStr::from_bytes(path)));
    }
    // The interface refuses U+0000.
    Ok(String::from_utf8_lossy(&call.output().await?).replace('\0', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_counts_are_joined_by_their_paths() {
        let id = "0".repeat(40);
        let raw = format!(
            ":100644 000000 {id} {id} D\0a b\0:000000 100755 {id} {id} A\0n\ne\0:100644 100644 {id} {id} M\0bin\0\
             0\t3\ta b\0001\t0\tn\ne\0-\t-\tbin\0"
        );
        let found = parse(raw.as_bytes()).unwrap();
        let seen: Vec<_> = found.iter().map(|entry| (entry.path.as_slice(), entry.kind(), entry.counts)).collect();
        assert_eq!(
            seen,
            [
                (&b"a b"[..], FileChange::Deleted, Some((0, 3))),
                (b"n\ne", FileChange::Added, Some((1, 0))),
                (b"bin", FileChange::Modified, None),
            ]
        );
        assert_eq!(parse(b""), Some(Vec::new()));
        assert_eq!(parse(b"nonsense\0"), None);
    }
}
