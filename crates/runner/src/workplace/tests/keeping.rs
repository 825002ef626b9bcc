//! Which worktrees are made, kept and removed.

use std::fs;

use super::*;
use crate::workplace::worktree::State;

#[tokio::test]
async fn a_worktree_is_made_without_uncommitted_changes_and_kept_for_the_next_attempt() {
    let fixture = Fixture::new();
    fixture.write("a", "mine\n");
    fixture.write("untracked", "mine\n");
    let before = fixture.everything();
    let lease = fixture.task(Isolation::Worktree);
    let place = fixture.enter_below(&lease, "folder").await.unwrap();
    let tree = path(&place);
    assert!(
        tree.ends_with("project/folder")
            && tree.starts_with(fixture.folder.path().canonicalize().unwrap().join("state"))
    );
    assert_eq!(fs::read_to_string(tree.join("../a")).unwrap(), "one\ntwo\nthree\n");
    assert!(!tree.join("../untracked").exists());
    write(&tree.join("c"), "1\n");
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!((files(&changed), changed.report.uncommitted), (vec!["Modified folder/c +1 -1".to_owned()], 2));
    drop(place);
    let place = fixture.enter_below(&lease, "folder").await.unwrap();
    assert_eq!(fs::read_to_string(path(&place).join("c")).unwrap(), "1\n");
    // The second attempt commits, on its own branch, and leaves a change.
    git_in(&tree, &["checkout", "--quiet", "-b", "agents-own"]);
    write(&tree.join("d"), "2\n");
    git_in(&tree, &["add", "--all"]);
    git_in(&tree, &["commit", "--quiet", "-m", "its"]);
    write(&tree.join("e"), "3\n");
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!(files(&changed), ["Modified folder/c +1 -1", "Added folder/d +1 -0", "Added folder/e +1 -0"]);
    drop(place);
    fixture.git(&["checkout", "--quiet", "--", "a"]);
    assert_eq!(fixture.apply(lease.task_id).await.0, OrderOutcome::Applied);
    assert_eq!(fixture.read("folder/e"), "3\n");
    assert_eq!(fixture.discard(lease.task_id).await, OrderOutcome::Discarded);
    for path in ["a", "folder/c", "folder/d", "folder/e"] {
        assert!(fixture.top().join(path).exists(), "{path}");
    }
    assert!(before.len() <= fixture.everything().len());
}

#[tokio::test]
async fn a_base_is_a_ref_or_another_tasks_worktree() {
    let fixture = Fixture::new();
    fixture.git(&["tag", "start"]);
    fixture.write("b", "2\n");
    fixture.commit("second");
    let mut lease = Lease { base: Some("start".to_owned()), ..fixture.task(Isolation::Worktree) };
    let place = fixture.enter(&lease).await.unwrap();
    assert_eq!(fs::read_to_string(path(&place).join("b")).unwrap(), "b\n");
    write(&path(&place).join("b"), "of the first\n");
    fixture.workplaces.changes(&place).await.unwrap();
    let first = std::mem::replace(&mut lease, fixture.task(Isolation::Worktree)).task_id;
    lease.base_task = Some(first);
    let second = fixture.enter(&lease).await.unwrap();
    assert_eq!(fs::read_to_string(path(&second).join("b")).unwrap(), "of the first\n");
    write(&path(&second).join("new"), "of the second\n");
    let changed = fixture.workplaces.changes(&second).await.unwrap();
    assert_eq!(files(&changed), ["Added new +1 -0"], "what it changed itself");

    for base in ["missing", "--output=x", "-q"] {
        let lease = Lease { base: Some(base.to_owned()), ..fixture.task(Isolation::Worktree) };
        assert_eq!(code(fixture.enter(&lease).await), "WORKING_DIRECTORY_NO_BASE", "{base}");
    }
    let lease = Lease { base_task: Some(TaskId::generate()), ..fixture.task(Isolation::Worktree) };
    assert_eq!(code(fixture.enter(&lease).await), "WORKING_DIRECTORY_NO_BASE");
    assert!(!fixture.top().join("x").exists());
}

#[tokio::test]
async fn no_worktree_without_git_or_without_a_commit() {
    let fixture = Fixture::empty();
    assert_eq!(code(fixture.enter(&fixture.task(Isolation::Worktree)).await), "WORKING_DIRECTORY_NOT_GIT");
    fixture.git(&["init", "--quiet", "."]);
    assert_eq!(code(fixture.enter(&fixture.task(Isolation::Worktree)).await), "WORKING_DIRECTORY_NO_BASE");
    let fixture = Fixture::new();
    fs::create_dir(fixture.top().join("not-committed")).unwrap();
    let lease = fixture.task(Isolation::Worktree);
    assert_eq!(code(fixture.enter_below(&lease, "not-committed").await), "WORKING_DIRECTORY_NOT_FOUND");
}

#[tokio::test]
async fn the_oldest_without_changes_makes_room_and_one_with_changes_never() {
    let fixture = Fixture::new();
    let mut tasks = Vec::new();
    for number in 0..32 {
        let (task, _) = fixture.worktree(|tree| write(&tree.join("b"), &format!("{number}\n"))).await;
        tasks.push(task);
    }
    let refused = fixture.enter(&fixture.task(Isolation::Worktree)).await;
    assert_eq!(code(refused), "HOST_BUSY");
    let folder = |task: &TaskId| fixture.folder.path().join("state/worktrees").join(task.to_string());
    assert!(tasks.iter().all(|task| folder(task).join("project/b").exists()));
    assert_eq!(fixture.apply(tasks[20]).await.0, OrderOutcome::Applied);
    // An attempt works in the one that could go.
    let held = fixture.workplaces.0.turns.take(&fixture.workplaces.0.worktrees.folder_of(tasks[20])).await;
    assert_eq!(code(fixture.enter(&fixture.task(Isolation::Worktree)).await), "HOST_BUSY");
    drop(held);
    let (unchanged, changed) = fixture.worktree(|_| {}).await;
    assert_eq!(changed.report.file_count, 0);
    assert!(!folder(&tasks[20]).exists(), "the applied one has made room");
    let (_, _) = fixture.worktree(|tree| write(&tree.join("b"), "x\n")).await;
    assert!(!folder(&unchanged).exists(), "the unchanged one has made room");
    assert_eq!(fixture.git(&["branch", "--list", "ensemble/*"]).lines().count(), 32);
}

#[tokio::test]
async fn an_attempt_that_was_interrupted_keeps_its_worktree_when_it_changed_something() {
    let fixture = Fixture::new();
    let (changed, unchanged) = (fixture.task(Isolation::Worktree), fixture.task(Isolation::Worktree));
    let place = fixture.enter(&changed).await.unwrap();
    write(&path(&place).join("b"), "x\n");
    drop(place);
    drop(fixture.enter(&unchanged).await.unwrap());
    let worktrees = &fixture.workplaces.0.worktrees;
    for lease in [&changed, &unchanged] {
        let found = worktrees.find(lease.task_id).unwrap().unwrap();
        assert_eq!(found.state, State::Open);
        let text = fs::read_to_string(worktrees.folder_of(lease.task_id).join("worktree.json")).unwrap();
        let mut old: serde_json::Value = serde_json::from_str(&text).unwrap();
        old["usedAt"] = 1.into();
        fs::write(worktrees.folder_of(lease.task_id).join("worktree.json"), old.to_string()).unwrap();
    }
    drop(fixture.enter(&fixture.task(Isolation::Worktree)).await.unwrap());
    assert!(worktrees.find(changed.task_id).unwrap().is_some());
    assert!(worktrees.find(unchanged.task_id).unwrap().is_none(), "it was old");
}

/// What an agent leaves in its worktree does not lead git, or the removal, elsewhere.
#[tokio::test]
async fn a_worktree_that_points_elsewhere_does_no_harm() {
    let fixture = Fixture::new();
    let other = Fixture::new();
    let lease = fixture.task(Isolation::Worktree);
    let place = fixture.enter(&lease).await.unwrap();
    let tree = path(&place);
    write(&tree.join("b"), "x\n");
    fs::write(tree.join(".git"), format!("gitdir: {}\n", other.top().join(".git").display())).unwrap();
    let before = other.everything();
    let changed = fixture.workplaces.changes(&place).await.unwrap();
    assert_eq!(files(&changed), ["Modified b +1 -1"]);
    drop(place);
    // Instead of the worktree there is a link to the person's own tree.
    fs::remove_dir_all(&tree).unwrap();
    std::os::unix::fs::symlink(other.top(), &tree).unwrap();
    assert_eq!(fixture.discard(lease.task_id).await, OrderOutcome::Discarded);
    assert_eq!(other.everything(), before);
    // A branch that the person has checked out stays.
    let (task, _) = fixture.worktree(|tree| write(&tree.join("b"), "x\n")).await;
    fixture.git(&["checkout", "--quiet", "--ignore-other-worktrees", &format!("ensemble/{task}")]);
    assert_eq!(fixture.discard(task).await, OrderOutcome::Discarded);
    assert!(fixture.git(&["log", "-1", "--format=%s"]).contains("left"));
}
