//! What git says of a session's directory: its state, the diff of a file, the newest commits.
//!
//! Nothing of it comes from `git status`, `diff` or `log`, which run what a repository names: two trees are compared.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ensemble_protocol::seal::look::{Commit, GitLog, GitState, Part, Refusal, Remote, Since, part};
use ensemble_protocol::transcript::bounds::beginning;
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::ReceiptCode;
use ensemble_types::signatures::digest;
use ensemble_types::time::Timestamp;

use super::begin::Noted;
use super::below::{Closed, shown};
use super::names::Ignored;
use super::{of_git, refusal, unknown};
use ensemble_git::GitError;
use ensemble_git::difference::{self, Entry, NOTHING, entries, large_files, patch};
use ensemble_git::repository::{Repository, inside};
use ensemble_git::scratch::Scratch;
use ensemble_git::snapshot::{self, Snapshot, Target};

/// Of the diff of a file that are shown, and of one that is read at all.
const MOST_SHOWN: usize = 512 << 10;
const MOST_DIFF: usize = 8 << 20;
/// Of the list of what is ignored.
const MOST_IGNORED: usize = 16 << 20;
const MOST_REMOTES: usize = 16;
/// Of a line of text.
const MOST_LINE: usize = 500;
const COMMITS: &str = "--max-count=10";

/// The repository of a session, and what a question has git write.
pub(super) struct Changes<'a> {
    pub(super) repository: Repository,
    pub(super) noted: &'a Noted,
    /// The commit and the files of the beginning are not those of the note.
    pub(super) unknown: bool,
    /// The folder of the session.
    pub(super) session: &'a Path,
    /// The session's directory, from the top.
    pub(super) below: PathBuf,
    pub(super) scratch: Scratch,
    pub(super) closed: &'a Closed,
}

struct Compared {
    trees: (String, String),
    entries: Vec<Entry>,
    notes: Vec<String>,
}

impl Changes<'_> {
    pub(super) async fn state(&mut self, since: &Since) -> Result<GitState, Refusal> {
        let Compared { trees, mut entries, notes } = self.compare(since).await?;
        for entry in &mut entries {
            let path = self.within(&entry.path).unwrap_or_default().to_vec();
            entry.path = shown(&path).unwrap_or_else(|shown| shown).into_bytes();
        }
        let report = difference::report(&entries);
        let line = async |args: &[&str]| self.repository.call(args).line().await.ok().filter(|line| !line.is_empty());
        let head = self.repository.commit("HEAD").await.map_err(of_git)?;
        let branch = line(&["symbolic-ref", "--short", "--quiet", "HEAD"]).await;
        let upstream = line(&["rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}"]).await;
        let counts = match (&head, &upstream) {
            (Some(_), Some(_)) => line(&["rev-list", "--left-right", "--count", "HEAD...@{upstream}"]).await,
            _ => None,
        };
        let mut counts = counts.iter().flat_map(|text| text.split('\t')).map(|count| count.parse().ok());
        let mut state = GitState {
            seen: String::new(),
            head,
            branch: branch.map(|name| one_line(&name)),
            upstream: upstream.map(|name| one_line(&name)),
            ahead: counts.next().flatten(),
            behind: counts.next().flatten(),
            remotes: self.remotes().await,
            files: report.files,
            file_count: report.file_count,
            added: report.added,
            removed: report.removed,
            notes,
        };
        // A file can change and keep its counts.
        let all = serde_json::to_string(&(&state, trees)).unwrap_or_default();
        state.seen = digest(all);
        Ok(state)
    }

    pub(super) async fn diff(&mut self, since: &Since, path: &str, from: u64) -> Result<Part, Refusal> {
        let Compared { trees, entries, .. } = self.compare(since).await?;
        let whole = self.below.join(path);
        let whole = whole.as_os_str().as_bytes();
        let text = match entries.iter().find(|entry| entry.path == whole) {
            None => String::new(),
            Some(entry) if entry.new_id.is_empty() => {
                format!("{path} is so large that only its size and time are compared.\n")
            }
            Some(_) => {
                let trees = (trees.0.as_str(), trees.1.as_str());
                let diff = patch(&self.repository, Target::Scratch(&self.scratch), trees, (Some(whole), MOST_DIFF));
                diff.await.map_err(of_git)?
            }
        };
        let text = visible(&text);
        let (kept, missing) = beginning(&text, MOST_SHOWN);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let next = part(kept, from);
        let next =
            next.ok_or_else(|| refusal(ReceiptCode::Superseded, "The diff is another one now. Open it again."))?;
        let bytes = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        Ok(Part { text: next.to_owned(), bytes, digest: digest(kept), cut: Some(missing).filter(|bytes| *bytes > 0) })
    }

    pub(super) async fn log(&self, since: &Since) -> Result<GitLog, Refusal> {
        self.check(since)?;
        if self.repository.commit("HEAD").await.map_err(of_git)?.is_none() {
            return Ok(GitLog { commits: Vec::new() });
        }
        let mut call =
            self.repository.call(&["rev-list", COMMITS, "--format=%ct%n%<(120,trunc)%an%n%<(480,trunc)%s", "HEAD"]);
        if let (Since::Begin, Some(head)) = (since, &self.noted.head) {
            call = call.arg(format!("^{head}"));
        }
        call = call.arg("--");
        if !self.below.as_os_str().is_empty() {
            call = call.arg(&self.below);
        }
        let output = call.output().await.map_err(of_git)?;
        let text = String::from_utf8_lossy(&output);
        let mut lines = text.split('\n');
        let mut commits = Vec::new();
        while let Some(id) = lines.next().and_then(|line| line.strip_prefix("commit ")) {
            let seconds = lines.next().and_then(|line| line.parse().ok()).unwrap_or_default();
            let mut text = || one_line(lines.next().unwrap_or_default().trim_end());
            let (author, subject) = (text(), text());
            commits.push(Commit { id: id.to_owned(), author, at: Timestamp::from_unix_seconds(seconds), subject });
        }
        Ok(GitLog { commits })
    }

    /// Whether git tracks the file. A directory names all that are in it.
    pub(super) async fn tracks(&self, path: &Path) -> Result<bool, Refusal> {
        let whole = self.below.join(path);
        let list =
            self.repository.call(&["ls-files", "-z", "--cached", "--"]).arg(&whole).output().await.map_err(of_git)?;
        Ok(list.split(|byte| *byte == 0).any(|name| name == whole.as_os_str().as_bytes()))
    }

    /// What it ignores below the session's directory.
    pub(super) async fn ignored(&self) -> Result<Ignored, Refusal> {
        let mut call = self
            .repository
            .call(&["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"])
            .at_most(MOST_IGNORED);
        if !self.below.as_os_str().is_empty() {
            call = call.arg("--").arg(&self.below);
        }
        let output = call.output().await.map_err(of_git)?;
        let path = |path: &[u8]| PathBuf::from(OsString::from_vec(path.strip_suffix(b"/").unwrap_or(path).to_vec()));
        // A directory above the session's is empty here, which names all that is in it.
        let below = |path: PathBuf| path.strip_prefix(&self.below).map(Path::to_owned).unwrap_or_default();
        let found = output.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(|name| below(path(name)));
        Ok(Ignored::ByGit(found.collect::<HashSet<_>>()))
    }

    fn check(&self, since: &Since) -> Result<(), Refusal> {
        if *since == Since::Begin && self.unknown { Err(unknown()) } else { Ok(()) }
    }

    async fn compare(&mut self, since: &Since) -> Result<Compared, Refusal> {
        self.check(since)?;
        let (mut notes, mut earlier) = (Vec::new(), None);
        if *since == Since::Begin {
            earlier = self.noted.snapshot(self.session);
            if earlier.is_none() {
                notes.push(
                    "Compared with the commit with which the session began: its files at that time are not known."
                        .to_owned(),
                );
            }
        }
        let before = match (earlier, since) {
            (Some((before, objects)), _) => {
                self.scratch.read_from(objects);
                before
            }
            (None, Since::Begin) => self.of_commit(self.noted.head.clone()).await.map_err(of_git)?,
            (None, _) => {
                let head = self.repository.commit("HEAD").await.map_err(of_git)?;
                self.of_commit(head).await.map_err(of_git)?
            }
        };
        let compared = async {
            let into = Target::Scratch(&self.scratch);
            let after =
                snapshot::take_below(&self.repository, into, &self.below, &|path| self.closed.has(path)).await?;
            let mut entries = entries(&self.repository, into, (&before.tree, &after.tree)).await?;
            entries.extend(large_files(&before, &after));
            let is_closed = |path: &[u8]| self.closed.has(&inside(&self.repository.top, path));
            entries.retain(|entry| self.within(&entry.path).is_some() && !is_closed(&entry.path));
            self.leave_out_ignored(&mut entries).await?;
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            Ok::<_, GitError>(Compared { trees: (before.tree.clone(), after.tree), entries, notes })
        };
        compared.await.map_err(of_git)
    }

    /// A commit, or nothing at all, as a snapshot.
    async fn of_commit(&self, commit: Option<String>) -> Result<Snapshot, GitError> {
        let tree = match commit {
            Some(commit) => commit,
            None => {
                let objects = self.repository.path_of("objects").await?;
                Target::Scratch(&self.scratch).call(&self.repository, &objects, &["mktree"]).line().await?
            }
        };
        Ok(Snapshot { tree, large: Default::default() })
    }

    /// What was not ignored when the session began and is now seems to be gone. It may hold secrets.
    async fn leave_out_ignored(&self, entries: &mut Vec<Entry>) -> Result<(), GitError> {
        let gone: Vec<u8> = entries
            .iter()
            .filter(|entry| entry.new_mode == NOTHING)
            .flat_map(|entry| [b"./".as_slice(), &entry.path, b"\0"].concat())
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let most = 2 * gone.len();
        // It refuses literal paths. Nothing that begins with a dot has a special meaning.
        let call = self.repository.call(&["check-ignore", "-z", "--stdin"]).env("GIT_LITERAL_PATHSPECS", "0");
        let call = call.input(gone).at_most(most);
        let (code, output, error) = call.run().await?;
        match code {
            // None is ignored.
            Some(1) => Ok(()),
            Some(0) => {
                let paths = output.split(|byte| *byte == 0);
                let ignored: HashSet<&[u8]> = paths.filter_map(|path| path.strip_prefix(b"./")).collect();
                entries.retain(|entry| entry.new_mode != NOTHING || !ignored.contains(entry.path.as_slice()));
                Ok(())
            }
            _ => Err(GitError::Failed("check-ignore".to_owned(), error)),
        }
    }

    /// The path below the session's directory.
    fn within<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let below = self.below.as_os_str().as_bytes();
        if below.is_empty() { Some(path) } else { path.strip_prefix(below)?.strip_prefix(b"/") }
    }

    async fn remotes(&self) -> Vec<Remote> {
        let call = self.repository.call(&["config", "--null", "--get-regexp", r"^remote\..*\.url$"]);
        let output = call.output().await.unwrap_or_default();
        let lines = output.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let remote = |line: &str| {
            let (key, url) = line.split_once('\n')?;
            let name = key.strip_prefix("remote.")?.strip_suffix(".url")?;
            Some(Remote { name: one_line(name), url: one_line(without_credentials(url).as_str()) })
        };
        lines.filter_map(|line| remote(&line)).take(MOST_REMOTES).collect()
    }
}

/// An address without user, password and query.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let rest = if scheme.is_empty() { rest } else { rest.split(['?', '#']).next().unwrap_or_default() };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

fn one_line(text: &str) -> String {
    let shown = shown(text.as_bytes()).unwrap_or_else(|shown| shown);
    beginning(&shown, MOST_LINE).0.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_their_secrets() {
        for (url, shown) in [
            ("https://anna:secret@example.org/a.git?token=x#y", "https://example.org/a.git"),
            ("https://example.org/a@b.git", "https://example.org/a@b.git"),
            ("https://a:b@c@example.org", "https://example.org"),
            ("git@example.org:a/b.git", "example.org:a/b.git"),
            ("anna:secret@example.org:a", "example.org:a"),
            ("/srv/a.git", "/srv/a.git"),
            ("ssh://git@example.org:22/a", "ssh://example.org:22/a"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
