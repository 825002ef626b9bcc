//! A git repository with a working tree.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ensemble_process::disk::on_disk;

use crate::pinned::{config, make};
use crate::scratch::Scratch;
use crate::{Call, Git, GitError};

/// Of the configuration.
const MOST_CONFIG: usize = 1 << 20;

/// A working tree and its repository. Calls name both, so that nothing that an agent leaves in the tree redirects them.
#[derive(Clone, Debug)]
pub struct Repository {
    git: Git,
    /// The top of the working tree, without symbolic links.
    pub top: PathBuf,
    /// The tree's own part of the repository: its index and its HEAD.
    pub git_dir: PathBuf,
    /// Configuration that keeps git from running the filters and merge drivers that the repository names.
    overrides: Vec<(OsString, OsString)>,
    /// In place of what all working trees of the repository share.
    common: Option<PathBuf>,
}

impl Repository {
    /// The working tree that a directory is in. `None` outside of git.
    pub async fn find(git: &Git, directory: &Path) -> Option<Self> {
        git.prepare().await;
        let path = async |what: &str| {
            let output = git.call(directory, &["rev-parse", what]).output().await.ok()?;
            let line = output.strip_suffix(b"\n")?.to_vec();
            PathBuf::from(OsString::from_vec(line)).canonicalize().ok()
        };
        let (top, git_dir) = (path("--show-toplevel").await?, path("--absolute-git-dir").await?);
        Self::open(git, top, git_dir).await.ok()
    }

    pub async fn open(git: &Git, top: PathBuf, git_dir: PathBuf) -> Result<Self, GitError> {
        git.prepare().await;
        let mut repository = Self { git: git.clone(), top, git_dir, overrides: Vec::new(), common: None };
        repository.overrides = repository.find_overrides().await?;
        Ok(repository)
    }

    /// The same repository, with its configuration as it is now. An agent can have changed it.
    pub async fn again(&self) -> Result<Self, GitError> {
        Self::open(&self.git, self.top.clone(), self.git_dir.clone()).await
    }

    /// Has the calls that follow read a copy of what counts of the configuration, whatever is written to it meanwhile.
    ///
    /// # Errors
    /// As of [`Self::own_common`], or the copy cannot be made.
    pub async fn pin(&mut self, scratch: &Scratch) -> Result<(), GitError> {
        let (common, into) = (self.own_common().await?, scratch.join("common"));
        self.common = Some(common.clone());
        let list = self.call(&["config", "--null", "--show-scope", "--list"]).at_most(MOST_CONFIG).output().await?;
        let copy = into.clone();
        on_disk(move || make(&copy, &common, &config(&list))).await?;
        (self.common, self.overrides) = (Some(into), Vec::new());
        Ok(())
    }

    /// Where the repository has what all its working trees share. A file in it can name that of any other repository.
    ///
    /// # Errors
    /// It is not its own.
    pub async fn own_common(&self) -> Result<PathBuf, GitError> {
        let output = self.call(&["rev-parse", "--git-common-dir"]).output().await?;
        let line = output.strip_suffix(b"\n").unwrap_or(&output).to_vec();
        let common = self.top.join(PathBuf::from(OsString::from_vec(line))).canonicalize()?;
        if common == self.git_dir || self.git_dir.parent() == Some(&common.join("worktrees")) {
            return Ok(common);
        }
        Err(GitError::Other("the repository uses another one as its own".to_owned()))
    }

    pub fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let mut call = self.git.call(&self.top, args).env("GIT_DIR", &self.git_dir).env("GIT_WORK_TREE", &self.top);
        if let Some(common) = &self.common {
            call = call.env("GIT_COMMON_DIR", common);
        }
        if !self.overrides.is_empty() {
            call = call.env("GIT_CONFIG_COUNT", self.overrides.len().to_string());
        }
        for (at, (name, value)) in self.overrides.iter().enumerate() {
            call = call.env(format!("GIT_CONFIG_KEY_{at}"), name).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        call
    }

    /// The commit that a revision names. `None` if it names none.
    pub async fn commit(&self, revision: &str) -> Result<Option<String>, GitError> {
        let call = self.call(&["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let (code, output, error) = call.arg(format!("{revision}^{{commit}}")).run().await?;
        let id = String::from_utf8_lossy(&output).trim().to_owned();
        match code {
            Some(0) if is_object_id(&id) => Ok(Some(id)),
            Some(_) if error.is_empty() || id.is_empty() => Ok(None),
            _ => Err(GitError::Failed("rev-parse".to_owned(), error)),
        }
    }

    /// Where git has a file of this working tree.
    pub async fn path_of(&self, name: &str) -> Result<PathBuf, GitError> {
        let output = self.call(&["rev-parse", "--git-path", name]).output().await?;
        let line = output.strip_suffix(b"\n").unwrap_or(&output).to_vec();
        Ok(self.top.join(PathBuf::from(OsString::from_vec(line))))
    }

    /// The programs that attributes of files would run are replaced: filters by none, merge drivers by one that reports a
    /// conflict.
    async fn find_overrides(&self) -> Result<Vec<(OsString, OsString)>, GitError> {
        let call = self.call(&["config", "--null", "--name-only", "--get-regexp", r"^(filter|merge)\..*\."]);
        let (_, output, _) = call.at_most(1 << 20).run().await?;
        let mut overrides = Vec::new();
        for name in output.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
            let value = match (name.starts_with(b"merge."), last.as_slice()) {
                (false, b"clean" | b"smudge" | b"process") => "",
                (false, b"required") => "false",
                (true, b"driver") => "false",
                _ => continue,
            };
            overrides.push((OsString::from_vec(name.to_vec()), value.into()));
        }
        Ok(overrides)
    }
}

/// A path inside of a working tree, as git writes it.
pub fn inside(top: &Path, path: &[u8]) -> PathBuf {
    top.join(std::ffi::OsStr::from_bytes(path))
}

fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
