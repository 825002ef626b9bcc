//! Whether a task can begin in a directory of this machine. Found before a run is submitted, so that there is no run that cannot begin. The
//! runner checks again.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ensemble_types::line::short;
use tokio::process::Command;

use crate::error::{Error, Result};

/// How long git may take. The check is left out when it takes longer.
const LONGEST: Duration = Duration::from_secs(10);

/// Fails if a task cannot begin in a directory of this machine. `has_worktree`: it works in one of its own.
pub async fn check(path: &Path, has_worktree: bool) -> Result<()> {
    directory(path)?;
    if has_worktree { repository(path).await } else { Ok(()) }
}

fn directory(path: &Path) -> Result<()> {
    let wrong = match path.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("{} is not a directory.", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("There is no directory {} on this machine.", path.display())
        }
        // The agent's user may be allowed more.
        Err(_) => return Ok(()),
    };
    Err(Error::sentence(format!("{wrong} Make it, or name another one: -C DIR (`workingDirectory` in a plan).")))
}

async fn repository(path: &Path) -> Result<()> {
    let without = "leave out --worktree (`isolation: worktree` in a plan)";
    if let Some(Err(said)) = git(path, &["rev-parse", "--git-dir"]).await {
        let said = short(&said, 200);
        return Err(Error::sentence(format!(
            "A worktree needs a git repository, and {} is in none ({said}). Make one: `git init` and a first commit, or {without}.",
            path.display()
        )));
    }
    if let Some(Err(_)) = git(path, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await {
        return Err(Error::sentence(format!(
            "A worktree begins with a commit, and the git repository of {} has none. Make one: `git add --all && git commit`, \
             or {without}.",
            path.display()
        )));
    }
    Ok(())
}

/// Whether git succeeds here, or what it says. `None`: it could not be asked.
async fn git(path: &Path, arguments: &[&str]) -> Option<Result<(), String>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(path).args(arguments).stdin(Stdio::null()).kill_on_drop(true).env("LC_ALL", "C");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let output = tokio::time::timeout(LONGEST, command.output()).await.ok()?.ok()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said()) })
}
