//! Worktrees and merges with the real git.

mod applying;
mod comparing;
mod keeping;
mod remaining;
mod seeing;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ensemble_git::difference::Changed;
use ensemble_host::Environment;
use ensemble_process::Directory;
use ensemble_types::changes::{OrderOutcome, OrderResult};
use ensemble_types::ids::{LeaseId, MachineId, RunId, TaskId};
use ensemble_types::leases::{Lease, OrderKind};
use ensemble_types::runs::{Isolation, Provider};
use ensemble_types::time::Timestamp;
use tempfile::TempDir;

use super::{Place, Workplaces};
use crate::config::Config;
use crate::outcome::Outcome;

/// A repository with a commit of `a`, `b` and `folder/c`, and a runner's folder next to it.
struct Fixture {
    folder: TempDir,
    workplaces: Workplaces,
}

/// Those of a runner with this folder.
fn workplaces(folder: &Path, variables: &[(&str, String)]) -> Workplaces {
    let (state, home) = (folder.join("state"), folder.join("home"));
    let mut environment: Environment =
        [("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()), ("HOME", home.display().to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
    environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let config = Config::new(
        "http://s",
        MachineId::generate(),
        ensemble_client::Credential::Bearer("t".into()),
        &state,
        environment,
    );
    Workplaces::open(&config).unwrap()
}

impl Fixture {
    fn new() -> Self {
        Self::with(&[])
    }

    /// With these variables of the runner.
    fn with(variables: &[(&str, String)]) -> Self {
        let fixture = Self::empty_with(variables);
        fixture.git(&["init", "--quiet", "--initial-branch=main", "."]);
        fixture.write("a", "one\ntwo\nthree\n");
        fixture.write("b", "b\n");
        fixture.write("folder/c", "c\n");
        fixture.write(".gitignore", "ignored*\n");
        fixture.commit("first");
        fixture
    }

    /// A directory outside of git.
    fn empty() -> Self {
        Self::empty_with(&[])
    }

    fn empty_with(variables: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (state, home) = (folder.path().join("state"), folder.path().join("home"));
        for path in [&state, &home, &folder.path().join("project")] {
            fs::create_dir(path).unwrap();
        }
        Self { workplaces: workplaces(folder.path(), variables), folder }
    }

    fn top(&self) -> PathBuf {
        self.folder.path().join("project").canonicalize().unwrap()
    }

    /// git as the person uses it.
    fn git(&self, args: &[&str]) -> String {
        git_in(&self.top(), args)
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", message]);
    }

    fn write(&self, path: &str, text: &str) {
        write(&self.top().join(path), text);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.top().join(path)).unwrap()
    }

    fn task(&self, isolation: Isolation) -> Lease {
        Lease {
            follow_up: false,
            max_cost_usd: None,
            resume_cost_usd: None,
            id: LeaseId::generate(),
            fence: 1,
            run_id: RunId::generate(),
            task_id: TaskId::generate(),
            attempt: 1,
            provider: Provider::Claude,
            model: None,
            prompt: "p".to_owned(),
            sealed: None,
            session: None,
            signed: None,
            signed_message: None,
            outputs: Default::default(),
            working_directory: None,
            timeout_ms: 1,
            permission: None,
            allowed_tools: Vec::new(),
            isolation,
            base: None,
            base_task: None,
            resume: None,
            traceparent: None,
            expires_at: Timestamp::from_unix_seconds(0),
        }
    }

    async fn enter(&self, lease: &Lease) -> Result<Place, Outcome> {
        self.enter_below(lease, "").await
    }

    async fn enter_below(&self, lease: &Lease, below: &str) -> Result<Place, Outcome> {
        let directory = Directory { root: self.top(), below: below.into() };
        let entry = self.workplaces.entry(lease, directory, false).await;
        let turn = self.workplaces.turn(&entry).await;
        self.workplaces.enter(lease, entry, turn).await
    }

    /// A task that does this in its worktree. Returns it with what it changed.
    async fn worktree(&self, work: impl FnOnce(&Path)) -> (TaskId, Changed) {
        let lease = self.task(Isolation::Worktree);
        let place = self.enter(&lease).await.unwrap();
        work(&path(&place));
        (lease.task_id, self.workplaces.changes(&place).await.unwrap())
    }

    async fn order(&self, kind: OrderKind, task: TaskId) -> (OrderOutcome, Vec<String>) {
        let OrderResult { outcome, files, .. } = self.workplaces.carry_out(kind, task, None).await;
        (outcome, files.into_iter().map(|file| file.into_string()).collect())
    }

    async fn apply(&self, task: TaskId) -> (OrderOutcome, Vec<String>) {
        self.order(OrderKind::Apply, task).await
    }

    async fn discard(&self, task: TaskId) -> OrderOutcome {
        self.order(OrderKind::Discard, task).await.0
    }

    /// Everything of the person: files with their times, the index, and the refs.
    fn everything(&self) -> Vec<Known> {
        let mut found = Vec::new();
        let mut folders = vec![self.top()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let of = fs::symlink_metadata(&path).unwrap();
                // Of the repository only what is the person's: unreferenced objects do not count.
                if path.ends_with(".git/objects")
                    || path.ends_with(".git/worktrees")
                    || path.ends_with(".git/logs")
                    || path.ends_with(".git/hooks")
                {
                    continue;
                }
                if of.is_dir() {
                    folders.push(path);
                } else {
                    let text = if of.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                    let text = String::from_utf8_lossy(&text).chars().take(100).collect();
                    found.push((path, of.ino(), of.mtime(), of.mtime_nsec(), text));
                }
            }
        }
        found.sort();
        found
    }
}

/// A file: its path, inode, seconds and nanoseconds of its last change, and the begin of its text.
type Known = (PathBuf, u64, i64, i64, String);

fn path(place: &Place) -> PathBuf {
    let below = &place.directory.below;
    if below.as_os_str().is_empty() { place.directory.root.clone() } else { place.directory.root.join(below) }
}

fn git_in(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=p", "-c", "user.email=p@example.com", "-c", "protocol.file.allow=always"])
        .args(args)
        .env_remove("GIT_DIR")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The kinds, paths and counts of the files.
fn files(changed: &Changed) -> Vec<String> {
    let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let files = changed.report.files.iter();
    files
        .map(|file| format!("{:?} {} +{} -{}", file.kind, &*file.path, count(file.added), count(file.removed)))
        .collect()
}

fn diff(changed: &Changed) -> String {
    changed.diff.iter().map(|part| part.data.as_str()).collect()
}

fn code(refused: Result<Place, Outcome>) -> String {
    refused.err().unwrap().error.unwrap().code.into_string()
}
