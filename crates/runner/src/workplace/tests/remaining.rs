//! Work that git does not list as a change is not removed without an order, and people hear of it.

use std::fs;

use super::*;
use crate::workplace::worktree::State;

impl Fixture {
    /// What an attempt that does this in its own worktree is said to have changed, and where it worked.
    async fn says(&self, work: impl FnOnce(&Path)) -> (TaskId, PathBuf, Changed) {
        let lease = self.task(Isolation::Worktree);
        let place = self.enter(&lease).await.unwrap();
        work(&path(&place));
        (lease.task_id, path(&place), self.workplaces.changes(&place).await.unwrap())
    }

    fn state(&self, task: TaskId) -> Option<State> {
        self.workplaces.0.worktrees.find(task).unwrap().map(|worktree| worktree.state)
    }

    /// Makes a worktree as old as one can be, and lets another one make room.
    async fn makes_room(&self, task: TaskId) {
        let record = self.workplaces.0.worktrees.folder_of(task).join("worktree.json");
        let mut old: serde_json::Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        old["usedAt"] = 1.into();
        fs::write(record, old.to_string()).unwrap();
        drop(self.enter(&self.task(Isolation::Worktree)).await.unwrap());
    }
}

fn notes(changed: &Changed) -> String {
    changed.report.notes.iter().map(|note| &**note).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_repository_in_a_worktree_is_kept_and_named() {
    let fixture = Fixture::new();
    let in_folder = |tree: &Path, folder: &str, commits: bool| {
        write(&tree.join(folder).join("work.txt"), "precious\n");
        git_in(&tree.join(folder), &["init", "--quiet", "."]);
        if commits {
            git_in(&tree.join(folder), &["add", "--all"]);
            git_in(&tree.join(folder), &["commit", "--quiet", "-m", "w"]);
        }
    };
    for (folder, commits) in [("app", true), ("app", false), ("ignored/app", true), ("folder/app", true)] {
        let (task, tree, changed) = fixture.says(|tree| in_folder(tree, folder, commits)).await;
        let said = notes(&changed);
        let inner = tree.join(folder).display().to_string();
        assert!(said.contains(&inner) && said.contains("a separate repository"), "{folder}: {said}");
        assert_eq!(fixture.state(task), Some(State::Kept), "{folder}");
        fixture.makes_room(task).await;
        assert_eq!(fs::read_to_string(tree.join(folder).join("work.txt")).unwrap(), "precious\n", "{folder}");
        assert_eq!(fixture.discard(task).await, OrderOutcome::Discarded);
        assert!(!tree.exists());
    }
}

#[tokio::test]
async fn what_git_ignores_and_commits_without_a_branch_are_kept_too() {
    let fixture = Fixture::new();
    let (task, tree, changed) = fixture.says(|tree| write(&tree.join("ignored.txt"), "precious\n")).await;
    assert!(notes(&changed).contains("ignored.txt"), "{}", notes(&changed));
    fixture.makes_room(task).await;
    assert!(tree.join("ignored.txt").exists());

    let commits_and_goes_back = |tree: &Path| {
        git_in(tree, &["checkout", "--quiet", "--detach"]);
        write(&tree.join("d"), "1\n");
        git_in(tree, &["add", "--all"]);
        git_in(tree, &["commit", "--quiet", "-m", "alone"]);
        git_in(tree, &["checkout", "--quiet", "-"]);
    };
    let (task, tree, changed) = fixture.says(commits_and_goes_back).await;
    assert!(notes(&changed).contains("commits that no branch has"), "{}", notes(&changed));
    fixture.makes_room(task).await;
    assert!(tree.exists());

    // What tools make is no work.
    let (task, tree, changed) = fixture.says(|tree| write(&tree.join("ignored.log"), "a\n")).await;
    assert_eq!((changed.report.file_count, notes(&changed)), (0, String::new()));
    fixture.makes_room(task).await;
    assert!(!tree.exists(), "nothing is lost with it");
}

#[tokio::test]
async fn a_lock_that_a_killed_git_has_left_hides_nothing() {
    let fixture = Fixture::new();
    let (task, _, changed) = fixture
        .says(|tree| {
            write(&tree.join("b"), "fixed\n");
            let lock = git_in(tree, &["rev-parse", "--git-path", "index.lock"]);
            fs::write(tree.join(lock.trim()), "").unwrap();
        })
        .await;
    assert_eq!(files(&changed), ["Modified b +1 -1"]);
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("b"), "fixed\n");
}

#[tokio::test]
async fn a_worktree_with_very_many_files_is_committed_to_its_branch() {
    let fixture = Fixture::new();
    let (task, _, changed) = fixture
        .says(|tree| {
            fs::create_dir(tree.join("many")).unwrap();
            (0..20_100).for_each(|number| fs::write(tree.join(format!("many/{number}")), "").unwrap());
            write(&tree.join("b"), "fixed\n");
        })
        .await;
    assert_eq!((changed.report.file_count, changed.report.unknown), (20_101, false));
    assert_eq!(fixture.git(&["show", &format!("ensemble/{task}:b")]), "fixed\n");
}

#[tokio::test]
async fn what_cannot_be_read_is_said_kept_and_read_again_by_the_order() {
    let fixture = Fixture::new();
    let mut index = PathBuf::new();
    let mut good = Vec::new();
    let (task, tree, changed) = fixture
        .says(|tree| {
            write(&tree.join("b"), "fixed\n");
            index = tree.join(git_in(tree, &["rev-parse", "--git-path", "index"]).trim());
            good = fs::read(&index).unwrap();
            fs::write(&index, "this is no index").unwrap();
        })
        .await;
    assert!(changed.report.unknown && changed.report.kept && changed.report.file_count == 0);
    let said = notes(&changed);
    assert!(said.contains("not known") && said.contains(&tree.display().to_string()), "{said}");
    fixture.makes_room(task).await;
    assert!(tree.exists());

    let result = fixture.workplaces.carry_out(OrderKind::Apply, task, None).await;
    assert_eq!(result.outcome, OrderOutcome::Failed);
    assert!(result.reason.unwrap().contains("index"), "the reason is said");
    fs::write(&index, good).unwrap();
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("b"), "fixed\n");

    // Not even the worktree's own part of the repository has to be there for an order to discard it.
    let (task, tree, changed) = fixture
        .says(|tree| {
            let own = git_in(tree, &["rev-parse", "--absolute-git-dir"]);
            fs::remove_dir_all(own.trim()).unwrap();
        })
        .await;
    assert!(changed.report.unknown);
    assert_eq!(fixture.discard(task).await, OrderOutcome::Discarded);
    assert!(!tree.exists());
}

#[tokio::test]
async fn work_in_a_worktree_after_it_was_applied_is_kept() {
    let fixture = Fixture::new();
    let (task, tree, _) = fixture.says(|tree| write(&tree.join("b"), "fixed\n")).await;
    assert_eq!(fixture.apply(task).await.0, OrderOutcome::Applied);
    write(&tree.join("b"), "fixed again\n");
    fixture.makes_room(task).await;
    assert_eq!(fs::read_to_string(tree.join("b")).unwrap(), "fixed again\n");
}

#[tokio::test]
async fn a_repository_that_was_moved_is_the_reason_of_the_result() {
    let fixture = Fixture::new();
    let (task, tree, _) = fixture.says(|tree| write(&tree.join("b"), "fixed\n")).await;
    fs::rename(fixture.top(), fixture.folder.path().join("elsewhere")).unwrap();
    let result = fixture.workplaces.carry_out(OrderKind::Apply, task, None).await;
    let reason = result.reason.unwrap();
    assert!(reason.contains("is not there any more") && reason.contains(&tree.display().to_string()), "{reason:?}");
}

#[tokio::test]
async fn a_branch_that_is_in_the_way_and_missing_files_are_named() {
    let fixture = Fixture::new();
    fixture.git(&["branch", "ensemble"]);
    let refused = refusal(&fixture).await;
    assert!(refused.contains("git branch -m ensemble"), "{refused}");
    fixture.git(&["branch", "-m", "ensemble", "other"]);
    drop(fixture.enter(&fixture.task(Isolation::Worktree)).await.unwrap());

    // The clone has the commits of `feature` and not its files.
    fixture.git(&["checkout", "--quiet", "-b", "feature"]);
    fixture.write("big", "1\n");
    fixture.commit("big");
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.git(&["config", "uploadpack.allowFilter", "true"]);
    let clone = Fixture::empty();
    let source = format!("file://{}", fixture.top().display());
    git_in(clone.folder.path(), &["clone", "--quiet", "--filter=blob:none", &source, "project"]);
    let lease = Lease { base: Some("origin/feature".to_owned()), ..clone.task(Isolation::Worktree) };
    let refused = clone.enter(&lease).await.err().unwrap().error.unwrap();
    assert!(refused.message.contains("partial clone") && refused.message.contains("git fetch"), "{refused:?}");
}

/// A folder with a git that first does this.
fn git_that(does: &str) -> (TempDir, String) {
    let tools = tempfile::tempdir().unwrap();
    let program = tools.path().join("git");
    fs::write(&program, format!("#!/bin/sh\n{does}\nPATH=${{PATH#*:}} exec git \"$@\"\n")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", tools.path().display());
    (tools, path)
}

async fn refusal(fixture: &Fixture) -> String {
    let refused = fixture.enter(&fixture.task(Isolation::Worktree)).await;
    refused.err().unwrap().error.unwrap().message.into_string()
}

#[tokio::test]
async fn an_old_git_is_named_before_the_work() {
    let (_tools, path) = git_that("for word; do [ \"$word\" = version ] && echo git version 2.34.1 && exit; done");
    let fixture = Fixture::with(&[("PATH", path)]);
    let refused = refusal(&fixture).await;
    assert!(refused.contains("git 2.34") && refused.contains("2.38"), "{refused}");
    drop(fixture.enter(&fixture.task(Isolation::None)).await.unwrap());
}

#[tokio::test]
async fn whom_the_system_trusts_counts_and_distrust_is_named() {
    let system = tempfile::NamedTempFile::new().unwrap();
    let (_tools, path) = git_that("export GIT_TEST_ASSUME_DIFFERENT_OWNER=1");
    let variables = [("PATH", path), ("GIT_CONFIG_SYSTEM", system.path().display().to_string())];
    let fixture = Fixture::with(&variables);
    let refused = refusal(&fixture).await;
    assert!(refused.contains("does not trust") && refused.contains("safe.directory"), "{refused}");
    let place = fixture.enter(&fixture.task(Isolation::None)).await.unwrap();
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert!(changed.report.unknown && notes(&changed).contains("does not trust"), "{}", notes(&changed));
    drop(place);

    fs::write(system.path(), "[safe]\n\tdirectory = *\n").unwrap();
    let trusting = Fixture { workplaces: workplaces(fixture.folder.path(), &variables), ..fixture };
    drop(trusting.enter(&trusting.task(Isolation::Worktree)).await.unwrap());
}

#[tokio::test]
async fn what_a_worktree_does_not_have_is_said_before() {
    let fixture = Fixture::new();
    let environment = [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into();
    let absent = async || crate::workplace::absent_in_worktree(&fixture.top().join("folder"), &environment).await;
    assert_eq!(absent().await, [] as [&str; 0]);
    fixture.write(".gitattributes", "*.bin filter=lfs\n");
    fixture.write("one.bin", "1\n");
    fixture.write("two.bin", "2\n");
    fixture.commit("filtered");
    let other = Fixture::new();
    fixture.git(&["submodule", "--quiet", "add", &other.top().display().to_string(), "inner"]);
    let said = absent().await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("2 files") && said[0].contains("lfs") && said[1].contains("submodule"), "{said:?}");
}
